/* SPDX-License-Identifier: MIT */
/*
 * sample.c - see sample.h.
 *
 * A pick copies the logits, applies biases, mask and samplers in the order of the list, weighs the
 * remaining candidates and draws one. Each pick is its own Philox stream, so the result depends on
 * the seed and the pick's number only.
 */
#include "infer/sample.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "model/sampler_order.h"

#define PENALTY_LAST 64 /* default of penalty_last, in tokens */

typedef struct {
    int32_t id;
    uint32_t count; /* > 0 */
} seen_token;

/* The penalty window: the last tokens, and how often each of them occurs. */
typedef struct {
    seen_token *seen; /* [n] each distinct token once, unordered */
    size_t n;
    int32_t *place;         /* [vocab] 1 + the token's index in seen; 0: not in the window */
    int32_t *ring;          /* [cap] the tokens, to drop the oldest; NULL: the window has no end */
    size_t cap, at, filled; /* of the ring: size, next position, tokens in it */
} history;

struct wf_sampler {
    wf_ctx *ctx;
    size_t vocab;
    wf_sampling how; /* defaults filled in; how.bias is our copy */
    wf_sampler_order order;
    bool greedy;    /* a sampler in the order leaves one token */
    bool penalized; /* a penalty is set and in the order */
    history past;
    wf_likely list;      /* [vocab] the candidates of the current pick */
    double total;        /* the sum of their weights */
    const wf_mask *mask; /* NULL: every id can be picked */
    uint64_t picked;     /* earlier picks: the random stream of the next one */
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

/* ---- The penalty window ---- */

/* penalty_last < 0 covers all tokens: no ring, since nothing is ever dropped. */
static wf_status history_init(wf_ctx *ctx, history *h, size_t vocab, int64_t last)
{
    bool all = last < 0;
    h->cap = all ? 0 : (size_t)last;
    h->place = wf_mem_array(ctx, vocab, sizeof *h->place);
    h->seen = wf_mem_array(ctx, all || h->cap > vocab ? vocab : h->cap, sizeof *h->seen);
    if (!all)
        h->ring = wf_mem_array(ctx, h->cap, sizeof *h->ring);
    return h->place && h->seen && (all || h->ring) ? WF_OK : WF_ERR_MEMORY;
}

/* Removes one occurrence; a token without any is replaced by the last entry, so seen[] stays
 * dense. */
static void history_forget(history *h, int32_t id)
{
    int32_t place = h->place[id];
    if (--h->seen[place - 1].count > 0)
        return;
    seen_token last = h->seen[--h->n];
    h->seen[place - 1] = last;
    h->place[last.id] = place;
    h->place[id] = 0; /* must come after the line above: last.id may equal id */
}

static void history_add(history *h, int32_t id)
{
    if (h->ring) {
        if (h->filled == h->cap)
            history_forget(h, h->ring[h->at]);
        else
            h->filled++;
        h->ring[h->at] = id;
        h->at = h->at + 1 == h->cap ? 0 : h->at + 1;
    }
    if (h->place[id] == 0) {
        h->seen[h->n++] = (seen_token){.id = id};
        h->place[id] = (int32_t)h->n;
    }
    h->seen[h->place[id] - 1].count++;
}

/* ---- From logits to candidates ---- */

/* Keeps logits finite: a possible token stays possible, and the difference of two logits is never
 * NaN. */
static float clamp(double logit)
{
    return (float)fmax(-FLT_MAX, fmin(FLT_MAX, logit));
}

/* Fills the list with all tokens, each at the index equal to its id. */
static wf_status load(wf_sampler *s, const float *logits)
{
    bool bad = false;
    for (size_t i = 0; i < s->vocab; i++) {
        bad |= !(logits[i] <= FLT_MAX);
        s->list.value[i] = logits[i];
        s->list.id[i] = (int32_t)i;
    }
    s->list.n = s->vocab;
    if (!bad)
        return WF_OK;
    size_t at = 0;
    while (logits[at] <= FLT_MAX)
        at++;
    return wf_fail(
        s->ctx, WF_ERR_DEVICE,
        "the model's logit of token %zu is %g; look for bad weights with --check-tensors, "
        "or for bad kernels with --device check",
        at, (double)logits[at]);
}

/* Adds the biases and excludes the masked ids, in this order: a bias cannot bring a masked id
 * back. */
static void add_biases(wf_sampler *s)
{
    for (int i = 0; i < s->how.biases; i++) {
        float *logit = &s->list.value[s->how.bias[i].token], bias = s->how.bias[i].bias;
        *logit = *logit == -INFINITY || bias == -INFINITY ? -INFINITY
                                                          : clamp((double)*logit + (double)bias);
    }
    for (size_t i = 0; s->mask && i < s->mask->count; i++)
        s->list.value[s->mask->ids[i]] = -INFINITY;
}

/* A penalty must lower the logit, whatever its sign. */
static void penalize(const wf_sampler *s, const seen_token *seen, float *logit)
{
    if (*logit == -INFINITY)
        return;
    double x = *logit, repeat = s->how.repeat_penalty;
    x = x > 0 ? x / repeat : x * repeat;
    x -= seen->count * s->how.frequency_penalty + s->how.presence_penalty;
    *logit = clamp(x);
}

/* Returns whether every penalized token is at the index equal to its id. Other samplers drop and
 * move tokens. */
static bool in_place(const wf_likely *t, const history *h, size_t vocab)
{
    bool same = t->n == vocab;
    for (size_t i = 0; same && i < h->n; i++)
        same = t->id[h->seen[i].id] == h->seen[i].id;
    return same;
}

static void apply_penalties(wf_sampler *s)
{
    wf_likely *t = &s->list;
    const history *h = &s->past;
    if (!s->penalized)
        return;
    if (in_place(t, h, s->vocab))
        for (size_t i = 0; i < h->n; i++)
            penalize(s, &h->seen[i], &t->value[h->seen[i].id]);
    else
        for (size_t i = 0; i < t->n; i++)
            if (h->place[t->id[i]] > 0)
                penalize(s, &h->seen[h->place[t->id[i]] - 1], &t->value[i]);
    t->top = wf_likely_top(t->value, t->n);
}

static void apply_top_k(wf_sampler *s)
{
    if (s->how.top_k == 1)
        wf_likely_keep_first(&s->list);
    else if (s->how.top_k > 0)
        wf_likely_keep_count(&s->list, (size_t)s->how.top_k);
}

static void apply_top_p(wf_sampler *s)
{
    if (s->how.top_p > 0)
        wf_likely_keep_mass(&s->list, s->how.top_p);
}

static void apply_min_p(wf_sampler *s)
{
    if (s->how.min_p > 0)
        wf_likely_keep_near(&s->list, s->how.min_p);
}

static void apply_temperature(wf_sampler *s)
{
    if (s->how.temperature == 0)
        wf_likely_keep_first(&s->list);
    else /* the order may repeat it: keep the result in range */
        s->list.temperature =
            fmin(DBL_MAX, fmax(DBL_MIN, s->list.temperature * s->how.temperature));
}

wf_status wf_sampler_filter(wf_sampler *s, const float *logits, const wf_likely **kept)
{
    static void (*const apply[])(wf_sampler *) = {
        [WF_SAMPLER_PENALTIES] = apply_penalties,
        [WF_SAMPLER_TOP_K] = apply_top_k,
        [WF_SAMPLER_TOP_P] = apply_top_p,
        [WF_SAMPLER_MIN_P] = apply_min_p,
        [WF_SAMPLER_TEMPERATURE] = apply_temperature,
    };
    wf_likely *t = &s->list;
    *kept = t;
    WF_TRY(load(s, logits));
    add_biases(s);
    t->temperature = 1;
    t->top = wf_likely_top(t->value, t->n);
    if (t->top == -INFINITY)
        return wf_fail(s->ctx, WF_ERR_DEVICE, "no token can follow: all logits are -inf%s",
                       s->how.biases > 0 ? " after the biases; remove some" : "");
    for (int i = 0; i < s->order.count; i++)
        apply[s->order.step[i]](s);
    s->total = wf_likely_weigh(t);
    return WF_OK;
}

/* ---- Picking ---- */

wf_status wf_sampler_pick(wf_sampler *s, const float *logits, int32_t *id)
{
    const wf_likely *kept;
    WF_TRY(wf_sampler_filter(s, logits, &kept));
    wf_rng rng;
    wf_rng_init(&rng, s->how.seed, s->picked++);
    double target = wf_rng_unit(&rng) * s->total, sum = 0;
    /* Terminates: wf_likely_weigh added the same weights in the same order, so the sum reaches
     * s->total exactly, and target is below it. */
    size_t i = 0;
    while ((sum += kept->value[i]) <= target)
        i++;
    *id = kept->id[i];
    return WF_OK;
}

void wf_sampler_seek(wf_sampler *s, uint64_t picked)
{
    s->picked = picked;
}

void wf_sampler_accept(wf_sampler *s, int32_t id)
{
    wf_assert(id >= 0 && (size_t)id < s->vocab);
    if (s->penalized)
        history_add(&s->past, id);
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

static wf_status allocate(wf_sampler *s, const wf_logit_bias *bias)
{
    s->list.value = wf_mem_array(s->ctx, s->vocab, sizeof *s->list.value);
    s->list.id = wf_mem_array(s->ctx, s->vocab, sizeof *s->list.id);
    if (!s->list.value || !s->list.id)
        return WF_ERR_MEMORY;
    if (s->how.biases > 0) {
        size_t n = (size_t)s->how.biases;
        wf_logit_bias *copy = wf_mem_array(s->ctx, n, sizeof *copy);
        if (!copy)
            return WF_ERR_MEMORY;
        memcpy(copy, bias, n * sizeof *copy);
        s->how.bias = copy;
    }
    if (s->penalized)
        return history_init(s->ctx, &s->past, s->vocab, s->how.penalty_last);
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
    s->order = order;
    s->greedy = (how.temperature == 0 && wf_sampler_order_has(&order, WF_SAMPLER_TEMPERATURE)) ||
                (how.top_k == 1 && wf_sampler_order_has(&order, WF_SAMPLER_TOP_K));
    s->penalized =
        (s->how.repeat_penalty != 1 || how.frequency_penalty != 0 || how.presence_penalty != 0) &&
        wf_sampler_order_has(&order, WF_SAMPLER_PENALTIES);
    wf_status status = allocate(s, how.bias);
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
    wf_mem_free(s->ctx, s->past.ring);
    wf_mem_free(s->ctx, s->past.seen);
    wf_mem_free(s->ctx, s->past.place);
    wf_mem_free(s->ctx, (void *)s->how.bias);
    wf_mem_free(s->ctx, s->list.id);
    wf_mem_free(s->ctx, s->list.value);
    wf_mem_free(s->ctx, s);
}
