/* SPDX-License-Identifier: MIT */
/*
 * head_loss.c - the head of a language model and its loss, some rows of x at a time:
 *
 *     logits = x w^T      loss, lse and dlogits of each row      dx = dlogits w      dw += dlogits^T x
 *
 * The workspace holds the logits of one chunk of rows, which the gradient overwrites, so it does not
 * grow with the number of rows, and the logits are computed once where separate nodes would keep
 * them or compute them again.
 *
 * All results have the bits of the separate nodes. Between the steps numbers are rounded as the
 * nodes' outputs are; rows of a product do not depend on their neighbours; and chunks are whole
 * blocks of the product's sums, so that dw is added up over the rows as in one product. (A chunk that
 * was asked for and is no multiple of WF_GEMM_BLOCK adds up dw in other portions.)
 */
#include "device/cpu/head_loss.h"

#include <string.h>

#include "base/thread.h"
#include "device/cpu/count.h"
#include "device/cpu/walk.h"

enum { Z, DZ, BUFFERS };

typedef struct {
    int64_t rows, classes, width, chunk;
    bool grad;
} sizes;

/* Where the parts of the workspace begin, in bytes. */
typedef struct {
    size_t sum; /* f32 [V, C]: dw before it is rounded to w's type; none where that is f32 */
    size_t scratch;
    size_t end;
} layout; /* the logits of a chunk come first */

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Whole cache lines. */
static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static sizes sizes_of(const wf_node *n, const wf_head_loss_ways *ways)
{
    const wf_attr_head_loss *attr = n->attr;
    const wf_dims *w = &n->in[1]->shape;
    sizes s = {.rows = wf_dims_rows(&n->in[0]->shape), .classes = w->d[0], .width = w->d[1]};
    s.chunk = wf_min64(attr->chunk > 0 ? attr->chunk : ways->chunk, s.rows);
    s.grad = n->nin > 3;
    return s;
}

/* What the products of a chunk of so many rows want. */
static size_t scratch_of(const sizes *s, int64_t rows, wf_type x, const wf_head_loss_ways *ways,
                         int threads)
{
    size_t scratch = ways->scratch(rows, s->classes, s->width, x, threads);
    if (s->grad) {
        scratch = max_size(scratch, ways->scratch(rows, s->width, s->classes, x, threads));
        scratch = max_size(scratch, ways->scratch(s->classes, s->width, rows, WF_F32, threads));
    }
    return scratch;
}

static layout layout_of(const wf_node *n, const sizes *s, const wf_head_loss_ways *ways,
                        int threads)
{
    wf_type x = n->in[0]->type, w = n->in[1]->type;
    bool apart = n->nout > 3 && w != WF_F32;
    /* The last chunk may have fewer rows, and then want more: it is cut otherwise. */
    int64_t last = s->rows > 0 ? (s->rows - 1) % s->chunk + 1 : 0;
    size_t scratch = max_size(
        wf_row_workspace(threads, BUFFERS, s->classes),
        max_size(scratch_of(s, s->chunk, x, ways, threads), scratch_of(s, last, x, ways, threads)));
    layout a = {.sum = lines(wf_type_bytes(x, s->chunk * s->classes))};
    a.scratch = a.sum + (apart ? lines(wf_type_bytes(WF_F32, s->classes * s->width)) : 0);
    a.end = a.scratch + scratch;
    return a;
}

size_t wf_head_loss_workspace(const wf_node *n, int threads, const wf_head_loss_ways *ways)
{
    sizes s = sizes_of(n, ways);
    return layout_of(n, &s, ways, threads).end;
}

typedef struct {
    const wf_launch *l;
    const wf_head_loss_ways *ways;
    sizes size;
    wf_loss loss;
    wf_view logits; /* [chunk, V] of x's type, then their gradient */
    wf_view sum;    /* f32 [V, C]: dw, or the workspace; without data when nobody reads dw */
    int64_t first;  /* row of x where the chunk begins */
    void *scratch;
    bool grad; /* dx or dw is wanted */
} job;

static wf_view dense_view(void *data, wf_type type, int64_t rows, int64_t columns)
{
    return (wf_view){.data = data,
                     .type = type,
                     .rank = 2,
                     .dim = {rows, columns},
                     .stride = {columns, 1},
                     .dense = true};
}

/* Loss and gradient of a row in one go, while its logits are in the cache. */
static void loss_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const wf_launch *l = j->l;
    float *buf = wf_row_buffer_in(j->scratch, thread, BUFFERS, Z, j->size.classes);
    float *out = wf_row_buffer_in(j->scratch, thread, BUFFERS, DZ, j->size.classes);
    for (int64_t r = begin; r < end; r++) {
        int64_t i = j->first + r;
        const float *z = wf_loss_read(&j->loss, &j->logits, r, buf);
        float lse = wf_loss_row(&j->loss, i, z, &l->out[0], &l->out[1]);
        if (!j->grad)
            continue;
        float *dz = wf_row_begin(&j->logits, r, out);
        wf_loss_row_grad(&j->loss, i, z, *(const float *)wf_loss_at(&l->in[3], i), lse, dz);
        wf_row_end(&j->logits, r, dz);
    }
}

/* The same in the device's own way. */
static void loss_rows_way(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        j->ways->row(&j->loss, j->first + r, j->logits.type,
                     wf_view_at(&j->logits, wf_view_row(&j->logits, r)), j->l, j->grad);
}

/* The product y = a b, or y += a b, over `rows` rows of the chunk. */
static void multiply(const job *j, wf_gemm g)
{
    g.batch = 1;
    g.threads = j->l->threads;
    g.scratch = j->scratch;
    j->ways->multiply(&g);
}

static void run_chunk(const job *j)
{
    const wf_launch *l = j->l;
    const wf_view *x = &l->in[0], *w = &l->in[1];
    int64_t rows = wf_min64(j->size.chunk, j->size.rows - j->first);
    int64_t classes = j->size.classes, width = j->size.width;
    multiply(j, (wf_gemm){.m = rows,
                          .n = classes,
                          .k = width,
                          .a = {x, j->first, rows, false},
                          .b = {w, 0, classes, false},
                          .y = &j->logits});
    bool own = j->ways->row && j->loss.attr->softcap == 0;
    wf_parallel_share(l->threads, rows, wf_grain(classes), own ? loss_rows_way : loss_rows,
                      (void *)j);
    if (!j->grad)
        return;
    multiply(j, (wf_gemm){.m = rows,
                          .n = width,
                          .k = classes,
                          .a = {&j->logits, 0, rows, false},
                          .b = {w, 0, classes, true},
                          .y = &l->out[2],
                          .y_first = j->first});
    multiply(j, (wf_gemm){.m = classes,
                          .n = width,
                          .k = rows,
                          .a = {&j->logits, 0, rows, true},
                          .b = {x, j->first, rows, true},
                          .y = &j->sum,
                          .add = j->first > 0});
}

/* Rows of dw from their sums: a product has x's type before it is cast to that of w. */
static void round_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const wf_view *dw = &j->l->out[3];
    wf_type type = j->l->in[0].type;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t at = 0; at < j->size.width; at += WF_CHUNK) {
            int64_t n = wf_min64(j->size.width - at, WF_CHUNK);
            const float *from = wf_row_part(&j->sum, r, at, n, NULL);
            wf_chunk stored, rounded;
            wf_convert_from_f32(type, from, &stored, n);
            wf_convert_to_f32(type, &stored, rounded.f32, n);
            wf_convert_from_f32(dw->type, rounded.f32, wf_view_at(dw, wf_view_row(dw, r) + at), n);
        }
}

static void finish_dw(const job *j)
{
    const wf_launch *l = j->l;
    if (!j->sum.data)
        return;
    if (j->size.rows == 0) /* no chunk has set the sums */
        memset(j->sum.data, 0, wf_type_bytes(WF_F32, wf_view_count(&j->sum)));
    if (l->in[0].type != WF_F32 || l->in[1].type != WF_F32)
        wf_parallel_for(l->threads, j->size.classes, wf_grain(j->size.width), round_rows,
                        (void *)j);
}

/* head_loss: (x [..., C], w [V, C], targets i32[...], dloss f32[...]?) -> loss, lse, dx?, dw? */
wf_status wf_head_loss_launch(const wf_launch *l, const wf_head_loss_ways *ways)
{
    const wf_attr_cross_entropy attr = wf_attr_of_loss(l->attr);
    job j = {.l = l, .ways = ways, .size = sizes_of(l->node, ways)};
    layout a = layout_of(l->node, &j.size, ways, l->threads);
    char *base = l->workspace;
    wf_type x = l->in[0].type, w = l->in[1].type;
    int64_t classes = j.size.classes, width = j.size.width;
    j.loss = (wf_loss){&attr, &l->in[2], j.size.rows, classes};
    j.logits = dense_view(base, x, j.size.chunk, classes);
    j.scratch = base + a.scratch;
    if (j.size.grad) {
        void *dw = l->nout > 3 ? l->out[3].data : NULL;
        j.sum = dense_view(dw && w != WF_F32 ? base + a.sum : dw, WF_F32, classes, width);
        j.grad = l->out[2].data || dw;
    }
    WF_TRY(wf_loss_check(&j.loss, l));
    for (; j.first < j.size.rows; j.first += j.size.chunk)
        run_chunk(&j);
    finish_dw(&j);
    return WF_OK;
}

/* ---- The reference ---- */

static size_t scratch(int64_t m, int64_t n, int64_t k, wf_type product, int threads)
{
    (void)product;
    return wf_gemm_scratch(m, n, k, threads);
}

static const wf_head_loss_ways reference = {
    .chunk = WF_GEMM_BLOCK,
    .scratch = scratch,
    .multiply = wf_gemm_run,
};

static size_t head_loss_workspace(const wf_node *n, int threads)
{
    return wf_head_loss_workspace(n, threads, &reference);
}

static wf_status launch_head_loss(const wf_launch *l)
{
    return wf_head_loss_launch(l, &reference);
}

/* clang-format off */
const wf_kernel wf_cpu_head_loss[] = {
    {.op = WF_OP_head_loss, .name = "reference", .types = WF_TYPES_FLOAT,
     .weights = WF_TYPES_WEIGHT, .strided = true, .workspace = head_loss_workspace,
     .launch = launch_head_loss},
    {0},
};
