/* SPDX-License-Identifier: MIT */
/*
 * fiber.h - fibers: stacks, and switching between them. Uses a few instructions on x86-64 and
 * swapcontext elsewhere. Informs AddressSanitizer of each switch.
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
    struct wf_fiber *next; /* for free lists */
    void *sp;              /* stack pointer of a suspended fiber */
    void *stack;           /* NULL: the thread's own */
    const void *own;       /* bottom of the thread's own stack, as ASan reports it */
    size_t bytes;
    void *fake; /* ASan's fake stack */
#if !defined(__x86_64__)
    ucontext_t context;
#endif
} wf_fiber;

/* Allocates a stack; ends the program when memory runs out. */
wf_fiber *wf_fiber_new(void);
/* The next switch to the fiber calls `run`, which must never return. */
void wf_fiber_start(wf_fiber *fiber, void (*run)(void));
/* Switches stacks. for_good: `from` will not be resumed. */
void wf_fiber_change(wf_fiber *from, wf_fiber *to, int for_good);

#endif
