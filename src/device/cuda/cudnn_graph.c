/* SPDX-License-Identifier: MIT */
/*
 * cudnn_graph.c - builds, caches and runs cuDNN's attention plans.
 *
 * cuDNN's backend API describes a computation as a graph of descriptors; its heuristic returns
 * engines that run the whole graph as one kernel. q, k, v, o are [B, H, T, D] in bf16 or f16 with
 * arbitrary token and head strides, statistics f32 [B, H, T, 1]. Intermediate tensors are virtual:
 * they never exist in memory.
 *
 * cuDNN recognises attention by its pattern of operations, so their order below matters. The library
 * is loaded once per process, for the first GPU that uses it. Everything is guarded by `lock`;
 * without cuDNN's headers the file compiles to stubs.
 */
#include "device/cuda/cudnn_graph.h"

#if defined(__has_include)
#if __has_include(<cudnn.h>) && !(defined(WF_CUDA_EMULATED) && WF_CUDA_EMULATED)
#define HAVE_CUDNN 1
#endif
#endif

#ifdef HAVE_CUDNN
#include <cudnn.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/library.h"

typedef cudnnBackendDescriptor_t desc;

/* ---- The library ---- */

static struct {
    cudnnStatus_t (*create)(cudnnHandle_t *);
    cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);
    cudnnStatus_t (*desc_create)(cudnnBackendDescriptorType_t, desc *);
    cudnnStatus_t (*desc_destroy)(desc);
    cudnnStatus_t (*set)(desc, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
                         const void *);
    cudnnStatus_t (*get)(desc, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
                         int64_t *, void *);
    cudnnStatus_t (*finalize)(desc);
    cudnnStatus_t (*execute)(cudnnHandle_t, desc, desc);
    const char *(*error_text)(cudnnStatus_t);
} dnn;

/* Function pointers are stored by offset (library.c). */
#define SYMBOL(field, name)                               \
    {                                                     \
        name, (size_t)((char *)&dnn.field - (char *)&dnn) \
    }

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudnnHandle_t handle;
static int owner; /* the GPU of the handle; other GPUs do not use cuDNN */
static bool loaded;
static char fault[512]; /* why cuDNN is unavailable, or the last failure */

/* Runs once. Failures stay: cuDNN is then off for the process. */
static void load(void)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so", NULL};
    const wf_cuda_symbol symbols[] = {
        SYMBOL(create, "cudnnCreate"),
        SYMBOL(set_stream, "cudnnSetStream"),
        SYMBOL(desc_create, "cudnnBackendCreateDescriptor"),
        SYMBOL(desc_destroy, "cudnnBackendDestroyDescriptor"),
        SYMBOL(set, "cudnnBackendSetAttribute"),
        SYMBOL(get, "cudnnBackendGetAttribute"),
        SYMBOL(finalize, "cudnnBackendFinalize"),
        SYMBOL(execute, "cudnnBackendExecute"),
        SYMBOL(error_text, "cudnnGetErrorString"),
    };
    const wf_cuda_library library = {.what = "cuDNN",
                                     .variable = "WEFT_CUDNN",
                                     .names = names,
                                     .symbols = symbols,
                                     .symbol_count = sizeof symbols / sizeof *symbols};
    loaded = wf_cuda_library_load(&library, &dnn, fault, sizeof fault);
    if (!loaded)
        return;
    cudaGetDevice(&owner);
    cudnnStatus_t status = dnn.create(&handle);
    loaded = status == CUDNN_STATUS_SUCCESS;
    if (!loaded)
        snprintf(fault, sizeof fault, "cuDNN: %s", dnn.error_text(status));
}

bool wf_dnn_available(const char **why)
{
    pthread_once(&once, load);
    if (why)
        *why = fault;
    return loaded;
}

/* ---- Building: after the first failure, all calls do nothing ---- */

/* Enough for the gradient, the larger of the two graphs. */
enum { MOST_DESCS = 192, MOST_OPS = 32, CONFIGS = 8 };
/* Ids that bind tensors to memory. Virtual tensors have ids from LAST on. */
enum { Q = 1, K, V, O, STATS, SCALE, HIDDEN, ONE, DOUT, DQ, DK, DV, SUM, DQ_SUM, LAST = 100 };

typedef struct {
    const wf_dnn_shape *s;
    desc made[MOST_DESCS], op[MOST_OPS]; /* all descriptors, and those of operations in order */
    int made_count, op_count;
    int64_t next;           /* id of the next virtual tensor */
    cudnnDataType_t narrow; /* type of q, k, v and gradients */
    bool failed;
} building;

/* Plans are never freed: a captured CUDA graph may refer to them. */
struct wf_dnn_plan {
    struct wf_dnn_plan *next;
    wf_dnn_shape shape;
    desc plan; /* NULL: cuDNN has no plan for this shape */
    int64_t workspace;
};
static wf_dnn_plan *plans;

/* Keeps the first failure. */
static void note(building *b, const char *what, cudnnStatus_t status)
{
    if (b->failed || status == CUDNN_STATUS_SUCCESS)
        return;
    b->failed = true;
    snprintf(fault, sizeof fault, "cuDNN: %s: %s", what, dnn.error_text(status));
}

static desc make(building *b, cudnnBackendDescriptorType_t type)
{
    desc d = NULL;
    if (b->failed)
        return NULL;
    note(b, "a descriptor", dnn.desc_create(type, &d));
    /* More than MOST_DESCS are only leaked, not used wrongly. */
    if (d && b->made_count < MOST_DESCS)
        b->made[b->made_count++] = d;
    return d;
}

static void set(building *b, desc d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    if (!b->failed)
        note(b, "an attribute", dnn.set(d, name, type, count, value));
}

static void set_desc(building *b, desc d, cudnnBackendAttributeName_t name, desc value)
{
    set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static desc done(building *b, desc d)
{
    if (!b->failed)
        note(b, "finalizing a descriptor", dnn.finalize(d));
    return d;
}

static void add_op(building *b, desc d)
{
    done(b, d);
    if (!b->failed && b->op_count < MOST_OPS)
        b->op[b->op_count++] = d;
}

typedef struct {
    int64_t d[4];
} four;

/* id 0: a new virtual tensor. SCALE, HIDDEN and ONE are scalars passed by value. */
static desc tensor(building *b, int64_t id, cudnnDataType_t type, four dim, four stride)
{
    desc d = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    bool by_value = id == SCALE || id == HIDDEN || id == ONE, none = id == 0;
    int64_t alignment = by_value ? 4 : 16, number = none ? b->next++ : id;
    set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim.d);
    set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride.d);
    set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &none);
    set(b, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    return done(b, d);
}

/* A tensor [B, H, T, D] with these token and head strides, or with its last axes swapped. */
static desc rows(building *b, int64_t id, int64_t row, int64_t head)
{
    const wf_dnn_shape *s = b->s;
    return tensor(b, id, b->narrow, (four){{s->batch, s->heads, s->length, s->d}},
                  (four){{row * s->length, head, row, 1}});
}

static desc columns(building *b, int64_t id, int64_t row, int64_t head)
{
    const wf_dnn_shape *s = b->s;
    return tensor(b, id, b->narrow, (four){{s->batch, s->heads, s->d, s->length}},
                  (four){{row * s->length, head, 1, row}});
}

/* A virtual tensor [B, H, T, T]. */
static desc scores(building *b, cudnnDataType_t type)
{
    int64_t h = b->s->heads, t = b->s->length;
    return tensor(b, 0, type, (four){{b->s->batch, h, t, t}}, (four){{h * t * t, t * t, t, 1}});
}

/* The same, transposed, by strides. */
static desc scores_transposed(building *b)
{
    int64_t h = b->s->heads, t = b->s->length;
    return tensor(b, 0, b->narrow, (four){{b->s->batch, h, t, t}},
                  (four){{h * t * t, t * t, 1, t}});
}

/* An f32 tensor [B, H, T, 1], one value per row. The caller's are stored token by token. */
static desc numbers(building *b, int64_t id)
{
    int64_t h = b->s->heads, t = b->s->length;
    four dim = {{b->s->batch, h, t, 1}};
    return tensor(b, id, CUDNN_DATA_FLOAT, dim,
                  id == STATS ? (four){{h * t, 1, h, 1}} : (four){{h * t, t, 1, 1}});
}

static desc number(building *b, int64_t id)
{
    four one = {{1, 1, 1, 1}};
    return tensor(b, id, CUDNN_DATA_FLOAT, one, one);
}

static desc pointwise(building *b, cudnnPointwiseMode_t mode, int64_t axis, desc x, desc with,
                      desc mask, desc y)
{
    desc how = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnDataType_t type = mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    done(b, how);
    desc op = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (with)
        set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, with);
    if (mask)
        set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask);
    set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(b, op);
    return y;
}

static desc product(building *b, desc x, desc w, desc y)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc how = make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    done(b, how);
    desc op = make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
    set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, w);
    set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    add_op(b, op);
    return y;
}

static desc reduction(building *b, cudnnReduceTensorOp_t by, desc x, desc y)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc how = make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
    set(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    done(b, how);
    desc op = make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_op(b, op);
    return y;
}

static desc reshape(building *b, desc x, desc y)
{
    desc op = make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(b, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(b, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(b, op);
    return y;
}

/* ---- Attention ---- */

static const cudnnDataType_t F32 = CUDNN_DATA_FLOAT, I32 = CUDNN_DATA_INT32;

/* Sets scores of keys after the query to `hidden`. */
static desc masked(building *b, desc s, desc hidden)
{
    desc row = pointwise(b, CUDNN_POINTWISE_GEN_INDEX, 2, s, NULL, NULL, scores(b, I32));
    desc column = pointwise(b, CUDNN_POINTWISE_GEN_INDEX, 3, s, NULL, NULL, scores(b, I32));
    desc seen =
        pointwise(b, CUDNN_POINTWISE_CMP_GE, 0, row, column, NULL, scores(b, CUDNN_DATA_BOOLEAN));
    return pointwise(b, CUDNN_POINTWISE_BINARY_SELECT, 0, s, hidden, seen, scores(b, F32));
}

/* s = scale q k^T; p = softmax(masked s); o = p v; stats = max + log(sum). */
static void describe_forward(building *b)
{
    const wf_dnn_shape *s = b->s;
    desc q = rows(b, Q, s->q_row, s->q_head), k = columns(b, K, s->k_row, s->k_head);
    desc v = rows(b, V, s->v_row, s->v_head), o = rows(b, O, s->o_row, s->o_head);
    desc scale = number(b, SCALE), hidden = number(b, HIDDEN), stats = numbers(b, STATS);
    desc x = product(b, q, k, scores(b, F32));
    x = pointwise(b, CUDNN_POINTWISE_MUL, 0, x, scale, NULL, scores(b, F32));
    x = masked(b, x, hidden);
    desc most = reduction(b, CUDNN_REDUCE_TENSOR_MAX, x, numbers(b, 0));
    desc e = pointwise(b, CUDNN_POINTWISE_SUB, 0, x, most, NULL, scores(b, F32));
    e = pointwise(b, CUDNN_POINTWISE_EXP, 0, e, NULL, NULL, scores(b, F32));
    desc sum = reduction(b, CUDNN_REDUCE_TENSOR_ADD, e, numbers(b, 0));
    desc log = pointwise(b, CUDNN_POINTWISE_LOG, 0, sum, NULL, NULL, numbers(b, 0));
    pointwise(b, CUDNN_POINTWISE_ADD, 0, most, log, NULL, stats);
    desc p = pointwise(b, CUDNN_POINTWISE_DIV, 0, e, sum, NULL, scores(b, b->narrow));
    product(b, p, v, o);
}

/* delta = sum(do o); p = exp(masked(scale q k^T) - stats); dv = p^T do; ds = p (do v^T - delta)
 * scale; dk = ds^T q; dq = ds k, summed in f32 and rounded by a last pass. */
static void describe_gradient(building *b)
{
    const wf_dnn_shape *s = b->s;
    int64_t h = s->heads, t = s->length, d = s->d;
    four whole = {{s->batch, h, t, d}};
    desc q = rows(b, Q, s->q_row, s->q_head), k = columns(b, K, s->k_row, s->k_head);
    desc v = columns(b, V, s->v_row, s->v_head), o = rows(b, O, s->o_row, s->o_head);
    desc dout = rows(b, DOUT, s->dout_row, s->dout_head), stats = numbers(b, STATS);
    desc dq = rows(b, DQ, s->dq_row, s->dq_head), dk = rows(b, DK, s->dk_row, s->dk_head);
    desc dv = rows(b, DV, s->dv_row, s->dv_head), sum = numbers(b, SUM);
    desc scale = number(b, SCALE), hidden = number(b, HIDDEN), one = number(b, ONE);
    desc dq_sum = tensor(b, DQ_SUM, F32, whole, (four){{h * t * d, t * d, d, 1}});

    desc both = tensor(b, 0, F32, whole, (four){{h * t * d, t * d, h * d, 1}});
    pointwise(b, CUDNN_POINTWISE_MUL, 0, dout, o, NULL, both);
    desc delta = reduction(b, CUDNN_REDUCE_TENSOR_ADD, both, numbers(b, 0));
    pointwise(b, CUDNN_POINTWISE_MUL, 0, delta, one, NULL, sum);

    desc x = product(b, q, k, scores(b, F32));
    x = pointwise(b, CUDNN_POINTWISE_MUL, 0, x, scale, NULL, scores(b, F32));
    x = pointwise(b, CUDNN_POINTWISE_SUB, 0, x, stats, NULL, scores(b, F32));
    x = masked(b, x, hidden);
    desc p = pointwise(b, CUDNN_POINTWISE_EXP, 0, x, NULL, NULL, scores(b, F32));
    product(b, reshape(b, p, scores_transposed(b)), dout, dv);

    desc g = product(b, dout, v, scores(b, F32));
    g = pointwise(b, CUDNN_POINTWISE_SUB, 0, g, sum, NULL, scores(b, F32));
    g = pointwise(b, CUDNN_POINTWISE_MUL, 0, g, p, NULL, scores(b, F32));
    g = pointwise(b, CUDNN_POINTWISE_MUL, 0, g, scale, NULL, scores(b, b->narrow));
    product(b, reshape(b, g, scores_transposed(b)), q, dk);
    product(b, g, reshape(b, k, rows(b, 0, s->k_row, s->k_head)), dq_sum);
    pointwise(b, CUDNN_POINTWISE_IDENTITY, 0, dq_sum, NULL, NULL, dq);
}

/* ---- Plans ---- */

/* Takes cuDNN's first suggestion that builds within `most` bytes of workspace. */
static void choose_plan(building *b, desc graph, int64_t most, wf_dnn_plan *out)
{
    desc ways = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), config[CONFIGS];
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    set_desc(b, ways, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(b, ways, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    done(b, ways);
    for (int i = 0; i < CONFIGS; i++)
        config[i] = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!b->failed)
        note(b, "looking for a plan",
             dnn.get(ways, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS,
                     &count, config));
    /* `count` is the total; at most CONFIGS were returned. An engine that fails is skipped. */
    for (int64_t i = 0; !b->failed && i < count && i < CONFIGS; i++) {
        int64_t got;
        desc plan = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        set_desc(b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config[i]);
        if (b->failed || dnn.finalize(plan) != CUDNN_STATUS_SUCCESS)
            continue;
        out->workspace = 0;
        dnn.get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                &out->workspace);
        if (out->workspace <= most) {
            out->plan = plan;
            return;
        }
    }
    if (!b->failed)
        snprintf(fault, sizeof fault, "cuDNN has no plan for attention of this shape");
}

/* Descriptors are not freed: the plan refers to them. */
static void build(wf_dnn_plan *p, int64_t most)
{
    building b = {.s = &p->shape,
                  .next = LAST,
                  .narrow = p->shape.type == WF_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF};
    if (p->shape.gradient)
        describe_gradient(&b);
    else
        describe_forward(&b);
    desc graph = make(&b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b.op_count, b.op);
    set(&b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    done(&b, graph);
    choose_plan(&b, graph, most, p);
}

/* The handle belongs to the GPU that was current when it was created. */
static bool is_owner(void)
{
    int now = -1;
    return cudaGetDevice(&now) == cudaSuccess && now == owner;
}

/* NULL: not built, or cuDNN has no plan. Does not build: launches call it during capture. */
const wf_dnn_plan *wf_dnn_find(const wf_dnn_shape *shape)
{
    const wf_dnn_plan *p;
    if (!is_owner())
        return NULL;
    pthread_mutex_lock(&lock);
    for (p = plans; p && memcmp(&p->shape, shape, sizeof *shape) != 0;)
        p = p->next;
    pthread_mutex_unlock(&lock);
    return p && p->plan ? p : NULL;
}

const wf_dnn_plan *wf_dnn_build(const wf_dnn_shape *shape, size_t most, const char **why)
{
    *why = fault;
    if (!wf_dnn_available(NULL))
        return NULL;
    if (!is_owner()) {
        *why = "cuDNN is in use on another GPU";
        return NULL;
    }
    if (wf_dnn_find(shape))
        return wf_dnn_find(shape);
    wf_dnn_plan *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->shape = *shape;
    pthread_mutex_lock(&lock);
    build(p, (int64_t)most);
    p->next = plans;
    plans = p;
    pthread_mutex_unlock(&lock);
    return p->plan ? p : NULL;
}

/* ---- Running ---- */

/* Bytes of delta and of dq in f32, which the plan takes as tensors, before its own workspace. */
size_t wf_dnn_sums(const wf_dnn_shape *s)
{
    size_t n = (size_t)s->batch * (size_t)s->heads * (size_t)s->length;
    return s->gradient ? (n * ((size_t)s->d + 1) * sizeof(float) + 255) / 256 * 256 : 0;
}

bool wf_dnn_run(const wf_dnn_plan *p, const wf_flash *f, void *workspace, cudaStream_t stream,
                const char **why)
{
    const wf_dnn_shape *s = &p->shape;
    float scale = f->scale, hidden = -1e30f, one = 1;
    size_t n = (size_t)s->batch * (size_t)s->heads * (size_t)s->length;
    float *dq_sum = workspace, *sum = dq_sum + n * (size_t)s->d;
    char *rest = (char *)workspace + wf_dnn_sums(s);
    int64_t id[] = {Q, K, V, O, STATS, SCALE, HIDDEN, ONE, DOUT, DQ, DK, DV, SUM, DQ_SUM};
    void *at[] = {f->q.data, f->k.data,    f->v.data,  f->o.data,  f->lse,     &scale, &hidden,
                  &one,      f->dout.data, f->dq.data, f->dk.data, f->dv.data, sum,    dq_sum};
    int64_t count = s->gradient ? 14 : 7; /* the forward graph uses the first seven */
    building b = {.s = s};
    *why = fault;
    pthread_mutex_lock(&lock); /* the handle has one stream: set it and run under the lock */
    note(&b, "a stream", dnn.set_stream(handle, stream));
    desc pack = make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, at);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, id);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &rest);
    done(&b, pack);
    if (!b.failed)
        note(&b, "attention", dnn.execute(handle, p->plan, pack));
    if (pack)
        dnn.desc_destroy(pack);
    pthread_mutex_unlock(&lock);
    return !b.failed;
}

#else

bool wf_dnn_available(const char **why)
{
    if (why)
        *why = "this build was made without cuDNN's headers";
    return false;
}

const wf_dnn_plan *wf_dnn_find(const wf_dnn_shape *shape)
{
    (void)shape;
    return NULL;
}

const wf_dnn_plan *wf_dnn_build(const wf_dnn_shape *shape, size_t most, const char **why)
{
    (void)shape, (void)most;
    wf_dnn_available(why);
    return NULL;
}

size_t wf_dnn_sums(const wf_dnn_shape *shape)
{
    (void)shape;
    return 0;
}

bool wf_dnn_run(const wf_dnn_plan *plan, const wf_flash *f, void *workspace, cudaStream_t stream,
                const char **why)
{
    (void)plan, (void)f, (void)workspace, (void)stream;
    return wf_dnn_available(why);
}

#endif
