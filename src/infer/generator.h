/* SPDX-License-Identifier: MIT */
/*
 * generator.h - generators and sequences from inside.
 *
 * A run of the model takes any mixture: chunks of prompts and single tokens of sequences that are being
 * generated are the same thing, tokens that continue a sequence. Shapes being static, there are
 * executables for a few numbers of tokens; a run takes the smallest that holds its tokens, and pads.
 */
#ifndef WF_INFER_GENERATOR_H
#define WF_INFER_GENERATOR_H

#include "base/writer.h"
#include "infer/pages.h"
#include "infer/sample.h"
#include "infer/stop.h"
#include "model/adapter.h"
#include "model/model.h"

#define WF_PAGE_TOKENS 16
#define WF_MAX_BUCKETS 6

typedef struct {
    int64_t tokens;
    wf_exec *exec;
} wf_bucket;

struct wf_generator {
    wf_ctx *ctx;
    const wf_model *model;
    wf_adapters adapters;
    wf_session *session;
    int64_t context, sequences, chunk; /* options, defaults filled in */
    wf_type kv;
    int64_t vocab;
    wf_mask mask;       /* ids that are never generated */
    int64_t pages_each; /* most pages of a sequence */
    wf_pages pages;
    wf_bucket bucket[WF_MAX_BUCKETS]; /* by ascending tokens */
    int buckets;
    wf_exec *every;      /* gives logits of all tokens; made when first asked for */
    float *every_logits; /* and what it gives */
    wf_sequence **slot;  /* [sequences]; NULL: free */
    /* what is written before a run, and read after it */
    int32_t *tokens, *positions; /* [most tokens of a run] */
    int32_t *seq_start;          /* [sequences + 1] */
    int32_t *table;              /* [sequences, pages_each] */
    int32_t *lengths, *rows;     /* [sequences] */
    int32_t *best;               /* [sequences] */
    float *top;                  /* [sequences]: their logits */
    float *logits;               /* [sequences, vocab] */
    wf_generator_stats stats;
};

struct wf_sequence {
    wf_generator *generator;
    int64_t slot;
    int32_t *token; /* prompt, then what was generated: [context] */
    int64_t count, prompt;
    int64_t cached; /* tokens whose keys and values are in pages */
    int32_t *page;  /* [pages_each] */
    int64_t pages;
    int64_t row; /* of this run's logits; -1: none are wanted */
    wf_stop stop;
    int64_t limit; /* tokens to generate; 0: no limit */
    bool ignore_end;
    int32_t *stop_token;
    int stop_tokens;
    wf_sampler *sampler;
    wf_decoder *decoder; /* NULL: the model has no tokenizer, and there is no text */
    wf_stopper *stopper;
    wf_writer text; /* generated and not asked for yet */
    char *given;    /* what the last wf_sequence_text returned */
};

/* ---- run.c ---- */

/* Writes what the sequences' next tokens are, runs a bucket, and sets `row` of those whose logits are
 * there. *tokens: how many were computed; 0: there was nothing to do. */
wf_status wf_generator_run(wf_generator *g, int64_t *tokens);
/* Runs an executable of `tokens` tokens on the first `used` of g->tokens and what belongs to them, the rest
 * being padding; rows: it has that input. */
wf_status wf_generator_launch(wf_generator *g, wf_exec *exec, int64_t tokens, int64_t used,
                              bool rows);

/* ---- sequence.c ---- */

/* Takes the next token, id, into the sequence: its text, or its end. */
wf_status wf_sequence_take(wf_sequence *s, int32_t id);
/* Pages for `count` tokens. */
wf_status wf_sequence_reserve(wf_sequence *s, int64_t count);

/* ---- load.c ---- */

/* Before the first compilation: weights that can be read where they lie, and places for those that the
 * device packs. After it: the rest. */
wf_status wf_generator_map_weights(wf_generator *g);
/* Tells a session, for planning, how weights will be kept; *mapped: bytes that stay in files. */
wf_status wf_generator_plan_weights(wf_session *session, const wf_model *model, size_t *mapped);
wf_status wf_generator_write_weights(wf_generator *g);
/* Logs weights that hold what is no number. */
wf_status wf_generator_check_weights(wf_generator *g);

#endif
