/* SPDX-License-Identifier: MIT */
/* gguf_priv.h - shared by the GGUF reader and writer: constants, value kinds and tensor types. */
#ifndef WF_FORMAT_GGUF_PRIV_H
#define WF_FORMAT_GGUF_PRIV_H

#include "format/gguf.h"

#define WF_GGUF_MAGIC 0x46554747u /* "GGUF", little-endian */
#define WF_GGUF_VERSION 3         /* version of written files */
#define WF_GGUF_ALIGNMENT 32      /* without the key general.alignment */
#define WF_GGUF_MIN_ALIGNMENT 8   /* kernels read elements of up to 8 bytes in place */
#define WF_GGUF_MAX_ALIGNMENT 65536
#define WF_GGUF_MAX_RANK 4    /* as in ggml */
#define WF_GGUF_MAX_KEY 65535 /* bytes */
#define WF_GGUF_MAX_NAME 255  /* bytes of a tensor's name; ggml accepts 63 */

/* Kinds of metadata values. */
typedef struct {
    const char *name;
    uint8_t bytes; /* 0: not of fixed size */
    enum { WF_GGUF_OTHER, WF_GGUF_SIGNED, WF_GGUF_UNSIGNED, WF_GGUF_FLOAT } sort;
} wf_gguf_kind_info;
extern const wf_gguf_kind_info wf_gguf_kinds[WF_GGUF_KINDS];

/* Tensor types: all that ggml has assigned a number, supported by Weft or not. */
typedef struct {
    uint32_t id;
    const char *name;
    wf_type type; /* WF_TYPE_NONE: not supported */
} wf_gguf_type_info;
/* Returns NULL for an unknown number. */
const wf_gguf_type_info *wf_gguf_type_by_id(uint32_t id);
/* Returns NULL if GGUF has no such type. */
const wf_gguf_type_info *wf_gguf_type_of(wf_type type);
/* Writes the supported types, "F32, F16, ...". */
#define WF_GGUF_TYPE_LIST 160
const char *wf_gguf_type_list(char out[WF_GGUF_TYPE_LIST]);

/* The end of a part's file name. */
#define WF_GGUF_SUFFIX_BYTES (sizeof "-00001-of-00001.gguf" - 1)
void wf_gguf_part_suffix(char out[WF_GGUF_SUFFIX_BYTES + 1], int64_t no, int64_t count);

/* Load one number from an address of any alignment. The kind must be a float kind, or an integer
 * kind. */
double wf_gguf_load_float(wf_gguf_kind kind, const uint8_t *at);
/* Returns false if the value exceeds int64. */
bool wf_gguf_load_int(wf_gguf_kind kind, const uint8_t *at, int64_t *out);

/* Reads one file that the store has mapped, and adds its tensors. Does not seal the store. The
 * caller frees pair and sorted with wf_mem_free, also after a failure. */
typedef struct {
    uint32_t version;
    wf_gguf_pair *pair; /* [pairs] */
    int pairs;
    const void **sorted; /* [pairs] by key (names.h) */
} wf_gguf_part;
wf_status wf_gguf_read_part(wf_store *store, int file, wf_gguf_part *out);

#endif
