/* SPDX-License-Identifier: MIT */
/* profile.c - see profile.h. Times are the executor's own; what there was to do is read off a plan made
 * anew, which is the one that the executable has. */
#include "bench/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/plan.h"

static wf_bench_op *line_of(wf_bench_profile *p, const char *op, const char *kernel)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->op[i].op, op) == 0 && strcmp(p->op[i].kernel, kernel) == 0)
            return &p->op[i];
    p->op[p->count] = (wf_bench_op){.op = op, .kernel = kernel};
    return &p->op[p->count++];
}

wf_status wf_bench_profile_new(const wf_exec *exec, wf_graph *graph,
                               const wf_compile_options *options, wf_bench_profile *out)
{
    wf_session *session = exec->session;
    wf_plan *plan;
    *out = (wf_bench_profile){.ctx = session->ctx, .exec = exec};
    if (!session->device->kernels)
        return WF_OK;
    WF_TRY(wf_plan_new(session->device, graph, options, session, NULL, &plan));
    out->op = wf_mem_array(out->ctx, (size_t)plan->step_count, sizeof *out->op);
    for (int i = 0; out->op && i < plan->step_count; i++) {
        const wf_step *step = &plan->steps[i];
        wf_bench_op *line = line_of(out, wf_node_def(step->node)->name, step->kernel->name);
        wf_cost cost;
        wf_node_cost(step->node, &cost);
        wf_cost_add(&line->cost, &cost);
        line->launches++;
    }
    wf_plan_free(plan);
    return out->op ? WF_OK : WF_ERR_MEMORY;
}

void wf_bench_profile_free(wf_bench_profile *p)
{
    if (p->op)
        wf_mem_free(p->ctx, p->op);
    p->op = NULL;
    p->count = 0;
}

static uint64_t nanoseconds_of(const wf_bench_profile *p, const wf_bench_op *line)
{
    wf_op_stats s;
    for (int i = 0; wf_exec_op_stats(p->exec, i, &s); i++)
        if (strcmp(s.op, line->op) == 0 && strcmp(s.kernel, line->kernel) == 0)
            return s.nanoseconds;
    return 0;
}

static uint64_t runs_of(const wf_bench_profile *p)
{
    wf_run_stats stats;
    wf_exec_stats(p->exec, &stats);
    return stats.runs;
}

void wf_bench_profile_start(wf_bench_profile *p)
{
    p->runs = runs_of(p);
    for (int i = 0; i < p->count; i++)
        p->op[i].before = nanoseconds_of(p, &p->op[i]);
}

static int slowest_first(const void *a, const void *b)
{
    const wf_bench_op *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void wf_bench_profile_end(wf_bench_profile *p)
{
    uint64_t runs = runs_of(p) - p->runs;
    for (int i = 0; i < p->count; i++) {
        uint64_t spent = nanoseconds_of(p, &p->op[i]) - p->op[i].before;
        p->op[i].seconds = runs > 0 ? (double)spent / 1e9 / (double)runs : 0;
    }
    if (p->count > 0)
        qsort(p->op, (size_t)p->count, sizeof *p->op, slowest_first);
}
