/* SPDX-License-Identifier: MIT */
/* asserts.h - checks that misuse of an API trips an assertion. Include after cmocka.h. */
#ifndef WEFT_TESTS_ASSERTS_H
#define WEFT_TESTS_ASSERTS_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weft.h"

/* Returns whether fn trips an assertion. Runs fn in a child process, because an assertion aborts
 * it. */
static bool asserts(void (*fn)(wf_ctx *), wf_ctx *ctx)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        fn(ctx);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#ifdef NDEBUG
#define assert_asserts(fn, ctx) ((void)asserts, (void)fn, (void)(ctx))
#else
#define assert_asserts(fn, ctx) assert_true(asserts(fn, ctx))
#endif

#endif
