/* SPDX-License-Identifier: MIT */
/*
 * norm.cu - layer norm and rms norm of rows [C], also of x + residual. Gradients are in
 * norm_grad.cu.
 *
 *     y = xhat * gamma + beta     xhat = (x - mean) * rstd     rstd = 1 / sqrt(mean square + eps)
 *
 * rms norm has mean = 0 and no beta. With a residual, x is the sum rounded to its type. A row is
 * read once and stays in registers for both passes: the mean, then the squared deviations.
 *
 * Block [threads, rows]: 4 to 512 threads share a row. Thread t takes the 16-byte packs t, t +
 * threads, ... and adds their elements in ascending order; wf_row_sum adds the threads. The cut
 * depends on the number of columns only, so the bits do not depend on the number of rows.
 */
#include "device/cuda/norm.cuh"

/* ---- Rows in registers: elements per thread ---- */

enum { BLOCK = 256 /* threads, unless a row needs more */ };

typedef struct {
    int threads, elements; /* threads == 0: the row does not fit in registers */
} row_cut;

/* Picks the elements per thread, from an ascending list that ends with 0, that waste the fewest
 * registers. Prefers rows within a warp, then fewer threads; at most `most` threads. */
static row_cut cut_of(int64_t columns, const int *elements, int most)
{
    row_cut best = {0, 0};
    for (int threads = 32; threads >= 4; threads /= 2)
        for (const int *e = elements; *e; e++)
            if (threads * *e >= columns &&
                (!best.threads || threads * *e < best.threads * best.elements))
                best = row_cut{threads, *e};
    for (int threads = 64; !best.threads && threads <= most; threads *= 2)
        for (const int *e = elements; *e && !best.threads; e++)
            if (threads * *e >= columns)
                best = row_cut{threads, *e};
    return best;
}

static dim3 block_of(int threads)
{
    return dim3((unsigned)threads, threads < BLOCK ? BLOCK / threads : 1);
}

/* Kernel argument. Strides and addresses of all operands by row. */
typedef struct {
    int64_t rows, columns;
    wf_norm_axes axes;
    float eps;
    bool centered;                      /* layer norm: subtract the mean */
    wf_norm_rows x, residual, total, y; /* T [rows, C]; all but x may be missing */
    wf_norm_rows mean, rstd;            /* f32 [rows] */
    wf_cuda_any gamma, beta;            /* [C] */
} norm_args;

/* Adds row r of the residual to this thread's elements of x, and stores the sum if it is read. */
template <typename T, int N>
static __device__ __forceinline__ void add_residual(const norm_args &a, wf_norm_place at, bool live,
                                                    uint4 *x)
{
    constexpr int W = WF_WIDE(T);
    const int columns = (int)a.columns, step = (int)blockDim.x * W, first = (int)threadIdx.x * W;
    const T *residual = wf_norm_at<const T>(a.residual, at);
    uint4 in[N]; /* load all before storing: the sum may alias the residual */
#pragma unroll
    for (int k = 0; k < N; k++) {
        in[k] = make_uint4(0, 0, 0, 0);
        if (first + k * step < columns)
            in[k] = wf_load16(residual + first + k * step);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        float sum[W], add[W];
        wf_unpack16<T>(x[k], sum);
        wf_unpack16<T>(in[k], add);
#pragma unroll
        for (int i = 0; i < W; i++)
            sum[i] += add[i];
        x[k] = wf_repack16<T>(sum);
    }
    if (!a.total.data || !live)
        return;
    T *total = wf_norm_at<T>(a.total, at);
#pragma unroll
    for (int k = 0; k < N; k++)
        if (first + k * step < columns)
            wf_store16(total + first + k * step, x[k]);
}

/* G: type of gamma and beta. E: elements per thread. */
template <typename T, typename G, int E>
static __global__ void __launch_bounds__(512) norm_forward(norm_args a)
{
    constexpr int W = WF_WIDE(T), N = E / W;
    __shared__ wf_row_scratch<1> scratch;
    wf_grid_begin();
    const int columns = (int)a.columns, step = (int)blockDim.x * W, first = (int)threadIdx.x * W;
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < a.rows;
    /* Threads without a row still take part in the sums. */
    const wf_norm_place p = wf_norm_place_of(a.axes, (uint32_t)(live ? row : a.rows - 1));
    const T *x = wf_norm_at<const T>(a.x, p);

    uint4 in[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        in[k] = make_uint4(0, 0, 0, 0);
        if (first + k * step < columns)
            in[k] = wf_load16(x + first + k * step);
    }
    /* Unpack after the residual was added: the norm is that of the rounded sum. */
    float v[N][W];
    if (a.residual.data)
        add_residual<T, N>(a, p, live, in);
#pragma unroll
    for (int k = 0; k < N; k++)
        wf_unpack16<T>(in[k], v[k]);

    float mean = 0;
    if (a.centered) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < N; k++)
#pragma unroll
            for (int i = 0; i < W; i++)
                sum += v[k][i]; /* elements past the row are 0 */
        mean = wf_row_sum(sum, &scratch, 0) / (float)columns;
    }
    float square = 0;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (first + k * step < columns)
#pragma unroll
            for (int i = 0; i < W; i++) {
                v[k][i] -= mean;
                square += v[k][i] * v[k][i];
            }
    /* Turn 1: the second half of scratch, so that no barrier is needed in between. */
    const float rstd = rsqrtf(wf_row_sum(square, &scratch, 1) / (float)columns + a.eps);
    if (!live) /* after the sums, which need all threads */
        return;
    if (threadIdx.x == 0) {
        if (a.mean.data)
            *wf_norm_at<float>(a.mean, p) = mean;
        if (a.rstd.data)
            *wf_norm_at<float>(a.rstd, p) = rstd;
    }
    if (!a.y.data)
        return;

    T *y = wf_norm_at<T>(a.y, p);
    /* Re-read for every row; they stay in the cache. */
    const G *gamma = (const G *)a.gamma.data, *beta = (const G *)a.beta.data;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int at = first + k * step;
        if (at >= columns)
            continue;
        float scale[W], shift[W];
        if (gamma)
            wf_load_floats<G, W>(gamma + at, scale);
        if (beta)
            wf_load_floats<G, W>(beta + at, shift);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float h = v[k][i] * rstd;
            h = gamma ? h * scale[i] : h;
            v[k][i] = beta ? h + shift[i] : h;
        }
        wf_store16(y + at, wf_repack16<T>(v[k]));
    }
}

/* Any row length, alignment and parameter type: later passes read rows from the cache. */
template <typename T> static __global__ void __launch_bounds__(512) norm_forward_any(norm_args a)
{
    __shared__ wf_row_scratch<1> scratch;
    wf_grid_begin();
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < a.rows;
    /* End 0: the thread has no elements but takes part in the sums. */
    const int64_t r = live ? row : a.rows - 1, end = live ? a.columns : 0;
    const T *x = wf_norm_row<const T>(a.axes, a.x, r);
    const T *residual = a.residual.data ? wf_norm_row<const T>(a.axes, a.residual, r) : NULL;
    T *total = a.total.data ? wf_norm_row<T>(a.axes, a.total, r) : NULL;
    T *y = wf_norm_row<T>(a.axes, a.y, r); /* not used if y is missing */
    /* The sum may alias x: do not read x after storing it. */
    auto at = [&](int64_t i, bool again) {
        if (!residual)
            return wf_load(x[i]);
        return wf_load(total && again ? total[i]
                                      : wf_round<T>(wf_load(x[i]) + wf_load(residual[i])));
    };

    float sum = 0;
    for (int64_t i = threadIdx.x; i < end; i += blockDim.x) {
        const float v = at(i, false);
        sum += v;
        if (total)
            total[i] = wf_round<T>(v);
    }
    sum = wf_row_sum(sum, &scratch, 0);
    const float mean = a.centered ? sum / (float)a.columns : 0;
    float square = 0;
    for (int64_t i = threadIdx.x; i < end; i += blockDim.x) {
        const float d = at(i, true) - mean;
        square += d * d;
    }
    const float rstd = rsqrtf(wf_row_sum(square, &scratch, 1) / (float)a.columns + a.eps);
    if (live && threadIdx.x == 0) {
        if (a.mean.data)
            *wf_norm_row<float>(a.axes, a.mean, r) = mean;
        if (a.rstd.data)
            *wf_norm_row<float>(a.axes, a.rstd, r) = rstd;
    }
    if (!a.y.data)
        return;
    for (int64_t i = threadIdx.x; i < end; i += blockDim.x) {
        float h = (at(i, true) - mean) * rstd;
        h = a.gamma.data ? h * wf_any_load(a.gamma, i) : h;
        y[i] = wf_round<T>(a.beta.data ? h + wf_any_load(a.beta, i) : h);
    }
}

template <typename T, typename G>
static void run_cut(const wf_launch *l, const norm_args *a, row_cut cut)
{
    const dim3 block = block_of(cut.threads);
    const unsigned grid = wf_cuda_blocks(a->rows, block.y, INT32_MAX);
    /* Only the sizes of cut_for exist; 64 elements for 2-byte types only. */
    switch (cut.elements) {
    case 8: WF_RUN_EARLY((norm_forward<T, G, 8>), grid, block, 0, l)(*a); break;
    case 16: WF_RUN_EARLY((norm_forward<T, G, 16>), grid, block, 0, l)(*a); break;
    case 24: WF_RUN_EARLY((norm_forward<T, G, 24>), grid, block, 0, l)(*a); break;
    case 32: WF_RUN_EARLY((norm_forward<T, G, 32>), grid, block, 0, l)(*a); break;
    default:
        if constexpr (sizeof(T) == 2)
            WF_RUN_EARLY((norm_forward<T, G, 64>), grid, block, 0, l)(*a);
    }
}

static row_cut cut_for(const norm_args *a, wf_type type, const wf_view *gamma, const wf_view *beta)
{
    /* Elements per thread to choose from. */
    static const int elements[] = {8, 16, 24, 32, 64, 0}, narrow[] = {8, 16, 24, 32, 0};
    const wf_norm_rows *all[] = {&a->x, &a->residual, &a->total, &a->y, &a->mean, &a->rstd};
    bool wide = a->columns % (type == WF_F32 ? 4 : 8) == 0 &&
                wf_norm_places_fit(&a->axes, a->rows, all, 6) &&
                wf_norm_params_fit(gamma, beta, type);
    for (int i = 0; i < 4; i++)
        wide = wide && wf_norm_rows_wide(all[i], &a->axes, type);
    return wide ? cut_of(a->columns, type == WF_F32 ? narrow : elements, 512) : row_cut{0, 0};
}

/* (x, gamma?, beta?) -> y, mean if centered, rstd. With a residual it is (x, residual, ...) -> sum,
 * ... */
static wf_status forward(const wf_launch *l, bool centered, bool residual)
{
    const int first = residual ? 1 : 0;
    const wf_view *gamma = wf_norm_input(l, first + 1);
    const wf_view *beta = centered ? wf_norm_input(l, first + 2) : NULL;
    const wf_type type = l->in[0].type;
    norm_args a = {};
    a.rows = wf_view_rows(&l->in[0]);
    a.columns = wf_view_last(&l->in[0]);
    a.eps = (float)((const wf_attr_norm *)l->attr)->eps;
    a.centered = centered;
    a.gamma = wf_cuda_any_of(gamma);
    a.beta = wf_cuda_any_of(beta);
    const wf_view *views[] = {&l->in[0],
                              residual ? &l->in[1] : NULL,
                              residual ? wf_norm_output(l, 0) : NULL,
                              wf_norm_output(l, first),
                              centered ? wf_norm_output(l, first + 1) : NULL,
                              wf_norm_output(l, first + (centered ? 2 : 1))};
    wf_norm_rows *rows[] = {&a.x, &a.residual, &a.total, &a.y, &a.mean, &a.rstd};
    a.axes = wf_norm_fold(&l->in[0], views, rows, 6);
    if (a.rows == 0)
        return WF_OK;
    const row_cut cut = cut_for(&a, type, gamma, beta);
    wf_with_float(type, [&](auto zero) {
        using T = decltype(zero);
        if (!cut.threads) {
            const dim3 block = block_of(wf_norm_threads(a.columns));
            WF_RUN_EARLY(norm_forward_any<T>, wf_cuda_blocks(a.rows, block.y, INT32_MAX), block, 0,
                         l)
            (a);
        } else if (gamma && gamma->type == WF_F32) {
            run_cut<T, float>(l, &a, cut);
        } else {
            run_cut<T, T>(l, &a, cut);
        }
    });
    return wf_cuda_launched(l);
}

static wf_status launch_layer_norm(const wf_launch *l)
{
    return forward(l, true, false);
}

static wf_status launch_rms_norm(const wf_launch *l)
{
    return forward(l, false, false);
}

static wf_status launch_residual_layer_norm(const wf_launch *l)
{
    return forward(l, true, true);
}

static wf_status launch_residual_rms_norm(const wf_launch *l)
{
    return forward(l, false, true);
}

/* clang-format off */
#define ROW_FROM(name_, with_, in_place_, from_first_, workspace_)                                 \
    {.op = WF_OP_##name_, .name = "rows", .types = WF_TYPES_FLOAT, .strided = true,                \
     .in_place = in_place_, .from_first = from_first_, .workspace = workspace_, .launch = with_}
#define ROW(name_, with_, in_place_, workspace_)                                                   \
    ROW_FROM(name_, with_, in_place_, 0, workspace_)
extern "C" const wf_kernel wf_cuda_norm_kernels[] = {
    ROW(layer_norm, launch_layer_norm, 1, NULL),
    ROW(rms_norm, launch_rms_norm, 1, NULL),
    ROW(residual_layer_norm, launch_residual_layer_norm, 3, NULL), /* the sum */
    ROW(residual_rms_norm, launch_residual_rms_norm, 3, NULL),
    ROW(layer_norm_grad, wf_cuda_layer_norm_grad, 3, wf_cuda_norm_grad_workspace),
    ROW(rms_norm_grad, wf_cuda_rms_norm_grad, 3, wf_cuda_norm_grad_workspace),
    ROW_FROM(residual_layer_norm_grad, wf_cuda_residual_layer_norm_grad, 3 | 1 << 4, 1u << 3,
             wf_cuda_norm_grad_workspace),
    ROW_FROM(residual_rms_norm_grad, wf_cuda_residual_rms_norm_grad, 3 | 1 << 3, 1u << 2,
             wf_cuda_norm_grad_workspace),
    {},
};
