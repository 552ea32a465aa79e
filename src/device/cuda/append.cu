/* SPDX-License-Identifier: MIT */
/*
 * append.cu - kv_append: writes tokens x [N, Hk, D] into the pool [P, page, Hk, D], at the slots
 * that positions and the page table [S, pages] select. If several tokens share a slot, the last one
 * wins.
 *
 * A token searches for later tokens with the same slot: directly when tokens are few, else in a
 * hash table in the workspace. A token whose position or page is out of range is reported as a
 * fault and skipped.
 */
#include "device/cuda/update.cuh"

enum {
    FEW = 1024, /* up to this many tokens are compared pairwise */
    THREADS = 128
};

/* Kernel argument. */
typedef struct {
    const int32_t *start, *positions, *table; /* start [S + 1], positions [N] */
    int64_t tokens, sequences, pages, table_stride;
    int64_t pool_pages, page; /* pages of the pool, tokens per page */
    wf_cuda_any x, pool;
    int64_t x_token, x_head; /* strides in elements */
    int64_t heads, width;
    bool wide; /* rows allow 16-byte copies */
    /* The hash table of `slots` entries, a power of two; NULL: few tokens. */
    int64_t slots;
    unsigned long long *key; /* slot + 1; 0: empty */
    int *last;               /* the last token of this slot */
    uint64_t *fault;
} append_args;

/* Whether token i belongs to a sequence. */
static __device__ bool belongs(const append_args &a, int64_t i)
{
    return a.sequences > 0 && i >= a.start[0] && i < a.start[a.sequences];
}

/* The slot of token i, counted in tokens of the pool, or -1. */
static __device__ int64_t place_of(const append_args &a, int64_t i)
{
    if (!belongs(a, i))
        return -1;
    int64_t low = 0, high = a.sequences; /* bisect: the last sequence that starts at or before i */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (a.start[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    const int64_t position = a.positions[i];
    if (position < 0 || position >= a.pages * a.page)
        return -1;
    const int64_t id = a.table[low * a.table_stride + position / a.page];
    return id < 0 || id >= a.pool_pages ? -1 : id * a.page + position % a.page;
}

static __device__ int64_t hash_of(const append_args &a, int64_t place)
{
    /* The high bits of the product depend on all bits of the place. */
    return (int64_t)((uint64_t)place * 0x9e3779b97f4a7c15u >> 20) & (a.slots - 1);
}

/* Finds or inserts the table entry of a slot. */
static __device__ int64_t entry_of(const append_args &a, int64_t place)
{
    const unsigned long long key = (unsigned long long)place + 1;
    for (int64_t h = hash_of(a, place);; h = (h + 1) & (a.slots - 1)) {
        /* Atomic: several threads may insert at once. */
        const unsigned long long found = atomicCAS(&a.key[h], 0ull, key);
        if (found == 0 || found == key)
            return h;
    }
}

static __global__ void __launch_bounds__(256) append_clear(append_args a)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.slots) {
        a.key[i] = 0;
        a.last[i] = -1;
    }
}

static __global__ void __launch_bounds__(256) append_claim(append_args a)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t place = i < a.tokens ? place_of(a, i) : -1;
    if (place >= 0)
        /* The largest token number wins, whatever the order. */
        atomicMax(&a.last[entry_of(a, place)], (int)i);
}

/* One block per token. */
static __global__ void __launch_bounds__(THREADS) append_copy(append_args a)
{
    __shared__ int beaten; /* a later token has the same slot */
    wf_grid_begin();
    const int64_t i = blockIdx.x;
    const int64_t place = place_of(a, i);
    wf_check_starts(a.fault, a.start, a.sequences + 1, a.tokens, i * THREADS + threadIdx.x,
                    gridDim.x * (int64_t)THREADS);
    if (place < 0) {
        if (threadIdx.x == 0 && belongs(a, i))
            wf_fault(a.fault, WF_CUDA_FAULT_INDEX, i, a.positions[i]);
        return;
    }
    if (threadIdx.x == 0)
        beaten = a.key ? a.last[entry_of(a, place)] != (int)i : 0;
    __syncthreads();
    if (!a.key)
        for (int64_t k = i + 1 + threadIdx.x; k < a.tokens; k += THREADS)
            if (place_of(a, k) == place)
                beaten = 1;
    __syncthreads();
    if (beaten)
        return;
    const int64_t size = a.heads * a.width, to = place * size;
    if (a.wide) {
        const int each = a.pool.type == WF_F32 ? 4 : 8, bytes = 16 / each;
        for (int64_t e = (int64_t)threadIdx.x * each; e < size; e += THREADS * each) {
            const int64_t from = i * a.x_token + e / a.width * a.x_head + e % a.width;
            *(uint4 *)((char *)a.pool.data + (to + e) * bytes) =
                *(const uint4 *)((const char *)a.x.data + from * bytes);
        }
    } else {
        for (int64_t e = threadIdx.x; e < size; e += THREADS) {
            const int64_t from = i * a.x_token + e / a.width * a.x_head + e % a.width;
            wf_any_store(a.pool, to + e, wf_any_load(a.x, from));
        }
    }
}

static int64_t slots_of(int64_t tokens)
{
    int64_t slots = 1;
    while (slots < 2 * tokens)
        slots *= 2;
    return tokens > FEW ? slots : 0;
}

extern "C" size_t wf_cuda_kv_append_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    return (size_t)slots_of(n->in[1]->shape.d[0]) * (sizeof(unsigned long long) + sizeof(int));
}

/* (pool [P, page, Hk, D], x [N, Hk, D], seq_start, positions, table) */
extern "C" wf_status wf_cuda_kv_append(const wf_launch *l)
{
    const wf_view *pool = &l->in[0], *x = &l->in[1], *table = &l->in[4];
    append_args a = {};
    a.start = (const int32_t *)l->in[2].data;
    a.positions = (const int32_t *)l->in[3].data;
    a.table = (const int32_t *)table->data;
    a.tokens = x->dim[0];
    a.sequences = l->in[2].dim[0] - 1;
    a.pages = table->dim[1];
    a.table_stride = table->stride[0];
    a.pool_pages = pool->dim[0];
    a.page = pool->dim[1];
    a.x = wf_cuda_any_of(x);
    a.pool = wf_cuda_any_of(pool);
    a.x_token = x->stride[0];
    a.x_head = x->stride[1];
    a.heads = x->dim[1];
    a.width = x->dim[2];
    const uint64_t size = x->type == WF_F32 ? 4 : 2;
    const uint64_t bits = (uint64_t)(uintptr_t)x->data | (uint64_t)(uintptr_t)pool->data |
                          (uint64_t)(a.x_token | a.x_head | a.width) * size;
    a.wide = x->type == pool->type && bits % 16 == 0;
    a.slots = slots_of(a.tokens);
    a.fault = l->fault;
    if (a.tokens == 0 || a.heads * a.width == 0 || a.page == 0 || a.sequences <= 0)
        return WF_OK;
    cudaStream_t stream = wf_cuda_stream(l);
    if (a.slots > 0) {
        a.key = (unsigned long long *)l->workspace;
        a.last = (int *)(a.key + a.slots);
        WF_RUN(append_clear, wf_cuda_blocks(a.slots, 256, INT32_MAX), 256, 0, stream)(a);
        WF_RUN(append_claim, wf_cuda_blocks(a.tokens, 256, INT32_MAX), 256, 0, stream)(a);
    }
    WF_RUN_EARLY(append_copy, (unsigned)a.tokens, THREADS, 0, l)(a);
    return wf_cuda_launched(l);
}
