/* SPDX-License-Identifier: MIT */
/*
 * test_docs.c - docs/training.md explains every training flag and names no unknown one;
 * docs/models.md explains every flag of sampling, model and device, and lists every quantized type.
 * On all pages links resolve and prose wraps at 100 columns. Charts match what their scripts draw
 * from bench/results, and tables of planned memory match this program.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Returns the flag "--name" of a help line and sets *len; NULL if the line has no flag. */
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

/* Returns the number of flags of a command that the page does not explain, and prints them. */
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

/* Every flag states its default once, and no internal value stands for "not set". */
static void test_defaults_are_stated_once(void **state)
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

/* docs/models.md explains the flags of weft run for sampling, the model and the device. Reads another
 * page, so the tests of training.md run before it. */
static void test_running_is_explained(void **state)
{
    (void)state;
    int flags = 0;
    size_t len;
    wt_program_ok(&program, "help run");
    char *at = strstr(program.out, "\nsampling:"), *end = strstr(program.out, "\nexamples:");
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
    assert_true(flags > 20);
}

/* Every quantized type that `weft quantize` writes is in the table of docs/models.md. */
static void test_types_are_listed(void **state)
{
    int types = 0;
    (void)state;
    wt_program_ok(&program, "help quantize");
    read_page("docs/models.md");
    for (char *line = strtok(program.out, "\n"); line; line = strtok(NULL, "\n")) {
        char type[16], wanted[40];
        if (sscanf(line, "  %15s", type) != 1 || type[0] != 'q' || !isdigit((unsigned char)type[1]))
            continue;
        types++;
        snprintf(wanted, sizeof wanted, "| `%s` |", type);
        if (!strstr(page, wanted))
            fail_msg("docs/models.md has no row for the type %s", type);
    }
    assert_true(types >= 5);
}

/* ---- All pages ---- */

#define COLUMNS 100

static size_t columns_of(const char *line, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)line[i] & 0xC0) != 0x80; /* skips UTF-8 continuation bytes */
    return n;
}

/* Returns the number of lines that are too wide. Tables and code may be wider. */
static int count_wide_lines(const char *path)
{
    int wide = 0, number = 0;
    bool code = false;
    for (const char *line = page; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t bytes = strcspn(line, "\n"), indent = strspn(line, " ");
        number++;
        if (strncmp(line + indent, "```", 3) == 0)
            code = !code;
        if (code || indent >= 4 || *line == '|' || columns_of(line, bytes) <= COLUMNS)
            continue;
        print_error("%s:%d: a line of prose has %zu columns\n", path, number,
                    columns_of(line, bytes));
        wide++;
    }
    return wide;
}

/* Returns whether a page has a heading with this anchor. Anchors follow GitHub: lower case, "-" for
 * a space, no punctuation. */
static bool has_anchor(const char *path, const char *anchor)
{
    char line[512];
    bool found = false, code = false;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while (!found && fgets(line, sizeof line, f)) {
        size_t n = 0;
        if (strncmp(line, "```", 3) == 0)
            code = !code;
        if (code || *line != '#')
            continue;
        for (const char *c = line + strspn(line, "# "); *c && *c != '\n'; c++)
            if (isalnum((unsigned char)*c) || strchr("-_ ", *c))
                line[n++] = (char)(*c == ' ' ? '-' : tolower((unsigned char)*c));
        line[n] = '\0';
        found = strcmp(line, anchor) == 0;
    }
    fclose(f);
    return found;
}

/* A line that is indented by four blanks or more is code, where [&](x) is no link. */
static bool is_in_code(const char *at)
{
    while (at > page && at[-1] != '\n')
        at--;
    return strspn(at, " ") >= 4;
}

/* Counts relative links to missing files or headings. */
static int count_broken_links(const char *path)
{
    int broken = 0;
    const char *slash = strrchr(path, '/');
    for (const char *at = page; (at = strstr(at, "](")) != NULL;) {
        char target[512], file[1024];
        at += 2;
        size_t n = strcspn(at, ")\n");
        assert_true(n < sizeof target);
        snprintf(target, sizeof target, "%.*s", (int)n, at);
        if (strstr(target, "://") || is_in_code(at))
            continue;
        char *anchor = strchr(target, '#');
        if (anchor)
            *anchor++ = '\0';
        if (!*target)
            snprintf(file, sizeof file, "%s", path);
        else
            snprintf(file, sizeof file, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path,
                     target);
        if (access(file, F_OK) == 0 && (!anchor || has_anchor(file, anchor)))
            continue;
        print_error("%s: the link to %s%s%s is broken\n", path, file, anchor ? "#" : "",
                    anchor ? anchor : "");
        broken++;
    }
    return broken;
}

/* Checks line widths and links of every page. */
static void test_all_pages(void **state)
{
    glob_t pages;
    int wrong = 0;
    (void)state;
    assert_int_equal(glob("*.md", 0, NULL, &pages), 0);
    assert_int_equal(glob("docs/*.md", GLOB_APPEND, NULL, &pages), 0);
    for (size_t i = 0; i < pages.gl_pathc; i++) {
        read_page(pages.gl_pathv[i]);
        wrong += count_wide_lines(pages.gl_pathv[i]) + count_broken_links(pages.gl_pathv[i]);
    }
    assert_true(pages.gl_pathc >= 9);
    globfree(&pages);
    assert_int_equal(wrong, 0);
}

/* ---- Figures ---- */

/* Relative tolerance: workspaces depend on the instruction set, and the pages round to two
 * digits. */
#define TOLERANCE 0.1

static double json_number(const char *name)
{
    char key[40];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(program.out, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

/* Returns the number in a column (0 is the first) of the row of `page` that begins with `| label`.
 * GB and MB become bytes. */
static double cell(const char *label, int column)
{
    char start[160], *end;
    snprintf(start, sizeof start, "\n| %s", label);
    const char *at = strstr(page, start);
    if (!at)
        fail_msg("no table has a row '%s'", label);
    for (at += 2; column > 0; column--) {
        at += strcspn(at, "|\n");
        assert_int_equal(*at++, '|');
    }
    double value = strtod(at, &end);
    assert_true(end > at);
    return value * (strncmp(end, " GB", 3) == 0 ? 1e9 : strncmp(end, " MB", 3) == 0 ? 1e6 : 1);
}

static void expect_near(const char *label, const char *what, double documented, double planned)
{
    if (fabs(documented - planned) > TOLERANCE * planned)
        fail_msg("row '%s', %s: the page has %g, weft plan %g", label, what, documented, planned);
}

static void plan(const char *model, const char *args)
{
    char command[200];
    snprintf(command, sizeof command, "plan %s %s --json", model, args);
    wt_program_ok(&program, command);
}

/* Checks the table "Memory of a training step" of docs/performance.md. */
static void test_memory_table(void **state)
{
    static const char *const rows[][2] = {
        {"none: separate memory", "--without all"},
        {"memory (`--without", "--without fold,fuse,recompute,schedule"},
        {"all, the default", ""},
        {"and bf16 (", "--precision bf16"},
        {"and recompute (", "--recompute 1"},
        {"and both", "--precision bf16 --recompute 1"},
    };
    (void)state;
    read_page("docs/performance.md");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plan("gpt2-124M --batch 4", rows[i][1]);
        expect_near(rows[i][0], "GPT-2", cell(rows[i][0], 1), json_number("activations"));
        plan("tiny", rows[i][1]);
        expect_near(rows[i][0], "demo", cell(rows[i][0], 2), json_number("activations"));
    }
}

/* Checks the table "Passes and plans" of docs/architecture.md: kernels, activations, bytes. */
static void test_pass_table(void **state)
{
    static const char *const rows[][2] = {
        {"as written", "--without all"},
        {"memory alone", "--without fold,fuse,recompute,schedule"},
        {"+ **fold**", "--without fuse,recompute,schedule"},
        {"+ **fuse**", "--without recompute,schedule"},
        {"+ **recompute**", "--recompute 1 --without schedule"},
        {"+ **schedule**", "--recompute 1"},
        {"in bf16: **precision**", "--precision bf16 --recompute 1"},
    };
    (void)state;
    read_page("docs/architecture.md");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *label = rows[i][0];
        plan("gpt2-124M --batch 4", rows[i][1]);
        assert_int_equal((int)cell(label, 2), (int)json_number("launches"));
        expect_near(label, "activations", cell(label, 3), json_number("activations"));
        expect_near(label, "read and written", cell(label, 4),
                    json_number("bytes_read") + json_number("bytes_written"));
    }
}

/* ---- Pictures ---- */

/* Draws each picture again and compares it with the file in docs/pictures. */
static void test_pictures(void **state)
{
    static const char *const rows[][2] = {
        {"python3 bench/chart.py \"$D/out.svg\"", "versus-cpu.svg"},
        {"python3 bench/gpu.py chart bench/results/versus-train-gpu-h200.json \"$D/out.svg\"",
         "versus-gpu.svg"},
        {"python3 tools/make_layers.py \"$D/out.svg\"", "layers.svg"},
        {"python3 tools/make_engine.py \"$D/out.svg\"", "engine.svg"},
    };
    (void)state;
    if (wt_program_shell(&program, "python3 -c ''") != 0) {
        print_message("skipped: python3 is missing\n");
        skip();
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char command[512];
        snprintf(command, sizeof command, "%s && cmp \"$D/out.svg\" docs/pictures/%s", rows[i][0],
                 rows[i][1]);
        if (wt_program_shell(&program, command) != 0)
            fail_msg("docs/pictures/%s is stale; draw it again: %s\n%s%s", rows[i][1], rows[i][0],
                     program.out, program.err);
    }
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
        cmocka_unit_test(test_defaults_are_stated_once),
        cmocka_unit_test(test_running_is_explained),
        cmocka_unit_test(test_types_are_listed),
        cmocka_unit_test(test_all_pages),
        cmocka_unit_test(test_memory_table),
        cmocka_unit_test(test_pass_table),
        cmocka_unit_test(test_pictures),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
