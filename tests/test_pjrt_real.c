/* SPDX-License-Identifier: MIT */
/*
 * test_pjrt_real.c - the pjrt device with a real plugin (WEFT_PJRT_PLUGIN, or the one of
 * tools/fetch_pjrt.sh): what it computes, and that it updates states in place. Skipped with a
 * message when there is no plugin.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/pjrt/pjrt.h"
#include "pjrt_support.h"
#include "selftest/selftest.h"
#include "support.h"

#define need_plugin(spec)                \
    const char *spec = wt_real_plugin(); \
    if (!spec)                           \
    skip()

/* ---- In place ---- */

/* Returns the address of a state's buffer. */
static uintptr_t address_of(wt_run *r, int index)
{
    wf_pjrt_device *d = (wf_pjrt_device *)r->device;
    wf_pjrt_buffer *b = (wf_pjrt_buffer *)r->session->states[index]->buffer;
    pjrt_pointer_args args = {.buffer = b->handle};
    wt_ok(r->ctx, wf_pjrt_call(&d->plugin, PJRT_BUFFER_POINTER, &args, pointer, "find an array"));
    return args.pointer;
}

/* Appending to the KV cache happens in place: the buffer keeps its address. */
static void test_appends_in_place(void **state)
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

#define MAX_STATES (3 * WT_PARAMS + 8)

/* Every parameter and moment keeps its address during training, while another executable runs on
 * the same states and the host reads them. So do states that are only read. */
static void test_trains_in_place(void **state)
{
    need_plugin(spec);
    uintptr_t first[MAX_STATES];
    float before[64], after[64];
    wt_model m;
    wt_run r = wt_open(*state, spec);
    wf_graph *g = wt_graph(*state);
    wt_forward(g, &wt_tiny, &m);
    wf_input(g, "lr", WF_F32, 0, NULL); /* not read; gives both executables the same inputs */
    wf_input(g, "step", WF_I32, 0, NULL);
    wt_compile(&r, g);
    wf_exec *forward = r.exec;
    r.exec = NULL;
    g = wt_graph(*state);
    wt_forward(g, &wt_tiny, &m);
    wt_train(g, &m);
    wt_compile(&r, g);
    wt_ok(*state, wt_write_params(r.session, &m));
    wt_ok(*state, wt_write_inputs(forward, &wt_tiny, 1));
    wt_ok(*state, wt_write_inputs(r.exec, &wt_tiny, 1));
    wt_run_once(&r); /* creates the moments */
    int states = r.session->state_count;
    assert_int_equal(states, 3 * m.count);
    for (int i = 0; i < states; i++)
        first[i] = address_of(&r, i);
    size_t bytes = (size_t)(m.elements[0] < 64 ? m.elements[0] : 64) * sizeof(float);
    float *all = malloc((size_t)m.elements[0] * sizeof *all);
    assert_non_null(all);
    for (int32_t step = 2; step < 5; step++) {
        wt_ok(*state, wf_session_read(r.session, m.name[0], all, (size_t)m.elements[0] * 4));
        memcpy(before, all, bytes);
        wt_ok(*state, wf_exec_run(forward));
        for (int i = 0; i < states; i++)
            assert_true(address_of(&r, i) == first[i]);
        wt_ok(*state, wf_session_read(r.session, m.name[0], all, (size_t)m.elements[0] * 4));
        assert_memory_equal(before, all, bytes); /* a reader changes nothing */
        wt_ok(*state, wt_write_inputs(r.exec, &wt_tiny, step));
        wt_run_once(&r);
        for (int i = 0; i < states; i++)
            assert_true(address_of(&r, i) == first[i]);
        wt_ok(*state, wf_session_read(r.session, m.name[0], all, (size_t)m.elements[0] * 4));
        memcpy(after, all, bytes);
        assert_memory_not_equal(before, after, bytes);
    }
    free(all);
    wf_exec_free(forward);
    wt_close(&r);
}

/* Two executables of a session share states: the second reads what the first wrote. */
static void test_two_executables(void **state)
{
    need_plugin(spec);
    wt_run r = wt_open(*state, spec);
    wf_graph *g = wt_graph(*state);
    wf_value *s = wf_state(g, "s", WF_F32, 1, (int64_t[]){2});
    wf_accumulate(g, s, wf_input(g, "x", WF_F32, 1, (int64_t[]){2}), NULL);
    wt_compile(&r, g);
    wt_run reader = {.ctx = r.ctx, .device = r.device, .session = r.session};
    g = wt_graph(*state);
    wf_output(g, "twice", wf_scale(g, wf_state(g, "s", WF_F32, 1, (int64_t[]){2}), 2));
    wt_compile(&reader, g);
    wt_set_state(&r, "s", (const float[]){1, 2}, 2);
    wt_write(&r, "x", (const float[]){10, 20}, 8);
    wt_run_once(&reader);
    wt_expect(&reader, "twice", {2, 4});
    for (int i = 1; i < 4; i++) {
        const float want[] = {1 + 10 * (float)i, 2 + 20 * (float)i};
        wt_run_once(&r);
        wt_expect_state(&r, "s", want, 2);
        wt_run_once(&reader);
        wt_expect(&reader, "twice", {2 * want[0], 2 * want[1]});
    }
    wt_set_state(&r, "s", (const float[]){5, 6}, 2); /* a write by the host in between */
    wt_run_once(&reader);
    wt_expect(&reader, "twice", {10, 12});
    wf_exec_free(reader.exec);
    wt_close(&r);
}

/* A mapped state is copied when it is mapped: later changes of the file have no effect. */
static void test_mapped(void **state)
{
    need_plugin(spec);
    const float numbers[] = {0, 0, 1, 2, 3}, x[] = {1, 1, 1};
    float read[3];
    char path[] = "/tmp/weft-mapped-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, numbers, sizeof numbers), sizeof numbers);
    wt_run r = wt_open(*state, spec);
    wt_ok(*state, wf_session_map(r.session, "w", WF_F32, 1, (int64_t[]){3}, path, 8));
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    unlink(path);
    wf_graph *g = wt_graph(*state);
    wf_value *w = wf_state(g, "w", WF_F32, 1, (int64_t[]){3});
    wf_output(g, "y", wf_binary(g, "add", w, wf_input(g, "x", WF_F32, 1, (int64_t[]){3})));
    wt_compile(&r, g);
    wt_write(&r, "x", x, sizeof x);
    wt_run_once(&r);
    wt_expect(&r, "y", {2, 3, 4});
    wt_ok(*state, wf_session_read(r.session, "w", read, sizeof read));
    assert_memory_equal(read, numbers + 2, sizeof read);
    wt_fails(*state, wf_session_write(r.session, "w", x, sizeof x), WF_ERR_USAGE,
             "is mapped from a file");
    wf_memory memory;
    wf_exec_memory(r.exec, &memory);
    assert_int_equal(memory.states, 12);
    assert_int_equal(memory.mapped, 0);
    g = wt_graph(*state);
    wf_assign(g, wf_state(g, "w", WF_F32, 1, (int64_t[]){3}),
              wf_input(g, "x", WF_F32, 1, (int64_t[]){3}), NULL);
    wf_exec *writer;
    wt_fails(*state, wf_compile(r.session, g, &writer), WF_ERR_USAGE, "mapped from a file");
    wf_graph_free(g);
    wt_close(&r);
}

/* ---- Programs ---- */

/* A chain that no compiler evaluates without memory for an intermediate value. */
static wf_graph *chain(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){64, 64});
    wf_value *y = wf_matmul(g, wf_matmul(g, x, x, false, false), x, false, false);
    wf_accumulate(g, wf_state(g, "s", WF_F32, 2, (int64_t[]){64, 64}), y, NULL);
    wf_output(g, "y", y);
    return g;
}

static void run_chain(wt_run *r)
{
    static float x[64 * 64], y[64 * 64];
    for (int i = 0; i < 64; i++)
        x[65 * i] = 2;
    wt_write(r, "x", x, sizeof x);
    wt_run_once(r);
    wt_read(r, "y", y, sizeof y);
    for (int i = 0; i < 64 * 64; i++)
        assert_true(y[i] == (i % 65 ? 0 : 8));
}

static void test_memory(void **state)
{
    need_plugin(spec);
    enum { ARRAY = 64 * 64 * 4 };
    wf_memory planned, real;
    size_t bytes, peak;
    wt_run r = wt_open(*state, spec);
    wf_graph *g = chain(*state);
    wt_ok(*state, wf_plan_memory(r.device, g, NULL, &planned));
    wt_compile(&r, g);
    wf_exec_memory(r.exec, &real);
    assert_memory_equal(&planned, &real, sizeof real);
    assert_int_equal(real.states, ARRAY);
    assert_int_equal(real.ports, 2 * ARRAY);
    assert_in_range(real.activations, ARRAY, 4 * ARRAY);
    run_chain(&r);
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, 3 * ARRAY);
    assert_int_equal(peak, 3 * ARRAY + real.activations);
    wf_exec_free(r.exec);
    r.exec = NULL;
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, ARRAY);
    wt_close(&r);
}

static int log_lines;

static void count_lines(void *user, wf_log_level level, const char *message)
{
    (void)user, (void)message;
    log_lines += level >= WF_LOG_WARN;
}

/* Whether the program was loaded from disk: a compilation would have written the file again. */
static bool from_disk(wf_ctx *ctx, const char *spec, const char *folder)
{
    char path[1024];
    wf_file_stamp before, after;
    wt_cache_file(folder, path, sizeof path);
    assert_true(wf_file_look(path, &before));
    wt_run r = wt_open(ctx, spec);
    wt_compile(&r, chain(ctx));
    run_chain(&r);
    wt_close(&r);
    wt_cache_file(folder, path, sizeof path);
    assert_true(wf_file_look(path, &after));
    return memcmp(&before, &after, sizeof after) == 0;
}

static void test_cache(void **state)
{
    need_plugin(spec);
    char folder[1024], path[1024];
    wt_make_cache(folder, sizeof folder);
    wf_ctx_set_log(*state, count_lines, NULL);
    log_lines = 0;
    wt_run r = wt_open(*state, spec);
    wt_compile(&r, chain(*state));
    run_chain(&r);
    wt_close(&r);
    assert_true(from_disk(*state, spec, folder));
    assert_int_equal(log_lines, 0);
    wt_cache_file(folder, path, sizeof path);
    assert_int_equal(truncate(path, 3000), 0);
    assert_false(from_disk(*state, spec, folder));
    assert_int_equal(log_lines, 1);
    assert_true(from_disk(*state, spec, folder));
    wt_remove_cache(folder);
    unsetenv("WEFT_CACHE");
}

/* Casts round, even where a compiler would prefer to keep excess precision. */
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

/* Sessions opened one after another on the same graph compile it once. */
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

/* Some cases of ops of each kind, and all with WEFT_ALL_CASES. `weft selftest --device pjrt:PLUGIN`
 * covers all ops, slowly. */
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
        o.sample = getenv("WEFT_ALL_CASES") ? 0 : 10;
        wf_selftest_report *report;
        wt_ok(*state, wf_selftest_run(*state, &o, &report));
        cases += report->cases;
        failures += report->failures;
        wf_selftest_report_free(report);
    }
    print_message("%d cases on %s\n", cases, spec);
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_appends_in_place),
        wt_test(test_trains_in_place),
        wt_test(test_two_executables),
        wt_test(test_mapped),
        wt_test(test_memory),
        wt_test(test_cache),
        wt_test(test_rounds),
        wt_test(test_compiles_once),
        wt_test(test_ops),
    };
    unsetenv("WEFT_CACHE");
    return cmocka_run_group_tests_name("pjrt_real", tests, NULL, NULL);
}
