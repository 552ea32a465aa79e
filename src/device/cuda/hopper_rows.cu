/* SPDX-License-Identifier: MIT */
/*
 * hopper_rows.cu - linear with few rows of x (decode), limited by the time to read the weight once.
 *
 * y [M, N] = x [M, K] w [N, K]^T, w narrow, x narrow or f32; f32 elements of x are rounded to w's
 * type. A block computes tiles of 8 columns of y for 16 rows, padded with zeros: 1 and 16 rows take
 * the same time. Values of k are divided into segments of 256. Each warp owns one segment: its part
 * of x stays in registers, and bulk copies bring its part of w to shared memory, several tiles
 * ahead. Warps do not wait for each other's copies.
 *
 * The order of a sum depends on K only: ascending k within a segment, ascending segments within a
 * group, ascending groups. So a row has the same bits in any batch. More than 16 segments form
 * several groups of at most 16. A block computes its tiles for one group after the other.
 */
#include "device/cuda/hopper.cuh"
#include "device/cuda/hopper_rows.h"

enum {
    ROWS = 16,   /* rows of x of a block: those of one mma */
    COLUMNS = 8, /* columns of y in a tile */
    SUMS = ROWS * COLUMNS,
    SEGMENT = 256, /* values of k of a warp */
    STEPS = SEGMENT / 16,
    WARPS = 16,               /* most warps of a block */
    PITCH = SEGMENT * 2 + 16, /* bytes between rows of w in shared memory: no bank conflicts */
    SLOT = COLUMNS * PITCH,   /* bytes of a warp's part of a tile */
    MOST_SLOTS = 4,           /* of a warp */
    BARRIERS = 1024,          /* bytes; each slot has a barrier */
    SLOT_BYTES = 160 << 10,   /* of all slots */
    TILES = 32                /* tiles of a block whose totals wait for the next group */
};

typedef struct {
    wf_cuda_view x;
    const char *w; /* dense [n, k] */
    void *y;       /* dense [m, n] */
    const void *bias;
    wf_type bias_type;
    int m, n, k;
    int groups, group; /* number of groups, and values of k of each but the last */
    int slots;         /* of each warp */
    int tiles;
} task;

#if WF_HOPPER_CODE

/* What a block computes next: tiles of stride gridDim.x from `first` on, for each group of k. */
typedef struct {
    int first, group, tile;
} cursor;

static __device__ __forceinline__ void advance(const task &t, cursor &c)
{
    const int step = (int)gridDim.x;
    c.tile += step;
    if (c.tile < t.tiles && c.tile < c.first + TILES * step)
        return;
    c.tile = c.first;
    if (++c.group < t.groups)
        return;
    c.group = 0;
    c.tile = c.first += TILES * step;
}

/* The first value of k of a segment, and how many there are; at most 0 if there are none. */
static __device__ __forceinline__ int segment_begin(const task &t, int group, int segment)
{
    return group * t.group + segment * SEGMENT;
}
static __device__ __forceinline__ int segment_length(const task &t, int group, int segment)
{
    const int end = min((group + 1) * t.group, t.k);
    return min(SEGMENT, end - segment_begin(t, group, segment));
}

/* A warp's slots: `filled` and `used` count copies. */
typedef struct {
    wf_barrier barrier;
    const char *data;
    unsigned filled, used;
} ring;

/* Starts the copies of the warp's part of the tile at c, and advances c. */
static __device__ __forceinline__ void fill(const task &t, ring &r, cursor &c, int segment)
{
    if (c.first >= t.tiles)
        return;
    const int lane = (int)threadIdx.x % 32, length = segment_length(t, c.group, segment);
    const int row = c.tile * COLUMNS, rows = min(COLUMNS, t.n - row);
    if (length > 0) {
        const int slot = (int)(r.filled % (unsigned)t.slots);
        const wf_barrier b = r.barrier + 8 * slot;
        if (lane == 0)
            wf_barrier_expect(b, rows * length * 2);
        __syncwarp(); /* the bytes are announced before they arrive */
        if (lane < rows)
            wf_bulk_load(wf_shared_address(r.data + slot * SLOT + lane * PITCH),
                         t.w +
                             ((int64_t)(row + lane) * t.k + segment_begin(t, c.group, segment)) * 2,
                         length * 2, b);
        r.filled++;
    }
    advance(t, c);
}

/* A warp's part of x as operands of mma, and the factor of each of the lane's two rows. */
typedef struct {
    uint32_t a[STEPS][4];
    float factor[2];
} part_of_x;

/* f16 ends at 65504: returns a power of two by which the row's part is divided. Only rows of large
 * values are scaled, so scaling rounds no element that matters. */
template <typename T, typename X>
static __device__ __forceinline__ float factor_of(const X *row, int first, int length)
{
    if constexpr (__is_same(T, wf_f16) && __is_same(X, float)) {
        float most = 0;
        for (int i = 2 * ((int)threadIdx.x % 4); row && i < length; i += 8)
            most = fmaxf(most, fmaxf(fabsf(row[first + i]), fabsf(row[first + i + 1])));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        if (most >= 32768 && most < INFINITY)
            return ldexpf(1, ilogbf(most) - 14);
    }
    return 1;
}

template <typename T, typename X>
static __device__ __forceinline__ uint32_t pair_of(const X *row, int at, bool inside, float inverse)
{
    return row && inside ? wf_pair<T>(wf_load(row[at]) * inverse, wf_load(row[at + 1]) * inverse)
                         : 0;
}

/* Loads the warp's part of x. Rows beyond m and values beyond the segment are zeros. */
template <typename T, typename X>
static __device__ __forceinline__ void load_x(const task &t, int group, int segment, part_of_x &p)
{
    const int g = (int)threadIdx.x % 32 / 4, pair = 2 * ((int)threadIdx.x % 4);
    const int first = segment_begin(t, group, segment), length = segment_length(t, group, segment);
    const X *x = (const X *)t.x.data;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int at = (int)blockIdx.y * ROWS + g + 8 * h;
        const X *row = at < t.m ? x + wf_cuda_row(t.x, at) : NULL;
        p.factor[h] = factor_of<T, X>(row, first, length);
        const float inverse = 1 / p.factor[h]; /* exact: a power of two */
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            p.a[s][h] = pair_of<T, X>(row, first + 16 * s + pair, 16 * s < length, inverse);
            p.a[s][h + 2] = pair_of<T, X>(row, first + 16 * s + pair + 8, 16 * s < length, inverse);
        }
    }
}

/* Waits for the warp's next slot and multiplies it: to[row][column] is the sum over the segment. */
template <typename T>
static __device__ __forceinline__ void multiply(const task &t, ring &r, const part_of_x &p,
                                                int length, float *to)
{
    const int lane = (int)threadIdx.x % 32, slot = (int)(r.used % (unsigned)t.slots);
    const char *row = r.data + slot * SLOT + lane % 8 * PITCH + lane / 8 * 16;
    float c[4] = {};
    wf_barrier_wait(r.barrier + 8 * slot, r.used / (unsigned)t.slots & 1);
#pragma unroll
    for (int s = 0; s < STEPS; s += 2) {
        if (16 * s >= length)
            break;
        uint32_t b[4];
        wf_ldmatrix(b, row + 32 * s);
        wf_mma<T>(c, p.a[s], b[0], b[1]);
        if (16 * (s + 1) < length)
            wf_mma<T>(c, p.a[s + 1], b[2], b[3]);
    }
    r.used++;
    const int at = lane / 4 * COLUMNS + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[at + i / 2 * 8 * COLUMNS + i % 2] = c[i] * p.factor[i / 2];
}

static __device__ __forceinline__ float bias_of(const task &t, int column)
{
    return t.bias_type == WF_F32    ? ((const float *)t.bias)[column]
           : t.bias_type == WF_BF16 ? wf_load(((const wf_bf16 *)t.bias)[column])
                                    : wf_load(((const wf_f16 *)t.bias)[column]);
}

/* Adds the segments' sums of one element, then the groups' sums, and stores the result. */
template <typename Y>
static __device__ __forceinline__ void finish(const task &t, const cursor &c, const float *part,
                                              float *total)
{
    const int i = (int)threadIdx.x, column = c.tile * COLUMNS + i % COLUMNS;
    const int row = (int)blockIdx.y * ROWS + i / COLUMNS;
    float sum = part[i];
#pragma unroll
    for (int s = 1; s < WARPS; s++)
        if (segment_length(t, c.group, s) > 0)
            sum = __fadd_rn(sum, part[s * SUMS + i]);
    if (t.groups > 1) {
        float *kept = total + (c.tile - c.first) / (int)gridDim.x * SUMS + i;
        *kept = sum = c.group > 0 ? __fadd_rn(*kept, sum) : sum;
    }
    if (c.group < t.groups - 1 || row >= t.m || column >= t.n)
        return;
    if (t.bias)
        sum = __fadd_rn(sum, bias_of(t, column));
    ((Y *)t.y)[(int64_t)row * t.n + column] = wf_round<Y>(sum);
}

#endif

/* T: type of w; X: of x and y. */
template <typename T, typename X>
static __global__ void __launch_bounds__(WARPS * 32, 1) few_rows(const task t)
{
#if WF_HOPPER_CODE
    WF_SHARED(unsigned char, shared);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const int warps = (int)blockDim.x / 32;
    char *slots = (char *)shared + BARRIERS;
    float *part = (float *)(slots + warps * t.slots * SLOT); /* [2][warps][SUMS] */
    float *total = part + 2 * warps * SUMS;                  /* [TILES][SUMS] */
    ring r = {wf_shared_address(shared) + 8 * MOST_SLOTS * warp, slots + warp * t.slots * SLOT};
    cursor load = {(int)blockIdx.x, 0, (int)blockIdx.x}, at = load;
    if (threadIdx.x % 32 == 0) { /* a warp's barriers are its own */
        for (int i = 0; i < t.slots; i++)
            wf_barrier_init(r.barrier + 8 * i, 1);
        wf_barrier_init_done();
    }
    __syncwarp();
    wf_grid_release();
    for (int i = 0; i < t.slots; i++)
        fill(t, r, load, warp);
    wf_grid_await(); /* before reading x and writing y; no kernel of the step writes w before */
    part_of_x p;
    for (int turn = 0, loaded = -1; at.first < t.tiles; turn ^= 1, advance(t, at)) {
        const int length = segment_length(t, at.group, warp);
        if (at.group != loaded)
            load_x<T, X>(t, at.group, warp, p);
        loaded = at.group;
        if (length > 0)
            multiply<T>(t, r, p, length, part + (turn * warps + warp) * SUMS);
        __syncwarp(); /* all lanes have read the slot */
        fill(t, r, load, warp);
        /* The other half of `part` was read before this barrier, so the next tile may write it. */
        __syncthreads();
        if (threadIdx.x < SUMS)
            finish<X>(t, at, part + turn * warps * SUMS, total);
    }
#endif
}

/* ---- Host ---- */

template <typename T, typename X> static wf_status run(const wf_launch *l, const task &t)
{
    const int warps = ((t.groups > 1 ? t.group : t.k) + SEGMENT - 1) / SEGMENT;
    const int threads = 32 * (warps < SUMS / 32 ? SUMS / 32 : warps), all = threads / 32;
    const int bytes = BARRIERS + all * t.slots * SLOT + 2 * all * SUMS * 4 +
                      (t.groups > 1 ? TILES * SUMS * 4 : 0);
    /* The same for all launches, because other threads launch the kernel, too. */
    enum { MOST = BARRIERS + SLOT_BYTES + 2 * WARPS * SUMS * 4 + TILES * SUMS * 4 };
    WF_TRY(
        wf_cuda_check(l, cudaFuncSetAttribute(few_rows<T, X>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, MOST)));
    const dim3 grid(wf_cuda_blocks(t.tiles, 1, wf_cuda_device_of(l)->processors),
                    (unsigned)((t.m + ROWS - 1) / ROWS));
    WF_RUN_EARLY((few_rows<T, X>), grid, (unsigned)threads, (size_t)bytes, l)(t);
    return wf_cuda_launched(l);
}

template <typename T> static wf_status run_type(const wf_launch *l, const task &t)
{
    return l->in[0].type == WF_F32 ? run<T, float>(l, t) : run<T, T>(l, t);
}

wf_status wf_cuda_hopper_rows_launch(const wf_launch *l)
{
    const wf_view *x = &l->in[0], *w = &l->in[1];
    task t = {};
    t.x = wf_cuda_view_of(x);
    t.w = (const char *)w->data;
    t.y = l->out[0].data;
    t.m = (int)wf_view_rows(x);
    t.n = (int)w->dim[0];
    t.k = (int)w->dim[1];
    if (l->nin > 2) {
        t.bias = l->in[2].data;
        t.bias_type = l->in[2].type;
    }
    if (!t.y || t.m == 0 || t.n == 0)
        return WF_OK;
    t.tiles = (t.n + COLUMNS - 1) / COLUMNS;
    /* Groups of equal length, but for rounding to segments. */
    t.groups = (t.k + WARPS * SEGMENT - 1) / (WARPS * SEGMENT);
    t.group = ((t.k + t.groups - 1) / t.groups + SEGMENT - 1) / SEGMENT * SEGMENT;
    const int slots = SLOT_BYTES / (t.group / SEGMENT * SLOT);
    t.slots = slots < MOST_SLOTS ? slots : MOST_SLOTS;
    return w->type == WF_BF16 ? run_type<wf_bf16>(l, t) : run_type<wf_f16>(l, t);
}

/* x has the type of w, or is f32 and may be rounded. w is the first version of a state: dense,
 * aligned, and not written before this node, because readers of a version precede its writer.
 * Without a library all batches take this kernel, so that an answer does not depend on its batch. */
bool wf_cuda_hopper_rows_accepts(const wf_device *device, const wf_node *n)
{
    const wf_value *x = n->in[0], *w = n->in[1];
    const int64_t rows = wf_dims_rows(&x->shape), k = w->shape.d[1];
    const bool rounds = w->node->op == WF_OP_state && w->marks & WF_MARK_ROUNDED;
    const int64_t most = (int64_t)ROWS * (wf_cuda_products_library(device) ? 1 : 65535);
    if (!wf_node_is(w->node, WF_FLAG_STATE))
        return false;
    if (x->type != w->type && !(x->type == WF_F32 && rounds))
        return false;
    return k > 0 && k % 16 == 0 && k <= INT32_MAX / 2 && w->shape.d[0] <= INT32_MAX / 2 &&
           rows <= most;
}
