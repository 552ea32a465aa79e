/* SPDX-License-Identifier: MIT */
/*
 * hopper_product.cu - benchmarks the GEMMs of training on an H100 or H200: the kernels of
 * hopper_product.cuh in several tile shapes against cuBLASLt, including epilogues. Prints which
 * results are wrong, and the time of each.
 *
 * The experiment did not pay off, so the library does not use these kernels. On an H200 all 225 odd
 * shapes are correct. Speed relative to cuBLASLt: forward and input-gradient GEMMs 0.84x to 0.95x;
 * gelu 0.97x to 1.09x (GEMM plus separate pass); gelu's slope 0.79x to 1.06x; weight gradients with
 * column sums 1.05x to 1.20x at width 768, 1.0x to 1.2x at 1024, 0.8x to 1.03x at 1600. Other
 * kernels now compute most column sums. Training steps with the faster GEMM of the two everywhere
 * took as long as with cuBLASLt alone: 102.9 ms against 102.2 and 102.7 (124M), 142.5 against 141.5
 * and 141.9 (350M), 297.4 against 297.8 (1558M).
 *
 *   nvcc -std=c++20 -O3 -arch=sm_90a -split-compile=0 -DWF_HOPPER_WATCH -Isrc -Iinclude \
 *       bench/lab/hopper_product.cu -o hopper_product -lcublasLt
 *
 * usage: hopper_product [CASES [SHAPES [MIB [TOGETHER]]]]
 * CASES and SHAPES select by substring of the name ("gelu 768" t128, "" for all). MIB is the scratch
 * for split-K parts (32, as on the device). TOGETHER is the number of rows of tiles that are
 * processed before the next ones (16).
 *
 * Shape names: t: two warpgroups alternate, b: both work on one tile; rows x columns of a tile;
 * c2: clusters of two. Times are medians of interleaved bursts, so that all candidates see the same
 * GPU clock. cuBLASLt is the fastest of its first 8 proposals, with separate passes for gelu and
 * column sums as the device runs them; for gelu's slope also its own epilogue ("lt end").
 */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda/product_aux.cu"
#undef THREADS
#include "device/cuda/hopper.cu"
#include "hopper_product.cuh"

/* ---- Stubs for functions of the program that the included files need but never call ---- */

extern "C" {
wf_status wf_cuda_check(const wf_launch *, cudaError_t error)
{
    if (error != cudaSuccess)
        fprintf(stderr, "cuda: %s\n", cudaGetErrorString(error));
    return error == cudaSuccess ? WF_OK : WF_ERR_DEVICE;
}
wf_status wf_cuda_launched(const wf_launch *l)
{
    return wf_cuda_check(l, cudaGetLastError());
}
bool wf_cuda_hopper_attention_accepts(const wf_device *, const wf_node *)
{
    abort();
}
bool wf_cuda_hopper_attention_grad_accepts(const wf_device *, const wf_node *)
{
    abort();
}
size_t wf_cuda_hopper_attention_workspace(const wf_device *, const wf_node *)
{
    abort();
}
size_t wf_cuda_hopper_attention_grad_workspace(const wf_device *, const wf_node *)
{
    abort();
}
wf_status wf_cuda_hopper_attention_launch(const wf_launch *)
{
    abort();
}
wf_status wf_cuda_hopper_attention_grad_launch(const wf_launch *)
{
    abort();
}
const wf_type_info *wf_type_get(wf_type)
{
    abort();
}
int64_t wf_view_count(const wf_view *)
{
    abort();
}
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s failed: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    exit(1);
}
#define CUDA(call) must((call) == cudaSuccess, #call)

/* ---- Shapes ---- */

typedef wf_status runner(const wf_launch *l, const wf_cuda_product *p, void *scratch, size_t room,
                         int together);
enum { LINEAR, GELU, INPUT, SLOPE, WEIGHT, KINDS };

typedef struct {
    const char *name;
    runner *run[KINDS];
} shape;

#define KERNEL(ta, tb, ending, ...) \
    wf_hopper_run_product<wf_hopper_shape<wf_bf16, ta, tb, ending, __VA_ARGS__>>
#define SHAPE(name, ...)                                     \
    {                                                        \
        name,                                                \
        {                                                    \
            KERNEL(0, 0, WF_HOPPER_NARROW, __VA_ARGS__),     \
                KERNEL(0, 0, WF_HOPPER_GELU, __VA_ARGS__),   \
                KERNEL(0, 1, WF_HOPPER_NARROW, __VA_ARGS__), \
                KERNEL(0, 1, WF_HOPPER_SLOPE, __VA_ARGS__),  \
                KERNEL(1, 1, WF_HOPPER_WIDE, __VA_ARGS__)    \
        }                                                    \
    }
static const shape shapes[] = {
    SHAPE("t128x128", 2, 128, true, 1),   SHAPE("t128x128c2", 2, 128, true, 2),
    SHAPE("t64x256", 1, 256, true, 1),    SHAPE("t64x256c2", 1, 256, true, 2),
    SHAPE("b128x256", 1, 256, false, 1),  SHAPE("b128x256c2", 1, 256, false, 2),
    SHAPE("b128x192", 1, 192, false, 1),  SHAPE("b256x128", 2, 128, false, 1),
    SHAPE("b256x128c2", 2, 128, false, 2)};
enum { SHAPES = sizeof shapes / sizeof *shapes, LIBRARY = SHAPES, LIBRARY_END, ENTRANTS };

static const char *wanted = "", *unwanted; /* substrings of names; unwanted may be NULL */

static bool is_wanted(const shape *s)
{
    return strstr(s->name, wanted) && !(unwanted && strstr(s->name, unwanted));
}

static const char *name_of(int i)
{
    return i == LIBRARY ? "lt" : i == LIBRARY_END ? "lt end" : shapes[i].name;
}

/* ---- Cases ---- */

typedef struct {
    char name[64];
    int kind;
    int64_t m, n, k;
} test;

static wf_cuda_device device;
static wf_cuda_queue queue;
static wf_launch launch;
static const size_t operand_bytes = (size_t)65536 * 3072 * 2 + (64 << 20),
                    scratch_bytes = (size_t)320 << 20, sums_at = (size_t)288 << 20;
static size_t parts_bytes = 32 << 20;
static int together = 16;
static char *a, *b, *y, *again, *pre, *scratch;
static float *bias, *sums;
static int *wrong;

static wf_cuda_product product_of(const test *t)
{
    wf_cuda_product p = {};
    p.batch = 1;
    p.m = t->m;
    p.n = t->n;
    p.k = t->k;
    p.transpose_a = t->kind == WEIGHT;
    p.transpose_b = t->kind == LINEAR || t->kind == GELU;
    p.a = wf_cuda_matrix{a, WF_BF16, p.transpose_a ? t->m : t->k, 0};
    p.b = wf_cuda_matrix{b, WF_BF16, p.transpose_b ? t->k : t->n, 0};
    p.y = wf_cuda_matrix{y, t->kind == WEIGHT ? WF_F32 : WF_BF16, t->n, 0};
    p.act = WF_ACT_GELU;
    if (p.transpose_b) {
        p.bias = bias;
        p.bias_type = WF_BF16;
    }
    if (t->kind == GELU || t->kind == SLOPE) {
        p.ending = t->kind == GELU ? WF_CUDA_ACT : WF_CUDA_ACT_GRAD;
        p.pre = wf_cuda_matrix{pre, WF_BF16, t->n, 0};
    }
    if (t->kind == WEIGHT)
        p.sums = sums;
    return p;
}

/* ---- Correctness: samples in f64, one warp each ---- */

typedef struct {
    wf_cuda_product p;
    int64_t samples;
} judging;

static __global__ void judge(const judging j, int *wrong)
{
    const wf_cuda_product &p = j.p;
    const int64_t sample = ((int64_t)blockIdx.x * 256 + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (sample >= j.samples)
        return;
    uint64_t h = (uint64_t)sample * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    const int64_t at = j.samples == p.m * p.n ? sample : (int64_t)(h >> 1) % (p.m * p.n);
    const int64_t row = at / p.n, column = at % p.n;
    const wf_bf16 *a = (const wf_bf16 *)p.a.data, *b = (const wf_bf16 *)p.b.data;
    double sum = 0, ones = 0;
    for (int64_t k = lane; k < p.k; k += 32) {
        const double x = wf_load(a[p.transpose_a ? k * p.a.row + row : row * p.a.row + k]);
        const double w = wf_load(b[p.transpose_b ? column * p.b.row + k : k * p.b.row + column]);
        sum += x * w;
        ones += x;
    }
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, i);
        ones += __shfl_xor_sync(0xffffffffu, ones, i);
    }
    if (lane > 0)
        return;
    const double slack = (p.y.type == WF_F32 ? 5e-4 : 1e-4) * sqrt((double)p.k);
    bool ok;
    if (p.y.type == WF_F32) {
        ok =
            fabs(((const float *)p.y.data)[at] - sum) <= slack && fabs(p.sums[row] - ones) <= slack;
    } else {
        const float got = wf_load(((const wf_bf16 *)p.y.data)[at]);
        float before = p.pre.data ? wf_load(((const wf_bf16 *)p.pre.data)[at]) : got;
        if (p.bias)
            sum += wf_load(((const wf_bf16 *)p.bias)[column]);
        if (p.ending == WF_CUDA_ACT_GRAD) {
            sum *= wf_gelu_slope(before);
            before = got;
        } else if (p.ending == WF_CUDA_ACT) { /* bitwise equal to the separate op */
            const float want = wf_load(wf_round<wf_bf16>(wf_gelu(before)));
            if (want != got)
                atomicAdd(wrong, 1);
        }
        ok = fabs(before - sum) <= slack + fabs(sum) / 250;
    }
    if (!ok)
        atomicAdd(wrong, 1);
}

static __global__ void count_differences(const uint32_t *x, const uint32_t *y, int64_t words,
                                         int *wrong)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < words; i += 256 * gridDim.x)
        if (x[i] != y[i])
            atomicAdd(wrong, 1);
}

static int take_wrong(void)
{
    int count = 0;
    CUDA(cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost));
    CUDA(cudaMemset(wrong, 0, sizeof count));
    return count;
}

static bool run_shape(const shape *s, int kind, const wf_cuda_product *p)
{
    const size_t room = parts_bytes + (p->sums ? wf_cuda_sums_bytes(p->m) : 0);
    return s->run[kind](&launch, p, scratch, room, together) == WF_OK;
}

/* Whether the shape runs, is correct and is bitwise reproducible; prints the reason if not. */
static bool is_right(const shape *s, const test *t)
{
    wf_cuda_product p = product_of(t);
    const int64_t bytes = p.m * p.n * (p.y.type == WF_F32 ? 4 : 2);
    const judging j = {p, p.m * p.n < 1 << 16 ? p.m * p.n : 1 << 13};
    int stuck = 0, none = 0;
    CUDA(cudaMemset(y, 0xff, bytes));
    if (t->kind == GELU)
        CUDA(cudaMemset(pre, 0xff, bytes));
    if (!run_shape(s, t->kind, &p))
        return false;
    CUDA(cudaStreamSynchronize(queue.stream));
#ifdef WF_HOPPER_WATCH
    CUDA(cudaMemcpyFromSymbol(&stuck, wf_hopper_stuck, sizeof stuck));
    CUDA(cudaMemcpyToSymbol(wf_hopper_stuck, &none, sizeof none));
#endif
    (void)none;
    if (stuck) {
        printf("%s %s: STUCK\n", t->name, s->name);
        return false;
    }
    judge<<<(unsigned)((j.samples + 7) / 8), 256, 0, queue.stream>>>(j, wrong);
    CUDA(cudaStreamSynchronize(queue.stream));
    const int bad = take_wrong();
    p.y.data = again;
    must(run_shape(s, t->kind, &p), s->name);
    count_differences<<<1024, 256, 0, queue.stream>>>((uint32_t *)y, (uint32_t *)again, bytes / 4,
                                                      wrong);
    CUDA(cudaStreamSynchronize(queue.stream));
    const int changed = take_wrong();
    if (bad > 0 || changed > 0)
        printf("%s %s: WRONG %d of %lld samples, %d words differ the second time\n", t->name,
               s->name, bad, (long long)j.samples, changed);
    return bad == 0 && changed == 0;
}

/* ---- cuBLASLt ---- */

typedef struct {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t found[8];
    int count, best;
    void *to;
} library;

static cublasLtHandle_t handle;

static bool library_run(const library *x, const wf_cuda_product *p, int algo)
{
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, x->desc, &one, p->b.data, x->a, p->a.data, x->b, &zero, x->to,
                          x->d, x->to, x->d, &x->found[algo].algo, scratch, 32 << 20,
                          queue.stream) == CUBLAS_STATUS_SUCCESS;
}

static library library_of(const wf_cuda_product *p, bool ending)
{
    library x = {};
    const bool wide = p->y.type == WF_F32;
    const cublasOperation_t ta = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            tb = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = ending    ? CUBLASLT_EPILOGUE_DGELU
                                        : p->bias ? CUBLASLT_EPILOGUE_BIAS
                                                  : CUBLASLT_EPILOGUE_DEFAULT;
    const size_t workspace = 32 << 20;
    x.to = p->ending == WF_CUDA_ACT ? p->pre.data : p->y.data;
    cublasLtMatmulDescCreate(&x.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                   sizeof epilogue);
    if (p->bias)
        cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias,
                                       sizeof p->bias);
    if (ending) {
        cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                       &p->pre.data, sizeof p->pre.data);
        cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->pre.row,
                                       sizeof p->pre.row);
    }
    cublasLtMatrixLayoutCreate(&x.a, CUDA_R_16BF, p->transpose_b ? p->k : p->n,
                               p->transpose_b ? p->n : p->k, p->b.row);
    cublasLtMatrixLayoutCreate(&x.b, CUDA_R_16BF, p->transpose_a ? p->m : p->k,
                               p->transpose_a ? p->k : p->m, p->a.row);
    cublasLtMatrixLayoutCreate(&x.d, wide ? CUDA_R_32F : CUDA_R_16BF, p->n, p->m, p->y.row);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
    const uint32_t reduce =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | (wide ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : 0);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                         &reduce, sizeof reduce);
    cublasLtMatmulAlgoGetHeuristic(handle, x.desc, x.a, x.b, x.d, x.d, preference, 8, x.found,
                                   &x.count);
    cublasLtMatmulPreferenceDestroy(preference);
    return x;
}

/* ---- Timing ---- */

typedef struct {
    const test *t;
    wf_cuda_product p;
    library plain, end;
} contest;

static bool run_once(const contest *c, int entrant)
{
    if (entrant < SHAPES)
        return run_shape(&shapes[entrant], c->t->kind, &c->p);
    if (entrant == LIBRARY_END)
        return c->end.count > 0 && library_run(&c->end, &c->p, c->end.best);
    if (c->plain.count == 0 || !library_run(&c->plain, &c->p, c->plain.best))
        return false;
    float *parts = (float *)(scratch + sums_at);
    if (c->p.ending != WF_CUDA_PLAIN)
        wf_cuda_finish(queue.stream, &c->p, parts);
    if (c->p.sums)
        wf_cuda_add_rows(queue.stream, &c->p.a, c->p.k, c->p.m, c->p.sums, parts);
    return true;
}

static double burst(const contest *c, int entrant, int runs)
{
    static cudaEvent_t begin, end;
    float ms = 0;
    if (!begin) {
        CUDA(cudaEventCreate(&begin));
        CUDA(cudaEventCreate(&end));
    }
    CUDA(cudaEventRecord(begin, queue.stream));
    for (int i = 0; i < runs; i++)
        if (!run_once(c, entrant))
            return 0;
    CUDA(cudaEventRecord(end, queue.stream));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1000.0 / runs;
}

static int by_size(const void *x, const void *y)
{
    const double d = *(const double *)x - *(const double *)y;
    return d < 0 ? -1 : d > 0;
}

static void choose_algorithm(contest *c, library *x, int entrant)
{
    double best = 0;
    int winner = 0;
    for (int i = 0; i < x->count; i++) {
        x->best = i;
        if (burst(c, entrant, 1) == 0)
            continue;
        const double us = burst(c, entrant, 4);
        if (best == 0 || us < best) {
            best = us;
            winner = i;
        }
    }
    x->best = winner;
    if (best == 0)
        x->count = 0;
}

static void compete(const test *t)
{
    enum { ROUNDS = 5 };
    contest c = {t, product_of(t), {}, {}};
    double us[ENTRANTS][ROUNDS], median[ENTRANTS] = {};
    bool in[ENTRANTS] = {};
    for (int i = 0; i < SHAPES; i++)
        in[i] = is_wanted(&shapes[i]) && is_right(&shapes[i], t);
    c.plain = library_of(&c.p, false);
    choose_algorithm(&c, &c.plain, LIBRARY);
    if (t->kind == SLOPE) {
        c.end = library_of(&c.p, true);
        choose_algorithm(&c, &c.end, LIBRARY_END);
    }
    in[LIBRARY] = c.plain.count > 0;
    in[LIBRARY_END] = c.end.count > 0;
    const int runs = 1 + (int)(3e-3 * 600e12 / (2.0 * t->m * t->n * t->k)); /* about 3 ms */
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < ENTRANTS; i++)
            if (in[i])
                us[i][r] = burst(&c, i, runs);
    printf("%-26s", t->name);
    for (int i = 0; i < ENTRANTS; i++) {
        if (in[i]) {
            qsort(us[i], ROUNDS, sizeof us[i][0], by_size);
            median[i] = us[i][ROUNDS / 2];
        }
    }
    const double best = median[LIBRARY_END] > 0 && median[LIBRARY_END] < median[LIBRARY]
                            ? median[LIBRARY_END]
                            : median[LIBRARY];
    for (int i = 0; i < ENTRANTS; i++)
        if (median[i] > 0)
            printf(" | %s %.0f us %.0f T %.2f", name_of(i), median[i],
                   2e-6 * t->m * t->n * t->k / median[i], best / median[i]);
    printf("\n");
    fflush(stdout);
}

/* ---- */

static test named(int kind, int64_t m, int64_t n, int64_t k, int64_t width)
{
    static const char *const names[KINDS] = {"linear", "gelu", "input", "slope", "weight"};
    test t = {"", kind, m, n, k};
    snprintf(t.name, sizeof t.name, "%s %lld: %lldx%lldx%lld", names[kind], (long long)width,
             (long long)m, (long long)n, (long long)k);
    return t;
}

static void begin(void)
{
    struct cudaDeviceProp about;
    CUDA(cudaGetDeviceProperties(&about, 0));
    device.processors = about.multiProcessorCount;
    queue.head.device = &device.head;
    CUDA(cudaStreamCreate(&queue.stream));
    launch.queue = &queue.head;
    char **const places[] = {&a, &b, &y, &again, &pre};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        CUDA(cudaMalloc(places[i], operand_bytes));
        wf_cuda_randomize(queue.stream, WF_BF16, *places[i], operand_bytes, (uint64_t)i << 40);
    }
    CUDA(cudaMalloc(&scratch, scratch_bytes));
    CUDA(cudaMalloc(&bias, 1 << 20));
    CUDA(cudaMalloc(&sums, 1 << 20));
    CUDA(cudaMalloc(&wrong, sizeof *wrong));
    CUDA(cudaMemset(wrong, 0, sizeof *wrong));
    wf_cuda_randomize(queue.stream, WF_BF16, bias, 1 << 20, 77);
    must(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasLtCreate");
    printf("%s, %d processors, cuBLASLt %zu\n", about.name, device.processors,
           cublasLtGetVersion());
}

/* All shapes with edges inside of tiles. */
static void check_odd(void)
{
    static const int64_t sizes[][3] = {
        {8, 8, 8}, {200, 264, 72}, {136, 520, 1000}, {1048, 40, 640}, {768, 768, 8200}};
    int right = 0, all = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const test t = named(kind, sizes[i][0], sizes[i][1], sizes[i][2], 0);
            for (int s = 0; s < SHAPES; s++)
                if (is_wanted(&shapes[s])) {
                    right += is_right(&shapes[s], &t);
                    all++;
                }
        }
    printf("odd shapes: %d of %d right\n", right, all);
    fflush(stdout);
}

static void run_all(const char *cases)
{
    static const int64_t models[][2] = {{768, 65536}, {1024, 32768}, {1600, 16384}};
    alarm(
        60); /* a deadlock on a barrier must not block the caller of this program */
    begin();
    check_odd();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const int64_t c = models[i][0], m = models[i][1];
        const test tests[] = {
            named(GELU, m, 4 * c, c, c),   named(SLOPE, m, 4 * c, c, c),
            named(WEIGHT, 4 * c, c, m, c), named(WEIGHT, c, 4 * c, m, c),
            named(WEIGHT, 3 * c, c, m, c), named(WEIGHT, c, c, m, c),
            named(LINEAR, m, 3 * c, c, c), named(LINEAR, m, c, c, c),
            named(LINEAR, m, c, 4 * c, c), named(INPUT, m, c, 3 * c, c),
            named(INPUT, m, c, 4 * c, c),  named(INPUT, m, c, c, c),
        };
        for (size_t k = 0; k < sizeof tests / sizeof *tests; k++)
            if (strstr(tests[k].name, cases))
                compete(&tests[k]);
    }
}

int main(int argc, char **argv)
{
    const char *cases = argc > 1 ? argv[1] : "";
    if (argc > 2)
        wanted = argv[2];
    if (argc > 3)
        parts_bytes = (size_t)atoi(argv[3]) << 20;
    if (argc > 4)
        together = atoi(argv[4]);
    must(parts_bytes <= (size_t)256 << 20 && together > 0, "reading arguments");
    if (!*wanted) { /* clusters in a separate run: a fault of theirs would end the other cases */
        const pid_t child = fork();
        if (child != 0) {
            waitpid(child, NULL, 0);
            wanted = "c2";
        } else {
            unwanted = "c2";
        }
    }
    run_all(cases);
    return 0;
}
