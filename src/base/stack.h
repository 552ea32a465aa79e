/* SPDX-License-Identifier: MIT */
/* stack.h - starts threads with a stack size that does not depend on `ulimit -s`. */
#ifndef WF_BASE_STACK_H
#define WF_BASE_STACK_H

#include <pthread.h>
#include <stdbool.h>

#define WF_STACK_BYTES ((size_t)2 << 20) /* enough for any function of the library */

/* As pthread_create, with a stack of at least WF_STACK_BYTES. Returns an errno value, or 0. */
int wf_thread_start(pthread_t *id, void *(*fn)(void *), void *arg);
/* Returns whether the main thread's stack may be smaller than WF_STACK_BYTES. */
bool wf_stack_is_small(void);

#endif
