/* SPDX-License-Identifier: MIT */
/*
 * shape.cu - ops that move elements without computing.
 *
 * Each is one or more box copies: an index space with strides for source and target
 * (device/walk.h). Elements that are contiguous on both sides move 16 bytes at a time. In a
 * transposition, tiles go through shared memory, so that both sides are accessed along rows.
 * Quantized blocks move as 16-bit words.
 */
#include "device/cuda/each.cuh"

#define THREADS 256
#define UNROLL 4 /* units that a thread loads before it stores them */

typedef struct {
    uint32_t x[4];
} __align__(16) word16;

/* ---- Contiguous or repeated elements ---- */

/* from == NULL writes zeros. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS) copy_kernel(wf_each<2> w, const T *from, T *to)
{
    const int64_t first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    if (first >= w.count)
        return;
    wf_pack<T, V> x[UNROLL] = {};
    int64_t at[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const wf_places<2> p = wf_each_at(w, wf_each_within(first + u * THREADS, w.count, first));
        at[u] = p.at[1];
        if (from)
            x[u] = wf_each_load<T, V>(w, 0, from, p.at[0]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (first + u * THREADS < w.count)
            wf_store_pack<T, V>(to + at[u], x[u]);
}

template <typename T, int V>
static void run_copy(const wf_launch *l, const wf_walk *w, const void *from, void *to)
{
    const int64_t items = wf_walk_count(w) / V, per_block = THREADS * UNROLL;
    WF_RUN((copy_kernel<T, V>), (unsigned)((items + per_block - 1) / per_block), THREADS, 0,
           wf_cuda_stream(l))
    (wf_each_of<2>(w, V), (const T *)from, (T *)to);
}

/* Whether the walk can move units of `times` the size: both sides are contiguous, aligned and
 * whole. */
static bool widens(const wf_walk *w, const void *from, const void *to, int bytes, int times)
{
    return w->dim[w->rank - 1] % times == 0 && w->stride[0][w->rank - 1] == 1 &&
           w->stride[1][w->rank - 1] == 1 && wf_walk_packs(w, 0, from, bytes, times) &&
           wf_walk_packs(w, 1, to, bytes, times);
}

/* Divides all but the unit stride by `times`. */
static wf_walk widened(const wf_walk *w, int times)
{
    wf_walk wide = *w;
    wide.dim[w->rank - 1] /= times;
    for (int i = 0; i < 2; i++)
        for (int a = 0; a < w->rank - 1; a++)
            wide.stride[i][a] /= times;
    return wide;
}

/* Broadcasts one element over a row: [n, 1] to [n, m]. */
template <typename T>
static bool run_repeated(const wf_launch *l, const wf_walk *w, const void *from, void *to)
{
    constexpr int V = WF_WIDE(T);
    const int last = w->rank - 1;
    if (w->stride[0][last] != 0 || w->stride[1][last] != 1 || w->dim[last] % V != 0 ||
        !wf_walk_packs(w, 1, to, sizeof(T), V))
        return false;
    run_copy<T, V>(l, w, from, to);
    return true;
}

template <typename T>
static void run_elements(const wf_launch *l, const wf_walk *w, const void *from, void *to)
{
    constexpr int bytes = sizeof(T);
    if (run_repeated<T>(l, w, from, to))
        return;
    for (int times = 16 / bytes; times > 1; times /= 2)
        if (widens(w, from, to, bytes, times)) {
            const wf_walk wide = widened(w, times);
            switch (times * bytes) {
            case 16: run_copy<word16, 1>(l, &wide, from, to); break;
            case 8: run_copy<uint64_t, 1>(l, &wide, from, to); break;
            case 4: run_copy<uint32_t, 1>(l, &wide, from, to); break;
            default: run_copy<uint16_t, 1>(l, &wide, from, to);
            }
            return;
        }
    run_copy<T, 1>(l, w, from, to);
}

/* ---- Transposition ---- */

#define TILE 64 /* rows and columns of a tile, in elements */

typedef struct {
    int64_t rows, columns;
    /* Strides of the source's rows and of the target's columns, in elements. */
    int64_t from_row, to_column;
    int64_t tiles_down, tiles_across; /* tiles along rows and along columns */
} transposition;

/* Transposes a matrix [rows, columns] with contiguous columns, once for every item of `outer`. One
 * block of 256 threads per tile of 64 x 64. A thread reads and writes P contiguous elements at
 * once. */
template <typename T, int P>
static __global__ void __launch_bounds__(THREADS)
    transpose_kernel(wf_each<2> outer, transposition t, const T *from, T *to)
{
    constexpr int LANES = TILE / P, STEP = THREADS / LANES;
    /* An odd number of 32-bit words per line avoids bank conflicts when columns are read. */
    constexpr int PITCH = TILE + (sizeof(T) >= 4 ? 1 : 4 / sizeof(T));
    __shared__ __align__(16) T tile[TILE * PITCH];
    const int64_t across = blockIdx.x % t.tiles_across, rest = blockIdx.x / t.tiles_across;
    const int64_t row = rest % t.tiles_down * TILE, column = across * TILE;
    const wf_places<2> p = wf_each_at(outer, rest / t.tiles_down);
    const int lane = threadIdx.x % LANES * P, line = threadIdx.x / LANES;
    from += p.at[0] + row * t.from_row + column;
    to += p.at[1] + column * t.to_column + row;

    /* Load all lines of this thread before the first one is stored to shared memory. */
    wf_pack<T, P> x[TILE / STEP];
#pragma unroll
    for (int i = 0; i < TILE / STEP; i++)
        if (row + line + i * STEP < t.rows && column + lane < t.columns)
            x[i] = wf_load_pack<T, P>(from + (line + i * STEP) * t.from_row + lane);
#pragma unroll
    for (int i = 0; i < TILE / STEP; i++)
        if (PITCH % P == 0)
            wf_store_pack<T, P>(tile + (line + i * STEP) * PITCH + lane, x[i]);
        else
#pragma unroll
            for (int k = 0; k < P; k++)
                tile[(line + i * STEP) * PITCH + lane + k] = x[i].x[k];
    __syncthreads(); /* the tile is complete: other threads wrote the columns that this one reads */
#pragma unroll
    for (int i = 0; i < TILE / STEP; i++) {
        wf_pack<T, P> y;
#pragma unroll
        for (int k = 0; k < P; k++)
            y.x[k] = tile[(lane + k) * PITCH + line + i * STEP];
        if (column + line + i * STEP < t.columns && row + lane < t.rows)
            wf_store_pack<T, P>(to + (line + i * STEP) * t.to_column + lane, y);
    }
}

/* The axis along which the source is contiguous, if it is not the last (where the target is); else
 * -1. */
static int crossing_axis(const wf_walk *w)
{
    const int last = w->rank - 1;
    if (w->stride[1][last] != 1 || w->stride[0][last] == 1 || w->stride[0][last] == 0 ||
        w->dim[last] < 8) /* shorter rows are not worth a tile */
        return -1;
    for (int a = 0; a < last; a++)
        if (w->stride[0][a] == 1 && w->dim[a] >= 8)
            return a;
    return -1;
}

template <typename T>
static bool run_transposed(const wf_launch *l, const wf_walk *w, const void *from, void *to)
{
    const int axis = crossing_axis(w), last = w->rank - 1;
    if (axis < 0)
        return false;
    transposition t = {.rows = w->dim[last],
                       .columns = w->dim[axis],
                       .from_row = w->stride[0][last],
                       .to_column = w->stride[1][axis],
                       .tiles_down = (w->dim[last] + TILE - 1) / TILE,
                       .tiles_across = (w->dim[axis] + TILE - 1) / TILE};
    wf_walk outer = *w;
    outer.dim[last] = outer.dim[axis] = 1;
    wf_walk_fold(&outer);
    bool pairs = t.rows % 2 == 0 && t.columns % 2 == 0 && t.from_row % 2 == 0 &&
                 t.to_column % 2 == 0 && (uintptr_t)from % (2 * sizeof(T)) == 0 &&
                 (uintptr_t)to % (2 * sizeof(T)) == 0;
    for (int i = 0; i < 2; i++)
        for (int a = 0; a < outer.rank; a++)
            pairs &= outer.dim[a] == 1 || outer.stride[i][a] % 2 == 0;
    const int64_t blocks = t.tiles_down * t.tiles_across * wf_walk_count(&outer);
    if (blocks >= (int64_t)1 << 31)
        return false;
    if (pairs) {
        WF_RUN((transpose_kernel<T, 2>), (unsigned)blocks, THREADS, 0, wf_cuda_stream(l))
        (wf_each_of<2>(&outer, 1), t, (const T *)from, (T *)to);
    } else {
        WF_RUN((transpose_kernel<T, 1>), (unsigned)blocks, THREADS, 0, wf_cuda_stream(l))
        (wf_each_of<2>(&outer, 1), t, (const T *)from, (T *)to);
    }
    return true;
}

/* ---- Boxes ---- */

/* Copies one box. NULL `from` writes zeros, which need no transposition. */
template <typename T> static void run_box(const wf_launch *l, wf_walk w, const void *from, void *to)
{
    constexpr int wide = 16 / sizeof(T);
    if (from && run_transposed<T>(l, &w, from, to))
        return;
    /* The elements after the last whole pack of a long row are copied separately. */
    const int64_t rest = w.dim[0] % wide, whole = w.dim[0] - rest;
    if (w.rank == 1 && rest > 0 && whole > 0 && w.stride[0][0] == 1 && w.stride[1][0] == 1) {
        w.dim[0] = rest;
        run_elements<T>(l, &w, from ? (const T *)from + whole : NULL, (T *)to + whole);
        w.dim[0] = whole;
    }
    run_elements<T>(l, &w, from, to);
}

void wf_cuda_copy_walk(const wf_launch *l, const wf_walk *w, const void *from, void *to, int bytes)
{
    if (wf_walk_count(w) == 0)
        return;
    if (bytes == 1)
        run_box<uint8_t>(l, *w, from, to);
    else if (bytes == 2)
        run_box<uint16_t>(l, *w, from, to);
    else
        run_box<uint32_t>(l, *w, from, to);
}

/* The view in units to move: elements, or 16-bit words of blocks. *bytes is a unit's size. */
static wf_view units_of(const wf_view *v, int *bytes)
{
    const wf_type_info *info = wf_type_get(v->type);
    wf_view u = wf_view_units(v);
    *bytes = info->block_bytes;
    if (info->block == 1)
        return u;
    const int words = info->block_bytes / 2;
    u.dim[u.rank - 1] *= words;
    for (int i = 0; i < u.rank - 1; i++)
        u.stride[i] *= words;
    *bytes = 2;
    return u;
}

static void *unit_at(const wf_view *units, int64_t offset, int bytes)
{
    return (char *)units->data + offset * bytes;
}

/* Copies a box of the shape of `over`, with the strides of both sides for its axes. */
static void copy_box(const wf_launch *l, const wf_view *over, const void *from,
                     const int64_t *from_stride, void *to, const int64_t *to_stride, int bytes)
{
    wf_walk w = wf_walk_over(over->rank, over->dim);
    wf_walk_add_strides(&w, from_stride);
    wf_walk_add_strides(&w, to_stride);
    if (wf_walk_count(&w) == 0)
        return;
    wf_walk_fold(&w);
    wf_cuda_copy_walk(l, &w, from, to, bytes);
}

static void dense_strides(const wf_view *v, int64_t *stride)
{
    int64_t step = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= v->dim[i];
    }
}

void wf_cuda_copy_dense(const wf_launch *l, const wf_view *from, void *to)
{
    int64_t dense[WF_MAX_RANK];
    dense_strides(from, dense);
    copy_box(l, from, from->data, from->stride, to, dense, wf_type_get(from->type)->block_bytes);
}

/* ---- Ops that are one box ---- */

/* Iterates over the result's shape; the operand repeats along broadcast axes. */
static wf_status launch_broadcast(const wf_launch *l)
{
    int bytes;
    const wf_view in = units_of(&l->in[0], &bytes), out = units_of(&l->out[0], &bytes);
    wf_walk w = wf_walk_over(out.rank, out.dim);
    if (!out.data || wf_walk_count(&w) == 0)
        return WF_OK;
    wf_walk_add(&w, &in);
    wf_walk_add(&w, &out);
    wf_walk_fold(&w);
    wf_cuda_copy_walk(l, &w, in.data, out.data, bytes);
    return wf_cuda_launched(l);
}

/* Iterates over the operand's shape; the dense result takes the elements in that order. */
static wf_status launch_reshape(const wf_launch *l)
{
    int bytes;
    const wf_view in = units_of(&l->in[0], &bytes);
    int64_t dense[WF_MAX_RANK];
    if (!l->out[0].data)
        return WF_OK;
    dense_strides(&in, dense);
    copy_box(l, &in, in.data, in.stride, l->out[0].data, dense, bytes);
    return wf_cuda_launched(l);
}

static wf_status launch_permute(const wf_launch *l)
{
    const wf_attr_permute *a = (const wf_attr_permute *)l->attr;
    int bytes;
    const wf_view in = units_of(&l->in[0], &bytes), out = units_of(&l->out[0], &bytes);
    int64_t stride[WF_MAX_RANK];
    if (!out.data)
        return WF_OK;
    for (int i = 0; i < out.rank; i++)
        stride[i] = in.stride[a->order.d[i]];
    copy_box(l, &out, in.data, stride, out.data, out.stride, bytes);
    return wf_cuda_launched(l);
}

static wf_status launch_slice(const wf_launch *l)
{
    const wf_attr_slice *a = (const wf_attr_slice *)l->attr;
    int bytes;
    const wf_view in = units_of(&l->in[0], &bytes), out = units_of(&l->out[0], &bytes);
    if (!out.data)
        return WF_OK;
    const wf_type_info *info = wf_type_get(l->in[0].type);
    int64_t begin = a->begin;
    if (info->block > 1 && a->axis == in.rank - 1)
        begin = begin / info->block * (info->block_bytes / 2);
    /* The offset is in units: elements, or 16-bit words of blocks. */
    copy_box(l, &out, unit_at(&in, begin * in.stride[a->axis], bytes), in.stride, out.data,
             out.stride, bytes);
    return wf_cuda_launched(l);
}

/* ---- Ops that put boxes into a larger result ---- */

static wf_status launch_pad(const wf_launch *l)
{
    const wf_attr_pad *a = (const wf_attr_pad *)l->attr;
    const wf_view *in = &l->in[0], *out = &l->out[0];
    const int bytes = wf_type_get(out->type)->block_bytes, axis = (int)a->axis;
    if (!out->data)
        return WF_OK;
    const int64_t length[3] = {a->before, in->dim[axis], a->after};
    int64_t begin = 0;
    for (int part = 0; part < 3; part++) { /* zero bits are 0 in every plain type */
        wf_view box = *in;
        box.dim[axis] = length[part];
        copy_box(l, &box, part == 1 ? in->data : NULL, in->stride,
                 unit_at(out, begin * out->stride[axis], bytes), out->stride, bytes);
        begin += length[part];
    }
    return wf_cuda_launched(l);
}

/* Copies rows of several operands to their parts of the result's rows. Lengths are in packs. */
#define PARTS 64

typedef struct {
    const void *from;
    int64_t length, begin; /* of this operand's part of a row */
} part;

typedef struct {
    int64_t rows, length; /* of the result */
    part parts[PARTS];
} parts;

template <typename T>
static __global__ void __launch_bounds__(THREADS) concat_kernel(parts p, T *to)
{
    const T *from = (const T *)p.parts[blockIdx.y].from;
    const int64_t length = p.parts[blockIdx.y].length, count = p.rows * length;
    const int64_t first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    if (first >= count)
        return;
    to += p.parts[blockIdx.y].begin;
    T x[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        x[u] = from[wf_each_within(first + u * THREADS, count, first)];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const int64_t item = first + u * THREADS;
        if (item >= count)
            break;
        int64_t row, column;
        if (count < (int64_t)1 << 32) { /* 32-bit division is several times faster */
            row = (uint32_t)item / (uint32_t)length;
            column = (uint32_t)item - (uint32_t)row * (uint32_t)length;
        } else {
            row = item / length;
            column = item - row * length;
        }
        to[row * p.length + column] = x[u];
    }
}

/* For dense operands whose row parts are whole packs of T. */
template <typename T> static void run_concat(const wf_launch *l, int64_t rows, int64_t inner)
{
    const wf_view *out = &l->out[0];
    const int axis = (int)((const wf_attr_axis *)l->attr)->axis;
    const int64_t bytes = wf_type_get(out->type)->block_bytes;
    int64_t begin = 0, longest = 0;
    parts p = {.rows = rows, .length = out->dim[axis] * inner * bytes / (int64_t)sizeof(T)};
    int n = 0;
    for (int i = 0; i < l->nin; i++) {
        const int64_t length = l->in[i].dim[axis] * inner * bytes / (int64_t)sizeof(T);
        if (length > 0)
            p.parts[n++] = (part){l->in[i].data, length, begin};
        begin += length;
        longest = length > longest ? length : longest;
        if (n == PARTS || (i == l->nin - 1 && n > 0)) {
            const int64_t blocks = (rows * longest + THREADS * UNROLL - 1) / (THREADS * UNROLL);
            WF_RUN(concat_kernel<T>, dim3((unsigned)blocks, (unsigned)n), THREADS, 0,
                   wf_cuda_stream(l))
            (p, (T *)out->data);
            n = 0;
            longest = 0;
        }
    }
}

static wf_status launch_concat(const wf_launch *l)
{
    const wf_view *out = &l->out[0];
    const int bytes = wf_type_get(out->type)->block_bytes;
    const int axis = (int)((const wf_attr_axis *)l->attr)->axis;
    if (!out->data || wf_view_count(out) == 0)
        return WF_OK;
    int64_t rows = 1, inner = 1, common = 16; /* bytes of the largest pack that fits all operands */
    for (int i = 0; i < axis; i++)
        rows *= out->dim[i];
    for (int i = axis + 1; i < out->rank; i++)
        inner *= out->dim[i];
    bool dense = true;
    for (int i = 0; i < l->nin; i++) {
        dense &= l->in[i].dense;
        while (((uintptr_t)l->in[i].data | (uintptr_t)(l->in[i].dim[axis] * inner * bytes)) %
               (uintptr_t)common)
            common /= 2;
    }
    while ((uintptr_t)out->data % (uintptr_t)common)
        common /= 2;
    if (dense) {
        switch (common) {
        case 16: run_concat<word16>(l, rows, inner); break;
        case 8: run_concat<uint64_t>(l, rows, inner); break;
        case 4: run_concat<uint32_t>(l, rows, inner); break;
        case 2: run_concat<uint16_t>(l, rows, inner); break;
        default: run_concat<uint8_t>(l, rows, inner);
        }
        return wf_cuda_launched(l);
    }
    int64_t begin = 0;
    for (int i = 0; i < l->nin; i++) {
        copy_box(l, &l->in[i], l->in[i].data, l->in[i].stride,
                 unit_at(out, begin * out->stride[axis], bytes), out->stride, bytes);
        begin += l->in[i].dim[axis];
    }
    return wf_cuda_launched(l);
}

/* clang-format off */
#define ROW(name_, types_, launch_)                                                                \
    {.op = WF_OP_##name_, .name = "cuda", .types = types_, .strided = true, .launch = launch_}
extern "C" const wf_kernel wf_cuda_shape_kernels[] = {
    ROW(copy, WF_TYPES_ALL, launch_broadcast), /* onto its own shape */
    ROW(reshape, WF_TYPES_ALL, launch_reshape),
    ROW(permute, WF_TYPES_ALL, launch_permute),
    ROW(slice, WF_TYPES_ALL, launch_slice),
    ROW(pad, WF_TYPES_PLAIN, launch_pad),
    ROW(concat, WF_TYPES_PLAIN, launch_concat),
    ROW(broadcast, WF_TYPES_PLAIN, launch_broadcast),
    {},
};
