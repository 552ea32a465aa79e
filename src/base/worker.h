/* SPDX-License-Identifier: MIT */
/*
 * worker.h - a thread beside the caller's that does one thing again and again, when told to.
 *
 * For work that would keep the caller waiting, such as reading ahead. Where the system gives no thread, the work
 * is done when it is waited for.
 */
#ifndef WF_BASE_WORKER_H
#define WF_BASE_WORKER_H

#include "base/ctx.h"

typedef struct wf_worker wf_worker;
/* May not use a context that others use meanwhile. */
typedef void wf_work_fn(void *arg);

wf_status wf_worker_new(wf_ctx *ctx, wf_work_fn *fn, void *arg, wf_worker **out);
/* Does fn(arg) once. What was started before must have been waited for. */
void wf_worker_start(wf_worker *w);
/* Returns when it is done, at once when nothing was started. What fn wrote can be read then. */
void wf_worker_wait(wf_worker *w);
/* Waits, and ends the thread. NULL is fine. */
void wf_worker_free(wf_worker *w);

#endif
