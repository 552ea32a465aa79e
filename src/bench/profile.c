/* SPDX-License-Identifier: MIT */
/* profile.c - see profile.h. Times come from the executor. Costs come from a new plan, which equals
 * that of the executable. */
#include "bench/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/plan.h"

static wf_bench_op *find(const wf_bench_profile *p, const char *op, const char *kernel)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->op[i].op, op) == 0 && strcmp(p->op[i].kernel, kernel) == 0)
            return &p->op[i];
    return NULL;
}

wf_status wf_bench_profile_new(wf_exec *const *exec, int execs, wf_bench_profile *out)
{
    int room = 0;
    wf_op_stats s;
    *out = (wf_bench_profile){.ctx = exec[0]->session->ctx, .exec = exec, .execs = execs};
    for (int i = 0; i < execs; i++)
        for (int k = 0; wf_exec_op_stats(exec[i], k, &s); k++) {
            if (find(out, s.op, s.kernel))
                continue;
            void *ops = wf_mem_room(out->ctx, out->op, out->count, &room, sizeof *out->op);
            if (!ops)
                return WF_ERR_MEMORY;
            out->op = ops;
            out->op[out->count++] = (wf_bench_op){.op = s.op, .kernel = s.kernel};
        }
    return WF_OK;
}

wf_status wf_bench_profile_cost(wf_bench_profile *p, wf_graph *graph,
                                const wf_compile_options *options)
{
    wf_session *session = p->exec[0]->session;
    wf_plan *plan;
    if (!session->device->kernels)
        return WF_OK;
    WF_TRY(wf_plan_new(session->device, graph, options, session, NULL, &plan));
    for (int i = 0; i < plan->step_count; i++) {
        const wf_step *step = &plan->steps[i];
        wf_bench_op *line = find(p, wf_node_def(step->node)->name, step->kernel->name);
        wf_cost cost;
        wf_node_cost(step->node, &cost);
        if (line)
            wf_cost_add(&line->cost, &cost);
    }
    wf_plan_free(plan);
    return WF_OK;
}

void wf_bench_profile_free(wf_bench_profile *p)
{
    if (p->op)
        wf_mem_free(p->ctx, p->op);
    p->op = NULL;
    p->count = 0;
}

/* Returns the sum over all executables. */
static wf_op_stats stats_of(const wf_bench_profile *p, const wf_bench_op *line)
{
    wf_op_stats s, sum = {.op = line->op, .kernel = line->kernel};
    for (int i = 0; i < p->execs; i++)
        for (int k = 0; wf_exec_op_stats(p->exec[i], k, &s); k++)
            if (strcmp(s.op, line->op) == 0 && strcmp(s.kernel, line->kernel) == 0) {
                sum.launches += s.launches;
                sum.nanoseconds += s.nanoseconds;
            }
    return sum;
}

void wf_bench_profile_start(wf_bench_profile *p)
{
    for (int i = 0; i < p->count; i++)
        p->op[i].before = stats_of(p, &p->op[i]);
}

static int slowest_first(const void *a, const void *b)
{
    const wf_bench_op *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void wf_bench_profile_end(wf_bench_profile *p, int runs)
{
    for (int i = 0; i < p->count; i++) {
        wf_bench_op *line = &p->op[i];
        wf_op_stats now = stats_of(p, line);
        line->launches = (double)(now.launches - line->before.launches) / runs;
        line->seconds = (double)(now.nanoseconds - line->before.nanoseconds) / 1e9 / runs;
    }
    if (p->count > 0)
        qsort(p->op, (size_t)p->count, sizeof *p->op, slowest_first);
}
