/* SPDX-License-Identifier: MIT */
/*
 * generator.h - private state of generators and sequences.
 *
 * One run computes tokens of several sequences (continuous batching). A chunk of a prompt and the
 * single next token of a running sequence are treated alike: both are tokens that extend a
 * sequence.
 *
 * Shapes are static, so the generator compiles executables for a few token counts (buckets). A run
 * uses the smallest bucket that holds its tokens and pads the rest. Keys and values live in
 * fixed-size pages. Each cache of the model (cache.h) has its own pool and page table.
 *
 * A generator and its sequences belong to one thread at a time.
 */
#ifndef WF_INFER_GENERATOR_H
#define WF_INFER_GENERATOR_H

#include "base/writer.h"
#include "infer/pages.h"
#include "infer/sample.h"
#include "infer/stop.h"
#include "model/adapter.h"
#include "model/model.h"

#define WF_MAX_BUCKETS 6 /* sizes from one token per sequence to a prefill chunk, x4 apart */

typedef struct {
    int64_t tokens; /* of one run, padding included */
    wf_exec *exec;
} wf_bucket;

struct wf_generator {
    wf_ctx *ctx;
    const wf_model *model;             /* borrowed; outlives the generator */
    wf_adapters adapters;              /* applied to every run */
    wf_session *session;               /* holds weights and the page pools */
    int64_t context, sequences, chunk; /* options, defaults filled in; all in tokens or sequences */
    wf_type kv;                        /* element type of keys and values */
    int64_t vocab;
    wf_mask mask; /* ids that are never generated */
    wf_caches caches;
    wf_cache_size size[WF_MOST_CACHES]; /* of each cache */
    wf_pages pages[WF_MOST_CACHES];
    int64_t longest;                  /* most tokens of a sequence in one run */
    wf_bucket bucket[WF_MAX_BUCKETS]; /* by ascending tokens */
    int buckets;
    wf_exec *every;      /* computes the logits of every token; compiled at first use */
    float *every_logits; /* [EVERY_TOKENS, vocab], its output */
    wf_sequence **slot;  /* [sequences]; NULL: free */
    /* Inputs of a run. */
    int32_t *tokens, *positions; /* [largest bucket]; the tokens of a slot are contiguous */
    int32_t *seq_start; /* [sequences + 1]: slot i has tokens seq_start[i] .. seq_start[i + 1] */
    int32_t *table[WF_MOST_CACHES]; /* [sequences, size.pages]: page table of each cache */
    int32_t *lengths;               /* [sequences]: tokens in the cache after the run */
    int32_t *rows;                  /* [sequences]: the token whose logits are computed */
    /* Outputs of a run. */
    int32_t *best; /* [sequences]: argmax */
    float *top;    /* [sequences]: the largest logit, NaN when any logit is NaN */
    float *logits; /* [sequences, vocab] */
    /* Of the sequences' samplers, one after the other. */
    wf_sampler_scratch *scratch;
    wf_generator_stats stats;
};

struct wf_sequence {
    wf_generator *generator;
    int64_t slot;          /* index in generator->slot */
    int32_t *token;        /* [context]: the prompt, then the generated tokens */
    int64_t count, prompt; /* tokens in all, tokens of the prompt */
    int64_t cached;        /* tokens whose keys and values were stored in pages; cached <= count */
    wf_page_list pages[WF_MOST_CACHES]; /* of each cache; hold what token `cached` sees */
    int64_t row; /* this run's row of logits; -1: the sequence needs no logits */
    wf_stop stop;
    int64_t limit; /* tokens to generate; 0: no limit */
    bool ignore_end;
    int32_t *stop_token; /* [stop_tokens], owned */
    int stop_tokens;
    wf_sampler *sampler; /* owned, like decoder and stopper */
    wf_decoder *decoder; /* NULL: the model has no tokenizer, the sequence has no text */
    wf_stopper *stopper;
    wf_writer text; /* generated since the last wf_sequence_text */
    char *given;    /* the result of the last wf_sequence_text */
};

/* ---- run.c ---- */

/* Gathers the next tokens of all sequences, runs a bucket, and sets `row` of each sequence whose
 * logits were computed. *tokens: tokens computed; 0: no sequence had any. */
wf_status wf_generator_run(wf_generator *g, int64_t *tokens);
/* Writes the inputs of an executable for `tokens` tokens and runs it. The first `used` tokens are
 * real, the rest is padding. rows: the executable has the input "rows". */
wf_status wf_generator_launch(wf_generator *g, wf_exec *exec, int64_t tokens, int64_t used,
                              bool rows);

/* ---- sequence.c ---- */

/* Appends the token `id`, decodes its text, and sets `stop` when it ends the sequence. */
wf_status wf_sequence_take(wf_sequence *s, int32_t id);
/* Prepares a run of the next n tokens: returns the pages that no later token reads, takes pages for
 * the n tokens, and writes the sequence's rows of the page tables. */
wf_status wf_sequence_reserve(wf_sequence *s, int64_t n);
/* Keeps the first `count` tokens of the cache, or none if a window has passed over tokens that the
 * next one would read. */
void wf_sequence_rewind(wf_sequence *s, int64_t count);

/* ---- generator.c ---- */

/* Returns the bytes of the page pools of a generator with these options; part of the states that
 * wf_generator_plan reports. */
wf_status wf_generator_kv_bytes(const wf_model *model, const wf_generator_options *options,
                                size_t *out);

/* ---- load.c ---- */

/* Call before the first compilation: maps the weights that are used in place, and declares those
 * that the device packs, because both affect the choice of kernels. */
wf_status wf_generator_map_weights(wf_generator *g);
/* Declares the same in a session that is only planned. *mapped: bytes that stay in files. */
wf_status wf_generator_plan_weights(wf_session *session, const wf_model *model, size_t *mapped);
/* Call after compilation: copies or packs the remaining weights, adapters and rope frequencies. */
wf_status wf_generator_write_weights(wf_generator *g);
/* Logs a warning for each weight with NaN or infinite elements. */
wf_status wf_generator_check_weights(wf_generator *g);

#endif
