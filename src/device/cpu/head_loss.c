/* SPDX-License-Identifier: MIT */
/*
 * head_loss.c - a language model's head and its loss, one chunk of rows of x at a time:
 *
 *     logits = x w^T      loss, lse and dlogits of each row      dx = dlogits w      dw += dlogits^T x
 *
 * The workspace holds the logits of one chunk; their gradient overwrites them. Its size does not
 * depend on the number of rows, and the logits are computed once, where separate nodes would keep
 * them or compute them twice.
 *
 * Rows with ignored targets (most rows of conversations) have loss 0 and a zero gradient. If lse is
 * not read they are skipped: the other rows are gathered into full chunks.
 *
 * All results have the bits of separate nodes. Intermediate values are rounded like the nodes'
 * outputs. Rows of a GEMM do not depend on their neighbours. Chunks are whole blocks of the GEMM's
 * sums, so dw is summed as in one GEMM. (A requested chunk that is no multiple of WF_GEMM_BLOCK
 * sums dw in other portions.) Skipped zeros change no sum as long as the gathered rows belong to
 * one block: with dw, rows therefore stay in their chunk.
 */
#include "device/cpu/head_loss.h"

#include <string.h>

#include "base/thread.h"
#include "device/cpu/count.h"
#include "device/walk.h"

enum { Z, DZ, BUFFERS }; /* row buffers of a thread, f32 [V] each */
enum { SIZES = 8 /* distinct sizes of gathered chunks, which bounds the distinct GEMM shapes */ };

typedef struct {
    int64_t rows, classes, width, chunk; /* rows of x, V, C, rows per chunk */
    bool grad;                           /* with dloss */
} sizes;

/* Byte offsets of the parts of the workspace. */
typedef struct {
    size_t sum;    /* f32 [V, C]: dw before rounding to w's type; absent if that is f32 */
    size_t taken;  /* i64 [chunk]: indices of the gathered rows of x */
    size_t gather; /* [chunk, C]: the gathered rows, then their dx */
    size_t scratch;
    size_t end;
} layout; /* the logits of a chunk are at offset 0 */

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Rounds up to whole cache lines. */
static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Depends on the node only: the planner and the launch must agree. */
static sizes sizes_of(const wf_node *n, const wf_head_loss_ways *ways)
{
    const wf_attr_head_loss *attr = n->attr;
    const wf_dims *w = &n->in[1]->shape;
    sizes s = {.rows = wf_dims_rows(&n->in[0]->shape), .classes = w->d[0], .width = w->d[1]};
    s.chunk = wf_min64(attr->chunk > 0 ? attr->chunk : ways->chunk, s.rows);
    s.grad = n->nin > 3;
    return s;
}

/* Scratch bytes of the GEMMs of a chunk of `rows` rows. */
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

/* The padded size of a chunk of n gathered rows; the padding rows are zeros. */
static int64_t gathered_rows(const sizes *s, int64_t n)
{
    int64_t share = wf_divide_up(s->chunk, SIZES);
    return wf_min64(wf_divide_up(n, share) * share, s->chunk);
}

static layout layout_of(const wf_node *n, const sizes *s, const wf_head_loss_ways *ways,
                        int threads)
{
    wf_type x = n->in[0]->type, w = n->in[1]->type;
    bool apart = n->nout > 3 && w != WF_F32;
    /* A smaller last chunk may need more scratch, since its GEMM is tiled differently. */
    int64_t last = s->rows > 0 ? (s->rows - 1) % s->chunk + 1 : 0;
    size_t scratch = max_size(wf_row_workspace(threads, BUFFERS, s->classes),
                              scratch_of(s, last, x, ways, threads));
    for (int64_t rows = 1; rows <= s->chunk; rows = gathered_rows(s, rows) + 1)
        scratch = max_size(scratch, scratch_of(s, gathered_rows(s, rows), x, ways, threads));
    layout a = {.sum = lines(wf_type_bytes(x, s->chunk * s->classes))};
    a.taken = a.sum + (apart ? lines(wf_type_bytes(WF_F32, s->classes * s->width)) : 0);
    a.gather = a.taken + lines((size_t)s->chunk * sizeof(int64_t));
    a.scratch = a.gather + lines(wf_type_bytes(x, s->chunk * s->width));
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
    wf_view logits; /* [chunk, V] of x's type, overwritten by their gradient */
    wf_view sum;    /* f32 [V, C]: dw or the workspace; data is NULL if dw is not read */
    wf_view gather; /* [chunk, C] of x's type */
    int64_t *taken; /* [chunk]: indices of the chunk's rows */
    int64_t count;  /* rows in the chunk */
    int64_t next;   /* where the next chunk starts looking */
    void *scratch;
    bool grad;   /* dx or dw is read */
    bool skip;   /* skip rows with ignored targets */
    bool summed; /* sum has been written */
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

/* Computes loss and gradient of each row while its logits are in the cache. */
static void loss_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const wf_launch *l = j->l;
    float *buf = wf_row_buffer_in(j->scratch, thread, BUFFERS, Z, j->size.classes);
    float *out = wf_row_buffer_in(j->scratch, thread, BUFFERS, DZ, j->size.classes);
    for (int64_t r = begin; r < end; r++) {
        int64_t i = j->taken[r];
        const float *z = wf_loss_read(&j->loss, &j->logits, r, buf);
        float lse = wf_loss_row(&j->loss, i, z, &l->out[0], &l->out[1]);
        if (!j->grad)
            continue;
        float *dz = wf_row_begin(&j->logits, r, out);
        wf_loss_row_grad(&j->loss, i, z, *(const float *)wf_loss_at(&l->in[3], i), lse, dz);
        wf_row_end(&j->logits, r, dz);
    }
}

/* The same by the instruction set's own function. */
static void loss_rows_way(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        j->ways->row(&j->loss, j->taken[r], j->logits.type,
                     wf_view_at(&j->logits, wf_view_row(&j->logits, r)), j->l, j->grad);
}

/* ---- Selecting rows ---- */

static char *row_at(const wf_view *v, int64_t row)
{
    return wf_view_at(v, wf_view_row(v, row));
}

/* Writes the zero loss and gradient of a skipped row. */
static void leave_out(const job *j, int64_t row)
{
    const wf_launch *l = j->l;
    if (l->out[0].data)
        *(float *)wf_loss_at(&l->out[0], row) = 0;
    if (j->size.grad && l->out[2].data)
        memset(row_at(&l->out[2], row), 0, wf_type_bytes(l->out[2].type, j->size.width));
}

/* Takes the next chunk: as many counting rows as fit, or all consecutive rows. */
static void take_rows(job *j)
{
    int64_t end = j->size.rows;
    /* With dw, rows stay in their own chunk: see the top of the file. */
    if (!j->skip || j->sum.data)
        end = wf_min64(end, j->next + j->size.chunk);
    for (j->count = 0; j->next < end && j->count < j->size.chunk; j->next++)
        if (j->skip && wf_loss_target(&j->loss, j->next) == j->loss.attr->ignore_index)
            leave_out(j, j->next);
        else
            j->taken[j->count++] = j->next;
}

/* Whether the chunk's rows are consecutive in x. */
static bool is_together(const job *j)
{
    int64_t first = j->taken[0];
    /* The last rows of x may be a smaller chunk of their own. */
    return j->taken[j->count - 1] - first == j->count - 1 &&
           (j->count == j->size.chunk ||
            (first % j->size.chunk == 0 && first + j->count == j->size.rows));
}

/* Copies the chunk's rows of x, then zero rows. Returns their count. */
static int64_t gather_rows(const job *j)
{
    int64_t rows = gathered_rows(&j->size, j->count);
    size_t bytes = wf_type_bytes(j->gather.type, j->size.width);
    for (int64_t r = 0; r < j->count; r++)
        memcpy(row_at(&j->gather, r), row_at(&j->l->in[0], j->taken[r]), bytes);
    memset(row_at(&j->gather, j->count), 0, (size_t)(rows - j->count) * bytes);
    return rows;
}

static void scatter_rows(const job *j)
{
    const wf_view *dx = &j->l->out[2];
    for (int64_t r = 0; r < j->count; r++)
        memcpy(row_at(dx, j->taken[r]), row_at(&j->gather, r),
               wf_type_bytes(dx->type, j->size.width));
}

/* ---- A chunk ---- */

/* y = a b, or y += a b. */
static void multiply(const job *j, wf_gemm g)
{
    g.batch = 1;
    g.threads = j->l->threads;
    g.scratch = j->scratch;
    j->ways->multiply(&g);
}

static void run_chunk(job *j)
{
    const wf_launch *l = j->l;
    const wf_view *w = &l->in[1];
    int64_t classes = j->size.classes, width = j->size.width;
    const bool together = is_together(j);
    const wf_view *x = together ? &l->in[0] : &j->gather;
    const int64_t first = together ? j->taken[0] : 0;
    const int64_t rows = together ? j->count : gather_rows(j);
    multiply(j, (wf_gemm){.m = rows,
                          .n = classes, /* logits [rows, V] = x w^T */
                          .k = width,
                          .a = {x, first, rows, false},
                          .b = {w, 0, classes, false},
                          .y = &j->logits});
    /* The instruction set's function has no soft cap. */
    bool own = j->ways->row && j->loss.attr->softcap == 0;
    wf_parallel_share(l->threads, j->count, wf_grain(classes), own ? loss_rows_way : loss_rows, j);
    if (!j->grad)
        return;
    multiply(j, (wf_gemm){.m = classes, /* dw [V, C] += dlogits^T x */
                          .n = width,
                          .k = rows,
                          .a = {&j->logits, 0, rows, true},
                          .b = {x, first, rows, true},
                          .y = &j->sum,
                          .add = j->summed});
    j->summed = true;
    if (!l->out[2].data)
        return;
    multiply(j, (wf_gemm){.m = rows, /* dx [rows, C] = dlogits w */
                          .n = width,
                          .k = classes,
                          .a = {&j->logits, 0, rows, false},
                          .b = {w, 0, classes, true},
                          /* Gathered x is no longer read: its memory takes dx. */
                          .y = together ? &l->out[2] : &j->gather,
                          .y_first = first});
    if (!together)
        scatter_rows(j);
}

/* Rounds rows of dw from their sums: to x's type first, as a separate matmul would, then to w's. */
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
    if (!j->summed) /* no row counted: dw is 0 */
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
    j.gather = dense_view(base + a.gather, x, j.size.chunk, width);
    j.taken = (int64_t *)(void *)(base + a.taken);
    j.scratch = base + a.scratch;
    if (j.size.grad) {
        void *dw = l->nout > 3 ? l->out[3].data : NULL;
        j.sum = dense_view(dw && w != WF_F32 ? base + a.sum : dw, WF_F32, classes, width);
        j.grad = l->out[2].data || dw;
    }
    WF_TRY(wf_loss_check(&j.loss, l));
    /* lse of ignored rows may be read: then nothing is skipped. */
    j.skip = !l->out[1].data && (!j.sum.data || j.size.chunk <= WF_GEMM_BLOCK);
    while (j.next < j.size.rows) {
        take_rows(&j);
        if (j.count > 0)
            run_chunk(&j);
    }
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

static size_t head_loss_workspace(const wf_device *device, const wf_node *n)
{
    return wf_head_loss_workspace(n, wf_device_threads(device), &reference);
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
