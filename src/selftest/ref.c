/* SPDX-License-Identifier: MIT */
/* ref.c - the table of references, one per row of ops.def, and shared helpers. */
#include "selftest/ref.h"

#include <inttypes.h>

#include "base/philox.h"
#include "selftest/number.h"
#include "selftest/ref_priv.h"

static wf_ref_fn *const refs[WF_OP_COUNT] = {
#define WF_UNARY(name, ...) [WF_OP_##name] = wf_ref_unary,
#define WF_BINARY(name, ...) [WF_OP_##name] = wf_ref_binary,
#define WF_OP(name, ...) [WF_OP_##name] = wf_ref_##name,
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP
};

wf_status wf_ref_run(wf_ctx *ctx, const wf_node *n, const wf_ref *in, wf_ref *out)
{
    wf_ref_call c = {ctx, n, n->attr, n->nin, n->nout, in, out};
    WF_TRY(refs[n->op](&c));
    /* A finite result of an infinite operand, such as e^-inf, is exact. */
    for (int i = 0; i < n->nout; i++) {
        int64_t count = wf_dims_count(&out[i].shape);
        for (int64_t e = 0; e < count; e++)
            if (!isfinite(out[i].mag[e]))
                out[i].mag[e] = 0;
    }
    return WF_OK;
}

/* Sources have values, but no reference. */
static wf_status no_reference(const wf_ref_call *c)
{
    return wf_fail(c->ctx, WF_ERR_UNSUPPORTED, "%s has no reference", wf_node_def(c->node)->name);
}

wf_status wf_ref_input(const wf_ref_call *c)
{
    return no_reference(c);
}

wf_status wf_ref_state(const wf_ref_call *c)
{
    return no_reference(c);
}

wf_status wf_ref_state_copy(const wf_ref_call *c)
{
    return no_reference(c);
}

void wf_ref_unravel(const wf_dims *shape, int64_t e, int64_t index[WF_MAX_RANK])
{
    for (int64_t a = shape->n - 1; a >= 0; a--) {
        index[a] = e % shape->d[a];
        e /= shape->d[a];
    }
}

int64_t wf_ref_ravel(const wf_dims *shape, const int64_t *index)
{
    int64_t e = 0;
    for (int64_t a = 0; a < shape->n; a++)
        e = e * shape->d[a] + index[a];
    return e;
}

int64_t wf_ref_repeated(const wf_dims *from, const int64_t *index, int64_t to_rank)
{
    int64_t own[WF_MAX_RANK] = {0};
    for (int64_t a = 0; a < from->n; a++)
        own[a] = from->d[a] == 1 ? 0 : index[to_rank - from->n + a];
    return wf_ref_ravel(from, own);
}

void wf_ref_add_rows(const wf_ref *x, wf_ref *sums)
{
    /* A rounding loses one roundoff of its type; mag is in units of several roundoffs of f32. */
    double rounded = x->type == WF_F32 ? 0 : wf_type_get(x->type)->roundoff / WF_ROUNDOFF_F32 / 4;
    int64_t count = wf_dims_count(&x->shape), columns = wf_dims_last(&x->shape);
    for (int64_t e = 0; e < count; e++) {
        sums->v[e % columns] += x->v[e];
        sums->mag[e % columns] += x->mag[e] + (1 + rounded) * fabs(x->v[e]);
    }
}

wf_status wf_ref_check(const wf_ref_call *c, const char *what, int64_t value, int64_t limit)
{
    if (value >= 0 && value < limit)
        return WF_OK;
    return wf_fail(c->ctx, WF_ERR_DEVICE, "%s: %s %" PRId64 " lies outside [0, %" PRId64 ")",
                   wf_node_def(c->node)->name, what, value, limit);
}

double wf_ref_wrap(int64_t x)
{
    int64_t low = x & INT64_C(0xFFFFFFFF);
    return (double)(low >= INT64_C(1) << 31 ? low - (INT64_C(1) << 32) : low);
}

bool wf_ref_is_int(wf_type type)
{
    return type == WF_I32 || type == WF_I8 || type == WF_U8;
}

double wf_ref_to_int(wf_type type, double x)
{
    double lo = type == WF_I32 ? -2147483648.0 : type == WF_I8 ? -128 : 0;
    double hi = type == WF_I32 ? 2147483647.0 : type == WF_I8 ? 127 : 255;
    if (isnan(x))
        return 0;
    x = trunc(x);
    return x < lo ? lo : x > hi ? hi : x;
}

double wf_ref_read_mag(wf_type type, double x)
{
    return wf_type_get(type)->kind == WF_KIND_BLOCK ? fabs(x) : 0;
}

wf_ref_cap wf_ref_cap_at(double x, double x_mag, double cap)
{
    if (cap == 0)
        return (wf_ref_cap){x, x_mag, 1, 0};
    /* The slope is sech^2, not 1 - t^2, which loses all digits for large x. */
    double t = tanh(x / cap), sech = 1 / cosh(x / cap), sech2 = sech * sech;
    double t_mag = fabs(t) + sech2 * (fabs(x) + x_mag) / cap;
    return (wf_ref_cap){
        .y = cap * t,
        .mag = cap * t_mag,
        .slope = sech2,
        .slope_mag = 1 + 2 * fabs(t) * t_mag, /* of 1 - t^2 */
    };
}

/* Word e % 4 of block e / 4. The counter is (block, step, stream), where the step is the third word
 * of `key`; the first two are Philox's key. */
double wf_ref_random(const wf_ref *key, int64_t stream, int64_t e)
{
    uint32_t seed[2] = {(uint32_t)wf_ref_int(key, 0), (uint32_t)wf_ref_int(key, 1)};
    uint64_t block = (uint64_t)e / 4;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)wf_ref_int(key, 2),
                           (uint32_t)stream};
    uint32_t words[4];
    wf_philox4x32(counter, seed, words);
    return (double)(words[e % 4] >> 8) * 0x1p-24;
}
