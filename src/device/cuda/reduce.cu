/* SPDX-License-Identifier: MIT */
/*
 * reduce.cu - reductions: sum, mean, max, argmax, global_norm. top_k is in top_k.cu.
 *
 * The elements of one result are cut into pieces whose size depends on the shape only. A warp or
 * block reduces a piece in f32, in a fixed order, into the workspace; a second kernel combines the
 * pieces. Every element is read once, enough threads run to saturate memory bandwidth, and the bits
 * are reproducible. "Along": neighbours in memory belong to one result. "Across": they belong to
 * different results.
 *
 * Order of a sum along: thread m of a team of n takes packs m, m + n, ...; the elements of a pack
 * are added pairwise, the packs in ascending order, the threads by a butterfly, the warps by
 * another one. Across: group g of a block takes elements g, g + groups, ... in ascending order,
 * then the groups are added pairwise.
 *
 * NaN: sum, mean and max return NaN if any element is NaN. argmax treats NaN as the largest.
 */
#include "device/cuda/reduce.cuh"

#define THREADS 256       /* per block */
#define JOIN_THREADS 1024 /* per block of the kernel that combines pieces */
#define UNROLL 4          /* packs that a thread loads before it adds them */

/* ---- Ways to combine elements ---- */

struct sum_float {
    typedef float total;
    static __device__ __forceinline__ float first()
    {
        return 0;
    }
    static __device__ __forceinline__ float of(float a, float b)
    {
        return a + b;
    }
};
struct max_float {
    typedef float total;
    static __device__ __forceinline__ float first()
    {
        return -INFINITY;
    }
    static __device__ __forceinline__ float of(float a, float b)
    {
        return a >= b || a != a ? a : b; /* keeps NaN: a if it is NaN, b if the comparison fails */
    }
};
struct sum_int { /* wraps on overflow */
    typedef uint32_t total;
    static __device__ __forceinline__ uint32_t first()
    {
        return 0;
    }
    static __device__ __forceinline__ uint32_t of(uint32_t a, uint32_t b)
    {
        return a + b;
    }
};
struct max_int {
    typedef int32_t total;
    static __device__ __forceinline__ int32_t first()
    {
        return INT32_MIN;
    }
    static __device__ __forceinline__ int32_t of(int32_t a, int32_t b)
    {
        return a >= b ? a : b;
    }
};

static __device__ __forceinline__ float number(float x)
{
    return x;
}
static __device__ __forceinline__ float number(wf_bf16 x)
{
    return wf_load(x);
}
static __device__ __forceinline__ float number(wf_f16 x)
{
    return wf_load(x);
}
static __device__ __forceinline__ int32_t number(int32_t x)
{
    return x;
}

/* Rounds once. Sums and maxima have the divisor 1, which is exact. */
template <typename T> static __device__ __forceinline__ T result(float total, float divisor)
{
    return wf_round<T>(total / divisor);
}
template <typename T> static __device__ __forceinline__ int32_t result(uint32_t total, float)
{
    return (int32_t)total;
}
template <typename T> static __device__ __forceinline__ int32_t result(int32_t total, float)
{
    return total;
}

/* Reduces over `team` neighbouring threads, a power of two; all of them get the total. A team above
 * 32 must be the whole block. `scratch` holds one total per warp. All threads of the block call
 * it. */
template <typename Fold>
static __device__ __forceinline__ typename Fold::total over_team(typename Fold::total x, int team,
                                                                 typename Fold::total *scratch)
{
    for (int k = (team < 32 ? team : 32) / 2; k > 0; k /= 2)
        x = Fold::of(x, __shfl_xor_sync(0xffffffffu, x, k));
    if (team <= 32)
        return x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads(); /* all warps have written */
    /* Every warp reduces the same values, so every thread gets the total. */
    x = lane < warps ? scratch[lane] : Fold::first();
    for (int k = 16; k > 0; k /= 2)
        x = Fold::of(x, __shfl_xor_sync(0xffffffffu, x, k));
    return x;
}

/* Combines the V totals of all threads with the same lane; group 0 gets them. Thread t is lane t %
 * lanes of group t / lanes. `scratch` holds V totals per thread. */
template <typename Fold, int V>
static __device__ __forceinline__ void over_groups(typename Fold::total (&x)[V], int lanes,
                                                   typename Fold::total *scratch)
{
    const int t = threadIdx.x;
#pragma unroll
    for (int k = 0; k < V; k++)
        scratch[k * blockDim.x + t] = x[k];
    __syncthreads();
    /* Halves: thread t adds what thread t + half has. Lanes stay apart, as all sizes are powers of
     * two times `lanes`. */
    for (int half = blockDim.x / 2; half >= lanes; half /= 2) {
        if (t < half)
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] = Fold::of(x[k], scratch[k * blockDim.x + t + half]);
                scratch[k * blockDim.x + t] = x[k];
            }
        __syncthreads();
    }
}

/* ---- Kernels of sum, mean and max ---- */

/* Results [outputs], each reduced from `length` elements in pieces. */
typedef struct {
    int64_t outputs, length;
    int64_t pieces, piece; /* count of pieces, and elements of each */
    bool across;           /* neighbours in memory belong to different results */
} cut;

typedef struct {
    /* Items of the axes that stay and of those that are reduced, in packs of the contiguous
     * side. */
    wf_each<1> kept, gone;
    cut c;
    int team; /* along: threads per result; across: lanes of neighbouring packs */
    float divisor;
    const void *x;
    void *y;
    void *partial; /* totals [pieces][outputs]; NULL: a single piece */
} reduction;

template <typename Fold, typename T>
/* Stores a total, or the result itself if there is only one piece. */
static __device__ __forceinline__ void put(const reduction &r, int64_t piece, int64_t output,
                                           typename Fold::total x)
{
    if (r.partial)
        ((typename Fold::total *)r.partial)[piece * r.c.outputs + output] = x;
    else
        ((T *)r.y)[output] = result<T>(x, r.divisor);
}

/* Reduces the elements of a pack. */
template <typename Fold, typename T, int V>
static __device__ __forceinline__ typename Fold::total folded(const wf_pack<T, V> &pack)
{
    typename Fold::total x[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        x[k] = number(pack.x[k]);
#pragma unroll
    /* Pairwise, so the order does not depend on how the compiler schedules it. */
    for (int half = V / 2; half > 0; half /= 2)
#pragma unroll
        for (int k = 0; k < half; k++)
            x[k] = Fold::of(x[k], x[k + half]);
    return x[0];
}

/* One team of r.team threads per piece of a result; a block has THREADS / r.team teams. V elements
 * of the reduced axes per load. */
template <typename Fold, typename T, int V>
static __global__ void __launch_bounds__(THREADS) along_kernel(reduction r)
{
    typedef typename Fold::total total;
    __shared__ total scratch[THREADS / 32];
    const int64_t id = (int64_t)blockIdx.x * (THREADS / r.team) + threadIdx.x / r.team;
    const int64_t piece = r.c.pieces == 1 ? 0 : id / r.c.outputs, output = id - piece * r.c.outputs;
    const int member = threadIdx.x % r.team;
    total sum = Fold::first();
    if (piece < r.c.pieces && output < r.c.outputs) {
        const T *x = (const T *)r.x + wf_each_at(r.kept, output).at[0];
        const int64_t begin = piece * r.c.piece / V, stop = begin + r.c.piece / V;
        const int64_t end = stop < r.gone.count ? stop : r.gone.count;
        for (int64_t i = begin + member; i < end; i += UNROLL * r.team) {
            wf_pack<T, V> pack[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                pack[u] = wf_load_pack<T, V>(
                    x + wf_each_at(r.gone, wf_each_within(i + u * r.team, end, i)).at[0]);
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const total more = folded<Fold, T, V>(pack[u]);
                /* A pack past the end was loaded again and does not count. */
                sum = Fold::of(sum, i + u * r.team < end ? more : Fold::first());
            }
        }
    }
    /* All threads, also of teams without work: it has a barrier. */
    sum = over_team<Fold>(sum, r.team, scratch);
    if (member == 0 && piece < r.c.pieces && output < r.c.outputs)
        put<Fold, T>(r, piece, output, sum);
}

/* Adds one element to each of V results. */
template <typename Fold, typename T, int V>
static __device__ __forceinline__ void add(typename Fold::total (&sum)[V], const wf_pack<T, V> &x)
{
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = Fold::of(sum[k], number(x.x[k]));
}

/* Packs that a thread loads before it adds them. */
#define ACROSS_UNROLL 8

/* A block takes `lanes` packs of neighbouring results and THREADS / lanes groups of reduced
 * elements. V results per thread. */
template <typename Fold, typename T, int V>
static __global__ void __launch_bounds__(THREADS) across_kernel(reduction r)
{
    typedef typename Fold::total total;
    __shared__ total scratch[THREADS * V];
    const int lanes = r.team, lane = threadIdx.x % lanes, groups = THREADS / lanes;
    const int64_t tiles = (r.kept.count + lanes - 1) / lanes;
    const int64_t piece = blockIdx.x / tiles, item = blockIdx.x % tiles * lanes + lane;
    const int64_t begin = piece * r.c.piece, stop = begin + r.c.piece;
    const int64_t end = stop < r.c.length ? stop : r.c.length;
    total sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = Fold::first();
    if (item < r.kept.count) {
        const T *x = (const T *)r.x + wf_each_at(r.kept, item).at[0];
        int64_t i = begin + threadIdx.x / lanes;
        for (; i + (ACROSS_UNROLL - 1) * groups < end; i += ACROSS_UNROLL * groups) {
            wf_pack<T, V> pack[ACROSS_UNROLL];
#pragma unroll
            for (int u = 0; u < ACROSS_UNROLL; u++)
                pack[u] = wf_load_pack<T, V>(x + wf_each_at(r.gone, i + u * groups).at[0]);
#pragma unroll
            for (int u = 0; u < ACROSS_UNROLL; u++)
                add<Fold>(sum, pack[u]);
        }
        for (; i < end; i += groups)
            add<Fold>(sum, wf_load_pack<T, V>(x + wf_each_at(r.gone, i).at[0]));
    }
    over_groups<Fold, V>(sum, lanes, scratch);
    if (threadIdx.x < lanes && item < r.kept.count)
#pragma unroll
        for (int k = 0; k < V; k++)
            put<Fold, T>(r, piece, item * V + k, sum[k]);
}

/* Combines the pieces of each result, in ascending order per group, then pairwise over the
 * groups. */
template <typename Fold, typename T>
static __global__ void __launch_bounds__(JOIN_THREADS)
    join_kernel(const typename Fold::total *partial, T *y, int64_t outputs, int64_t pieces,
                int lanes, float divisor)
{
    typedef typename Fold::total total;
    __shared__ total scratch[JOIN_THREADS];
    const int64_t output = (int64_t)blockIdx.x * lanes + threadIdx.x % lanes;
    const int groups = JOIN_THREADS / lanes;
    total sum[1] = {Fold::first()};
    if (output < outputs)
        for (int64_t p = threadIdx.x / lanes; p < pieces; p += UNROLL * groups) {
            total x[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                x[u] = p + u * groups < pieces ? partial[(p + u * groups) * outputs + output]
                                               : Fold::first();
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                sum[0] = Fold::of(sum[0], x[u]);
        }
    over_groups<Fold, 1>(sum, lanes, scratch);
    if (threadIdx.x < lanes && output < outputs)
        y[output] = result<T>(sum[0], divisor);
}

/* ---- Launching ---- */

#define BUSY 1024        /* blocks that saturate a GPU; constant, since the bits depend on it */
#define LEAST_ALONG 4096 /* fewest elements of a piece */
#define LEAST_ACROSS 64  /* fewest elements of a piece; each of them is a whole row of lanes */

/* Cuts a reduction into pieces, so that about BUSY blocks have work. Depends on type and shape
 * only: the planner (workspace) and the launch must agree. */
static cut cut_of(wf_type type, int64_t axes, int rank, const int64_t *dim)
{
    cut c = {.outputs = 1, .length = 1, .pieces = 1};
    for (int i = 0; i < rank; i++) {
        *(axes >> i & 1 ? &c.length : &c.outputs) *= dim[i];
        if (dim[i] != 1)
            c.across = !(axes >> i & 1); /* the innermost axis longer than 1 decides */
    }
    const int64_t wide = 16 / wf_type_get(type)->block_bytes;
    const int64_t blocks = c.across ? (c.outputs + 32 * wide - 1) / (32 * wide) : c.outputs;
    const int64_t least = c.across ? LEAST_ACROSS : LEAST_ALONG;
    c.piece = c.length;
    if (c.outputs > 0 && blocks < BUSY && c.length > least) {
        const int64_t wanted = (BUSY + blocks - 1) / blocks;
        const int64_t piece = (c.length + wanted - 1) / wanted;
        /* A multiple of 64 is a multiple of every pack. */
        c.piece = piece > least ? (piece + 63) / 64 * 64 : least;
        c.pieces = (c.length + c.piece - 1) / c.piece;
    }
    return c;
}

static size_t reduce_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    const wf_dims *x = &n->in[0]->shape;
    const cut c = cut_of(n->in[0]->type, ((const wf_attr_reduce *)n->attr)->axes, (int)x->n, x->d);
    /* Totals have 4 bytes in every type. */
    return c.pieces > 1 ? (size_t)(c.pieces * c.outputs) * sizeof(float) : 0;
}

template <typename Fold, typename T, int V>
static void run_kernels(const wf_launch *l, reduction r, const wf_walk *kept, const wf_walk *gone)
{
    const cut *c = &r.c;
    r.kept = wf_each_of<1>(kept, c->across ? V : 1);
    r.gone = wf_each_of<1>(gone, c->across ? 1 : V);
    if (c->across) {
        r.team = wf_team_of(r.kept.count, 32);
        const int64_t tiles = (r.kept.count + r.team - 1) / r.team;
        WF_RUN((across_kernel<Fold, T, V>), (unsigned)(tiles * c->pieces), THREADS, 0,
               wf_cuda_stream(l))
        (r);
    } else {
        const int64_t packs = c->piece / V;
        /* Long pieces take the whole block, short ones at most a warp. */
        r.team = packs > 32 * UNROLL * 4 ? THREADS : wf_team_of(packs, 32);
        const int64_t per_block = THREADS / r.team;
        WF_RUN((along_kernel<Fold, T, V>),
               (unsigned)((c->outputs * c->pieces + per_block - 1) / per_block), THREADS, 0,
               wf_cuda_stream(l))
        (r);
    }
    if (r.partial) {
        const int lanes = wf_team_of(c->outputs, 32);
        WF_RUN((join_kernel<Fold, T>), (unsigned)((c->outputs + lanes - 1) / lanes), JOIN_THREADS,
               0, wf_cuda_stream(l))
        ((const typename Fold::total *)r.partial, (T *)r.y, c->outputs, c->pieces, lanes,
         r.divisor);
    }
}

template <typename Fold, typename T> static void run(const wf_launch *l)
{
    const wf_view *x = &l->in[0];
    const int64_t axes = ((const wf_attr_reduce *)l->attr)->axes;
    constexpr int V = WF_WIDE(T);
    reduction r = {.c = cut_of(x->type, axes, x->rank, x->dim), .x = x->data, .y = l->out[0].data};
    r.divisor = l->node->op == WF_OP_mean ? (float)r.c.length : 1;
    r.partial = r.c.pieces > 1 ? l->workspace : NULL;
    if (!r.y || r.c.outputs == 0)
        return;
    wf_walk kept, gone;
    wf_walk_split(x, axes, &kept, &gone);
    /* Packs of V need contiguous, aligned elements on the packed side and aligned steps on the
     * other. */
    const wf_walk *packed = r.c.across ? &kept : &gone, *other = r.c.across ? &gone : &kept;
    if (packed->dim[packed->rank - 1] % V == 0 && wf_walk_step(packed, 0) == 1 &&
        wf_walk_packs(packed, 0, x->data, sizeof(T), V) && wf_walk_steps_by(other, V))
        run_kernels<Fold, T, V>(l, r, &kept, &gone);
    else
        run_kernels<Fold, T, 1>(l, r, &kept, &gone);
}

static wf_status launch_sum(const wf_launch *l)
{
    if (l->in[0].type == WF_I32)
        run<sum_int, int32_t>(l);
    else
        wf_with_float(l->in[0].type, [&](auto zero) { run<sum_float, decltype(zero)>(l); });
    return wf_cuda_launched(l);
}

static wf_status launch_max(const wf_launch *l)
{
    if (l->in[0].type == WF_I32)
        run<max_int, int32_t>(l);
    else
        wf_with_float(l->in[0].type, [&](auto zero) { run<max_float, decltype(zero)>(l); });
    return wf_cuda_launched(l);
}

/* ---- argmax ---- */

struct max_key {
    typedef unsigned long long total;
    static __device__ __forceinline__ total first()
    {
        return 0;
    }
    static __device__ __forceinline__ total of(total a, total b)
    {
        return a > b ? a : b;
    }
};

/* One team of `team` threads per result; `step` elements between consecutive indices of the axis.
 * The largest key wins, so the order of comparisons does not matter. */
template <typename T, int V>
static __global__ void __launch_bounds__(JOIN_THREADS)
    argmax_kernel(wf_each<1> kept, const T *x, int64_t length, int64_t step, int team, int32_t *y)
{
    __shared__ unsigned long long scratch[JOIN_THREADS / 32];
    const int64_t output = (int64_t)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
    const int member = threadIdx.x % team;
    unsigned long long best = 0; /* no key is 0 */
    if (output < kept.count) {
        x += wf_each_at(kept, output).at[0];
        for (int64_t i = member * V; i < length; i += team * V) {
            const wf_pack<T, V> pack = wf_load_pack<T, V>(x + i * step);
#pragma unroll
            for (int k = 0; k < V; k++)
                best = max_key::of(best, wf_choice_key(wf_order(pack.x[k]), i + k));
        }
    }
    best = over_team<max_key>(best, team, scratch);
    if (member == 0 && output < kept.count)
        y[output] = wf_choice_index(best);
}

template <typename T> static void run_argmax(const wf_launch *l)
{
    const wf_view *x = &l->in[0];
    const int axis = (int)((const wf_attr_axis *)l->attr)->axis;
    wf_walk kept, gone;
    wf_walk_split(x, (int64_t)1 << axis, &kept, &gone);
    const int64_t length = x->dim[axis], step = x->stride[axis];
    constexpr int V = WF_WIDE(T);
    const bool packs =
        step == 1 && length % V == 0 && wf_walk_steps_by(&kept, V) && (uintptr_t)x->data % 16 == 0;
    /* Neighbouring threads read neighbouring elements, of one result (along) or of several. */
    const bool along = step == 1 || length == 1;
    const int64_t items = packs ? length / V : length;
    const int team = !along ? 1 : items >= 4096 ? JOIN_THREADS : wf_team_of(items, 32);
    const int threads = team > 32 ? team : THREADS;
    const wf_each<1> outputs = wf_each_of<1>(&kept, 1);
    const int64_t per_block = threads / team;
    const unsigned blocks = (unsigned)((outputs.count + per_block - 1) / per_block);
    if (packs) {
        WF_RUN((argmax_kernel<T, V>), blocks, threads, 0, wf_cuda_stream(l))
        (outputs, (const T *)x->data, length, step, team, (int32_t *)l->out[0].data);
    } else {
        WF_RUN((argmax_kernel<T, 1>), blocks, threads, 0, wf_cuda_stream(l))
        (outputs, (const T *)x->data, length, step, team, (int32_t *)l->out[0].data);
    }
}

static wf_status launch_argmax(const wf_launch *l)
{
    if (!l->out[0].data || wf_view_count(&l->out[0]) == 0)
        return WF_OK;
    if (l->in[0].type == WF_I32)
        run_argmax<int32_t>(l);
    else
        wf_with_float(l->in[0].type, [&](auto zero) { run_argmax<decltype(zero)>(l); });
    return wf_cuda_launched(l);
}

/* ---- global_norm ---- */

/* Squares are added in f64: those of large and small gradients overflow or vanish in f32. Chunks
 * are numbered through all inputs; no chunk spans two inputs. One block per chunk; partial sums are
 * combined by one block in ascending order per thread. */
#define CHUNK 32768 /* elements per chunk, and per block */
/* Most inputs per launch: all parts together must fit into the kernel's parameters. */
#define NORM_PARTS 128

static int64_t chunks_of(int64_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

typedef struct {
    const void *data;
    int64_t count;
    uint32_t first; /* index of its first chunk in this launch */
    wf_type type;
} norm_part;

typedef struct {
    int n;
    norm_part part[NORM_PARTS];
} norm_parts;

struct sum_double {
    typedef double total;
    static __device__ __forceinline__ double first()
    {
        return 0;
    }
    static __device__ __forceinline__ double of(double a, double b)
    {
        return a + b;
    }
};

/* Sums the squares of `count` elements over the block. */
template <typename T>
static __device__ __forceinline__ double sum_of_squares(const T *x, int64_t count)
{
    constexpr int V = WF_WIDE(T);
    double sum = 0;
    int64_t begin = 0;
    if ((uintptr_t)x % 16 == 0) {
        const int64_t packs = count / V;
        for (int64_t i = threadIdx.x; i < packs; i += UNROLL * THREADS) {
            wf_pack<T, V> pack[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                pack[u] = wf_load_pack<T, V>(x + wf_each_within(i + u * THREADS, packs, i) * V);
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                if (i + u * THREADS < packs)
#pragma unroll
                    for (int k = 0; k < V; k++) {
                        const double e = wf_load(pack[u].x[k]);
                        sum += e * e;
                    }
        }
        begin = packs * V;
    }
    for (int64_t i = begin + threadIdx.x; i < count; i += THREADS) {
        const double e = wf_load(x[i]);
        sum += e * e;
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS) squares_kernel(norm_parts parts, double *partial)
{
    __shared__ double scratch[THREADS / 32];
    int low = 0, high = parts.n; /* bisect: the last part that starts at or before this chunk */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (parts.part[middle].first <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    const int64_t begin = (int64_t)(blockIdx.x - parts.part[low].first) * CHUNK;
    const int64_t left = parts.part[low].count - begin, count = left < CHUNK ? left : CHUNK;
    const void *data = parts.part[low].data;
    double sum;
    switch (parts.part[low].type) {
    case WF_F32: sum = sum_of_squares((const float *)data + begin, count); break;
    case WF_BF16: sum = sum_of_squares((const wf_bf16 *)data + begin, count); break;
    default: sum = sum_of_squares((const wf_f16 *)data + begin, count);
    }
    sum = over_team<sum_double>(sum, THREADS, scratch);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(JOIN_THREADS)
    norm_kernel(const double *partial, int64_t n, float *y)
{
    __shared__ double scratch[JOIN_THREADS / 32];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += JOIN_THREADS)
        sum += partial[i];
    sum = over_team<sum_double>(sum, JOIN_THREADS, scratch);
    if (threadIdx.x == 0)
        *y = (float)sqrt(sum);
}

static wf_status launch_global_norm(const wf_launch *l)
{
    double *partial = (double *)l->workspace;
    if (!l->out[0].data)
        return WF_OK;
    norm_parts parts = {};
    int64_t chunks = 0, done = 0; /* chunks of this launch, and of earlier ones */
    for (int i = 0; i < l->nin; i++) {
        const int64_t count = wf_view_count(&l->in[i]);
        if (count > 0) {
            parts.part[parts.n++] =
                (norm_part){l->in[i].data, count, (uint32_t)chunks, l->in[i].type};
            chunks += chunks_of(count);
        }
        if (parts.n == NORM_PARTS || (i == l->nin - 1 && parts.n > 0)) {
            WF_RUN(squares_kernel, (unsigned)chunks, THREADS, 0, wf_cuda_stream(l))
            (parts, partial + done);
            done += chunks;
            chunks = 0;
            parts.n = 0;
        }
    }
    WF_RUN(norm_kernel, 1, JOIN_THREADS, 0, wf_cuda_stream(l))
    (partial, done, (float *)l->out[0].data);
    return wf_cuda_launched(l);
}

static size_t global_norm_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    int64_t chunks = 0;
    for (int i = 0; i < n->nin; i++)
        chunks += chunks_of(wf_dims_count(&n->in[i]->shape));
    return (size_t)chunks * sizeof(double);
}

/* clang-format off */
#define ROW(name_, types_, strided_, workspace_, launch_)                                          \
    {.op = WF_OP_##name_, .name = "cuda", .types = types_, .strided = strided_,                    \
     .workspace = workspace_, .launch = launch_}
extern "C" const wf_kernel wf_cuda_reduce_kernels[] = {
    ROW(sum, WF_TYPES_NUMBER, true, reduce_workspace, launch_sum),
    ROW(mean, WF_TYPES_FLOAT, true, reduce_workspace, launch_sum),
    ROW(max, WF_TYPES_NUMBER, true, reduce_workspace, launch_max),
    ROW(argmax, WF_TYPES_NUMBER, true, NULL, launch_argmax),
    ROW(top_k, WF_TYPES_FLOAT, true, wf_cuda_top_k_workspace, wf_cuda_launch_top_k),
    ROW(global_norm, WF_TYPES_FLOAT, false, global_norm_workspace, launch_global_norm),
    {},
};
