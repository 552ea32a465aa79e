/* SPDX-License-Identifier: MIT */
/* thread_priv.h - shared by thread.c and worker.c. */
#ifndef WF_BASE_THREAD_PRIV_H
#define WF_BASE_THREAD_PRIV_H

#include <pthread.h>
#include <signal.h>

/* Blocks all signals but synchronous ones (faults). Call before starting a thread, which inherits
 * the mask: signals are then delivered to the program's own threads. The caller restores *before
 * afterwards. */
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
