/* SPDX-License-Identifier: MIT */
/* stack.c - see stack.h. */
#include "base/stack.h"

#include <sys/resource.h>

int wf_thread_start(pthread_t *id, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    size_t bytes = 0;
    if (pthread_attr_init(&attr) != 0)
        return pthread_create(id, NULL, fn, arg);
    /* glibc's default stack size is the limit at program start. */
    if (pthread_attr_getstacksize(&attr, &bytes) != 0 || bytes < WF_STACK_BYTES)
        (void)pthread_attr_setstacksize(&attr, WF_STACK_BYTES);
    int error = pthread_create(id, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return error;
}

bool wf_stack_is_small(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           limit.rlim_cur < WF_STACK_BYTES;
}
