/* SPDX-License-Identifier: MIT */
/*
 * stream.c - the emulated CUDA runtime: streams, events and graphs.
 *
 * Enqueued work runs only when something waits for it, and streams advance in an order that depends
 * on the seed, so that a missing wait becomes visible. Copies from and to pageable memory run at
 * once, after the work of their stream. A capture collects work in call order, and a graph runs it
 * in that order.
 */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_QUEUED 4096

typedef enum { LAUNCH, COPY, SET, RECORD, WAIT, GRAPH, HOST } kind;

typedef struct task {
    struct task *next;
    kind kind;
    void *to;
    const void *from;
    size_t bytes;
    int value;
    cudaEvent_t event;
    uint64_t time; /* record count of the event at that time */
    struct work *graph;
    cudaHostFn_t host;
    wf_emulated_grid grid;
    _Alignas(128) char arguments[]; /* of the grid */
} task;

/* The tasks of a graph, shared by the graph, its executables and their launches. */
typedef struct work {
    task *first, **last;
    int count, references;
} work;

struct CUevent_st {
    uint64_t recorded, reached; /* record counts: requested, completed */
    uint64_t ns;                /* time of the last completion */
    bool timed;
    uint64_t captured;   /* id of the capture that recorded it last; 0: none */
    cudaStream_t stream; /* the stream of that, and the position in it */
    int position;
    int references; /* by tasks and by the program */
};

struct CUgraph_st {
    work *work;
    uint64_t number;
    cudaStream_t origin;
    enum cudaStreamCaptureMode mode;
    bool broken;
};

struct CUgraphExec_st {
    work *work;
};

struct CUstream_st {
    struct CUstream_st *next;
    bool blocking; /* synchronizes with the legacy stream */
    task *first, **last;
    int count;
    cudaGraph_t capture; /* NULL: not capturing */
    int captured;        /* tasks of this stream in the capture */
    int joined;          /* how many of them the origin stream has joined */
};

static struct CUstream_st legacy = {.last = &legacy.first};
static cudaStream_t streams = &legacy;
static uint64_t last_capture;
static int captures; /* active captures in a mode that forbids allocation */

static cudaStream_t stream_of(cudaStream_t stream)
{
    return stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread ? &legacy
                                                                                         : stream;
}

static void *must(void *data)
{
    if (!data) {
        fputs("emulator: out of memory\n", stderr);
        abort();
    }
    return data;
}

/* ---- Tasks ---- */

static void event_release(cudaEvent_t event)
{
    if (event && --event->references == 0)
        free(event);
}

static void work_release(work *w)
{
    if (!w || --w->references > 0)
        return;
    while (w->first) {
        task *t = w->first;
        w->first = t->next;
        event_release(t->event);
        work_release(t->graph);
        free(t);
    }
    free(w);
}

static void run_task(const task *t)
{
    struct timespec at;
    switch (t->kind) {
    case LAUNCH: wf_grid_run(&t->grid); break;
    case COPY: memmove(t->to, t->from, t->bytes); break;
    case SET: memset(t->to, t->value, t->bytes); break;
    case WAIT: break;
    case RECORD:
        clock_gettime(CLOCK_MONOTONIC, &at);
        t->event->ns = (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
        if (t->time > t->event->reached)
            t->event->reached = t->time;
        break;
    case GRAPH:
        for (const task *g = t->graph->first; g; g = g->next)
            run_task(g);
        break;
    case HOST: t->host(t->to); break;
    }
}

static bool runnable(const struct CUstream_st *s)
{
    const task *t = s->first;
    return t && (t->kind != WAIT || t->event->reached >= t->time);
}

static void advance(cudaStream_t s)
{
    task *t = s->first;
    s->first = t->next;
    if (!s->first)
        s->last = &s->first;
    s->count--;
    run_task(t);
    event_release(t->event);
    work_release(t->graph);
    free(t);
}

/* Advances any other stream that can. Returns false when none can. */
static bool advance_other(const struct CUstream_st *not_this)
{
    int count = 0;
    for (cudaStream_t s = streams; s; s = s->next)
        count += s != not_this && runnable(s);
    if (!count)
        return false;
    uint64_t pick = wf_grid_random() % (uint64_t)count;
    for (cudaStream_t s = streams; s; s = s->next)
        if (s != not_this && runnable(s) && pick-- == 0) {
            advance(s);
            break;
        }
    return true;
}

static _Noreturn void stuck(void)
{
    fputs("emulator: a stream waits for an event that nothing will reach\n", stderr);
    abort();
}

/* Runs until the stream is empty or, with an event, until that record has completed. */
static void wait_for(cudaStream_t s, const struct CUevent_st *event, uint64_t time)
{
    bool lazy = wf_grid_random() & 1; /* other streams do only what is needed */
    while (event ? event->reached < time : s->first != NULL) {
        if (!lazy || !s || !runnable(s))
            if (advance_other(lazy ? s : NULL))
                continue;
        if (!s || !runnable(s))
            stuck();
        advance(s);
    }
}

void wf_stream_drain(void)
{
    for (cudaStream_t s = streams; s; s = s->next)
        wait_for(s, NULL, 0);
}

/* The legacy stream waits for all blocking streams, and they for it; this is the latest moment. */
static void take_turns(cudaStream_t s)
{
    if (s == &legacy) {
        for (cudaStream_t o = streams; o; o = o->next)
            if (o->blocking)
                wait_for(o, NULL, 0);
    } else if (s->blocking) {
        wait_for(&legacy, NULL, 0);
    }
}

static task *task_new(kind k, size_t arguments)
{
    const size_t step = _Alignof(task);
    task *t = must(aligned_alloc(step, sizeof *t + (arguments + step - 1) / step * step));
    memset(t, 0, sizeof *t);
    t->kind = k;
    return t;
}

static bool eager(void)
{
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");
    return text && strcmp(text, "1") == 0;
}

static cudaError_t put(cudaStream_t s, task *t)
{
    if (s->capture) {
        work *w = s->capture->work;
        *w->last = t;
        w->last = &t->next;
        w->count++;
        s->captured++;
        return cudaSuccess;
    }
    take_turns(s);
    *s->last = t;
    s->last = &t->next;
    s->count++;
    if (s->count > MOST_QUEUED || eager())
        wait_for(s, NULL, 0);
    return cudaSuccess;
}

/* Starts a fallible function. */
#define ENTER()                                 \
    do {                                        \
        cudaError_t asked = wf_runtime_enter(); \
        if (asked != cudaSuccess)               \
            return wf_runtime_unlock(asked);    \
    } while (0)

/* ---- Launches ---- */

static cudaError_t launch(const wf_emulated_grid *g, cudaStream_t stream)
{
    uint64_t threads = (uint64_t)g->block.x * g->block.y * g->block.z;
    if (threads == 0 || threads > 1024 || g->block.z > 64 || g->grid.x == 0 || g->grid.y == 0 ||
        g->grid.z == 0 || g->grid.x > 2147483647u || g->grid.y > 65535 || g->grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (g->shared > wf_runtime_shared())
        return cudaErrorInvalidValue;
    task *t = task_new(LAUNCH, g->argument_bytes);
    t->grid = *g;
    memcpy(t->arguments, g->arguments, g->argument_bytes);
    t->grid.arguments = t->arguments;
    if (stream_of(stream)->capture)
        wf_runtime_counts.captured++;
    else
        wf_runtime_counts.launches++;
    return put(stream_of(stream), t);
}

void wf_emulated_launch(const wf_emulated_grid *grid, cudaStream_t stream)
{
    cudaError_t error = wf_runtime_enter();
    wf_runtime_unlock(error != cudaSuccess ? error : launch(grid, stream));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void *data)
{
    ENTER();
    task *t = task_new(HOST, 0);
    t->host = f;
    t->to = data;
    return wf_runtime_unlock(put(stream_of(stream), t));
}

/* ---- Copies ---- */

/* Invalidates the capture. */
static cudaError_t forbidden(cudaStream_t s, cudaError_t error)
{
    if (s->capture)
        s->capture->broken = true;
    return error;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind direction,
                        cudaStream_t s, bool wait)
{
    wf_place there = wf_runtime_place(to, bytes), here = wf_runtime_place(from, bytes);
    if (there == WF_BEYOND || here == WF_BEYOND)
        return cudaErrorInvalidValue;
    if ((direction == cudaMemcpyHostToDevice && (there != WF_ON_DEVICE || here == WF_ON_DEVICE)) ||
        (direction == cudaMemcpyDeviceToHost && (there == WF_ON_DEVICE || here != WF_ON_DEVICE)) ||
        (direction == cudaMemcpyDeviceToDevice &&
         (there != WF_ON_DEVICE || here != WF_ON_DEVICE)) ||
        (direction == cudaMemcpyHostToHost && (there == WF_ON_DEVICE || here == WF_ON_DEVICE)))
        return cudaErrorInvalidValue;
    bool pageable = there == WF_PAGEABLE || here == WF_PAGEABLE;
    if (s->capture && (pageable || wait))
        return forbidden(s, cudaErrorStreamCaptureUnsupported);
    if (wait && captures)
        return cudaErrorStreamCaptureImplicit;
    task *t = task_new(COPY, 0);
    t->to = to;
    t->from = from;
    t->bytes = bytes;
    put(s, t);
    wf_runtime_counts.to_device += there == WF_ON_DEVICE && here != WF_ON_DEVICE ? bytes : 0;
    wf_runtime_counts.from_device += here == WF_ON_DEVICE && there != WF_ON_DEVICE ? bytes : 0;
    if (wait || pageable) {
        wf_runtime_counts.waits++;
        wait_for(s, NULL, 0);
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind direction,
                            cudaStream_t stream)
{
    ENTER();
    return wf_runtime_unlock(bytes ? copy(to, from, bytes, direction, stream_of(stream), false)
                                   : cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind direction)
{
    ENTER();
    return wf_runtime_unlock(bytes ? copy(to, from, bytes, direction, &legacy, true) : cudaSuccess);
}

static cudaError_t set(void *to, int value, size_t bytes, cudaStream_t s)
{
    wf_place place = wf_runtime_place(to, bytes);
    if (place == WF_BEYOND || place == WF_PAGEABLE)
        return cudaErrorInvalidValue;
    task *t = task_new(SET, 0);
    t->to = to;
    t->value = value;
    t->bytes = bytes;
    return put(s, t);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    ENTER();
    return wf_runtime_unlock(bytes ? set(to, value, bytes, stream_of(stream)) : cudaSuccess);
}

/* Asynchronous as well. */
cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, NULL);
}

/* ---- Streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    *out = NULL;
    ENTER();
    cudaStream_t s = must(calloc(1, sizeof *s));
    s->last = &s->first;
    s->blocking = !(flags & cudaStreamNonBlocking);
    s->next = streams;
    streams = *out = s;
    wf_runtime_counts.alive++;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    wf_runtime_lock();
    if (!s || stream_of(s) == &legacy)
        return wf_runtime_unlock(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return wf_runtime_unlock(forbidden(s, cudaErrorStreamCaptureUnsupported));
    wait_for(s, NULL, 0);
    cudaStream_t *at = &streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
    wf_runtime_counts.alive--;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    cudaStream_t s = stream_of(stream);
    if (s->capture)
        return wf_runtime_unlock(forbidden(s, cudaErrorStreamCaptureUnsupported));
    take_turns(s);
    wf_runtime_counts.waits++;
    wait_for(s, NULL, 0);
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    wf_runtime_lock();
    cudaStream_t s = stream_of(stream);
    if (s->capture)
        return wf_runtime_unlock(forbidden(s, cudaErrorStreamCaptureUnsupported));
    advance_other(NULL);
    return wf_runtime_unlock(s->first ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER();
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->capture)
            return wf_runtime_unlock(forbidden(s, cudaErrorStreamCaptureUnsupported));
    wf_stream_drain();
    return wf_runtime_unlock(cudaSuccess);
}

/* ---- Events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    *out = NULL;
    ENTER();
    cudaEvent_t e = must(calloc(1, sizeof *e));
    e->references = 1;
    e->timed = !(flags & cudaEventDisableTiming);
    *out = e;
    wf_runtime_counts.alive++;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    wf_runtime_lock();
    if (!event)
        return wf_runtime_unlock(cudaErrorInvalidResourceHandle);
    event_release(event);
    wf_runtime_counts.alive--;
    return wf_runtime_unlock(cudaSuccess);
}

static task *event_task(kind k, cudaEvent_t event)
{
    task *t = task_new(k, 0);
    t->event = event;
    t->time = event->recorded;
    event->references++;
    return t;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    ENTER();
    cudaStream_t s = stream_of(stream);
    if (!event)
        return wf_runtime_unlock(cudaErrorInvalidResourceHandle);
    if (s->capture && !(flags & cudaEventRecordExternal)) {
        event->captured = s->capture->number;
        event->stream = s;
        event->position = s->captured;
        return wf_runtime_unlock(cudaSuccess);
    }
    event->captured = 0;
    event->recorded++;
    return wf_runtime_unlock(put(s, event_task(RECORD, event)));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, 0);
}

/* Returns the capture that recorded the event, if it is still active. */
static cudaGraph_t capture_of(cudaEvent_t event)
{
    for (cudaStream_t s = streams; s && event->captured; s = s->next)
        if (s->capture && s->capture->number == event->captured)
            return s->capture;
    return NULL;
}

/* During a capture: joins the event's capture, or marks the other stream's work as joined. */
static cudaError_t wait_captured(cudaStream_t s, cudaEvent_t event, cudaGraph_t capture)
{
    if (s->capture && s->capture != capture)
        return forbidden(s, cudaErrorStreamCaptureUnsupported);
    if (!s->capture) {
        if (s->first || s == &legacy)
            return cudaErrorStreamCaptureUnsupported;
        s->capture = capture;
        s->captured = s->joined = 0;
    }
    if (event->stream != s && event->position > event->stream->joined)
        event->stream->joined = event->position;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    ENTER();
    cudaStream_t s = stream_of(stream);
    (void)flags;
    if (!event)
        return wf_runtime_unlock(cudaErrorInvalidResourceHandle);
    cudaGraph_t capture = capture_of(event);
    if (capture)
        return wf_runtime_unlock(wait_captured(s, event, capture));
    if (s->capture) /* work from before the capture is not part of it */
        return wf_runtime_unlock(forbidden(s, cudaErrorStreamCaptureUnsupported));
    return wf_runtime_unlock(put(s, event_task(WAIT, event)));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    if (!event)
        return wf_runtime_unlock(cudaErrorInvalidResourceHandle);
    cudaGraph_t capture = capture_of(event);
    if (capture) {
        capture->broken = true;
        return wf_runtime_unlock(cudaErrorStreamCaptureUnsupported);
    }
    wf_runtime_counts.waits += event->reached < event->recorded;
    wait_for(NULL, event, event->recorded);
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    wf_runtime_lock();
    if (event->reached < event->recorded)
        advance_other(NULL);
    return wf_runtime_unlock(event->reached < event->recorded ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    wf_runtime_lock();
    *ms = 0;
    if (!start || !end || !start->timed || !end->timed || !start->recorded || !end->recorded)
        return wf_runtime_unlock(cudaErrorInvalidResourceHandle);
    if (start->reached < start->recorded || end->reached < end->recorded)
        return wf_runtime_unlock(cudaErrorNotReady);
    *ms = (float)((double)((int64_t)end->ns - (int64_t)start->ns) * 1e-6);
    return wf_runtime_unlock(cudaSuccess);
}

/* ---- Graphs ---- */

cudaError_t wf_stream_permits(void)
{
    if (!captures)
        return cudaSuccess;
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->capture && s->capture->mode != cudaStreamCaptureModeRelaxed)
            s->capture->broken = true;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    ENTER();
    cudaStream_t s = stream_of(stream);
    if (s == &legacy)
        return wf_runtime_unlock(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return wf_runtime_unlock(cudaErrorIllegalState);
    cudaGraph_t g = must(calloc(1, sizeof *g));
    g->work = must(calloc(1, sizeof *g->work));
    g->work->last = &g->work->first;
    g->work->references = 1;
    g->number = ++last_capture;
    g->origin = s;
    g->mode = mode;
    s->capture = g;
    s->captured = s->joined = 0;
    captures += mode != cudaStreamCaptureModeRelaxed;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    wf_runtime_lock();
    cudaStream_t s = stream_of(stream);
    *status = !s->capture          ? cudaStreamCaptureStatusNone
              : s->capture->broken ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    const cudaError_t asked = wf_runtime_enter(); /* an injected failure; the capture ends anyway */
    cudaStream_t s = stream_of(stream);
    cudaGraph_t g = s->capture;
    cudaError_t error = cudaSuccess;
    *out = NULL;
    if (!g)
        return wf_runtime_unlock(cudaErrorIllegalState);
    if (g->origin != s) {
        g->broken = true;
        return wf_runtime_unlock(cudaErrorStreamCaptureUnmatched);
    }
    for (cudaStream_t o = streams; o; o = o->next)
        if (o->capture == g) {
            if (o != s && o->joined < o->captured)
                error = cudaErrorStreamCaptureUnjoined;
            o->capture = NULL;
        }
    captures -= g->mode != cudaStreamCaptureModeRelaxed;
    if (g->broken)
        error = cudaErrorStreamCaptureInvalidated;
    if (asked != cudaSuccess)
        error = asked;
    if (error == cudaSuccess) {
        *out = g;
        wf_runtime_counts.captures++;
        wf_runtime_counts.alive++;
    } else {
        work_release(g->work);
        free(g);
    }
    return wf_runtime_unlock(error);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    if (nodes)
        return cudaErrorInvalidValue;
    *count = (size_t)graph->work->count;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    *out = NULL;
    ENTER();
    (void)flags;
    *out = must(calloc(1, sizeof **out));
    (*out)->work = graph->work;
    graph->work->references++;
    wf_runtime_counts.alive++;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec, (void)stream;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER();
    task *t = task_new(GRAPH, 0);
    t->graph = exec->work;
    t->graph->references++;
    wf_runtime_counts.graph_launches++;
    return wf_runtime_unlock(put(stream_of(stream), t));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    wf_runtime_lock();
    work_release(graph->work);
    free(graph);
    wf_runtime_counts.alive--;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    wf_runtime_lock();
    work_release(exec->work);
    free(exec);
    wf_runtime_counts.alive--;
    return wf_runtime_unlock(cudaSuccess);
}
