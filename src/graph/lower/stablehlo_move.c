/* SPDX-License-Identifier: MIT */
/*
 * stablehlo_move.c - emitters of ops that move elements: shapes, rows by index, states.
 *
 * An emitter writes the instructions of one node and sets c->out[]. Values of a program are
 * immutable: a new version of a state is a new value, which the program returns (stablehlo.c).
 */
#include "graph/lower/stablehlo_priv.h"

/* ---- Shapes ---- */

void wf_hlo_emit_copy(const wf_hlo_call *c)
{
    c->out[0] = c->in[0]; /* values of a program are immutable, so a copy is the value itself */
}

void wf_hlo_emit_reshape(const wf_hlo_call *c)
{
    c->out[0] = wf_hlo_reshape(c->t, c->in[0], &c->node->out[0].shape);
}

void wf_hlo_emit_permute(const wf_hlo_call *c)
{
    const wf_attr_permute *attr = c->attr;
    if (attr->order.n == 0) { /* a scalar: StableHLO has no empty permutation */
        c->out[0] = c->in[0];
        return;
    }
    wf_hlo out =
        wf_hlo_begin(c->t, "stablehlo.transpose", c->in, 1, c->in[0].type, &c->node->out[0].shape);
    wf_hlo_print(c->t, "permutation = array<i64: ");
    wf_hlo_print_list(c->t, attr->order.d, attr->order.n);
    wf_hlo_print(c->t, ">");
    wf_hlo_end(c->t, c->in, 1, &out);
    c->out[0] = out;
}

void wf_hlo_emit_slice(const wf_hlo_call *c)
{
    const wf_attr_slice *attr = c->attr;
    c->out[0] = wf_hlo_slice(c->t, c->in[0], attr->axis, attr->begin, attr->end);
}

void wf_hlo_emit_pad(const wf_hlo_call *c)
{
    const wf_attr_pad *attr = c->attr;
    wf_hlo x = c->in[0], in[] = {x, wf_hlo_constant(c->t, x.type, &WF_HLO_SCALAR, 0)};
    wf_dims low = {.n = x.shape.n}, high = low, none = low;
    low.d[attr->axis] = attr->before;
    high.d[attr->axis] = attr->after;
    wf_hlo out = wf_hlo_begin(c->t, "stablehlo.pad", in, 2, x.type, &c->node->out[0].shape);
    wf_hlo_print(c->t, "edge_padding_low = array<i64: ");
    wf_hlo_print_list(c->t, low.d, low.n);
    wf_hlo_print(c->t, ">, edge_padding_high = array<i64: ");
    wf_hlo_print_list(c->t, high.d, high.n);
    wf_hlo_print(c->t, ">, interior_padding = array<i64: ");
    wf_hlo_print_list(c->t, none.d, none.n);
    wf_hlo_print(c->t, ">");
    wf_hlo_end(c->t, in, 2, &out);
    c->out[0] = out;
}

void wf_hlo_emit_concat(const wf_hlo_call *c)
{
    const wf_attr_axis *attr = c->attr;
    c->out[0] = wf_hlo_concat(c->t, c->in, c->node->nin, attr->axis, &c->node->out[0].shape);
}

void wf_hlo_emit_broadcast(const wf_hlo_call *c)
{
    c->out[0] = wf_hlo_broadcast(c->t, c->in[0], &c->node->out[0].shape);
}

/* ---- Rows by index ---- */

void wf_hlo_emit_gather_rows(const wf_hlo_call *c)
{
    if (c->in[0].shape.d[0] > 0)
        c->out[0] = wf_hlo_gather(c->t, c->in[0], c->in[1]);
    else /* x has no rows, so every index is out of range */
        c->out[0] = wf_hlo_constant(c->t, c->in[0].type, &c->node->out[0].shape, 0);
}

void wf_hlo_emit_scatter_add_rows(const wf_hlo_call *c)
{
    wf_hlo x = c->in[0];
    if (wf_hlo_count(&c->in[2]) == 0) {
        c->out[0] = x;
        return;
    }
    wf_hlo sum =
        wf_hlo_scatter(c->t, wf_hlo_widen(c->t, x), c->in[1], wf_hlo_widen(c->t, c->in[2]), true);
    c->out[0] = wf_hlo_cast(c->t, sum, x.type);
}

/* ---- States ---- */

/* The new version is the value itself; `apply` selects between it and the old one. */
void wf_hlo_emit_assign(const wf_hlo_call *c)
{
    wf_hlo state = c->in[0], x = wf_hlo_cast(c->t, c->in[1], state.type);
    if (c->node->nin > 2)
        x = wf_hlo_select(c->t, wf_hlo_truth(c->t, c->in[2]), x, state);
    c->out[0] = x;
}

static wf_hlo both(wf_hlo_text *t, wf_hlo a, wf_hlo b)
{
    return wf_hlo_binary(t, "stablehlo.and", a, b);
}

/* 0 <= x < end */
static wf_hlo within(wf_hlo_text *t, wf_hlo x, int64_t end)
{
    return both(t, wf_hlo_compare(t, "LE", wf_hlo_like(t, x, 0), x),
                wf_hlo_compare(t, "LT", x, wf_hlo_like(t, x, (double)end)));
}

/* The sequence index of each of n rows, i32[n]: the number of entries of `start` i32[S+1] that are
 * <= row, minus 1. Rows before the first sequence get -1, rows after the last get S. */
static wf_hlo find_sequences(wf_hlo_text *t, wf_hlo start, int64_t n)
{
    wf_dims square = WF_HLO_D(n, start.shape.d[0]);
    wf_hlo row = wf_hlo_iota(t, WF_I32, &square, 0);
    wf_hlo begun = wf_hlo_compare(t, "LE", wf_hlo_repeat(t, start, &square, 1), row);
    wf_hlo zero = wf_hlo_constant(t, WF_I32, &WF_HLO_SCALAR, 0);
    wf_hlo count = wf_hlo_reduce(t, "stablehlo.add", wf_hlo_convert(t, begun, WF_I32), zero, 2);
    return wf_hlo_binary(t, "stablehlo.subtract", count, wf_hlo_like(t, count, 1));
}

/* (pool [P, page, Hk, D], x [N, Hk, D], seq_start i32[S+1], positions i32[N], table i32[S, pages]).
 * Rows without a sequence or without a valid page get the slot P * page, which is out of range, so
 * the scatter drops them. */
void wf_hlo_emit_kv_append(const wf_hlo_call *c)
{
    wf_hlo_text *t = c->t;
    wf_hlo pool = c->in[0], x = c->in[1], position = c->in[3], table = c->in[4];
    int64_t n = x.shape.d[0], page = pool.shape.d[1], slots = pool.shape.d[0] * page;
    int64_t sequences = table.shape.d[0], pages = table.shape.d[1];
    if (wf_hlo_count(&x) == 0 || wf_hlo_count(&table) == 0) {
        c->out[0] = pool;
        return;
    }
    wf_hlo s = find_sequences(t, c->in[2], n), length = wf_hlo_like(t, position, (double)page);
    /* Invalid positions may divide and gather anything; `known` drops them below. */
    wf_hlo known = both(t, within(t, s, sequences), within(t, position, pages * page));
    wf_hlo entry =
        wf_hlo_binary(t, "stablehlo.add",
                      wf_hlo_binary(t, "stablehlo.multiply", s, wf_hlo_like(t, s, (double)pages)),
                      wf_hlo_binary(t, "stablehlo.divide", position, length));
    wf_dims flat = WF_HLO_D(sequences * pages);
    wf_hlo id = wf_hlo_gather(t, wf_hlo_reshape(t, table, &flat), entry);
    known = both(t, known, within(t, id, pool.shape.d[0]));
    wf_hlo slot =
        wf_hlo_binary(t, "stablehlo.add", wf_hlo_binary(t, "stablehlo.multiply", id, length),
                      wf_hlo_binary(t, "stablehlo.remainder", position, length));
    slot = wf_hlo_select(t, known, slot, wf_hlo_like(t, slot, (double)slots));
    wf_dims rows = WF_HLO_D(slots, pool.shape.d[2], pool.shape.d[3]);
    wf_hlo flat_pool = wf_hlo_reshape(t, pool, &rows);
    /* Rows of distinct tokens differ, so the order of the scatter does not matter. */
    wf_hlo next = wf_hlo_scatter(t, flat_pool, slot, wf_hlo_cast(t, x, pool.type), false);
    c->out[0] = wf_hlo_reshape(t, next, &pool.shape);
}
