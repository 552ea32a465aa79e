/* SPDX-License-Identifier: MIT */
/*
 * fuse_copies.c - keeps bf16 or f16 copies of f32 parameters, written by the AdamW update.
 *
 *     before    %1 = cast(%w) type=bf16                     %w: state, f32
 *               %9 = adamw(%w, %m, %v, %grad, ...)
 *     after     %1 = state_copy("w") type=bf16
 *               %9 = adamw_many(%w, %m, %v, %1, %grad, ...) copies=1
 *
 * When matmuls compute in bf16 or f16, every step casts each f32 parameter first and ends with an
 * update that holds the same parameter in registers. This pattern replaces the casts by a
 * state_copy, a state that the session keeps equal to the rounded parameter, and lets the update
 * write it. A step then reads every parameter one time less.
 *
 * A cast may be read after the update. Version 0 of a copy may not, so all its readers must run
 * before.
 */
#include <string.h>

#include "base/mem.h"
#include "graph/pass/fuse_priv.h"

typedef struct {
    wf_rewrite r;
    const wf_pass_env *env;
    bool had_copies; /* the graph came with copies, for example from text */
    wf_type *type;   /* [node] for adamw: the type of p's copy; WF_TYPE_NONE: no copy */
    bool *later;     /* [node] must run after one of these updates in every legal order */
} copier;

/* ---- Which parameters ---- */

static bool is_cast(const wf_node *n, wf_type type)
{
    return n && n->op == WF_OP_cast && n->out[0].type == type;
}

/* Whether p is cast to this type. A cast that is a graph output needs storage of its own and
 * prevents the copy. */
static bool has_casts(const wf_uses *u, const wf_value *p, wf_type type)
{
    bool any = false;
    for (int i = 0; i < wf_uses_count(u, p); i++) {
        const wf_node *n = wf_uses_of(u, p)[i].node;
        if (is_cast(n, type) && wf_uses_is_output(u, &n->out[0]))
            return false;
        any |= is_cast(n, type);
    }
    return any;
}

static bool has_copy(const wf_graph *g, const char *name)
{
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state_copy && strcmp(g->nodes[i]->name, name) == 0)
            return true;
    return false;
}

/* The type for a copy of the parameter that this node updates, or WF_TYPE_NONE. */
static wf_type type_of_casts(const copier *c, const wf_node *update)
{
    const wf_uses *u = &c->r.uses;
    const wf_value *p = update->in[0];
    if (update->op != WF_OP_adamw || p->node->op != WF_OP_state || p->type != WF_F32)
        return WF_TYPE_NONE;
    /* A parameter with casts to both types gets one copy, of the first. */
    wf_type type = has_casts(u, p, WF_BF16)  ? WF_BF16
                   : has_casts(u, p, WF_F16) ? WF_F16
                                             : WF_TYPE_NONE;
    return c->had_copies && has_copy(c->r.g, p->node->name) ? WF_TYPE_NONE : type;
}

/* Sets later[]. */
static wf_status mark_later(copier *c)
{
    wf_edges e;
    WF_TRY(wf_edges_new(c->r.g, &e));
    for (int i = 0; i < e.count; i++) /* edges lead to later nodes, so one pass is enough */
        for (int k = e.first[i]; k < e.first[i + 1]; k++)
            if (c->type[i] != WF_TYPE_NONE || c->later[i])
                c->later[e.after[k]] = true;
    wf_edges_free(&e);
    return WF_OK;
}

/* If v is a cast that a copy would replace, returns the update of its parameter; else NULL. */
static wf_node *update_of(const copier *c, const wf_value *v)
{
    const wf_uses *u = &c->r.uses;
    if (v->node->op != WF_OP_cast || v->node->in[0]->node->op != WF_OP_state)
        return NULL;
    const wf_value *p = v->node->in[0];
    for (int i = 0; i < wf_uses_count(u, p); i++) {
        wf_use use = wf_uses_of(u, p)[i];
        if (use.node && use.operand == 0 && use.node->op == WF_OP_adamw)
            return c->type[use.node->id] == v->type ? use.node : NULL;
    }
    return NULL;
}

/* Gives up the copies that a node after an update, or the update itself, reads. */
static void drop_read_later(copier *c)
{
    /* Dropping one copy cannot make another illegal, so one pass over the readers is enough. */
    for (int i = 0; i < c->r.count; i++) {
        const wf_node *reader = c->r.g->nodes[i];
        for (int k = 0; k < reader->nin; k++) {
            const wf_node *update = update_of(c, wf_uses_root(&c->r.uses, reader->in[k]));
            if (update && (c->later[i] || reader == update))
                c->type[update->id] = WF_TYPE_NONE;
        }
    }
}

/* ---- The change ---- */

/* Replaces the adamw `update` by an adamw_many of one parameter with a copy, and p's casts by the
 * copy. */
static bool make_copy(copier *c, wf_node *update)
{
    wf_graph *g = c->r.g;
    wf_value *p = update->in[0];
    const wf_type type = c->type[update->id];
    const wf_attr_source source = {.type = type, .dims = p->shape};
    wf_attr_adamw attr = *(const wf_attr_adamw *)update->attr;
    wf_value *in[9];
    attr.copies = 1;
    wf_rewrite_before(&c->r, update);
    wf_value *copy = wf_node_add(g, WF_OP_state_copy, &source, p->node->name, NULL, 0);
    /* Operands p, m, v, then the copy, then the rest moved up by one. */
    for (int i = 0; i < 9; i++)
        in[i] = i < 3 ? update->in[i] : i == 3 ? copy : update->in[i - 1];
    wf_value *y = wf_node_add(g, WF_OP_adamw_many, &attr, NULL, in, 9);
    if (!wf_fuse_accepts(&c->r, c->env->target, y))
        return false;
    for (int k = 0; k < update->nout; k++)
        wf_rewrite_replace(&c->r, &update->out[k], &y->node->out[k]);
    wf_rewrite_drop(&c->r, update);
    const wf_uses *u = &c->r.uses;
    for (int i = 0; i < wf_uses_count(u, p); i++) {
        wf_node *n = wf_uses_of(u, p)[i].node;
        if (is_cast(n, type))
            wf_rewrite_replace(&c->r, &n->out[0], copy);
    }
    return true;
}

static wf_status make_copies(copier *c, int *made)
{
    for (int i = 0; i < c->r.count; i++)
        c->had_copies |= c->r.g->nodes[i]->op == WF_OP_state_copy;
    for (int i = 0; i < c->r.count; i++)
        c->type[i] = type_of_casts(c, c->r.g->nodes[i]);
    WF_TRY(mark_later(c));
    drop_read_later(c);
    for (int i = 0; i < c->r.count && c->r.g->status == WF_OK; i++)
        if (c->type[i] != WF_TYPE_NONE)
            *made += make_copy(c, c->r.g->nodes[i]);
    return c->r.g->status;
}

/* Makes no copies with recomputation by blocks: casts are recomputed there, and copies would take
 * the memory that it saves. */
wf_status wf_fuse_copies(wf_graph *g, const wf_pass_env *env, int *made)
{
    copier c = {.env = env};
    *made = 0;
    if (env->options->recompute > 0)
        return WF_OK;
    WF_TRY(wf_rewrite_begin(g, &c.r));
    c.type = wf_mem_array(g->ctx, (size_t)c.r.count + 1, sizeof *c.type);
    c.later = wf_mem_array(g->ctx, (size_t)c.r.count + 1, sizeof *c.later);
    wf_status status = c.type && c.later ? make_copies(&c, made) : WF_ERR_MEMORY;
    wf_mem_free(g->ctx, c.type);
    wf_mem_free(g->ctx, c.later);
    WF_TRY(wf_rewrite_end(&c.r, status));
    if (*made == 0)
        return WF_OK;
    /* The copies were added next to their updates, but their readers come earlier. */
    WF_TRY(wf_order_sources(g));
    return wf_order_sort(g);
}
