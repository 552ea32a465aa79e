/* SPDX-License-Identifier: MIT */
/*
 * head.cu - head_loss: a language model's head and its loss, one chunk of rows of x at a time:
 *
 *     logits = x w^T      loss, lse and dlogits of each row      dx = dlogits w      dw += dlogits^T x
 *
 * The workspace holds the logits of one chunk; their gradient overwrites them. cuBLASLt is several
 * times slower with an odd number of classes, as in GPT-2 (50257). Then w is copied to a buffer
 * padded with zero rows, and dw is copied from a padded one. The padding's gradient is 0.
 *
 * Intermediate values are rounded as separate nodes would round them. dw is summed over chunks in
 * f32.
 */
#include "device/cuda/loss.cuh"
#include "device/cuda/product.h"

#define THREADS 256

/* Default rows per chunk: at most chunk_rows, fewer if their logits exceed chunk_bytes, but at
 * least chunk_least: smaller GEMMs are less efficient. */
static const int64_t chunk_rows = 8192, chunk_least = 512, chunk_bytes = (int64_t)1 << 30;
/* Elements: rows of logits are padded to `pad`; GEMMs need a multiple of `even` classes. */
static const int64_t pad = 64, even = 8;

typedef struct {
    int64_t rows, classes, width, chunk; /* rows of x, V, C, rows per chunk */
    int64_t columns;                     /* n of the GEMM: the classes, padded if needed */
    int64_t padded;                      /* row stride of the logits, in elements */
    wf_type weight; /* type of w in the GEMMs: its own, x's, or f32 for quantized w */
    bool grad;      /* with dloss: compute gradients */
} sizes;

static sizes sizes_of(const wf_node *n)
{
    const wf_attr_head_loss *attr = (const wf_attr_head_loss *)n->attr;
    const wf_value *x = n->in[0], *w = n->in[1];
    sizes s = {};
    s.rows = wf_dims_rows(&x->shape);
    s.classes = w->shape.d[0];
    s.width = w->shape.d[1];
    s.padded = (s.classes + pad - 1) / pad * pad;
    s.columns = s.classes % even == 0 ? s.classes : s.padded;
    s.grad = n->nin > 3;
    s.weight = w->type;
    if (wf_type_get(w->type)->kind == WF_KIND_BLOCK)
        s.weight = w->node->op == WF_OP_state && w->marks & WF_MARK_ROUNDED ? x->type : WF_F32;
    /* Rows whose logits fit. */
    int64_t most = chunk_bytes / (int64_t)wf_type_bytes(x->type, s.padded > 0 ? s.padded : 1);
    most = most < chunk_least ? chunk_least : most < chunk_rows ? most : chunk_rows;
    if (attr->chunk > 0)
        most = attr->chunk;
    const int64_t chunks = s.rows > 0 ? (s.rows + most - 1) / most : 1;
    s.chunk = (s.rows + chunks - 1) / chunks; /* chunks of nearly equal size */
    if (attr->chunk == 0 && chunks > 1)
        s.chunk = (s.chunk + 127) / 128 * 128; /* whole tiles of GEMM kernels */
    return s;
}

/* ---- The workspace: GEMM scratch, then the logits, then the buffers below ---- */

typedef struct {
    size_t logits; /* byte offsets in the workspace */
    size_t sum;    /* f32 [V, C]: the sum of dw, if dw cannot hold it */
    size_t weight; /* [V, C]: w decoded, converted or padded */
    size_t end;
} layout;

static size_t lines(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static wf_cuda_product logits_product(const sizes *s, int64_t rows)
{
    wf_cuda_product p = {};
    p.batch = 1;
    p.m = rows;
    p.n = s->columns;
    p.k = s->width;
    p.transpose_b = true;
    return p;
}

static bool copies_weight(const wf_node *n, const sizes *s)
{
    return s->weight != n->in[1]->type || s->columns != s->classes;
}

/* Whether dw is summed in the workspace. */
static bool copies_sums(const wf_node *n, const sizes *s)
{
    const wf_type x = n->in[0]->type, w = n->in[1]->type;
    return n->nout > 3 &&
           /* dw itself cannot hold f32 sums over chunks, or padded rows. */
           (s->columns != s->classes || (w != WF_F32 && (s->chunk < s->rows || x != w)));
}

static layout layout_of(const wf_node *n, const sizes *s)
{
    const wf_cuda_product p = logits_product(s, s->chunk); /* all three GEMMs have the same size */
    const int64_t matrix = s->columns * s->width;
    layout at = {};
    at.logits = lines(wf_cuda_product_scratch(&p, false, 0));
    at.sum = at.logits + lines(wf_type_bytes(n->in[0]->type, s->chunk * s->padded));
    at.weight = at.sum + (copies_sums(n, s) ? lines(wf_type_bytes(WF_F32, matrix)) : 0);
    at.end = at.weight + (copies_weight(n, s) ? lines(wf_type_bytes(s->weight, matrix)) : 0);
    return at;
}

static size_t head_workspace(const wf_device *device, const wf_node *n)
{
    const sizes s = sizes_of(n);
    (void)device;
    return layout_of(n, &s).end;
}

/* ---- dw from its sums ---- */

/* Rounds to x's type first, as a separate matmul node would, then to w's. */
template <typename X, typename W>
static __global__ void __launch_bounds__(THREADS)
    round_sums(const float *from, W *to, int64_t count)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step)
        to[i] = wf_round<W>(wf_load(wf_round<X>(from[i])));
}

static void finish_dw(cudaStream_t stream, const wf_launch *l, const float *sum)
{
    const int64_t count = wf_view_count(&l->out[3]);
    if (count == 0)
        return;
    wf_with_float(l->in[0].type, [&](auto x) {
        wf_with_float(l->out[3].type, [&](auto w) {
            using W = decltype(w);
            WF_RUN((round_sums<decltype(x), W>), wf_cuda_blocks(count, 4 * THREADS, 1 << 16),
                   THREADS, 0, stream)
            (sum, static_cast<W *>(l->out[3].data), count);
        });
    });
}

/* ---- Chunks ---- */

typedef struct {
    wf_cuda_work work;
    sizes size;
    wf_cuda_matrix logits; /* [chunk, columns], overwritten by their gradient */
    wf_cuda_matrix w;      /* [columns, C] */
    wf_cuda_matrix sum;    /* [columns, C]: the sum of dw; data is NULL if dw is not read */
    wf_cuda_loss loss;
} job;

static wf_cuda_matrix matrix(void *data, wf_type type, int64_t row)
{
    wf_cuda_matrix m = {data, type, row, 0};
    return m;
}

static wf_cuda_matrix rows_of(const wf_view *v, int64_t first, int64_t width)
{
    return matrix(v->data ? (char *)v->data + wf_type_bytes(v->type, first * width) : NULL, v->type,
                  width);
}

static wf_status run_loss(const job *j, int64_t first, int64_t rows)
{
    const wf_launch *l = j->work.l;
    wf_cuda_loss o = j->loss;
    if (j->work.prepare)
        return WF_OK;
    o.rows = rows;
    o.before = first;
    o.target = static_cast<const int32_t *>(l->in[2].data) + first;
    if (o.dlogits)
        o.dloss = static_cast<const float *>(l->in[3].data) + first;
    o.loss = l->out[0].data ? static_cast<float *>(l->out[0].data) + first : NULL;
    o.lse = l->out[1].data ? static_cast<float *>(l->out[1].data) + first : NULL;
    return wf_cuda_check(l, wf_cuda_loss_run(&o, wf_cuda_device_of(l)->shared, wf_cuda_stream(l)));
}

/* dw (+)= dlogits^T x. */
static wf_status add_dw(const job *j, int64_t first, int64_t rows)
{
    wf_cuda_product p = {};
    p.batch = 1;
    p.m = j->size.columns;
    p.n = j->size.width;
    p.k = rows;
    p.a = j->logits;
    p.b = rows_of(&j->work.l->in[0], first, j->size.width);
    p.y = j->sum;
    p.transpose_a = true;
    p.add = first > 0; /* the first chunk overwrites */
    return wf_cuda_multiply(&j->work, &p);
}

static wf_status run_chunk(const job *j, int64_t first, int64_t rows)
{
    const wf_launch *l = j->work.l;
    wf_cuda_product logits = logits_product(&j->size, rows), dx = {};
    logits.a = rows_of(&l->in[0], first, j->size.width);
    logits.b = j->w;
    logits.y = j->logits;
    WF_TRY(wf_cuda_multiply(&j->work, &logits));
    WF_TRY(run_loss(j, first, rows));
    if (j->sum.data)
        WF_TRY(add_dw(j, first, rows));
    if (!j->size.grad || !l->out[2].data)
        return WF_OK;
    dx.batch = 1;
    dx.m = rows;
    dx.n = j->size.width;
    dx.k = j->size.columns;
    dx.a = j->logits;
    dx.b = j->w;
    dx.y = rows_of(&l->out[2], first, j->size.width);
    return wf_cuda_multiply(&j->work, &dx);
}

static void set_loss(job *j, const wf_launch *l, bool grad)
{
    const wf_attr_cross_entropy attr = wf_attr_of_loss((const wf_attr_head_loss *)l->attr);
    wf_cuda_loss *o = &j->loss;
    o->type = j->logits.type;
    o->classes = j->size.classes;
    o->logits = j->logits.data;
    o->dlogits = grad ? j->logits.data : NULL;
    o->padded = j->size.columns;
    o->logits_at = o->dlogits_at = wf_cuda_steps_every(j->size.padded);
    o->target_at = o->dloss_at = o->given_at = wf_cuda_steps_every(1);
    o->fault = l->fault;
    wf_cuda_loss_attr(o, &attr);
}

/* Converts or pads w for the GEMMs. */
static wf_status copy_weight(job *j, void *to)
{
    const wf_launch *l = j->work.l;
    const sizes *s = &j->size;
    const wf_view *w = &l->in[1];
    const size_t bytes = wf_type_bytes(s->weight, s->classes * s->width);
    const size_t all = wf_type_bytes(s->weight, s->columns * s->width);
    j->w = matrix(to, s->weight, s->width);
    if (j->work.prepare)
        return WF_OK;
    if (s->weight != w->type) /* converts and makes dense */
        wf_cuda_convert(wf_cuda_stream(l), w, s->weight, to);
    else
        WF_TRY(wf_cuda_check(
            l, cudaMemcpyAsync(to, w->data, bytes, cudaMemcpyDeviceToDevice, wf_cuda_stream(l))));
    return wf_cuda_check(/* zero rows give logits of 0, which the loss kernel never reads */
                         l, cudaMemsetAsync(static_cast<char *>(to) + bytes, 0, all - bytes,
                                            wf_cuda_stream(l)));
}

/* head_loss: (x [..., C], w [V, C], targets i32[...], dloss f32[...]?) -> loss, lse, dx?, dw? */
static wf_status run_head(const wf_launch *l, bool prepare)
{
    job j = {};
    j.work = wf_cuda_work{l, prepare, l->workspace};
    j.size = sizes_of(l->node);
    const sizes *s = &j.size;
    const layout at = layout_of(l->node, s);
    char *base = static_cast<char *>(l->workspace);
    void *dw = l->nout > 3 ? l->out[3].data : NULL;
    const bool apart = copies_sums(l->node, s);
    j.logits = matrix(base + at.logits, l->in[0].type, s->padded);
    j.w = matrix(l->in[1].data, s->weight, s->width);
    if (copies_weight(l->node, s))
        WF_TRY(copy_weight(&j, base + at.weight));
    if (dw)
        j.sum =
            apart ? matrix(base + at.sum, WF_F32, s->width) : matrix(dw, l->out[3].type, s->width);
    set_loss(&j, l, s->grad && (dw || l->out[2].data));
    for (int64_t first = 0; first < s->rows; first += s->chunk)
        WF_TRY(run_chunk(&j, first, s->rows - first < s->chunk ? s->rows - first : s->chunk));
    if (dw && s->rows == 0) /* no rows: dw is 0 */
        WF_TRY(add_dw(&j, 0, 0));
    if (dw && !prepare && (apart || l->in[0].type != l->out[3].type))
        finish_dw(wf_cuda_stream(l), l, static_cast<const float *>(j.sum.data));
    return WF_OK;
}

static wf_status launch_head(const wf_launch *l)
{
    WF_TRY(run_head(l, false));
    return wf_cuda_launched(l);
}

static wf_status prepare_head(const wf_launch *l)
{
    wf_status status = run_head(l, true);
    wf_cuda_products_keep(l);
    return status;
}

/* clang-format off */
extern "C" const wf_kernel wf_cuda_head_kernels[] = {
    {.op = WF_OP_head_loss, .name = "chunks", .types = WF_TYPES_FLOAT, .weights = WF_TYPES_WEIGHT,
     .workspace = head_workspace, .prepare = prepare_head, .launch = launch_head},
    {},
};
