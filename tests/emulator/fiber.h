/* SPDX-License-Identifier: MIT */
/*
 * fiber.h - stacks to run on, and changing from one to another: a few instructions on x86-64, swapcontext elsewhere.
 * The address sanitizer is told.
 */
#ifndef WF_TESTS_FIBER_H
#define WF_TESTS_FIBER_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define WF_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WF_FIBER_ASAN 1
#endif
#endif
#ifndef WF_FIBER_ASAN
#define WF_FIBER_ASAN 0
#endif

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

typedef struct wf_fiber {
    struct wf_fiber *next; /* for lists of them */
    void *sp;              /* where it was left */
    void *stack;           /* NULL: the thread's own */
    const void *own;       /* that one, as the sanitizer knows it */
    size_t bytes;
    void *fake; /* of the sanitizer */
#if !defined(__x86_64__)
    ucontext_t context;
#endif
} wf_fiber;

/* A stack; ends the program when there is no memory. */
wf_fiber *wf_fiber_new(void);
/* The next change to it calls `run`, which must never return. */
void wf_fiber_start(wf_fiber *fiber, void (*run)(void));
/* Leaves `from`, for good or until somebody changes back to it. */
void wf_fiber_change(wf_fiber *from, wf_fiber *to, int for_good);

#endif
