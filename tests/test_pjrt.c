/* SPDX-License-Identifier: MIT */
/*
 * test_pjrt.c - the pjrt device with a mock plugin: every failure of the plugin, and counts of
 * compilations, donations and live objects. test_pjrt_real.c uses a real plugin.
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
#include "mock_pjrt.h"
#include "pjrt_support.h"
#include "support.h"

/* ---- The mock ---- */

static const char *const controls[] = {
    "MOCK_MAJOR",     "MOCK_MINOR",    "MOCK_GROWN",  "MOCK_SHORT", "MOCK_MISSING", "MOCK_FAIL",
    "MOCK_NO_DEVICE", "MOCK_AT_LEAST", "MOCK_MEMORY", "MOCK_EATS",  "MOCK_REFUSES", NULL};

static void play_also(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Sets one control of the mock and resets all others. */
static void play(const char *name, int value)
{
    for (int i = 0; controls[i]; i++)
        unsetenv(controls[i]);
    if (name)
        play_also(name, value);
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

/* The library stays loaded, like every plugin. */
static void *mock_symbol(const char *name)
{
    void *library = dlopen(mock_spec() + 5, RTLD_LAZY | RTLD_LOCAL);
    assert_non_null(library);
    void *address = dlsym(library, name);
    assert_non_null(address);
    dlclose(library);
    return address;
}

static mock_counts counts(void)
{
    return *(mock_counts *)mock_symbol("mock_pjrt_count");
}

/* Objects of the mock that were not destroyed. */
static int live_objects(void)
{
    return counts().live;
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

/* y = x, which the mock can execute; s is a state that is read, z one that is never written. */
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

/* Opens the device, runs a graph and reads the result. Frees everything, also after a failure. */
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

/* Programs read quantized states dequantized, and never return them. */
static void test_no_program(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wf_session *session;
    wf_exec *exec = NULL;
    wf_graph *g;
    wt_ok(ctx, wf_device_open(ctx, mock_spec(), &device));
    wt_ok(ctx, wf_session_new(device, &session));
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wf_value *w = wf_state(g, "w", WF_Q4_0, 2, (int64_t[]){3, 64});
    wf_output(g, "y", wf_copy(g, w));
    wt_fails(ctx, wf_compile(session, g, &exec), WF_ERR_UNSUPPORTED,
             "device pjrt: output 'y' is q4_0");
    assert_null(exec);
    wf_graph_free(g);
    wf_session_free(session);
    wf_device_close(device);
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
    wt_fails(ctx, open_device(ctx, "pjrt:libm.so.6"), WF_ERR_FORMAT,
             "the library libm.so.6 is not a PJRT plugin: it has no GetPjrtApi");
    play("MOCK_MAJOR", 1);
    wt_fails(ctx, open_device(ctx, mock_spec()), WF_ERR_UNSUPPORTED,
             "implements PJRT 1.81, but this build supports 0.x");
    play("MOCK_NO_DEVICE", 1);
    wt_fails(ctx, open_device(ctx, mock_spec()), WF_ERR_DEVICE,
             "the mock plugin found no device on this machine");
}

/* The mock accepts structs of its version's size only, or longer ones too. The device's size tables
 * match, so the mock refuses nothing. */
static void test_versions(void **state)
{
    static const int minors[] = {0,  45, 46, 60, 61,  64,  70,  71,  76,
                                 77, 78, 96, 97, 108, 110, 111, 112, 130};
    char folder[1024];
    int refusals = counts().refusals;
    for (size_t i = 0; i < sizeof minors / sizeof *minors; i++) {
        wt_make_cache(folder, sizeof folder); /* for the second run to load from */
        play("MOCK_MINOR", minors[i]);
        wt_ok(*state, use_device(*state, mock_spec()));
        wt_ok(*state, use_device(*state, mock_spec()));
        play_also("MOCK_AT_LEAST", 1);
        wt_ok(*state, use_device(*state, mock_spec()));
        wt_remove_cache(folder);
        assert_int_equal(counts().refusals, refusals);
    }
    unsetenv("WEFT_CACHE");
}

/* A future version, whose structs are longer. */
static void test_grown(void **state)
{
    static const int grown[] = {1, 8, 64, 120};
    for (size_t i = 0; i < sizeof grown / sizeof *grown; i++) {
        play("MOCK_GROWN", grown[i]);
        wt_ok(*state, use_device(*state, mock_spec()));
        play_also("MOCK_AT_LEAST", 1);
        wt_ok(*state, use_device(*state, mock_spec()));
    }
    play("MOCK_GROWN", 4096);
    wt_fails(*state, use_device(*state, mock_spec()), WF_ERR_DEVICE, "size: expected 4112");
}

/* Functions that the device calls and whose failure it can report. */
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
        snprintf(part, sizeof part, ": Function %d fails by request. It did", called[i]);
        play("MOCK_FAIL", called[i]);
        wt_fails(*state, use_device(*state, mock_spec()), WF_ERR_DEVICE, part);
        snprintf(part, sizeof part, "lacks function %d ", called[i]);
        play("MOCK_MISSING", called[i]);
        wt_fails(*state, open_device(*state, mock_spec()), WF_ERR_UNSUPPORTED, part);
        play("MOCK_SHORT", called[i]);
        wt_fails(*state, open_device(*state, mock_spec()), WF_ERR_UNSUPPORTED, "lacks function ");
    }
}

/* Everything still works when these functions are missing or fail. */
static void test_optional(void **state)
{
    static const int optional[] = {PJRT_CLIENT_PLATFORM_VERSION,
                                   PJRT_DEVICE_DESCRIPTION,
                                   PJRT_DESCRIPTION_KIND,
                                   PJRT_EXECUTABLE_DESTROY,
                                   PJRT_EXECUTABLE_SERIALIZE,
                                   PJRT_LOADED_EXECUTABLE,
                                   PJRT_LOAD,
                                   PJRT_BUFFER_IS_DELETED,
                                   PJRT_EXECUTABLE_MEMORY};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        play("MOCK_MISSING", optional[i]);
        wt_ok(*state, use_device(*state, mock_spec()));
        play("MOCK_FAIL", optional[i]);
        wt_ok(*state, use_device(*state, mock_spec()));
    }
    play("MOCK_SHORT", PJRT_EXECUTABLE_MEMORY);
    wt_ok(*state, use_device(*state, mock_spec()));
}

static void test_options(void **state)
{
    static const struct {
        const char *given, *got;
        bool refuses; /* the plugin does not know the option preallocate */
    } cases[] = {
        {"", "preallocate=no;", false},
        {"", "", true},
        {",preallocate=true", "preallocate=yes;", false},
        {",memory_fraction=0.5,a=-3,b=bfc", "memory_fraction=0.500;a=-3;b=bfc;preallocate=no;",
         false},
        {",visible_devices=[7,8,9],x=true", "visible_devices=3 from 7 on;x=yes;", true},
        {",x=1.0,y=[2]", "x=1.000;y=1 from 2 on;preallocate=no;", false},
        {",path=/a=b:c", "path=/a=b:c;preallocate=no;", false},
    };
    static const char *const malformed[] = {",",     ",x",      ",x=",   ",=1",     ",x=1,",
                                            ",x=[]", ",x=[1,]", ",x=[1", ",x=[1]2", ",x=[a]"};
    char spec[1200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(spec, sizeof spec, "%s%s", mock_spec(), cases[i].given);
        play(cases[i].refuses ? "MOCK_REFUSES" : NULL, 1);
        wt_ok(*state, open_device(*state, spec));
        assert_string_equal(mock_symbol("mock_pjrt_options"), cases[i].got);
    }
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        snprintf(spec, sizeof spec, "%s%s", mock_spec(), malformed[i]);
        wt_fails(*state, open_device(*state, spec), WF_ERR_USAGE,
                 "of the pjrt plugin; use name=value");
    }
    wt_fails(*state, open_device(*state, "pjrt:,x=1"), WF_ERR_USAGE,
             "pjrt options ',x=1' do not begin with the path of a plugin");
    snprintf(spec, sizeof spec, "%s,xyzzy=1", mock_spec());
    wt_fails(*state, open_device(*state, spec), WF_ERR_DEVICE, "Client_Create: xyzzy");
    play("MOCK_REFUSES", 1);
    snprintf(spec, sizeof spec, "%s,preallocate=true", mock_spec());
    wt_fails(*state, open_device(*state, spec), WF_ERR_DEVICE, "Client_Create: preallocate");
}

/* ---- Programs and arrays ---- */

/* s becomes x, t is only read; the mock leaves s unchanged. */
static wf_graph *update_graph(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *s = wf_state(g, "s", WF_F32, 1, (int64_t[]){3});
    wf_value *t = wf_state(g, "t", WF_F32, 1, (int64_t[]){3});
    wf_output(g, "t", t);
    wf_assign(g, s, wf_input(g, "x", WF_F32, 1, (int64_t[]){3}), NULL);
    return g;
}

static const float ones[] = {1, 1, 1}, twos[] = {2, 2, 2};

static wt_run open_update(wf_ctx *ctx)
{
    wt_run r = wt_open(ctx, mock_spec());
    wt_compile(&r, update_graph(ctx));
    wt_set_state(&r, "s", ones, 3);
    wt_set_state(&r, "t", twos, 3);
    wt_write(&r, "x", twos, sizeof twos);
    return r;
}

static void test_compiles_once(void **state)
{
    wf_device *device;
    int before = counts().compiles;
    wt_ok(*state, wf_device_open(*state, mock_spec(), &device));
    for (int i = 0; i < 3; i++) {
        wt_run r = {.ctx = *state, .device = device};
        wt_ok(*state, wf_session_new(device, &r.session));
        wt_compile(&r, update_graph(*state));
        wf_exec_free(r.exec);
        wf_session_free(r.session);
        assert_int_equal(counts().compiles, before + 1);
    }
    wt_ok(*state, open_device(*state, mock_spec()));
    wf_device_close(device);
}

/* The cache keeps the 64 latest unused programs. */
static void test_idle_programs(void **state)
{
    wf_device *device;
    wt_ok(*state, wf_device_open(*state, mock_spec(), &device));
    int before = live_objects();
    for (int64_t i = 1; i <= 70; i++) {
        wt_run r = {.ctx = *state, .device = device};
        wf_graph *g = wt_graph(*state);
        wf_output(g, "y", wf_copy(g, wf_input(g, "x", WF_F32, 1, &i)));
        wt_ok(*state, wf_session_new(device, &r.session));
        wt_compile(&r, g);
        wf_exec_free(r.exec);
        wf_session_free(r.session);
    }
    assert_int_equal(live_objects(), before + 64);
    wf_device_close(device);
}

/* Only states that the graph writes are donated, in every run. */
static void test_donation(void **state)
{
    wt_run r = open_update(*state);
    int before = counts().donations;
    for (int i = 1; i <= 3; i++) {
        wt_run_once(&r);
        assert_int_equal(counts().donations, before + i);
        wt_expect_state(&r, "s", ones, 3);
        wt_expect_state(&r, "t", twos, 3);
    }
    wt_close(&r);
}

/* A failed run leaves states unchanged, or marks them as lost until they are written. */
static void test_failed_run(void **state)
{
    float read[3];
    wt_run r = open_update(*state);
    wt_run_once(&r);
    play("MOCK_FAIL", PJRT_EXECUTE);
    wt_ok(*state, open_device(*state, mock_spec())); /* the mock rereads its controls */
    wt_fails(*state, wf_exec_run(r.exec), WF_ERR_DEVICE, "pjrt could not run a program: Function");
    wt_fails(*state, wf_exec_read(r.exec, "t", read, sizeof read), WF_ERR_DEVICE,
             "output 't' is not available: the last run failed");
    wt_expect_state(&r, "s", ones, 3);
    wt_expect_state(&r, "t", twos, 3);

    play("MOCK_EATS", 1);
    wt_ok(*state, open_device(*state, mock_spec()));
    wt_fails(*state, wf_exec_run(r.exec), WF_ERR_DEVICE, "The run fails by request");
    wt_expect_state(&r, "t", twos, 3);
    wt_fails(*state, wf_session_read(r.session, "s", read, sizeof read), WF_ERR_DEVICE,
             "lost an array of 12 bytes");
    play(NULL, 0);
    wt_ok(*state, open_device(*state, mock_spec()));
    wt_fails(*state, wf_exec_run(r.exec), WF_ERR_DEVICE,
             "pjrt lost an array of 12 bytes in a failed run; write it again");
    wt_set_state(&r, "s", ones, 3);
    wt_run_once(&r);
    wt_expect_state(&r, "s", ones, 3);
    wt_close(&r);
}

/* y = x. */
static wf_graph *copy_graph(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    wf_output(g, "y", wf_copy(g, wf_input(g, "x", WF_F32, 1, (int64_t[]){3})));
    return g;
}

/* Inputs and outputs are arrays: each executable keeps its own. */
static void test_shared_ports_change_nothing(void **state)
{
    wf_memory memory;
    wf_exec *other;
    wt_run r = wt_open(*state, mock_spec());
    wf_session_share_ports(r.session);
    wt_compile(&r, copy_graph(*state));
    wf_graph *g = copy_graph(*state);
    wt_ok(*state, wf_compile(r.session, g, &other));
    wf_graph_free(g);
    wt_write(&r, "x", ones, sizeof ones);
    wt_run_once(&r);
    wt_ok(*state, wf_exec_write(other, "x", twos, sizeof twos));
    wt_ok(*state, wf_exec_run(other));
    wt_expect(&r, "y", {1, 1, 1});
    wt_run_once(&r); /* its input was not overwritten */
    wt_expect(&r, "y", {1, 1, 1});
    wf_exec_memory(r.exec, &memory);
    assert_int_equal(memory.ports, 24);
    wf_exec_free(other);
    wt_close(&r);
}

/* PJRT copies whole arrays: ranges of an output come from one copy per run. */
static void test_ranges(void **state)
{
    wf_run_stats stats;
    char part[8];
    wt_run r = wt_open(*state, mock_spec());
    wt_compile(&r, copy_graph(*state));
    wt_write(&r, "x", ones, sizeof ones);
    wt_fails(*state, wf_exec_read_at(r.exec, "y", 0, part, 4), WF_ERR_USAGE, "first run");
    for (uint64_t run = 1; run <= 3; run++) {
        const float x[] = {(float)run, 5, 7};
        wt_write(&r, "x", x, sizeof x);
        wt_run_once(&r);
        for (size_t from = 0; from <= 12; from += 3) {
            size_t n = 12 - from < 8 ? 12 - from : 8;
            wt_ok(*state, wf_exec_read_at(r.exec, "y", from, part, n));
            assert_memory_equal(part, (const char *)x + from, n);
        }
        wf_exec_stats(r.exec, &stats);
        assert_int_equal(stats.bytes_out, 12 * run);
    }
    wt_fails(*state, wf_exec_read_at(r.exec, "y", 10, part, 4), WF_ERR_USAGE,
             "4 bytes at byte 10 are outside output 'y', which has 12 bytes");
    wt_run_once(&r);
    play("MOCK_FAIL", PJRT_BUFFER_TO_HOST);
    wt_ok(*state, open_device(*state, mock_spec())); /* the mock rereads its controls */
    wt_fails(*state, wf_exec_read_at(r.exec, "y", 4, part, 4), WF_ERR_DEVICE, "could not copy");
    wt_fails(*state, wf_exec_read_at(r.exec, "y", 4, part, 4), WF_ERR_DEVICE, "not available");
    wt_close(&r);
}

/* A part of a state would need a copy of the whole array for every call. */
static void test_ranges_of_states(void **state)
{
    float read[3];
    wt_run r = open_update(*state);
    wt_fails(*state, wf_session_read_at(r.session, "t", 4, read, 4), WF_ERR_UNSUPPORTED,
             "pjrt can copy only whole arrays, not 4 of 12 bytes");
    wt_fails(*state, wf_session_write_at(r.session, "t", 4, ones, 4), WF_ERR_UNSUPPORTED,
             "pjrt can copy only whole arrays, not 4 of 12 bytes");
    wt_expect_state(&r, "t", twos, 3);
    wt_ok(*state, wf_session_write_at(r.session, "t", 0, ones, sizeof ones));
    wt_ok(*state, wf_session_read_at(r.session, "t", 0, read, sizeof read));
    wt_floats_equal(read, ones, 3);
    wt_close(&r);
}

/* Without memory for the copy the call fails, and the output stays readable. */
static void test_ranges_without_memory(void **state)
{
    char part[4];
    wt_run r = wt_open(*state, mock_spec());
    wt_compile(&r, copy_graph(*state));
    wt_write(&r, "x", twos, sizeof twos);
    wt_run_once(&r);
    wf_ctx_fail_allocation(*state, 1);
    wt_fails(*state, wf_exec_read_at(r.exec, "y", 4, part, 4), WF_ERR_MEMORY, "out of memory");
    wf_ctx_fail_allocation(*state, 0);
    wt_ok(*state, wf_exec_read_at(r.exec, "y", 4, part, 4));
    assert_memory_equal(part, twos, 4);
    wt_close(&r);
}

static void test_out_of_memory(void **state)
{
    play("MOCK_MEMORY", 30); /* two states fit, the input does not */
    wt_run r = wt_open(*state, mock_spec());
    wt_compile(&r, update_graph(*state));
    wt_set_state(&r, "s", ones, 3);
    wt_set_state(&r, "t", twos, 3);
    wt_fails(*state, wf_exec_write(r.exec, "x", ones, sizeof ones), WF_ERR_MEMORY,
             "pjrt could not copy an array to the device: Out of memory allocating 12 bytes");
    wt_expect_state(&r, "s", ones, 3);
    wt_close(&r);
}

/* The memory account includes states, ports and, during a run, the program's scratch. */
static void test_memory(void **state)
{
    wf_memory planned, real;
    size_t bytes, peak;
    wt_run r = wt_open(*state, mock_spec());
    wf_graph *g = update_graph(*state);
    int before = counts().compiles;
    wt_ok(*state, wf_plan_memory(r.device, g, NULL, &planned));
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes + peak, 0);
    wt_compile(&r, g);
    assert_int_equal(counts().compiles, before + 1); /* one program for both */
    wf_exec_memory(r.exec, &real);
    assert_memory_equal(&planned, &real, sizeof real);
    assert_int_equal(real.states, 24);
    assert_int_equal(real.ports, 24);
    assert_int_equal(real.activations, MOCK_TEMPORARY);
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, 48);
    assert_int_equal(peak, 48);
    wt_write(&r, "x", ones, sizeof ones);
    wt_run_once(&r);
    wt_run_once(&r);
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, 48);
    assert_int_equal(peak, 48 + MOCK_TEMPORARY);
    wf_exec_free(r.exec);
    r.exec = NULL;
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, 24);
    wt_close(&r);
}

/* ---- Programs on disk ---- */

static int log_lines;
static char log_last[512];

static void keep_log(void *user, wf_log_level level, const char *message)
{
    (void)user;
    if (level < WF_LOG_WARN)
        return;
    log_lines++;
    snprintf(log_last, sizeof log_last, "%s", message);
}

/* Uses the device once and checks the number of compilations, loads and log lines. */
static void expect_use(wf_ctx *ctx, int compiles, int loads, int lines)
{
    mock_counts before = counts();
    log_lines = 0;
    wt_ok(ctx, use_device(ctx, mock_spec()));
    assert_int_equal(counts().compiles - before.compiles, compiles);
    assert_int_equal(counts().loads - before.loads, loads);
    if (log_lines != lines)
        fail_msg("%d lines in the log, not %d; the last: %s", log_lines, lines, log_last);
}

/* Changes byte `at` of the file, or truncates the file there. */
static void damage(const char *path, long at, bool cut)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    fputc(c ^ 1, f);
    fclose(f);
    if (cut)
        assert_int_equal(truncate(path, at), 0);
}

static void test_cache(void **state)
{
    char folder[1024];
    static const struct {
        long at;
        bool cut;
        const char *why;
    } faults[] = {{0, false, "has another format"},
                  {9, false, "belongs to another program"},
                  {17, false, "belongs to another program"},
                  {25, false, "truncated"},
                  {60, false, "belongs to another program"},
                  {-1, false, "damaged"},
                  {30, true, "truncated"},
                  {100, true, "truncated"}};
    wt_make_cache(folder, sizeof folder);
    wf_ctx_set_log(*state, keep_log, NULL);
    expect_use(*state, 1, 0, 0);
    expect_use(*state, 0, 1, 0);
    char path[1024];
    wt_cache_file(folder, path, sizeof path);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        damage(path, faults[i].at, faults[i].cut);
        expect_use(*state, 1, 0, 1);
        if (!strstr(log_last, faults[i].why))
            fail_msg("the log says: %s", log_last);
        expect_use(*state, 0, 1, 0); /* the file was written again */
    }
    play("MOCK_MINOR", 112); /* another version uses other files */
    expect_use(*state, 1, 0, 0);
    expect_use(*state, 0, 1, 0);
    play("MOCK_FAIL", PJRT_LOAD);
    expect_use(*state, 1, 0, 1);
    assert_non_null(strstr(log_last, "compiling again instead of loading /"));
    assert_non_null(strstr(log_last, ": pjrt could not load a program: Function"));
    wt_remove_cache(folder);

    play(NULL, 0); /* the folder is missing */
    expect_use(*state, 1, 0, 1);
    assert_non_null(strstr(log_last, "a compiled program was not cached: cannot "));
    unsetenv("WEFT_CACHE");
}

/* An allocation failure in the cache costs a compilation, or is reported. */
static void test_cache_no_memory(void **state)
{
    char folder[1024];
    wt_make_cache(folder, sizeof folder);
    for (int n = 1; n < 60; n++) {
        if (n % 2)
            expect_use(*state, n == 1, n != 1, 0);
        wf_ctx_fail_allocation(*state, (uint64_t)n);
        wf_status status = use_device(*state, mock_spec());
        wf_ctx_fail_allocation(*state, 0);
        assert_true(status == WF_OK || status == WF_ERR_MEMORY);
        assert_int_equal(wt_live_blocks(*state), 0);
        assert_int_equal(live_objects(), 0);
    }
    wt_remove_cache(folder);
    unsetenv("WEFT_CACHE");
}

/* Every allocation fails in turn; teardown finds leaks. */
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

#define mock_test(fn) cmocka_unit_test_setup_teardown(fn, setup_mock, teardown_mock)

int main(void)
{
    const struct CMUnitTest tests[] = {
        mock_test(test_no_plugin),        mock_test(test_not_a_plugin),
        mock_test(test_versions),         mock_test(test_grown),
        mock_test(test_failures),         mock_test(test_optional),
        mock_test(test_options),          mock_test(test_compiles_once),
        mock_test(test_idle_programs),    mock_test(test_donation),
        mock_test(test_failed_run),       mock_test(test_out_of_memory),
        mock_test(test_memory),           mock_test(test_cache),
        mock_test(test_cache_no_memory),  mock_test(test_no_memory),
        mock_test(test_no_program),       mock_test(test_shared_ports_change_nothing),
        mock_test(test_ranges),           mock_test(test_ranges_without_memory),
        mock_test(test_ranges_of_states),
    };
    unsetenv("WEFT_CACHE");
    return cmocka_run_group_tests_name("pjrt", tests, NULL, NULL);
}
