/* SPDX-License-Identifier: MIT */
/*
 * product_ops.c - matmul, linear, and the fused forms of linear and its gradient.
 *
 * Operands of one float type are multiplied in place. Mixed types and quantized weights are
 * converted to f32 in the workspace first, and the result is f32 before it is rounded, as the op's
 * definition requires. Where rounding is allowed (WF_MARK_ROUNDED), operands meet in a narrow type
 * instead: that of the weight, or bf16 for a quantized weight. Sums are f32 in any case.
 *
 * All GEMMs are y [m, n] = a [m, k] b [k, n], by batch. Rows of the library and of the plain kernel
 * share these functions; product.c decides how each GEMM runs.
 */
#include "device/cuda/product.h"

/* ---- Views as matrices ---- */

/* Axes beyond a strided batch: the GEMM runs once per index. */
typedef struct {
    int rank;
    /* Axis lengths, and strides of each matrix in elements. */
    int64_t dim[WF_MAX_RANK], a[WF_MAX_RANK], b[WF_MAX_RANK], y[WF_MAX_RANK];
} outer_axes;

/* An axis of length 1 changes nothing. */
static void add_outer(outer_axes *o, int64_t dim, int64_t a, int64_t b, int64_t y)
{
    if (dim == 1)
        return;
    o->dim[o->rank] = dim;
    o->a[o->rank] = a;
    o->b[o->rank] = b;
    o->y[o->rank++] = y;
}

static wf_cuda_matrix matrix_of(const wf_view *v) /* a vector has no row stride */
{
    return (wf_cuda_matrix){
        .data = v->data, .type = v->type, .row = v->rank > 1 ? v->stride[v->rank - 2] : 0};
}

/* a [..., K]: axes with a uniform stride merge into m, the rest become outer axes. */
static void set_rows(wf_cuda_product *p, const wf_view *a, outer_axes *o)
{
    int64_t rows = 1;
    int i = a->rank - 2;
    p->a = (wf_cuda_matrix){.data = a->data, .type = a->type, .row = wf_view_last(a)};
    for (; i >= 0; i--) {
        if (a->dim[i] == 1)
            continue;
        /* The axis does not continue the rows so far. */
        if (rows > 1 && a->stride[i] != rows * p->a.row)
            break;
        if (rows == 1)
            p->a.row = a->stride[i];
        rows *= a->dim[i];
    }
    p->m = rows;
    for (; i >= 0; i--) {
        /* b is the same weight for all rows; y is dense. */
        add_outer(o, a->dim[i], a->stride[i], 0, rows * p->n);
        rows *= a->dim[i];
    }
}

/* Of all axes but the last two, those with a uniform stride in both operands merge into the batch;
 * the rest become outer axes. */
static void set_batch(wf_cuda_product *p, const wf_view *a, const wf_view *b, outer_axes *o)
{
    int64_t count = 1;
    int i = a->rank - 3;
    p->batch = 1;
    for (; i >= 0; i--) {
        if (a->dim[i] == 1)
            continue;
        if (p->batch > 1 &&
            (a->stride[i] != p->batch * p->a.batch || b->stride[i] != p->batch * p->b.batch))
            break;
        if (p->batch == 1) {
            p->a.batch = a->stride[i];
            p->b.batch = b->stride[i];
        }
        p->batch *= a->dim[i];
    }
    p->y.batch = p->m * p->n;
    count = p->batch;
    for (; i >= 0; i--) {
        add_outer(o, a->dim[i], a->stride[i], b->stride[i], count * p->m * p->n);
        count *= a->dim[i];
    }
}

/* NULL stays NULL: an unread output. */
static void *advance(const wf_cuda_matrix *x, int64_t elements)
{
    return x->data ? (char *)x->data + elements * (int64_t)wf_type_bytes(x->type, 1) : NULL;
}

static wf_status multiply_all(const wf_cuda_work *w, const wf_cuda_product *p, const outer_axes *o)
{
    int64_t at[WF_MAX_RANK] = {0}, count = 1;
    for (int i = 0; i < o->rank; i++)
        count *= o->dim[i];
    for (int64_t n = 0; n < count; n++) {
        wf_cuda_product q = *p;
        int64_t a = 0, b = 0, y = 0;
        for (int i = 0; i < o->rank; i++) {
            a += at[i] * o->a[i];
            b += at[i] * o->b[i];
            y += at[i] * o->y[i];
        }
        q.a.data = advance(&p->a, a);
        q.b.data = advance(&p->b, b);
        q.y.data = advance(&p->y, y);
        q.pre.data = advance(&p->pre, y);
        WF_TRY(wf_cuda_multiply(w, &q));
        /* Counts up at[] like an odometer, first axis fastest. */
        for (int i = 0; i < o->rank && ++at[i] == o->dim[i]; i++)
            at[i] = 0;
    }
    return WF_OK;
}

/* ---- From nodes to GEMMs ---- */

static bool is_linear(wf_op op)
{
    return op == WF_OP_linear || op == WF_OP_linear_act;
}

/* Sizes, types and transpositions. For linear, m counts all rows. */
static wf_cuda_product sizes_of(const wf_node *n)
{
    const wf_dims *a = &n->in[0]->shape, *y = &n->out[0].shape;
    wf_cuda_product p = {.batch = 1};
    /* Rows of dw: columns of dy. */
    p.m = n->op == WF_OP_linear_grad_weight ? a->d[1] : wf_dims_rows(y);
    p.n = wf_dims_last(y);
    p.k = wf_dims_last(a);
    if (is_linear(n->op))
        p.transpose_b = true;
    if (n->op == WF_OP_linear_grad_weight) {
        p.transpose_a = true;
        p.k = a->d[0];
    }
    if (n->op == WF_OP_matmul) {
        const wf_attr_matmul *attr = n->attr;
        p.transpose_a = attr->transpose_a != 0;
        p.transpose_b = attr->transpose_b != 0;
        p.m = y->d[y->n - 2];
        p.k = a->d[p.transpose_a ? a->n - 2 : a->n - 1];
        for (int i = 0; i < y->n - 2; i++)
            p.batch *= y->d[i];
    }
    p.a.type = n->in[0]->type;
    p.b.type = n->in[1]->type;
    p.y.type = n->out[0].type;
    return p;
}

/* The type in which the operands are multiplied. */
static wf_type meeting_of(const wf_node *n)
{
    const wf_value *a = n->in[0], *b = n->in[1];
    const bool block = wf_type_get(b->type)->kind == WF_KIND_BLOCK;
    if (a->type == b->type)
        return a->type;
    if (b->node->op != WF_OP_state || !(b->marks & WF_MARK_ROUNDED))
        return WF_F32;
    if (block)
        return a->type == WF_F32 ? WF_BF16 : a->type;
    /* Rows for f16 may need factors, which no epilogue applies. */
    return a->type == WF_F32 && (b->type == WF_BF16 || n->op == WF_OP_linear) ? b->type : WF_F32;
}

/* Whether rows of f32 are rounded to f16, which ends at 65504: large rows are divided by
 * factors. */
static bool has_factors(const wf_node *n)
{
    return n->in[0]->type == WF_F32 && meeting_of(n) == WF_F16;
}

/* Byte offsets of the parts of the workspace. GEMM scratch comes first. */
typedef struct {
    size_t a, b, y; /* converted operands, and the f32 result of narrow nodes that meet in f32 */
    size_t factors; /* of rows, f32 */
    size_t end;
} layout;

static size_t lines(size_t bytes) /* every part is aligned to 256 bytes */
{
    return (bytes + 255) / 256 * 256;
}

/* Depends on types and shapes only: the planner and the launch must agree. */
static layout layout_of(const wf_node *n)
{
    const wf_cuda_product p = sizes_of(n);
    const wf_value *a = n->in[0], *b = n->in[1];
    const wf_type meet = meeting_of(n);
    const int64_t sums = n->op == WF_OP_linear_grad_weight ? p.m /* columns of the row sums */
                         : n->op == WF_OP_matmul_act_grad  ? p.n
                                                           : 0;
    layout at = {.a = lines(wf_cuda_product_scratch(&p, is_linear(n->op) && n->nin > 2, sums))};
    at.b = at.a + (a->type != meet ? lines(wf_type_bytes(meet, wf_dims_count(&a->shape))) : 0);
    at.y = at.b + (b->type != meet ? lines(wf_type_bytes(meet, wf_dims_count(&b->shape))) : 0);
    at.factors = at.y;
    if (meet == WF_F32 && a->type != WF_F32)
        at.factors += lines(wf_type_bytes(WF_F32, p.batch * p.m * p.n));
    at.end = at.factors + (has_factors(n) ? lines((size_t)p.m * sizeof(float)) : 0);
    return at;
}

static size_t product_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    return layout_of(n).end;
}

/* A dense view of v's shape. */
static wf_view dense_view(const wf_view *v, wf_type type, void *data)
{
    wf_view out = *v;
    out.data = data;
    out.type = type;
    out.dense = true;
    int64_t stride = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        out.stride[i] = stride;
        stride *= v->dim[i];
    }
    return out;
}

/* The view itself, or its conversion at `to`. */
static wf_view converted(const wf_cuda_work *w, const wf_view *v, wf_type type, void *to)
{
    if (v->type == type)
        return *v;
    if (!w->prepare)
        wf_cuda_convert(wf_cuda_stream(w->l), v, type, to);
    return dense_view(v, type, to);
}

/* The view rounded to f16 at `to`. Rows with values that f16 cannot hold are divided by factors. */
static wf_view divided_rows(const wf_cuda_work *w, const wf_view *v, void *to, float *factors)
{
    if (!w->prepare)
        wf_cuda_divide_rows(wf_cuda_stream(w->l), v, to, factors);
    return dense_view(v, WF_F16, to);
}

/* Sets the bias, the epilogue and the outputs. */
static void set_ending(wf_cuda_product *p, const wf_launch *l)
{
    const wf_view *y = &l->out[0];
    p->y = (wf_cuda_matrix){.data = y->data, .type = y->type, .row = p->n};
    if (is_linear(l->node->op) && l->nin > 2) {
        p->bias = l->in[2].data;
        p->bias_type = l->in[2].type;
    }
    if (l->node->op == WF_OP_linear_act) {
        p->ending = WF_CUDA_ACT;
        p->act = (int)((const wf_attr_linear_act *)l->attr)->act;
        p->pre = (wf_cuda_matrix){.data = l->out[1].data, .type = y->type, .row = p->n};
        /* Only the operand of the activation is read: store that as the result. */
        if (!y->data) { /* not read */
            p->ending = WF_CUDA_PLAIN;
            p->y = p->pre;
            p->pre = (wf_cuda_matrix){0};
        }
    } else if (l->node->op == WF_OP_matmul_act_grad) {
        p->ending = WF_CUDA_ACT_GRAD;
        p->act = (int)((const wf_attr_matmul_act_grad *)l->attr)->act;
        p->pre = matrix_of(&l->in[2]);
        p->rows_sums = l->out[1].data;
    } else if (l->node->op == WF_OP_linear_grad_weight) {
        p->sums = l->out[1].data;
    }
}

/* Computes in f32, then converts. Converted operands are dense; f32 ones are used in place. */
static wf_status multiply_widened(const wf_cuda_work *w, const wf_cuda_product *p,
                                  const outer_axes *o, float *product)
{
    wf_cuda_product q = *p, whole = *p;
    if (p->y.type == WF_F32)
        return multiply_all(w, p, o);
    q.ending = WF_CUDA_PLAIN;
    q.bias = NULL;
    q.pre = (wf_cuda_matrix){0};
    q.rows_sums = NULL;
    q.y.data = product;
    q.y.type = WF_F32;
    WF_TRY(multiply_all(w, &q, o));
    /* The f32 results of all outer axes are dense: settle them in one launch. */
    for (int i = 0; i < o->rank; i++)
        whole.m *= o->dim[i];
    whole.m *= p->batch;
    if (w->prepare)
        return WF_OK;
    wf_cuda_settle(wf_cuda_stream(w->l), &whole, product);
    if (p->rows_sums)
        wf_cuda_add_rows(wf_cuda_stream(w->l), &p->y, p->m, p->n, p->rows_sums, w->scratch);
    return WF_OK;
}

/* The rows of a were divided by factors: multiplies those of y, then adds the bias. */
static wf_status multiply_divided(const wf_cuda_work *w, const wf_cuda_product *p,
                                  const float *factors)
{
    wf_cuda_product q = *p;
    q.bias = NULL;
    WF_TRY(wf_cuda_multiply(w, &q));
    if (!w->prepare)
        wf_cuda_multiply_rows(wf_cuda_stream(w->l), p, factors);
    return WF_OK;
}

static wf_status multiply_node(const wf_launch *l, bool prepare)
{
    /* Scratch of the GEMM is at the start of the workspace. */
    const wf_cuda_work w = {l, prepare, l->workspace};
    const wf_type meet = meeting_of(l->node);
    const bool divided = has_factors(l->node);
    const layout at = layout_of(l->node);
    char *base = l->workspace;
    float *factors = (float *)(void *)(base + at.factors);
    const wf_view a = divided ? divided_rows(&w, &l->in[0], base + at.a, factors)
                              : converted(&w, &l->in[0], meet, base + at.a);
    const wf_view b = converted(&w, &l->in[1], meet, base + at.b);
    wf_cuda_product p = sizes_of(l->node);
    outer_axes outer = {0};
    set_ending(&p, l);
    p.b = matrix_of(&b);
    if (is_linear(l->node->op)) {
        set_rows(&p, &a, &outer);
    } else {
        p.a = matrix_of(&a);
        if (l->node->op == WF_OP_matmul)
            set_batch(&p, &a, &b, &outer);
    }
    if (!p.y.data) { /* sums may still be requested */
        if (p.sums && !prepare)
            wf_cuda_add_rows(wf_cuda_stream(l), &p.a, p.k, p.m, p.sums, l->workspace);
        return WF_OK;
    }
    if (divided) /* a is dense: one GEMM */
        return multiply_divided(&w, &p, factors);
    if (meet == WF_F32)
        return multiply_widened(&w, &p, &outer, (float *)(void *)(base + at.y));
    return multiply_all(&w, &p, &outer);
}

static wf_status launch_product(const wf_launch *l)
{
    WF_TRY(multiply_node(l, false));
    return wf_cuda_launched(l);
}

/* Called once per step, before the first run: decides and times GEMMs, launches none of the
 * step's. */
static wf_status prepare_product(const wf_launch *l)
{
    wf_status status = multiply_node(l, true);
    wf_cuda_products_keep(l);
    return status;
}

static bool has_library(const wf_device *device, const wf_node *n)
{
    (void)n;
    return wf_cuda_products_library(device);
}

/* clang-format off */
#define ROW(op_, weights_, name_, accepts_, from_first_)                                           \
    {.op = WF_OP_##op_, .name = name_, .types = WF_TYPES_FLOAT, .weights = weights_,               \
     .strided = true, .from_first = from_first_, .accepts = accepts_,                              \
     .workspace = product_workspace, .prepare = prepare_product, .launch = launch_product}
#define ROWS(op_, weights_, from_first_)                                                           \
    ROW(op_, weights_, "cublaslt", has_library, from_first_), ROW(op_, weights_, "plain", NULL, from_first_)
const wf_kernel wf_cuda_product_kernels[] = {
    ROWS(matmul, WF_TYPES_WEIGHT, 0),
    ROWS(linear, WF_TYPES_WEIGHT, 0),
    ROWS(linear_act, WF_TYPES_WEIGHT, 0),
    ROWS(matmul_act_grad, WF_TYPES_WEIGHT, 1u << 1),
    ROWS(linear_grad_weight, WF_TYPES_FLOAT, 0),
    {0},
};
