/* SPDX-License-Identifier: MIT */
/* test_line.c - the line reader of `weft chat`: keys on a terminal, and lines from a pipe. */
#define _XOPEN_SOURCE 700 /* terminals of our own */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "cli/line.c"
#include "cli/typed.c"

#include "support.h"

#define PROMPT "you> "

/* A child that reads lines and hands them back, each with a '|' after it. */
typedef struct {
    pid_t child;
    int keys, lines; /* keys: the terminal, or a pipe */
} reader;

static void read_lines(int out)
{
    wf_ctx *ctx;
    wf_line *l;
    const char *text;
    if (wf_ctx_new(&ctx) != WF_OK || wf_line_new(ctx, &l) != WF_OK)
        _exit(1);
    while (wf_line_read(l, PROMPT, &text) == WF_OK && text)
        if (dprintf(out, "%s|", text) < 0)
            _exit(1);
    wf_line_free(l);
    _exit(wt_live_blocks(ctx) == 0 ? 0 : 2);
}

/* Everything up to and including `until`, which must come soon. */
static void await(int fd, const char *until, char *got, size_t cap)
{
    size_t len = 0;
    got[0] = '\0';
    while (!strstr(got, until)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        assert_true(len + 1 < cap);
        assert_int_equal(read(fd, got + len, 1), 1);
        got[++len] = '\0';
    }
}

static reader start(bool terminal)
{
    reader r;
    int out[2], in[2], slave = -1;
    assert_int_equal(pipe(out), 0);
    if (terminal) {
        r.keys = posix_openpt(O_RDWR | O_NOCTTY);
        assert_true(r.keys >= 0 && grantpt(r.keys) == 0 && unlockpt(r.keys) == 0);
        slave = open(ptsname(r.keys), O_RDWR | O_NOCTTY);
        assert_true(slave >= 0);
    } else {
        assert_int_equal(pipe(in), 0);
        slave = in[0];
        r.keys = in[1];
    }
    fflush(NULL);
    r.child = fork();
    assert_true(r.child >= 0);
    if (r.child == 0) {
        close(out[0]);
        close(r.keys);
        dup2(slave, STDIN_FILENO);
        if (terminal)
            dup2(slave, STDERR_FILENO);
        read_lines(out[1]);
    }
    close(slave);
    close(out[1]);
    r.lines = out[0];
    char got[64];
    if (terminal)
        await(r.keys, "\r" PROMPT, got, sizeof got);
    return r;
}

static void type_only(reader *r, const char *keys)
{
    assert_int_equal(write(r->keys, keys, strlen(keys)), strlen(keys));
}

/* Returns when the next line may be typed: before, the terminal would act upon some of the keys. */
static void type(reader *r, const char *keys, const char *wanted)
{
    char got[8192];
    type_only(r, keys);
    await(r->lines, "|", got, sizeof got);
    got[strlen(got) - 1] = '\0';
    assert_string_equal(got, wanted);
    await(r->keys, "\n\r" PROMPT, got, sizeof got);
}

static void finish(reader *r)
{
    int status;
    char byte;
    struct pollfd p = {.fd = r->lines, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(read(r->lines, &byte, 1), 0);
    assert_int_equal(waitpid(r->child, &status, 0), r->child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(r->keys);
    close(r->lines);
}

#define UP "\x1b[A"
#define DOWN "\x1b[B"
#define RIGHT "\x1b[C"
#define LEFT "\x1bOD"
#define HOME "\x1b[H"
#define END "\x1b[4~"
#define DEL "\x1b[3~"
#define BACK "\x7f"

static void test_keys(void **state)
{
    (void)state;
    reader r = start(true);
    type(&r, "hello\r", "hello");
    type(&r, "helo" LEFT "l\r", "hello");
    type(&r, "bc" HOME "a" END "d\r", "abcd");
    type(&r, "abxc" LEFT BACK "\r", "abc");
    type(&r, "xabc" HOME DEL "\r", "abc");
    type(&r, "ac" LEFT LEFT LEFT RIGHT "b\r", "abc");
    type(&r, BACK BACK DEL "x\r", "x");
    type(&r, "one two  \x17three\r", "one three"); /* Ctrl-W */
    type(&r, "one\x15two\r", "two");               /* Ctrl-U */
    type(&r,
         "one two" HOME "\x0b"
         "x\r",
         "x");                                             /* Ctrl-K */
    type(&r, "a\tb\x1b[15~\x1b[1;5C\x01" END "\r", "a b"); /* keys without a meaning */
    type(&r, "abc\x02\x04\r", "ab"); /* Ctrl-D deletes where there is something */
    /* characters of two, three and four bytes */
    type(&r, "h\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80" BACK LEFT BACK "e\r", "he\xe4\xb8\xad");
    type(&r, "\xc3\xa9\xc3\xa8" LEFT LEFT DEL "\r", "\xc3\xa8");
    type_only(&r, "\x04");
    finish(&r);
}

static void test_history(void **state)
{
    (void)state;
    reader r = start(true);
    type(&r, UP DOWN "first\r", "first");
    type(&r, "second\r", "second");
    type(&r, "second\r", "second"); /* once in the history */
    type(&r, "lost" UP UP "!\r", "first!");
    type(&r, UP UP UP UP UP DOWN "\r", "second");
    type(&r, UP DOWN "new\r", "new");
    type(&r, "\r", "");
    type(&r, UP "\r", "new"); /* empty lines are not remembered */
    for (int i = 0; i < WF_LINE_HISTORY + 5; i++) {
        char keys[32], wanted[32];
        snprintf(keys, sizeof keys, "line %d\r", i);
        snprintf(wanted, sizeof wanted, "line %d", i);
        type(&r, keys, wanted);
    }
    type(&r, UP UP UP "\r", "line 202");
    type_only(&r, "\x04");
    finish(&r);
}

static void test_ends(void **state)
{
    (void)state;
    reader r = start(true);
    type(&r, "never mind\x03", "");
    type(&r, "a\\\rb\\\rc\r", "a\nb\nc");
    type(&r, "a\\\rb\x03", "");
    type(&r, "\r", "");
    type_only(&r, "\x04");
    finish(&r);

    /* no terminal any more */
    r = start(true);
    type(&r, "x\r", "x");
    close(r.keys);
    r.keys = dup(r.lines);
    finish(&r);
}

/* What is shown of a line that is wider than the terminal. */
static void test_wide(void **state)
{
    (void)state;
    reader r = start(true);
    struct winsize size = {.ws_row = 5, .ws_col = 16}; /* 10 columns after the prompt */
    assert_int_equal(ioctl(r.keys, TIOCSWINSZ, &size), 0);
    char got[8192];
    type_only(&r, "abcdefghijklm");
    await(r.keys, "\r" PROMPT "defghijklm\x1b[K", got, sizeof got);
    type_only(&r, HOME);
    await(r.keys, "\r" PROMPT "abcdefghij\x1b[K\x1b[10D", got, sizeof got);
    type_only(&r, "\xe4\xb8\xad");
    await(r.keys,
          "\r" PROMPT "\xe4\xb8\xad"
          "abcdefgh\x1b[K\x1b[8D",
          got, sizeof got);
    type_only(&r, "\r");
    await(r.lines, "|", got, sizeof got);
    assert_string_equal(got, "\xe4\xb8\xad"
                             "abcdefghijklm|");
    await(r.keys, "\n\r" PROMPT, got, sizeof got); /* before, the terminal would take the Ctrl-D */
    type_only(&r, "\x04");
    finish(&r);
}

static void test_pipe(void **state)
{
    (void)state;
    reader r = start(false);
    char got[512];
    type_only(&r, "one\ntwo\r\n\nthree \\\nfour\nlast");
    close(r.keys);
    await(r.lines, "last|", got, sizeof got);
    assert_string_equal(got, "one|two||three \\|four|last|");
    r.keys = dup(r.lines);
    finish(&r);
}

static void test_memory(void **state)
{
    wf_ctx *ctx = *state;
    bool whole = false;
    for (uint64_t n = 1; !whole; n++) {
        static const char text[] = "abcdefghijklmnopqrstuvwxyz\n";
        FILE *from = tmpfile();
        assert_non_null(from);
        assert_int_equal(fwrite(text, 1, sizeof text - 1, from), sizeof text - 1);
        rewind(from);
        int saved = dup(STDIN_FILENO);
        assert_int_equal(dup2(fileno(from), STDIN_FILENO), STDIN_FILENO);
        wf_line *l;
        const char *line;
        wf_ctx_fail_allocation(ctx, n);
        wf_status status = wf_line_new(ctx, &l);
        if (status == WF_OK)
            status = wf_line_read(l, "", &line);
        whole = status == WF_OK;
        wf_ctx_fail_allocation(ctx, 0);
        if (whole)
            assert_string_equal(line, "abcdefghijklmnopqrstuvwxyz");
        else
            assert_int_equal(status, WF_ERR_MEMORY);
        wf_line_free(l);
        assert_int_equal(wt_live_blocks(ctx), 0);
        fflush(stdin); /* forgets what was read ahead */
        clearerr(stdin);
        dup2(saved, STDIN_FILENO);
        close(saved);
        fclose(from);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_keys), wt_test(test_history), wt_test(test_ends),
        wt_test(test_wide), wt_test(test_pipe),    wt_test(test_memory),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("line", tests, NULL, NULL);
}
