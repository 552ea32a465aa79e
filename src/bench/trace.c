/* SPDX-License-Identifier: MIT */
/* trace.c - see trace.h. Writes Chrome's trace format: complete events, in microseconds. */
#include "bench/trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "device/executor.h"
#include "graph/cost.h"

/* Part of a training step; each has its own track in the timeline. */
enum { FORWARD = 1, BACKWARD, UPDATE };

static int part_of(const wf_node *n)
{
    return wf_node_is(n, WF_FLAG_UPDATE) ? UPDATE : n->backward ? BACKWARD : FORWARD;
}

static void put_number(wf_json *j, const char *key, double x)
{
    wf_json_key(j, key);
    wf_json_double(j, x);
}

static void put_text(wf_json *j, const char *key, const char *text)
{
    wf_json_key(j, key);
    wf_json_string(j, text);
}

static void put_step(wf_json *j, const wf_bound_step *step, const wf_span *span)
{
    const wf_node *n = step->launch.node;
    const double seconds = (double)span->ns / 1e9;
    char call[512];
    size_t len = 0;
    wf_cost cost;
    wf_node_cost(n, &cost);
    /* Merged updates may have hundreds of operands; the first eight suffice. */
    wf_call_print(wf_node_def(n), n->in, n->nin < 8 ? n->nin : 8, n->attr, call, sizeof call, &len);
    wf_json_object_begin(j);
    put_text(j, "name", wf_node_def(n)->name);
    put_text(j, "ph", "X");
    put_number(j, "ts", (double)span->begin / 1e3);
    put_number(j, "dur", (double)span->ns / 1e3);
    put_number(j, "pid", 1);
    put_number(j, "tid", part_of(n));
    wf_json_key(j, "args");
    wf_json_object_begin(j);
    put_text(j, "call", call);
    put_text(j, "kernel", step->kernel->name);
    put_number(j, "node", n->id);
    if (span->ns > 0) {
        put_number(j, "GB/s", (double)(cost.bytes_read + cost.bytes_written) / seconds / 1e9);
        put_number(j, "TFLOP/s", (double)cost.flops / seconds / 1e12);
    }
    wf_json_object_end(j);
    wf_json_object_end(j);
}

/* Names a track of the timeline (a metadata event). */
static void put_line(wf_json *j, int tid, const char *name)
{
    wf_json_object_begin(j);
    put_text(j, "name", "thread_name");
    put_text(j, "ph", "M");
    put_number(j, "pid", 1);
    put_number(j, "tid", tid);
    wf_json_key(j, "args");
    wf_json_object_begin(j);
    put_text(j, "name", name);
    wf_json_object_end(j);
    wf_json_object_end(j);
}

static void put_all(const wf_plan_exec *e, FILE *file)
{
    wf_json j;
    wf_json_begin(&j, file);
    wf_json_object_begin(&j);
    wf_json_key(&j, "traceEvents");
    wf_json_array_begin(&j);
    put_line(&j, FORWARD, "forward");
    put_line(&j, BACKWARD, "backward");
    put_line(&j, UPDATE, "updates");
    for (int i = 0; i < e->plan->step_count; i++)
        put_step(&j, &e->steps[i], &e->spans[i]);
    wf_json_array_end(&j);
    wf_json_object_end(&j);
    wf_json_end(&j);
}

wf_status wf_bench_trace_write(const wf_exec *exec, const char *path)
{
    wf_ctx *ctx = exec->session->ctx;
    if (!exec->session->device->kernels)
        return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                       "device %s compiles whole graphs and has no timeline; choose another device",
                       exec->session->device->target.name);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (!file)
        return wf_fail(ctx, WF_ERR_MEMORY, "out of memory for the trace");
    put_all((const wf_plan_exec *)exec, file);
    bool whole = !ferror(file);
    wf_status status = fclose(file) == 0 && whole
                           ? wf_file_write(ctx, path, text, bytes)
                           : wf_fail(ctx, WF_ERR_MEMORY, "out of memory for the trace");
    free(text);
    return status;
}
