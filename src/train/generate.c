/* SPDX-License-Identifier: MIT */
/*
 * generate.c - sample texts of a model in training.
 *
 * Each token is one run over the last tokens of the text, without a KV cache or a second copy of
 * the weights. This is slow for long texts; samples are short.
 */
#include <string.h>

#include "base/mem.h"
#include "infer/sample.h"
#include "train/trainer.h"

typedef struct {
    wf_trainer *t;
    int64_t window; /* tokens per run */
    int32_t *ids;   /* prompt and generated tokens */
    size_t count;
    int32_t *tokens; /* [window] */
    float *logits;   /* [vocab] */
    wf_sampler *sampler;
    wf_sampler_scratch *scratch;
    wf_mask mask; /* excludes the rows that pad the vocabulary */
} generation;

/* Writes the inputs that are the same for every token, once per trainer. */
static wf_status place(generation *g)
{
    wf_trainer *t = g->t;
    wf_exec *e = t->exec[WF_TRAIN_SAMPLE];
    size_t bytes = (size_t)g->window * sizeof *g->tokens;
    const int32_t starts[2] = {0, (int32_t)g->window};
    if (t->placed[WF_TRAIN_SAMPLE])
        return WF_OK;
    for (int64_t i = 0; i < g->window; i++)
        g->tokens[i] = (int32_t)i;
    WF_TRY(wf_exec_write(e, "positions", g->tokens, bytes));
    WF_TRY(wf_exec_write(e, "seq_start", starts, sizeof starts));
    t->placed[WF_TRAIN_SAMPLE] = true;
    return WF_OK;
}

/* Picks the next token. Padding after the last token is harmless: attention is causal. */
static wf_status pick(generation *g, int32_t *id)
{
    wf_exec *e = g->t->exec[WF_TRAIN_SAMPLE];
    size_t window = (size_t)g->window, n = g->count < window ? g->count : window;
    int32_t last = (int32_t)n - 1;
    memset(g->tokens, 0, window * sizeof *g->tokens);
    memcpy(g->tokens, g->ids + g->count - n, n * sizeof *g->tokens);
    WF_TRY(wf_exec_write(e, "tokens", g->tokens, window * sizeof *g->tokens));
    WF_TRY(wf_exec_write(e, "rows", &last, sizeof last));
    WF_TRY(wf_exec_run(e));
    size_t vocab = (size_t)g->t->setup.config.vocab;
    WF_TRY(wf_exec_read(e, "logits", g->logits, vocab * sizeof *g->logits));
    return wf_sampler_report(g->sampler, wf_sampler_pick(g->sampler, g->scratch, g->logits, id));
}

static wf_status run(generation *g, int64_t limit)
{
    const wf_tokenizer *tokenizer = g->t->tokenizer;
    for (int64_t i = 0; i < limit; i++) {
        int32_t id;
        WF_TRY(pick(g, &id));
        if (tokenizer && wf_tokenizer_ends(tokenizer, id))
            break;
        g->ids[g->count++] = id;
        WF_TRY(wf_sampler_accept(g->sampler, id));
    }
    return WF_OK;
}

/* Checks the prompt and the limit before anything is allocated. */
static wf_status begin(generation *g, const int32_t *prompt, size_t count, int64_t limit,
                       const wf_sampling *sampling)
{
    wf_trainer *t = g->t;
    wf_ctx *ctx = t->ctx;
    g->window = wf_train_tokens(&t->setup, WF_TRAIN_SAMPLE);
    if (count < 1 || limit < 0 || limit > 1 << 20)
        return wf_fail(ctx, WF_ERR_USAGE, "a sample needs a prompt and a limit of 1 to %d tokens",
                       1 << 20);
    for (size_t i = 0; i < count; i++)
        if (prompt[i] < 0 || prompt[i] >= t->setup.config.vocab)
            return wf_fail(ctx, WF_ERR_USAGE,
                           "the prompt has token %d, but the model has %lld tokens", prompt[i],
                           (long long)t->setup.config.vocab);
    g->ids = wf_mem_array(ctx, count + (size_t)limit, sizeof *g->ids);
    g->tokens = wf_mem_array(ctx, (size_t)g->window, sizeof *g->tokens);
    g->logits = wf_mem_array(ctx, (size_t)t->setup.config.vocab, sizeof *g->logits);
    if (!g->ids || !g->tokens || !g->logits)
        return WF_ERR_MEMORY;
    memcpy(g->ids, prompt, count * sizeof *g->ids);
    g->count = count;
    WF_TRY(place(g));
    WF_TRY(wf_sampler_new(ctx, t->setup.config.vocab, sampling, &g->sampler));
    WF_TRY(wf_sampler_scratch_new(ctx, t->setup.config.vocab, &g->scratch));
    WF_TRY(wf_mask_make(ctx, t->tokenizer, t->setup.config.vocab, &g->mask));
    wf_sampler_mask(g->sampler, &g->mask);
    return WF_OK;
}

wf_status wf_trainer_generate(wf_trainer *t, const int32_t *prompt, size_t count, int64_t limit,
                              const wf_sampling *sampling, int32_t **ids, size_t *nids)
{
    generation g = {.t = t};
    *ids = NULL;
    *nids = 0;
    wf_status status = begin(&g, prompt, count, limit, sampling);
    if (status == WF_OK)
        status = run(&g, limit);
    if (status == WF_OK) {
        *nids = g.count - count;
        memmove(g.ids, g.ids + count, *nids * sizeof *g.ids);
        *ids = g.ids;
        g.ids = NULL;
    }
    wf_sampler_scratch_free(g.scratch);
    wf_sampler_free(g.sampler);
    wf_mask_free(t->ctx, &g.mask);
    wf_mem_free(t->ctx, g.ids);
    wf_mem_free(t->ctx, g.tokens);
    wf_mem_free(t->ctx, g.logits);
    return status;
}
