/* SPDX-License-Identifier: MIT */
/*
 * update.c - ops that update states in place: assign, accumulate, adamw, sgd, lion, kv_append.
 *
 * Output i aliases input i, the state, and is not mentioned below. Floats are widened to f32,
 * updated and rounded back; `apply` = 0 leaves every bit unchanged.
 *
 * The elementwise ops handle n updates at once; operand k of update i is input i + k n. One loop
 * covers the elements of all updates, so many small parameters start the threads once.
 */
#include <math.h>
#include <string.h>

#include "base/thread.h"
#include "device/cpu/paged.h"
#include "device/cpu/row.h"
#include "device/walk.h"

typedef struct update update;
/* Updates elements [begin, end) of u's operands along the walk. */
typedef void update_fn(const update *u, int64_t begin, int64_t end);

struct update {
    const wf_launch *l;
    update_fn *fn;
    int count, operands; /* n, and operands per update */
    int index;           /* the current update */
    wf_walk walk;        /* over the current update's operands */
    float lr, scale;
    float step_size, root_bias2; /* adamw: lr / (1 - beta1^step), sqrt(1 - beta2^step) */
};

/* Operand k of the current update. */
static const wf_view *operand(const update *u, int k)
{
    return &u->l->in[u->index + k * u->count];
}

static void start_walk(update *u)
{
    u->walk = wf_walk_over(operand(u, 0)->rank, operand(u, 0)->dim);
    for (int k = 0; k < u->operands; k++)
        wf_walk_add(&u->walk, operand(u, k));
    wf_walk_fold(&u->walk);
}

/* Updates elements [begin, end), counted through all states. */
static void update_range(void *arg, int64_t begin, int64_t end, int thread)
{
    update u = *(const update *)arg; /* a private copy: index and walk change */
    int64_t first = 0;               /* first element of the current update */
    (void)thread;
    for (u.index = 0; u.index < u.count && first < end; u.index++) {
        int64_t n = wf_view_count(operand(&u, 0));
        int64_t from = begin > first ? begin - first : 0, to = end - first < n ? end - first : n;
        first += n;
        if (from >= to)
            continue;
        start_walk(&u);
        u.fn(&u, from, to);
    }
}

static void run_update(update *u)
{
    int64_t elements = 0;
    for (int i = 0; i < u->count; i++)
        elements += wf_view_count(&u->l->in[i]);
    /* One element is one item; a thread gets a contiguous range. */
    wf_parallel_for(u->l->threads, elements, wf_grain(1), update_range, u);
}

/* Whether `apply` (input i, if present) enables the update. */
static bool applies(const wf_launch *l, int i)
{
    return i >= l->nin || *(const uint8_t *)l->in[i].data != 0;
}

/* Input i, an f32 scalar. */
static float scalar(const wf_launch *l, int i)
{
    return *(const float *)l->in[i].data;
}

/* Returns read-only operand i of a run as f32. */
static const float *read_operand(const update *u, const wf_run *r, int i, wf_chunk *buf)
{
    return wf_chunk_widen(operand(u, i), r->offset[i], wf_walk_step(&u->walk, i), r->n, buf);
}

/* Returns state i of a run as f32: its own memory, or buf, which end_state stores. States are
 * dense, so a run is contiguous. */
static float *begin_state(const update *u, const wf_run *r, int i, wf_chunk *buf)
{
    const wf_view *v = operand(u, i);
    void *at = wf_view_at(v, r->offset[i]);
    if (v->type == WF_F32)
        return at;
    wf_convert_to_f32(v->type, at, buf->f32, r->n);
    return buf->f32;
}

static void end_state(const update *u, const wf_run *r, int i, const float *x)
{
    const wf_view *v = operand(u, i);
    if (v->type != WF_F32)
        wf_convert_from_f32(v->type, x, wf_view_at(v, r->offset[i]), r->n);
}

/* ---- assign and accumulate: (state_0, ..., x_0, ..., apply?) ---- */

/* Copies bits where the types are equal; otherwise rounds through f32. */
static void assign(const update *u, int64_t begin, int64_t end)
{
    const wf_view *state = operand(u, 0), *x = operand(u, 1);
    int bytes = wf_type_get(state->type)->block_bytes;
    for (wf_run r = wf_run_over(&u->walk, begin, end); wf_run_next(&r, WF_CHUNK);) {
        void *to = wf_view_at(state, r.offset[0]);
        wf_chunk buf;
        if (state->type == x->type)
            wf_copy_strided(to, 1, wf_view_at(x, r.offset[1]), wf_walk_step(&u->walk, 1), r.n,
                            bytes);
        else
            wf_convert_from_f32(state->type, read_operand(u, &r, 1, &buf), to, r.n);
    }
}

static void accumulate_floats(const update *u, int64_t begin, int64_t end)
{
    for (wf_run r = wf_run_over(&u->walk, begin, end); wf_run_next(&r, WF_CHUNK);) {
        wf_chunk buf[2];
        float *state = begin_state(u, &r, 0, &buf[0]);
        const float *x = read_operand(u, &r, 1, &buf[1]);
        for (int64_t i = 0; i < r.n; i++)
            state[i] += x[i];
        end_state(u, &r, 0, state);
    }
}

static void accumulate_ints(const update *u, int64_t begin, int64_t end)
{
    int64_t step = wf_walk_step(&u->walk, 1);
    for (wf_run r = wf_run_over(&u->walk, begin, end); wf_run_next(&r, WF_CHUNK);) {
        uint32_t *state = wf_view_at(operand(u, 0), r.offset[0]); /* unsigned: wraps on overflow */
        const uint32_t *x = wf_view_at(operand(u, 1), r.offset[1]);
        for (int64_t i = 0; i < r.n; i++)
            state[i] += x[i * step];
    }
}

static void accumulate(const update *u, int64_t begin, int64_t end)
{
    (operand(u, 0)->type == WF_I32 ? accumulate_ints : accumulate_floats)(u, begin, end);
}

static wf_status launch_pairs(const wf_launch *l, update_fn *fn)
{
    update u = {.l = l, .fn = fn, .count = l->nout, .operands = 2};
    if (applies(l, 2 * l->nout))
        run_update(&u);
    return WF_OK;
}

static wf_status launch_assign(const wf_launch *l)
{
    return launch_pairs(l, assign);
}

static wf_status launch_accumulate(const wf_launch *l)
{
    return launch_pairs(l, accumulate);
}

/* ---- adamw: (p_0, ..., m_0, ..., v_0, ..., copies of p?, grad_0, ..., lr, step, scale, apply), the
 * arithmetic of PyTorch's AdamW ---- */

static void adamw(const update *u, int64_t begin, int64_t end)
{
    const wf_attr_adamw *attr = u->l->attr;
    float keep = (float)(1 - u->lr * attr->weight_decay), eps = (float)attr->eps;
    float beta1 = (float)attr->beta1, beta2 = (float)attr->beta2;
    float rest1 = (float)(1 - attr->beta1), rest2 = (float)(1 - attr->beta2);

    for (wf_run r = wf_run_over(&u->walk, begin, end); wf_run_next(&r, WF_CHUNK);) {
        wf_chunk buf[4];
        float *p = begin_state(u, &r, 0, &buf[0]);
        float *m = begin_state(u, &r, 1, &buf[1]);
        float *v = begin_state(u, &r, 2, &buf[2]);
        /* The gradient is the last operand, after the copies. */
        const float *grad = read_operand(u, &r, u->operands - 1, &buf[3]);
        for (int64_t i = 0; i < r.n; i++) {
            float g = grad[i] * u->scale;
            m[i] = beta1 * m[i] + rest1 * g;
            v[i] = beta2 * v[i] + rest2 * g * g;
            float root = sqrtf(v[i]) / u->root_bias2 + eps;
            p[i] = p[i] * keep - u->step_size * m[i] / root;
        }
        end_state(u, &r, 0, p);
        end_state(u, &r, 1, m);
        end_state(u, &r, 2, v);
        if (attr->copies) /* the copy rounds the new parameter in f32 */
            end_state(u, &r, 3, p);
    }
}

static wf_status launch_adamw(const wf_launch *l)
{
    const wf_attr_adamw *attr = l->attr;
    /* Operands per parameter; all but the gradient are states. */
    int own = attr->copies ? 5 : 4, n = l->nout / (own - 1);
    int lr = own * n; /* step, scale and apply follow it */
    update u = {.l = l, .fn = adamw, .count = n, .operands = own};
    int32_t step = *(const int32_t *)l->in[lr + 1].data;
    u.lr = scalar(l, lr);
    u.scale = scalar(l, lr + 2);
    if (!applies(l, lr + 3))
        return WF_OK;
    if (step < 1)
        return wf_fail(l->ctx, WF_ERR_DEVICE, "%s: step is %d; steps start at 1",
                       wf_op_get(l->node->op)->name, step);
    /* In double: 1 - beta^step cancels for small steps. */
    u.step_size = (float)(u.lr / (1 - pow(attr->beta1, step)));
    u.root_bias2 = (float)sqrt(1 - pow(attr->beta2, step));
    run_update(&u);
    return WF_OK;
}

/* ---- sgd: (p, velocity?, grad, lr, scale, apply), the arithmetic of PyTorch's SGD ---- */

static void sgd(const update *u, int64_t begin, int64_t end)
{
    const wf_attr_sgd *attr = u->l->attr;
    bool has_velocity = u->l->nout > 1;
    float momentum = (float)attr->momentum, decay = (float)attr->weight_decay;

    for (wf_run r = wf_run_over(&u->walk, begin, end); wf_run_next(&r, WF_CHUNK);) {
        wf_chunk buf[3];
        float *p = begin_state(u, &r, 0, &buf[0]);
        float *v = has_velocity ? begin_state(u, &r, 1, &buf[1]) : NULL;
        const float *grad = read_operand(u, &r, u->l->nout, &buf[2]); /* after the states */
        for (int64_t i = 0; i < r.n; i++) {
            float g = grad[i] * u->scale + decay * p[i];
            if (v) {
                v[i] = momentum * v[i] + g;
                g = attr->nesterov ? g + momentum * v[i] : v[i];
            }
            p[i] -= u->lr * g;
        }
        end_state(u, &r, 0, p);
        if (v)
            end_state(u, &r, 1, v);
    }
}

static wf_status launch_sgd(const wf_launch *l)
{
    int lr = l->nout + 1; /* scale and apply follow it */
    update u = {.l = l, .fn = sgd, .count = 1, .operands = lr};
    u.lr = scalar(l, lr);
    u.scale = scalar(l, lr + 1);
    if (applies(l, lr + 2))
        run_update(&u);
    return WF_OK;
}

/* ---- lion: (p, m, grad, lr, scale, apply) ---- */

static void lion(const update *u, int64_t begin, int64_t end)
{
    const wf_attr_lion *attr = u->l->attr;
    float keep = (float)(1 - u->lr * attr->weight_decay);
    float beta1 = (float)attr->beta1, beta2 = (float)attr->beta2;
    float rest1 = (float)(1 - attr->beta1), rest2 = (float)(1 - attr->beta2);

    for (wf_run r = wf_run_over(&u->walk, begin, end); wf_run_next(&r, WF_CHUNK);) {
        wf_chunk buf[3];
        float *p = begin_state(u, &r, 0, &buf[0]);
        float *m = begin_state(u, &r, 1, &buf[1]);
        const float *grad = read_operand(u, &r, 2, &buf[2]);
        for (int64_t i = 0; i < r.n; i++) {
            float g = grad[i] * u->scale, way = beta1 * m[i] + rest1 * g;
            p[i] = p[i] * keep - (way > 0 ? u->lr : way < 0 ? -u->lr : 0);
            m[i] = beta2 * m[i] + rest2 * g;
        }
        end_state(u, &r, 0, p);
        end_state(u, &r, 1, m);
    }
}

static wf_status launch_lion(const wf_launch *l)
{
    update u = {.l = l, .fn = lion, .count = 1, .operands = 3};
    u.lr = scalar(l, 3);
    u.scale = scalar(l, 4);
    if (applies(l, 5))
        run_update(&u);
    return WF_OK;
}

/* ---- kv_append: (pool [P, page, Hk, D], x [N, Hk, D], seq_start, positions, table) ---- */

static void copy_row(const wf_view *from, int64_t r, const wf_view *to, int64_t t, float *buf)
{
    void *row = wf_view_at(to, wf_view_row(to, t));
    if (from->type == to->type)
        memcpy(row, wf_view_at(from, wf_view_row(from, r)),
               wf_type_bytes(to->type, wf_view_last(to)));
    else
        wf_quantize(to->type, wf_row_read(from, r, buf), NULL, row, 1, wf_view_last(to));
}

/* Each thread copies some heads of all tokens, in order: of two tokens with one slot the later
 * wins. */
static void append_heads(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_launch *l = arg;
    const wf_view *pool = &l->in[0], *x = &l->in[1];
    const int32_t *start = l->in[2].data;
    int64_t heads = x->dim[1];
    float *buf = wf_row_buffer(l, thread, 1, 0, x->dim[2]);
    for (int64_t s = 0; s + 1 < l->in[2].dim[0]; s++)
        for (int64_t i = start[s]; i < start[s + 1]; i++) {
            int64_t slot = wf_kv_append_slot(l, s, i);
            for (int64_t h = begin; h < end; h++)
                copy_row(x, i * heads + h, pool, slot * heads + h, buf);
        }
}

static size_t kv_append_workspace(const wf_device *device, const wf_node *n)
{
    return wf_row_workspace(wf_device_threads(device), 1, wf_dims_last(&n->in[1]->shape));
}

static wf_status launch_kv_append(const wf_launch *l)
{
    const wf_view *x = &l->in[1];
    WF_TRY(wf_kv_append_check(l));
    wf_parallel_for(l->threads, x->dim[1], wf_grain(x->dim[0] * x->dim[2]), append_heads,
                    (void *)l);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_, with_, types_, accepts_, workspace_)                                            \
    {.op = WF_OP_##name_, .name = "reference", .types = types_, .strided = true,                   \
     .accepts = accepts_, .workspace = workspace_, .launch = launch_##with_}
const wf_kernel wf_cpu_update[] = {
    ROW(assign, assign, WF_TYPES_PLAIN, wf_update_types_meet, NULL),
    ROW(accumulate, accumulate, WF_TYPES_NUMBER, wf_update_types_meet, NULL),
    ROW(accumulate_many, accumulate, WF_TYPES_NUMBER, wf_update_types_meet, NULL),
    ROW(adamw, adamw, WF_TYPES_FLOAT, NULL, NULL),
    ROW(adamw_many, adamw, WF_TYPES_FLOAT, NULL, NULL),
    ROW(sgd, sgd, WF_TYPES_FLOAT, NULL, NULL),
    ROW(lion, lion, WF_TYPES_FLOAT, NULL, NULL),
    ROW(kv_append, kv_append, WF_TYPES_FLOAT | WF_TYPES_BLOCK, NULL, kv_append_workspace),
    {0},
};
