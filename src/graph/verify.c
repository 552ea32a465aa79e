/* SPDX-License-Identifier: MIT */
/*
 * verify.c - checks all invariants of a graph, node by node in order.
 *
 * A message starts with the name of the fault: "wrong-type: ...". The verifier trusts nothing that
 * a pass could get wrong: it derives types and shapes again and tracks the versions of every state.
 * It does not modify the graph. Sorting the names dominates: O(n log n) for n nodes.
 *
 * Checks build on each other. check_node proves that pointers and counts are valid; check_types may
 * then call the shape rule; check_reads and check_writes rely on both.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph.h"

typedef struct {
    wf_graph *g;
    int *version; /* [id of a state node]: the newest version so far */
    int *writer;  /* [id of a state node]: the node that made it; -1: still version 0 */
    /* [id of a view node]: the value that owns its storage. wf_value_root would walk each chain of
     * views again for every node of it: O(n^2). */
    const wf_value **root;
} verifier;

#define FAULT(v, name, ...) wf_fail((v)->g->ctx, WF_ERR_GRAPH, name ": " __VA_ARGS__)

/* The op's name for messages; "?" for an invalid op. */
static const char *op_name(const wf_node *n)
{
    return (unsigned)n->op < WF_OP_COUNT ? wf_node_def(n)->name : "?";
}

/* ---- Single nodes ---- */

/* Whether all list attributes have 0 to WF_MAX_RANK entries. Shape rules rely on this. */
static bool lists_fit(const wf_node *n)
{
    for (const wf_attr_field *f = wf_node_def(n)->fields; f->name; f++) {
        const wf_dims *dims = (const wf_dims *)((const char *)n->attr + f->offset);
        if ((f->kind == WF_ATTR_DIMS || f->kind == WF_ATTR_SHAPE) &&
            (dims->n < 0 || dims->n > WF_MAX_RANK))
            return false;
    }
    return true;
}

/* Checks the node by itself and that its operands come before it. `place` is its index in the
 * graph, which must be its id. */
static wf_status check_node(const verifier *v, const wf_node *n, int place)
{
    if (!n || (unsigned)n->op >= WF_OP_COUNT) /* the cast also rejects negative values */
        return FAULT(v, "unknown-op", "node %d has no valid op", place);
    const wf_op_def *def = wf_node_def(n);
    if (n->id != place)
        return FAULT(v, "wrong-id", "node %d (%s) has the id %d", place, def->name, n->id);
    if (n->nin < def->min_in || n->nin > def->max_in)
        return FAULT(v, "wrong-arity", "node %d (%s) has %d operand%s", place, def->name, n->nin,
                     WF_PLURAL(n->nin));
    if ((n->attr != NULL) != (def->attr_bytes > 0))
        return FAULT(v, "wrong-attributes", "node %d (%s) %s attributes", place, def->name,
                     n->attr ? "should have no" : "lacks its");
    if (!lists_fit(n))
        return FAULT(v, "wrong-attributes",
                     "node %d (%s) has a list whose length is not in 0 .. %d", place, def->name,
                     WF_MAX_RANK);
    if ((n->name != NULL) != ((def->flags & WF_FLAG_SOURCE) != 0))
        return FAULT(v, "wrong-name", "node %d (%s) %s a name", place, def->name,
                     n->name ? "should not have" : "lacks");
    for (int i = 0; i < n->nin; i++) {
        const wf_value *x = n->in[i];
        if (!x || !wf_graph_has(v->g, x))
            return FAULT(v, "dangling-operand",
                         "operand %d of node %d (%s) is not a value of this graph", i, place,
                         def->name);
        if (x->node->id >= place) /* also rejects a node that reads itself */
            return FAULT(v, "wrong-order", "node %d (%s) uses node %d, which comes later", place,
                         def->name, x->node->id);
    }
    return WF_OK;
}

/* Derives types and shapes of the outputs again and compares. */
static wf_status check_types(const verifier *v, const wf_node *n)
{
    const wf_op_def *def = wf_node_def(n);
    /* Shape rules report failures through a graph. A scratch one keeps the real graph's status
     * clean. */
    wf_graph scratch = {.ctx = v->g->ctx};
    wf_infer r = {.g = &scratch, .def = def, .in = n->in, .nin = n->nin, .attr = n->attr};
    if (def->shape(&r) != WF_OK)
        return FAULT(v, "wrong-operands", "node %d: %s", n->id, scratch.message);
    if (r.nout != n->nout)
        return FAULT(v, "wrong-outputs", "node %d (%s) has %d outputs, not %d", n->id, def->name,
                     n->nout, r.nout);
    for (int i = 0; i < n->nout; i++) {
        const wf_value *out = &n->out[i];
        if (out->node != n || out->index != i)
            return FAULT(v, "dangling-output", "output %d of node %d (%s) belongs to another node",
                         i, n->id, def->name);
        if (out->type != r.out[i].type)
            return FAULT(v, "wrong-type", "output %d of node %d (%s) is %s but should be %s", i,
                         n->id, def->name, wf_type_name(out->type), wf_type_name(r.out[i].type));
        if (!wf_dims_equal(&out->shape, &r.out[i].shape)) {
            char text[256];
            size_t len = 0;
            /* The actual shape is not printed: its rank may be invalid. */
            const wf_value derived = {.type = out->type, .shape = r.out[i].shape};
            wf_value_print(&derived, text, sizeof text, &len);
            return FAULT(v, "wrong-shape",
                         "output %d of node %d (%s) does not have the shape of %s", i, n->id,
                         def->name, text);
        }
    }
    return WF_OK;
}

/* ---- States ---- */

/* wf_value_root, from the table. */
static const wf_value *root_of(const verifier *v, const wf_value *x)
{
    return wf_node_is(x->node, WF_FLAG_VIEW) ? v->root[x->node->id] : x;
}

/* No node may read a version of a state that an earlier node has replaced. An update reads its own
 * state; check_writes handles that operand. */
static wf_status check_reads(const verifier *v, const wf_node *n)
{
    for (int i = 0; i < n->nin; i++) {
        const wf_value *root = root_of(v, n->in[i]);
        if (!root->state)
            continue;
        int s = root->state->id;
        /* Its own state, as the operand to update. */
        bool writes = wf_node_is(n, WF_FLAG_UPDATE) && i < n->nout;
        if (root->version < v->version[s] && !writes)
            return FAULT(
                v, "reader-after-writer",
                "node %d (%s) reads version %d of state '%s' after node %d made version %d", n->id,
                op_name(n), root->version, root->state->name, v->writer[s], v->version[s]);
    }
    return WF_OK;
}

/* A copy of a state may only be set to a version of that state, rounded: by the update of the state
 * itself, or by an assign of a cast where that update was expanded. */
static wf_status check_copy(const verifier *v, const wf_node *n, int i)
{
    const wf_node *copy = n->in[i]->state;
    if (copy->op != WF_OP_state_copy)
        return WF_OK;
    const wf_attr_adamw *a = n->op == WF_OP_adamw_many ? n->attr : NULL;
    /* adamw_many with copies takes n parameters, n first moments, n second moments, then n copies:
     * copy i belongs to parameter i - 3n. */
    const int count = n->nout / 4, of = i - 3 * count;
    const wf_node *state = a && a->copies && of >= 0 ? n->in[of]->state : NULL;
    if (n->op == WF_OP_assign && n->in[1]->node->op == WF_OP_cast)
        state = n->in[1]->node->in[0]->state;
    if (!state || state->op != WF_OP_state || strcmp(state->name, copy->name) != 0)
        return FAULT(v, "write-to-copy",
                     "node %d (%s) updates the copy of state '%s' without the state", n->id,
                     op_name(n), copy->name);
    return WF_OK;
}

/* Outputs of state nodes are version 0. Output i of an update is the successor of the newest
 * version of input i. No other output is a state. */
static wf_status check_writes(verifier *v, const wf_node *n)
{
    for (int i = 0; i < n->nout; i++) {
        const wf_value *out = &n->out[i];
        const wf_value *in = wf_node_is(n, WF_FLAG_UPDATE) ? n->in[i] : NULL;
        bool source = wf_node_is(n, WF_FLAG_STATE);
        if (source && (out->state != n || out->version != 0))
            return FAULT(v, "wrong-version", "node %d (%s) is not version 0 of itself", n->id,
                         op_name(n));
        if (!source && !in && out->state)
            return FAULT(v, "wrong-version", "output %d of node %d (%s) is marked as a state", i,
                         n->id, op_name(n));
        if (!in)
            continue;
        /* in->state comes from a pass, so check it before it is dereferenced. */
        if (!in->state || (unsigned)in->state->op >= WF_OP_COUNT ||
            !wf_node_is(in->state, WF_FLAG_STATE) || !wf_graph_has(v->g, &in->state->out[0]))
            return FAULT(v, "write-to-no-state", "node %d (%s) updates a value that is not a state",
                         n->id, op_name(n));
        int s = in->state->id;
        if (in->version != v->version[s])
            return FAULT(
                v, "two-writers",
                "node %d (%s) updates version %d of state '%s', which node %d already updated",
                n->id, op_name(n), in->version, in->state->name, v->writer[s]);
        if (out->state != in->state || out->version != in->version + 1)
            return FAULT(v, "wrong-version",
                         "output %d of node %d (%s) is not the next version of '%s'", i, n->id,
                         op_name(n), in->state->name);
        WF_TRY(check_copy(v, n, i));
        v->version[s]++;
        v->writer[s] = n->id;
    }
    return WF_OK;
}

/* ---- Names and outputs ---- */

/* A name that must be unique within its kind: a source op, or WF_OP_COUNT for outputs. */
typedef struct {
    const char *name; /* borrowed from the graph */
    int kind, place;  /* place: node id, or index of the output */
} used_name;

static int compare_names(const void *left, const void *right)
{
    const used_name *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    int order = strcmp(a->name, b->name);
    return order ? order : a->place - b->place; /* never equal: the order is total */
}

/* Sorts the names; equal ones are neighbours then. Two state nodes of one name would be one buffer
 * with two versions 0. */
static wf_status find_twins(const verifier *v, used_name *names, size_t n)
{
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 1; i < n; i++) {
        const used_name *a = &names[i - 1], *b = &names[i];
        if (a->kind != b->kind || strcmp(a->name, b->name) != 0)
            continue;
        if (a->kind == WF_OP_COUNT)
            return FAULT(v, "duplicate-name", "two outputs have the name '%s'", a->name);
        return FAULT(v, "duplicate-name", "nodes %d and %d (%s) both have the name '%s'", a->place,
                     b->place, wf_op_get((wf_op)a->kind)->name, a->name);
    }
    return WF_OK;
}

/* Every state_copy needs an f32 state of the same name and shape. names[] is sorted. */
static wf_status find_copied(const verifier *v, const used_name *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (names[i].kind != WF_OP_state_copy)
            continue;
        size_t low = 0, high = n; /* names before low are less than the key */
        /* -1: before every real entry of the same name. */
        const used_name key = {names[i].name, WF_OP_state, -1};
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (compare_names(&names[middle], &key) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        const wf_node *copy = v->g->nodes[names[i].place];
        const wf_node *state =
            low < n && names[low].kind == WF_OP_state && strcmp(names[low].name, copy->name) == 0
                ? v->g->nodes[names[low].place]
                : NULL;
        if (!state || state->out[0].type != WF_F32 ||
            !wf_dims_equal(&state->out[0].shape, &copy->out[0].shape))
            return FAULT(v, "copy-of-nothing",
                         "node %d (%s) copies '%s', which is not an f32 state of the same shape",
                         copy->id, op_name(copy), copy->name);
    }
    return WF_OK;
}

/* Runs last: it relies on valid nodes and outputs. */
static wf_status check_names(const verifier *v)
{
    const wf_graph *g = v->g;
    size_t n = 0, most = (size_t)g->node_count + (size_t)g->output_count;
    used_name *names = wf_mem_array(g->ctx, most, sizeof *names);
    if (!names)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->name)
            names[n++] = (used_name){g->nodes[i]->name, (int)g->nodes[i]->op, i};
    for (int i = 0; i < g->output_count; i++)
        names[n++] = (used_name){g->outputs[i].name, WF_OP_COUNT, i};
    wf_status status = find_twins(v, names, n);
    if (status == WF_OK)
        status = find_copied(v, names, n);
    wf_mem_free(g->ctx, names);
    return status;
}

static wf_status check_outputs(const verifier *v)
{
    for (int i = 0; i < v->g->output_count; i++) {
        const wf_named *o = &v->g->outputs[i];
        if (!o->value || !wf_graph_has(v->g, o->value))
            return FAULT(v, "dangling-output", "output '%s' is not a value of this graph", o->name);
        /* wf_output added a copy for these. */
        if (wf_node_is(o->value->node, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE))
            return FAULT(v, "shared-output", "output '%s' has no storage of its own", o->name);
    }
    return WF_OK;
}

static wf_status check_nodes(verifier *v)
{
    for (int i = 0; i < v->g->node_count; i++) {
        wf_node *n = v->g->nodes[i];
        v->writer[i] = -1;
        WF_TRY(check_node(v, n, i));
        WF_TRY(check_types(v, n));
        /* Only views read root[]. Their operand 0 came earlier, so its root is known. */
        v->root[i] = n->nin ? root_of(v, n->in[0]) : NULL;
        WF_TRY(check_reads(v, n));
        WF_TRY(check_writes(v, n));
    }
    return WF_OK;
}

/* Costs time in proportion to the graph. The compiler calls it once; checked builds, after every
 * pass. */
wf_status wf_graph_verify(wf_graph *g)
{
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    size_t n = (size_t)g->node_count;
    /* Zeroed: every state starts at version 0; the second half is `writer`. */
    verifier v = {.g = g, .version = wf_mem_array(g->ctx, 2 * n, sizeof *v.version)};
    v.root = wf_mem_array(g->ctx, n, sizeof *v.root);
    v.writer = v.version ? v.version + n : NULL;
    wf_status status = v.version && v.root ? check_nodes(&v) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = check_outputs(&v);
    if (status == WF_OK)
        status = check_names(&v);
    wf_mem_free(g->ctx, v.version);
    wf_mem_free(g->ctx, v.root);
    return status;
}
