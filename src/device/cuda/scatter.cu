/* SPDX-License-Identifier: MIT */
/*
 * scatter.cu - scatter_add_rows: adds rows of `from` to rows of x, in a fixed order.
 *
 * 1. A stable radix sort orders the entries by row, 8 bits at a time. An entry whose row is out of
 *    range is reported as a fault, sorted to the end and ignored.
 * 2. The sorted list is cut into tiles of equally many entries, so a frequent row costs no more than
 *    many rare ones. A block sums the entries of each row in its tile. Rows within one tile are
 *    finished then; partial sums of rows that span tiles are stored.
 * 3. The block of a row's first tile adds the partial sums in tile order.
 *
 * Atomic additions of floats would add in an order that changes from run to run. Here entries of a
 * row are added in the order of the indices: the sort is stable, tiles are cut by position, and all
 * sizes depend on the shapes only. Sums are f32 and rounded once per row.
 */
#include "device/cuda/rows.cuh"

#define WARPS 8 /* per block */
#define THREADS (32 * WARPS)
#define DIGITS 256 /* one per thread */

/* ---- The sort ---- */

typedef struct {
    uint32_t *row;   /* x's row count means out of range */
    uint32_t *entry; /* index in `from` */
} sorted;

/* One pass over n entries: a block sorts `tile` of them, a warp tile / WARPS. */
typedef struct {
    int64_t n, tile;
    int shift;              /* of the digit: bits [shift, shift + 8) of the row */
    const int32_t *indices; /* first pass only, then NULL */
    int64_t rows;
    sorted from, to;
    uint32_t *histogram; /* [blocks][DIGITS] */
    uint64_t *fault;
} sorting;

static __device__ __forceinline__ uint32_t row_of(const sorting &s, int64_t i)
{
    if (!s.indices)
        return s.from.row[i];
    const int32_t row = s.indices[i];
    return row >= 0 && row < s.rows ? (uint32_t)row : (uint32_t)s.rows;
}

static __device__ __forceinline__ int digit_of(const sorting &s, uint32_t row)
{
    return (int)(row >> s.shift & (DIGITS - 1));
}

/* First half of a pass: the number of entries of each digit, per block. Integer atomics are exact,
 * so their order does not matter. */
static __global__ void __launch_bounds__(THREADS) count_kernel(sorting s)
{
    __shared__ uint32_t count[DIGITS];
    for (int d = threadIdx.x; d < DIGITS; d += THREADS)
        count[d] = 0;
    __syncthreads(); /* all counters are 0 */
    const int64_t begin = blockIdx.x * s.tile, stop = begin + s.tile;
    const int64_t end = stop < s.n ? stop : s.n;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const uint32_t row = row_of(s, i);
        if (s.indices && row == (uint32_t)s.rows)
            wf_fault(s.fault, WF_CUDA_FAULT_INDEX, i, s.indices[i]);
        atomicAdd(&count[digit_of(s, row)], 1u);
    }
    __syncthreads();
    for (int d = threadIdx.x; d < DIGITS; d += THREADS)
        s.histogram[(int64_t)blockIdx.x * DIGITS + d] = count[d];
}

/* The position of the block's first entry of each digit; thread d handles digit d: entries of lower
 * digits in all blocks, and of this digit in earlier blocks. */
static __device__ __forceinline__ uint32_t first_of_digit(const sorting &s, uint32_t *scratch)
{
    uint32_t before = 0, all = 0;
    for (unsigned b = 0; b < gridDim.x; b++) {
        const uint32_t count = s.histogram[(int64_t)b * DIGITS + threadIdx.x];
        before += b < blockIdx.x ? count : 0;
        all += count;
    }
    /* Add the entries of all lower digits: an inclusive prefix sum by warps, minus the digit
     * itself. */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = all;
    for (int k = 1; k < 32; k *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, sum, k);
        sum += lane >= k ? other : 0;
    }
    if (lane == 31)
        scratch[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++)
        sum += scratch[w];
    return sum - all + before;
}

/* The mask of active lanes with this lane's digit. */
static __device__ __forceinline__ uint32_t peers_of(int digit, bool there)
{
    uint32_t peers = __ballot_sync(0xffffffffu, there);
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const uint32_t ones = __ballot_sync(0xffffffffu, digit >> bit & 1);
        peers &= digit >> bit & 1 ? ones : ~ones;
    }
    return peers;
}

/* Second half: moves every entry to its place. Warps of a block take consecutive parts of its tile,
 * so places in ascending order keep the sort stable. */
static __global__ void __launch_bounds__(THREADS) place_kernel(sorting s)
{
    __shared__ uint32_t next[WARPS][DIGITS], scratch[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t share = s.tile / WARPS, begin = blockIdx.x * s.tile + warp * share;
    const int64_t end = begin + share < s.n ? begin + share : s.n;
    for (int d = threadIdx.x; d < WARPS * DIGITS; d += THREADS)
        next[d / DIGITS][d % DIGITS] = 0;
    __syncthreads(); /* all counters are 0 */
    for (int64_t i = begin + lane; i < end; i += 32)
        atomicAdd(&next[warp][digit_of(s, row_of(s, i))], 1u);
    uint32_t at = first_of_digit(s, scratch);
    __syncthreads(); /* counts of all warps are complete */
    /* Turn counts into positions: warp w starts after the entries of earlier warps. */
    for (int w = 0; w < WARPS; w++) {
        const uint32_t count = next[w][threadIdx.x];
        next[w][threadIdx.x] = at;
        at += count;
    }
    __syncthreads(); /* positions are complete */
    /* Ascending, 32 entries at a time: entries of one digit keep their order. */
    for (int64_t first = begin; first < end; first += 32) {
        const int64_t i = first + lane;
        const bool there = i < end;
        const uint32_t row = there ? row_of(s, i) : 0;
        const int digit = digit_of(s, row);
        const uint32_t peers = peers_of(digit, there), before = peers & ((1u << lane) - 1);
        /* Read by all peers before the first of them advances it. */
        const uint32_t place = next[warp][digit] + __popc(before);
        __syncwarp();
        if (there) {
            s.to.row[place] = row;
            s.to.entry[place] = s.indices ? (uint32_t)i : s.from.entry[i];
            if (before == 0)
                next[warp][digit] += __popc(peers);
        }
        __syncwarp(); /* the next 32 entries read the new position */
    }
}

/* ---- The sums ---- */

typedef struct {
    const uint32_t *row, *entry; /* sorted */
    int64_t n, tile, rows;       /* entries in all, entries of a tile, rows of x */
    uint32_t tiles;              /* blocks cover all tiles of the first columns, then of the next */
    int64_t columns;
    /* [tiles][2][columns]: sums of the row from before the tile, and of the row that continues
     * after it. */
    float *partial;
} scattering;

#define MAX_TILE 64 /* entries; bounds the shared memory of a tile */
#define AHEAD 8     /* entries loaded before any is added */

template <typename T, int V>
/* Rounds once: the sum of all entries of the row is in f32. */
static __device__ __forceinline__ void add_to(T *to, const float (&sum)[V])
{
    wf_pack<T, V> x = wf_load_pack<T, V>(to);
#pragma unroll
    for (int k = 0; k < V; k++)
        x.x[k] = wf_round<T>(wf_load(x.x[k]) + sum[k]);
    wf_store_pack<T, V>(to, x);
}

/* Stores a partial sum in f32. */
template <int V> static __device__ __forceinline__ void keep(float *to, const float (&sum)[V])
{
    constexpr int P = V < 4 ? V : 4;
#pragma unroll
    for (int i = 0; i < V; i += P) {
        wf_pack<float, P> x;
#pragma unroll
        for (int k = 0; k < P; k++)
            x.x[k] = sum[i + k];
        wf_store_pack<float, P>(to + i, x);
    }
}

/* Second step. A block handles one tile and blockDim.x packs of columns. y aliases x. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS) tile_kernel(scattering s, const T *from, T *y)
{
    /* The rows of the tile's entries, and of the entries before and after it. */
    __shared__ uint32_t rows[MAX_TILE + 2], entries[MAX_TILE];
    const int64_t chunk = blockIdx.x / s.tiles, t = blockIdx.x % s.tiles;
    const int64_t begin = t * s.tile, stop = begin + s.tile;
    const int count = (int)((stop < s.n ? stop : s.n) - begin);
    const uint32_t none = (uint32_t)s.rows;
    for (int i = threadIdx.x; i < count + 2; i += blockDim.x) {
        const int64_t at = begin + i - 1;
        rows[i] = at >= 0 && at < s.n ? s.row[at] : none;
    }
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        entries[i] = s.entry[begin + i];
    __syncthreads();
    const int64_t column = (chunk * blockDim.x + threadIdx.x) * V;
    if (column >= s.columns)
        return;
    from += column;
    y += column;
    float *partial = s.partial + t * 2 * s.columns + column;

    float sum[V] = {};
    bool began = rows[0] != rows[1]; /* whether the current row started in this tile */
    for (int first = 0; first < count; first += AHEAD) {
        wf_pack<T, V> x[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int e = first + u < count ? first + u : first;
            x[u] = wf_load_pack<T, V>(from + entries[e] * s.columns);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (first + u >= count)
                break;
            const uint32_t row = rows[first + u + 1];
            const bool ends = rows[first + u + 2] != row;
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] += wf_load(x[u].x[k]);
            if (!ends && first + u + 1 < count) /* the row goes on in this tile */
                continue;
            if (row == none) /* out of range: dropped */
                ;
            else if (began && ends)
                add_to<T, V>(y + row * s.columns, sum);
            else
                /* Slot 0: the row came from the tile before; slot 1: it continues in the next. */
                keep<V>(partial + (began ? s.columns : 0), sum);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = 0;
            began = true;
        }
    }
}

/* The last tile with entries of `row`, which has entries in tiles t and t + 1. */
static __device__ __forceinline__ int64_t last_tile(const scattering &s, int64_t t, uint32_t row)
{
    const int64_t tiles = s.tiles;
    /* Invariant: tile `low` starts with the row (or is t), tile `high` does not. */
    int64_t low = t + 1, high = t + 2;
    for (int64_t step = 1; high < tiles && s.row[high * s.tile] == row; step *= 2) {
        low = high;
        high += step;
    }
    high = high < tiles ? high : tiles;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (s.row[middle * s.tile] == row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#define LANES 32 /* packs of columns per block */

/* Third step. A block handles the row that continues after tile t, if the row began there; all
 * other blocks return. Eight groups of 32 lanes take every eighth tile, and are added in order. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS) join_kernel(scattering s, T *y)
{
    __shared__ float scratch[THREADS * V];
    const int64_t chunk = blockIdx.x / s.tiles, t = blockIdx.x % s.tiles;
    const int64_t begin = t * s.tile, end = begin + s.tile;
    if (end >= s.n) /* the last tile: no row continues */
        return;
    const uint32_t row = s.row[end - 1];
    const bool began = begin == 0 || s.row[begin - 1] != row;
    if (row == (uint32_t)s.rows || s.row[end] != row || !began)
        return;
    const int64_t last = last_tile(s, t, row);
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int64_t column = (chunk * LANES + lane) * V;
    const bool there = column < s.columns;
    float sum[V] = {};
    if (there) {
        constexpr int UNROLL = 4;
        for (int64_t i = t + group; i <= last; i += UNROLL * WARPS) {
            wf_pack<float, V> x[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const int64_t tile = i + u * WARPS;
                if (tile <= last)
                    x[u] = wf_load_pack<float, V>(s.partial + (tile * 2 + (tile == t)) * s.columns +
                                                  column);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                if (i + u * WARPS <= last)
#pragma unroll
                    for (int k = 0; k < V; k++)
                        sum[k] += x[u].x[k];
        }
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        scratch[k * THREADS + threadIdx.x] = sum[k];
    __syncthreads();         /* all groups have stored their sums */
    if (group > 0 || !there) /* after the barrier: all threads must reach it */
        return;
    for (int g = 1; g < WARPS; g++)
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += scratch[k * THREADS + g * LANES + lane];
    add_to<T, V>(y + row * s.columns + column, sum);
}

/* ---- Launching ---- */

/* Sizes and workspace offsets, derived from the shapes. */
typedef struct {
    int64_t n, rows, columns;
    int64_t sort_tile, sort_blocks;
    int64_t tile, tiles;
    size_t lists[4], histogram, partial, bytes;
} layout;

static layout layout_of(int64_t n, int64_t rows, int64_t columns)
{
    layout s = {.n = n, .rows = rows, .columns = columns};
    s.sort_tile = (n / 64 + 2047) / 2048 * 2048; /* about 64 blocks at most */
    s.sort_tile = s.sort_tile > 2048 ? s.sort_tile : 2048;
    s.sort_blocks = (n + s.sort_tile - 1) / s.sort_tile;
    for (s.tile = 8; s.tile < MAX_TILE && n / s.tile > 1024;)
        s.tile *= 2;
    s.tiles = (n + s.tile - 1) / s.tile;
    size_t at = 0;
    /* Lists start at multiples of 256 bytes. */
    const size_t list = ((size_t)n * sizeof(uint32_t) + 255) / 256 * 256;
    for (int i = 0; i < 4; i++, at += list)
        s.lists[i] = at;
    s.histogram = at;
    at += (size_t)s.sort_blocks * DIGITS * sizeof(uint32_t);
    s.partial = at;
    s.bytes = at + (size_t)(s.tiles * 2 * columns) * sizeof(float);
    return s;
}

size_t wf_cuda_scatter_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    const wf_dims *x = &n->in[0]->shape;
    int64_t columns = 1;
    for (int64_t i = 1; i < x->n; i++)
        columns *= x->d[i];
    const int64_t entries = n->in[1]->shape.d[0];
    return entries > 0 && columns > 0 ? layout_of(entries, x->d[0], columns).bytes : 0;
}

/* Returns the pair of lists that holds the sorted result. */
static sorted sort_entries(const wf_launch *l, const layout *s)
{
    char *base = (char *)l->workspace;
    const sorted pair[2] = {{(uint32_t *)(base + s->lists[0]), (uint32_t *)(base + s->lists[1])},
                            {(uint32_t *)(base + s->lists[2]), (uint32_t *)(base + s->lists[3])}};
    sorting sort = {.n = s->n,
                    .tile = s->sort_tile,
                    .indices = (const int32_t *)l->in[1].data,
                    .rows = s->rows,
                    .histogram = (uint32_t *)(base + s->histogram),
                    .fault = l->fault};
    int which = 0; /* the first pass reads the indices, so no list is needed yet */
    do {
        sort.from = pair[!which];
        sort.to = pair[which];
        WF_RUN(count_kernel, (unsigned)s->sort_blocks, THREADS, 0, wf_cuda_stream(l))
        (sort);
        WF_RUN(place_kernel, (unsigned)s->sort_blocks, THREADS, 0, wf_cuda_stream(l))
        (sort);
        sort.indices = NULL;
        sort.shift += 8;
        which = !which;
        /* As many passes as the row count has bytes; its value itself must sort last. */
    } while (s->rows >> sort.shift > 0);
    return sort.to;
}

template <typename T, int V>
static void add_entries(const wf_launch *l, const layout *s, sorted list)
{
    const scattering job = {.row = list.row,
                            .entry = list.entry,
                            .n = s->n,
                            .tile = s->tile,
                            .rows = s->rows,
                            .tiles = (uint32_t)s->tiles,
                            .columns = s->columns,
                            .partial = (float *)((char *)l->workspace + s->partial)};
    const int64_t packs = s->columns / V;
    const int64_t threads = packs < THREADS ? (packs + 31) / 32 * 32 : THREADS;
    WF_RUN((tile_kernel<T, V>), (unsigned)(s->tiles * ((packs + threads - 1) / threads)),
           (unsigned)threads, 0, wf_cuda_stream(l))
    (job, (const T *)l->in[2].data, (T *)l->out[0].data);
    constexpr int P = V < 4 ? V : 4; /* f32 sums: at most 4 per pack */
    const int64_t sums = s->columns / P;
    WF_RUN((join_kernel<T, P>), (unsigned)(s->tiles * ((sums + LANES - 1) / LANES)), THREADS, 0,
           wf_cuda_stream(l))
    (job, (T *)l->out[0].data);
}

wf_status wf_cuda_launch_scatter(const wf_launch *l)
{
    const wf_view *x = &l->in[0], *from = &l->in[2], *out = &l->out[0];
    const int64_t rows = x->dim[0], count = wf_view_count(x), n = l->in[1].dim[0];
    if (!out->data || count == 0)
        return WF_OK;
    if (out->data != x->data) /* not in place: the sums are added to a copy */
        wf_cuda_copy_dense(l, x, out->data);
    if (n == 0)
        return wf_cuda_launched(l);
    const layout s = layout_of(n, rows, count / rows);
    const sorted list = sort_entries(l, &s);
    wf_with_float(x->type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = WF_WIDE(T);
        if (s.columns % V == 0 && (uintptr_t)from->data % 16 == 0 && (uintptr_t)out->data % 16 == 0)
            add_entries<T, V>(l, &s, list);
        else
            add_entries<T, 1>(l, &s, list);
    });
    return wf_cuda_launched(l);
}
