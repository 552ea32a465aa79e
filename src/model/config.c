/* SPDX-License-Identifier: MIT */
/*
 * config.c - validates a config from any source.
 *
 * Everything that a graph is built from is checked here, so that no later code has to expect
 * hostile sizes: each is in range, heads divide evenly, and no parameter is NaN or infinite.
 */
#include "model/config.h"

#include <math.h>

#include "model/cache.h"
#include "model/family.h"

/* Limits of hostile files: far beyond existing models, and small enough that the product of three
 * sizes cannot overflow int64. */
#define MOST_LAYERS 4096
#define MOST_SIZE (INT64_C(1) << 24)

const wf_layer *wf_config_layer(const wf_config *c, int64_t i)
{
    return c->layer ? &c->layer[i] : &c->all;
}

wf_layer *wf_config_split_layers(wf_arena *arena, wf_config *c)
{
    wf_layer *layer = wf_arena_alloc(arena, (size_t)c->layers * sizeof *layer);
    for (int64_t i = 0; layer && i < c->layers; i++)
        layer[i] = c->all;
    c->layer = layer;
    return layer;
}

void wf_config_set_ropes(const wf_config *c, wf_layer *layer)
{
    const wf_family *f = c->family;
    for (int64_t i = 0; i < c->layers; i++) {
        if (f->nope_unlimited && layer[i].window == 0)
            layer[i].rope = WF_NO_ROPE;
        if (c->ropes == 2) /* the second kind is for layers with a window */
            layer[i].rope = layer[i].window > 0;
    }
}

bool wf_layer_same_sizes(const wf_layer *a, const wf_layer *b)
{
    return a->heads == b->heads && a->kv_heads == b->kv_heads && a->key_dim == b->key_dim &&
           a->value_dim == b->value_dim && a->hidden == b->hidden;
}

static bool equal_layers(const wf_layer *a, const wf_layer *b)
{
    return a->mixer == b->mixer && a->mlp == b->mlp && wf_layer_same_sizes(a, b) &&
           a->window == b->window && a->rope == b->rope && a->shares == b->shares;
}

void wf_config_join_layers(wf_config *c)
{
    for (int64_t i = 1; c->layer && i < c->layers; i++)
        if (!equal_layers(&c->layer[0], &c->layer[i]))
            return;
    if (c->layer && c->layers > 0)
        c->all = c->layer[0];
    c->layer = NULL;
}

int64_t wf_config_window(const wf_config *c)
{
    int64_t most = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        int64_t window = wf_config_layer(c, i)->window;
        most = window > most ? window : most;
    }
    return most;
}

double wf_config_scale(const wf_config *c, int64_t layer)
{
    double scale = c->scale != 0 ? c->scale : 1 / sqrt((double)wf_config_layer(c, layer)->key_dim);
    if (c->scale_by_layer)
        return scale / (double)(layer + 1);
    return c->scale;
}

typedef struct {
    const char *name;
    int64_t value, most;
} size;

static wf_status check_ranges(wf_ctx *ctx, const char *what, const size *sizes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            return wf_fail(ctx, WF_ERR_FORMAT, "%s: the %s is %lld; it must be 1 to %lld", what,
                           sizes[i].name, (long long)sizes[i].value, (long long)sizes[i].most);
    return WF_OK;
}

/* Layer i attends to keys of an earlier layer only if both have the same heads, and the same window,
 * which is how long the earlier layer keeps them. */
static wf_status check_shared(wf_ctx *ctx, const char *what, const wf_config *c, int64_t i)
{
    const wf_layer *l = wf_config_layer(c, i);
    if (l->shares == 0)
        return WF_OK;
    if (l->shares < 0 || l->shares > i)
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: layer %lld shares the keys of layer %lld; only an earlier layer's can "
                       "be shared",
                       what, (long long)i, (long long)(i - l->shares));
    const wf_layer *of = wf_config_layer(c, i - l->shares);
    if (of->shares != 0 || of->kv_heads != l->kv_heads || of->key_dim != l->key_dim ||
        of->value_dim != l->value_dim || of->window != l->window)
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: layer %lld shares the keys of layer %lld, which has other heads or "
                       "another window, or shares keys itself",
                       what, (long long)i, (long long)(i - l->shares));
    return WF_OK;
}

static wf_status check_layer(wf_ctx *ctx, const char *what, const wf_layer *l)
{
    const size sizes[] = {
        {"number of heads", l->heads, MOST_SIZE},
        {"number of key and value heads", l->kv_heads, MOST_SIZE},
        {"size of a head", l->key_dim, MOST_SIZE},
        {"size of a head's values", l->value_dim, MOST_SIZE},
        {"width of the MLP", l->hidden, MOST_SIZE},
    };
    WF_TRY(check_ranges(ctx, what, sizes, sizeof sizes / sizeof *sizes));
    int64_t widest = l->key_dim > l->value_dim ? l->key_dim : l->value_dim;
    if (l->heads * widest > MOST_SIZE)
        return wf_fail(ctx, WF_ERR_FORMAT, "%s: %lld heads of %lld dimensions exceed the limit",
                       what, (long long)l->heads, (long long)widest);
    if (l->heads % l->kv_heads != 0)
        return wf_fail(ctx, WF_ERR_FORMAT, "%s: %lld key and value heads do not divide %lld head%s",
                       what, (long long)l->kv_heads, (long long)l->heads, WF_PLURAL(l->heads));
    if (l->window < 0 || l->window > MOST_SIZE)
        return wf_fail(ctx, WF_ERR_FORMAT, "%s: an attention window of %lld tokens is out of range",
                       what, (long long)l->window);
    return WF_OK;
}

static wf_status check_sizes(wf_ctx *ctx, const char *what, const wf_config *c)
{
    const size sizes[] = {
        {"number of layers", c->layers, MOST_LAYERS},
        {"width", c->width, MOST_SIZE},
        {"context", c->context, MOST_SIZE},
    };
    WF_TRY(check_ranges(ctx, what, sizes, sizeof sizes / sizeof *sizes));
    for (int64_t i = 0; i < (c->layer ? c->layers : 1); i++) {
        WF_TRY(check_layer(ctx, what, wf_config_layer(c, i)));
        WF_TRY(check_shared(ctx, what, c, i));
    }
    wf_caches caches;
    if (!wf_config_caches(c, &caches))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the layers have more than %d different attention windows", what,
                       WF_MOST_CACHES);
    return WF_OK;
}

static bool positive(double x)
{
    return isfinite(x) && x > 0;
}

/* Every layer with these positions must have heads that are large enough. */
static wf_status check_rotated(wf_ctx *ctx, const char *what, const wf_config *c,
                               const wf_rotary *r)
{
    for (int64_t i = 0; i < (c->layer ? c->layers : 1); i++) {
        const wf_layer *l = wf_config_layer(c, i);
        if (l->rope != WF_NO_ROPE && &c->rope[l->rope] != r)
            continue;
        if (r->dims < 2 || r->dims > l->key_dim || r->dims % 2 != 0)
            return wf_fail(
                ctx, WF_ERR_FORMAT,
                "%s: cannot rotate %lld of the %lld dimensions of a head; the number must be even "
                "and fit into the head",
                what, (long long)r->dims, (long long)l->key_dim);
    }
    return WF_OK;
}

/* Also rejects NaN: every comparison is written so that NaN fails it. */
static wf_status check_rope(wf_ctx *ctx, const char *what, const wf_config *c, const wf_rotary *r)
{
    if (!positive(r->base))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the base of the rotary positions is %g; it must be positive and finite",
                       what, r->base);
    WF_TRY(check_rotated(ctx, what, c, r));
    if (r->scaling != WF_ROPE_PLAIN && !positive(r->factor))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the rope scaling has factor %g; it must be above 0 and finite", what,
                       r->factor);
    bool limited =
        r->scaling == WF_ROPE_LLAMA3 || r->scaling == WF_ROPE_YARN || r->scaling == WF_ROPE_LONG;
    if (limited && !(positive(r->original) && r->original <= INT32_MAX))
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "%s: the original context of the rope scaling is %g tokens; it must be above 0 and "
            "below 2^31",
            what, r->original);
    if (r->scaling == WF_ROPE_LLAMA3 && !(positive(r->low) && r->high > r->low))
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "%s: the rope scaling has low_freq_factor %g and high_freq_factor %g; the first must "
            "be above 0 and below the second",
            what, r->low, r->high);
    if (r->scaling == WF_ROPE_YARN && !(positive(r->beta_fast) && positive(r->beta_slow)))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: beta_fast %g and beta_slow %g of the rope scaling must exceed 0", what,
                       r->beta_fast, r->beta_slow);
    if (r->scaling == WF_ROPE_YARN && (r->base == 1 || !positive(wf_rope_magnitude(r))))
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "%s: the rope scaling has base %g and attention factor %g; the base must not be 1, "
            "and the factor must be above 0 and finite",
            what, r->base, wf_rope_magnitude(r));
    if (r->scaling == WF_ROPE_LONG && !positive(wf_rope_magnitude(r)))
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "%s: the rope scaling has attention factor %g; it must be above 0 and finite", what,
            wf_rope_magnitude(r));
    return WF_OK;
}

/* Factors become f32. */
static wf_status check_factors(wf_ctx *ctx, const char *what, const wf_config *c)
{
    const struct {
        const char *name;
        double value;
    } factors[] = {{"embeddings", c->embedding_scale},
                   {"branches", c->residual_scale},
                   {"logits", c->logit_scale},
                   {"queries", c->q_scale}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (!isfinite((float)factors[i].value))
            return wf_fail(ctx, WF_ERR_FORMAT, "%s: the factor of the %s is %g; it must be finite",
                           what, factors[i].name, factors[i].value);
    if (c->q_scale != 0 && !(positive(c->q_length) && c->q_length <= INT32_MAX))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: original_max_position_embeddings is %g; it must be above 0 and below "
                       "2^31",
                       what, c->q_length);
    return WF_OK;
}

/* One matrix for queries, keys and values has three parts of the model's width. */
static wf_status check_fused(wf_ctx *ctx, const char *what, const wf_config *c, const wf_layer *l)
{
    if (!c->family->fused_qkv)
        return WF_OK;
    if (l->heads * l->key_dim != c->width)
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: %lld head%s of %lld dimensions do not match the width %lld", what,
                       (long long)l->heads, WF_PLURAL(l->heads), (long long)l->key_dim,
                       (long long)c->width);
    if (l->kv_heads != l->heads)
        return wf_fail(ctx, WF_ERR_FORMAT, "%s: %s must have as many key and value heads as heads",
                       what, c->family->name);
    return WF_OK;
}

wf_status wf_config_check(wf_ctx *ctx, const char *what, const wf_config *c)
{
    WF_TRY(check_sizes(ctx, what, c));
    if (!(positive(c->eps) && c->eps < 1))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the epsilon of the norms is %g; it must be above 0 and below 1", what,
                       c->eps);
    for (int64_t i = 0; i < (c->layer ? c->layers : 1); i++)
        WF_TRY(check_fused(ctx, what, c, wf_config_layer(c, i)));
    if (c->scale != 0 && !positive(c->scale))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the attention scale is %g; it must be above 0 and finite", what,
                       c->scale);
    WF_TRY(check_factors(ctx, what, c));
    for (int i = 0; i < c->ropes; i++)
        WF_TRY(check_rope(ctx, what, c, &c->rope[i]));
    return WF_OK;
}
