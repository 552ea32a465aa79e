/* SPDX-License-Identifier: MIT */
/*
 * config.c - validates a config from any source.
 *
 * Everything that a graph is built from is checked here, so that no later code has to expect
 * hostile sizes: each is in range, heads divide evenly, and no parameter is NaN or infinite.
 */
#include "model/config.h"

#include <math.h>

#include "model/family.h"

/* Limits of hostile files: far beyond existing models, and small enough that the product of three
 * sizes cannot overflow int64. */
#define MOST_LAYERS 4096
#define MOST_SIZE (INT64_C(1) << 24)

int64_t wf_config_window(const wf_config *c, int64_t layer)
{
    return !c->windowed || c->windowed[layer] ? c->window : 0;
}

/* Returns the factor of attention scores in a layer; 0: the default, 1 / sqrt(head_dim). */
double wf_config_scale(const wf_config *c, int64_t layer)
{
    double scale = c->scale != 0 ? c->scale : 1 / sqrt((double)c->head_dim);
    if (c->scale_by_layer)
        return scale / (double)(layer + 1);
    return c->scale;
}

static wf_status check_sizes(wf_ctx *ctx, const char *what, const wf_config *c)
{
    const struct {
        const char *name;
        int64_t value, most;
    } sizes[] = {
        {"number of layers", c->layers, MOST_LAYERS},
        {"width", c->width, MOST_SIZE},
        {"number of heads", c->heads, MOST_SIZE},
        {"number of key and value heads", c->kv_heads, MOST_SIZE},
        {"size of a head", c->head_dim, MOST_SIZE},
        {"width of the MLP", c->hidden, MOST_SIZE},
        {"context", c->context, MOST_SIZE},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            return wf_fail(ctx, WF_ERR_FORMAT, "%s: the %s is %lld; it must be 1 to %lld", what,
                           sizes[i].name, (long long)sizes[i].value, (long long)sizes[i].most);
    if (c->heads * c->head_dim > MOST_SIZE)
        return wf_fail(ctx, WF_ERR_FORMAT, "%s: %lld heads of %lld dimensions exceed the limit",
                       what, (long long)c->heads, (long long)c->head_dim);
    if (c->heads % c->kv_heads != 0)
        return wf_fail(ctx, WF_ERR_FORMAT, "%s: %lld key and value heads do not divide %lld head%s",
                       what, (long long)c->kv_heads, (long long)c->heads, WF_PLURAL(c->heads));
    if (c->window < 0 || c->window > MOST_SIZE)
        return wf_fail(ctx, WF_ERR_FORMAT, "%s: an attention window of %lld tokens is out of range",
                       what, (long long)c->window);
    return WF_OK;
}

static bool positive(double x)
{
    return isfinite(x) && x > 0;
}

/* Also rejects NaN: every comparison is written so that NaN fails it. */
static wf_status check_rope(wf_ctx *ctx, const char *what, const wf_config *c)
{
    const wf_rotary *r = &c->rope;
    if (!positive(r->base))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the base of the rotary positions is %g; it must be positive and finite",
                       what, r->base);
    if (r->dims < 2 || r->dims > c->head_dim || r->dims % 2 != 0)
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "%s: cannot rotate %lld of the %lld dimensions of a head; the number must be even "
            "and fit into the head",
            what, (long long)r->dims, (long long)c->head_dim);
    if (r->scaling != WF_ROPE_PLAIN && !positive(r->factor))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the rope scaling has factor %g; it must be above 0 and finite", what,
                       r->factor);
    bool waves = r->scaling == WF_ROPE_LLAMA3 || r->scaling == WF_ROPE_YARN;
    if (waves && !(positive(r->original) && r->original <= INT32_MAX))
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
    return WF_OK;
}

wf_status wf_config_check(wf_ctx *ctx, const char *what, const wf_config *c)
{
    WF_TRY(check_sizes(ctx, what, c));
    if (!(positive(c->eps) && c->eps < 1))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the epsilon of the norms is %g; it must be above 0 and below 1", what,
                       c->eps);
    if (c->family->fused_qkv && c->heads * c->head_dim != c->width)
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: %lld head%s of %lld dimensions do not match the width %lld", what,
                       (long long)c->heads, WF_PLURAL(c->heads), (long long)c->head_dim,
                       (long long)c->width);
    if (c->family->fused_qkv && c->kv_heads != c->heads)
        return wf_fail(ctx, WF_ERR_FORMAT, "%s: %s must have as many key and value heads as heads",
                       what, c->family->name);
    if (c->scale != 0 && !positive(c->scale))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "%s: the attention scale is %g; it must be above 0 and finite", what,
                       c->scale);
    return c->family->rotary ? check_rope(ctx, what, c) : WF_OK;
}
