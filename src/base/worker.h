/* SPDX-License-Identifier: MIT */
/*
 * worker.h - a background thread that runs one function on request.
 *
 * For work that would block the caller, such as reading ahead. If the system cannot start a thread,
 * wf_worker_wait runs the work instead.
 */
#ifndef WF_BASE_WORKER_H
#define WF_BASE_WORKER_H

#include "base/ctx.h"

typedef struct wf_worker wf_worker;
/* Must not use a context that another thread uses at the same time. */
typedef void wf_work_fn(void *arg);

wf_status wf_worker_new(wf_ctx *ctx, wf_work_fn *fn, void *arg, wf_worker **out);
/* Runs fn(arg) once in the background. The previous run must have been waited for. */
void wf_worker_start(wf_worker *w);
/* Waits until the run is done; returns at once when nothing was started. fn's writes are then
 * visible to the caller. */
void wf_worker_wait(wf_worker *w);
/* Waits, ends the thread and frees. w may be NULL. */
void wf_worker_free(wf_worker *w);

#endif
