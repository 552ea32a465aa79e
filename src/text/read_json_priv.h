/* SPDX-License-Identifier: MIT */
/* read_json_priv.h - shared by read_json.c and read_steps.c. */
#ifndef WF_TEXT_READ_JSON_PRIV_H
#define WF_TEXT_READ_JSON_PRIV_H

#include "text/token_priv.h"

typedef struct {
    const char *what; /* file name, for messages */
    wf_tokenizer *t;
    const wf_json_node *config;  /* tokenizer_config.json or NULL */
    const wf_json_node *added;   /* added_tokens: an array or NULL */
    const wf_json_node *decoder; /* added_tokens_decoder of the configuration: an object or NULL */
    int64_t most;                /* every id must be below it */
} wf_json_reader;

/* Fails with WF_ERR_FORMAT: "cannot read 'FILE': WHAT". */
wf_status wf_json_reader_fail(const wf_json_reader *r, const char *what);

/* Read one part of the pipeline and add its steps. NULL and null add nothing. */
wf_status wf_json_read_normalizer(wf_json_reader *r, const wf_json_node *node, int depth);
wf_status wf_json_read_words(wf_json_reader *r, const wf_json_node *node, int depth);
wf_status wf_json_read_decoder(wf_json_reader *r, const wf_json_node *node, int depth);
wf_status wf_json_read_processor(wf_json_reader *r, const wf_json_node *node, int depth);

#endif
