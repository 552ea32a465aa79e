/* SPDX-License-Identifier: MIT */
/*
 * rope.c - rules of rope, rotary position embedding.
 *
 * x is [N, H, D]. The first R <= D elements of each head are R/2 pairs; pair i of the token at
 * position p is rotated by p * inv_freq[i] radians and multiplied by `magnitude`. Pairs are
 * (i, i + R/2), or (2i, 2i + 1) when `interleaved`.
 */
#include "graph/op/rule.h"

wf_status wf_shape_rope(wf_infer *r)
{
    const wf_value *x = r->in[0], *positions = r->in[1], *freq = r->in[2];
    WF_RULE(r, wf_is_float(x) && x->shape.n == 3, "x must be [N, H, D] of f32, f16 or bf16");
    WF_RULE(r, wf_is_i32(positions, 1) && positions->shape.d[0] == x->shape.d[0],
            "positions must be i32[N], one for each row of x");
    WF_RULE(r, freq->type == WF_F32 && freq->shape.n == 1 && 2 * freq->shape.d[0] <= x->shape.d[2],
            "inv_freq must be f32[R/2] with R at most D");
    wf_infer_out(r, x->type, &x->shape);
    return WF_OK;
}

/* The gradient of a rotation is the inverse rotation, with the same magnitude. */
wf_status wf_grad_rope(wf_vjp *v)
{
    wf_node *n = v->node;
    if (v->need[2])
        return wf_graph_fail(v->g, WF_ERR_USAGE, "rope has no gradient with respect to inv_freq");
    wf_attr_rope a = *(const wf_attr_rope *)n->attr;
    a.inverse = !a.inverse;
    wf_value *in[] = {v->dout[0], n->in[1], n->in[2]};
    v->din[0] = wf_node_add(v->g, WF_OP_rope, &a, NULL, in, 3);
    return WF_OK;
}

/* Splits the first 2 * pairs elements of each head into the first and second elements of all pairs,
 * [N, H, R/2] each. */
static void split_pairs(wf_graph *g, wf_value *x, int64_t pairs, bool interleaved, wf_value *out[2])
{
    int64_t n = x->shape.d[0], h = x->shape.d[1];
    wf_value *head = wf_slice(g, x, 2, 0, 2 * pairs);
    if (interleaved)
        head = wf_reshape(g, head, 4, (int64_t[]){n, h, pairs, 2});
    for (int i = 0; i < 2; i++)
        out[i] = interleaved
                     ? wf_reshape(g, wf_slice(g, head, 3, i, i + 1), 3, (int64_t[]){n, h, pairs})
                     : wf_slice(g, head, 2, i * pairs, (i + 1) * pairs);
}

/* The inverse of split_pairs. */
static wf_value *join_pairs(wf_graph *g, wf_value *pair[2], bool interleaved)
{
    if (!interleaved || !pair[0])
        return wf_concat(g, pair, 2, 2);
    wf_dims d = pair[0]->shape, column = wf_dims_append(&d, 1);
    wf_value *columns[] = {wf_reshape_to(g, pair[0], &column), wf_reshape_to(g, pair[1], &column)};
    return wf_reshape(g, wf_concat(g, columns, 2, 3), 3, (int64_t[]){d.d[0], d.d[1], 2 * d.d[2]});
}

/* ---- Angles ---- */

/*
 * Angles are computed in i32 in units of 2^-32 turns. i32 arithmetic wraps, so whole turns drop
 * out, and the rest is exact at any position. In f32, position * inv_freq is off by 0.03 radians at
 * position 10^6.
 *
 * One position advances pair i by step = inv_freq[i] * 2^32 / 2pi units. The step is split into an
 * integer and a fraction, both per frequency:
 *
 *   inv_freq = (d1 + (d2 + rest) * 2^-14) * 2^-13     integers d1, d2; |rest| <= 1/2
 *   step     = d1 * TURN1 + (d2 + rest) * TURN2
 *
 * Each constant is an integer of 17 bits plus a small remainder, so integer products are exact in
 * i32, and products of remainders are small enough for f32. Every f32 operation that must be exact
 * is a multiplication by a power of two or the subtraction of a rounded value. The result is the
 * same when a compiler fuses these.
 *
 * The angle is off by at most 4e-7 up to position 2^24, and by 2e-6 up to 2^31 (tests/test_rope.c),
 * for |inv_freq| <= 256. Beyond that, d1 * TURN1_PART overflows.
 */
#define DIGIT1 0x1p13
#define DIGIT2 0x1p14
#define PARTS 0x1p14
/* 2^32 / 2pi / DIGIT1 = TURN1 + TURN1_PART / PARTS + TURN1_REST */
#define TURN1 83443
#define TURN1_PART 439
#define TURN1_REST 9.3300280495965305e-6
/* 2^32 / 2pi / DIGIT1 / DIGIT2 = TURN2_PART / PARTS + TURN2_REST = TURN2 */
#define TURN2_PART 83443
#define TURN2_REST 1.6359719007446043e-6
#define TURN2 5.0929581789406507
#define RADIANS 1.4629180792671596e-9 /* 2pi / 2^32 */

/* i32 x times an integer constant; wraps. */
static wf_value *times(wf_graph *g, wf_value *x, double factor)
{
    return wf_mul(g, x, wf_fill(g, WF_I32, 0, NULL, factor));
}

/* Splits x into an integer digit and the rest: x = digit + rest. Returns the digit as i32 and sets
 * *digit to the same in f32. */
static wf_value *take_digit(wf_graph *g, wf_value *x, wf_value **digit, wf_value **rest)
{
    wf_value *whole = wf_cast(g, x, WF_I32);
    *digit = wf_cast(g, whole, WF_F32);
    *rest = wf_sub(g, x, *digit);
    return whole;
}

/* Returns the step of each frequency, i32[R/2] in units of 2^-32 turns. Sets *fraction to the rest
 * of the step, f32[R/2] in radians. */
static wf_value *rope_steps(wf_graph *g, wf_value *inv_freq, wf_value **fraction)
{
    wf_value *d1, *d2, *rest;
    wf_value *whole1 = take_digit(g, wf_scale(g, inv_freq, DIGIT1), &d1, &rest);
    wf_value *whole2 = take_digit(g, wf_scale(g, rest, DIGIT2), &d2, &rest);
    wf_value *parts = wf_add(g, times(g, whole1, TURN1_PART), times(g, whole2, TURN2_PART));
    /* parts may not be exact in f32. That is fine: any nearby integer can serve as the carry. */
    wf_value *carry = wf_cast(g, wf_scale(g, wf_cast(g, parts, WF_F32), 1 / PARTS), WF_I32);
    parts = wf_sub(g, parts, times(g, carry, PARTS));
    wf_value *small = wf_add(g, wf_scale(g, d2, TURN2_REST), wf_scale(g, rest, TURN2));
    small = wf_add(g, wf_scale(g, d1, TURN1_REST), small);
    small = wf_add(g, wf_scale(g, wf_cast(g, parts, WF_F32), 1 / PARTS), small);
    *fraction = wf_scale(g, small, RADIANS);
    return wf_add(g, times(g, whole1, TURN1), carry);
}

/* position * inv_freq modulo one turn, in radians: f32[N, 1, R/2]. */
static wf_value *rope_angles(wf_graph *g, wf_value *positions, wf_value *inv_freq, int64_t rows)
{
    wf_value *fraction, *position = wf_reshape(g, positions, 3, (int64_t[]){rows, 1, 1});
    wf_value *step = rope_steps(g, inv_freq, &fraction);
    wf_value *units = wf_cast(g, wf_mul(g, position, step), WF_F32);
    return wf_add(g, wf_scale(g, units, RADIANS),
                  wf_mul(g, wf_cast(g, position, WF_F32), fraction));
}

wf_status wf_expand_rope(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_rope *a = n->attr;
    int64_t rows = in[0]->shape.d[0], width = in[0]->shape.d[2], pairs = in[2]->shape.d[0];
    wf_value *x = wf_cast(g, in[0], WF_F32), *pair[2], *rotated[2];
    if (!x)
        return g->status;
    split_pairs(g, x, pairs, a->interleaved != 0, pair);

    wf_value *angle = rope_angles(g, in[1], in[2], rows);
    wf_value *c = wf_scale(g, wf_cos(g, angle), a->magnitude);
    wf_value *s = wf_scale(g, wf_sin(g, angle), a->inverse ? -a->magnitude : a->magnitude);
    rotated[0] = wf_sub(g, wf_mul(g, pair[0], c), wf_mul(g, pair[1], s));
    rotated[1] = wf_add(g, wf_mul(g, pair[0], s), wf_mul(g, pair[1], c));

    wf_value *y[] = {join_pairs(g, rotated, a->interleaved != 0),
                     wf_slice(g, x, 2, 2 * pairs, width)};
    out[0] = wf_cast(g, wf_concat(g, y, 2, 2), in[0]->type);
    return WF_OK;
}
