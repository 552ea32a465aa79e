/* SPDX-License-Identifier: MIT */
/* read_json_priv.h - between the files that read tokenizer.json. */
#ifndef WF_TEXT_READ_JSON_PRIV_H
#define WF_TEXT_READ_JSON_PRIV_H

#include "text/token_priv.h"

typedef struct {
    const char *what; /* the file's name */
    wf_tokenizer *t;
    const wf_json_node *config;  /* tokenizer_config.json or NULL */
    const wf_json_node *added;   /* added_tokens, an array or NULL */
    const wf_json_node *decoder; /* added_tokens_decoder of the configuration, an object or NULL */
    int64_t most;                /* ids are below it */
} wf_json_reader;

wf_status wf_json_reader_fail(const wf_json_reader *r, const char *what);

/* Parts of the pipeline; NULL and null are nothing. */
wf_status wf_json_read_normalizer(wf_json_reader *r, const wf_json_node *node, int depth);
wf_status wf_json_read_words(wf_json_reader *r, const wf_json_node *node, int depth);
wf_status wf_json_read_decoder(wf_json_reader *r, const wf_json_node *node, int depth);
wf_status wf_json_read_processor(wf_json_reader *r, const wf_json_node *node, int depth);

#endif
