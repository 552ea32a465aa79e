/* SPDX-License-Identifier: MIT */
/*
 * stablehlo_build.c - writes single StableHLO instructions into a growing text buffer.
 *
 * Every function appends one instruction in MLIR's generic form and returns its result, a number
 * with type and shape:
 *
 *     %7 = "stablehlo.add"(%3, %5) {} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
 *
 * Memory failures are sticky (t->status): later calls write nothing, and the caller checks once at
 * the end. Instructions without an effect are not written; the operand is returned.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "graph/lower/stablehlo_priv.h"

/* ---- Text ---- */

/* Makes room for `bytes` more and a final NUL, or sets t->status. */
static void make_room(wf_hlo_text *t, size_t bytes)
{
    if (t->len + bytes < t->cap)
        return;
    size_t cap = t->cap ? 2 * t->cap : 16384;
    while (cap <= t->len + bytes)
        cap *= 2; /* len is bounded by memory, so this cannot overflow */
    char *grown = wf_mem_grow(t->ctx, t->text, cap);
    if (grown) {
        t->text = grown;
        t->cap = cap;
    } else {
        t->status = WF_ERR_MEMORY;
    }
}

/* The second attempt prints after the buffer has grown. */
void wf_hlo_print(wf_hlo_text *t, const char *fmt, ...)
{
    for (int attempt = 0; attempt < 2 && t->status == WF_OK; attempt++) {
        size_t room = t->cap - t->len;
        va_list args;
        va_start(args, fmt);
        /* With room 0 vsnprintf only measures. */
        int n = vsnprintf(t->text ? t->text + t->len : NULL, room, fmt, args);
        va_end(args);
        if ((size_t)n < room) {
            t->len += (size_t)n;
            return;
        }
        make_room(t, (size_t)n + 1);
    }
}

void wf_hlo_print_list(wf_hlo_text *t, const int64_t *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        wf_hlo_print(t, "%s%lld", i ? ", " : "", (long long)list[i]);
}

static const char *type_name(int type)
{
    switch (type) {
    case WF_F32: return "f32";
    case WF_F16: return "f16";
    case WF_BF16: return "bf16";
    case WF_E4M3: return "f8E4M3FN";
    case WF_E5M2: return "f8E5M2";
    case WF_I32: return "i32";
    case WF_I8: return "i8";
    case WF_U8: return "ui8";
    case WF_HLO_BOOL: return "i1";
    case WF_HLO_U32: return "ui32";
    case WF_HLO_U64: return "ui64";
    default: wf_assert(!"type without a StableHLO name"); return "none";
    }
}

void wf_hlo_print_type(wf_hlo_text *t, int type, const wf_dims *shape)
{
    wf_hlo_print(t, "tensor<");
    for (int64_t i = 0; i < shape->n; i++)
        wf_hlo_print(t, "%lldx", (long long)shape->d[i]);
    wf_hlo_print(t, "%s>", type_name(type));
}

void wf_hlo_print_ref(wf_hlo_text *t, const wf_hlo *v)
{
    wf_hlo_print(t, "%%%d", v->id);
    if (v->part >= 0)
        wf_hlo_print(t, "#%d", v->part);
}

wf_hlo wf_hlo_new(wf_hlo_text *t, int type, const wf_dims *shape)
{
    return (wf_hlo){t->ids++, -1, type, *shape}; /* -1: an instruction with a single result */
}

/* ---- MLIR's generic form ---- */

/* %out = "name"(%in, ...) */
static void print_head(wf_hlo_text *t, const wf_hlo *out, const char *name, const wf_hlo *in,
                       int nin)
{
    wf_hlo_print(t, "  %%%d = \"%s\"(", out->id, name);
    for (int i = 0; i < nin; i++) {
        wf_hlo_print(t, i ? ", " : "");
        wf_hlo_print_ref(t, &in[i]);
    }
    wf_hlo_print(t, ") ");
}

wf_hlo wf_hlo_begin(wf_hlo_text *t, const char *name, const wf_hlo *in, int nin, int type,
                    const wf_dims *shape)
{
    wf_hlo out = wf_hlo_new(t, type, shape);
    print_head(t, &out, name, in, nin);
    wf_hlo_print(t, "{");
    return out;
}

void wf_hlo_end(wf_hlo_text *t, const wf_hlo *in, int nin, const wf_hlo *out)
{
    wf_hlo_print(t, "} : (");
    for (int i = 0; i < nin; i++) {
        wf_hlo_print(t, i ? ", " : "");
        wf_hlo_print_type(t, in[i].type, &in[i].shape);
    }
    wf_hlo_print(t, ") -> ");
    wf_hlo_print_type(t, out->type, &out->shape);
    wf_hlo_print(t, "\n");
}

/* The result has the shape of the last operand: for select that is not the condition. */
wf_hlo wf_hlo_map(wf_hlo_text *t, const char *name, int type, const wf_hlo *in, int nin)
{
    wf_hlo out = wf_hlo_begin(t, name, in, nin, type, &in[nin - 1].shape);
    wf_hlo_end(t, in, nin, &out);
    return out;
}

wf_hlo wf_hlo_unary(wf_hlo_text *t, const char *name, wf_hlo x)
{
    return wf_hlo_map(t, name, x.type, &x, 1);
}

wf_hlo wf_hlo_binary(wf_hlo_text *t, const char *name, wf_hlo a, wf_hlo b)
{
    return wf_hlo_map(t, name, a.type, (wf_hlo[]){a, b}, 2);
}

wf_hlo wf_hlo_compare(wf_hlo_text *t, const char *direction, wf_hlo a, wf_hlo b)
{
    wf_hlo in[] = {a, b};
    wf_hlo out = wf_hlo_begin(t, "stablehlo.compare", in, 2, WF_HLO_BOOL, &a.shape);
    wf_hlo_print(t, "comparison_direction = #stablehlo<comparison_direction %s>", direction);
    wf_hlo_end(t, in, 2, &out);
    return out;
}

wf_hlo wf_hlo_select(wf_hlo_text *t, wf_hlo condition, wf_hlo a, wf_hlo b)
{
    return wf_hlo_map(t, "stablehlo.select", b.type, (wf_hlo[]){condition, a, b}, 3);
}

wf_hlo wf_hlo_convert(wf_hlo_text *t, wf_hlo x, int type)
{
    return x.type == type ? x : wf_hlo_map(t, "stablehlo.convert", type, &x, 1);
}

/* ---- Constants ---- */

/* Truncates and saturates; NaN becomes 0. */
static double whole(double value, double low, double high)
{
    value = isnan(value) ? 0 : trunc(value);
    return value < low ? low : value > high ? high : value;
}

/* Floats are written as hexadecimal bits: exact, and valid for NaN and infinities. */
static void print_number(wf_hlo_text *t, int type, double value)
{
    uint8_t byte[4] = {0};
    switch (type) {
    case WF_I32: wf_hlo_print(t, "%.0f", whole(value, INT32_MIN, INT32_MAX)); break;
    case WF_I8: wf_hlo_print(t, "%.0f", whole(value, INT8_MIN, INT8_MAX)); break;
    case WF_U8: wf_hlo_print(t, "%.0f", whole(value, 0, UINT8_MAX)); break;
    case WF_HLO_BOOL: wf_hlo_print(t, value != 0 ? "true" : "false"); break;
    case WF_HLO_U32:
    case WF_HLO_U64: wf_hlo_print(t, "%.0f", value); break;
    default:
        wf_convert_from_f32((wf_type)type, &(float){(float)value}, byte, 1);
        wf_hlo_print(t, "0x");
        /* Bytes are little-endian, hexadecimal numbers start with the highest. */
        for (int i = wf_type_get((wf_type)type)->block_bytes - 1; i >= 0; i--)
            wf_hlo_print(t, "%02X", byte[i]);
    }
}

wf_hlo wf_hlo_constant(wf_hlo_text *t, int type, const wf_dims *shape, double value)
{
    wf_hlo out = wf_hlo_begin(t, "stablehlo.constant", NULL, 0, type, shape);
    wf_hlo_print(t, "value = dense<");
    if (wf_dims_count(shape) > 0)
        print_number(t, type, value);
    wf_hlo_print(t, "> : ");
    wf_hlo_print_type(t, type, shape);
    wf_hlo_end(t, NULL, 0, &out);
    return out;
}

/* The identity of maximum. Integers saturate to the smallest value. */
wf_hlo wf_hlo_least(wf_hlo_text *t, int type, const wf_dims *shape)
{
    return wf_hlo_constant(t, type, shape, -INFINITY);
}

wf_hlo wf_hlo_like(wf_hlo_text *t, wf_hlo x, double value)
{
    return wf_hlo_constant(t, x.type, &x.shape, value);
}

wf_hlo wf_hlo_iota(wf_hlo_text *t, int type, const wf_dims *shape, int64_t axis)
{
    wf_hlo out = wf_hlo_begin(t, "stablehlo.iota", NULL, 0, type, shape);
    wf_hlo_print(t, "iota_dimension = %lld : i64", (long long)axis);
    wf_hlo_end(t, NULL, 0, &out);
    return out;
}

/* ---- Shapes ---- */

wf_hlo wf_hlo_reshape(wf_hlo_text *t, wf_hlo x, const wf_dims *shape)
{
    if (wf_dims_equal(&x.shape, shape))
        return x;
    wf_hlo out = wf_hlo_begin(t, "stablehlo.reshape", &x, 1, x.type, shape);
    wf_hlo_end(t, &x, 1, &out);
    return out;
}

/* Axis i of x becomes axis first + i of the result; the others repeat x. */
wf_hlo wf_hlo_repeat(wf_hlo_text *t, wf_hlo x, const wf_dims *shape, int64_t first)
{
    int64_t axes[WF_MAX_RANK];
    if (wf_dims_equal(&x.shape, shape))
        return x;
    for (int64_t i = 0; i < x.shape.n; i++)
        axes[i] = first + i;
    wf_hlo out = wf_hlo_begin(t, "stablehlo.broadcast_in_dim", &x, 1, x.type, shape);
    wf_hlo_print(t, "broadcast_dimensions = array<i64%s", x.shape.n ? ": " : "");
    wf_hlo_print_list(t, axes, x.shape.n);
    wf_hlo_print(t, ">");
    wf_hlo_end(t, &x, 1, &out);
    return out;
}

/* NumPy's rule: axes are aligned at the last. */
wf_hlo wf_hlo_broadcast(wf_hlo_text *t, wf_hlo x, const wf_dims *shape)
{
    return wf_hlo_repeat(t, x, shape, shape->n - x.shape.n);
}

wf_hlo wf_hlo_slice(wf_hlo_text *t, wf_hlo x, int64_t axis, int64_t begin, int64_t end)
{
    wf_dims from = {.n = x.shape.n}, to = x.shape, step = from;
    for (int64_t i = 0; i < step.n; i++)
        step.d[i] = 1;
    from.d[axis] = begin;
    to.d[axis] = end;
    wf_dims shape = to;
    shape.d[axis] -= begin;
    wf_hlo out = wf_hlo_begin(t, "stablehlo.slice", &x, 1, x.type, &shape);
    wf_hlo_print(t, "start_indices = array<i64: ");
    wf_hlo_print_list(t, from.d, from.n);
    wf_hlo_print(t, ">, limit_indices = array<i64: ");
    wf_hlo_print_list(t, to.d, to.n);
    wf_hlo_print(t, ">, strides = array<i64: ");
    wf_hlo_print_list(t, step.d, step.n);
    wf_hlo_print(t, ">");
    wf_hlo_end(t, &x, 1, &out);
    return out;
}

wf_hlo wf_hlo_concat(wf_hlo_text *t, const wf_hlo *in, int nin, int64_t axis, const wf_dims *shape)
{
    wf_hlo out = wf_hlo_begin(t, "stablehlo.concatenate", in, nin, in[0].type, shape);
    wf_hlo_print(t, "dimension = %lld : i64", (long long)axis);
    wf_hlo_end(t, in, nin, &out);
    return out;
}

/* ---- Instructions with a region: a function of two scalars ---- */

/* Writes `({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): ... }) {`. The region returns name(a, b), or b
 * when name is NULL. */
static void print_region(wf_hlo_text *t, const char *name, int type)
{
    wf_hlo a = wf_hlo_new(t, type, &WF_HLO_SCALAR), b = wf_hlo_new(t, type, &WF_HLO_SCALAR);
    wf_hlo_print(t, "({\n  ^bb0(%%%d: ", a.id);
    wf_hlo_print_type(t, type, &a.shape);
    wf_hlo_print(t, ", %%%d: ", b.id);
    wf_hlo_print_type(t, type, &b.shape);
    wf_hlo_print(t, "):\n");
    wf_hlo result = name ? wf_hlo_binary(t, name, a, b) : b;
    wf_hlo_print(t, "    \"stablehlo.return\"(%%%d) : (", result.id);
    wf_hlo_print_type(t, type, &result.shape);
    wf_hlo_print(t, ") -> ()\n  }) {");
}

/* Bit i of `axes` removes axis i. `initial` is the identity of the function `name`. */
wf_hlo wf_hlo_reduce(wf_hlo_text *t, const char *name, wf_hlo x, wf_hlo initial, uint32_t axes)
{
    wf_dims shape = {0}, gone = {0};
    for (int64_t i = 0; i < x.shape.n; i++) {
        wf_dims *to = axes >> i & 1 ? &gone : &shape;
        to->d[to->n++] = axes >> i & 1 ? i : x.shape.d[i];
    }
    if (gone.n == 0)
        return x;
    wf_hlo in[] = {x, initial}, out = wf_hlo_new(t, x.type, &shape);
    print_head(t, &out, "stablehlo.reduce", in, 2);
    print_region(t, name, x.type);
    wf_hlo_print(t, "dimensions = array<i64: ");
    wf_hlo_print_list(t, gone.d, gone.n);
    wf_hlo_print(t, ">");
    wf_hlo_end(t, in, 2, &out);
    return out;
}

/* Prints the axes of a row: 1 .. n-1. */
static void print_row_axes(wf_hlo_text *t, int64_t n)
{
    int64_t axes[WF_MAX_RANK];
    for (int64_t i = 1; i < n; i++)
        axes[i - 1] = i;
    wf_hlo_print_list(t, axes, n - 1);
}

/* Rows out of range are clamped by StableHLO, not reported. */
wf_hlo wf_hlo_gather(wf_hlo_text *t, wf_hlo x, wf_hlo rows)
{
    wf_dims shape = x.shape, row = x.shape;
    shape.d[0] = rows.shape.d[0];
    row.d[0] = 1;
    wf_hlo in[] = {x, rows}, out = wf_hlo_new(t, x.type, &shape);
    print_head(t, &out, "stablehlo.gather", in, 2);
    wf_hlo_print(t, "{dimension_numbers = #stablehlo.gather<offset_dims = [");
    print_row_axes(t, shape.n);
    wf_hlo_print(t, "], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
                    "indices_are_sorted = false, slice_sizes = array<i64: ");
    wf_hlo_print_list(t, row.d, row.n);
    wf_hlo_print(t, ">");
    wf_hlo_end(t, in, 2, &out);
    return out;
}

/* Rows out of range are dropped. Duplicates add up in unspecified order, so sums of floats are
 * reproducible only as far as the plugin is. */
wf_hlo wf_hlo_scatter(wf_hlo_text *t, wf_hlo x, wf_hlo rows, wf_hlo from, bool add)
{
    wf_hlo in[] = {x, rows, from}, out = wf_hlo_new(t, x.type, &x.shape);
    print_head(t, &out, "stablehlo.scatter", in, 3);
    print_region(t, add ? "stablehlo.add" : NULL, x.type);
    wf_hlo_print(t, "indices_are_sorted = false, unique_indices = false, "
                    "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [");
    print_row_axes(t, x.shape.n);
    wf_hlo_print(t, "], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
                    "index_vector_dim = 1>");
    wf_hlo_end(t, in, 3, &out);
    return out;
}
