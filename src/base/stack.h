/* SPDX-License-Identifier: MIT */
/* stack.h - threads whose stack does not depend on the limit of the shell (ulimit -s). */
#ifndef WF_BASE_STACK_H
#define WF_BASE_STACK_H

#include <pthread.h>
#include <stdbool.h>

#define WF_STACK_BYTES ((size_t)2 << 20) /* enough for any function of the library */

/* As pthread_create, with a stack of WF_STACK_BYTES or more. */
int wf_thread_start(pthread_t *id, void *(*fn)(void *), void *arg);
/* Whether the stack that a program starts with may be smaller than that. */
bool wf_stack_is_small(void);

#endif
