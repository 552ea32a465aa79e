/* SPDX-License-Identifier: MIT */
/*
 * expand.c - replaces the ops that a device has no kernel for by their expansions.
 *
 * A device needs kernels for core ops only. Its target answers which other nodes it runs as they are
 * (wf_target.supports): kernel devices from their table of kernels, program devices from their table
 * of lowered ops. All other nodes are expanded until only supported and core ops remain. A core op
 * without a kernel fails later, when the planner chooses kernels. So does a node whose expansion
 * cannot read its packed operands: it is kept, so that the message names it.
 */
#include "device/expand.h"

#include "base/mem.h"

/* ---- Packed operands ---- */

/* Adds a source with the type, shape and marks of operand i, which is a state if the operand is. */
static wf_value *stand_in(wf_graph *g, const wf_value *v, int i)
{
    char name[16];
    size_t len = 0;
    wf_text_append(name, sizeof name, &len, "%d", i);
    wf_value *source = v->state ? wf_state(g, name, v->type, v->shape.n, v->shape.d)
                                : wf_input(g, name, v->type, v->shape.n, v->shape.d);
    if (source)
        source->marks = v->marks;
    return source;
}

static bool reads_packed(const wf_device *device, const wf_node *n);

/* Expands n in graph g, with sources as operands, and checks the nodes that read packed ones. */
static bool expansion_reads_packed(const wf_device *device, const wf_node *n, wf_graph *g,
                                   wf_value **in)
{
    wf_value *out[WF_MAX_OUT] = {NULL};
    for (int i = 0; i < n->nin; i++)
        in[i] = stand_in(g, n->in[i], i);
    if (g->status != WF_OK || wf_node_def(n)->expand(g, n, in, out) != WF_OK || g->status != WF_OK)
        return true; /* expanding the node itself reports the error */
    for (int i = 0; i < g->node_count; i++)
        if (wf_kernel_packed(g->nodes[i]) && !reads_packed(device, g->nodes[i]))
            return false;
    return true;
}

/* Returns whether the device can run n, which has packed operands, by a kernel or by expanding
 * it. */
static bool reads_packed(const wf_device *device, const wf_node *n)
{
    wf_graph *g;
    if (device->target.supports(&device->target, n))
        return true;
    if (wf_op_is_core(n->op))
        return false;
    if (wf_graph_new(device->ctx, &g) != WF_OK)
        return true;
    wf_value **in = wf_mem_array(device->ctx, (size_t)n->nin + 1, sizeof *in);
    bool can = !in || expansion_reads_packed(device, n, g, in);
    wf_mem_free(device->ctx, in);
    wf_graph_free(g);
    return can;
}

/* ---- Expanding ---- */

static bool is_kept(const wf_node *n, void *user)
{
    const wf_device *device = user;
    if (wf_op_is_core(n->op) || wf_node_is(n, WF_FLAG_SOURCE))
        return true;
    if (device->expanded[n->op])
        return false;
    if (device->target.supports(&device->target, n))
        return true;
    return device->kernels && wf_kernel_packed(n) && !reads_packed(device, n);
}

bool wf_device_runs_all(const wf_device *device, const wf_graph *g)
{
    /* is_kept takes a void pointer for wf_pass_expand and only reads the device. */
    for (int i = 0; i < g->node_count; i++)
        if (!is_kept(g->nodes[i], (void *)device))
            return false;
    return true;
}

wf_status wf_device_expand(const wf_device *device, wf_graph *g, wf_expansion *counts,
                           wf_graph **out)
{
    return wf_pass_expand_counted(g, is_kept, (void *)device, counts, out);
}

wf_status wf_device_force_expansion(wf_device *device, wf_op op)
{
    if (wf_op_is_core(op))
        return wf_fail(device->ctx, WF_ERR_USAGE, "%s is a core op and has no expansion",
                       wf_op_get(op)->name);
    device->expanded[op] = true;
    return WF_OK;
}

/* Replaces *g by its expansion and frees the old graph. `counts` may be NULL. */
static wf_status expand_in_place(wf_device *device, wf_graph **g, wf_expansion *counts)
{
    wf_graph *expanded;
    WF_TRY(wf_device_expand(device, *g, counts, &expanded));
    wf_graph_free(*g);
    *g = expanded;
    return WF_OK;
}

/* Leaves only core and supported ops in *g. The order is fold, fuse, expand, fold and fuse again,
 * recompute, schedule. Fusing first keeps ops whole that the device runs as one kernel; recompute
 * and schedule count the bytes of the nodes that really run. */
wf_status wf_device_passes(wf_device *device, const wf_compile_options *options, wf_report *report,
                           wf_expansion *counts, wf_graph **g)
{
    /* Fold and fuse run before the expansion; recompute and schedule run after it. */
    wf_pass_env forms = {&device->target, options, report, WF_PASS_RECOMPUTE | WF_PASS_SCHEDULE};
    wf_pass_env rest = {&device->target, options, report, WF_PASS_FOLD | WF_PASS_FUSE};
    WF_TRY(wf_passes_run(*g, &forms));
    if (!wf_device_runs_all(device, *g)) {
        wf_report_add(report, "expand", "nodes before", (*g)->node_count);
        WF_TRY(expand_in_place(device, g, counts));
        /* Expansions duplicate work of each other and of the graph around them: fold it. */
        forms.report = NULL; /* the counts of a second fold would add up with those of the first */
        WF_TRY(wf_passes_run(*g, &forms));
        wf_report_add(report, "expand", "nodes after", (*g)->node_count);
    }
    WF_TRY(wf_passes_run(*g, &rest));
    /* The passes may have built nodes that the device does not run: expand those, too,
     * uncounted. */
    return wf_device_runs_all(device, *g) ? WF_OK : expand_in_place(device, g, NULL);
}
