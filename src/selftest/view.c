/* SPDX-License-Identifier: MIT */
/*
 * view.c - makes operands that are views: slices, permutations and reshapes of an input whose other
 * elements are poison.
 *
 * wf_case_view builds from the inside out: it lays the wanted values out in a larger or reordered
 * array, makes an operand of that array (again a view if depth > 1), and adds the op that selects
 * the wanted values from it. A kernel that ignores strides or offsets reads poison or the wrong
 * element.
 */
#include <string.h>

#include "selftest/case.h"

/* Values, and the elements of a type that hold them. */
typedef struct {
    double *v;
    uint8_t *bytes;
} contents;

/* Copies `from`, dense in dims, to the indices offset + sum of index * stride of `to`. Blocks stay
 * whole: they lie along the last axis, which then keeps its stride of 1. */
static void spread(wf_type type, const wf_dims *dims, contents from, contents to, int64_t offset,
                   const int64_t *stride)
{
    int64_t count = wf_dims_count(dims), unit = wf_type_get(type)->block;
    if (dims->n > 0 && stride[dims->n - 1] == 1)
        unit = wf_dims_last(dims);
    size_t size = wf_type_bytes(type, unit);
    for (int64_t i = 0; i < count; i += unit) {
        int64_t rest = i, at = offset;
        for (int64_t a = dims->n - 1; a >= 0; a--) {
            at += rest % dims->d[a] * stride[a];
            rest /= dims->d[a];
        }
        memcpy(to.v + at, from.v + i, (size_t)unit * sizeof *to.v);
        memcpy(to.bytes + wf_type_bytes(type, at), from.bytes + wf_type_bytes(type, i), size);
    }
}

/* Strides of a row-major array, in elements. */
static void dense_strides(const wf_dims *dims, int64_t *stride)
{
    int64_t step = 1;
    for (int64_t a = dims->n - 1; a >= 0; a--) {
        stride[a] = step;
        step *= dims->d[a];
    }
}

/* Fills elements of the type with wf_number_poison; blocks have NaN scales. */
static void poison(wf_type type, contents to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to.v[i] = wf_number_poison(type);
    if (wf_type_get(type)->kind == WF_KIND_BLOCK)
        memset(to.bytes, 0xFF, wf_type_bytes(type, count));
    else
        wf_numbers_store(type, to.v, to.bytes, count);
}

/* Allocates poisoned contents. Returns false when out of memory. */
static bool poisoned(wf_case *c, wf_type type, const wf_dims *dims, contents *out)
{
    int64_t count = wf_dims_count(dims);
    out->v = wf_arena_alloc(&c->arena, (size_t)count * sizeof *out->v);
    out->bytes = wf_arena_alloc(&c->arena, wf_type_bytes(type, count));
    if (!out->v || !out->bytes) {
        c->status = WF_ERR_MEMORY;
        return false;
    }
    poison(type, *out, count);
    return true;
}

/* Random in [0, n). */
static int64_t below(wf_case *c, int64_t n)
{
    return (int64_t)wf_rng_below(&c->view_rng, (uint64_t)n);
}

static wf_value *sliced(wf_case *c, wf_type type, wf_dims dims, contents x, int depth)
{
    int axis = (int)below(c, dims.n);
    int64_t unit = axis == dims.n - 1 ? wf_type_get(type)->block : 1; /* blocks stay whole */
    int64_t before = unit * below(c, 3), after = unit * below(c, 3);
    wf_dims big = dims;
    big.d[axis] += before + after;
    contents w;
    if (!poisoned(c, type, &big, &w))
        return NULL;
    int64_t stride[WF_MAX_RANK];
    dense_strides(&big, stride);
    spread(type, &dims, x, w, before * stride[axis], stride);
    wf_value *whole = wf_case_view(c, type, big, w.v, w.bytes, depth - 1);
    return wf_slice(c->g, whole, axis, before, before + dims.d[axis]);
}

static wf_value *permuted(wf_case *c, wf_type type, wf_dims dims, contents x, int depth)
{
    int64_t order[WF_MAX_RANK], stride[WF_MAX_RANK], source[WF_MAX_RANK];
    for (int64_t a = 0; a < dims.n; a++)
        order[a] = a;
    /* Half of the time keeps the last axis, so that the view needs no copy. */
    int64_t loose = dims.n - (dims.n > 2 ? below(c, 2) : 0);
    if (wf_type_get(type)->block > 1)
        loose = dims.n - 1;
    for (int64_t a = loose - 1; a > 0; a--) {
        int64_t b = below(c, a + 1), t = order[a];
        order[a] = order[b];
        order[b] = t;
    }
    wf_dims other = {.n = dims.n};
    for (int64_t a = 0; a < dims.n; a++)
        other.d[order[a]] = dims.d[a];
    dense_strides(&other, source);
    for (int64_t a = 0; a < dims.n; a++)
        stride[a] = source[order[a]];
    contents w;
    if (!poisoned(c, type, &other, &w))
        return NULL;
    spread(type, &dims, x, w, 0, stride);
    wf_value *whole = wf_case_view(c, type, other, w.v, w.bytes, depth - 1);
    return wf_permute(c->g, whole, order);
}

static wf_value *reshaped(wf_case *c, wf_type type, wf_dims dims, contents x, int depth)
{
    wf_dims flat = D(1, wf_dims_count(&dims));
    wf_value *whole = wf_case_view(c, type, flat, x.v, x.bytes, depth - 1);
    return wf_reshape(c->g, whole, (int)dims.n, dims.d);
}

wf_value *wf_case_view(wf_case *c, wf_type type, wf_dims dims, double *v, void *bytes, int depth)
{
    const contents x = {v, bytes};
    if (depth == 0)
        return wf_case_source(c, type, dims, v, bytes, false);
    int kind = dims.n == 0 ? 2 : (int)below(c, 3);
    if (kind == 1 && dims.n > 1)
        return permuted(c, type, dims, x, depth);
    return kind == 2 ? reshaped(c, type, dims, x, depth) : sliced(c, type, dims, x, depth);
}
