/* SPDX-License-Identifier: MIT */
/* text_ids.h - the ids of long texts, piece by piece, in memory that does not grow with the text. */
#ifndef WF_CLI_TEXT_IDS_H
#define WF_CLI_TEXT_IDS_H

#include "cli/cli.h"

/* Gets the ids in order; *enough ends it early. */
typedef wf_status wf_ids_fn(void *user, const int32_t *ids, size_t count, bool *enough);

typedef struct {
    wf_ctx *ctx;
    const wf_tokenizer *tokenizer;
    uint32_t flags; /* WF_TEXT_... */
    size_t most;    /* bytes of a file; 0: any number */
    wf_ids_fn *fn;
    void *user;
    size_t bytes; /* of the text, when it was read to its end */
    bool enough;  /* fn ended it */
} wf_text_ids;

wf_status wf_text_ids_memory(wf_text_ids *x, const char *text, size_t bytes);
/* "-" is stdin. Bytes that are no UTF-8 are noted on stderr. */
wf_status wf_text_ids_file(wf_text_ids *x, const char *path);

/* A list of ids for use with them: `user` of wf_ids_list_add, which ends it at `most` ids (0: any number). */
typedef struct {
    wf_ctx *ctx;
    int32_t *ids; /* for wf_ids_free */
    size_t count, room, most;
} wf_ids_list;
wf_ids_fn wf_ids_list_add;

#endif
