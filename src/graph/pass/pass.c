/* SPDX-License-Identifier: MIT */
/*
 * pass.c - the table of compiler passes, the loop that runs them, and reports.
 *
 * Passes run in the order of the table. Each leaves a valid graph without unread nodes, so the next
 * one needs no special cases.
 */
#include "graph/pass/pass.h"

#include <string.h>

#include "graph/pass/rewrite.h"

/* clang-format off */
static const wf_pass passes[] = {
    {"fold", "simplifies nodes, forms larger ops and merges common subexpressions",
     WF_PASS_FOLD, wf_pass_fold},
    {"fuse", "fuses several nodes into one where the device has a kernel for it",
     WF_PASS_FUSE, wf_pass_fuse},
    {"recompute", "recomputes values for the gradient instead of keeping them",
     WF_PASS_RECOMPUTE, wf_pass_recompute},
    {"schedule", "reorders the nodes to lower peak memory",
     WF_PASS_SCHEDULE, wf_pass_schedule},
    {NULL, NULL, 0, NULL},
};
/* clang-format on */

const wf_pass *wf_pass_get(int index)
{
    int count = (int)(sizeof passes / sizeof passes[0]) - 1;
    return index >= 0 && index < count ? &passes[index] : NULL;
}

/* A report counts nodes after pruning, so "nodes after" is the number that the device would run. */
static wf_status run_pass(wf_graph *g, const wf_pass *pass, const wf_pass_env *env)
{
    int dropped;
    wf_report_add(env->report, pass->name, "nodes before", g->node_count);
    WF_TRY(pass->run(g, env));
    WF_TRY(wf_graph_prune(g, &dropped));
    wf_report_add(env->report, pass->name, "nodes after", g->node_count);
    return WF_VERIFY(g);
}

/* Prunes first: readers that nobody needs would keep patterns from matching. */
wf_status wf_passes_run(wf_graph *g, const wf_pass_env *env)
{
    int dropped;
    WF_TRY(wf_graph_prune(g, &dropped));
    for (const wf_pass *pass = passes; pass->name; pass++)
        if (!((env->options->without | env->skip) & pass->bit))
            WF_TRY(run_pass(g, pass, env));
    return WF_OK;
}

/* ---- Reports ---- */

/* Linear; a report has at most WF_REPORT_LINES lines. */
static wf_report_line *find_line(wf_report *report, const char *pass, const char *what)
{
    for (int i = 0; i < report->count; i++)
        if (strcmp(report->line[i].pass, pass) == 0 && strcmp(report->line[i].what, what) == 0)
            return &report->line[i];
    return NULL;
}

void wf_report_add(wf_report *report, const char *pass, const char *what, int64_t count)
{
    wf_report_line *line = report ? find_line(report, pass, what) : NULL;
    if (!report)
        return;
    if (!line) {
        wf_assert(report->count < WF_REPORT_LINES); /* a new counter needs a larger report */
        line = &report->line[report->count++];
        *line = (wf_report_line){pass, what, 0};
    }
    line->count += count;
}

int64_t wf_report_get(const wf_report *report, const char *pass, const char *what)
{
    /* find_line does not write; it returns a pointer for wf_report_add. */
    const wf_report_line *line = find_line((wf_report *)report, pass, what);
    return line ? line->count : 0;
}
