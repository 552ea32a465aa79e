/* SPDX-License-Identifier: MIT */
/* program.c - see program.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "program.h"

int wt_program_make(wt_program *p)
{
    const char *program = getenv("WEFT_PROGRAM");
    if (!program) {
        print_error("WEFT_PROGRAM must hold the path of the program; ctest sets it\n");
        return -1;
    }
    wt_scratch_make(&p->scratch);
    setenv("W", program, 1);
    setenv("D", p->scratch.folder, 1);
    return 0;
}

static void read_back(wt_program *p, const char *name, char *to, size_t size)
{
    FILE *f = fopen(wt_path(&p->scratch, name), "rb");
    assert_non_null(f);
    size_t n = fread(to, 1, size, f);
    assert_true(n < size);
    to[n] = '\0';
    fclose(f);
}

int wt_program_shell(wt_program *p, const char *commands)
{
    char all[2048];
    int n = snprintf(all, sizeof all, "exec >\"$D/.out\" 2>\"$D/.err\" </dev/null; %s", commands);
    assert_true(n > 0 && n < (int)sizeof all);
    int status = system(all);
    if (!WIFEXITED(status))
        fail_msg("%s: ended by signal %d", commands, WTERMSIG(status));
    read_back(p, ".out", p->out, sizeof p->out);
    read_back(p, ".err", p->err, sizeof p->err);
    return WEXITSTATUS(status);
}

int wt_program_run(wt_program *p, const char *args)
{
    char all[1900];
    int n = snprintf(all, sizeof all, "\"$W\" %s", args);
    assert_true(n > 0 && n < (int)sizeof all);
    return wt_program_shell(p, all);
}

void wt_program_ok(wt_program *p, const char *args)
{
    int code = wt_program_run(p, args);
    if (code != 0)
        fail_msg("weft %s: exit status %d, and said: %s", args, code, p->err);
}

void wt_program_fails(wt_program *p, int code, const char *args, const char *sentence)
{
    int got = wt_program_run(p, args);
    const char *end = strchr(p->err, '\n');
    if (got != code || *p->out || !strstr(p->err, sentence) || !end || end[1])
        fail_msg("weft %s: exit status %d, stdout '%s', stderr '%s'; wanted %d and '%s'", args, got,
                 p->out, p->err, code, sentence);
}

void wt_program_out(const wt_program *p, const char *text)
{
    if (!strstr(p->out, text))
        fail_msg("'%s' is missing in:\n%s", text, p->out);
}

void wt_program_err(const wt_program *p, const char *text)
{
    if (!strstr(p->err, text))
        fail_msg("'%s' is missing on stderr:\n%s", text, p->err);
}
