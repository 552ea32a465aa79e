/* SPDX-License-Identifier: MIT */
/*
 * expand.c - replaces the ops that a device has no kernel for by their expansions.
 *
 * A device needs kernels for core ops only. Its target answers which other nodes it runs as they
 * are (wf_target.supports): kernel devices from their table of kernels, program devices from their
 * table of lowered ops. All other nodes are expanded until only supported and core ops remain. A
 * core op without a kernel fails later, when the planner chooses kernels.
 */
#include "device/expand.h"

/* Decides for wf_pass_expand. Keeps a core op even without a kernel: it has no expansion, and the
 * planner reports it. */
static bool is_kept(const wf_node *n, void *user)
{
    const wf_device *device = user;
    if (wf_op_is_core(n->op) || wf_node_is(n, WF_FLAG_SOURCE))
        return true;
    return !device->expanded[n->op] && device->target.supports(&device->target, n);
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
