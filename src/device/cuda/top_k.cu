/* SPDX-License-Identifier: MIT */
/*
 * top_k.cu - the k largest elements of each row in descending order. Among equals the lower index
 * comes first; NaN is largest.
 *
 * Elements are compared by unique keys (reduce.cuh), so the result does not depend on thread order.
 * For short rows and small k, a warp extracts the maximum k times. Otherwise a block finds the k-th
 * key digit by digit from histograms, collects the keys not below it, and sorts them in shared
 * memory or, if there are many, in the workspace.
 */
#include "device/cuda/reduce.cuh"

typedef unsigned long long key; /* the 64-bit type that shuffles and atomics accept */

typedef struct {
    wf_cuda_view x;
    int64_t rows, length, k; /* of x; k <= length */
    void *values;            /* [rows, k]; NULL: not read */
    int32_t *places;         /* [rows, k]; NULL: not read */
} choice;

template <typename T> static __device__ __forceinline__ key key_at(const T *row, int64_t i)
{
    return wf_choice_key(wf_order(row[i]), i);
}

template <typename T>
static __device__ __forceinline__ void put(const choice &c, const T *row, int64_t r, int64_t at,
                                           key x)
{
    const int32_t place = wf_choice_index(x);
    if (c.values)
        ((T *)c.values)[r * c.k + at] = row[place];
    if (c.places)
        c.places[r * c.k + at] = place;
}

/* ---- One warp per row ---- */

#define WARP_THREADS 128 /* per block: four rows */
#define WARP_KEYS 8      /* most keys per lane */
#define WARP_K 64        /* largest k for which repeated maxima are used */

template <typename T, int KEYS>
static __global__ void __launch_bounds__(WARP_THREADS) warp_kernel(choice c)
{
    const int64_t r = (int64_t)blockIdx.x * (WARP_THREADS / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (r >= c.rows)
        return;
    const T *row = (const T *)c.x.data + wf_cuda_row(c.x, r);
    key keys[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        /* 0 is below every key. */
        keys[i] = i * 32 + lane < c.length ? key_at(row, i * 32 + lane) : 0;
    for (int64_t at = 0; at < c.k; at++) {
        key best = 0;
#pragma unroll
        for (int i = 0; i < KEYS; i++)
            best = keys[i] > best ? keys[i] : best;
        for (int half = 16; half > 0; half /= 2) { /* all lanes get the maximum */
            const key other = __shfl_xor_sync(0xffffffffu, best, half);
            best = other > best ? other : best;
        }
#pragma unroll
        /* Keys are unique, so exactly one lane drops its key. */
        for (int i = 0; i < KEYS; i++)
            keys[i] = keys[i] == best ? 0 : keys[i];
        if (lane == 0)
            put(c, row, r, at, best);
    }
}

/* ---- One block per row ---- */

#define THREADS 512      /* per block: one row */
#define DIGITS 256       /* values of a digit */
#define SHARED_KEYS 4096 /* most keys sorted in shared memory */
#define BLOCKS 256       /* most blocks; bounds the workspace */

/* A bound such that exactly k keys are not below it. */
template <typename T>
static __device__ __forceinline__ key threshold_of(const T *row, int64_t length, int64_t k,
                                                   unsigned *histogram, int64_t *found)
{
    key prefix = 0; /* the digits found so far */
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < DIGITS; i += THREADS)
            histogram[i] = 0;
        __syncthreads(); /* all counters are 0 */
        for (int64_t i = threadIdx.x; i < length; i += THREADS) {
            const key x = key_at(row, i);
            /* Only keys that share the digits found so far. */
            if (shift == 56 || x >> (shift + 8) == prefix >> (shift + 8))
                atomicAdd(&histogram[x >> shift & (DIGITS - 1)], 1u);
        }
        __syncthreads();        /* all keys are counted */
        if (threadIdx.x == 0) { /* from the largest digit down, until k keys are covered */
            int64_t above = 0;
            int digit = DIGITS - 1;
            while (above + histogram[digit] < k)
                above += histogram[digit--];
            found[0] = digit;
            found[1] = above;
            found[2] = histogram[digit];
        }
        __syncthreads(); /* every thread reads what thread 0 found */
        prefix |= (key)found[0] << shift;
        k -= found[1];
        const bool all = found[2] == k;
        __syncthreads(); /* found was read by all: the next digit overwrites it */
        if (all)
            break;
    }
    return prefix;
}

/* Bitonic sort, descending. n is a power of two. Neighbouring runs are sorted in opposite
 * directions (low & run), so that two of them form a bitonic sequence. */
static __device__ __forceinline__ void sort_keys(key *keys, int64_t n)
{
    for (int64_t run = 2; run <= n; run *= 2)
        for (int64_t half = run / 2; half > 0; half /= 2) {
            for (int64_t i = threadIdx.x; i < n / 2; i += THREADS) {
                const int64_t low = i / half * half * 2 + i % half, high = low + half;
                const key a = keys[low], b = keys[high];
                if ((a < b) == ((low & run) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
            __syncthreads(); /* the next step reads what other threads swapped */
        }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    block_kernel(choice c, key *workspace, int64_t room)
{
    __shared__ key shared_keys[SHARED_KEYS];
    __shared__ unsigned histogram[DIGITS];
    __shared__ int64_t found[3];
    __shared__ int count;
    key *keys = workspace ? workspace + blockIdx.x * room : shared_keys;
    for (int64_t r = blockIdx.x; r < c.rows; r += gridDim.x) {
        const T *row = (const T *)c.x.data + wf_cuda_row(c.x, r);
        /* Keys are unique, so exactly k of them are not below it. */
        const key least = threshold_of(row, c.length, c.k, histogram, found);
        if (threadIdx.x == 0)
            count = 0;
        for (int64_t i = c.k + threadIdx.x; i < room; i += THREADS) /* padding sorts to the end */
            keys[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < c.length; i += THREADS) {
            const key x = key_at(row, i);
            if (x >= least)
                keys[atomicAdd(&count, 1)] = x; /* any order: the keys are sorted afterwards */
        }
        __syncthreads();
        sort_keys(keys, room);
        for (int64_t i = threadIdx.x; i < c.k; i += THREADS)
            put(c, row, r, i, keys[i]);
        __syncthreads(); /* keys are read before the next row overwrites them */
    }
}

/* ---- Launching ---- */

/* The sort needs a power of two. */
static int64_t room_for(int64_t k)
{
    int64_t room = 2;
    while (room < k)
        room *= 2;
    return room;
}

size_t wf_cuda_top_k_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    const int64_t room = room_for(((const wf_attr_top_k *)n->attr)->k);
    const int64_t rows = wf_dims_rows(&n->in[0]->shape);
    return room > SHARED_KEYS ? (size_t)((rows < BLOCKS ? rows : BLOCKS) * room) * sizeof(key) : 0;
}

wf_status wf_cuda_launch_top_k(const wf_launch *l)
{
    const wf_view *x = &l->in[0];
    choice c = {.x = wf_cuda_view_of(x),
                .rows = wf_view_rows(x),
                .length = wf_view_last(x),
                .k = wf_view_last(&l->out[0]),
                .values = l->out[0].data,
                .places = (int32_t *)l->out[1].data};
    if ((!c.values && !c.places) || c.rows == 0 || c.k == 0)
        return WF_OK;
    const int64_t room = room_for(c.k), per_block = WARP_THREADS / 32;
    wf_with_float(x->type, [&](auto zero) {
        using T = decltype(zero);
        const unsigned blocks = (unsigned)((c.rows + per_block - 1) / per_block);
        if (c.length <= 32 * 2 && c.k <= WARP_K) {
            WF_RUN((warp_kernel<T, 2>), blocks, WARP_THREADS, 0, wf_cuda_stream(l))
            (c);
        } else if (c.length <= 32 * WARP_KEYS && c.k <= WARP_K) {
            WF_RUN((warp_kernel<T, WARP_KEYS>), blocks, WARP_THREADS, 0, wf_cuda_stream(l))
            (c);
        } else {
            WF_RUN(block_kernel<T>, (unsigned)(c.rows < BLOCKS ? c.rows : BLOCKS), THREADS, 0,
                   wf_cuda_stream(l))
            (c, room > SHARED_KEYS ? (key *)l->workspace : NULL, room);
        }
    });
    return wf_cuda_launched(l);
}
