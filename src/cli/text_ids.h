/* SPDX-License-Identifier: MIT */
/* text_ids.h - tokenizes long texts piece by piece, in constant memory. */
#ifndef WF_CLI_TEXT_IDS_H
#define WF_CLI_TEXT_IDS_H

#include "cli/cli.h"

/* Receives the ids in order; sets *enough to stop early. */
typedef wf_status wf_ids_fn(void *user, const int32_t *ids, size_t count, bool *enough);

typedef struct {
    wf_ctx *ctx;
    const wf_tokenizer *tokenizer;
    uint32_t flags; /* WF_TEXT_... */
    size_t most;    /* limit on the bytes of a file; 0: none */
    wf_ids_fn *fn;
    void *user;
    size_t bytes; /* out: bytes read */
    bool enough;  /* out: fn stopped early */
} wf_text_ids;

wf_status wf_text_ids_memory(wf_text_ids *x, const char *text, size_t bytes);
/* "-" is stdin. Prints a note for invalid UTF-8. */
wf_status wf_text_ids_file(wf_text_ids *x, const char *path);

/* A growing list of ids: the `user` of wf_ids_list_add, which stops at `most` ids (0: no limit). */
typedef struct {
    wf_ctx *ctx;
    int32_t *ids; /* free with wf_ids_free */
    size_t count, room, most;
} wf_ids_list;
wf_ids_fn wf_ids_list_add;

#endif
