/* SPDX-License-Identifier: MIT */
/* gguf_priv.h - what reading and writing GGUF share: the numbers of the format. */
#ifndef WF_FORMAT_GGUF_PRIV_H
#define WF_FORMAT_GGUF_PRIV_H

#include "format/gguf.h"

#define WF_GGUF_MAGIC 0x46554747u /* "GGUF", little-endian */
#define WF_GGUF_VERSION 3         /* that is written */
#define WF_GGUF_ALIGNMENT 32      /* unless general.alignment says otherwise */
#define WF_GGUF_MIN_ALIGNMENT 8
#define WF_GGUF_MAX_ALIGNMENT 65536
#define WF_GGUF_MAX_RANK 4
#define WF_GGUF_MAX_KEY 65535 /* bytes */
#define WF_GGUF_MAX_NAME 255  /* bytes of the name of a tensor; ggml itself admits 63 */

/* Kinds of value. */
typedef struct {
    const char *name;
    uint8_t bytes; /* 0: not fixed */
    enum { WF_GGUF_OTHER, WF_GGUF_SIGNED, WF_GGUF_UNSIGNED, WF_GGUF_FLOAT } sort;
} wf_gguf_kind_info;
extern const wf_gguf_kind_info wf_gguf_kinds[WF_GGUF_KINDS];

/* Types of tensor: all that ggml has had under these numbers, whether Weft computes with them or not. */
typedef struct {
    uint32_t id;
    const char *name;
    wf_type type; /* WF_TYPE_NONE: Weft does not */
} wf_gguf_type_info;
/* NULL: no such number. */
const wf_gguf_type_info *wf_gguf_type_by_id(uint32_t id);
/* NULL: the format has no such type. */
const wf_gguf_type_info *wf_gguf_type_of(wf_type type);
/* "F32, F16, ..." of those that Weft computes with. */
#define WF_GGUF_TYPE_LIST 160
const char *wf_gguf_type_list(char out[WF_GGUF_TYPE_LIST]);

/* What the name of a part ends in. */
#define WF_GGUF_SUFFIX_BYTES (sizeof "-00001-of-00001.gguf" - 1)
void wf_gguf_part_suffix(char out[WF_GGUF_SUFFIX_BYTES + 1], int64_t no, int64_t count);

/* Numbers at addresses of any alignment; value kinds only. The floats of a float kind, the integers of
 * an integer kind. */
double wf_gguf_load_float(wf_gguf_kind kind, const uint8_t *at);
/* false: too large for int64. */
bool wf_gguf_load_int(wf_gguf_kind kind, const uint8_t *at, int64_t *out);

/* Reads one file, which is mapped in the store already, and adds its tensors; nothing is sealed. The
 * pairs are the caller's, also after a failure, for wf_mem_free. */
typedef struct {
    uint32_t version;
    wf_gguf_pair *pair;
    int pairs;
    const void **sorted;
} wf_gguf_part;
wf_status wf_gguf_read_part(wf_store *store, int file, wf_gguf_part *out);

#endif
