/* SPDX-License-Identifier: MIT */
/*
 * random_update.c - steps that change states, and steps that append gradients.
 *
 * Any update may change the states called p, w, gamma, ... Only the optimizer that owns them
 * changes moments (m, v), because v must not be negative. Sums and velocities (u) grow from run to
 * run.
 */
#include "random_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Choosing a state and its new value ---- */

static bool changeable(const wf_value *state)
{
    return !strchr("muv", state->state->name[0]);
}

/* Chooses by a hash of the name, so that the choice does not depend on which other states exist. */
static wf_value *pick_state(rg_maker *m)
{
    uint64_t salt = wf_rng_u64(&m->picking), best = UINT64_MAX;
    wf_value *found = NULL;
    bool fresh = rg_chance(m, 4);
    for (int i = 0; i < m->state_count; i++) {
        uint64_t key = rg_hash(m->states[i]->state->name, salt);
        if (changeable(m->states[i]) && key < best) {
            best = key;
            found = m->states[i];
        }
    }
    if (found && !fresh)
        return found;
    wf_value *like = rg_pick_float(m, 0, 4, 400);
    return like ? rg_new_state(m, "p", (int)like->shape.n, like->shape.d) : found;
}

/* The state's own elements in another order, through views where possible. */
static wf_value *rearranged(rg_maker *m, wf_value *s)
{
    wf_graph *g = m->g;
    int64_t order[WF_MAX_RANK];
    for (int i = 0; i < s->shape.n; i++)
        order[i] = i;
    for (int i = 1; i < s->shape.n; i++)
        if (s->shape.d[i] == s->shape.d[i - 1]) {
            order[i] = i - 1;
            order[i - 1] = i;
            return wf_permute(g, s, order);
        }
    if (s->shape.n == 0)
        return wf_scale(g, s, 0.5);
    int64_t n = s->shape.d[0], cut = rg_draw(m, n + 1);
    wf_value *parts[] = {wf_slice(g, s, 0, cut, n), wf_slice(g, s, 0, 0, cut)};
    return wf_concat(g, parts, 2, 0);
}

static wf_value *something_like(rg_maker *m, wf_value *s)
{
    wf_value *x = rg_chance(m, 4) ? NULL : rg_pick(m, &(rg_want){.shape = &s->shape});
    return x ? x : rearranged(m, s);
}

static wf_value *companion(rg_maker *m, const char *letter, wf_value *p)
{
    char name[48];
    snprintf(name, sizeof name, "%s.%s", letter, p->state->name);
    return rg_state(m, name, rg_type(m), (int)p->shape.n, p->shape.d);
}

/* States must not grow from run to run. A value that replaces a state is no larger than a source. A
 * value that is added is small, or goes to a sum, which its readers treat as large. */
void rg_add_assign(rg_maker *m)
{
    bool add = rg_chance(m, 2), sum = rg_chance(m, 2);
    wf_value *apply = rg_chance(m, 3) ? rg_flag(m) : NULL, *s = pick_state(m);
    if (!s)
        return;
    wf_value *x = something_like(m, s);
    if (add && sum)
        s = companion(m, "u", s);
    else if (add)
        x = wf_scale(m->g, x, 0.1);
    else if (rg_size(m, x) > rg_size(m, &s->state->out[0]))
        x = wf_tanh(m->g, x);
    rg_flush(m);
    rg_retire(m, add ? wf_accumulate(m->g, s, x, apply) : wf_assign(m->g, s, x, apply));
}

/* ---- Optimizers ---- */

/* Operands shared by the updates of a group. */
typedef struct {
    wf_value *lr, *step, *scale, *apply;
} group;

static void update_adamw(rg_maker *m, const group *s, wf_value *p, wf_value *grad)
{
    static const wf_adamw_options options = {0.9, 0.95, 1e-6, 0.1};
    wf_value *moment = companion(m, "m", p), *second = companion(m, "v", p);
    rg_flush(m);
    rg_retire(m, wf_adamw(m->g, p, moment, second, grad, s->lr, s->step, s->scale, s->apply,
                          rg_chance(m, 4) ? NULL : &options));
}

static void update_sgd(rg_maker *m, const group *s, wf_value *p, wf_value *grad)
{
    wf_value *velocity = rg_chance(m, 2) ? companion(m, "u", p) : NULL;
    wf_sgd_options options = {velocity ? 0.9 : 0, rg_chance(m, 2) ? 0.01 : 0,
                              velocity && rg_chance(m, 2)};
    rg_flush(m);
    rg_retire(m, wf_sgd(m->g, p, velocity, grad, s->lr, s->scale, s->apply, &options));
}

static void update_lion(rg_maker *m, const group *s, wf_value *p, wf_value *grad)
{
    static const wf_lion_options options = {0.95, 0.98, 0.1};
    wf_value *moment = companion(m, "m", p);
    rg_flush(m);
    rg_retire(m, wf_lion(m->g, p, moment, grad, s->lr, s->scale, s->apply,
                         rg_chance(m, 4) ? NULL : &options));
}

static group start_group(rg_maker *m, wf_value *scale)
{
    return (group){
        .lr = rg_input(m, "lr", WF_F32, 0, NULL),
        .step = rg_input(m, "count", WF_I32, 0, NULL),
        .scale = scale             ? scale
                 : rg_chance(m, 2) ? rg_input(m, "factor", WF_F32, 0, NULL)
                                   : wf_fill(m->g, WF_F32, 0, NULL, 1),
        .apply = rg_chance(m, 2) ? rg_flag(m) : wf_fill(m->g, WF_U8, 0, NULL, 1),
    };
}

static void add_group(rg_maker *m,
                      void (*update)(rg_maker *, const group *, wf_value *, wf_value *))
{
    const wf_node *done[4];
    group s = start_group(m, NULL);
    for (int n = 1 + (int)rg_draw(m, 4), i = 0; i < n; i++) {
        wf_value *p = pick_state(m);
        bool again = !p;
        for (int k = 0; k < i && p; k++)
            again |= done[k] == p->state;
        if (again)
            p = rg_new_state(m, "p", 2, (int64_t[]){3, 4});
        done[i] = p->state;
        update(m, &s, p, something_like(m, p));
    }
}

void rg_add_adamw(rg_maker *m)
{
    add_group(m, update_adamw);
}

void rg_add_sgd(rg_maker *m)
{
    add_group(m, update_sgd);
}

void rg_add_lion(rg_maker *m)
{
    add_group(m, update_lion);
}

/* ---- Gradients ---- */

/* By node id: 0 unknown, 1 differentiable, 2 not differentiable. */
typedef struct {
    char *known;
} flow;

/* Whether every node behind v is differentiable and still readable. */
static bool flows(rg_maker *m, const wf_value *v, flow *f)
{
    const wf_node *n = v->node;
    bool is_float = (wf_type_bit(v->type) & WF_TYPES_FLOAT) != 0;
    if ((v->index > 0 && is_float) || !rg_readable(m, v))
        return false;
    if (f->known[n->id])
        return f->known[n->id] == 1;
    bool ok = !n->backward && wf_node_def(n)->grad != wf_grad_refuse &&
              !(m->recipe->options.smooth && rg_has_kink(n->op));
    for (int i = 0; i < n->nin && ok; i++)
        ok = flows(m, n->in[i], f);
    f->known[n->id] = ok ? 1 : 2;
    return ok;
}

static bool can_lose(rg_maker *m, const wf_value *v, void *arg)
{
    return v->node && v->node->nin > 0 && flows(m, v, arg);
}

static int count_behind(const wf_value *v, char *behind)
{
    int n = 1;
    if (behind[v->node->id])
        return 0;
    behind[v->node->id] = 1;
    for (int i = 0; i < v->node->nin; i++)
        n += count_behind(v->node->in[i], behind);
    return n;
}

/* Draws a few differentiable values and returns the one with the most nodes behind it, or NULL. */
static wf_value *pick_deep(rg_maker *m, flow *f)
{
    wf_value *deepest = NULL;
    int most = 0;
    for (int tries = 0; tries < 4; tries++) {
        /* no scalars: squares of losses, squared again, would exceed all bounds */
        const rg_want want = {.min_rank = 1, .full = true, .fits = can_lose, .arg = f};
        wf_value *x = rg_pick(m, &want);
        char *behind = calloc((size_t)m->g->node_count, 1);
        assert_non_null(behind);
        int n = x ? count_behind(x, behind) : 0;
        free(behind);
        if (n > most) {
            most = n;
            deepest = x;
        }
    }
    return deepest;
}

/* The mean square of a few values, possibly plus the loss of a head. Returns NULL when no value is
 * differentiable. */
static wf_value *make_loss(rg_maker *m, flow *f)
{
    wf_graph *g = m->g;
    wf_value *loss = NULL;
    for (int64_t n = 1 + rg_draw(m, 4); n > 0; n--) {
        wf_value *x = pick_deep(m, f), *term;
        if (!x)
            continue;
        if (rg_chance(m, 3)) {
            term = rg_head(m, x);
        } else {
            wf_value *y = wf_cast(g, x, WF_F32);
            term = wf_reduce(g, "mean", wf_mul(g, y, y), WF_ALL_AXES(y), false);
        }
        loss = loss ? wf_add(g, loss, term) : term;
    }
    return loss;
}

#define MAX_WRT 8

/* Picks sources behind the loss, and sometimes an intermediate value. */
static int choose_wrt(rg_maker *m, const wf_value *loss, wf_value **wrt)
{
    int n = 0;
    char *behind = calloc((size_t)m->g->node_count, 1);
    assert_non_null(behind);
    count_behind(loss, behind);
    for (int i = 0; i < m->g->node_count && n < MAX_WRT; i++) {
        wf_node *node = m->g->nodes[i];
        wf_value *v = &node->out[0];
        bool source = wf_node_is(node, WF_FLAG_SOURCE);
        bool is_float = (wf_type_bit(v->type) & WF_TYPES_FLOAT) != 0;
        /* draws nothing for copies that only outputs need: options.all must change no decision */
        if (!behind[i] || !is_float || (source && !rg_name_is_plain(node->name)))
            continue;
        if (rg_chance(m, source ? 2 : 16))
            wrt[n++] = v;
    }
    free(behind);
    return n;
}

/* Adds groups of updates by the gradients, clipped by their norm. A gradient can be a view of
 * another parameter that is about to change, so it is copied first. */
static void apply_gradients(rg_maker *m, wf_value **wrt, wf_value **grads, int n)
{
    wf_graph *g = m->g;
    wf_value *norm = wf_global_norm(g, grads, n), *one = wf_like(g, norm, 1);
    wf_value *clip = rg_chance(m, 2) ? wf_div(g, one, wf_add(g, norm, one)) : NULL;
    group s = start_group(m, clip);
    int64_t kind = rg_draw(m, 3);
    for (int i = 0; i < n; i++)
        if (wf_value_root(grads[i])->state)
            grads[i] = wf_copy(g, grads[i]);
    for (int i = 0; i < n; i++) {
        if (!wrt[i]->state || !changeable(wrt[i]))
            continue;
        if (kind == 0) {
            update_adamw(m, &s, wrt[i], grads[i]);
        } else if (kind == 1) {
            update_sgd(m, &s, wrt[i], grads[i]);
        } else { /* accumulated for a later step */
            wf_value *sum = companion(m, "u", wrt[i]);
            rg_flush(m);
            rg_retire(m, wf_accumulate(g, sum, grads[i], NULL));
        }
    }
}

void rg_add_grad(rg_maker *m)
{
    wf_value *wrt[MAX_WRT], *grads[MAX_WRT];
    /* excludes nodes that the loss will add: they are not in the pool yet */
    flow f = {calloc((size_t)m->g->node_count + 1, 1)};
    assert_non_null(f.known);
    wf_value *loss = make_loss(m, &f);
    free(f.known);
    int n = loss ? choose_wrt(m, loss, wrt) : 0;
    if (n == 0)
        return;
    wf_grad(m->g, loss, wrt, n, grads);
    rg_flush(m);
    if (!rg_chance(m, 5))
        apply_gradients(m, wrt, grads, n);
}
