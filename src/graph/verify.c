/* SPDX-License-Identifier: MIT */
/*
 * verify.c - everything that must be true of a graph, checked node by node in order.
 *
 * Each kind of fault has a name, which begins its sentence. The verifier trusts nothing that a pass
 * could have got wrong: it derives types and shapes anew and follows the versions of every state.
 */
#include <string.h>

#include "base/mem.h"
#include "graph/graph.h"

typedef struct {
    wf_graph *g;
    int *version; /* by id of state nodes: the version that readers may see at this point */
    int *writer;  /* by id of state nodes: the node that made it, -1 for none */
} verifier;

#define FAULT(v, name, ...) wf_fail((v)->g->ctx, WF_ERR_GRAPH, name ": " __VA_ARGS__)

/* For sentences: the op's name even when the op is no op. */
static const char *op_name(const wf_node *n)
{
    return (unsigned)n->op < WF_OP_COUNT ? wf_node_def(n)->name : "?";
}

/* ---- One node by itself ---- */

/* Rules trust the length of a list, so it is looked at before they are. */
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

static wf_status check_node(const verifier *v, const wf_node *n, int place)
{
    if (!n || (unsigned)n->op >= WF_OP_COUNT)
        return FAULT(v, "unknown-op", "node %d has no op that exists", place);
    const wf_op_def *def = wf_node_def(n);
    if (n->id != place)
        return FAULT(v, "wrong-id", "node %d (%s) says that it is node %d", place, def->name,
                     n->id);
    if (n->nin < def->min_in || n->nin > def->max_in)
        return FAULT(v, "wrong-arity", "node %d (%s) has %d operand%s", place, def->name, n->nin,
                     n->nin == 1 ? "" : "s");
    if ((n->attr != NULL) != (def->attr_bytes > 0))
        return FAULT(v, "wrong-attributes", "node %d (%s) %s attributes", place, def->name,
                     n->attr ? "should have no" : "lacks its");
    if (!lists_fit(n))
        return FAULT(v, "wrong-attributes", "node %d (%s) has a list longer than %d", place,
                     def->name, WF_MAX_RANK);
    if ((n->name != NULL) != ((def->flags & WF_FLAG_SOURCE) != 0))
        return FAULT(v, "wrong-name", "node %d (%s) %s a name", place, def->name,
                     n->name ? "should not have" : "lacks");
    for (int i = 0; i < n->nin; i++) {
        const wf_value *x = n->in[i];
        if (!x || !wf_graph_has(v->g, x))
            return FAULT(v, "dangling-operand",
                         "operand %d of node %d (%s) is no value of this graph", i, place,
                         def->name);
        if (x->node->id >= place)
            return FAULT(v, "wrong-order", "node %d (%s) uses node %d, which comes later", place,
                         def->name, x->node->id);
    }
    return WF_OK;
}

/* Derives the outputs anew and compares. */
static wf_status check_types(const verifier *v, const wf_node *n)
{
    const wf_op_def *def = wf_node_def(n);
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
            const wf_value derived = {.type = out->type, .shape = r.out[i].shape};
            wf_value_print(&derived, text, sizeof text, &len);
            return FAULT(v, "wrong-shape", "output %d of node %d (%s) has another shape than %s", i,
                         n->id, def->name, text);
        }
    }
    return WF_OK;
}

/* ---- States ---- */

static wf_status check_reads(const verifier *v, const wf_node *n)
{
    for (int i = 0; i < n->nin; i++) {
        const wf_value *root = wf_value_root(n->in[i]);
        if (!root->state)
            continue;
        int s = root->state->id;
        bool writes = wf_node_is(n, WF_FLAG_UPDATE) && i < n->nout;
        if (root->version < v->version[s] && !writes)
            return FAULT(
                v, "reader-after-writer",
                "node %d (%s) reads version %d of state '%s' after node %d made version %d", n->id,
                op_name(n), root->version, root->state->name, v->writer[s], v->version[s]);
    }
    return WF_OK;
}

static wf_status check_writes(verifier *v, const wf_node *n)
{
    for (int i = 0; i < n->nout; i++) {
        const wf_value *out = &n->out[i];
        const wf_value *in = wf_node_is(n, WF_FLAG_UPDATE) ? n->in[i] : NULL;
        if (n->op == WF_OP_state && (out->state != n || out->version != 0))
            return FAULT(v, "wrong-version", "node %d (%s) is not version 0 of itself", n->id,
                         op_name(n));
        if (n->op != WF_OP_state && !in && out->state)
            return FAULT(v, "wrong-version", "output %d of node %d (%s) claims to be a state", i,
                         n->id, op_name(n));
        if (!in)
            continue;
        if (!in->state || in->state->op != WF_OP_state || !wf_graph_has(v->g, &in->state->out[0]))
            return FAULT(v, "write-to-no-state", "node %d (%s) updates a value that is no state",
                         n->id, op_name(n));
        int s = in->state->id;
        if (in->version != v->version[s])
            return FAULT(
                v, "two-writers",
                "node %d (%s) updates version %d of state '%s', which node %d has replaced", n->id,
                op_name(n), in->version, in->state->name, v->writer[s]);
        if (out->state != in->state || out->version != in->version + 1)
            return FAULT(v, "wrong-version",
                         "output %d of node %d (%s) is not the next version of '%s'", i, n->id,
                         op_name(n), in->state->name);
        v->version[s]++;
        v->writer[s] = n->id;
    }
    return WF_OK;
}

/* ---- The whole ---- */

static wf_status check_names(const verifier *v)
{
    const wf_graph *g = v->g;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; g->nodes[i]->name && k < i; k++)
            if (g->nodes[k]->op == g->nodes[i]->op &&
                strcmp(g->nodes[k]->name, g->nodes[i]->name) == 0)
                return FAULT(v, "duplicate-name", "nodes %d and %d (%s) are both called '%s'", k, i,
                             op_name(g->nodes[i]), g->nodes[i]->name);
    for (int i = 0; i < g->output_count; i++) {
        const wf_named *o = &g->outputs[i];
        if (!o->value || !wf_graph_has(g, o->value))
            return FAULT(v, "dangling-output", "output '%s' is no value of this graph", o->name);
        if (wf_node_is(o->value->node, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE))
            return FAULT(v, "shared-output", "output '%s' has no storage of its own", o->name);
        for (int k = 0; k < i; k++)
            if (strcmp(g->outputs[k].name, o->name) == 0)
                return FAULT(v, "duplicate-name", "two outputs are called '%s'", o->name);
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
        WF_TRY(check_reads(v, n));
        WF_TRY(check_writes(v, n));
    }
    return WF_OK;
}

wf_status wf_graph_verify(wf_graph *g)
{
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    size_t n = (size_t)g->node_count;
    verifier v = {.g = g, .version = wf_mem_array(g->ctx, 2 * n, sizeof *v.version)};
    if (!v.version)
        return WF_ERR_MEMORY;
    v.writer = v.version + n;
    wf_status status = check_nodes(&v);
    if (status == WF_OK)
        status = check_names(&v);
    wf_mem_free(g->ctx, v.version);
    return status;
}
