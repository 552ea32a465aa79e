/* SPDX-License-Identifier: MIT */
/* pass_case.c - implements pass_case.h. */
#include "pass_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define SAMPLES 5 /* elements checked per gradient; each needs two runs of the reference */
#define LR 0.01
#define STEP 1000

/* How a result is judged. */
typedef enum { SAME_BITS, OUTPUT, LOSS, DW, GRADIENT, SUM, PARAMETER, UNJUDGED } role;

/* One element of a gradient, computed by central differences. */
typedef struct {
    int64_t index;
    double numeric, terms;
    double extra; /* sum |w| 0.5 b |dy/dx|: the error of f' */
    bool kink;
} slope;

typedef struct {
    role role;
    const wf_operand *operand; /* SUM, PARAMETER: the state before; GRADIENT: the operand of d/dx */
    int which;                 /* OUTPUT: its index; SUM, PARAMETER: 0 from dw, 1 from the terms */
    slope slope[SAMPLES];      /* GRADIENT */
    int samples;
    double most;
} expectation;

struct pc_case {
    const pc_kind *kind;
    wf_case *c;
    bool rich, linear, adamw;
    wf_ref *want;    /* reference of the node's outputs */
    double between;  /* error of y that the bounds of intermediate values allow */
    double roundoff; /* of the narrowest type around the node */
    expectation expect[WF_CASE_READS];
    /* Of the rich graph; all arrays are [count]. */
    const wf_operand *w, *shift;
    const wf_operand *state[5]; /* states of the updates: a, b; or m, v, p, m, v */
    int64_t count;
    double *y, *b; /* reference of y and its bound */
    bool finite;
};

wf_case *pc_case_of(pc_case *p)
{
    return p->c;
}

void pc_free(pc_case *p)
{
    if (!p)
        return;
    wf_ctx *ctx = p->c->ctx;
    wf_case_free(p->c);
    wf_mem_free(ctx, p);
}

static double or_default(double given, double otherwise)
{
    return given > 0 ? given : otherwise;
}

/* ---- The reference ---- */

static void find_roundoff(pc_case *p)
{
    const wf_node *n = p->c->node;
    p->roundoff = WF_ROUNDOFF_F32;
    for (int i = 0; i < n->nin; i++)
        p->roundoff = fmax(p->roundoff, wf_type_get(n->in[i]->type)->roundoff);
    for (int i = 0; i < n->nout; i++)
        p->roundoff = fmax(p->roundoff, wf_type_get(n->out[i].type)->roundoff);
}

/* Returns the largest bound among the node's operands that other nodes computed. */
static double bound_between(const pc_case *p, const wf_eval *e)
{
    double most = 0;
    const wf_node *n = p->c->node;
    for (int i = 0; i < n->nin; i++) {
        const wf_value *x = wf_value_root(n->in[i]);
        const wf_ref *r = &e->node[x->node->id].out[x->index];
        for (int64_t k = 0; r->mag && k < wf_dims_count(&r->shape); k++)
            most = fmax(most, wf_number_bound(r->type, WF_CASE_FORWARD, r->v[k], r->mag[k]));
    }
    return most;
}

/* Evaluates the node in float64, with error bounds. */
static wf_status find_reference(pc_case *p)
{
    wf_eval *e;
    WF_TRY(wf_eval_new(p->c, p->c->node, &e));
    WF_TRY(wf_eval_run(e, true));
    p->want = e->node[p->c->node->id].out;
    if (p->kind->lipschitz > 0)
        p->between = p->kind->lipschitz * bound_between(p, e);
    find_roundoff(p);
    return WF_OK;
}

static double bound_of(const pc_case *p, const wf_ref *r, int64_t i)
{
    double c = or_default(p->kind->row.forward, WF_CASE_FORWARD);
    double bound = wf_number_bound(r->type, c, r->v[i], r->mag[i]);
    return bound + p->between;
}

/* ---- The bare graph: reads all outputs of the node and all states ---- */

static wf_status expect_read(pc_case *p, const char *name, wf_value *value, expectation e)
{
    p->expect[p->c->reads] = e;
    return wf_case_read(p->c, name, value, NULL);
}

static int updated(const wf_case *c, const wf_operand *o)
{
    for (int i = 0; i < c->node->nout; i++)
        if (c->node->out[i].state == o->node)
            return i;
    return -1;
}

/* Expects updated states to match the reference, and other states to keep their bits. */
static wf_status read_states(pc_case *p)
{
    wf_case *c = p->c;
    for (int i = 0; i < c->operands; i++) {
        wf_operand *o = &c->operand[i];
        int which = updated(c, o);
        expectation e = {
            .role = which >= 0 && !c->untouched ? OUTPUT : SAME_BITS, .operand = o, .which = which};
        if (o->node->op == WF_OP_state)
            WF_TRY(expect_read(p, NULL, o->value, e));
    }
    return WF_OK;
}

static wf_status read_outputs(pc_case *p)
{
    wf_case *c = p->c;
    for (int i = 0; i < c->node->nout; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        if (!c->node->out[i].state)
            WF_TRY(
                expect_read(p, name, &c->node->out[i], (expectation){.role = OUTPUT, .which = i}));
    }
    return WF_OK;
}

/* ---- The rich graph ---- */

/* Lists the operands that have a gradient. Returns how many. */
static int find_wrt(const pc_case *p, const wf_operand **wrt)
{
    const wf_case *c = p->c;
    int n = 0;
    if (!wf_op_is_differentiable(c->node->op) || c->no_gradient || c->node->out[0].state ||
        !(WF_TYPES_FLOAT & wf_type_bit(c->node->out[0].type)))
        return 0;
    for (int i = 0; i < c->operands; i++) {
        const wf_operand *o = &c->operand[i];
        if (WF_TYPES_FLOAT & wf_type_bit(o->value->type) && !o->constant &&
            o->node->id < c->node->id && o->node->op == WF_OP_input)
            wrt[n++] = o;
    }
    return n;
}

static const wf_operand *new_state(pc_case *p, wf_dims shape, double lo, double hi)
{
    wf_case_state(p->c, WF_F32, shape, lo, hi);
    return &p->c->operand[p->c->operands - 1];
}

/* Builds f(y), marked for recomputation and with a pattern that fold can match. It adds a state
 * that holds 0 and is written before wf_grad, so its readers cannot be recomputed. */
static wf_value *tail(pc_case *p, wf_value *y)
{
    wf_graph *g = p->c->g;
    if (!y->state)
        wf_recompute(g, y);
    wf_value *x = wf_block(g, y->type == WF_F32 ? wf_scale(g, y, 1) : wf_cast(g, y, WF_F32));
    p->shift = new_state(p, y->shape, 0, 0);
    x = wf_recompute(g, wf_binary(g, "add", x, p->shift->value));
    if (p->linear)
        return wf_unary(g, "neg", wf_recompute(g, wf_unary(g, "neg", x)));
    return wf_binary(g, "mul", x, wf_recompute(g, wf_unary(g, "sigmoid", x)));
}

/* Creates w and the states of the updates. The bounds assume second moments >= 0.1. */
static void make_states(pc_case *p, wf_dims shape)
{
    int n = 0;
    p->w = new_state(p, shape, -1, 1);
    for (int i = 0; i < 2 && !p->adamw; i++)
        p->state[n++] = new_state(p, shape, -1, 1);
    for (int i = 0; i < 2 && p->adamw; i++) {
        if (i == 1)
            p->state[n++] = new_state(p, shape, -1, 1);
        p->state[n++] = new_state(p, shape, -0.1, 0.1);
        p->state[n++] = new_state(p, shape, 0.1, 0.2);
    }
}

/* With AdamW, the first parameter is w, which the loss reads. */
static void update(pc_case *p, wf_value *dw, wf_value *terms)
{
    wf_graph *g = p->c->g;
    wf_value *s[5];
    for (int i = 0; i < (p->adamw ? 5 : 2); i++)
        s[i] = p->state[i]->value;
    if (!p->adamw) {
        wf_accumulate(g, s[0], dw, NULL);
        wf_accumulate(g, s[1], terms, NULL);
        return;
    }
    wf_value *lr = wf_fill(g, WF_F32, 0, NULL, LR), *step = wf_fill(g, WF_I32, 0, NULL, STEP);
    wf_value *one = wf_fill(g, WF_F32, 0, NULL, 1), *yes = wf_fill(g, WF_U8, 0, NULL, 1);
    wf_adamw(g, p->w->value, s[0], s[1], dw, lr, step, one, yes, NULL);
    wf_adamw(g, s[2], s[3], s[4], terms, lr, step, one, yes, NULL);
}

/* Reads the states that the tail and the updates wrote. */
static wf_status read_updates(pc_case *p)
{
    const wf_operand *first = p->adamw ? p->w : p->state[0];
    const wf_operand *second = p->state[p->adamw ? 2 : 1];
    role sum = p->adamw ? PARAMETER : SUM;
    WF_TRY(expect_read(p, NULL, p->shift->value, (expectation){.role = DW})); /* f(y) */
    WF_TRY(expect_read(p, NULL, first->value,
                       (expectation){.role = sum, .operand = first, .which = 0}));
    WF_TRY(expect_read(p, NULL, second->value,
                       (expectation){.role = sum, .operand = second, .which = 1}));
    if (!p->adamw)
        return expect_read(p, NULL, p->w->value, (expectation){.role = SAME_BITS, .operand = p->w});
    for (int i = 0; i < 5; i++) /* moments: bits are compared, and the parameter depends on them */
        if (i != 2)
            WF_TRY(expect_read(p, NULL, p->state[i]->value, (expectation){.role = UNJUDGED}));
    return WF_OK;
}

static wf_status build_rich(pc_case *p)
{
    wf_case *c = p->c;
    const wf_operand *from[WF_CASE_OPERANDS];
    wf_value *y = &c->node->out[0], *wrt[WF_CASE_OPERANDS], *grads[WF_CASE_OPERANDS];
    int n = find_wrt(p, from);
    WF_TRY(read_states(p));
    wf_value *f = tail(p, y);
    make_states(p, y->shape);
    wf_value *terms = wf_binary(c->g, "mul", f, p->w->value), *loss = terms;
    if (y->shape.n > 0) {
        loss = wf_reshape(c->g, terms, 1, (int64_t[]){wf_value_count(y)});
        loss = wf_reduce(c->g, "sum", loss, 1, false);
    }
    wf_assign(c->g, p->shift->value, f, NULL);
    WF_TRY(wf_case_status(c));
    for (int i = 0; i < n; i++)
        wrt[i] = from[i]->value;
    wrt[n] = p->w->value;
    WF_TRY(wf_grad(c->g, loss, wrt, n + 1, grads));
    update(p, grads[n], terms);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        WF_TRY(expect_read(p, name, grads[i], (expectation){.role = GRADIENT, .operand = from[i]}));
    }
    WF_TRY(expect_read(p, "loss", loss, (expectation){.role = LOSS}));
    WF_TRY(expect_read(p, "dw", grads[n], (expectation){.role = DW}));
    WF_TRY(read_updates(p));
    return wf_case_status(c);
}

/* ---- Expected gradients ---- */

static double tail_of(const pc_case *p, double y)
{
    return p->linear ? y : y / (1 + exp(-y));
}

static double tail_slope(const pc_case *p, double error)
{
    return (p->linear ? 1 : 1.1) * error;
}

static wf_status evaluate(pc_case *p, wf_eval *e, double *y)
{
    WF_TRY(wf_eval_run(e, false));
    memcpy(y, e->node[p->c->node->id].out[0].v, (size_t)p->count * sizeof *y);
    return WF_OK;
}

static wf_status find_slope(pc_case *p, wf_eval *e, double *const y[3], double *v, slope *s)
{
    double x = v[s->index], h = 1e-6 * fmax(1, fabs(x)), up = 0, down = 0;
    v[s->index] = x + h;
    wf_status status = evaluate(p, e, y[2]);
    v[s->index] = x - h;
    if (status == WF_OK)
        status = evaluate(p, e, y[1]);
    v[s->index] = x;
    for (int64_t i = 0; i < p->count; i++) {
        double w = p->w->v[i], at = tail_of(p, y[0][i]);
        double high = tail_of(p, y[2][i]), low = tail_of(p, y[1][i]);
        double whole = w * (high - low) / (2 * h);
        s->numeric += whole;
        s->terms += fabs(whole);
        s->extra += p->linear ? 0 : fabs(w * 0.5 * p->b[i] * (y[2][i] - y[1][i]) / (2 * h));
        up += w * (high - at) / h;
        down += w * (at - low) / h;
    }
    s->kink = fabs(up - down) > 1e-3 * s->terms + 1e-5;
    return status;
}

static wf_status find_slopes(pc_case *p, expectation *x)
{
    wf_eval *e;
    wf_case *c = p->c;
    double *y[3];
    WF_TRY(wf_eval_new(c, c->node, &e));
    for (int i = 0; i < 3; i++)
        if (!(y[i] = wf_arena_alloc(&c->arena, (size_t)p->count * sizeof *y[i])))
            return WF_ERR_MEMORY;
    WF_TRY(evaluate(p, e, y[0]));
    int64_t count = wf_value_count(&x->operand->node->out[0]);
    int samples = wf_case_size(c) > WF_CASE_LARGE ? 1 : SAMPLES;
    if (x->operand->value != &x->operand->node->out[0])
        return WF_OK; /* a view: its elements have another index in the operand */
    for (; x->samples < samples && x->samples < count; x->samples++) {
        slope *s = &x->slope[x->samples];
        s->index = (int64_t)wf_rng_below(&c->rng, (uint64_t)count);
        WF_TRY(find_slope(p, e, y, x->operand->v, s));
        x->most = fmax(x->most, s->terms);
    }
    return WF_OK;
}

static wf_status find_expectations(pc_case *p)
{
    const wf_ref *y = &p->want[0];
    p->count = wf_dims_count(&y->shape);
    p->y = wf_arena_alloc(&p->c->arena, (size_t)p->count * sizeof *p->y);
    p->b = wf_arena_alloc(&p->c->arena, (size_t)p->count * sizeof *p->b);
    if (!p->y || !p->b)
        return WF_ERR_MEMORY;
    p->finite = true;
    for (int64_t i = 0; i < p->count; i++) {
        double rounded = wf_number_round(y->type, y->v[i]);
        p->b[i] = bound_of(p, y, i);
        p->y[i] = p->b[i] > 0 ? y->v[i] : rounded; /* no bound: compare rounded values */
        p->finite &= isfinite(rounded) && isfinite(p->b[i]) && fabs(rounded) < 1e30;
    }
    for (int i = 0; i < p->c->reads && p->finite; i++)
        if (p->expect[i].role == GRADIENT)
            WF_TRY(find_slopes(p, &p->expect[i]));
    return WF_OK;
}

wf_status pc_new(wf_ctx *ctx, const pc_kind *kind, int variant, wf_type type, uint64_t seed,
                 int views, bool rich, pc_case **out)
{
    *out = NULL;
    pc_case *p = wf_mem_new(ctx, sizeof *p);
    if (!p)
        return WF_ERR_MEMORY;
    *p = (pc_case){.kind = kind, .rich = rich};
    p->linear = kind->linear || (seed + (uint64_t)variant) % 3 == 0;
    p->adamw = (seed + (uint64_t)variant) % 2 == 0;
    wf_status status = wf_case_new(ctx, &kind->row, variant, type, seed, views, &p->c);
    if (status) {
        wf_mem_free(ctx, p);
        return status;
    }
    status = wf_case_status(p->c);
    if (!status)
        status = find_reference(p);
    if (!status && !rich)
        status = read_states(p);
    if (!status && !rich)
        status = read_outputs(p);
    if (!status && rich)
        status = build_rich(p);
    if (!status && rich)
        status = find_expectations(p);
    if (status)
        pc_free(p);
    else
        *out = p;
    return status;
}

/* ---- Judging ---- */

typedef struct {
    int judged;
    double worst;
    char *why;
    size_t cap;
    const char *name;
} judge;

/* Returns whether got is within bound of wanted; otherwise writes the reason. */
static bool within(judge *j, int64_t i, double got, double wanted, double bound)
{
    double ratio = got == wanted ? 0 : fabs(got - wanted) / bound;
    if (ratio <= 1) {
        j->worst = fmax(j->worst, ratio);
        return true;
    }
    snprintf(j->why, j->cap, "element %lld of %s is %.9g, expected %.9g within %.3g", (long long)i,
             j->name, got, wanted, bound);
    return false;
}

static bool judge_output(const pc_case *p, judge *j, const wf_read *r, const expectation *e)
{
    const wf_ref *want = &p->want[e->which];
    if (p->between == 0) {
        wf_verdict v =
            wf_compare(r->bytes, want, or_default(p->kind->row.forward, WF_CASE_FORWARD));
        if (v.failed)
            return within(j, v.index, v.got, v.wanted, v.bound);
        j->worst = fmax(j->worst, v.ratio);
        return true;
    }
    for (int64_t i = 0; i < wf_dims_count(&want->shape); i++)
        if (!within(j, i, wf_number_load(want->type, r->bytes, i), want->v[i],
                    bound_of(p, want, i)))
            return false;
    return true;
}

/* The bound of a sum is the sum of its terms' bounds. */
static bool judge_loss(const pc_case *p, judge *j, const wf_read *r)
{
    double sum = 0, terms = 0, bound = 0;
    for (int64_t i = 0; i < p->count; i++) {
        double t = p->w->v[i] * tail_of(p, p->y[i]);
        sum += t;
        terms += fabs(t);
        bound += tail_slope(p, fabs(p->w->v[i]) * p->b[i]);
    }
    return within(j, 0, wf_number_load(WF_F32, r->bytes, 0), sum,
                  bound + 16 * WF_ROUNDOFF_F32 * terms + 0x1p-126);
}

/* Returns the gradient that an update reads: dw, or the terms. */
static double gradient_of(const pc_case *p, int64_t i, int which, double *bound)
{
    double w = which == 0 ? 1 : p->w->v[i], g = w * tail_of(p, p->y[i]);
    *bound = tail_slope(p, fabs(w) * p->b[i]) + 16 * WF_ROUNDOFF_F32 * fabs(g) + 0x1p-126;
    return g;
}

static bool judge_update(const pc_case *p, judge *j, const wf_read *r, const expectation *e)
{
    for (int64_t i = 0; i < p->count; i++) {
        double bound, g = gradient_of(p, i, e->which, &bound), want = g;
        if (e->role == SUM) {
            want += e->operand->v[i];
            bound += WF_ROUNDOFF_F32 * (fabs(g) + fabs(e->operand->v[i]));
        } else if (e->role == PARAMETER) {
            const wf_operand *const *moment = &p->state[e->which == 0 ? 0 : 3];
            double m = 0.9 * moment[0]->v[i] + 0.1 * g, v = 0.999 * moment[1]->v[i] + 0.001 * g * g;
            double step = LR * m / (1 - pow(0.9, STEP)) / (sqrt(v / (1 - pow(0.999, STEP))) + 1e-8);
            want = e->operand->v[i] - step;
            bound = 4 * LR * bound +
                    16 * WF_ROUNDOFF_F32 * (fabs(e->operand->v[i]) + fabs(step) + LR * fabs(g));
        }
        if (!within(j, i, wf_number_load(WF_F32, r->bytes, i), want, bound))
            return false;
    }
    return true;
}

/* Skips elements at a kink, where central differences are not defined. */
static bool judge_gradient(const pc_case *p, judge *j, const wf_read *r, const expectation *e)
{
    double c = or_default(p->kind->row.gradient, WF_CASE_GRADIENT);
    for (int k = 0; k < e->samples; k++) {
        const slope *s = &e->slope[k];
        double bound = c * p->roundoff * (s->terms + 0.02 * e->most) + s->extra + 1e-6;
        if (p->roundoff > WF_ROUNDOFF_F32)
            bound += 8 * p->roundoff * 1.1;
        if (!s->kink && !within(j, s->index, wf_number_load(r->value->type, r->bytes, s->index),
                                s->numeric, bound))
            return false;
    }
    return true;
}

static bool judge_read(const pc_case *p, judge *j, const wf_read *r, const expectation *e)
{
    j->judged += e->role != UNJUDGED;
    switch (e->role) {
    case SAME_BITS:
        if (memcmp(r->bytes, e->operand->bytes, r->size) == 0)
            return true;
        snprintf(j->why, j->cap, "state %s changed, and should have kept its bits", r->name);
        return false;
    case OUTPUT: return judge_output(p, j, r, e);
    case LOSS: return judge_loss(p, j, r);
    case DW:
    case SUM:
    case PARAMETER: return judge_update(p, j, r, e);
    case GRADIENT: return judge_gradient(p, j, r, e);
    case UNJUDGED: break;
    }
    return true;
}

bool pc_judge(pc_case *p, int *judged, double *worst, char *why, size_t cap)
{
    judge j = {.why = why, .cap = cap};
    for (int i = 0; i < p->c->reads; i++) {
        const expectation *e = &p->expect[i];
        j.name = p->c->read[i].name;
        bool tail = e->role != SAME_BITS && e->role != OUTPUT;
        if (!(tail && !p->finite) && !judge_read(p, &j, &p->c->read[i], e))
            return false;
    }
    *judged += j.judged;
    *worst = fmax(*worst, j.worst);
    return true;
}
