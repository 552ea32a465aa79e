/* SPDX-License-Identifier: MIT */
/*
 * step.c - runs a plan. Its launches are captured once as a CUDA graph, and a run is one call.
 * Values that change between runs (learning rate, step, keys, tokens) lie in device memory, so the
 * graph is captured again only when the region moves. With step times on, steps are launched one by
 * one with an event between them.
 */
#include <nvtx3/nvToolsExt.h>

#include "base/mem.h"
#include "device/cuda/device.h"
#include "device/executor.h"

/* The device's part of an executable. */
typedef struct {
    cudaGraphExec_t graph;  /* NULL: not captured */
    unsigned generation;    /* of the addresses in the graph */
    cudaEvent_t *marks;     /* [steps + 1], created when times are first requested */
    wf_cuda_faults *faults; /* of this plan; registered with the queue */
} cuda_plan;

static cudaStream_t stream_of(const wf_plan_exec *e)
{
    return ((wf_cuda_queue *)e->head.session->queue)->stream;
}

/* The range names the node in profilers. */
static wf_status launch(const wf_plan_exec *e, int i)
{
    const wf_bound_step *step = &e->steps[i];
    char name[96]; /* the node as in the graph's text */
    size_t len = 0;
    wf_text_append(name, sizeof name, &len, "%%%d %s", step->launch.node->id,
                   wf_node_def(step->launch.node)->name);
    nvtxRangePushA(name);
    wf_status status = step->kernel->launch(&step->launch);
    nvtxRangePop();
    return status;
}

static void drop_graph(cuda_plan *own)
{
    if (own->graph)
        cudaGraphExecDestroy(own->graph);
    own->graph = NULL;
}

/* Lets kernels prepare, which may allocate and time matmul algorithms. */
wf_status wf_cuda_prepare_plan(wf_plan_exec *e)
{
    e->own = wf_arena_alloc(&e->arena, sizeof(cuda_plan));
    if (!e->own)
        return WF_ERR_MEMORY;
    *(cuda_plan *)e->own = (cuda_plan){0};
    const wf_cuda_device *d = (const wf_cuda_device *)e->head.session->device;
    WF_TRY(wf_cuda_enter(&d->head));
    WF_TRY(wf_cuda_faults_new(e, &((cuda_plan *)e->own)->faults));
    wf_cuda_products_begin(d);
    for (int i = 0; i < e->plan->step_count; i++)
        if (e->steps[i].kernel->prepare)
            WF_TRY(e->steps[i].kernel->prepare(&e->steps[i].launch));
    /* Algorithms differ in summation order: two runs are bitwise equal only with equal choices. */
    e->head.choices = wf_cuda_products_choices(d);
    return WF_OK;
}

/* Waits: the GPU may still read the graph and the words. */
void wf_cuda_free_plan(wf_plan_exec *e)
{
    cuda_plan *own = e->own;
    if (!own)
        return;
    cudaStreamSynchronize(stream_of(e));
    drop_graph(own);
    wf_cuda_faults_free((wf_cuda_queue *)e->head.session->queue, own->faults);
    for (int i = 0; own->marks && i <= e->plan->step_count; i++)
        if (own->marks[i])
            cudaEventDestroy(own->marks[i]);
}

/* ---- As one graph ---- */

static wf_status launch_all(const wf_plan_exec *e)
{
    for (int i = 0; i < e->plan->step_count; i++)
        WF_TRY(launch(e, i));
    return WF_OK;
}

/* Records all launches as a graph. Nothing runs on the GPU meanwhile. */
static wf_status capture(wf_plan_exec *e, cuda_plan *own)
{
    wf_ctx *ctx = e->head.session->ctx;
    cudaGraph_t graph = NULL;
    drop_graph(own);
    cudaGetLastError(); /* clear errors of earlier frees, or a launch would report them */
    /* Relaxed: this and other threads may allocate during the capture. */
    WF_TRY(wf_cuda_try(ctx, cudaStreamBeginCapture(stream_of(e), cudaStreamCaptureModeRelaxed),
                       "capturing a step"));
    wf_status status = launch_all(e);
    cudaError_t error = cudaStreamEndCapture(stream_of(e), &graph);
    if (status == WF_OK)
        status = wf_cuda_try(ctx, error, "capturing a step");
    if (status == WF_OK)
        status = wf_cuda_try(ctx, cudaGraphInstantiate(&own->graph, graph, 0),
                             "making a graph of a step");
    if (graph)
        cudaGraphDestroy(graph);
    own->generation = e->generation; /* also after a failure: graph is NULL then */
    return status;
}

/* Statistics that need no time: launches, and bytes moved by copies. */
static void count(wf_plan_exec *e, int i)
{
    e->stats[e->steps[i].stats].launches++;
    e->head.stats.bytes_copied += e->steps[i].copy_bytes;
}

/* ---- Step by step ---- */

static wf_status make_marks(wf_plan_exec *e, cuda_plan *own)
{
    const int n = e->plan->step_count + 1;
    own->marks = wf_arena_alloc(&e->arena, (size_t)n * sizeof *own->marks);
    if (!own->marks)
        return WF_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        own->marks[i] = NULL;
    for (int i = 0; i < n; i++)
        WF_TRY(
            wf_cuda_try(e->head.session->ctx, cudaEventCreate(&own->marks[i]), "making an event"));
    return WF_OK;
}

static wf_status read_times(wf_plan_exec *e, const cuda_plan *own)
{
    wf_ctx *ctx = e->head.session->ctx;
    const int n = e->plan->step_count;
    WF_TRY(wf_cuda_try(ctx, cudaEventSynchronize(own->marks[n]), "running a step"));
    for (int i = 0; i < n; i++) {
        float since, ms;
        WF_TRY(wf_cuda_try(ctx, cudaEventElapsedTime(&since, own->marks[0], own->marks[i]),
                           "reading times"));
        WF_TRY(wf_cuda_try(ctx, cudaEventElapsedTime(&ms, own->marks[i], own->marks[i + 1]),
                           "reading times"));
        e->spans[i] = (wf_span){(uint64_t)(since * 1e6), (uint64_t)(ms * 1e6)}; /* ms to ns */
        e->stats[e->steps[i].stats].nanoseconds += e->spans[i].ns;
    }
    return WF_OK;
}

static wf_status run_timed(wf_plan_exec *e, cuda_plan *own)
{
    wf_ctx *ctx = e->head.session->ctx;
    if (!own->marks)
        WF_TRY(make_marks(e, own));
    cudaGetLastError();
    for (int i = 0; i < e->plan->step_count; i++) {
        WF_TRY(wf_cuda_try(ctx, cudaEventRecord(own->marks[i], stream_of(e)),
                           "recording a step time"));
        WF_TRY(launch(e, i));
        count(e, i);
    }
    WF_TRY(wf_cuda_try(ctx, cudaEventRecord(own->marks[e->plan->step_count], stream_of(e)),
                       "recording a step time"));
    WF_TRY(read_times(e, own));
    return wf_cuda_faults_look((wf_cuda_queue *)e->head.session->queue);
}

/* Launches and returns. A failure of the GPU shows up in the next synchronous call. */
wf_status wf_cuda_run_plan(wf_plan_exec *e)
{
    cuda_plan *own = e->own;
    WF_TRY(wf_cuda_enter(e->head.session->device));
    if (e->head.session->device->timed)
        return run_timed(e, own);
    if (e->plan->step_count == 0)
        return WF_OK;
    if (!own->graph || own->generation != e->generation)
        WF_TRY(capture(e, own));
    nvtxRangePushA("run");
    cudaError_t error = cudaGraphLaunch(own->graph, stream_of(e));
    nvtxRangePop();
    for (int i = 0; i < e->plan->step_count; i++)
        count(e, i);
    return wf_cuda_try(e->head.session->ctx, error, "running a step");
}
