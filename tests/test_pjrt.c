/* SPDX-License-Identifier: MIT */
/*
 * test_pjrt.c: the pjrt device, with a mock plugin for all that can go wrong, and with a real one
 * (WEFT_PJRT_PLUGIN, or what tools/fetch_pjrt.sh brought) for what it computes. Without a real one
 * the latter tests are skipped and say so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/pjrt/pjrt.h"
#include "selftest/selftest.h"
#include "support.h"

/* ---- The mock ---- */

static const char *const controls[] = {"MOCK_MAJOR",   "MOCK_MINOR", "MOCK_GROWN",     "MOCK_SHORT",
                                       "MOCK_MISSING", "MOCK_FAIL",  "MOCK_NO_DEVICE", NULL};

/* What the mock plays from now on: all else is as usual. */
static void play(const char *name, int value)
{
    char text[16];
    for (int i = 0; controls[i]; i++)
        unsetenv(controls[i]);
    snprintf(text, sizeof text, "%d", value);
    if (name)
        setenv(name, text, 1);
}

static const char *mock_spec(void)
{
    static char spec[1024];
    const char *path = getenv("WEFT_TEST_MOCK_PJRT");
    if (!path)
        fail_msg("WEFT_TEST_MOCK_PJRT does not say where the mock is");
    snprintf(spec, sizeof spec, "pjrt:%s", path ? path : "");
    return spec;
}

/* Objects of the mock that nobody destroyed. */
static int live_objects(void)
{
    void *library = dlopen(mock_spec() + 5, RTLD_LAZY | RTLD_LOCAL);
    assert_non_null(library);
    int *live = dlsym(library, "mock_pjrt_live");
    assert_non_null(live);
    int n = *live;
    dlclose(library);
    return n;
}

static int setup_mock(void **state)
{
    play(NULL, 0);
    return wt_setup(state);
}

static int teardown_mock(void **state)
{
    play(NULL, 0);
    int status = wt_teardown(state);
    return live_objects() == 0 ? status : -1;
}

static wf_status open_device(wf_ctx *ctx, const char *spec)
{
    wf_device *device;
    wf_status status = wf_device_open(ctx, spec, &device);
    if (status == WF_OK)
        wf_device_close(device);
    else
        assert_null(device);
    return status;
}

/* y is x, which the mock can do; s is a state that is read, z one that nobody writes. */
static wf_status build_graph(wf_ctx *ctx, wf_graph **g)
{
    WF_TRY(wf_graph_new(ctx, g));
    wf_value *s = wf_state(*g, "s", WF_F32, 1, (int64_t[]){3});
    wf_value *x = wf_input(*g, "x", WF_F32, 1, (int64_t[]){3});
    wf_value *z = wf_state(*g, "z", WF_I32, 1, (int64_t[]){2});
    wf_output(*g, "s", s);
    wf_output(*g, "z", z);
    wf_output(*g, "y", wf_copy(*g, x));
    return WF_OK;
}

static wf_status use_exec(wf_session *session, wf_exec *exec)
{
    const float x[] = {1, 2, 3}, s[] = {4, 5, 6};
    float y[3] = {0}, read[3] = {0};
    WF_TRY(wf_session_write(session, "s", s, sizeof s));
    WF_TRY(wf_exec_write(exec, "x", x, sizeof x));
    WF_TRY(wf_exec_run(exec));
    WF_TRY(wf_exec_run(exec));
    WF_TRY(wf_exec_read(exec, "y", y, sizeof y));
    WF_TRY(wf_session_read(session, "s", read, sizeof read));
    assert_memory_equal(x, y, sizeof x);
    assert_memory_equal(s, read, sizeof s);
    WF_TRY(wf_exec_read(exec, "z", y, 8));
    assert_true(y[0] == 0 && y[1] == 0);
    return WF_OK;
}

/* From opening the device to reading a result; everything is freed, whatever happens. */
static wf_status use_device(wf_ctx *ctx, const char *spec)
{
    wf_device *device = NULL;
    wf_session *session = NULL;
    wf_graph *g = NULL;
    wf_exec *exec = NULL;
    wf_status status = wf_device_open(ctx, spec, &device);
    if (status == WF_OK)
        status = wf_session_new(device, &session);
    if (status == WF_OK)
        status = build_graph(ctx, &g);
    if (status == WF_OK)
        status = wf_compile(session, g, &exec);
    if (status == WF_OK)
        status = use_exec(session, exec);
    wf_graph_free(g);
    wf_exec_free(exec);
    wf_session_free(session);
    wf_device_close(device);
    return status;
}

static void test_no_plugin(void **state)
{
    const char *named = getenv("WEFT_PJRT_PLUGIN");
    char *kept = named ? strdup(named) : NULL;
    unsetenv("WEFT_PJRT_PLUGIN");
    wt_fails(*state, open_device(*state, "pjrt"), WF_ERR_USAGE, "WEFT_PJRT_PLUGIN");
    setenv("WEFT_PJRT_PLUGIN", mock_spec() + 5, 1);
    wt_ok(*state, open_device(*state, "pjrt"));
    if (kept)
        setenv("WEFT_PJRT_PLUGIN", kept, 1);
    else
        unsetenv("WEFT_PJRT_PLUGIN");
    free(kept);
}

static void test_not_a_plugin(void **state)
{
    wf_ctx *ctx = *state;
    wt_fails(ctx, open_device(ctx, "pjrt:/nowhere/plugin.so"), WF_ERR_IO, "/nowhere/plugin.so: ");
    wt_fails(ctx, open_device(ctx, "pjrt:tests/test_pjrt.c"), WF_ERR_IO, "tests/test_pjrt.c");
    wt_fails(ctx, open_device(ctx, "pjrt:libm.so.6"), WF_ERR_FORMAT, "is no PJRT plugin");
    play("MOCK_MAJOR", 1);
    wt_fails(ctx, open_device(ctx, mock_spec()), WF_ERR_UNSUPPORTED, "speaks PJRT 1.81");
    play("MOCK_NO_DEVICE", 1);
    wt_fails(ctx, open_device(ctx, mock_spec()), WF_ERR_DEVICE, "has no device here");
}

/* The mock takes structs of one size only, the one of its version. */
static void test_versions(void **state)
{
    static const int minors[] = {0, 45, 46, 60, 61, 64, 76, 77, 78, 96, 97, 108, 111, 112, 130};
    for (size_t i = 0; i < sizeof minors / sizeof *minors; i++) {
        play("MOCK_MINOR", minors[i]);
        wt_ok(*state, use_device(*state, mock_spec()));
    }
}

/* A version to come, whose structs are longer. */
static void test_grown(void **state)
{
    static const int grown[] = {1, 8, 64, 120};
    for (size_t i = 0; i < sizeof grown / sizeof *grown; i++) {
        play("MOCK_GROWN", grown[i]);
        wt_ok(*state, use_device(*state, mock_spec()));
    }
    play("MOCK_GROWN", 4096);
    wt_fails(*state, use_device(*state, mock_spec()), WF_ERR_DEVICE, "size: expected 4112");
}

/* Functions that the device calls and whose failure it can hear of. */
static const int called[] = {
    PJRT_PLUGIN_INITIALIZE, PJRT_CLIENT_CREATE,  PJRT_CLIENT_PLATFORM_NAME,
    PJRT_CLIENT_DEVICES,    PJRT_CLIENT_COMPILE, PJRT_CLIENT_FROM_HOST,
    PJRT_EXECUTE,           PJRT_BUFFER_TO_HOST, PJRT_EVENT_AWAIT,
};
#define CALLED (sizeof called / sizeof *called)

static void test_failures(void **state)
{
    for (size_t i = 0; i < CALLED; i++) {
        char part[64];
        snprintf(part, sizeof part, ": Function %d was told to fail. It did", called[i]);
        play("MOCK_FAIL", called[i]);
        wt_fails(*state, use_device(*state, mock_spec()), WF_ERR_DEVICE, part);
        snprintf(part, sizeof part, "lacks function %d ", called[i]);
        play("MOCK_MISSING", called[i]);
        wt_fails(*state, open_device(*state, mock_spec()), WF_ERR_UNSUPPORTED, part);
        play("MOCK_SHORT", called[i]);
        wt_fails(*state, open_device(*state, mock_spec()), WF_ERR_UNSUPPORTED, "lacks function ");
    }
}

/* Every allocation fails once; teardown sees what is left. */
static void test_no_memory(void **state)
{
    wf_status status = WF_ERR_MEMORY;
    int n = 0;
    while (status != WF_OK) {
        wf_ctx_fail_allocation(*state, (uint64_t)++n);
        status = use_device(*state, mock_spec());
        wf_ctx_fail_allocation(*state, 0);
        if (status != WF_OK)
            assert_int_equal(status, WF_ERR_MEMORY);
        assert_int_equal(wt_live_blocks(*state), 0);
        assert_int_equal(live_objects(), 0);
    }
    assert_true(n > 20);
}

/* ---- A real plugin ---- */

/* NULL when there is none. */
static const char *real_spec(void)
{
    static char spec[1024];
    const char *path = getenv("WEFT_PJRT_PLUGIN");
    if (!path)
        path = getenv("WEFT_TEST_PJRT");
    if (!path || access(path, R_OK) != 0)
        return NULL;
#ifdef __SANITIZE_ADDRESS__
    return NULL; /* XLA's compiler loses some memory of its own, which would count as ours */
#endif
    snprintf(spec, sizeof spec, "pjrt:%s", path);
    return spec;
}

#define need_plugin(spec)                                                              \
    const char *spec = real_spec();                                                    \
    if (!spec) {                                                                       \
        print_message("skipped: there is no PJRT plugin, or it cannot be run here\n"); \
        skip();                                                                        \
    }

/* Pages of keys are filled in place: the array stays where it is. */
static uintptr_t address_of(wt_run *r, int index)
{
    wf_pjrt_device *d = (wf_pjrt_device *)r->device;
    wf_pjrt_buffer *b = (wf_pjrt_buffer *)r->session->states[index]->buffer;
    pjrt_pointer_args args = {.buffer = b->handle};
    wt_ok(r->ctx, wf_pjrt_call(&d->plugin, PJRT_BUFFER_POINTER, &args, pointer, "find an array"));
    return args.pointer;
}

static void test_in_place(void **state)
{
    need_plugin(spec);
    enum { PAGES = 64, PAGE = 16, HEADS = 2, WIDTH = 8, COUNT = PAGES * PAGE * HEADS * WIDTH };
    wt_run r = wt_open(*state, spec);
    wf_graph *g;
    wt_ok(*state, wf_graph_new(*state, &g));
    wf_value *pool = wf_state(g, "pool", WF_F32, 4, (int64_t[]){PAGES, PAGE, HEADS, WIDTH});
    wf_kv_append(g, pool, wf_input(g, "x", WF_F32, 3, (int64_t[]){1, HEADS, WIDTH}),
                 wf_input(g, "start", WF_I32, 1, (int64_t[]){2}),
                 wf_input(g, "position", WF_I32, 1, (int64_t[]){1}),
                 wf_input(g, "table", WF_I32, 2, (int64_t[]){1, 2}));
    wt_compile(&r, g);
    float x[HEADS * WIDTH], all[COUNT], zeros[COUNT] = {0};
    for (int i = 0; i < HEADS * WIDTH; i++)
        x[i] = (float)i + 1;
    wt_ok(*state, wf_session_write(r.session, "pool", zeros, sizeof zeros));
    wt_write(&r, "x", x, sizeof x);
    wt_write(&r, "start", (int32_t[]){0, 1}, 8);
    wt_write(&r, "table", (int32_t[]){5, 3}, 8);
    uintptr_t first = address_of(&r, 0);
    for (int32_t p = 14; p < 18; p++) {
        wt_write(&r, "position", &p, sizeof p);
        wt_ok(*state, wf_exec_run(r.exec));
        assert_true(address_of(&r, 0) == first);
    }
    wt_ok(*state, wf_session_read(r.session, "pool", all, sizeof all));
    for (int i = 0; i < COUNT; i++) {
        int slot = i / (HEADS * WIDTH);
        bool filled = slot == 5 * PAGE + 14 || slot == 5 * PAGE + 15 || slot / 2 == 3 * PAGE / 2;
        assert_true(all[i] == (filled ? x[i % (HEADS * WIDTH)] : 0));
    }
    wt_close(&r);
}

/* Casts round, also where a compiler would rather keep more digits than the type has. */
static void test_rounds(void **state)
{
    static const wf_type types[] = {WF_BF16, WF_F16};
    need_plugin(spec);
    const float x[] = {1.0001f, 3.14159265f, -2.7182818f, 100.7f};
    for (int t = 0; t < 2; t++) {
        wt_run r = wt_open(*state, spec);
        wf_graph *g;
        wt_ok(*state, wf_graph_new(*state, &g));
        wf_value *narrow = wf_cast(g, wf_input(g, "x", WF_F32, 1, (int64_t[]){4}), types[t]);
        wf_output(g, "y", wf_scale(g, wf_cast(g, narrow, WF_F32), 2));
        wt_compile(&r, g);
        wt_write(&r, "x", x, sizeof x);
        wt_ok(*state, wf_exec_run(r.exec));
        float y[4], want[4];
        uint16_t bits[4];
        wt_read(&r, "y", y, sizeof y);
        wt_ok(*state, wf_type_from_f32(*state, types[t], x, bits, 4));
        wt_ok(*state, wf_type_to_f32(*state, types[t], bits, want, 4));
        for (int i = 0; i < 4; i++)
            assert_true(y[i] == 2 * want[i]);
        wt_close(&r);
    }
}

/* Sessions that come and go with the same graph compile it once. */
static void test_compiles_once(void **state)
{
    need_plugin(spec);
    wf_device *device;
    wt_ok(*state, wf_device_open(*state, spec, &device));
    const wf_pjrt_program *first = NULL;
    for (int i = 0; i < 3; i++) {
        float y;
        wf_tensor in = {.type = WF_F32, .data = &(float){(float)i}}, out = {.data = &y};
        wt_ok(*state, wf_call_op(device, "neg", "", &in, 1, &out, 1));
        assert_true(y == (float)-i);
        const wf_pjrt_device *d = (const wf_pjrt_device *)device;
        first = first ? first : d->programs;
        assert_ptr_equal(d->programs, first);
        assert_null(first->next);
    }
    wf_device_close(device);
}

static void tell_failure(void *user, const char *sentence)
{
    (void)user;
    print_error("%s\n", sentence);
}

/* Some ops of each kind; `weft selftest --device pjrt:PLUGIN` takes its time for all of them. */
static void test_ops(void **state)
{
    static const char *const ops[] = {"erf",    "maximum",   "where", "uniform",          "cast",
                                      "max",    "argmax",    "top_k", "scatter_add_rows", "linear",
                                      "assign", "kv_append", "state"};
    need_plugin(spec);
    int cases = 0, failures = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        wf_selftest_options o = {
            .device = spec, .op = ops[i], .seed = wt_seed(), .on_failure = tell_failure};
        wf_selftest_report *report;
        wt_ok(*state, wf_selftest_run(*state, &o, &report));
        cases += report->cases;
        failures += report->failures;
        wf_selftest_report_free(report);
    }
    print_message("%d cases on %s\n", cases, spec);
    assert_int_equal(failures, 0);
}

#define mock_test(fn) cmocka_unit_test_setup_teardown(fn, setup_mock, teardown_mock)

int main(void)
{
    const struct CMUnitTest tests[] = {
        mock_test(test_no_plugin), mock_test(test_not_a_plugin), mock_test(test_versions),
        mock_test(test_grown),     mock_test(test_failures),     mock_test(test_no_memory),
        wt_test(test_in_place),    wt_test(test_rounds),         wt_test(test_compiles_once),
        wt_test(test_ops),
    };
    return cmocka_run_group_tests_name("pjrt", tests, NULL, NULL);
}
