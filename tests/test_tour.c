/* SPDX-License-Identifier: MIT */
/*
 * test_tour.c - runs the commands of docs/tour.md in order and compares their output with the page.
 *
 * Every ```console block of the page is a transcript: a line that begins with "$ " is a command (a
 * backslash at its end continues it), the lines below it are its stdout and stderr. All commands run in
 * one scratch folder, and every command must succeed. The page states the rules of the comparison:
 *
 *   "..."           as a line stands for any lines, inside a line for any text
 *   seconds, speeds are not compared (see `units`)
 *   other numbers   may differ by a tenth if they have a decimal point or six digits or more
 *   everything else must be equal, except the number of spaces between words and at the end of a line
 *
 * A command that reads ../build-models is skipped where the model is missing. The Sanitize build skips all.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

#define PAGE "docs/tour.md"
#define TOLERANCE 0.1
enum { MAX_LINES = 400, MAX_COMMAND = 1500 };

static wt_program program;
static char page[1 << 17];

/* ---- Comparing ---- */

/* Units of machine-dependent figures: a number before one of them is not compared. */
static const char *const units[] = {" s", " ms", " MB/s", " M tokens/s", " tok/s", " threads"};

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_measured(const char *after)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (has_prefix(after, units[i]) && !isalnum((unsigned char)after[strlen(units[i])]))
            return true;
    return false;
}

static size_t number_length(const char *text)
{
    size_t n = strspn(text, "0123456789");
    if (text[n] == '.' && isdigit((unsigned char)text[n + 1]))
        n += 1 + strspn(text + n + 1, "0123456789");
    return n;
}

static bool numbers_agree(const char *wanted, size_t nw, const char *got, size_t ng)
{
    if (is_measured(wanted + nw) || (nw == ng && memcmp(wanted, got, nw) == 0))
        return true;
    bool inexact = memchr(wanted, '.', nw) || nw >= 6;
    double w = strtod(wanted, NULL), g = strtod(got, NULL);
    return inexact && fabs(w - g) <= TOLERANCE * fabs(w);
}

static bool line_agrees(const char *wanted, const char *got)
{
    while (*wanted) {
        if (has_prefix(wanted, "...")) {
            for (const char *rest = got;; rest++) {
                if (line_agrees(wanted + 3, rest))
                    return true;
                if (!*rest)
                    return false;
            }
        }
        if (*wanted == ' ' && *got == ' ') { /* columns: any number of spaces */
            wanted += strspn(wanted, " ");
            got += strspn(got, " ");
            continue;
        }
        size_t nw = number_length(wanted), ng = number_length(got);
        if (nw && ng) {
            if (!numbers_agree(wanted, nw, got, ng))
                return false;
            wanted += nw, got += ng;
        } else if (*wanted++ != *got++) {
            return false;
        }
    }
    return got[strspn(got, " ")] == '\0';
}

/* Compares arrays of lines that end with NULL. *at: the first wanted line without a match. */
static bool lines_agree(char *const *wanted, char *const *got, char *const **at)
{
    for (; *wanted; wanted++, got++) {
        if (strcmp(*wanted, "...") == 0) {
            for (;; got++) {
                if (lines_agree(wanted + 1, got, at))
                    return true;
                if (!*got)
                    return false;
            }
        }
        if (wanted > *at)
            *at = wanted;
        if (!*got || !line_agrees(*wanted, *got))
            return false;
    }
    return !*got;
}

/* Splits a text in place. */
static void split_lines(char *text, char **lines)
{
    int n = 0;
    for (char *end; *text; text = end + 1) {
        end = text + strcspn(text, "\n");
        bool last = !*end;
        *end = '\0';
        for (char *c = end; c > text && c[-1] == ' ';)
            *--c = '\0';
        assert_true(n < MAX_LINES - 1);
        lines[n++] = text;
        if (last)
            break;
    }
    lines[n] = NULL;
}

/* ---- Running ---- */

static bool is_runnable(const char *command)
{
    const char *model = getenv("WEFT_TEST_SMOLLM2");
    if (!strstr(command, "../build-models/") || (model && access(model, R_OK) == 0))
        return true;
    print_message("skipped, because tools/fetch_models.sh has not fetched the model: %s\n",
                  command);
    return false;
}

/* Runs one command and compares; returns the number of failures, 0 or 1. */
static int check(const char *command, char *const *wanted)
{
    static char shell[MAX_COMMAND + 64], copy[sizeof program.out];
    char *got[MAX_LINES], *const *at = wanted;
    if (!is_runnable(command))
        return 0;
    snprintf(shell, sizeof shell, "cd \"$D/tour\" && { %s\n} 2>&1", command);
    int code = wt_program_shell(&program, shell);
    memcpy(copy, program.out, sizeof copy);
    split_lines(copy, got);
    if (code == 0 && lines_agree(wanted, got, &at))
        return 0;
    print_error(PAGE ": the output of this command differs; exit status %d\n$ %s\n", code, command);
    fputs(program.out, stderr); /* print_error cuts long texts */
    print_error("first line of the page without a match: %s\n", *at ? *at : "(end of the block)");
    return 1;
}

/* Checks the lines of one block: commands, each with its output. */
static int check_block(char *block, int *commands)
{
    static char command[MAX_COMMAND];
    char *lines[MAX_LINES], *wanted[MAX_LINES];
    int failures = 0;
    split_lines(block, lines);
    for (char **line = lines; *line;) {
        int n = 0;
        if (!has_prefix(*line, "$ "))
            fail_msg(PAGE ": a block begins with '%s', which is not a command", *line);
        size_t used = (size_t)snprintf(command, sizeof command, "%s", *line++ + 2);
        while (used > 0 && command[used - 1] == '\\' && *line)
            used += (size_t)snprintf(command + used, sizeof command - used, "\n%s", *line++);
        assert_true(used < sizeof command);
        while (*line && !has_prefix(*line, "$ "))
            wanted[n++] = *line++;
        wanted[n] = NULL;
        failures += check(command, wanted);
        ++*commands;
    }
    return failures;
}

static void test_page(void **state)
{
    static const char begin[] = "\n```console\n";
    int failures = 0, commands = 0;
    (void)state;
    if (!getenv("WEFT_EXAMPLES")) {
        print_message("skipped: the tour runs in the release build only\n");
        skip();
    }
    for (char *block = page; (block = strstr(block, begin)) != NULL;) {
        block += strlen(begin);
        char *end = strstr(block, "\n```");
        assert_non_null(end);
        *end = '\0';
        failures += check_block(block, &commands);
        block = end + 4;
    }
    assert_true(commands > 10);
    assert_int_equal(failures, 0);
}

/* ---- The comparison itself ---- */

static bool agrees(const char *wanted, const char *got)
{
    char w[200], g[200], *wl[MAX_LINES], *gl[MAX_LINES], *const *at = wl;
    snprintf(w, sizeof w, "%s", wanted);
    snprintf(g, sizeof g, "%s", got);
    split_lines(w, wl);
    split_lines(g, gl);
    return lines_agree(wl, gl, &at);
}

static void test_rules(void **state)
{
    (void)state;
    assert_true(agrees("a\n...\nd", "a\nb\nc\nd\n"));
    assert_true(agrees("a\n...", "a\n"));
    assert_false(agrees("a\n...\nd", "a\nb\n"));
    assert_true(agrees("on ... kernels, 2 threads", "on AVX2 kernels, 16 threads"));
    assert_true(agrees("loss 1.00, 3.1 s", "loss 1.09, 99 s"));
    assert_true(agrees("a   62.6 s", "a  544.1 s"));
    assert_false(agrees("a b", "ab"));
    assert_false(agrees("loss 1.00", "loss 1.11"));
    assert_false(agrees("loss 1.00", "loss nan"));
    assert_false(agrees("7 tokens", "8 tokens"));
    assert_true(agrees("1000000 bytes", "1050000 bytes"));
    assert_false(agrees("a", "a\nb"));
    assert_false(agrees("a\nb", "a"));
    assert_false(agrees("3 steps", "4 steps"));
}

static int set_up(void **state)
{
    (void)state;
    if (wt_program_make(&program) != 0)
        return -1;
    FILE *f = fopen(PAGE, "rb");
    assert_non_null(f);
    size_t n = fread(page, 1, sizeof page - 1, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof page - 1);
    return wt_program_shell(&program,
                            "mkdir \"$D/tour\" \"$D/bin\" && ln -s \"$W\" \"$D/bin/weft\" && "
                            "ln -s \"$PWD/build-models\" \"$PWD/examples\" \"$D\"") == 0 &&
                   wt_program_shell(&program, "printf '%s' \"$D/bin:$PATH\"") == 0
               ? setenv("PATH", program.out, 1)
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    wt_scratch_remove(&program.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_page)};
    return cmocka_run_group_tests_name("tour", tests, set_up, tear_down);
}
