/* SPDX-License-Identifier: MIT */
/*
 * host.c - runs a graph or a single op on host arrays, in a session that lives for one call.
 *
 * Meant for tests, tools and one-off calls: every call compiles, allocates, copies in, runs, copies
 * out and frees everything.
 */
#include <stdio.h>
#include <string.h>

#include "device/device.h"

static bool has_state(const wf_graph *g, const char *name)
{
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state && strcmp(g->nodes[i]->name, name) == 0)
            return true;
    return false;
}

static bool has_output(const wf_graph *g, const char *name)
{
    for (int i = 0; i < g->output_count; i++)
        if (strcmp(g->outputs[i].name, name) == 0)
            return true;
    return false;
}

/* Writes the inputs, runs once and reads the outputs. If a name is both a port and a state, the
 * port wins. */
static wf_status call(wf_session *s, wf_exec *e, const wf_graph *g, const wf_array *in, int nin,
                      const wf_array *out, int nout)
{
    for (int i = 0; i < nin; i++) {
        bool input = false;
        for (int k = 0; k < e->input_count; k++)
            input |= strcmp(e->inputs[k].name, in[i].name) == 0;
        if (!input && has_state(g, in[i].name))
            WF_TRY(wf_session_write(s, in[i].name, in[i].data, in[i].bytes));
        else
            WF_TRY(wf_exec_write(e, in[i].name, in[i].data, in[i].bytes));
    }
    WF_TRY(wf_exec_run(e));
    for (int i = 0; i < nout; i++) {
        if (!has_output(g, out[i].name) && has_state(g, out[i].name))
            WF_TRY(wf_session_read(s, out[i].name, out[i].data, out[i].bytes));
        else
            WF_TRY(wf_exec_read(e, out[i].name, out[i].data, out[i].bytes));
    }
    return WF_OK;
}

/* States that are not in `in` start as zeros. */
wf_status wf_call(wf_device *device, wf_graph *graph, const wf_array *in, int nin,
                  const wf_array *out, int nout)
{
    wf_session *session = NULL;
    wf_exec *exec = NULL;
    wf_status status = wf_session_new(device, &session);
    if (status == WF_OK)
        status = wf_compile(session, graph, &exec);
    if (status == WF_OK)
        status = call(session, exec, graph, in, nin, out, nout);
    /* Both accept NULL; the executable must go first. */
    wf_exec_free(exec);
    wf_session_free(session);
    return status;
}

/* ---- One op ---- */

#define MAX_OPERANDS 64 /* bounds op_call, which lives on the stack */

/* Names and arrays for one call; `in` and `out` point to the names. */
typedef struct {
    char name[MAX_OPERANDS][16], result[WF_MAX_OUT][16];
    /* `out` holds only the results that the caller wants. */
    wf_array in[MAX_OPERANDS], out[WF_MAX_OUT];
    wf_value *value[MAX_OPERANDS];
    int nout; /* entries of `out` */
} op_call;

/* Adds operands as inputs. All operands of an update op become states: only the op's rule knows how
 * many it updates, and an op can read a state like an input. */
static wf_status add_operands(wf_graph *g, const wf_op_def *def, const wf_tensor *in, int nin,
                              op_call *c)
{
    for (int i = 0; i < nin; i++) {
        snprintf(c->name[i], sizeof c->name[i], "in%d", i);
        bool state = def->flags & WF_FLAG_UPDATE;
        c->value[i] =
            (state ? wf_state : wf_input)(g, c->name[i], in[i].type, in[i].rank, in[i].dim);
        WF_TRY(wf_graph_status(g));
        c->in[i] = (wf_array){c->name[i], in[i].data,
                              wf_type_bytes(in[i].type, wf_value_count(c->value[i]))};
    }
    return WF_OK;
}

/* Fills in types and shapes of `out`. Results with a data pointer become outputs of the graph. */
static wf_status add_results(wf_graph *g, wf_value *y, wf_tensor *out, int nout, op_call *c)
{
    for (int i = 0; i < nout; i++) {
        const wf_value *v = wf_value_output(y, i);
        out[i].type = v->type;
        out[i].rank = (int)v->shape.n;
        memcpy(out[i].dim, v->shape.d, sizeof out[i].dim);
        if (!out[i].data) /* the caller asks for type and shape only */
            continue;
        snprintf(c->result[i], sizeof c->result[i], "out%d", i);
        WF_TRY(wf_output(g, c->result[i], wf_value_output(y, i)));
        c->out[c->nout++] =
            (wf_array){c->result[i], out[i].data, wf_type_bytes(v->type, wf_value_count(v))};
    }
    return WF_OK;
}

/* With no data pointer among the results nothing runs: the call only infers types and shapes. */
static wf_status call_op(wf_device *device, wf_graph *g, const char *op, const char *attrs,
                         const wf_tensor *in, int nin, wf_tensor *out, int nout)
{
    op_call c = {0};
    int i = wf_op_find(op);
    if (i >= 0) /* an unknown op: wf_op_add fails with the nearest name */
        WF_TRY(add_operands(g, wf_op_get((wf_op)i), in, nin, &c));
    wf_value *y = wf_op_add(g, op, attrs, c.value, nin);
    WF_TRY(wf_graph_status(g));
    if (nout > y->node->nout)
        return wf_fail(g->ctx, WF_ERR_USAGE, "%s has %d output%s, not %d", op, y->node->nout,
                       WF_PLURAL(y->node->nout), nout);
    WF_TRY(add_results(g, y, out, nout, &c));
    if (c.nout == 0)
        return WF_OK;
    for (i = 0; i < nin; i++)
        if (!c.in[i].data && c.in[i].bytes > 0)
            return wf_fail(g->ctx, WF_ERR_USAGE, "%s: operand %d has no data", op, i);
    return wf_call(device, g, c.in, nin, c.out, c.nout);
}

wf_status wf_call_op(wf_device *device, const char *op, const char *attrs, const wf_tensor *in,
                     int nin, wf_tensor *out, int nout)
{
    wf_graph *g;
    if (!op || nin < 0 || nin > MAX_OPERANDS || nout < 1 || nout > WF_MAX_OUT)
        return wf_fail(device->ctx, WF_ERR_USAGE,
                       "wf_call_op takes an op, up to %d operands and 1 to %d results",
                       MAX_OPERANDS, WF_MAX_OUT);
    WF_TRY(wf_graph_new(device->ctx, &g));
    wf_status status = call_op(device, g, op, attrs, in, nin, out, nout);
    wf_graph_free(g);
    return status;
}
