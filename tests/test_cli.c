/* SPDX-License-Identifier: MIT */
/*
 * test_cli.c - runs the program with every command, every flag and common mistakes. Checks the
 * output, the stream it goes to, and the exit status.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"

/* ---- Running it ---- */

static char folder[] = "/tmp/weft_test_cli.XXXXXX";
static char out[1 << 20], err[1 << 16]; /* stdout and stderr of the last run */

static void read_back(const char *name, char *to, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(to, 1, size, f);
    assert_true(n < size);
    to[n] = '\0';
    fclose(f);
    remove(path);
}

/* Runs the program with arguments in shell syntax and returns its exit status. */
static int run(const char *args)
{
    char command[1024];
    int n = snprintf(command, sizeof command, "exec >%s/out 2>%s/err; \"$WEFT_PROGRAM\" %s", folder,
                     folder, args);
    assert_true(n > 0 && n < (int)sizeof command);
    int status = system(command);
    assert_true(WIFEXITED(status));
    read_back("out", out, sizeof out);
    read_back("err", err, sizeof err);
    return WEXITSTATUS(status);
}

static void succeeds(const char *args)
{
    int code = run(args);
    if (code != 0 || *err)
        fail_msg("weft %s: exit status %d, and said: %s", args, code, err);
}

static void prints(const char *text)
{
    if (!strstr(out, text))
        fail_msg("'%s' is missing in:\n%s", text, out);
}

/* ---- A JSON validator ---- */

static const char *json_value(const char *s);

static const char *json_space(const char *s)
{
    return s + strspn(s, " \t\r\n");
}

static const char *json_string(const char *s)
{
    if (*s++ != '"')
        return NULL;
    while (*s != '"') {
        if ((unsigned char)*s < 0x20)
            return NULL;
        s += *s == '\\' ? 2 : 1;
    }
    return s + 1;
}

/* Skips items up to `close`; each item of an object has a key. */
static const char *json_items(const char *s, char close)
{
    s = json_space(s);
    if (*s == close)
        return s + 1;
    for (;;) {
        if (close == '}') {
            s = json_string(json_space(s));
            s = s ? json_space(s) : NULL;
            if (!s || *s++ != ':')
                return NULL;
        }
        s = json_value(s);
        if (!s || *s == close)
            return s ? s + 1 : NULL;
        if (*s++ != ',')
            return NULL;
    }
}

/* Returns the end of the value at s, or NULL if it is malformed. */
static const char *json_value(const char *s)
{
    static const char *const words[] = {"true", "false", "null"};
    char *end;
    s = json_space(s);
    if (*s == '{' || *s == '[')
        s = json_items(s + 1, *s == '{' ? '}' : ']');
    else if (*s == '"')
        s = json_string(s);
    else if (*s == '-' || (*s >= '0' && *s <= '9'))
        s = (strtod(s, &end), end);
    else {
        size_t length = strcspn(s, " \t\r\n,]}");
        bool known = false;
        for (int i = 0; i < 3; i++)
            known |= strlen(words[i]) == length && strncmp(words[i], s, length) == 0;
        s = known ? s + length : NULL;
    }
    return s ? json_space(s) : NULL;
}

static void prints_json(void)
{
    const char *end = json_value(out);
    if (!end || *end)
        fail_msg("this is not JSON:\n%s", out);
}

/* The validator itself accepts valid and refuses invalid JSON. */
static void test_the_json_check(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",      "{",     "{\"a\":}", "{\"a\" 1}", "[1,]",
                                        "[1 2]", "\"a\n", "nil",      "{1:2}",     "[1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *end = json_value(wrong[i]);
        assert_true(!end || *end);
    }
    const char *right = " {\"a\": [1, -2.5e3, {}, []], \"b\\\"\": null, \"c\": true} ";
    assert_string_equal(json_value(right), "");
}

/* ---- Help and version ---- */

/* `help COMMAND`, `COMMAND --help` and -h print the same text. */
static void test_help(void **state)
{
    (void)state;
    static const char *const commands[] = {"run", "chat",     "info", "tokenize", "eval", "devices",
                                           "ops", "selftest", "plan", "version",  "help", "bench"};
    static char text[sizeof out];
    succeeds("help");
    strcpy(text, out);
    succeeds("--help");
    assert_string_equal(out, text);
    succeeds("-h");
    assert_string_equal(out, text);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char args[64], line[64];
        snprintf(line, sizeof line, "\n  %s ", commands[i]);
        assert_non_null(strstr(text, line));
        snprintf(args, sizeof args, "help %s", commands[i]);
        succeeds(args);
        snprintf(line, sizeof line, "usage: weft %s ", commands[i]);
        prints(line);
        prints("--help");
        static char help[sizeof out];
        strcpy(help, out);
        snprintf(args, sizeof args, "%s --help", commands[i]);
        succeeds(args);
        assert_string_equal(out, help);
        snprintf(args, sizeof args, "%s --nonsense -h", commands[i]);
        succeeds(args);
        assert_string_equal(out, help);
    }
    succeeds("selftest --device abacus --help");
    prints("-d, --device D");
    prints("(default: cpu)");
}

/* Without a command the program prints its help to stderr and fails. */
static void test_no_command(void **state)
{
    (void)state;
    assert_int_equal(run(""), 2);
    assert_string_equal(out, "");
    assert_non_null(strstr(err, "usage: weft COMMAND"));
}

static void test_version(void **state)
{
    (void)state;
    static char text[sizeof out];
    char start[32];
    snprintf(start, sizeof start, "weft %s (commit ", wf_version_string());
    succeeds("version");
    assert_memory_equal(out, start, strlen(start));
    assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
    strcpy(text, out);
    succeeds("--version");
    assert_string_equal(out, text);
    succeeds("version --json");
    prints_json();
    prints("\"commit\"");
    prints("\"compiler\"");
}

/* ---- Mistakes ---- */

/* Each mistake gives exit status 2 and exactly this line. */
static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *args, *sentence; /* sentence: all of stderr */
    } cases[] = {
        {"selftset", "weft: unknown command 'selftset'; did you mean 'selftest'?"},
        {"xyzzy", "weft: unknown command 'xyzzy'; see 'weft help'"},
        {"''", "weft: unknown command ''; see 'weft help'"},
        {"--json ops", "weft: '--json' is not a command; give a command first; see 'weft help'"},
        {"help opps", "weft help: unknown command 'opps'; did you mean 'ops'?"},
        {"help a b", "weft help: 'b' is one argument too many; usage: weft help [COMMAND]"},
        {"devices x", "weft devices: 'x' is one argument too many; usage: weft devices"},
        {"ops --jsno", "weft ops: unknown flag '--jsno'; did you mean '--json'?"},
        {"ops -json", "weft ops: unknown flag '-json'; did you mean '--json'?"},
        {"ops --hlep", "weft ops: unknown flag '--hlep'; did you mean '--help'?"},
        {"ops --xyzzy=3", "weft ops: unknown flag '--xyzzy'; see --help"},
        {"ops -x", "weft ops: unknown flag '-x'; see --help"},
        {"ops --json=1", "weft ops: --json takes no value, but '1' was given"},
        {"ops atention", "weft ops: unknown op 'atention'; did you mean 'attention'?"},
        {"ops xyzzyxyzzy", "weft ops: unknown op 'xyzzyxyzzy'; see 'weft ops'"},
        {"ops -- --json", "weft ops: unknown op '--json'; see 'weft ops'"},
        {"selftest --op atention",
         "weft selftest: unknown op 'atention'; did you mean 'attention'?"},
        {"selftest --expand ''", "weft selftest: --expand needs a value: --expand OPS"},
        {"selftest --expand glu,", "weft selftest: unknown op ''; see 'weft ops'"},
        {"plan tiny --expand ,glu", "weft plan: unknown op ''; see 'weft ops'"},
        {"selftest --device cpx", "weft selftest: unknown device 'cpx'; did you mean 'cpu'?"},
        {"selftest --seed abc", "weft selftest: --seed must be a whole number >= 0, not 'abc'"},
        {"selftest --sample -1",
         "weft selftest: --sample must be a whole number >= 0, or 1% to 100%, not '-1'"},
        {"selftest --sample 0%",
         "weft selftest: --sample must be a whole number >= 0, or 1% to 100%, not '0%'"},
        {"selftest --sample 101%",
         "weft selftest: --sample must be a whole number >= 0, or 1% to 100%, not '101%'"},
        {"selftest --sample 25%%",
         "weft selftest: --sample must be a whole number >= 0, or 1% to 100%, not '25%%'"},
        {"selftest --sample 2.5%",
         "weft selftest: --sample must be a whole number >= 0, or 1% to 100%, not '2.5%'"},
        {"selftest --sample 99999999999999999999",
         "weft selftest: --sample must be a whole number >= 0, or 1% to 100%, not "
         "'99999999999999999999'"},
        {"selftest --list --sample 5%",
         "weft selftest: --sample has no effect with --list; leave it out"},
        {"selftest --seed 12x", "weft selftest: --seed must be a whole number >= 0, not '12x'"},
        {"selftest --seed -1", "weft selftest: --seed must be a whole number >= 0, not '-1'"},
        {"selftest -s 99999999999999999999",
         "weft selftest: -s must be a whole number from 0 to 9223372036854775807, not "
         "'99999999999999999999'"},
        {"selftest --seed", "weft selftest: --seed needs a value: --seed S"},
        {"selftest --seed=", "weft selftest: --seed needs a value: --seed S"},
        {"selftest --device --json",
         "weft selftest: --device needs a value: --device D, or --device=D if the value begins with --"},
        {"selftest --distort big", "weft selftest: --distort must be a number, not 'big'"},
        {"selftest --distort nan", "weft selftest: --distort must be a number, not 'nan'"},
        {"plan gpt2-124m", "weft plan: unknown example 'gpt2-124m'; did you mean 'gpt2-124M'?"},
        {"plan tiny --form chat",
         "weft plan: unknown form 'chat'; use one of: train, prefill, decode"},
        {"plan tiny --compute f64", "weft plan: --compute must be f32, bf16 or f16, not 'f64'"},
        {"plan tiny -b 0", "weft plan: -b must be a whole number from 1 to 1048576, not '0'"},
        {"plan README.md -b 4",
         "weft plan: --form, --batch and --length apply to examples, but 'README.md' is a file"},
        {"plan tiny -w fold,foo",
         "weft plan: unknown pass 'foo'; use one of: all, fold, fuse, recompute, schedule, "
         "memory"},
        {"plan tiny small",
         "weft plan: 'small' is one argument too many; usage: weft plan [MODEL|EXAMPLE|GRAPH]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int code = run(cases[i].args);
        size_t n = strlen(cases[i].sentence);
        if (code != 2 || *out || strncmp(err, cases[i].sentence, n) != 0 ||
            strcmp(err + n, "\n") != 0)
            fail_msg("weft %s: exit status %d, stdout '%s', stderr '%s'", cases[i].args, code, out,
                     err);
    }
    assert_int_equal(run("selftest --device cpu:many"), 2);
    assert_string_equal(out, "");
}

/* Arguments of any length give one line of output. */
static void test_long_words(void **state)
{
    (void)state;
    static const char *const args[] = {"\"$(printf %02000d 0)\"", "ops \"$(printf %02000d 0)\"",
                                       "ops --\"$(printf %02000d 0)\"",
                                       "selftest --seed \"x$(printf %02000d 0)\""};
    for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
        assert_int_equal(run(args[i]), 2);
        assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
    }
}

/* A full disk is an error. */
static void test_full_disk(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "help", "ops --help", "version", "version --json",    "devices",
        "ops",  "ops --json", "ops add", "selftest --op neg", "selftest --op neg --json"};
    struct stat st;
    if (stat("/dev/full", &st) != 0 || !S_ISCHR(st.st_mode))
        skip();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char args[64];
        snprintf(args, sizeof args, "%s >/dev/full", commands[i]);
        if (run(args) != 1 || !strstr(err, ": cannot write the result to stdout"))
            fail_msg("weft %s: %s", args, err);
        assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
    }
    assert_int_equal(run("ops >&-"), 1);
    assert_int_equal(run("xyzzy >/dev/full"), 2);
}

/* ---- devices ---- */

static void test_devices(void **state)
{
    (void)state;
    succeeds("devices");
    for (int i = 0; wf_device_kind(i); i++)
        prints(wf_device_kind(i));
    prints("threads");
    succeeds("devices --json");
    prints_json();
    prints("\"device\": \"cpu\"");
    prints("\"available\": true");
    prints("\"threads\": ");
}

/* The pjrt device is available with a plugin (a mock, which computes nothing). With another file,
 * the program prints the reason. */
static void test_plugin(void **state)
{
    (void)state;
    const char *named = getenv("WEFT_PJRT_PLUGIN"), *mock = getenv("WEFT_TEST_MOCK_PJRT");
    char *kept = named ? strdup(named) : NULL;
    assert_non_null(mock);
    setenv("WEFT_PJRT_PLUGIN", mock, 1);
    succeeds("devices");
    prints("whole graphs by a PJRT 0.81 plugin for mock");
    succeeds("ops");
    prints("pjrt: compiles whole graphs; ");
    prints("  hlo\n");
    succeeds("plan tiny --batch 2 --explain --device pjrt");
    prints("compiled as one program in ");
    prints("temporary memory of the compiled program\n");
    prints("expanded into ops that pjrt compiles (cost before its compiler fuses them):\n");
    succeeds("plan tiny --batch 2 --json --device pjrt");
    prints_json();
    prints("\"launches\": 1,");
    static const char *const unused[][2] = {
        {"plan tiny --device pjrt --svg plan.svg", "--svg has no effect"},
        {"plan tiny --device pjrt --without fold", "--without has no effect"},
        {"plan tiny --device pjrt --recompute 1", "--recompute has no effect"},
    };
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        assert_int_equal(run(unused[i][0]), 2);
        assert_non_null(strstr(err, unused[i][1]));
        assert_non_null(strstr(err, "on a device that compiles whole graphs; leave it out"));
    }
    setenv("WEFT_PJRT_PLUGIN", "/nowhere/plugin.so", 1);
    succeeds("devices");
    prints("not available: pjrt could not load the plugin /nowhere/plugin.so: ");
    unsetenv("WEFT_PJRT_PLUGIN");
    succeeds("devices");
    prints("not available: pjrt needs a plugin");
    if (kept)
        setenv("WEFT_PJRT_PLUGIN", kept, 1);
    free(kept);
}

/* ---- ops ---- */

/* Returns the row of the table that begins with `name`, up to a newline; NULL if there is none. */
static const char *row_of(const char *name)
{
    size_t n = strlen(name);
    for (const char *line = out; *line; line = strchr(line, '\n') + 1)
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return line;
    return NULL;
}

/* Returns the types that a row marks, by the names in the heading. */
static wf_type_set marked_types(const char *row)
{
    char heading[256], marks[256];
    char *h = heading, *m = marks, *name, *mark;
    wf_type_set types = 0;
    snprintf(heading, sizeof heading, "%.*s", (int)strcspn(out, "\n"), out);
    snprintf(marks, sizeof marks, "%.*s", (int)strcspn(row, "\n"), row);
    while ((name = strtok_r(h, " ", &h)) && (mark = strtok_r(m, " ", &m)))
        if (wf_type_from_name(name) != WF_TYPE_NONE && mark[0] == 'x')
            types |= wf_type_bit(wf_type_from_name(name));
        else if (strcmp(name, "quant") == 0 && mark[0] == 'x')
            types |= WF_TYPES_BLOCK;
    return types;
}

/* The printed table matches the kernels of the first device. */
static void test_ops(void **state)
{
    (void)state;
    wf_ctx *ctx;
    wf_device *device;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    assert_int_equal(wf_device_open(ctx, wf_device_kind(0), &device), WF_OK);
    succeeds("ops");
    for (const char *line = out; *line; line = strchr(line, '\n') + 1)
        assert_true(strcspn(line, "\n") <= 120);
    for (int op = 0; op < WF_OP_COUNT; op++) {
        const char *name = wf_op_get((wf_op)op)->name, *row = row_of(name);
        if (!row)
            fail_msg("%s is missing", name);
        char form[16], gradient[16];
        assert_int_equal(sscanf(row, "%*s %15s %15s", form, gradient), 2);
        assert_string_equal(form, wf_op_is_core((wf_op)op) ? "core" : "expanded");
        assert_string_equal(gradient, wf_op_is_differentiable((wf_op)op) ? "yes" : "-");
        assert_int_equal(marked_types(row), wf_kernel_types(device->kernels, (wf_op)op));
    }
    wf_device_close(device);
    wf_ctx_free(ctx);
}

/* `weft ops OP` prints the op's documentation and every attribute. */
static void test_each_op(void **state)
{
    (void)state;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        const wf_op_def *def = wf_op_get((wf_op)op);
        char args[64];
        snprintf(args, sizeof args, "ops %s", def->name);
        succeeds(args);
        prints(def->doc);
        for (const wf_attr_field *f = def->fields; f->name; f++) {
            prints(f->name);
            prints(f->doc);
        }
        prints("\nkernels ");
    }
    succeeds("ops --device cpu");
    prints("cpu: kernels for ");
    prints(", 0 expanded\n");
    succeeds("ops softmax");
    prints("launches instead of 1, ");
    succeeds("ops attention");
    prints("operands    5 to 7\n");
    prints("gradient    wf_grad_attention\n");
    prints("expansion   wf_expand_attention\n");
    prints("cpu reference: f32");
    succeeds("ops div");
    prints("gradient    da = wf_div(g, dy, b)\n            db = wf_neg(");
    succeeds("ops concat");
    prints("operands    1 or more\n");
    succeeds("ops lt");
    prints("gradient    zero\n");
    succeeds("ops sgd");
    prints("gradient    none: ");
    prints(", updates a state\n");
    succeeds("ops state");
    prints("none: the caller provides the memory");
}

static void test_ops_json(void **state)
{
    (void)state;
    succeeds("ops --json");
    prints_json();
    for (int op = 0; op < WF_OP_COUNT; op++) {
        char name[64];
        snprintf(name, sizeof name, "\"name\": \"%s\"", wf_op_get((wf_op)op)->name);
        prints(name);
    }
    succeeds("ops --json attention");
    prints_json();
    prints("\"name\": \"attention\"");
    prints("\"differentiable\": true");
    assert_null(strstr(out, "\"name\": \"rope\""));
    static char text[sizeof out];
    strcpy(text, out);
    succeeds("ops attention --json"); /* flags and operands in any order */
    assert_string_equal(out, text);
}

/* ---- selftest ---- */

static void test_selftest(void **state)
{
    (void)state;
    succeeds("selftest --device cpu:1 --op relu2 --seed 7");
    assert_memory_equal(out, "selftest: cpu:1 (", strlen("selftest: cpu:1 ("));
    prints("), seed 7\n");
    prints(" cases of 1 op on cpu:1 in ");
    prints(" s, seed 7: all passed\n");
    succeeds("selftest --op relu2 --seed 7 --expand relu2,relu");
    prints("all passed");
    succeeds("selftest -d cpu:1 --op=relu2 -s 7 -v");
    prints("\nrelu2 ");
    prints(" 0 failures  worst error ");
    succeeds("selftest --op relu2 --verbose");
    prints("selftest: cpu (");
    prints("seed ");
    succeeds("selftest --op relu2 --seed=7 --json");
    prints_json();
    prints("\"seed\": 7");
    prints("\"op\": \"relu2\"");
    prints("\"failed\": []");
    prints("\"commit\"");
}

/* Returns the number after the text in the output. */
static long number_after(const char *text)
{
    const char *found = strstr(out, text);
    if (!found)
        fail_msg("'%s' is missing in:\n%s", text, out);
    return strtol(found + strlen(text), NULL, 10);
}

/* --sample takes a number of cases, or a percentage of the listed ones. */
static void test_selftest_samples(void **state)
{
    (void)state;
    succeeds("selftest --list");
    const long all = number_after("\nadd ");
    succeeds("selftest --op add --seed 7 --sample 25% --json");
    const long quarter = number_after("\"sample\": "), ran = number_after("\"cases\": ");
    assert_int_equal(quarter, (all + 3) / 4);
    assert_in_range(ran, 1, all - 1);
    succeeds("selftest --op add --seed 7 --sample 1% --json");
    assert_int_equal(number_after("\"sample\": "), (all + 99) / 100);
    succeeds("selftest --op add --seed 7 --sample 100% --json");
    assert_int_equal(number_after("\"cases\": "), all);
    char command[64];
    snprintf(command, sizeof command, "selftest --op add --seed 7 --sample %ld --json", quarter);
    succeeds(command);
    assert_int_equal(number_after("\"cases\": "), ran); /* the same cases */
}

/* Each run draws its own seed unless --seed is given. */
static void test_selftest_seeds_differ(void **state)
{
    (void)state;
    unsigned long long seed[2];
    for (int i = 0; i < 2; i++) {
        succeeds("selftest --op neg");
        const char *found = strstr(out, "seed ");
        assert_non_null(found);
        seed[i] = strtoull(found + strlen("seed "), NULL, 10);
    }
    assert_true(seed[0] != seed[1]);
}

/* --distort makes results wrong, so the selftest must fail and print how to repeat the case. */
static void test_selftest_failures(void **state)
{
    (void)state;
    assert_int_equal(run("selftest --op relu2 --seed 7 --distort 0.01"), 1);
    prints("failed: relu2, ");
    prints("repeat with: weft selftest --device cpu --op relu2 --seed 7");
    prints("more times; -v shows all\n");
    prints(" failures in 1 op\n");
    assert_non_null(strstr(err, "weft selftest: "));
    assert_non_null(strstr(err, " failures on cpu\n"));
    assert_int_equal(run("selftest --op relu2 --seed 7 --distort 1e-2 -v"), 1);
    assert_null(strstr(out, "more times"));
    assert_int_equal(run("selftest --op relu2 --seed 7 --distort .01 --json"), 1);
    prints_json();
    prints("\"relu2, variant ");
}

/* ---- plan ---- */

static void test_plan(void **state)
{
    (void)state;
    succeeds("plan");
    prints("gpt2-124M");
    succeeds("plan tiny --batch 2");
    prints("tiny, a training step of 2 x 64 tokens in f32, on cpu\n");
    prints("activations");
    prints(" FLOP/byte\n");
    assert_null(strstr(out, "passes:"));
    succeeds("plan tiny --batch 2 --explain --recompute 1 --precision bf16");
    prints("\npasses:\n");
    prints("linear + gelu ");
    prints("nodes recomputed");
    prints("memory over time");
    prints("peak at step ");
    prints("\ncost by op");
    succeeds("plan tiny --batch 2 --explain --expand rms_norm");
    prints("expanded into ops that cpu has kernels for (cost before fold and fuse):\n  rms_norm ");
    succeeds("plan tiny -b 2 -f decode --json");
    prints_json();
    prints("\"lower_bound\"");
    succeeds("plan tiny -b 2 -w all --json");
    prints_json();
}

/* --explain and --json name exactly the types that only generic kernels read. */
static void test_plan_generic(void **state)
{
    (void)state;
    char args[256], path[64], note[64];
    snprintf(path, sizeof path, "%s/q", folder);
    for (wf_type type = WF_BLOCK_FIRST; type < WF_TYPE_COUNT; type++) {
        const char *name = wf_type_name(type);
        const bool generic = wf_type_get(type)->generic;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f,
                "weft-graph 1\nstreams 0\n"
                "%%0 = input(\"x\") type=f32 dims=[4,256] -> f32[4,256]\n"
                "%%1 = state(\"w\") type=%s dims=[64,256] -> %s[64,256]\n"
                "%%2 = linear(%%0, %%1) -> f32[4,64]\n"
                "output \"y\" = %%2\nend\n",
                name, name);
        fclose(f);
        snprintf(args, sizeof args, "plan %s --explain", path);
        snprintf(note, sizeof note, "note: %s has no dedicated kernel", name);
        succeeds(args);
        assert_int_equal(strstr(out, note) != NULL, generic);
        snprintf(args, sizeof args, "plan %s --json; rm %s", path, path);
        snprintf(note, sizeof note, "\"generic_types\": [\n      \"%s\"\n    ]", name);
        succeeds(args);
        prints_json();
        prints(generic ? note : "\"generic_types\": []");
    }
}

/* The graph after all passes can be read as text and planned again. */
static void test_plan_files(void **state)
{
    (void)state;
    char args[512];
    snprintf(args, sizeof args,
             "plan tiny -b 2 --text %s/t --dot %s/d --svg %s/s && \"$WEFT_PROGRAM\" plan %s/t && "
             "cat %s/d %s/s; rm %s/[tds]",
             folder, folder, folder, folder, folder, folder, folder);
    succeeds(args);
    prints("/t, on cpu\n");
    prints("digraph");
    prints("</svg>");
    snprintf(
        args, sizeof args,
        "plan tiny >%s/o; ln -s o %s/l && \"$WEFT_PROGRAM\" plan tiny --text %s/l --overwrite && "
        "test -h %s/l && cat %s/o; rm %s/[ol]",
        folder, folder, folder, folder, folder, folder);
    succeeds(args); /* writes through a link and keeps the link */
    prints("weft-graph 1\n");
    snprintf(args, sizeof args, "plan tiny --svg %s/none/s", folder);
    assert_int_equal(run(args), 1);
    assert_non_null(strstr(err, "weft plan: cannot create "));
    /* Writes the target of a dangling link and keeps the link. */
    snprintf(args, sizeof args,
             "plan tiny --text %s/link && test -L %s/link && head -1 %s/t; rm %s/link %s/t", folder,
             folder, folder, folder, folder);
    char link[64];
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("t", link), 0);
    succeeds(args);
    prints("weft-graph 1");
    assert_int_equal(symlink("/dev/full", link), 0);
    snprintf(args, sizeof args, "plan tiny --svg %s/link", folder);
    assert_int_equal(run(args), 1);
    assert_non_null(strstr(err, "weft plan: cannot write "));
    assert_int_equal(unlink(link), 0);
    snprintf(args, sizeof args, "plan %s/bad; rm %s/bad", folder, folder);
    char path[64];
    snprintf(path, sizeof path, "%s/bad", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("weft-graph 1\n%0 = nonsense()\n", f);
    fclose(f);
    run(args);
    assert_non_null(strstr(err, "weft plan: "));
    assert_non_null(strstr(err, "line 2"));
    assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
}

static int make_folder(void **state)
{
    (void)state;
    if (!getenv("WEFT_PROGRAM")) {
        print_error("WEFT_PROGRAM must hold the path of the program; ctest sets it\n");
        return -1;
    }
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_json_check),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_no_command),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_plugin),
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_each_op),
        cmocka_unit_test(test_ops_json),
        cmocka_unit_test(test_selftest),
        cmocka_unit_test(test_selftest_samples),
        cmocka_unit_test(test_selftest_seeds_differ),
        cmocka_unit_test(test_selftest_failures),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plan_generic),
        cmocka_unit_test(test_plan_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
