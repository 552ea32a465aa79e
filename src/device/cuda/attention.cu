/* SPDX-License-Identifier: MIT */
/*
 * attention.cu - attention and its gradient in f32 arithmetic, for all that the ops allow: mixed
 * types, any head size, positions in any order, page pools.
 *
 * A lane is a pair of a token and one of the query heads that share a kv head, numbered through a
 * sequence. A block owns TILE rows (lanes or keys of one sequence) and iterates over tiles of
 * columns (keys or lanes): it computes TILE x TILE scores or their gradients, then sums over the
 * columns into at most WIDTH elements of a head. Wider heads use several blocks, which repeat the
 * scores. No two blocks add to one sum, so the summation order depends on the shape only.
 *
 * Forward: rows are lanes, columns are a group of keys; attention.cuh defines the order of sums. dq:
 * the same rows and columns. dk and dv: rows are keys, columns are lanes. delta, one value per lane, is
 * computed first into the workspace. Scores never exist in global memory.
 */
#include "device/cuda/attention.cuh"
#include "device/cuda/flash_launch.h"

enum {
    TILE = WF_ATTENTION_GROUP, /* rows and columns of scores per block */
    THREADS = 256,             /* 16 x 16, each with 4 x 4 pairs: rows y + 16 i, columns x + 16 j */
    SIDE = 16,                 /* threads along each side */
    EACH = TILE / SIDE,        /* rows and columns per thread */
    DEPTH = 32,                /* elements of a row per step of a dot product */
    FEW = 16                   /* rows of values in shared memory at once */
};

/* TILE rows or columns of scores; offsets are negative for missing ones. */
typedef struct {
    /* Offsets in q, do and o (or dq), or in k, v and dk; in elements. */
    int64_t first[TILE], second[TILE], out[TILE];
    int position[TILE];
    float lse[TILE], delta[TILE]; /* for lanes */
} side;

/* Shared memory of a block. Operands and values are never needed at the same time. */
typedef struct {
    union {
        float operands[2][TILE][DEPTH + 1]; /* + 1: rows start in different banks */
        float values[FEW * 128];
    };
    float pairs[TILE][TILE + 1]; /* probabilities, or gradients of scores */
    side row, column;
    int low, high; /* smallest and largest position of the rows */
    int any;       /* whether any row may see any column */
} shared;

/* ---- Selecting rows and columns ---- */

/* The range of tile t when each token has per_token rows. Range s starts with tile
 * b * per_token / TILE + s, where b is its first token; some tiles are therefore empty. */
static __device__ wf_attention_stretch find_stretch(const wf_attention_problem &a, int64_t t,
                                                    int64_t per_token)
{
    wf_attention_stretch s = wf_attention_find(a, [&](int number) {
        return wf_attention_boundary(a, number) * per_token / TILE + number <= t;
    });
    s.first = (t - (s.begin * per_token / TILE + s.number)) * TILE;
    return s;
}

static int64_t tile_count(const wf_attention_problem *a, int64_t per_token)
{
    return a->n * per_token / TILE + a->sequences + 2;
}

/* Sets entry c of a side to lane x of the range. */
static __device__ void put_lane(const wf_attention_problem &a, const wf_attention_stretch &s,
                                int kv_head, int64_t x, int c, side &to)
{
    const int64_t i = s.begin + x / a.group, h = (int64_t)kv_head * a.group + x % a.group;
    const bool there = i < s.end;
    to.first[c] = there ? wf_attention_offset(a.q, 0, i, h) : -1;
    to.position[c] = there ? a.positions[i] : 0;
    if (a.dout.data) {
        to.second[c] = there ? wf_attention_offset(a.dout, 0, i, h) : -1;
        to.out[c] = there ? wf_attention_offset(a.dq, 0, i, h) : -1;
        to.lse[c] = there ? a.lse[i * a.lse_row + h] : 0;
        to.delta[c] = there ? a.delta[i * a.heads + h] : 0; /* delta is dense */
    } else {
        to.out[c] = there ? wf_attention_offset(a.o, 0, i, h) : -1;
    }
}

/* Sets entry c of a side to key j. */
static __device__ void put_key(const wf_attention_problem &a, const wf_attention_stretch &s,
                               int kv_head, int64_t j, int c, side &to)
{
    bool there = j < wf_attention_keys(a, s);
    int64_t page = 0, row = s.begin + j;
    /* Keys of a page pool have the positions 0, 1, ... */
    to.position[c] = there && !a.table ? a.positions[row] : (int)j;
    if (there && a.table) {
        page = a.table[s.sequence * a.table_row + j / a.page];
        row = j % a.page;
        there = page >= 0 && page < a.pool;
    }
    to.first[c] = there ? wf_attention_offset(a.k, page, row, kv_head) : -1;
    to.second[c] = there ? wf_attention_offset(a.v, page, row, kv_head) : -1;
    to.out[c] = -1;
}

/* Reports that key j of column c has an invalid page, if a row sees it. */
static __device__ void tell_page(const wf_attention_problem &a, const shared &sh,
                                 const wf_attention_stretch &s, int64_t j)
{
    const int64_t at = s.sequence * (a.longest / a.page) + j / a.page;
    const int32_t page = a.table[s.sequence * a.table_row + j / a.page];
    for (int i = 0; i < TILE; i++)
        if (sh.row.first[i] >= 0 && wf_attention_sees(a, sh.row.position[i], j))
            return wf_fault(a.fault, WF_CUDA_FAULT_PAGE, at, page);
}

/* Computes the rows' bounds of positions. All threads call it after the rows are set. */
static __device__ void find_bounds(shared &sh)
{
    __syncthreads(); /* all rows are set */
    if (threadIdx.x == 0) {
        sh.low = INT32_MAX;
        sh.high = INT32_MIN;
        for (int i = 0; i < TILE; i++)
            if (sh.row.first[i] >= 0) {
                sh.low = min(sh.low, sh.row.position[i]);
                sh.high = max(sh.high, sh.row.position[i]);
            }
    }
    __syncthreads(); /* all threads see the bounds */
}

/* Sets a tile of columns by put(c), drops those that no row can see, and returns whether any
 * remains. All threads call it. */
template <typename F>
static __device__ bool put_columns(const wf_attention_problem &a, shared &sh, bool rows_are_queries,
                                   F put)
{
    const int c = (int)threadIdx.x;
    __syncthreads(); /* the previous tile is no longer read */
    if (c == 0)
        sh.any = 0;
    __syncthreads(); /* any was cleared before a thread sets it */
    if (c < TILE) {
        put(c);
        const int64_t p = sh.column.position[c];
        const bool hidden =
            rows_are_queries
                /* Behind every row's window, or after every row. */
                ? (a.causal && p > sh.high) || (a.window > 0 && sh.low - p >= a.window)
                : (a.causal && p < sh.low) || (a.window > 0 && p - sh.high >= a.window);
        if (hidden)
            sh.column.first[c] = sh.column.second[c] = -1;
        if (sh.column.first[c] >= 0)
            sh.any = 1;
    }
    __syncthreads(); /* all columns are set */
    return sh.any != 0;
}

/* ---- Dot products ---- */

/* Loads elements [at, at + DEPTH) of TILE rows, 0 for missing ones. */
static __device__ void load_operand(float (*to)[DEPTH + 1], const wf_attention_rows &x,
                                    const int64_t *offsets, int at, int length)
{
    const int c = (int)threadIdx.x % DEPTH, step = THREADS / DEPTH;
#pragma unroll
    for (int i = 0; i < TILE / step; i++) {
        const int r = (int)threadIdx.x / DEPTH + i * step;
        const bool there = offsets[r] >= 0 && at + c < length;
        to[r][c] = there ? wf_attention_load(x.type, x.data, offsets[r] + at + c) : 0.0f;
    }
}

/* sum[i][j] = row . column, over `length` elements. */
static __device__ void multiply(shared &sh, float (&sum)[EACH][EACH], const wf_attention_rows &row,
                                const int64_t *rows, const wf_attention_rows &column,
                                const int64_t *columns, int length)
{
    const int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            sum[i][j] = 0;
    for (int at = 0; at < length; at += DEPTH) {
        __syncthreads(); /* the previous operands were read */
        load_operand(sh.operands[0], row, rows, at, length);
        load_operand(sh.operands[1], column, columns, at, length);
        __syncthreads(); /* both operands are loaded */
#pragma unroll 8
        for (int d = 0; d < DEPTH; d++) {
            float u[EACH], v[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                u[i] = sh.operands[0][y + i * SIDE][d];
                v[i] = sh.operands[1][x + i * SIDE][d];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sum[i][j] = __fmaf_rn(u[i], v[j], sum[i][j]);
        }
    }
}

/* sum[i][c] += pairs[row][column] times element at + x + 16 c of the column's values. */
template <int WIDTH>
static __device__ void add_values(shared &sh, float (&sum)[EACH][WIDTH / SIDE],
                                  const wf_attention_rows &value, const int64_t *columns, int at,
                                  int length)
{
    const int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE;
    for (int from = 0; from < TILE; from += FEW) {
        __syncthreads(); /* pairs are complete, and the previous values were read */
        for (int item = (int)threadIdx.x; item < FEW * WIDTH; item += THREADS) {
            const int r = item / WIDTH, c = at + item % WIDTH;
            const int64_t begin = columns[from + r];
            sh.values[item] = begin >= 0 && c < length
                                  ? wf_attention_load(value.type, value.data, begin + c)
                                  : 0.0f;
        }
        __syncthreads(); /* the values are loaded */
#pragma unroll 4
        for (int r = 0; r < FEW; r++) {
            float p[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++)
                p[i] = sh.pairs[y + i * SIDE][from + r];
#pragma unroll
            for (int c = 0; c < WIDTH / SIDE; c++) {
                const float v = sh.values[r * WIDTH + x + c * SIDE];
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    sum[i][c] = __fmaf_rn(p[i], v, sum[i][c]);
            }
        }
    }
}

template <int WIDTH>
static __device__ void store_sums(shared &sh, const float (&sum)[EACH][WIDTH / SIDE],
                                  const float (&factor)[EACH], const wf_attention_rows &to, int at,
                                  int length)
{
    const int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int c = 0; c < WIDTH / SIDE; c++) {
            const int64_t begin = sh.row.out[y + i * SIDE];
            if (begin >= 0 && at + x + c * SIDE < length)
                wf_attention_store(to.type, to.data, begin + at + x + c * SIDE,
                                   wf_attention_result(sum[i][c], factor[i]));
        }
}

/* ---- Forward ---- */

/* Softmax of a row so far, shared by 16 neighbouring threads. */
typedef struct {
    float most, sum;
} running;

/* Over the 16 threads of a row, which are half a warp. */
static __device__ __forceinline__ float side_max(float x)
{
#pragma unroll
    for (int k = SIDE / 2; k > 0; k /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
    return x;
}

static __device__ __forceinline__ float side_sum(float x)
{
#pragma unroll
    for (int k = SIDE / 2; k > 0; k /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

/* Turns the scores of a group of keys into unnormalized probabilities in sh.pairs, and merges their
 * sums. The values have yet to be merged by m. */
static __device__ void soften(const wf_attention_problem &a, shared &sh, float (&s)[EACH][EACH],
                              running (&r)[EACH], wf_attention_merging (&m)[EACH])
{
    static_assert(EACH == 4, "four columns per thread are added below");
    const int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int row = y + i * SIDE;
        float most = -INFINITY, p[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int column = x + j * SIDE;
            const bool seen =
                sh.row.first[row] >= 0 && sh.column.first[column] >= 0 &&
                wf_attention_sees(a, sh.row.position[row], sh.column.position[column]);
            s[i][j] = seen ? wf_attention_score(a, s[i][j]) : -INFINITY;
            most = fmaxf(most, s[i][j]);
        }
        most = side_max(most);
        const float base = wf_attention_base(most);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            sh.pairs[row][x + j * SIDE] = p[j] = expf(s[i][j] - base);
        /* Keys 32 apart, then 16; side_sum adds the rest. */
        const float sum = side_sum(__fadd_rn(__fadd_rn(p[0], p[2]), __fadd_rn(p[1], p[3])));
        m[i] = wf_attention_merging_of(r[i].most, most);
        r[i].most = m[i].most;
        r[i].sum = wf_attention_merge(m[i], r[i].sum, sum);
    }
}

/* Merges the values of a group of keys. */
template <int WIDTH>
static __device__ void merge_values(const wf_attention_problem &a, shared &sh,
                                    float (&sum)[EACH][WIDTH / SIDE],
                                    const wf_attention_merging (&m)[EACH], int at)
{
    float group[EACH][WIDTH / SIDE] = {};
    add_values<WIDTH>(sh, group, a.v, sh.column.second, at, a.d_v);
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int c = 0; c < WIDTH / SIDE; c++)
            sum[i][c] = wf_attention_merge(m[i], sum[i][c], group[i][c]);
}

/* Computes o and lse of one tile of lanes, for elements [at, at + WIDTH) of a head. */
template <int WIDTH>
static __device__ void attend(const wf_attention_problem &a, shared &sh,
                              const wf_attention_stretch &s, int kv_head, int at)
{
    if (threadIdx.x < TILE)
        put_lane(a, s, kv_head, s.first + threadIdx.x, (int)threadIdx.x, sh.row);
    find_bounds(sh);
    float sum[EACH][WIDTH / SIDE] = {}, pairs[EACH][EACH], factor[EACH];
    running r[EACH];
    wf_attention_merging m[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        r[i] = {-INFINITY, 0};
    const int64_t keys = wf_attention_keys(a, s);
    for (int64_t j = 0; j < keys; j += TILE) {
        const bool any = put_columns(a, sh, true, [&](int c) {
            put_key(a, s, kv_head, j + c, c, sh.column);
            if (a.table && sh.column.first[c] < 0 && j + c < keys)
                tell_page(a, sh, s, j + c);
        });
        if (!any)
            continue;
        multiply(sh, pairs, a.q, sh.row.first, a.k, sh.column.first, a.d);
        soften(a, sh, pairs, r, m);
        merge_values<WIDTH>(a, sh, sum, m, at);
    }
    const int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        factor[i] = wf_attention_factor(r[i].sum);
        const int64_t lane = s.first + y + i * SIDE, token = s.begin + lane / a.group;
        if (a.lse && at == 0 && x == 0 && token < s.end) /* one block and one thread per row */
            a.lse[token * a.lse_row + kv_head * a.group + lane % a.group] =
                wf_attention_lse(r[i].most, r[i].sum);
    }
    if (a.o.data)
        store_sums<WIDTH>(sh, sum, factor, a.o, at, a.d_v);
}

/* Blocks: parts of the head for each kv head for each tile; last tiles first, since they see most
 * keys. */
template <int WIDTH>
static __global__ void __launch_bounds__(THREADS, 2)
    attention_forward(const wf_attention_problem a, int64_t tiles)
{
    __shared__ shared sh;
    if (a.irregular && !*a.irregular) /* the regular case was handled by flash attention */
        return;
    wf_attention_check(a);
    const int parts = max((a.d_v + WIDTH - 1) / WIDTH, 1);
    for (int64_t item = blockIdx.x; item < tiles * a.kv_heads * parts; item += gridDim.x) {
        const int64_t t = tiles - 1 - item / parts / a.kv_heads;
        const wf_attention_stretch s = find_stretch(a, t, a.group);
        if (s.first >= (int64_t)(s.end - s.begin) * a.group)
            continue;
        __syncthreads(); /* the last tile's rows are no longer read */
        attend<WIDTH>(a, sh, s, (int)(item / parts % a.kv_heads), (int)(item % parts) * WIDTH);
    }
}

/* ---- Gradient ----
 *
 * p = e^(s - lse), delta = do . o, ds = p (do . v - delta), then the derivatives of cap and scale. */

/* delta [n, heads] = do . o. One warp per row; lanes take every 32nd element. */
static __global__ void attention_delta(const wf_attention_problem a)
{
    if (a.irregular && !*a.irregular)
        return;
    wf_attention_check(a);
    const int64_t rows = (int64_t)a.n * a.heads, step = (int64_t)gridDim.x * blockDim.x / 32;
    for (int64_t r = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows; r += step) {
        const int64_t o = wf_attention_offset(a.o, 0, r / a.heads, r % a.heads);
        const int64_t dout = wf_attention_offset(a.dout, 0, r / a.heads, r % a.heads);
        float sum = 0;
        for (int c = (int)threadIdx.x % 32; c < a.d_v; c += 32)
            sum += wf_attention_load(a.o.type, a.o.data, o + c) *
                   wf_attention_load(a.dout.type, a.dout.data, dout + c);
        sum = wf_warp_sum(sum);
        if (threadIdx.x % 32 == 0)
            a.delta[r] = sum;
    }
}

/* Writes p, or with GRADIENT ds, to sh.pairs. Lanes are the rows or the columns. */
template <bool GRADIENT>
static __device__ void differentiate(const wf_attention_problem &a, shared &sh,
                                     const float (&s)[EACH][EACH], const float (&dp)[EACH][EACH],
                                     bool rows_are_lanes)
{
    const int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE;
    const side &lanes = rows_are_lanes ? sh.row : sh.column;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int row = y + i * SIDE, column = x + j * SIDE;
            const int lane = rows_are_lanes ? row : column;
            const int64_t here = sh.row.position[row], there = sh.column.position[column];
            float value = 0;
            if (sh.row.first[row] >= 0 && sh.column.first[column] >= 0 &&
                (rows_are_lanes ? wf_attention_sees(a, here, there)
                                : wf_attention_sees(a, there, here))) {
                const float capped = wf_attention_score(a, s[i][j]),
                            /* d/dx of cap tanh(x / cap) is 1 - (capped / cap)^2. */
                    slope = a.cap != 0 ? capped / a.cap : 0.0f;
                value = expf(capped - lanes.lse[lane]);
                if (GRADIENT)
                    value *= (dp[i][j] - lanes.delta[lane]) * (1 - slope * slope) * a.scale;
            }
            sh.pairs[row][column] = value;
        }
}

/* dq of one tile of lanes: sums ds k over the keys. */
template <int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    attention_dq(const wf_attention_problem a, int64_t tiles)
{
    __shared__ shared sh;
    if (a.irregular && !*a.irregular)
        return;
    const int parts = (a.d + WIDTH - 1) / WIDTH;
    for (int64_t item = blockIdx.x; item < tiles * a.kv_heads * parts; item += gridDim.x) {
        const wf_attention_stretch s =
            find_stretch(a, tiles - 1 - item / parts / a.kv_heads, a.group);
        const int kv_head = (int)(item / parts % a.kv_heads), at = (int)(item % parts) * WIDTH;
        if (s.first >= (int64_t)(s.end - s.begin) * a.group)
            continue;
        __syncthreads();
        if (threadIdx.x < TILE)
            put_lane(a, s, kv_head, s.first + threadIdx.x, (int)threadIdx.x, sh.row);
        find_bounds(sh);
        float sum[EACH][WIDTH / SIDE] = {}, pairs[EACH][EACH], dp[EACH][EACH];
        const float ones[EACH] = {1, 1, 1, 1};
        const int64_t keys = wf_attention_keys(a, s);
        for (int64_t j = 0; j < keys; j += TILE) {
            if (!put_columns(a, sh, true,
                             [&](int c) { put_key(a, s, kv_head, j + c, c, sh.column); }))
                continue;
            multiply(sh, pairs, a.q, sh.row.first, a.k, sh.column.first, a.d);
            multiply(sh, dp, a.dout, sh.row.second, a.v, sh.column.second, a.d_v);
            differentiate<true>(a, sh, pairs, dp, true);
            add_values<WIDTH>(sh, sum, a.k, sh.column.first, at, a.d);
        }
        store_sums<WIDTH>(sh, sum, ones, a.dq, at, a.d);
    }
}

/* Computes elements of dk (or dv with VALUES) from `at` on. */
template <int WIDTH, bool VALUES>
static __device__ void sum_lanes(const wf_attention_problem &a, shared &sh,
                                 const wf_attention_stretch &s, int kv_head, int at)
{
    if (threadIdx.x < TILE) {
        const int c = (int)threadIdx.x;
        const int64_t i = s.begin + s.first + c;
        put_key(a, s, kv_head, s.first + c, c, sh.row);
        if (i < s.end)
            sh.row.out[c] = wf_attention_offset(VALUES ? a.dv : a.dk, 0, i, kv_head);
    }
    find_bounds(sh);
    float sum[EACH][WIDTH / SIDE] = {}, pairs[EACH][EACH], dp[EACH][EACH] = {};
    const float ones[EACH] = {1, 1, 1, 1};
    const int64_t lanes = s.sequence < 0 ? 0 : (int64_t)(s.end - s.begin) * a.group;
    for (int64_t j = 0; j < lanes; j += TILE) {
        if (!put_columns(a, sh, false,
                         [&](int c) { put_lane(a, s, kv_head, j + c, c, sh.column); }))
            continue;
        multiply(sh, pairs, a.k, sh.row.first, a.q, sh.column.first, a.d);
        if (!VALUES)
            multiply(sh, dp, a.v, sh.row.second, a.dout, sh.column.second, a.d_v);
        differentiate<!VALUES>(a, sh, pairs, dp, false);
        add_values<WIDTH>(sh, sum, VALUES ? a.dout : a.q,
                          VALUES ? sh.column.second : sh.column.first, at, VALUES ? a.d_v : a.d);
    }
    store_sums<WIDTH>(sh, sum, ones, VALUES ? a.dv : a.dk, at, VALUES ? a.d_v : a.d);
}

/* dk and dv of one tile of keys: sums over all lanes of the sequence, for all query heads of the
 * group. */
template <int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    attention_dkv(const wf_attention_problem a, int64_t tiles)
{
    __shared__ shared sh;
    if (a.irregular && !*a.irregular)
        return;
    const int parts_k = a.dk.data ? (a.d + WIDTH - 1) / WIDTH : 0;
    const int parts = parts_k + (a.dv.data ? (a.d_v + WIDTH - 1) / WIDTH : 0);
    for (int64_t item = blockIdx.x; item < tiles * a.kv_heads * parts; item += gridDim.x) {
        const wf_attention_stretch s = find_stretch(a, item / parts / a.kv_heads, 1);
        const int part = (int)(item % parts), kv_head = (int)(item / parts % a.kv_heads);
        if (s.first >= s.end - s.begin)
            continue;
        __syncthreads();
        if (part < parts_k)
            sum_lanes<WIDTH, false>(a, sh, s, kv_head, part * WIDTH);
        else
            sum_lanes<WIDTH, true>(a, sh, s, kv_head, (part - parts_k) * WIDTH);
    }
}

/* ---- Launch ---- */

/* Four blocks per multiprocessor; blocks loop over the items. */
static unsigned grid_for(const wf_launch *l, int64_t items)
{
    return wf_cuda_blocks(items, 1, wf_cuda_device_of(l)->processors * 4);
}

static void run_forward(const wf_launch *l, const int32_t *irregular)
{
    wf_attention_problem a = wf_attention_open_forward(l);
    a.irregular = irregular;
    if (irregular)
        a.fault = NULL; /* flash_launch.cu reported them */
    const int64_t tiles = tile_count(&a, a.group), parts = a.d_v <= 64 ? 1 : (a.d_v + 127) / 128;
    const auto kernel = a.d_v <= 64 ? attention_forward<64> : attention_forward<128>;
    WF_RUN(kernel, grid_for(l, tiles * a.kv_heads * parts), THREADS, 0, wf_cuda_stream(l))
    (a, tiles);
}

static void run_backward(const wf_launch *l, void *workspace, const int32_t *irregular)
{
    cudaStream_t stream = wf_cuda_stream(l);
    wf_attention_problem a = wf_attention_open(l, l->in + 1);
    a.dout = wf_attention_tokens(&l->in[0]);
    a.o = wf_attention_tokens(&l->in[6]);
    a.lse = (float *)l->in[7].data;
    a.lse_row = l->in[7].stride[0];
    a.delta = (float *)workspace;
    a.dq = wf_attention_tokens(&l->out[0]);
    a.dk = wf_attention_tokens(&l->out[1]);
    a.dv = wf_attention_tokens(&l->out[2]);
    a.irregular = irregular;
    a.fault = irregular ? NULL : l->fault; /* flash_launch.cu reported them */
    const int64_t tiles = tile_count(&a, a.group), key_tiles = tile_count(&a, 1);
    /* One size for all: a wide d or d_v makes both wide. */
    const bool narrow = a.d <= 64 && a.d_v <= 64;
    const int parts = narrow ? 1 : (a.d + 127) / 128, parts_v = narrow ? 1 : (a.d_v + 127) / 128;
    WF_RUN(attention_delta, grid_for(l, (int64_t)a.n * a.heads), THREADS, 0, stream)(a);
    if (a.dq.data) {
        const auto kernel = narrow ? attention_dq<64> : attention_dq<128>;
        WF_RUN(kernel, grid_for(l, tiles * a.kv_heads * parts), THREADS, 0, stream)(a, tiles);
    }
    if (a.dk.data || a.dv.data) {
        const auto kernel = narrow ? attention_dkv<64> : attention_dkv<128>;
        const int64_t items = key_tiles * a.kv_heads * (parts + parts_v);
        WF_RUN(kernel, grid_for(l, items), THREADS, 0, stream)(a, key_tiles);
    }
}

size_t wf_attention_workspace(const wf_device *, const wf_node *n)
{
    if (n->op != WF_OP_attention_grad)
        return 0;
    const wf_dims *q = &n->in[1]->shape;
    return (size_t)(q->d[0] * q->d[1]) * sizeof(float);
}

/* `irregular` not NULL: the kernels run only if the word on the device is not 0. */
void wf_attention_run(const wf_launch *l, void *workspace, const int32_t *irregular)
{
    const wf_view *q = &l->in[l->node->op == WF_OP_attention_grad ? 1 : 0];
    if (q->dim[0] == 0 || q->dim[1] == 0)
        return;
    if (l->node->op == WF_OP_attention_grad)
        run_backward(l, workspace, irregular);
    else
        run_forward(l, irregular);
}

static wf_status launch(const wf_launch *l)
{
    wf_attention_run(l, l->workspace, NULL);
    return wf_cuda_launched(l);
}

/* clang-format off */
extern "C" const wf_kernel wf_cuda_attention_kernels[] = {
    {.op = WF_OP_attention, .name = "plain", .types = WF_TYPES_FLOAT, .weights = WF_TYPES_FLOAT,
     .strided = true, .launch = launch},
    {.op = WF_OP_attention_grad, .name = "plain", .types = WF_TYPES_FLOAT, .strided = true, .strided_out = 7,
     .workspace = wf_attention_workspace, .launch = launch},
    {},
};
