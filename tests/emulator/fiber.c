/* SPDX-License-Identifier: MIT */
/* fiber.c - see fiber.h. */
#define _DEFAULT_SOURCE
#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if WF_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES ((size_t)512 << 10)
#else
#define STACK_BYTES ((size_t)128 << 10)
#endif

static void (*entry)(void);
#if WF_FIBER_ASAN
static wf_fiber *leaving, *running; /* for work after the switch */
#endif

static void arrived(void)
{
#if WF_FIBER_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(running->fake, &bottom, &bytes);
    if (!leaving->stack) { /* the thread's own stack, which will be resumed */
        leaving->own = bottom;
        leaving->bytes = bytes;
    }
#endif
}

static void begin(void)
{
    arrived();
    entry();
    abort();
}

#if defined(__x86_64__)

/* Pushes the callee-saved registers and stores the stack pointer in *save; then loads `load`. */
void wf_fiber_jump(void **save, void *load);
__asm__(".text\n"
        ".type wf_fiber_jump, @function\n"
        "wf_fiber_jump:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size wf_fiber_jump, .-wf_fiber_jump\n");

#endif

wf_fiber *wf_fiber_new(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    wf_fiber *fiber = calloc(1, sizeof *fiber);
    char *at = mmap(NULL, STACK_BYTES + page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!fiber || at == MAP_FAILED || mprotect(at, page, PROT_NONE) != 0) {
        fputs("emulator: no memory for the stack of a thread\n", stderr);
        abort();
    }
    fiber->stack = at + page;
    fiber->bytes = STACK_BYTES;
    return fiber;
}

void wf_fiber_start(wf_fiber *fiber, void (*run)(void))
{
    entry = run;
    fiber->fake = NULL;
#if defined(__x86_64__)
    /* Six registers, the address to return to, and the return address that a call would have
     * pushed. */
    uintptr_t *top = (uintptr_t *)((char *)fiber->stack + fiber->bytes) - 10;
    for (int i = 0; i < 10; i++)
        top[i] = 0;
    top[6] = (uintptr_t)begin;
    fiber->sp = top;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->bytes;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, begin, 0);
#endif
}

void wf_fiber_change(wf_fiber *from, wf_fiber *to, int for_good)
{
#if WF_FIBER_ASAN
    leaving = from;
    running = to;
    __sanitizer_start_switch_fiber(for_good ? NULL : &from->fake, to->stack ? to->stack : to->own,
                                   to->bytes);
#else
    (void)for_good;
#endif
#if defined(__x86_64__)
    wf_fiber_jump(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
#if WF_FIBER_ASAN
    arrived();
#endif
}
