/* SPDX-License-Identifier: MIT */
/* thread_priv.h - what the files that start threads share. */
#ifndef WF_BASE_THREAD_PRIV_H
#define WF_BASE_THREAD_PRIV_H

#include <pthread.h>
#include <signal.h>

/* Before a thread is started, which inherits it: signals are for the program's own threads, but for those that a
 * thread brings upon itself. The caller sets *before again afterwards. */
static inline void wf_signals_block(sigset_t *before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t block;
    sigfillset(&block);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&block, own[i]);
    pthread_sigmask(SIG_SETMASK, &block, before);
}

#endif
