/* SPDX-License-Identifier: MIT */
/*
 * worker.c - see worker.h.
 *
 * A run passes through three states: started, done, and waited for (started is false again). One
 * condition variable announces every change.
 */
#include "base/worker.h"

#include "base/mem.h"
#include "base/stack.h"
#include "base/thread_priv.h"

struct wf_worker {
    wf_ctx *ctx;
    wf_work_fn *fn;
    void *arg;
    /* Invalid when `alone`. */
    pthread_t id;
    pthread_mutex_t lock; /* protects started, done, ending */
    pthread_cond_t changed;
    bool started, done, ending;
    bool alone; /* no thread could be started: wf_worker_wait runs the work */
};

static void *live(void *arg)
{
    wf_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->ending && (!w->started || w->done))
            pthread_cond_wait(&w->changed, &w->lock);
        if (!w->started || w->done) /* finish a started run before ending */
            break;
        pthread_mutex_unlock(&w->lock);
        w->fn(w->arg);
        pthread_mutex_lock(&w->lock);
        w->done = true;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

wf_status wf_worker_new(wf_ctx *ctx, wf_work_fn *fn, void *arg, wf_worker **out)
{
    wf_worker *w = *out = wf_mem_new(ctx, sizeof *w);
    if (!w)
        return WF_ERR_MEMORY;
    w->ctx = ctx;
    w->fn = fn;
    w->arg = arg;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    sigset_t before;
    wf_signals_block(&before);
    w->alone = wf_thread_start(&w->id, live, w) != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return WF_OK;
}

void wf_worker_start(wf_worker *w)
{
    pthread_mutex_lock(&w->lock);
    wf_assert(!w->started);
    w->started = true;
    w->done = false;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void wf_worker_wait(wf_worker *w)
{
    pthread_mutex_lock(&w->lock);
    /* Under the lock, but nobody competes for it: there is no second thread. */
    if (w->alone && w->started) {
        w->fn(w->arg);
        w->done = true;
    }
    while (w->started && !w->done)
        pthread_cond_wait(&w->changed, &w->lock);
    w->started = false;
    pthread_mutex_unlock(&w->lock);
}

void wf_worker_free(wf_worker *w)
{
    if (!w)
        return;
    wf_worker_wait(w);
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (!w->alone)
        pthread_join(w->id, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    wf_mem_free(w->ctx, w);
}
