/* SPDX-License-Identifier: MIT */
/* eval_compare.c - see eval_compare.h. */
#include "cli/eval_compare.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cli/eval.h"

/* Returns the first token that differs, or -1. */
static int32_t first_difference(const wf_tokenizer *a, const wf_tokenizer *b)
{
    const int32_t count = wf_tokenizer_count(a);
    if (count != wf_tokenizer_count(b))
        return count < wf_tokenizer_count(b) ? count : wf_tokenizer_count(b);
    for (int32_t i = 0; i < count; i++) {
        size_t n, m;
        const char *x = wf_tokenizer_token(a, i, &n), *y = wf_tokenizer_token(b, i, &m);
        if (n != m || memcmp(x, y, n) != 0)
            return i;
    }
    return -1;
}

wf_status wf_comparison_begin(wf_comparison *c, const wf_open *model, wf_open *base, size_t room)
{
    *c = (wf_comparison){.base = base, .room = room};
    const int32_t differs = first_difference(model->tokenizer, base->tokenizer);
    if (differs >= 0 || base->info.vocab != model->info.vocab)
        return wf_fail(model->ctx, WF_ERR_USAGE,
                       "the models have different tokens, from number %lld on; only models with "
                       "the same tokenizer can be compared",
                       (long long)(differs >= 0 ? differs : wf_tokenizer_count(model->tokenizer)));
    if (base->asked < model->asked)
        return wf_fail(model->ctx, WF_ERR_USAGE,
                       "the model of --against has a context of %lld tokens, less than %lld; give "
                       "-c %lld",
                       (long long)base->asked, (long long)model->asked, (long long)base->asked);
    c->vocab = (size_t)model->info.vocab;
    WF_TRY(wf_open_limit(base, model->asked));
    c->logits = wf_mem_array(model->ctx, c->room, c->vocab * sizeof *c->logits);
    return c->logits ? wf_open_load(base, 1, WF_EVAL_ROWS) : WF_ERR_MEMORY;
}

static wf_status keep(void *user, size_t i, const float *logits, size_t vocab)
{
    wf_comparison *c = user;
    wf_assert(i < c->room && vocab == c->vocab);
    memcpy(c->logits + i * vocab, logits, vocab * sizeof *logits);
    return WF_OK;
}

wf_status wf_comparison_window(wf_comparison *c, const int32_t *ids, size_t count)
{
    return wf_engine_logits(c->base->engine, ids, count, 0, keep, c);
}

static size_t most_likely(const float *logits, size_t vocab)
{
    size_t best = 0;
    for (size_t k = 1; k < vocab; k++)
        best = logits[k] > logits[best] ? k : best;
    return best;
}

/* KL = sum over k of p_k (log p_k - log q_k), with log p_k = base_k - log_sum(base). */
void wf_comparison_add(wf_comparison *c, size_t i, const float *logits, int32_t target, double nats)
{
    const float *base = c->logits + i * c->vocab;
    double base_nats = wf_eval_nats(base, c->vocab, target), kl = 0;
    double base_sum = base_nats + (double)base[target], sum = nats + (double)logits[target];
    for (size_t k = 0; k < c->vocab; k++) {
        double log_p = (double)base[k] - base_sum, p = exp(log_p);
        if (p > 0) /* 0 log 0 is 0 */
            kl += p * (log_p - ((double)logits[k] - sum));
    }
    c->nats += base_nats;
    c->kl += kl;
    c->same += most_likely(base, c->vocab) == most_likely(logits, c->vocab);
}

void wf_comparison_end(wf_comparison *c)
{
    if (c->base)
        wf_mem_free(c->base->ctx, c->logits);
}
