/* SPDX-License-Identifier: MIT */
/*
 * sample.c - see sample.h.
 *
 * A pick copies the logits to the scratch, applies biases, mask and samplers in the order of the
 * list, weighs the remaining candidates and draws one. Each pick is its own Philox stream, so the
 * result depends on the seed and the pick's number only.
 */
#include "infer/sample.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "infer/recent.h"
#include "model/sampler_order.h"

#define PENALTY_LAST 64 /* default of penalty_last, in tokens */

struct wf_sampler {
    wf_ctx *ctx; /* not used by picks */
    size_t vocab;
    wf_sampling how; /* defaults filled in; how.bias is our copy */
    wf_sampler_order order;
    bool greedy;    /* a sampler in the order leaves one token */
    bool penalized; /* a penalty is set and in the order */
    wf_recent recent;
    const wf_mask *mask; /* NULL: every id can be picked */
    uint64_t picked;     /* earlier picks: the random stream of the next one */
};

struct wf_sampler_scratch {
    wf_ctx *ctx; /* not used by picks */
    size_t vocab;
    wf_likely list; /* [vocab] the candidates of the current pick */
    double total;   /* the sum of their weights */
    uint32_t
        *place; /* [vocab] 0, but while penalties are applied: 1 + index in the recent tokens */
};

/* ---- Settings ---- */

static const struct {
    const char *name;
    size_t offset;
    double low, high;
    const char *rule; /* for messages */
} reals[] = {
    {"temperature", offsetof(wf_sampling, temperature), 0, DBL_MAX, "0 or more"},
    {"top_p", offsetof(wf_sampling, top_p), 0, 1, "from 0 to 1"},
    {"min_p", offsetof(wf_sampling, min_p), 0, 1, "from 0 to 1"},
    {"repeat_penalty", offsetof(wf_sampling, repeat_penalty), 0, DBL_MAX, "0 or more"},
    {"frequency_penalty", offsetof(wf_sampling, frequency_penalty), -DBL_MAX, DBL_MAX, "finite"},
    {"presence_penalty", offsetof(wf_sampling, presence_penalty), -DBL_MAX, DBL_MAX, "finite"},
};

static wf_status check_biases(wf_ctx *ctx, int64_t vocab, const wf_sampling *how)
{
    if (how->biases < 0 || (how->biases > 0 && !how->bias))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "sampling: biases is %d, but must be 0 or more, with bias set", how->biases);
    for (int i = 0; i < how->biases; i++) {
        const wf_logit_bias *b = &how->bias[i];
        if (b->token < 0 || b->token >= vocab)
            return wf_fail(ctx, WF_ERR_USAGE,
                           "sampling: bias is for token %" PRId32
                           ", but this model's tokens are 0 to %" PRId64,
                           b->token, vocab - 1);
        if (isnan(b->bias) || b->bias == INFINITY)
            return wf_fail(ctx, WF_ERR_USAGE,
                           "sampling: bias of token %" PRId32
                           " is %g, but must be finite, or -inf to exclude the token",
                           b->token, (double)b->bias);
    }
    return WF_OK;
}

/* Written so that NaN fails every range. */
static wf_status check(wf_ctx *ctx, int64_t vocab, const wf_sampling *how)
{
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double value;
        memcpy(&value, (const char *)how + reals[i].offset, sizeof value);
        if (!(value >= reals[i].low && value <= reals[i].high))
            return wf_fail(ctx, WF_ERR_USAGE, "sampling: %s is %g, but must be %s", reals[i].name,
                           value, reals[i].rule);
    }
    if (how->top_k < 0)
        return wf_fail(ctx, WF_ERR_USAGE, "sampling: top_k is %" PRId64 ", but must be 0 or more",
                       how->top_k);
    if (how->penalty_last < -1 || how->penalty_last > WF_PENALTY_MAX)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "sampling: penalty_last is %" PRId64
                       ", but must be from 0 to %d, or -1 for all tokens",
                       how->penalty_last, WF_PENALTY_MAX);
    return check_biases(ctx, vocab, how);
}

/* ---- From logits to candidates ---- */

/* Keeps logits finite: a possible token stays possible, and the difference of two logits is never
 * NaN. */
static float clamp(double logit)
{
    return (float)fmax(-FLT_MAX, fmin(FLT_MAX, logit));
}

/* Fills the list with all tokens, each at the index equal to its id. */
static wf_sampler_fault load(wf_likely *t, size_t vocab, const float *logits)
{
    bool bad = false;
    for (size_t i = 0; i < vocab; i++) {
        bad |= !(logits[i] <= FLT_MAX);
        t->value[i] = logits[i];
        t->id[i] = (int32_t)i;
    }
    t->n = vocab;
    if (!bad)
        return (wf_sampler_fault){.kind = WF_FAULT_NONE};
    size_t at = 0;
    while (logits[at] <= FLT_MAX)
        at++;
    return (wf_sampler_fault){WF_FAULT_LOGIT, (int32_t)at, logits[at]};
}

/* Adds the biases and excludes the masked ids, in this order: a bias cannot bring a masked id
 * back. */
static void add_biases(const wf_sampler *s, wf_likely *t)
{
    for (int i = 0; i < s->how.biases; i++) {
        float *logit = &t->value[s->how.bias[i].token], bias = s->how.bias[i].bias;
        *logit = *logit == -INFINITY || bias == -INFINITY ? -INFINITY
                                                          : clamp((double)*logit + (double)bias);
    }
    for (size_t i = 0; s->mask && i < s->mask->count; i++)
        t->value[s->mask->ids[i]] = -INFINITY;
}

/* A penalty must lower the logit, whatever its sign. */
static void penalize(const wf_sampler *s, const wf_recent_token *token, float *logit)
{
    if (*logit == -INFINITY)
        return;
    double x = *logit, repeat = s->how.repeat_penalty;
    x = x > 0 ? x / repeat : x * repeat;
    x -= token->count * s->how.frequency_penalty + s->how.presence_penalty;
    *logit = clamp(x);
}

/* Returns whether every penalized token is at the index equal to its id. Other samplers drop and
 * move tokens. */
static bool in_place(const wf_likely *t, const wf_recent *r, size_t vocab)
{
    bool same = t->n == vocab;
    for (size_t i = 0; same && i < r->count; i++)
        same = t->id[r->token[i].id] == r->token[i].id;
    return same;
}

/* Penalizes candidates at any index. Looking up each in the hash table of the recent tokens would
 * be slower than this table by id. */
static void penalize_moved(const wf_sampler *s, wf_sampler_scratch *x)
{
    const wf_recent *r = &s->recent;
    const wf_likely *t = &x->list;
    for (size_t i = 0; i < r->count; i++)
        x->place[r->token[i].id] = (uint32_t)i + 1;
    for (size_t i = 0; i < t->n; i++)
        if (x->place[t->id[i]] > 0)
            penalize(s, &r->token[x->place[t->id[i]] - 1], &t->value[i]);
    for (size_t i = 0; i < r->count; i++)
        x->place[r->token[i].id] = 0;
}

static void apply_penalties(const wf_sampler *s, wf_sampler_scratch *x)
{
    wf_likely *t = &x->list;
    const wf_recent *r = &s->recent;
    if (!s->penalized)
        return;
    if (in_place(t, r, s->vocab))
        for (size_t i = 0; i < r->count; i++)
            penalize(s, &r->token[i], &t->value[r->token[i].id]);
    else
        penalize_moved(s, x);
    t->top = wf_likely_top(t->value, t->n);
}

static void apply_top_k(const wf_sampler *s, wf_sampler_scratch *x)
{
    if (s->how.top_k == 1)
        wf_likely_keep_first(&x->list);
    else if (s->how.top_k > 0)
        wf_likely_keep_count(&x->list, (size_t)s->how.top_k);
}

static void apply_top_p(const wf_sampler *s, wf_sampler_scratch *x)
{
    if (s->how.top_p > 0)
        wf_likely_keep_mass(&x->list, s->how.top_p);
}

static void apply_min_p(const wf_sampler *s, wf_sampler_scratch *x)
{
    if (s->how.min_p > 0)
        wf_likely_keep_near(&x->list, s->how.min_p);
}

static void apply_temperature(const wf_sampler *s, wf_sampler_scratch *x)
{
    wf_likely *t = &x->list;
    if (s->how.temperature == 0)
        wf_likely_keep_first(t);
    else /* the order may repeat it: keep the result in range */
        t->temperature = fmin(DBL_MAX, fmax(DBL_MIN, t->temperature * s->how.temperature));
}

wf_sampler_fault wf_sampler_filter(const wf_sampler *s, wf_sampler_scratch *x, const float *logits,
                                   const wf_likely **kept)
{
    static void (*const apply[])(const wf_sampler *, wf_sampler_scratch *) = {
        [WF_SAMPLER_PENALTIES] = apply_penalties,
        [WF_SAMPLER_TOP_K] = apply_top_k,
        [WF_SAMPLER_TOP_P] = apply_top_p,
        [WF_SAMPLER_MIN_P] = apply_min_p,
        [WF_SAMPLER_TEMPERATURE] = apply_temperature,
    };
    wf_likely *t = &x->list;
    wf_assert(x->vocab >= s->vocab);
    *kept = t;
    wf_sampler_fault fault = load(t, s->vocab, logits);
    if (fault.kind != WF_FAULT_NONE)
        return fault;
    add_biases(s, t);
    t->temperature = 1;
    t->top = wf_likely_top(t->value, t->n);
    if (t->top == -INFINITY)
        return (wf_sampler_fault){.kind = WF_FAULT_NO_TOKEN};
    for (int i = 0; i < s->order.count; i++)
        apply[s->order.step[i]](s, x);
    x->total = wf_likely_weigh(t);
    return fault;
}

/* ---- Picking ---- */

wf_sampler_fault wf_sampler_pick(wf_sampler *s, wf_sampler_scratch *x, const float *logits,
                                 int32_t *id)
{
    const wf_likely *kept;
    wf_sampler_fault fault = wf_sampler_filter(s, x, logits, &kept);
    if (fault.kind != WF_FAULT_NONE)
        return fault;
    wf_rng rng;
    wf_rng_init(&rng, s->how.seed, s->picked++);
    double target = wf_rng_unit(&rng) * x->total, sum = 0;
    /* Terminates: wf_likely_weigh added the same weights in the same order, so the sum reaches
     * x->total exactly, and target is below it. */
    size_t i = 0;
    while ((sum += kept->value[i]) <= target)
        i++;
    *id = kept->id[i];
    return fault;
}

const char *wf_sampler_fault_text(const wf_sampler *s, wf_sampler_fault fault, char *text,
                                  size_t size)
{
    if (fault.kind == WF_FAULT_LOGIT)
        snprintf(text, size,
                 "the model's logit of token %" PRId32
                 " is %g; look for bad weights with --check-tensors, "
                 "or for bad kernels with --device check",
                 fault.token, (double)fault.logit);
    else
        snprintf(text, size, "no token can follow: all logits are -inf%s",
                 s->how.biases > 0 ? " after the biases; remove some" : "");
    return text;
}

wf_status wf_sampler_report(const wf_sampler *s, wf_sampler_fault fault)
{
    char text[WF_SAMPLER_FAULT_TEXT];
    if (fault.kind == WF_FAULT_NONE)
        return WF_OK;
    return wf_fail(s->ctx, WF_ERR_DEVICE, "%s", wf_sampler_fault_text(s, fault, text, sizeof text));
}

void wf_sampler_seek(wf_sampler *s, uint64_t picked)
{
    s->picked = picked;
}

wf_status wf_sampler_accept(wf_sampler *s, int32_t id)
{
    wf_assert(id >= 0 && (size_t)id < s->vocab);
    return s->penalized ? wf_recent_add(s->ctx, &s->recent, id) : WF_OK;
}

void wf_sampler_mask(wf_sampler *s, const wf_mask *mask)
{
    s->mask = mask;
}

bool wf_sampler_needs_logits(const wf_sampler *s)
{
    return !s->greedy || s->penalized || s->how.biases > 0;
}

/* ---- Construction ---- */

static wf_status copy_biases(wf_sampler *s, const wf_logit_bias *bias)
{
    size_t n = (size_t)s->how.biases;
    if (n == 0)
        return WF_OK;
    wf_logit_bias *copy = wf_mem_array(s->ctx, n, sizeof *copy);
    if (!copy)
        return WF_ERR_MEMORY;
    memcpy(copy, bias, n * sizeof *copy);
    s->how.bias = copy;
    return WF_OK;
}

wf_status wf_sampler_new(wf_ctx *ctx, int64_t vocab, const wf_sampling *sampling, wf_sampler **out)
{
    *out = NULL;
    wf_assert(vocab > 0 && vocab <= INT32_MAX);
    wf_sampling how = sampling ? *sampling : (wf_sampling){0};
    wf_sampler_order order;
    const char *samplers = how.samplers ? how.samplers : WF_SAMPLER_ORDER;
    WF_TRY(check(ctx, vocab, &how));
    WF_TRY(wf_sampler_order_parse(ctx, samplers, strlen(samplers), &order));
    wf_sampler *s = wf_mem_new(ctx, sizeof *s);
    if (!s)
        return WF_ERR_MEMORY;
    s->ctx = ctx;
    s->vocab = (size_t)vocab;
    s->how = how;
    s->how.bias = NULL;
    if (how.repeat_penalty == 0)
        s->how.repeat_penalty = 1;
    if (how.penalty_last == 0)
        s->how.penalty_last = PENALTY_LAST;
    s->how.samplers = NULL;
    s->recent.last = s->how.penalty_last;
    s->order = order;
    s->greedy = (how.temperature == 0 && wf_sampler_order_has(&order, WF_SAMPLER_TEMPERATURE)) ||
                (how.top_k == 1 && wf_sampler_order_has(&order, WF_SAMPLER_TOP_K));
    s->penalized =
        (s->how.repeat_penalty != 1 || how.frequency_penalty != 0 || how.presence_penalty != 0) &&
        wf_sampler_order_has(&order, WF_SAMPLER_PENALTIES);
    wf_status status = copy_biases(s, how.bias);
    if (status != WF_OK) {
        wf_sampler_free(s);
        return status;
    }
    *out = s;
    return WF_OK;
}

void wf_sampler_free(wf_sampler *s)
{
    if (!s)
        return;
    wf_recent_free(s->ctx, &s->recent);
    wf_mem_free(s->ctx, (void *)s->how.bias);
    wf_mem_free(s->ctx, s);
}

wf_status wf_sampler_scratch_new(wf_ctx *ctx, int64_t vocab, wf_sampler_scratch **out)
{
    *out = NULL;
    wf_assert(vocab > 0 && vocab <= INT32_MAX);
    wf_sampler_scratch *x = wf_mem_new(ctx, sizeof *x);
    if (!x)
        return WF_ERR_MEMORY;
    x->ctx = ctx;
    x->vocab = (size_t)vocab;
    x->list.value = wf_mem_array(ctx, x->vocab, sizeof *x->list.value);
    x->list.id = wf_mem_array(ctx, x->vocab, sizeof *x->list.id);
    x->place = wf_mem_array(ctx, x->vocab, sizeof *x->place);
    if (!x->list.value || !x->list.id || !x->place) {
        wf_sampler_scratch_free(x);
        return WF_ERR_MEMORY;
    }
    *out = x;
    return WF_OK;
}

void wf_sampler_scratch_free(wf_sampler_scratch *x)
{
    if (!x)
        return;
    wf_mem_free(x->ctx, x->place);
    wf_mem_free(x->ctx, x->list.id);
    wf_mem_free(x->ctx, x->list.value);
    wf_mem_free(x->ctx, x);
}
