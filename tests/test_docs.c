/* SPDX-License-Identifier: MIT */
/* test_docs.c - docs/training.md explains every flag that training has, and none that there is not; docs/models.md
 * every flag of sampling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

#define PAGE "docs/training.md"
#define LETTERS "abcdefghijklmnopqrstuvwxyz0123456789-"

static wt_program program;
static char page[1 << 18];

static void read_page(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(page, 1, sizeof page, f);
    assert_true(n > 0 && n < sizeof page);
    page[n] = '\0';
    fclose(f);
}

/* The flag of a line of help, "--name": where it begins and how long it is; NULL: it has none. */
static const char *flag_of(const char *line, size_t *len)
{
    const char *at = line + strspn(line, " ");
    if (at == line)
        return NULL;
    if (at[0] == '-' && at[1] != '-') /* -x, --name */
        at += strcspn(at, " \n") + 1;
    *len = strspn(at, LETTERS);
    return strncmp(at, "--", 2) == 0 && *len > 2 ? at : NULL;
}

static int missing_of(const char *command)
{
    char args[64], wanted[80];
    int flags = 0, missing = 0;
    size_t len;
    snprintf(args, sizeof args, "help %s", command);
    wt_program_ok(&program, args);
    for (const char *line = program.out; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *flag = flag_of(line, &len);
        if (!flag || strncmp(flag, "--help", len) == 0)
            continue;
        flags++;
        snprintf(wanted, sizeof wanted, "`%.*s`", (int)len, flag);
        if (!strstr(page, wanted)) {
            print_error("%s does not explain %s of weft %s\n", PAGE, wanted, command);
            missing++;
        }
    }
    assert_true(flags > 4);
    return missing;
}

static void test_every_flag_is_explained(void **state)
{
    int missing = 0;
    (void)state;
    missing += missing_of("prepare");
    missing += missing_of("train");
    missing += missing_of("finetune");
    missing += missing_of("plot");
    assert_int_equal(missing, 0);
}

static bool has_flag(const char *help, const char *flag, size_t len)
{
    for (const char *at = help; (at = strstr(at, "--")) != NULL; at += 2)
        if (strncmp(at, flag, len) == 0 && strspn(at, LETTERS) == len)
            return true;
    return false;
}

/* Flags of other commands may be named, too. */
static void test_no_flag_is_invented(void **state)
{
    int unknown = 0, seen = 0;
    (void)state;
    assert_int_equal(wt_program_shell(&program, "for c in prepare train finetune plot plan eval "
                                                "run chat convert info; do \"$W\" help $c; done"),
                     0);
    for (const char *at = page; (at = strstr(at, "--")) != NULL; at += strspn(at, "-")) {
        size_t len = strspn(at, LETTERS);
        bool alone = at == page || strchr(" `(\n", at[-1]);
        if (!alone || len < 4 || at[2] == '-')
            continue;
        seen++;
        if (!has_flag(program.out, at, len)) {
            print_error("%s names %.*s, which no command has\n", PAGE, (int)len, at);
            unknown++;
        }
    }
    assert_true(seen > 50);
    assert_int_equal(unknown, 0);
}

/* Every flag names its default once, and no internal number shows up in place of "not set". */
static void test_defaults_are_said_once(void **state)
{
    (void)state;
    assert_int_equal(
        wt_program_shell(
            &program,
            "for c in $(\"$W\" help | sed -n '/^commands:/,/^$/s/^  \\([a-z]*\\) .*/\\1/p'); "
            "do \"$W\" help $c; done"),
        0);
    assert_null(strstr(program.out, "e+300"));
    int defaults = 0;
    size_t len;
    for (const char *line = program.out; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (flag_of(line, &len)) /* the lines of a flag follow it */
            defaults = 0;
        const char *end = strchr(line, '\n'), *at = line;
        while ((at = strstr(at, "(default")) && at < end) {
            defaults++;
            at++;
        }
        if (defaults > 1)
            fail_msg("a default twice: %.*s", (int)(end - line), line);
    }
}

/* Reads another page, so it comes last. */
static void test_sampling_is_explained(void **state)
{
    (void)state;
    int flags = 0;
    size_t len;
    wt_program_ok(&program, "help run");
    char *at = strstr(program.out, "\nsampling:"),
         *end = strstr(program.out, "\nmodel and device:");
    assert_true(at && end && at < end);
    *end = '\0';
    read_page("docs/models.md");
    for (const char *line = at; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *flag = flag_of(line, &len);
        if (!flag)
            continue;
        flags++;
        char wanted[80];
        snprintf(wanted, sizeof wanted, "%.*s", (int)len, flag);
        if (!strstr(page, wanted))
            fail_msg("docs/models.md does not explain %s", wanted);
    }
    assert_true(flags > 10);
}

static int set_up(void **state)
{
    (void)state;
    read_page(PAGE);
    return wt_program_make(&program);
}

static int tear_down(void **state)
{
    (void)state;
    wt_scratch_remove(&program.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_flag_is_explained),
        cmocka_unit_test(test_no_flag_is_invented),
        cmocka_unit_test(test_defaults_are_said_once),
        cmocka_unit_test(test_sampling_is_explained),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
