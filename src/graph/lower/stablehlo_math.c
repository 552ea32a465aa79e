/* SPDX-License-Identifier: MIT */
/* stablehlo_math.c - emitters of ops that compute: casts, elementwise ops, random numbers, matmuls,
 * reductions. Narrow floats are widened to f32, computed and rounded once, as Weft's kernels do.
 * Where StableHLO leaves a result undefined (casts out of range, order of NaN), the emitter makes
 * it defined. */
#include <math.h>

#include "graph/lower/stablehlo_priv.h"

/* ---- Types ---- */

wf_hlo wf_hlo_widen(wf_hlo_text *t, wf_hlo x)
{
    return x.type == WF_F16 || x.type == WF_BF16 ? wf_hlo_convert(t, x, WF_F32) : x;
}

wf_hlo wf_hlo_truth(wf_hlo_text *t, wf_hlo x)
{
    return wf_hlo_compare(t, "NE", x, wf_hlo_like(t, x, 0));
}

/* NaN is the only value that differs from itself. */
static wf_hlo is_nan(wf_hlo_text *t, wf_hlo x)
{
    return wf_hlo_compare(t, "NE", x, x);
}

/* NaN stays NaN. */
static wf_hlo clamp(wf_hlo_text *t, wf_hlo x, double low, double high)
{
    x = wf_hlo_binary(t, "stablehlo.maximum", x, wf_hlo_like(t, x, low));
    return wf_hlo_binary(t, "stablehlo.minimum", x, wf_hlo_like(t, x, high));
}

/* The range of i32, i8 or u8. */
static void int_range(int type, double *low, double *high)
{
    *low = type == WF_I32 ? INT32_MIN : type == WF_I8 ? INT8_MIN : 0;
    *high = type == WF_I32 ? INT32_MAX : type == WF_I8 ? INT8_MAX : UINT8_MAX;
}

/* f32 to integer. stablehlo.convert is undefined out of range, so clamp first. 2^31 - 1 is not an
 * f32: clamp to the largest f32 below 2^31, then select INT32_MAX for larger values. */
static wf_hlo float_to_int(wf_hlo_text *t, wf_hlo x, int type)
{
    double low, high;
    int_range(type, &low, &high);
    wf_hlo number = wf_hlo_select(t, is_nan(t, x), wf_hlo_like(t, x, 0), x);
    wf_hlo inside = clamp(t, number, low, type == WF_I32 ? 0x1p31 - 128 : high);
    wf_hlo y = wf_hlo_convert(t, inside, type);
    if (type != WF_I32)
        return y;
    wf_hlo above = wf_hlo_compare(t, "GE", number, wf_hlo_like(t, x, 0x1p31));
    return wf_hlo_select(t, above, wf_hlo_like(t, y, high), y);
}

/* Saturates. */
static wf_hlo int_to_int(wf_hlo_text *t, wf_hlo x, int type)
{
    double low, high;
    int_range(type, &low, &high);
    x = wf_hlo_convert(t, x, WF_I32);
    return type == WF_I32 ? x : wf_hlo_convert(t, clamp(t, x, low, high), type);
}

/* From f32. e4m3 has no Inf: finite values saturate at 448, Inf becomes NaN. */
static wf_hlo float_to_float(wf_hlo_text *t, wf_hlo x, int type)
{
    if (type == WF_E4M3) {
        wf_hlo size = wf_hlo_unary(t, "stablehlo.abs", x);
        wf_hlo infinite = wf_hlo_compare(t, "EQ", size, wf_hlo_like(t, x, INFINITY));
        x = wf_hlo_select(t, infinite, wf_hlo_like(t, x, NAN), clamp(t, x, -448, 448));
    }
    return wf_hlo_convert(t, x, type);
}

wf_hlo wf_hlo_cast(wf_hlo_text *t, wf_hlo x, int type)
{
    if (x.type == type)
        return x;
    if (!wf_hlo_is_float(x.type) && !wf_hlo_is_float(type))
        return int_to_int(t, x, type);
    x = wf_hlo_convert(t, x, WF_F32); /* exact for narrow floats; rounds i32, as Weft's cast does */
    return (wf_hlo_is_float(type) ? float_to_float : float_to_int)(t, x, type);
}

void wf_hlo_emit_cast(const wf_hlo_call *c)
{
    c->out[0] = wf_hlo_cast(c->t, c->in[0], c->node->out[0].type);
}

/* ---- Elementwise ---- */

/* c->name is the instruction. */
void wf_hlo_emit_unary(const wf_hlo_call *c)
{
    wf_hlo y = wf_hlo_unary(c->t, c->name, wf_hlo_widen(c->t, c->in[0]));
    c->out[0] = wf_hlo_cast(c->t, y, c->in[0].type);
}

/* Returns sign(x) for |x| >= 4, where erf(x) rounds to 1 in f32. The plugins' approximations stop
 * short of 1, which is visible where 1 + erf(x) should be 0. */
void wf_hlo_emit_erf(const wf_hlo_call *c)
{
    wf_hlo_text *t = c->t;
    wf_hlo x = wf_hlo_widen(t, c->in[0]), size = wf_hlo_unary(t, "stablehlo.abs", x);
    wf_hlo far = wf_hlo_compare(t, "GE", size, wf_hlo_like(t, x, 4));
    wf_hlo y = wf_hlo_unary(t, "chlo.erf", x);
    y = wf_hlo_select(t, far, wf_hlo_unary(t, "stablehlo.sign", x), y);
    c->out[0] = wf_hlo_cast(t, y, c->in[0].type);
}

/* Operand i, widened to f32 if it is narrow, and broadcast to the shape of the result. */
static wf_hlo operand(const wf_hlo_call *c, int i)
{
    return wf_hlo_broadcast(c->t, wf_hlo_widen(c->t, c->in[i]), &c->node->out[0].shape);
}

void wf_hlo_emit_binary(const wf_hlo_call *c)
{
    wf_hlo a = operand(c, 0), b = operand(c, 1);
    c->out[0] = wf_hlo_cast(c->t, wf_hlo_binary(c->t, c->name, a, b), c->in[0].type);
}

void wf_hlo_emit_compare(const wf_hlo_call *c)
{
    wf_hlo a = operand(c, 0), b = operand(c, 1);
    c->out[0] = wf_hlo_convert(c->t, wf_hlo_compare(c->t, c->name, a, b), WF_U8);
}

void wf_hlo_emit_scale(const wf_hlo_call *c)
{
    const wf_attr_scale *attr = c->attr;
    wf_hlo x = wf_hlo_widen(c->t, c->in[0]);
    wf_hlo y = wf_hlo_binary(c->t, "stablehlo.multiply", x, wf_hlo_like(c->t, x, attr->factor));
    c->out[0] = wf_hlo_cast(c->t, y, c->in[0].type);
}

void wf_hlo_emit_where(const wf_hlo_call *c)
{
    const wf_dims *shape = &c->node->out[0].shape;
    wf_hlo condition = wf_hlo_broadcast(c->t, wf_hlo_truth(c->t, c->in[0]), shape);
    c->out[0] = wf_hlo_select(c->t, condition, wf_hlo_broadcast(c->t, c->in[1], shape),
                              wf_hlo_broadcast(c->t, c->in[2], shape));
}

/* ---- Sources ---- */

void wf_hlo_emit_fill(const wf_hlo_call *c)
{
    const wf_attr_fill *attr = c->attr;
    c->out[0] = wf_hlo_constant(c->t, attr->type, &attr->dims, attr->value);
}

void wf_hlo_emit_iota(const wf_hlo_call *c)
{
    const wf_attr_iota *attr = c->attr;
    c->out[0] = wf_hlo_iota(c->t, WF_I32, &attr->dims, attr->axis);
}

static wf_hlo bitwise_xor(wf_hlo_text *t, wf_hlo a, wf_hlo b)
{
    return wf_hlo_binary(t, "stablehlo.xor", a, b);
}

/* The lower or the upper 32 bits of ui64, as ui32. */
static wf_hlo low_half(wf_hlo_text *t, wf_hlo x)
{
    x = wf_hlo_binary(t, "stablehlo.and", x, wf_hlo_like(t, x, UINT32_MAX));
    return wf_hlo_convert(t, x, WF_HLO_U32);
}

static wf_hlo high_half(wf_hlo_text *t, wf_hlo x)
{
    x = wf_hlo_binary(t, "stablehlo.shift_right_logical", x, wf_hlo_like(t, x, 32));
    return wf_hlo_convert(t, x, WF_HLO_U32);
}

/* ui32 x factor -> ui64 */
static wf_hlo multiply_wide(wf_hlo_text *t, wf_hlo x, uint32_t factor)
{
    x = wf_hlo_convert(t, x, WF_HLO_U64);
    return wf_hlo_binary(t, "stablehlo.multiply", x, wf_hlo_like(t, x, factor));
}

/* Philox4x32-10 (base/philox.h) in place on vectors of counters and keys, all ui32[blocks]. */
static void philox(wf_hlo_text *t, wf_hlo counter[4], wf_hlo key[2])
{
    for (int round = 0; round < 10; round++) {
        wf_hlo p0 = multiply_wide(t, counter[0], 0xD2511F53u);
        wf_hlo p1 = multiply_wide(t, counter[2], 0xCD9E8D57u);
        counter[0] = bitwise_xor(t, bitwise_xor(t, high_half(t, p1), counter[1]), key[0]);
        counter[1] = low_half(t, p1);
        counter[2] = bitwise_xor(t, bitwise_xor(t, high_half(t, p0), counter[3]), key[1]);
        counter[3] = low_half(t, p0);
        key[0] = wf_hlo_binary(t, "stablehlo.add", key[0], wf_hlo_like(t, key[0], 0x9E3779B9u));
        key[1] = wf_hlo_binary(t, "stablehlo.add", key[1], wf_hlo_like(t, key[1], 0xBB67AE85u));
    }
}

/* Element e comes from word e % 4 of Philox block e / 4: its upper 24 bits, times 2^-24. */
void wf_hlo_emit_uniform(const wf_hlo_call *c)
{
    const wf_attr_uniform *attr = c->attr;
    wf_hlo_text *t = c->t;
    const wf_dims *shape = &c->node->out[0].shape;
    int64_t count = wf_dims_count(shape), blocks = (count + 3) / 4;
    wf_dims vector = WF_HLO_D(blocks), column = WF_HLO_D(blocks, 1), words = WF_HLO_D(blocks, 4);
    wf_dims flat = WF_HLO_D(4 * blocks);
    wf_hlo bits = wf_hlo_map(t, "stablehlo.bitcast_convert", WF_HLO_U32, c->in, 1), key[3];
    for (int i = 0; i < 3; i++) {
        wf_hlo scalar = wf_hlo_reshape(t, wf_hlo_slice(t, bits, 0, i, i + 1), &WF_HLO_SCALAR);
        key[i] = wf_hlo_repeat(t, scalar, &vector, 0);
    }
    wf_hlo block = wf_hlo_iota(t, WF_HLO_U64, &vector, 0);
    wf_hlo counter[4] = {low_half(t, block), high_half(t, block), key[2],
                         /* The same counter layout as the kernels: block, step, stream. */
                         wf_hlo_constant(t, WF_HLO_U32, &vector, (uint32_t)attr->stream)};
    philox(t, counter, key);
    for (int i = 0; i < 4; i++)
        counter[i] = wf_hlo_reshape(t, counter[i], &column);
    wf_hlo all = wf_hlo_reshape(t, wf_hlo_concat(t, counter, 4, 1, &words), &flat);
    if (count < 4 * blocks)
        all = wf_hlo_slice(t, all, 0, 0, count);
    wf_hlo top = wf_hlo_binary(t, "stablehlo.shift_right_logical", all, wf_hlo_like(t, all, 8));
    wf_hlo unit = wf_hlo_convert(t, top, WF_F32);
    unit = wf_hlo_binary(t, "stablehlo.multiply", unit, wf_hlo_like(t, unit, 0x1p-24));
    c->out[0] = wf_hlo_reshape(t, unit, shape);
}

/* ---- Matmuls ---- */

/* Batched matmul with an f32 result: contracts axis ka of a with axis kb of b; the first `batch`
 * axes are batch axes. Operands of the same narrow type stay narrow, for hardware that multiplies
 * them. */
static wf_hlo dot_general(wf_hlo_text *t, wf_hlo a, wf_hlo b, int64_t batch, int64_t ka, int64_t kb,
                          const wf_dims *shape)
{
    wf_hlo in[] = {a, b};
    int64_t axes[WF_MAX_RANK];
    if (a.shape.d[ka] == 0) /* an empty sum */
        return wf_hlo_constant(t, WF_F32, shape, 0);
    for (int i = 0; a.type != b.type && i < 2; i++)
        in[i] = wf_hlo_convert(t, in[i], WF_F32);
    for (int64_t i = 0; i < batch; i++)
        axes[i] = i;
    wf_hlo out = wf_hlo_begin(t, "stablehlo.dot_general", in, 2, WF_F32, shape);
    wf_hlo_print(t, "dot_dimension_numbers = #stablehlo.dot<");
    for (int i = 0; batch > 0 && i < 2; i++) {
        wf_hlo_print(t, "%s_batching_dimensions = [", i ? "rhs" : "lhs");
        wf_hlo_print_list(t, axes, batch);
        wf_hlo_print(t, "], ");
    }
    wf_hlo_print(t, "lhs_contracting_dimensions = [%lld], rhs_contracting_dimensions = [%lld]>, ",
                 (long long)ka, (long long)kb);
    /* Without it, plugins may round f32 operands to bf16 or tf32. */
    wf_hlo_print(t, "precision_config = [#stablehlo<precision HIGHEST>, "
                    "#stablehlo<precision HIGHEST>]");
    wf_hlo_end(t, in, 2, &out);
    return out;
}

void wf_hlo_emit_matmul(const wf_hlo_call *c)
{
    const wf_attr_matmul *attr = c->attr;
    const wf_dims *shape = &c->node->out[0].shape;
    int64_t batch = shape->n - 2;
    wf_hlo y = dot_general(c->t, c->in[0], c->in[1], batch, batch + !attr->transpose_a,
                           batch + !!attr->transpose_b, shape);
    c->out[0] = wf_hlo_cast(c->t, y, c->in[0].type);
}

/* linear is not a core op. It has an emitter because its expansion rounds before it adds the
 * bias. */
void wf_hlo_emit_linear(const wf_hlo_call *c)
{
    const wf_dims *shape = &c->node->out[0].shape;
    wf_hlo y = dot_general(c->t, c->in[0], c->in[1], 0, shape->n - 1, 1, shape);
    if (c->node->nin > 2) {
        wf_hlo bias = wf_hlo_convert(c->t, c->in[2], WF_F32);
        y = wf_hlo_binary(c->t, "stablehlo.add", y, wf_hlo_broadcast(c->t, bias, shape));
    }
    c->out[0] = wf_hlo_cast(c->t, y, c->in[0].type);
}

/* ---- Reductions ---- */

void wf_hlo_emit_sum(const wf_hlo_call *c)
{
    const wf_attr_reduce *attr = c->attr;
    wf_hlo x = wf_hlo_widen(c->t, c->in[0]);
    wf_hlo zero = wf_hlo_constant(c->t, x.type, &WF_HLO_SCALAR, 0);
    wf_hlo sum = wf_hlo_reduce(c->t, "stablehlo.add", x, zero, (uint32_t)attr->axes);
    sum = wf_hlo_cast(c->t, sum, c->in[0].type);
    c->out[0] = wf_hlo_reshape(c->t, sum, &c->node->out[0].shape);
}

/* NaN if any element is NaN: stablehlo.maximum propagates it. */
static wf_hlo largest(wf_hlo_text *t, wf_hlo x, uint32_t axes)
{
    wf_hlo least = wf_hlo_least(t, x.type, &WF_HLO_SCALAR);
    return wf_hlo_reduce(t, "stablehlo.maximum", x, least, axes);
}

void wf_hlo_emit_max(const wf_hlo_call *c)
{
    const wf_attr_reduce *attr = c->attr;
    wf_hlo x = wf_hlo_widen(c->t, c->in[0]);
    wf_hlo y = wf_hlo_cast(c->t, largest(c->t, x, (uint32_t)attr->axes), c->in[0].type);
    c->out[0] = wf_hlo_reshape(c->t, y, &c->node->out[0].shape);
}

/* The minimum of the indices that hold the maximum; any NaN is the maximum. */
void wf_hlo_emit_argmax(const wf_hlo_call *c)
{
    const wf_attr_axis *attr = c->attr;
    wf_hlo_text *t = c->t;
    wf_hlo x = wf_hlo_widen(t, c->in[0]);
    uint32_t axis = 1u << attr->axis;
    wf_dims kept = x.shape;
    kept.d[attr->axis] = 1;
    wf_hlo most = wf_hlo_reshape(t, largest(t, x, axis), &kept);
    most = wf_hlo_broadcast(t, most, &x.shape);
    wf_hlo best = wf_hlo_compare(t, "EQ", x, most);
    best = wf_hlo_binary(t, "stablehlo.or", best, is_nan(t, x));
    wf_hlo index = wf_hlo_iota(t, WF_I32, &x.shape, attr->axis);
    index = wf_hlo_select(t, best, index, wf_hlo_like(t, index, INT32_MAX));
    wf_hlo end = wf_hlo_constant(t, WF_I32, &WF_HLO_SCALAR, INT32_MAX);
    c->out[0] = wf_hlo_reduce(t, "stablehlo.minimum", index, end, axis);
}

/* Writes the comparator of the sort: NaN first, then descending. */
static void print_order(wf_hlo_text *t, int type)
{
    wf_hlo arg[4]; /* two elements, and their indices */
    wf_hlo_print(t, "({\n  ^bb0(");
    for (int i = 0; i < 4; i++) {
        arg[i] = wf_hlo_new(t, i < 2 ? type : WF_I32, &WF_HLO_SCALAR);
        wf_hlo_print(t, "%s%%%d: ", i ? ", " : "", arg[i].id);
        wf_hlo_print_type(t, arg[i].type, &arg[i].shape);
    }
    wf_hlo_print(t, "):\n");
    wf_hlo number = wf_hlo_compare(t, "EQ", arg[1], arg[1]);
    wf_hlo odd = wf_hlo_binary(t, "stablehlo.and", is_nan(t, arg[0]), number);
    wf_hlo larger = wf_hlo_compare(t, "GT", arg[0], arg[1]);
    wf_hlo before = wf_hlo_binary(t, "stablehlo.or", odd, larger);
    wf_hlo_print(t, "    \"stablehlo.return\"(%%%d) : (tensor<i1>) -> ()\n  }) ", before.id);
}

/* Sorts the whole axis, stably. Instructions for the k largest elements do not specify the order of
 * NaN and of equal elements. */
void wf_hlo_emit_top_k(const wf_hlo_call *c)
{
    const wf_attr_top_k *attr = c->attr;
    wf_hlo_text *t = c->t;
    wf_hlo x = wf_hlo_widen(t, c->in[0]);
    int64_t last = x.shape.n - 1;
    wf_hlo index = wf_hlo_iota(t, WF_I32, &x.shape, last), in[] = {x, index};
    wf_hlo sorted[2] = {wf_hlo_new(t, x.type, &x.shape), index};
    sorted[1].id = sorted[0].id;
    wf_hlo_print(t, "  %%%d:2 = \"stablehlo.sort\"(%%%d, %%%d) ", sorted[0].id, x.id, index.id);
    print_order(t, x.type);
    wf_hlo_print(t, "{dimension = %lld : i64, is_stable = true} : (", (long long)last);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 2; i++) {
            wf_hlo_print_type(t, in[i].type, &in[i].shape);
            wf_hlo_print(t, i == 0 ? ", " : pass == 0 ? ") -> (" : ")\n");
        }
    for (int i = 0; i < 2; i++) {
        sorted[i].part = i;
        c->out[i] = wf_hlo_slice(t, sorted[i], last, 0, attr->k);
    }
    c->out[0] = wf_hlo_cast(t, c->out[0], c->in[0].type);
}
