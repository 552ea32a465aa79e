/* SPDX-License-Identifier: MIT */
/*
 * norm.cu - layer norm and rms norm of rows [C], also of sums x + residual. Gradients are in norm_grad.cu.
 *
 *     y = xhat * gamma + beta     xhat = (x - mean) * rstd     rstd = 1 / sqrt(mean square + eps)
 *
 * The rms norm is the same with mean = 0 and no beta. With a residual, x is the sum rounded to its type.
 * A row is read once and stays in registers, where its mean is taken, then the squares of what is left. Rows are
 * on their way to shared memory while others are worked on.
 */
#include "device/cuda/norm.cuh"

typedef struct {
    int64_t rows, columns;
    wf_norm_axes axes;
    float eps, inverse;                 /* 1 / C */
    bool centered;                      /* layer norm: the mean is taken off */
    wf_norm_rows x, residual, total, y; /* T [rows, C]; all but x may be missing */
    wf_norm_rows mean, rstd;            /* f32 [rows] */
    wf_cuda_any gamma, beta;            /* [C] */
} norm_args;

/* ---- Rows by way of shared memory ---- */

/* Sends for row r; zeros, past the last one. */
template <typename T, int N>
static __device__ __forceinline__ void fetch_row(const norm_args &a, const wf_norm_ring<N> &to,
                                                 int stage, int64_t r)
{
    const bool live = r < a.rows;
    const wf_norm_place p = wf_norm_place_of(a.axes, live ? (uint32_t)r : 0);
    to.fetch(stage, 0, live ? wf_norm_at<const T>(a.x, p) : NULL, (int)a.columns);
    if (a.residual.data)
        to.fetch(stage, 1, live ? wf_norm_at<const T>(a.residual, p) : NULL, (int)a.columns);
    wf_copy_commit();
}

/* This thread's part of a row: x, or its sum with the residual, which is stored in `total` if that is not NULL. */
template <typename T, int N>
static __device__ __forceinline__ void take_row(const norm_args &a, const wf_norm_ring<N> &rows,
                                                int stage, T *total, float (*v)[WF_WIDE(T)])
{
    constexpr int W = WF_WIDE(T);
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int c = (int)(threadIdx.x + k * blockDim.x) * W;
        wf_unpack16<T>(*rows.slot(stage, 0, k), v[k]);
        if (!a.residual.data)
            continue;
        float add[W];
        wf_unpack16<T>(*rows.slot(stage, 1, k), add);
#pragma unroll
        for (int i = 0; i < W; i++)
            add[i] += v[k][i];
        const uint4 sum = wf_repack16<T>(add);
        wf_unpack16<T>(sum, v[k]);
        if (total && c < a.columns)
            wf_store16(total + c, sum);
    }
}

/* y of this thread's part, from what is left of it without the mean. */
template <typename T, typename G, int N>
static __device__ __forceinline__ void store_row(const norm_args &a, T *y, float rstd,
                                                 float (*v)[WF_WIDE(T)])
{
    constexpr int W = WF_WIDE(T);
    const G *gamma = (const G *)a.gamma.data, *beta = (const G *)a.beta.data;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int c = (int)(threadIdx.x + k * blockDim.x) * W;
        if (c >= a.columns)
            continue;
        float scale[W], shift[W];
        if (gamma)
            wf_load_floats<G, W>(gamma + c, scale);
        if (beta)
            wf_load_floats<G, W>(beta + c, shift);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float h = v[k][i] * rstd;
            h = gamma ? h * scale[i] : h;
            v[k][i] = beta ? h + shift[i] : h;
        }
        wf_store16(y + c, wf_repack16<T>(v[k]));
    }
}

/* G: the type of gamma and beta. S: stages of the ring. Blocks of at most `most` threads, of which `least` at once
 * on a processor. */
template <typename T, typename G, int N, int S, int most, int least>
static __global__ void __launch_bounds__(most, least) norm_forward(norm_args a)
{
    constexpr int W = WF_WIDE(T);
    WF_SHARED(uint4, shared);
    __shared__ wf_row_scratch<1> scratch;
    const wf_norm_ring<N> rows = {shared, a.residual.data ? 2 : 1};
    const int64_t stride = (int64_t)gridDim.x * blockDim.y;
    int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
#pragma unroll
    for (int s = 0; s < S - 1; s++)
        fetch_row<T, N>(a, rows, s, r + s * stride);
    int stage = 0, turn = 0;
    for (int64_t base = (int64_t)blockIdx.x * blockDim.y; base < a.rows; base += stride) {
        const bool live = r < a.rows;
        const wf_norm_place p = wf_norm_place_of(a.axes, live ? (uint32_t)r : 0);
        float v[N][W], mean = 0, square = 0;
        wf_copy_wait<S - 2>();
        take_row<T, N>(a, rows, stage, a.total.data && live ? wf_norm_at<T>(a.total, p) : NULL, v);
        /* Where the row before this one was. */
        fetch_row<T, N>(a, rows, stage == 0 ? S - 1 : stage - 1, r + (S - 1) * stride);
        if (a.centered) {
#pragma unroll
            for (int k = 0; k < N; k++)
#pragma unroll
                for (int i = 0; i < W; i++)
                    mean += v[k][i]; /* beyond the row there are zeros */
            mean = wf_row_sum(mean, &scratch, turn) * a.inverse;
            turn ^= 1;
        }
#pragma unroll
        for (int k = 0; k < N; k++)
            if ((int)(threadIdx.x + k * blockDim.x) * W < a.columns)
#pragma unroll
                for (int i = 0; i < W; i++) {
                    v[k][i] -= mean;
                    square += v[k][i] * v[k][i];
                }
        const float rstd = rsqrtf(wf_row_sum(square, &scratch, turn) * a.inverse + a.eps);
        turn ^= 1;
        if (live && threadIdx.x == 0 && a.mean.data)
            *wf_norm_at<float>(a.mean, p) = mean;
        if (live && threadIdx.x == 0 && a.rstd.data)
            *wf_norm_at<float>(a.rstd, p) = rstd;
        if (live && a.y.data)
            store_row<T, G, N>(a, wf_norm_at<T>(a.y, p), rstd, v);
        r += stride;
        stage = stage + 1 == S ? 0 : stage + 1;
    }
}

/* ---- Rows of any length and alignment, parameters of any type: read again from the caches ---- */

template <typename T> static __global__ void __launch_bounds__(512) norm_forward_any(norm_args a)
{
    __shared__ wf_row_scratch<1> scratch;
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < a.rows;
    const int64_t r = live ? row : a.rows - 1, end = live ? a.columns : 0;
    const T *x = wf_norm_row<const T>(a.axes, a.x, r);
    const T *residual = a.residual.data ? wf_norm_row<const T>(a.axes, a.residual, r) : NULL;
    T *total = a.total.data ? wf_norm_row<T>(a.axes, a.total, r) : NULL;
    T *y = wf_norm_row<T>(a.axes, a.y, r);
    /* The sum may replace x: once it is stored, x is not read. */
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

/* ---- Launching ---- */

typedef struct {
    void (*run)(norm_args);
    int stages, threads, each; /* of a block, and how many blocks of them run at once */
} norm_kernel;

template <typename T, typename G> static norm_kernel kernel_of(wf_norm_cut cut)
{
    if (cut.packs == 1)
        return norm_kernel{norm_forward<T, G, 1, 4, 256, 5>, 4, 256, 5};
    if (cut.packs == 2)
        return norm_kernel{norm_forward<T, G, 2, 4, 256, 3>, 4, 256, 3};
    if (cut.packs == 3)
        return norm_kernel{norm_forward<T, G, 3, 3, 128, 6>, 3, 128, 6};
    if (cut.threads <= 128)
        return norm_kernel{norm_forward<T, G, 4, 3, 128, 5>, 3, 128, 5};
    return norm_kernel{norm_forward<T, G, 4, 2, 512, 1>, 2, 512, 1};
}

/* false: shared memory is too small. */
static bool run_cut(const norm_args *a, wf_norm_cut cut, norm_kernel kernel, const wf_launch *l)
{
    const wf_cuda_device *device = wf_cuda_device_of(l);
    const size_t spare = 1 << 10;
    const dim3 block = wf_norm_block(cut.threads, kernel.threads);
    const size_t bytes = wf_norm_ring_bytes(cut, kernel.stages, a->residual.data ? 2 : 1, block);
    const int each = kernel.each * kernel.threads / (int)(block.x * block.y);
    if (bytes + spare > device->shared)
        return false;
    cudaFuncSetAttribute(kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)(device->shared - spare));
    WF_RUN(kernel.run, wf_cuda_blocks(a->rows, block.y, each * device->processors), block, bytes,
           wf_cuda_stream(l))
    (*a);
    return true;
}

static wf_norm_cut cut_of(const norm_args *a, wf_type type, const wf_view *gamma,
                          const wf_view *beta)
{
    const wf_norm_axes *axes = &a->axes;
    bool wide = wf_norm_places_fit(axes, a->rows) && wf_norm_rows_wide(&a->x, axes, type) &&
                wf_norm_rows_wide(&a->residual, axes, type) &&
                wf_norm_rows_wide(&a->total, axes, type) && wf_norm_rows_wide(&a->y, axes, type) &&
                wf_norm_params_fit(gamma, beta, type);
    return wide ? wf_norm_cut_of(a->columns, type) : wf_norm_cut{0, 0};
}

/* (x, gamma?, beta?) -> y, mean if centered, rstd; from their second operand and output on, the forms with a
 * residual are the same. */
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
    a.inverse = (float)(1.0 / (double)a.columns);
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
    const wf_norm_cut cut = cut_of(&a, type, gamma, beta);
    wf_with_float(type, [&](auto zero) {
        using T = decltype(zero);
        const norm_kernel kernel =
            gamma && gamma->type == WF_F32 ? kernel_of<T, float>(cut) : kernel_of<T, T>(cut);
        const dim3 block = wf_norm_block(wf_norm_threads(a.columns), 256);
        if (!cut.threads || !run_cut(&a, cut, kernel, l))
            WF_RUN(norm_forward_any<T>, wf_cuda_blocks(a.rows, block.y, INT32_MAX), block, 0,
                   wf_cuda_stream(l))
            (a);
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
#define ROW(name_, with_, in_place_, workspace_)                                                   \
    {.op = WF_OP_##name_, .name = "rows", .types = WF_TYPES_FLOAT, .strided = true,                \
     .in_place = in_place_, .workspace = workspace_, .launch = with_}
extern "C" const wf_kernel wf_cuda_norm_kernels[] = {
    ROW(layer_norm, launch_layer_norm, 1, NULL),
    ROW(rms_norm, launch_rms_norm, 1, NULL),
    ROW(residual_layer_norm, launch_residual_layer_norm, 3, NULL), /* the sum */
    ROW(residual_rms_norm, launch_residual_rms_norm, 3, NULL),
    ROW(layer_norm_grad, wf_cuda_layer_norm_grad, 3, wf_cuda_norm_grad_workspace),
    ROW(rms_norm_grad, wf_cuda_rms_norm_grad, 3, wf_cuda_norm_grad_workspace),
    ROW(residual_layer_norm_grad, wf_cuda_residual_layer_norm_grad, 3 | 1 << 4,
        wf_cuda_norm_grad_workspace),
    ROW(residual_rms_norm_grad, wf_cuda_residual_rms_norm_grad, 3 | 1 << 3,
        wf_cuda_norm_grad_workspace),
    {},
};
