/* SPDX-License-Identifier: MIT */
/*
 * cublaslt.cu - an emulation of the part of cuBLASLt that matmuls use. It tests the path from a
 * matmul to the library, and the fallback, without a GPU. WEFT_CUBLASLT=emulated loads it.
 *
 * It refuses what the library refuses: a bias of another type than the result or with bad
 * alignment, and activation epilogues unless sizes are multiples of 8. It proposes three algorithms
 * with equal results. The second is the fastest; the others compute the result several times.
 */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cublaslt.h"
#include "device/cuda/kernels.cuh"
#include "device/cuda/library.h"

enum { NOT_SUPPORTED = 15, ALGORITHMS = 3, FASTEST = 1, THREADS = 64 };

typedef struct {
    int32_t trans_a, trans_b, bias_type;
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
} desc;

typedef struct {
    int type;
    int64_t rows, columns, ld, step;
    int32_t batch;
} layout;

typedef struct {
    uint64_t workspace;
} preference;

/* ---- Objects ---- */

template <typename T> static int make(wf_lt_object *out, const T &value)
{
    T *made = static_cast<T *>(malloc(sizeof *made));
    *made = value;
    *out = made;
    return 0;
}

static int drop(wf_lt_object object)
{
    free(object);
    return 0;
}

static int create(wf_lt_object *handle)
{
    return make(handle, 0);
}

static int layout_create(wf_lt_object *out, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    return make(out, layout{type, (int64_t)rows, (int64_t)columns, ld, 0, 1});
}

static int layout_set(wf_lt_object object, int attribute, const void *value, size_t bytes)
{
    layout *l = static_cast<layout *>(object);
    if (attribute == WF_LT_LAYOUT_BATCH_COUNT && bytes == sizeof l->batch)
        memcpy(&l->batch, value, bytes);
    else if (attribute == WF_LT_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof l->step)
        memcpy(&l->step, value, bytes);
    else
        return NOT_SUPPORTED;
    return 0;
}

static int desc_create(wf_lt_object *out, int compute, int scale)
{
    const bool known = compute == WF_LT_COMPUTE_32F || compute == WF_LT_COMPUTE_32F_FAST_TF32;
    return known && scale == WF_LT_R_32F ? make(out, desc{}) : NOT_SUPPORTED;
}

static int desc_set(wf_lt_object object, int attribute, const void *value, size_t bytes)
{
    desc *d = static_cast<desc *>(object);
    const struct {
        int attribute;
        void *field;
        size_t bytes;
    } fields[] = {
        {WF_LT_DESC_TRANSA, &d->trans_a, 4},           {WF_LT_DESC_TRANSB, &d->trans_b, 4},
        {WF_LT_DESC_EPILOGUE, &d->epilogue, 4},        {WF_LT_DESC_BIAS_POINTER, &d->bias, 8},
        {WF_LT_DESC_AUX_POINTER, &d->aux, 8},          {WF_LT_DESC_AUX_LD, &d->aux_ld, 8},
        {WF_LT_DESC_BIAS_DATA_TYPE, &d->bias_type, 4},
    };
    for (const auto &f : fields)
        if (f.attribute == attribute && f.bytes == bytes) {
            memcpy(f.field, value, bytes);
            return 0;
        }
    return NOT_SUPPORTED;
}

static int pref_create(wf_lt_object *out)
{
    return make(out, preference{});
}

static int pref_set(wf_lt_object object, int attribute, const void *value, size_t bytes)
{
    if (attribute == WF_LT_PREF_MAX_WORKSPACE_BYTES && bytes == 8)
        memcpy(&static_cast<preference *>(object)->workspace, value, bytes);
    return attribute == WF_LT_PREF_MAX_WORKSPACE_BYTES || bytes == 4 ? 0 : NOT_SUPPORTED;
}

/* ---- Matmuls ---- */

typedef struct {
    desc op;
    layout a, b, d;
    const void *a_data, *b_data;
    void *d_data;
    int64_t m, n, k;
    float beta;
    int times;
} product;

static __device__ float load(int type, const void *from, int64_t i)
{
    return type == WF_LT_R_32F    ? static_cast<const float *>(from)[i]
           : type == WF_LT_R_16BF ? wf_load(static_cast<const wf_bf16 *>(from)[i])
                                  : wf_load(static_cast<const wf_f16 *>(from)[i]);
}

static __device__ void store(int type, void *to, int64_t i, float x)
{
    if (type == WF_LT_R_32F)
        static_cast<float *>(to)[i] = x;
    else if (type == WF_LT_R_16BF)
        static_cast<wf_bf16 *>(to)[i] = wf_round<wf_bf16>(x);
    else
        static_cast<wf_f16 *>(to)[i] = wf_round<wf_f16>(x);
}

static __device__ double gate(double x)
{
    return 1 / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static __device__ double gelu_slope(double x)
{
    const double g = gate(x);
    return g + x * g * (1 - g) * 2 * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static __device__ double sum_of(const product &p, int64_t matrix, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t l = 0; l < p.k; l++) {
        const int64_t at_a = p.op.trans_a ? i * p.a.ld + l : l * p.a.ld + i;
        const int64_t at_b = p.op.trans_b ? l * p.b.ld + j : j * p.b.ld + l;
        sum += (double)load(p.a.type, p.a_data, matrix * p.a.step + at_a) *
               load(p.b.type, p.b_data, matrix * p.b.step + at_b);
    }
    return sum;
}

static __global__ void multiply(const product p)
{
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (e >= p.m * p.n * p.d.batch)
        return;
    const int64_t i = e % p.m, j = e / p.m % p.n, matrix = e / (p.m * p.n);
    const int64_t at = matrix * p.d.step + j * p.d.ld + i, beside = j * p.op.aux_ld + i;
    double x = 0;
    for (int t = 0; t < p.times; t++)
        x = sum_of(p, matrix, i, j);
    if (p.beta != 0)
        x += p.beta * load(p.d.type, p.d_data, at);
    if (p.op.epilogue & 4)
        x += load(p.op.bias_type, p.op.bias, i);
    if (p.op.epilogue & 32) {
        store(p.d.type, p.op.aux, beside, (float)x);
        x *= gate(x);
    } else if (p.op.epilogue & 64) {
        x *= gelu_slope(load(p.d.type, p.op.aux, beside));
    }
    store(p.d.type, p.d_data, at, (float)x);
}

static int check(wf_lt_object, wf_lt_object object, wf_lt_object a_object, wf_lt_object b_object,
                 wf_lt_object, wf_lt_object d_object, const wf_lt_algo *algo, wf_lt_candidate *out)
{
    const desc *op = static_cast<desc *>(object);
    const layout *a = static_cast<layout *>(a_object), *b = static_cast<layout *>(b_object);
    const layout *d = static_cast<layout *>(d_object);
    const int64_t m = op->trans_a ? a->columns : a->rows, k = op->trans_a ? a->rows : a->columns;
    const int64_t n = op->trans_b ? b->rows : b->columns;
    const bool ending = op->epilogue & (32 | 64);
    if (m != d->rows || n != d->columns || k != (op->trans_b ? b->columns : b->rows) ||
        a->ld < a->rows || b->ld < b->rows || d->ld < d->rows || a->type != b->type ||
        (op->epilogue & 4 && op->bias_type != d->type) || (ending && (m % 8 || n % 8 || k % 8)) ||
        algo->data[0] >= ALGORITHMS)
        return NOT_SUPPORTED;
    *out = wf_lt_candidate{*algo, 0, 0, 1, {}};
    return 0;
}

/* An algorithm is a number; after two words it stores the split-K reduction scheme, which is off
 * unless a test sets it. */
static int config_get(const wf_lt_algo *algo, int attribute, void *value, size_t bytes,
                      size_t *written)
{
    const uint32_t parts = algo->data[2] != 0 ? 2 : 1, reduce = (uint32_t)algo->data[2];
    if (bytes != 4 ||
        (attribute != WF_LT_CONFIG_SPLITK_NUM && attribute != WF_LT_CONFIG_REDUCTION_SCHEME))
        return NOT_SUPPORTED;
    memcpy(value, attribute == WF_LT_CONFIG_SPLITK_NUM ? &parts : &reduce, bytes);
    *written = bytes;
    return 0;
}

static int heuristic(wf_lt_object handle, wf_lt_object op, wf_lt_object a, wf_lt_object b,
                     wf_lt_object c, wf_lt_object d, wf_lt_object, int wanted, wf_lt_candidate *out,
                     int *count)
{
    *count = 0;
    for (uint64_t i = 0; i < ALGORITHMS && *count < wanted; i++) {
        const wf_lt_algo algo = {{i, 0x5eed}};
        if (check(handle, op, a, b, c, d, &algo, &out[*count]) == 0)
            ++*count;
    }
    return *count > 0 ? 0 : NOT_SUPPORTED;
}

static int matmul(wf_lt_object, wf_lt_object op, const void *, const void *a, wf_lt_object a_layout,
                  const void *b, wf_lt_object b_layout, const void *beta, const void *,
                  wf_lt_object, void *d, wf_lt_object d_layout, const wf_lt_algo *algo, void *,
                  size_t, cudaStream_t stream)
{
    product p = {};
    wf_lt_candidate out;
    if (check(NULL, op, a_layout, b_layout, NULL, d_layout, algo, &out) != 0)
        return NOT_SUPPORTED;
    p.op = *static_cast<desc *>(op);
    if ((p.op.epilogue & 4 && (uintptr_t)p.op.bias % 16 != 0) ||
        (p.op.epilogue & (32 | 64) && ((uintptr_t)p.op.aux % 16 != 0 || p.op.aux_ld % 8 != 0)))
        return NOT_SUPPORTED;
    p.a = *static_cast<layout *>(a_layout);
    p.b = *static_cast<layout *>(b_layout);
    p.d = *static_cast<layout *>(d_layout);
    p.a_data = a;
    p.b_data = b;
    p.d_data = d;
    p.m = p.d.rows;
    p.n = p.d.columns;
    p.k = p.op.trans_a ? p.a.rows : p.a.columns;
    p.beta = *static_cast<const float *>(beta);
    p.times = algo->data[0] == FASTEST ? 1 : 3;
    const int64_t blocks = (p.m * p.n * p.d.batch + THREADS - 1) / THREADS;
    WF_RUN(multiply, (unsigned)blocks, THREADS, 0, stream)(p);
    return 0;
}

static size_t version(void)
{
    return 1;
}

static const char *status_name(int)
{
    return "not supported by the emulation";
}

/* ---- Loading ---- */

static const wf_lt functions = {
    .create = create,
    .destroy = drop,
    .version = version,
    .status_name = status_name,
    .matmul = matmul,
    .layout_create = layout_create,
    .layout_destroy = drop,
    .layout_set = layout_set,
    .desc_create = desc_create,
    .desc_destroy = drop,
    .desc_set = desc_set,
    .pref_create = pref_create,
    .pref_destroy = drop,
    .pref_set = pref_set,
    .heuristic = heuristic,
    .check = check,
    .config_get = config_get,
};

/* Replaces the function of library.c. */
extern "C" bool wf_cuda_library_load(const wf_cuda_library *library, void *table, char *why,
                                     size_t bytes)
{
    const char *wanted = getenv(library->variable);
    if (wanted && strcmp(wanted, "emulated") == 0 && strcmp(library->what, "cuBLASLt") == 0) {
        memcpy(table, &functions, sizeof functions);
        return true;
    }
    snprintf(why, bytes, "%s needs a GPU, and this one is emulated", library->what);
    return false;
}
