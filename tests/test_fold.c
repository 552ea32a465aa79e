/* SPDX-License-Identifier: MIT */
/*
 * test_fold.c - the fold pass: rules that keep every bit, common subexpressions, handles to folded
 * values, and large graphs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fold_case.h"

/* ---- Graphs of the exact rules ---- */

BUILD(reshape3, use(g, wf_reshape(g, wf_reshape(g, wf_reshape(g, X(g), 1, D(24)), 2, D(2, 12)), 3,
                                  D(2, 3, 4))))
BUILD(reshape_back, use(g, wf_reshape(g, wf_reshape(g, X(g), 1, D(24)), 2, D(4, 6))))
BUILD(reshape_none, use(g, op(g, "reshape", "dims=[4,6]", X(g))))
BUILD(reshape_permuted,
      use(g, wf_reshape(g, wf_permute(g, wf_reshape(g, X(g), 2, D(3, 8)), D(1, 0)), 1, D(24))))
BUILD(permute2,
      use(g, wf_permute(g, wf_permute(g, wf_input(g, "x", WF_F32, 3, D(2, 3, 4)), D(1, 2, 0)),
                        D(0, 2, 1))))
BUILD(permute_back,
      use(g, wf_permute(g, wf_permute(g, wf_input(g, "x", WF_F32, 3, D(2, 3, 4)), D(1, 2, 0)),
                        D(2, 0, 1))))
BUILD(permute_none, use(g, wf_permute(g, X(g), D(0, 1))))
BUILD(slice2, use(g, wf_slice(g, wf_slice(g, X(g), 1, 1, 6), 1, 2, 4)))
BUILD(slice_other_axis, use(g, wf_slice(g, wf_slice(g, X(g), 1, 1, 6), 0, 2, 4)))
BUILD(slice_all, use(g, wf_slice(g, X(g), 1, 0, 6)))
BUILD(cast_none, use(g, op(g, "cast", "type=f32", X(g))))
BUILD(cast_back,
      use(g, wf_cast(g, wf_cast(g, wf_input(g, "x", WF_BF16, 1, D(9)), WF_F32), WF_BF16)))
BUILD(cast_wide, use(g, wf_cast(g, wf_cast(g, wf_input(g, "x", WF_BF16, 1, D(9)), WF_F32), WF_F16)))
BUILD(cast_loses, use(g, wf_cast(g, wf_cast(g, X(g), WF_BF16), WF_F32)))
BUILD(cast_halves,
      use(g, wf_cast(g, wf_cast(g, wf_input(g, "x", WF_F16, 1, D(9)), WF_BF16), WF_F16)))
BUILD(cast_ints,
      wf_where(g, wf_cast(g, wf_cast(g, wf_input(g, "i", WF_U8, 1, D(9)), WF_F32), WF_U8),
               wf_input(g, "x", WF_F32, 1, D(9)), scalar(g, 2)))
BUILD(cast_i32, wf_cast(g, wf_cast(g, wf_input(g, "i", WF_I32, 1, D(9)), WF_F32), WF_I32))
BUILD(copy_input, use(g, wf_copy(g, X(g))))
BUILD(copy_computed, use(g, wf_copy(g, use(g, X(g)))))
BUILD(copy_state, use(g, wf_copy(g, S(g))))
BUILD(copy_output, wf_copy(g, X(g)))
BUILD(scale_one, use(g, wf_scale(g, X(g), 1)))
BUILD(scale_near_one, use(g, wf_scale(g, X(g), 1 + 1e-6)))
BUILD(scale_almost, use(g, wf_scale(g, X(g), 1 + 1e-12))) /* rounds to 1 in f32 */
BUILD(add_minus_zero, use(g, wf_add(g, X(g), scalar(g, -0.0))))
BUILD(minus_zero_add, use(g, wf_add(g, scalar(g, -0.0), X(g))))
BUILD(add_zero, use(g, wf_add(g, X(g), scalar(g, 0))))
BUILD(add_zero_i32,
      wf_maximum(g, wf_add(g, wf_input(g, "i", WF_I32, 1, D(5)), wf_fill(g, WF_I32, 0, NULL, 0.5)),
                 wf_input(g, "j", WF_I32, 1, D(5))))
BUILD(add_zero_wider,
      use(g, wf_add(g, wf_input(g, "x", WF_F32, 1, D(6)), wf_fill(g, WF_F32, 2, D(4, 6), -0.0))))
BUILD(sub_zero, use(g, wf_sub(g, X(g), scalar(g, 0))))
BUILD(sub_minus_zero, use(g, wf_sub(g, X(g), scalar(g, -0.0))))
BUILD(zero_sub, use(g, wf_sub(g, scalar(g, 0), X(g))))
BUILD(mul_one, use(g, wf_mul(g, X(g), wf_fill(g, WF_F32, 2, D(4, 6), 1))))
BUILD(one_mul, use(g, wf_mul(g, scalar(g, 1), X(g))))
BUILD(mul_one_wider, use(g, wf_mul(g, scalar(g, 1),
                                   wf_mul(g, wf_input(g, "x", WF_F32, 1, D(6)),
                                          wf_fill(g, WF_F32, 2, D(4, 6), 1)))))
BUILD(mul_fill, use(g, wf_mul(g, X(g), scalar(g, 1.0 / 3))))
BUILD(mul_fill_f16,
      use(g, wf_mul(g, wf_fill(g, WF_F16, 0, NULL, 1.0 / 3), wf_input(g, "x", WF_F16, 1, D(20)))))
BUILD(mul_fill_i32,
      wf_maximum(g, wf_mul(g, wf_input(g, "i", WF_I32, 1, D(5)), wf_fill(g, WF_I32, 0, NULL, 3)),
                 wf_input(g, "j", WF_I32, 1, D(5))))
BUILD(div_one, use(g, wf_div(g, X(g), scalar(g, 1))))
BUILD(neg_neg, use(g, wf_neg(g, wf_neg(g, X(g)))))
BUILD(neg_once, use(g, wf_neg(g, X(g))))
BUILD(where_true, use(g, wf_where(g, wf_fill(g, WF_U8, 0, NULL, 1), X(g),
                                  wf_input(g, "b", WF_F32, 2, D(4, 6)))))
BUILD(where_false, use(g, wf_where(g, wf_fill(g, WF_U8, 0, NULL, 0),
                                   wf_input(g, "b", WF_F32, 2, D(4, 6)), X(g))))
BUILD(where_spread,
      use(g, wf_where(g, wf_fill(g, WF_U8, 0, NULL, 1), wf_input(g, "b", WF_F32, 1, D(6)), X(g))))
BUILD(where_rounds, use(g, wf_where(g, wf_fill(g, WF_U8, 0, NULL, 0.7), X(g),
                                    wf_input(g, "b", WF_F32, 2, D(4, 6)))))
BUILD(where_open, use(g, wf_where(g, wf_input(g, "c", WF_U8, 1, D(6)), X(g), scalar(g, 0))))
BUILD(fill_moved,
      wf_add(g, X(g),
             wf_slice(g,
                      wf_permute(g,
                                 wf_reshape(g,
                                            wf_broadcast(g, wf_copy(g, scalar(g, 0.1)), 2, D(4, 6)),
                                            2, D(6, 4)),
                                 D(1, 0)),
                      0, 0, 1)))
BUILD(fill_cast, wf_add(g, X(g), wf_cast(g, wf_fill(g, WF_BF16, 0, NULL, 0.1), WF_F32)))
BUILD(fill_cast_i32, wf_cast(g, wf_fill(g, WF_F32, 1, D(3), -7.9), WF_I32))
BUILD(fill_cast_u8, wf_cast(g, wf_fill(g, WF_F16, 1, D(3), 1e9), WF_U8))
BUILD(fill_scaled, wf_scale(g, wf_fill(g, WF_F32, 1, D(3), 0.1), 0.9)) /* also rounds the factor */
BUILD(fill_scaled_f16, wf_add(g, wf_input(g, "x", WF_F16, 1, D(8)),
                              wf_scale(g, wf_fill(g, WF_F16, 0, NULL, 0.1), 0.7)))
BUILD(pad_none, use(g, wf_pad(g, X(g), 0, 0, 0)))
BUILD(pad_some, use(g, wf_pad(g, X(g), 0, 0, 1)))
BUILD(broadcast_none, use(g, op(g, "broadcast", "dims=[4,6]", X(g))))
BUILD(max_one, use(g, wf_max(g, wf_input(g, "x", WF_F32, 3, D(4, 1, 6)), 2, false)))
BUILD(max_keep, use(g, wf_max(g, wf_input(g, "x", WF_F32, 3, D(4, 1, 6)), 2, true)))
BUILD(max_two, use(g, wf_max(g, wf_input(g, "x", WF_F32, 3, D(4, 2, 6)), 2, true)))
BUILD(sum_one, use(g, wf_sum(g, wf_input(g, "x", WF_F32, 3, D(4, 1, 6)), 2, false)))
BUILD(sum_output, wf_sum(g, wf_input(g, "x", WF_F32, 3, D(4, 1, 6)), 2, false))

static wf_value *concat_one(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_concat(g, &x, 1, 1));
}
static wf_value *concat_two(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_concat(g, (wf_value *[]){x, x}, 2, 1));
}

/* The gradient of slicing x [4, 6] on axis 1: a padded part [begin, end), to be added up. */
static wf_value *cut_pad(wf_graph *g, wf_value *x, int64_t begin, int64_t end)
{
    return wf_pad(g, wf_exp(g, wf_slice(g, x, 1, begin, end)), 1, begin, 6 - end);
}
static wf_value *pads_three(wf_graph *g)
{
    wf_value *x = X(g), *y = wf_add(g, cut_pad(g, x, 4, 6), cut_pad(g, x, 1, 4));
    return use(g, wf_add(g, y, cut_pad(g, x, 0, 1)));
}
static wf_value *pads_tree(wf_graph *g)
{
    wf_value *x = X(g), *y = wf_add(g, cut_pad(g, x, 5, 6), cut_pad(g, x, 1, 4));
    return use(g, wf_add(g, wf_add(g, cut_pad(g, x, 0, 1), cut_pad(g, x, 4, 5)), y));
}
static wf_value *pads_gap(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_add(g, cut_pad(g, x, 0, 2), cut_pad(g, x, 3, 6)));
}
static wf_value *pads_end(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_add(g, cut_pad(g, x, 0, 2), cut_pad(g, x, 2, 5)));
}
static wf_value *pads_overlap(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_add(g, cut_pad(g, x, 0, 3), cut_pad(g, x, 2, 6)));
}
static wf_value *pads_twice(wf_graph *g)
{
    wf_value *x = X(g), *a = cut_pad(g, x, 0, 3);
    return use(g, wf_add(g, wf_add(g, a, a), cut_pad(g, x, 3, 6)));
}
static wf_value *pads_axes(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_add(g, cut_pad(g, x, 0, 3), wf_pad(g, wf_slice(g, x, 0, 0, 2), 0, 2, 0)));
}
static wf_value *pads_and_more(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_add(g, wf_add(g, cut_pad(g, x, 0, 3), x), cut_pad(g, x, 3, 6)));
}
/* Must not fold: reading the state at the sum would be after its update. */
static wf_value *pads_kept(wf_graph *g)
{
    wf_value *s = S(g), *a = wf_pad(g, wf_slice(g, s, 1, 0, 3), 1, 0, 3), *more = use(g, s);
    wf_accumulate(g, s, more, NULL);
    return use(g, wf_add(g, a, cut_pad(g, X(g), 3, 6)));
}

/* The copy must stay: its reader comes after the update of the state. */
static wf_value *copy_kept(wf_graph *g)
{
    wf_value *s = S(g), *was = wf_copy(g, s), *more = use(g, s);
    wf_accumulate(g, s, more, NULL);
    return use(g, was);
}
static wf_value *copy_viewed(wf_graph *g)
{
    wf_value *s = S(g), *was = wf_copy(g, wf_reshape(g, s, 1, D(24))), *more = use(g, s);
    wf_value *again = wf_slice(g, was, 0, 2, 9); /* a view of the copy is read after the update */
    wf_accumulate(g, s, more, NULL);
    return use(g, again);
}
static wf_value *copy_not_needed(wf_graph *g)
{
    wf_value *s = S(g), *y = use(g, wf_copy(g, s));
    wf_accumulate(g, s, y, NULL);
    return y;
}
static wf_value *copy_for_update(wf_graph *g) /* the update itself reads the copy */
{
    wf_value *s = S(g), *y = use(g, s);
    wf_assign(g, s, wf_copy(g, s), NULL);
    return y;
}
/* Each step alone may fold (y is the cast, the cast is the state), but together they would read the
 * state after its update. */
static wf_value *chain_to_state(wf_graph *g)
{
    wf_value *s = S(g), *was = op(g, "cast", "type=f32", s), *y = wf_sub(g, was, scalar(g, 0));
    wf_accumulate(g, s, X(g), NULL);
    return use(g, y);
}
static wf_value *cast_past_update(wf_graph *g)
{
    wf_value *s = wf_state(g, "s", WF_BF16, 1, D(6)), *wide = wf_cast(g, s, WF_F32);
    wf_assign(g, s, wf_input(g, "x", WF_BF16, 1, D(6)), NULL);
    return use(g, wf_cast(g, wide, WF_F16));
}
static wf_value *sum_kept(wf_graph *g) /* would become a view of an updated state */
{
    wf_value *s = wf_state(g, "s", WF_F32, 2, D(4, 1)), *sum = wf_sum(g, s, 2, false);
    wf_assign(g, s, wf_input(g, "x", WF_F32, 2, D(4, 1)), NULL);
    return use(g, sum);
}

/* clang-format off */
static const fold_case exact_cases[] = {
    {"three reshapes",            "reshape of reshape", 1, reshape3, true, 0},
    {"there and back",            "reshape of reshape", 1, reshape_back, true, 0},
    {"to the same shape",         "reshape of reshape", 1, reshape_none, true, 0},
    {"a permute between",         "reshape of reshape", 0, reshape_permuted, true, 0},
    {"two permutes",              "permute of permute", 1, permute2, true, 0},
    {"a permute and its inverse", "permute of permute", 1, permute_back, true, 0},
    {"identity permute",          "permute of permute", 1, permute_none, true, 0},
    {"two slices",                "slice of slice", 1, slice2, true, 0},
    {"slices of two axes",        "slice of slice", 0, slice_other_axis, true, 0},
    {"slice of all",              "slice of slice", 1, slice_all, true, 0},
    {"cast to the same",          "cast of cast", 1, cast_none, true, 0},
    {"bf16, f32, bf16",           "cast of cast", 1, cast_back, true, 0},
    {"bf16, f32, f16",            "cast of cast", 1, cast_wide, true, 0},
    {"f32, bf16, f32",            "cast of cast", 0, cast_loses, true, 0},
    {"f16, bf16, f16",            "cast of cast", 0, cast_halves, true, 0},
    {"u8, f32, u8",               "cast of cast", 1, cast_ints, true, 0},
    {"i32, f32, i32",             "cast of cast", 0, cast_i32, true, 0},
    {"f32 of a state, then an update", "cast of cast", 0, cast_past_update, true, 0},
    {"copy of an input",          "copy", 1, copy_input, true, 0},
    {"copy of a value",           "copy", 1, copy_computed, true, 0},
    {"copy of a state",           "copy", 1, copy_state, true, 0},
    {"copy, read before the update", "copy", 1, copy_not_needed, true, 0},
    {"copy, read after the update", "copy", 0, copy_kept, true, 0},
    {"copy, viewed after the update", "copy", 0, copy_viewed, true, 0},
    {"copy, read by the update",  "copy", 0, copy_for_update, true, 0},
    {"copy as an output",         "copy", 0, copy_output, true, 0},
    {"a way to an updated state", "subtract 0", 0, chain_to_state, true, 0},
    {"scale by 1",                "scale by 1", 1, scale_one, true, 0},
    {"scale by 1.000001",         "scale by 1", 0, scale_near_one, true, 0},
    {"scale by 1 in f32",         "scale by 1", 1, scale_almost, true, 0},
    {"x + -0",                    "add 0", 1, add_minus_zero, true, 0},
    {"-0 + x",                    "add 0", 1, minus_zero_add, true, 0},
    {"x + 0, where x may be -0",  "add 0", 0, add_zero, true, 0},
    {"x + 0 of i32",              "add 0", 1, add_zero_i32, true, 0},
    {"x + -0 of a larger shape",  "add 0", 0, add_zero_wider, true, 0},
    {"x - 0",                     "subtract 0", 1, sub_zero, true, 0},
    {"x - -0",                    "subtract 0", 0, sub_minus_zero, true, 0},
    {"0 - x",                     "subtract 0", 0, zero_sub, true, 0},
    {"x * 1",                     "multiply by 1", 1, mul_one, true, 0},
    {"1 * x",                     "multiply by 1", 1, one_mul, true, 0},
    {"x * 1 of a larger shape",   "multiply by 1", 1, mul_one_wider, true, 0},
    {"x / 1",                     "divide by 1", 1, div_one, true, 0},
    {"x * fill",                  "fill times x", 1, mul_fill, true, 0},
    {"fill * x in f16",           "fill times x", 1, mul_fill_f16, true, 0},
    {"x * fill of i32",           "fill times x", 0, mul_fill_i32, true, 0},
    {"- - x",                     "double negation", 1, neg_neg, true, 0},
    {"- x",                       "double negation", 0, neg_once, true, 0},
    {"where 1",                   "where of a constant", 1, where_true, true, 0},
    {"where 0",                   "where of a constant", 1, where_false, true, 0},
    {"where, spread",             "where of a constant", 1, where_spread, true, 0},
    {"where 0.7, which is 0",     "where of a constant", 1, where_rounds, true, 0},
    {"where of an input",         "where of a constant", 0, where_open, true, 0},
    {"fill through views",        "view or copy of a fill", 5, fill_moved, true, 0},
    {"fill, bf16 to f32",         "cast of a fill", 1, fill_cast, true, 0},
    {"fill, f32 to i32",          "cast of a fill", 1, fill_cast_i32, true, 0},
    {"fill, f16 to u8",           "cast of a fill", 1, fill_cast_u8, true, 0},
    {"fill, scaled",              "scale of a fill", 1, fill_scaled, true, 0},
    {"fill of f16, scaled",       "scale of a fill", 1, fill_scaled_f16, true, 0},
    {"pad by 0",                  "pad by 0", 1, pad_none, true, 0},
    {"pad by 1",                  "pad by 0", 0, pad_some, true, 0},
    {"concat of one",             "concat of one", 1, concat_one, true, 0},
    {"concat of two",             "concat of one", 0, concat_two, true, 0},
    {"pads of three slices",      "sum of pads", 1, pads_three, true, 0},
    {"pads of four, as a tree",   "sum of pads", 1, pads_tree, true, 0},
    {"pads with a gap",           "sum of pads", 0, pads_gap, true, 0},
    {"pads with an end",          "sum of pads", 0, pads_end, true, 0},
    {"pads that overlap",         "sum of pads", 0, pads_overlap, true, 0},
    {"one pad twice",             "sum of pads", 0, pads_twice, true, 0},
    {"pads of two axes",          "sum of pads", 0, pads_axes, true, 0},
    {"pads and another",          "sum of pads", 0, pads_and_more, true, 0},
    {"pads, then an update",      "sum of pads", 0, pads_kept, true, 0},
    {"broadcast to the same",     "broadcast to the same shape", 1, broadcast_none, true, 0},
    {"max of one",                "reduction of one element", 1, max_one, true, 0},
    {"max of one, kept",          "reduction of one element", 1, max_keep, true, 0},
    {"max of two",                "reduction of one element", 0, max_two, true, 0},
    {"sum of one",                "reduction of one element", 1, sum_one, false, 0},
    {"sum of one as an output",   "reduction of one element", 0, sum_output, false, 0},
    {"sum of one, then an update", "reduction of one element", 0, sum_kept, false, 0},
};
/* clang-format on */

static void test_exact(void **state)
{
    fold_check(*state, exact_cases, COUNT(exact_cases));
}

/* ---- Common subexpressions ---- */

static wf_value *same_chain(wf_graph *g)
{
    wf_value *x = X(g), *a = wf_exp(g, wf_sin(g, x));
    return wf_sub(g, a, wf_cos(g, wf_exp(g, wf_sin(g, x))));
}

static wf_value *same_attr(wf_graph *g)
{
    wf_value *x = X(g);
    return wf_sub(g, wf_scale(g, x, 2), wf_exp(g, wf_scale(g, x, 2)));
}
static wf_value *other_attr(wf_graph *g)
{
    wf_value *x = X(g);
    return wf_sub(g, wf_scale(g, x, 2), wf_scale(g, x, 3));
}
static wf_value *other_zero(wf_graph *g) /* fills of 0 and of -0 */
{
    wf_value *x = X(g);
    return wf_sub(g, wf_maximum(g, x, scalar(g, 0)), wf_maximum(g, scalar(g, -0.0), x));
}
static wf_value *other_version(wf_graph *g)
{
    wf_value *s = S(g), *before = wf_sin(g, s), *next = wf_accumulate(g, s, X(g), NULL);
    return wf_sub(g, before, wf_sin(g, next));
}
static wf_value *same_random(wf_graph *g)
{
    wf_value *x = X(g), *key = wf_input(g, "key", WF_I32, 1, D(3)), *in[] = {x, key};
    wf_value *a = wf_op_add(g, "dropout", "p=0.5 stream=3", in, 2);
    return wf_sub(g, a, wf_exp(g, wf_op_add(g, "dropout", "p=0.5 stream=3", in, 2)));
}
static wf_value *other_stream(wf_graph *g)
{
    wf_value *x = X(g), *key = wf_input(g, "key", WF_I32, 1, D(3));
    return wf_sub(g, wf_dropout(g, x, key, 0.5), wf_dropout(g, x, key, 0.5));
}
static wf_value *same_outputs(wf_graph *g)
{
    wf_value *x = X(g), *a = wf_top_k(g, x, 3), *b = wf_top_k(g, x, 3);
    wf_value *i = wf_cast(g, wf_value_output(b, 1), WF_F32);
    return wf_add(g, wf_add(g, a, i), wf_cast(g, wf_value_output(a, 1), WF_F32));
}

/* clang-format off */
static const fold_case same_cases[] = {
    {"a chain twice",       "common subexpression", 2, same_chain, true, 0},
    {"one scale",           "common subexpression", 1, same_attr, true, 0},
    {"two scales",          "common subexpression", 0, other_attr, true, 0},
    {"fills of 0 and -0",   "common subexpression", 0, other_zero, true, 0},
    {"versions of a state", "common subexpression", 0, other_version, true, 0},
    {"one stream",          "common subexpression", 1, same_random, true, 0},
    {"two streams",         "common subexpression", 0, other_stream, true, 0},
    {"two outputs",         "common subexpression", 2, same_outputs, false, 0},
};
/* clang-format on */

static void test_same(void **state)
{
    fold_check(*state, same_cases, COUNT(same_cases));
}

/* Merging equal nodes keeps the marks of both. */
static void test_marks_merge(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = X(g), *a = wf_block(g, wf_exp(g, x)), *b = wf_recompute(g, wf_exp(g, x));
    wt_ok(*state, wf_output(g, "y", wf_sub(g, a, wf_sin(g, b))));
    wt_ok(*state, wf_fold(g));
    assert_int_equal(a->marks & (WF_MARK_BLOCK | WF_MARK_RECOMPUTE),
                     WF_MARK_BLOCK | WF_MARK_RECOMPUTE);
    wf_graph_free(g);
}

/* ---- Handles ---- */

/* After folding, values that the caller holds can still be outputs and be differentiated. */
static void test_handles(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *w = wf_state(g, "w", WF_F32, 1, D(3)), *x = wf_input(g, "x", WF_F32, 1, D(3));
    wf_value *p = wf_mul(g, w, x), *s = wf_sigmoid(g, p), *y = wf_mul(g, p, s);
    wf_value *z = wf_exp(g, y), *loss = wf_sum(g, wf_copy(g, z), 1, false), *grads[3];
    wt_ok(*state, wf_fold(g));
    assert_true(wf_graph_has(g, s) && wf_graph_has(g, y) && wf_graph_has(g, loss));
    assert_int_equal(z->node->in[0]->node->op, WF_OP_silu);

    /* With respect to a state, an input and an unchanged value. */
    wt_ok(*state, wf_grad(g, loss, (wf_value *[]){w, x, p}, 3, grads));
    wt_ok(*state, wf_output(g, "dw", grads[0]));
    wt_ok(*state, wf_output(g, "dx", grads[1]));
    wt_ok(*state, wf_output(g, "dp", grads[2]));
    wt_ok(*state, wf_output(g, "y", y)); /* a replaced value is still in the graph */
    wf_value *old_loss = wf_sum(g, y, 1, false), *dy;
    wt_ok(*state, wf_grad(g, old_loss, &w, 1, &dy));
    wt_ok(*state, wf_output(g, "dy", dy));

    wt_run r = wt_open(*state, "cpu:1");
    wt_ok(*state, wf_compile_with(r.session, g, &fold_plain, &r.exec));
    float wv[] = {0.5f, -1, 2}, xv[] = {1, 3, -0.25f}, out[5][3];
    wt_set_state(&r, "w", wv, 3);
    wt_write(&r, "x", xv, sizeof xv);
    wt_run_once(&r);
    const char *names[] = {"dw", "dx", "dp", "y", "dy"};
    for (int i = 0; i < 5; i++)
        wt_read(&r, names[i], out[i], sizeof out[i]);
    for (int i = 0; i < 3; i++) {
        double pv = (double)wv[i] * xv[i], sv = 1 / (1 + exp(-pv)), yv = pv * sv;
        double slope = sv + yv * (1 - sv), dp = exp(yv) * slope;
        double want[] = {dp * xv[i], dp * wv[i], dp, yv, slope * xv[i]};
        for (int k = 0; k < 5; k++)
            assert_true(fabs(out[k][i] - want[k]) <= 1e-5 * (1 + fabs(want[k])));
    }
    wt_close(&r);
    wf_graph_free(g);
}

/* wf_grad refuses a value that was folded away: its gradient would silently be another one. */
static void test_folded_away(void **state)
{
    for (int i = 0; i < 3; i++) {
        wf_graph *g = wt_graph(*state);
        wf_value *x = X(g), *s = wf_sigmoid(g, x), *y = wf_mul(g, x, s), *grad;
        wf_value *loss = wf_sum(g, wf_exp(g, y), 3, false),
                 *twin = wf_sum(g, wf_exp(g, y), 3, false);
        wf_value *both = wf_add(g, loss, twin);
        wt_ok(*state, wf_fold(g));
        wt_fails(*state, wf_grad(g, both, (wf_value *[]){s, y, loss} + i, 1, &grad), WF_ERR_USAGE,
                 "was folded away");
        wf_graph_free(g);
    }
    for (int i = 0; i < 64; i += 21) { /* inside a chain of views */
        wf_graph *g = wt_graph(*state);
        wf_value *v = wf_exp(g, X(g)), *views[64], *grad;
        for (int k = 0; k < 64; k++)
            v = views[k] = wf_reshape(g, v, 2, k % 2 ? D(4, 6) : D(3, 8));
        wf_value *loss = wf_sum(g, wf_exp(g, v), 3, false);
        wt_ok(*state, wf_fold(g));
        wt_fails(*state, wf_grad(g, loss, &views[i], 1, &grad), WF_ERR_USAGE, "was folded away");
        wf_graph_free(g);
    }
    wf_graph *broken = wt_graph(*state);
    wf_add(broken, X(broken), wf_input(broken, "y", WF_F32, 1, D(5)));
    wt_fails(*state, wf_fold(broken), WF_ERR_USAGE, "must be equal or 1");
    wf_graph_free(broken);
}

/* ---- Size ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Folding 20000 nodes takes less than 5 s: no rule may be quadratic. */
static void test_large(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        wf_graph *g = wt_graph(*state);
        wf_value *x = X(g), *v = x, *sum = NULL;
        for (int i = 0; i < 20000; i++)
            switch (kind) {
            case 0: v = wf_reshape(g, v, 2, i % 2 ? D(4, 6) : D(3, 8)); break;
            case 1: v = wf_scale(g, v, 1.0001); break;
            case 2: v = i % 2 ? wf_sub(g, v, scalar(g, 0)) : wf_exp(g, wf_copy(g, v)); break;
            default: /* many equal nodes, all of one value */
                sum = sum ? wf_sub(g, wf_exp(g, x), sum) : x;
            }
        wt_ok(*state, wf_output(g, "y", use(g, sum ? sum : v)));
        double begin = seconds();
        wt_ok(*state, wf_fold(g));
        double took = seconds() - begin;
        int dropped;
        wt_ok(*state, wf_graph_prune(g, &dropped));
        print_message("  %d nodes left, %.3f s\n", g->node_count, took);
        assert_true(took < 5); /* CPU seconds; generous, for a busy machine with sanitizers */
        wf_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_exact),   wt_test(test_same),        wt_test(test_marks_merge),
        wt_test(test_handles), wt_test(test_folded_away), wt_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
