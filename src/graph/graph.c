/* SPDX-License-Identifier: MIT */
/*
 * graph.c - creates and frees graphs, adds nodes, and answers questions about values.
 *
 * Every node passes wf_node_add, which rejects invalid operands, attributes and shapes. Code that
 * reads a graph relies on these checks: element counts fit in int64_t, operands belong to the graph
 * and come before their readers, attribute lists have at most WF_MAX_RANK entries.
 *
 * Errors are sticky. The first failure makes the graph unusable; every later builder returns NULL,
 * and the message of the first failure survives.
 */
#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* The caller frees *out with wf_graph_free. The graph borrows the context. */
wf_status wf_graph_new(wf_ctx *ctx, wf_graph **out)
{
    *out = NULL;
    wf_graph *g = wf_mem_new(ctx, sizeof *g);
    if (!g)
        return WF_ERR_MEMORY;
    g->ctx = ctx;
    wf_arena_init(&g->arena, ctx);
    *out = g;
    return WF_OK;
}

/* Frees all nodes and values at once: they live in the arena. */
void wf_graph_free(wf_graph *g)
{
    if (!g)
        return;
    wf_arena_free(&g->arena);
    wf_mem_free(g->ctx, g->nodes);
    wf_mem_free(g->ctx, g->outputs);
    wf_mem_free(g->ctx, g);
}

wf_status wf_graph_status(const wf_graph *g)
{
    return g->status;
}

wf_status wf_graph_fail(wf_graph *g, wf_status status, const char *fmt, ...)
{
    /* Keep the first failure. Later ones are its consequences. */
    if (g->status != WF_OK)
        return g->status;
    va_list args;
    va_start(args, fmt);
    vsnprintf(g->message, sizeof g->message, fmt, args);
    va_end(args);
    g->status = status;
    return wf_fail(g->ctx, status, "%s", g->message);
}

/* Copies the message of a failed allocation from the context to the graph. Returns NULL, for the
 * return statement of builders. */
static wf_value *out_of_memory(wf_graph *g)
{
    wf_graph_fail(g, WF_ERR_MEMORY, "%s", g->ctx->message);
    return NULL;
}

const wf_op_def *wf_node_def(const wf_node *n)
{
    return wf_op_get(n->op);
}

bool wf_graph_has(const wf_graph *g, const wf_value *v)
{
    const wf_node *n = v->node;
    /* Compares pointers on the way, so a value of another graph with the same id and index is
     * detected. */
    return n && n->id >= 0 && n->id < g->node_count && g->nodes[n->id] == n && v->index >= 0 &&
           v->index < n->nout && &n->out[v->index] == v;
}

wf_type wf_node_key_type(const wf_node *n)
{
    if (n->nin == 0) /* sources and fills: the only type is that of the result */
        return n->out[0].type;
    return n->in[wf_node_is(n, WF_FLAG_KEY_IS_1) ? 1 : 0]->type;
}

const wf_value *wf_value_root(const wf_value *v)
{
    /* Views have one operand, and no view is its own ancestor: the loop ends. */
    while (wf_node_is(v->node, WF_FLAG_VIEW))
        v = v->node->in[0];
    return v;
}

void wf_value_print(const wf_value *v, char *buf, size_t cap, size_t *len)
{
    wf_text_append(buf, cap, len, "%s[", wf_type_name(v->type));
    for (int i = 0; i < v->shape.n; i++)
        wf_text_append(buf, cap, len, "%s%lld", i ? "," : "", (long long)v->shape.d[i]);
    wf_text_append(buf, cap, len, "]");
}

void wf_call_print(const wf_op_def *def, wf_value *const *in, int nin, const void *attr, char *buf,
                   size_t cap, size_t *len)
{
    wf_text_append(buf, cap, len, "%s(", def->name);
    for (int i = 0; i < nin && i < 8; i++) {
        wf_text_append(buf, cap, len, "%s", i ? ", " : "");
        wf_value_print(in[i], buf, cap, len);
    }
    wf_text_append(buf, cap, len, "%s", nin > 8 ? ", ..." : "");
    if (attr) {
        wf_text_append(buf, cap, len, "%s", nin ? "; " : "");
        wf_attr_print(def, attr, buf, cap, len);
    }
    wf_text_append(buf, cap, len, ")");
}

wf_status wf_infer_fail(wf_infer *r, const char *fmt, ...)
{
    char rule[256], text[512]; /* longer messages are cut; vsnprintf always terminates the string */
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(rule, sizeof rule, fmt, args);
    va_end(args);
    wf_call_print(r->def, r->in, r->nin, r->attr, text, sizeof text, &len);
    return wf_graph_fail(r->g, WF_ERR_USAGE, "%s: %s", text, rule);
}

/* ---- Adding a node ---- */

/* Rejects negative lengths, element counts whose size in bytes could overflow, and rows that are
 * not a multiple of the block size. */
static wf_status check_shape(wf_infer *r, wf_type type, const wf_dims *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->n; i++) {
        if (shape->d[i] < 0)
            return wf_infer_fail(r, "axis %d has the negative length %lld", i,
                                 (long long)shape->d[i]);
        /* A length of 0 counts as 1, so that [0, 2^62, 2^62] is rejected: code may multiply any
         * subset of the lengths. No type has more than 16 bytes per element, so the size in bytes
         * fits, too. */
        if (!wf_mul_i64(count, shape->d[i] > 0 ? shape->d[i] : 1, &count) || count > INT64_MAX / 16)
            return wf_infer_fail(r, "the result is too large to address");
    }
    if (wf_dims_last(shape) % wf_type_get(type)->block != 0)
        return wf_infer_fail(r, "the last axis has length %lld; %s needs a multiple of %d",
                             (long long)wf_dims_last(shape), wf_type_name(type),
                             wf_type_get(type)->block);
    return WF_OK;
}

/* Checks the number of operands and the lists among the attributes. */
static wf_status check_operands(wf_infer *r)
{
    const wf_op_def *def = r->def;
    if (r->nin < def->min_in || r->nin > def->max_in) {
        if (def->min_in == def->max_in)
            return wf_infer_fail(r, "takes %d operand%s, not %d", def->min_in,
                                 WF_PLURAL(def->min_in), r->nin);
        return wf_infer_fail(r, "takes %d to %d operands, not %d", def->min_in, def->max_in,
                             r->nin);
    }
    for (const wf_attr_field *f = def->fields; f->name; f++) {
        if (f->kind != WF_ATTR_DIMS && f->kind != WF_ATTR_SHAPE)
            continue;
        /* attr is not NULL here: an op with fields has an attribute struct, and callers pass it. */
        const wf_dims *dims = (const wf_dims *)((const char *)r->attr + f->offset);
        if (dims->n < 0 || dims->n > WF_MAX_RANK)
            return wf_graph_fail(r->g, WF_ERR_USAGE, "%s: rank %lld is not within 0 .. %d",
                                 def->name, (long long)dims->n, WF_MAX_RANK);
        /* Checked before the shape rule multiplies the lengths. wf_reshape has resolved -1. */
        if (f->kind == WF_ATTR_SHAPE)
            WF_TRY(check_shape(r, WF_U8, dims));
    }
    return WF_OK;
}

/* Checks what the shape rule derived. An update writes in place, so its operand i must be a version
 * of a state. */
static wf_status check_results(wf_infer *r)
{
    for (int i = 0; i < r->nout; i++) {
        WF_TRY(check_shape(r, r->out[i].type, &r->out[i].shape));
        if (r->def->flags & WF_FLAG_UPDATE && !r->in[i]->state)
            return wf_infer_fail(r, "operand %d must be a state, not a computed value", i);
    }
    return WF_OK;
}

/* Doubles the list when it is full. Nodes themselves never move. */
static bool append_node(wf_graph *g, wf_node *n)
{
    if (g->node_count == g->node_cap) {
        int cap = g->node_cap ? 2 * g->node_cap : 64;
        void *grown = wf_mem_grow(g->ctx, g->nodes, (size_t)cap * sizeof *g->nodes);
        if (!grown)
            return false;
        g->nodes = grown;
        g->node_cap = cap;
    }
    n->id = g->node_count;
    g->nodes[g->node_count++] = n;
    return true;
}

/* Creates the node in the graph's arena and derives the state and version of its outputs. Returns
 * NULL when memory runs out. */
static wf_node *make_node(wf_infer *r, wf_op op, const char *name)
{
    wf_graph *g = r->g;
    wf_node *n = wf_arena_alloc(&g->arena, sizeof *n);
    if (!n)
        return NULL;
    n->graph = g;
    n->op = op;
    n->backward = g->backward;
    n->nin = r->nin;
    n->nout = r->nout;
    n->in = wf_arena_alloc(&g->arena, (size_t)(r->nin ? r->nin : 1) * sizeof *n->in);
    n->out = wf_arena_alloc(&g->arena, (size_t)r->nout * sizeof *n->out);
    n->attr = r->attr ? wf_arena_copy(&g->arena, r->attr, r->def->attr_bytes) : NULL;
    n->name = name ? wf_arena_strdup(&g->arena, name) : NULL;
    if (!n->in || !n->out || (r->attr && !n->attr) || (name && !n->name))
        return NULL;
    for (int i = 0; i < r->nin; i++)
        n->in[i] = r->in[i];
    /* A view of a state is not a version of it: wf_value_root finds the state. */
    for (int i = 0; i < r->nout; i++) {
        wf_value *v = &n->out[i];
        *v = (wf_value){.node = n, .index = i, .type = r->out[i].type, .shape = r->out[i].shape};
        if (r->def->flags & WF_FLAG_STATE) {
            v->state = n;
        } else if (r->def->flags & WF_FLAG_UPDATE) {
            v->state = r->in[i]->state;
            v->version = r->in[i]->version + 1;
        }
    }
    return n;
}

wf_value *wf_node_add(wf_graph *g, wf_op op, const void *attr, const char *name,
                      wf_value *const *in, int nin)
{
    if (g->status != WF_OK)
        return NULL;
    const wf_op_def *def = wf_op_get(op);
    for (int i = 0; i < nin; i++)
        if (!in || !in[i] || !wf_graph_has(g, in[i])) {
            wf_graph_fail(g, WF_ERR_USAGE, "%s: operand %d %s", def->name, i,
                          in && in[i] ? "belongs to another graph" : "is missing");
            return NULL;
        }
    /* An op without attributes ignores `attr`. */
    wf_infer r = {.g = g, .def = def, .in = in, .nin = nin, .attr = def->attr_bytes ? attr : NULL};
    if (check_operands(&r) != WF_OK || def->shape(&r) != WF_OK || check_results(&r) != WF_OK)
        return NULL;
    wf_node *n = make_node(&r, op, name);
    if (!n || !append_node(g, n))
        return out_of_memory(g);
    return &n->out[0];
}

/* ---- Outputs ---- */

/* Adds a copy where the value shares storage, so outputs[i].value may differ from `value`. */
wf_status wf_output(wf_graph *g, const char *name, wf_value *value)
{
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    if (!value || !name || !*name)
        return wf_graph_fail(g, WF_ERR_USAGE, "output '%s' has no %s", name ? name : "",
                             value ? "name" : "value");
    if (!wf_graph_has(g, value))
        return wf_graph_fail(g, WF_ERR_USAGE, "output '%s' belongs to another graph", name);
    for (int i = 0; i < g->output_count; i++)
        if (strcmp(g->outputs[i].name, name) == 0)
            return wf_graph_fail(g, WF_ERR_USAGE, "the graph already has an output '%s'", name);
    /* An output needs its own storage: the host may read it at any time until the next run. */
    if (wf_node_is(value->node, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE))
        value = wf_copy(g, value);
    if (g->output_count == g->output_cap) {
        int cap = g->output_cap ? 2 * g->output_cap : 8;
        void *grown = wf_mem_grow(g->ctx, g->outputs, (size_t)cap * sizeof *g->outputs);
        if (!grown)
            /* The comma keeps the error of the graph, not NULL. */
            return out_of_memory(g), g->status;
        g->outputs = grown;
        g->output_cap = cap;
    }
    char *copy = wf_arena_strdup(&g->arena, name);
    if (!copy || !value)
        return out_of_memory(g), g->status;
    g->outputs[g->output_count++] = (wf_named){copy, value};
    return WF_OK;
}

/* ---- Values ---- */

wf_type wf_value_type(const wf_value *v)
{
    return v ? v->type : WF_TYPE_NONE;
}

int wf_value_rank(const wf_value *v)
{
    return v ? (int)v->shape.n : 0;
}

int64_t wf_value_dim(const wf_value *v, int axis)
{
    return v && axis >= 0 && axis < v->shape.n ? v->shape.d[axis] : 0;
}

int64_t wf_value_count(const wf_value *v)
{
    return v ? wf_dims_count(&v->shape) : 0;
}

wf_value *wf_value_output(wf_value *v, int index)
{
    if (!v)
        return NULL;
    if (index < 0 || index >= v->node->nout) {
        wf_graph_fail(v->node->graph, WF_ERR_USAGE, "%s has no output %d",
                      wf_node_def(v->node)->name, index);
        return NULL;
    }
    return &v->node->out[index];
}
