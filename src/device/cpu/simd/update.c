/* SPDX-License-Identifier: MIT */
/*
 * update.c - ops that update states in place: accumulate, adamw, sgd, lion.
 *
 * The arithmetic and the bits equal the reference kernels'. Memory bandwidth is the limit: adamw in
 * f32 moves 28 bytes per parameter, which hides a square root and two divisions per vector, and
 * also the test of other types per vector.
 *
 * With n updates in one op, operand k of update i is input i + k n. One loop covers the elements of
 * all updates, so many small parameters start the threads once.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/simd/simd.h"
#include "device/walk.h"

#define MAX_OPERANDS 5
#define COPY 3 /* index of the copy among the operands, in updates with copies */

typedef struct update update;
/* Updates n elements of the current run. f32: all operands are f32. */
typedef void run_fn(const update *u, int64_t n, bool f32);

struct update {
    const wf_launch *l;
    run_fn *run;
    int count, states,
        operands; /* n updates, each with `operands` operands, the first `states` of which are states */
    wf_type type[MAX_OPERANDS]; /* types of the current update's operands */
    char *at[MAX_OPERANDS];     /* addresses of the current run */
    float lr, scale;
    float keep, eps, beta1, beta2, rest1, rest2; /* adamw, lion: attributes; rest is 1 - beta */
    float step_size, root_bias2;                 /* lr / (1 - beta1^step), sqrt(1 - beta2^step) */
    float momentum, decay;                       /* sgd */
    bool nesterov;
    bool copies; /* adamw: operand COPY receives state 0 rounded */
};

/* Lanes [i, i + n) of operand k. */
typedef struct {
    const update *u;
    bool f32;
    int64_t i;
    int n;
} lanes;

static inline vf get(lanes w, int k)
{
    const wf_type type = w.f32 ? WF_F32 : w.u->type[k];
    const char *at = w.u->at[k] + w.i * (type == WF_F32 ? 4 : 2);
    return w.n == WF_VL ? vf_load_as(type, at) : vf_load_as_n(type, at, w.n);
}

static inline void put(lanes w, int k, vf x)
{
    const wf_type type = w.f32 ? WF_F32 : w.u->type[k];
    char *at = w.u->at[k] + w.i * (type == WF_F32 ? 4 : 2);
    if (w.n == WF_VL)
        vf_store_as(type, at, x);
    else
        vf_store_as_n(type, at, x, w.n);
}

/* Copies are always narrow. */
static inline void put_copy(lanes w, vf x)
{
    char *at = w.u->at[COPY] + w.i * 2;
    if (w.n == WF_VL)
        vf_store_as(w.u->type[COPY], at, x);
    else
        vf_store_as_n(w.u->type[COPY], at, x, w.n);
}

/* ---- The ops ---- */

static inline void accumulate(lanes w)
{
    put(w, 0, vf_add(get(w, 0), get(w, 1)));
}

static inline void adamw(lanes w)
{
    const update *u = w.u;
    vf g = vf_mul(get(w, u->operands - 1), vf_set(u->scale)), m = get(w, 1), v = get(w, 2);
    m = vf_add(vf_mul(vf_set(u->beta1), m), vf_mul(vf_set(u->rest1), g));
    v = vf_add(vf_mul(vf_set(u->beta2), v), vf_mul(vf_mul(vf_set(u->rest2), g), g));
    vf root = vf_add(vf_div(vf_sqrt(v), vf_set(u->root_bias2)), vf_set(u->eps));
    vf move = vf_div(vf_mul(vf_set(u->step_size), m), root);
    vf p = vf_sub(vf_mul(get(w, 0), vf_set(u->keep)), move);
    put(w, 0, p);
    put(w, 1, m);
    put(w, 2, v);
    if (u->copies)
        put_copy(w, p);
}

static inline void sgd(lanes w)
{
    const update *u = w.u;
    vf p = get(w, 0), g = vf_mul(get(w, u->states), vf_set(u->scale));
    g = vf_add(g, vf_mul(vf_set(u->decay), p));
    if (u->states > 1) {
        vf v = vf_add(vf_mul(vf_set(u->momentum), get(w, 1)), g);
        put(w, 1, v);
        g = u->nesterov ? vf_add(g, vf_mul(vf_set(u->momentum), v)) : v;
    }
    put(w, 0, vf_sub(p, vf_mul(vf_set(u->lr), g)));
}

static inline void lion(lanes w)
{
    const update *u = w.u;
    vf g = vf_mul(get(w, 2), vf_set(u->scale)), m = get(w, 1), zero = vf_set(0);
    vf way = vf_add(vf_mul(vf_set(u->beta1), m), vf_mul(vf_set(u->rest1), g));
    vf step = vf_select(vf_lt(way, zero), vf_set(-u->lr), zero);
    step = vf_select(vf_lt(zero, way), vf_set(u->lr), step);
    put(w, 0, vf_sub(vf_mul(get(w, 0), vf_set(u->keep)), step));
    put(w, 1, vf_add(vf_mul(vf_set(u->beta2), m), vf_mul(vf_set(u->rest2), g)));
}

static inline void over(const update *u, int64_t n, bool f32, void (*step)(lanes w))
{
    int64_t i = 0;
    for (; i + WF_VL <= n; i += WF_VL)
        step((lanes){u, f32, i, WF_VL});
    if (i < n)
        step((lanes){u, f32, i, (int)(n - i)});
}

#define RUN(name)                                                \
    static void name##_run(const update *u, int64_t n, bool f32) \
    {                                                            \
        if (f32)                                                 \
            over(u, n, true, name);                              \
        else                                                     \
            over(u, n, false, name);                             \
    }
RUN(accumulate)
RUN(adamw)
RUN(sgd)
RUN(lion)

/* ---- The driver ---- */

/* Updates elements [begin, end) of update `index`. */
static void update_part(update *u, int index, int64_t begin, int64_t end)
{
    const wf_view *v[MAX_OPERANDS];
    wf_chunk buf[MAX_OPERANDS];
    bool f32 = true, direct = true;
    wf_walk w = wf_walk_over(u->l->in[index].rank, u->l->in[index].dim);
    for (int k = 0; k < u->operands; k++) {
        v[k] = &u->l->in[index + k * u->count];
        u->type[k] = v[k]->type;
        f32 &= v[k]->type == WF_F32 || (u->copies && k == COPY);
        wf_walk_add(&w, v[k]);
    }
    wf_walk_fold(&w);
    for (int k = 0; k < u->operands; k++)
        direct &= wf_walk_step(&w, k) == 1;
    for (wf_run r = wf_run_over(&w, begin, end); wf_run_next(&r, direct ? INT64_MAX : WF_CHUNK);) {
        for (int k = 0; k < u->operands; k++) /* states are dense and updated in place */
            u->at[k] = (char *)(uintptr_t)wf_chunk_load(v[k], r.offset[k], wf_walk_step(&w, k), r.n,
                                                        &buf[k]);
        u->run(u, r.n, f32);
    }
}

/* Updates elements [begin, end), counted through all states. */
static void update_range(void *arg, int64_t begin, int64_t end, int thread)
{
    update u = *(const update *)arg;
    int64_t first = 0; /* first element of update i */
    (void)thread;
    for (int i = 0; i < u.count && first < end; i++) {
        int64_t n = wf_view_count(&u.l->in[i]);
        int64_t from = begin > first ? begin - first : 0, to = end - first < n ? end - first : n;
        first += n;
        if (from < to)
            update_part(&u, i, from, to);
    }
}

static wf_status run_update(update *u)
{
    int64_t elements = 0;
    for (int i = 0; i < u->count; i++)
        elements += wf_view_count(&u->l->in[i]);
    wf_parallel_for(u->l->threads, elements, wf_grain(1), update_range, u);
    return WF_OK;
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

/* (state_0, ..., x_0, ..., apply?) */
static wf_status launch_accumulate(const wf_launch *l)
{
    int n = l->nout;
    update u = {.l = l, .run = accumulate_run, .count = n, .states = 1, .operands = 2};
    return applies(l, 2 * n) ? run_update(&u) : WF_OK;
}

/* (p_0, ..., m_0, ..., v_0, ..., copies of p?, grad_0, ..., lr, step, scale, apply) */
static wf_status launch_adamw(const wf_launch *l)
{
    const wf_attr_adamw *attr = l->attr;
    bool copies = attr->copies;
    int states = copies ? 4 : 3, n = l->nout / states, lr = (states + 1) * n;
    int32_t step = *(const int32_t *)l->in[lr + 1].data;
    update u = {.l = l, .run = adamw_run, .count = n, .states = states, .operands = states + 1};
    if (!applies(l, lr + 3))
        return WF_OK;
    if (step < 1)
        return wf_fail(l->ctx, WF_ERR_DEVICE, "%s: step is %d; steps start at 1",
                       wf_op_get(l->node->op)->name, step);
    u.copies = copies;
    u.lr = scalar(l, lr);
    u.scale = scalar(l, lr + 2);
    u.keep = (float)(1 - u.lr * attr->weight_decay);
    u.eps = (float)attr->eps;
    u.beta1 = (float)attr->beta1;
    u.beta2 = (float)attr->beta2;
    u.rest1 = (float)(1 - attr->beta1);
    u.rest2 = (float)(1 - attr->beta2);
    u.step_size = (float)(u.lr / (1 - pow(attr->beta1, step)));
    u.root_bias2 = (float)sqrt(1 - pow(attr->beta2, step));
    return run_update(&u);
}

/* (p, velocity?, grad, lr, scale, apply) */
static wf_status launch_sgd(const wf_launch *l)
{
    const wf_attr_sgd *attr = l->attr;
    int states = l->nout, lr = states + 1;
    update u = {.l = l, .run = sgd_run, .count = 1, .states = states, .operands = lr};
    u.lr = scalar(l, lr);
    u.scale = scalar(l, lr + 1);
    u.momentum = (float)attr->momentum;
    u.decay = (float)attr->weight_decay;
    u.nesterov = attr->nesterov;
    return applies(l, lr + 2) ? run_update(&u) : WF_OK;
}

/* (p, m, grad, lr, scale, apply) */
static wf_status launch_lion(const wf_launch *l)
{
    const wf_attr_lion *attr = l->attr;
    update u = {.l = l, .run = lion_run, .count = 1, .states = 2, .operands = 3};
    u.lr = scalar(l, 3);
    u.scale = scalar(l, 4);
    u.keep = (float)(1 - u.lr * attr->weight_decay);
    u.beta1 = (float)attr->beta1;
    u.beta2 = (float)attr->beta2;
    u.rest1 = (float)(1 - attr->beta1);
    u.rest2 = (float)(1 - attr->beta2);
    return applies(l, 5) ? run_update(&u) : WF_OK;
}

static bool is_float(const wf_value *v)
{
    return (wf_type_bit(v->type) & WF_TYPES_FLOAT) != 0;
}

/* Whether states and operands are floats. */
static bool are_floats(const wf_device *device, const wf_node *n)
{
    (void)device;
    for (int i = 0; i < 2 * n->nout; i++)
        if (!is_float(n->in[i]))
            return false;
    return true;
}

/* clang-format off */
#define ROW(name_, with_, accepts_)                                                                \
    {.op = WF_OP_##name_, .name = "simd", .types = WF_TYPES_FLOAT, .strided = true,                 \
     .accepts = accepts_, .launch = launch_##with_}
const wf_kernel WF_SIMD(wf_cpu_update)[] = {
    ROW(accumulate, accumulate, are_floats),
    ROW(accumulate_many, accumulate, are_floats),
    ROW(adamw, adamw, NULL),
    ROW(adamw_many, adamw, NULL),
    ROW(sgd, sgd, NULL),
    ROW(lion, lion, NULL),
    {0},
};
