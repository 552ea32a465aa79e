/* SPDX-License-Identifier: MIT */
/*
 * rows.cu - gathers rows by index: embed, gather_rows. scatter_add_rows is in scatter.cu.
 *
 * A row is everything under one index of the first axis. Indices are device data, so a launch
 * cannot reject them: an index out of range is reported as a fault, and its row reads as NaN (0 for
 * integers).
 *
 * x [R, ...], indices [...] -> [..., row]. The result is dense; one thread moves UNROLL units of up
 * to 16 bytes, 256 threads per block. Rows are copied, not computed, so blocks of quantized types
 * move as bytes, except in embed, which decodes them to f32.
 */
#include "device/cuda/blocks.cuh"
#include "device/cuda/rows.cuh"

#define THREADS 256

/* ---- embed, gather_rows ---- */

typedef struct {
    uint32_t x[4];
} __align__(16) word16;

/* Argument of the kernels. A unit is what one load moves: 1 to 16 bytes, or 8 elements to
 * decode. */
typedef struct {
    const void *x;
    const int32_t *indices;
    wf_each<1> index;     /* over the indices */
    wf_each<1> row;       /* over one row of x, in units */
    int64_t rows, stride; /* rows of x, and their stride in units */
    int64_t count;        /* units of the result */
    wf_divisor by;        /* units of a row, if count < 2^31 */
    bool small;
    uint32_t none; /* the four bytes that fill a missing row */
    uint64_t *fault;
} picking;

/* The source row of unit `item` of the result, or -1 if out of range, and the unit's place in
 * it. */
static __device__ __forceinline__ int64_t picked(const picking &p, int64_t item, int64_t *place)
{
    int64_t i;
    if (p.small) {
        i = wf_divide((uint32_t)item, p.by);
        *place = (uint32_t)item - (uint32_t)i * p.by.by;
    } else {
        i = item / p.row.count;
        *place = item - i * p.row.count;
    }
    const int32_t row = p.indices[wf_each_at(p.index, i).at[0]];
    if (row >= 0 && row < p.rows)
        return row;
    if (*place == 0) /* once per row, not once per unit */
        wf_fault(p.fault, WF_CUDA_FAULT_INDEX, i, row);
    return -1;
}

template <typename T> static __device__ __forceinline__ T repeated(uint32_t word)
{
    return (T)word;
}
template <> __device__ __forceinline__ word16 repeated<word16>(uint32_t word)
{
    return {{word, word, word, word}};
}
template <> __device__ __forceinline__ uint64_t repeated<uint64_t>(uint32_t word)
{
    return (uint64_t)word << 32 | word;
}

#define UNROLL 4

template <typename T>
static __global__ void __launch_bounds__(THREADS) gather_kernel(picking p, T *to)
{
    wf_grid_begin();
    const int64_t first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    if (first >= p.count)
        return;
    T x[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        int64_t place;
        const int64_t row = picked(p, wf_each_within(first + u * THREADS, p.count, first), &place);
        x[u] = row < 0 ? repeated<T>(p.none)
                       : ((const T *)p.x)[row * p.stride + wf_each_at(p.row, place).at[0]];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (first + u * THREADS < p.count)
            to[first + u * THREADS] = x[u];
}

/* Four bytes of NaN elements; 0 for integers, which have no NaN. */
static uint32_t nothing_of(wf_type type)
{
    switch (type) {
    case WF_F32: return 0x7FC00000u;
    case WF_F16: return 0x7E007E00u;
    case WF_BF16: return 0x7FC07FC0u;
    case WF_E4M3: return 0x7F7F7F7Fu;
    case WF_E5M2: return 0x7E7E7E7Eu;
    case WF_I32:
    case WF_I8:
    case WF_U8: return 0;
    default: return 0xFFFFFFFFu; /* blocks with NaN scales */
    }
}

/* Sets all but the row's layout. */
static picking picking_of(const wf_launch *l)
{
    picking p = {};
    wf_walk index = wf_walk_over(l->in[1].rank, l->in[1].dim);
    wf_walk_add(&index, &l->in[1]);
    wf_walk_fold(&index);
    p.x = l->in[0].data;
    p.indices = (const int32_t *)l->in[1].data;
    p.index = wf_each_of<1>(&index, 1);
    p.rows = l->in[0].dim[0];
    p.none = nothing_of(l->in[0].type);
    p.fault = l->fault;
    return p;
}

/* `row` counts units; `wide` of them move at once. */
static void set_row(picking *p, const wf_walk *row, int64_t stride, int wide)
{
    p->row = wf_each_of<1>(row, wide);
    p->stride = stride / wide;
    for (int a = 0; a < p->row.rank; a++)
        p->row.stride[0][a] /= wide;
    p->count = p->index.count * p->row.count;
    p->small = p->count < (int64_t)1 << 31;
    p->by = wf_divisor_of(p->small ? p->row.count : 1);
}

template <typename T> static void run_gather(const wf_launch *l, const picking *p)
{
    const int64_t per_block = THREADS * UNROLL;
    WF_RUN_EARLY(gather_kernel<T>, (unsigned)((p->count + per_block - 1) / per_block), THREADS, 0,
                 l)
    (*p, (T *)l->out[0].data);
}

static wf_status launch_gather(const wf_launch *l)
{
    const wf_type_info *info = wf_type_get(l->in[0].type);
    if (!l->out[0].data || wf_view_count(&l->out[0]) == 0)
        return WF_OK;
    wf_view x = wf_view_units(&l->in[0]);
    int bytes = info->block_bytes;
    /* A block is a multiple of 2 bytes: move it as 16-bit words, so that wider units fit as
     * well. */
    if (info->block > 1) {
        x.dim[x.rank - 1] *= bytes / 2;
        for (int i = 0; i < x.rank - 1; i++)
            x.stride[i] *= bytes / 2;
        bytes = 2;
    }
    wf_walk row = wf_walk_over(x.rank - 1, x.dim + 1);
    wf_walk_add_strides(&row, x.stride + 1);
    wf_walk_fold(&row);
    /* The widest unit for which length, stride and both addresses are multiples. */
    int wide = 16 / bytes;
    while (wide > 1 && (row.dim[row.rank - 1] % wide != 0 || wf_walk_step(&row, 0) != 1 ||
                        !wf_walk_packs(&row, 0, x.data, bytes, wide) || x.stride[0] % wide != 0 ||
                        (uintptr_t)l->out[0].data % (uintptr_t)(wide * bytes) != 0))
        wide /= 2;
    picking p = picking_of(l);
    set_row(&p, &row, x.stride[0], wide);
    switch (wide * bytes) {
    case 16: run_gather<word16>(l, &p); break;
    case 8: run_gather<uint64_t>(l, &p); break;
    case 4: run_gather<uint32_t>(l, &p); break;
    case 2: run_gather<uint16_t>(l, &p); break;
    default: run_gather<uint8_t>(l, &p);
    }
    return wf_cuda_launched(l);
}

/* ---- embed of quantized blocks, decoded to floats ---- */

/* A unit is 8 elements. */
template <typename B>
static __global__ void __launch_bounds__(THREADS) decode_kernel(picking p, float *to)
{
    const int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (item >= p.count)
        return;
    int64_t place;
    const int64_t row = picked(p, item, &place);
    float x[8];
    if (row < 0) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            x[k] = NAN;
    } else {
        const char *block =
            /* Stride and place count units of 8 elements; find the block, then the eight within
             * it. */
            (const char *)p.x + (row * p.stride + place) / (B::LENGTH / 8) * B::BYTES;
        B::decode8(block, (int)(place % (B::LENGTH / 8)), x);
    }
#pragma unroll
    for (int i = 0; i < 8; i += 4)
        wf_store_pack<float, 4>(to + item * 8 + i, {{x[i], x[i + 1], x[i + 2], x[i + 3]}});
}

static wf_status launch_embed_blocks(const wf_launch *l)
{
    const wf_view *x = &l->in[0];
    if (!l->out[0].data || wf_view_count(&l->out[0]) == 0)
        return WF_OK;
    wf_walk row = wf_walk_over(1, x->dim + 1);
    const int64_t one = 1;
    wf_walk_add_strides(&row, &one);
    wf_walk_fold(&row);
    picking p = picking_of(l);
    set_row(&p, &row, x->stride[0], 8);
    wf_with_block(x->type, [&](auto b) {
        WF_RUN(decode_kernel<decltype(b)>, (unsigned)((p.count + THREADS - 1) / THREADS), THREADS,
               0, wf_cuda_stream(l))
        (p, (float *)l->out[0].data);
    });
    return wf_cuda_launched(l);
}

/* clang-format off */
#define ROW(name_, types_, launch_)                                                                \
    {.op = WF_OP_##name_, .name = "cuda", .types = types_, .strided = true, .launch = launch_}
extern "C" const wf_kernel wf_cuda_rows_kernels[] = {
    ROW(embed, WF_TYPES_PLAIN, launch_gather),
    ROW(embed, WF_TYPES_BLOCK, launch_embed_blocks),
    ROW(gather_rows, WF_TYPES_ALL, launch_gather),
    {.op = WF_OP_scatter_add_rows, .name = "cuda", .types = WF_TYPES_FLOAT, .in_place = 1,
     .workspace = wf_cuda_scatter_workspace, .launch = wf_cuda_launch_scatter},
    {},
};
