/* SPDX-License-Identifier: MIT */
/*
 * test_cuda_device.c - the host side of the cuda device on an emulated GPU: reasons why it cannot
 * be opened, insufficient memory, steps captured once and replayed, and every runtime call failing
 * in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "emulator.h"
#include "graph/build.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})
#define F(...) ((float[]){__VA_ARGS__})

/* ---- Opening ---- */

static void test_reports_why_it_cannot_be_opened(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    setenv("WEFT_EMULATED_DEVICES", "0", 1);
    wt_fails(ctx, wf_device_open(ctx, "cuda", &device), WF_ERR_DEVICE, "no NVIDIA driver");
    unsetenv("WEFT_EMULATED_DEVICES");
    wt_fails(ctx, wf_device_open(ctx, "cuda:3", &device), WF_ERR_USAGE, "this machine has 1 GPU");
    wt_fails(ctx, wf_device_open(ctx, "cuda:fast", &device), WF_ERR_USAGE, "unknown option");
    wt_ok(ctx, wf_device_open(ctx, "cuda:0", &device));
    assert_non_null(strstr(wf_device_description(device), "emulated GPU"));
    wf_device_close(device);
}

/* ---- Steps ---- */

/* y = tanh(x) + s, s += x */
static wf_graph *small(wf_ctx *ctx, int64_t n)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(n)), *s = wf_state(g, "s", WF_F32, 1, D(n));
    wf_output(g, "y", wf_add(g, wf_tanh(g, x), s));
    wf_assign(g, s, wf_add(g, s, x), NULL);
    return g;
}

static void test_a_step_is_captured_once(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cuda");
    wt_compile(&r, small(ctx, 3));
    wf_emulated_counts before = wf_emulated_count();
    for (int i = 0; i < 5; i++) {
        float sum = 0;
        wt_write(&r, "x", F(0, 0, (float)i), 12);
        wt_run_once(&r);
        for (int k = 0; k <= i; k++)
            sum += (float)k;
        wt_expect_state(&r, "s", F(0, 0, sum), 3);
    }
    wf_emulated_counts after = wf_emulated_count();
    assert_int_equal(after.captures - before.captures, 1);
    assert_int_equal(after.graph_launches - before.graph_launches, 5);
    assert_int_equal(after.launches, before.launches);
    assert_int_equal(after.allocations, before.allocations);
    wt_close(&r);
}

/* A steady run uploads only its inputs; it downloads nothing and does not wait until a result is
 * read. */
static void test_a_steady_run_moves_its_inputs_alone(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cuda");
    wt_compile(&r, small(ctx, 3));
    wt_write(&r, "x", F(1, 2, 3), 12);
    wt_run_once(&r);
    float y[3];
    wt_read(&r, "y", y, sizeof y);
    wf_emulated_counts before = wf_emulated_count();
    for (int i = 0; i < 4; i++) { /* fewer than there are upload slots */
        wt_write(&r, "x", F(1, 2, 3), 12);
        wt_run_once(&r);
    }
    wf_emulated_counts after = wf_emulated_count();
    assert_int_equal(after.to_device - before.to_device, 4 * 12);
    assert_int_equal(after.from_device, before.from_device);
    assert_int_equal(after.waits, before.waits);
    wt_read(&r, "y", y, sizeof y);
    assert_int_equal(wf_emulated_count().from_device - before.from_device, 12);
    float last;
    wt_ok(ctx, wf_exec_read_at(r.exec, "y", 8, &last, sizeof last)); /* copies the range alone */
    assert_true(last == y[2]);
    assert_int_equal(wf_emulated_count().from_device - before.from_device, 16);
    wt_close(&r);
}

/* A captured graph holds addresses of the region, so it is captured again after the region
 * moved. */
static void test_a_region_that_moved_is_captured_again(void **state)
{
    wf_ctx *ctx = *state;
    wt_run first = wt_open(ctx, "cuda");
    wt_compile(&first, small(ctx, 3));
    wt_write(&first, "x", F(1, 0, 0), 12);
    wt_run_once(&first);
    wt_run second = {.ctx = ctx, .device = first.device, .session = first.session};
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(100000));
    wf_output(g, "y", wf_tanh(g, wf_exp(g, wf_sin(g, x))));
    wt_compile(&second, g);
    wf_emulated_counts before = wf_emulated_count();
    for (int i = 0; i < 3; i++)
        wt_run_once(&first);
    wt_expect_state(&first, "s", F(4, 0, 0), 3);
    assert_true(wf_emulated_count().captures - before.captures <= 1);
    wf_exec_free(second.exec);
    wt_close(&first);
}

/* The same for shared ports. A step of the larger executable between two steps of the smaller one
 * captures nothing again. */
static void test_ports_that_moved_are_captured_again(void **state)
{
    wf_ctx *ctx = *state;
    wt_run first = wt_open(ctx, "cuda");
    wt_run second = {.ctx = ctx, .device = first.device, .session = first.session};
    float y[500];
    wf_session_share_ports(first.session);
    wt_compile(&first, small(ctx, 3));
    wt_write(&first, "x", F(1, 0, 0), 12);
    wt_run_once(&first);
    wf_graph *g = wt_graph(ctx);
    wf_output(g, "y", wf_scale(g, wf_input(g, "x", WF_F32, 1, D(500)), 2));
    wt_compile(&second, g);
    wt_fails(ctx, wf_exec_read(first.exec, "y", y, 12), WF_ERR_USAGE, "was overwritten");
    wf_emulated_counts before = wf_emulated_count();
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 500; k++)
            y[k] = (float)(k + i);
        wt_write(&first, "x", F(1, 0, 0), 12);
        wt_run_once(&first);
        wt_write(&second, "x", y, sizeof y); /* the step before may still run */
        wt_run_once(&second);
        wt_read(&second, "y", y, sizeof y);
        for (int k = 0; k < 500; k++)
            assert_true(y[k] == 2 * (float)(k + i));
    }
    wt_expect_state(&first, "s", F(4, 0, 0), 3);
    assert_int_equal(wf_emulated_count().captures - before.captures, 2);
    wf_exec_free(second.exec);
    wt_close(&first);
}

/* A kernel in a captured graph reports invalid data; the graph is not captured again. */
static void test_fault_captures_no_graph_again(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cuda");
    wf_graph *g = wt_graph(ctx);
    wf_value *table = wf_state(g, "table", WF_F32, 2, D(5, 3));
    wf_output(g, "y", wf_embed(g, table, wf_input(g, "ids", WF_I32, 1, D(2))));
    wt_compile(&r, g);
    wf_emulated_counts before = wf_emulated_count();
    for (int32_t last = 3; last < 7; last++) {
        float y[6];
        wt_write(&r, "ids", (int32_t[]){0, last}, 8);
        wt_run_once(&r);
        wf_status st = wf_exec_read(r.exec, "y", y, sizeof y);
        assert_int_equal(st, last < 5 ? WF_OK : WF_ERR_DEVICE);
    }
    assert_int_equal(wf_emulated_count().captures - before.captures, 1);
    wt_close(&r);
}

/* Larger than the upload slots can hold at once. */
static void test_large_states_go_in_and_out(void **state)
{
    wf_ctx *ctx = *state;
    enum { N = 3 << 20 };
    float *data = malloc(N * sizeof *data), *back = malloc(N * sizeof *back);
    wt_run r = wt_open(ctx, "cuda");
    assert_non_null(data);
    assert_non_null(back);
    for (int i = 0; i < N; i++)
        data[i] = (float)(i % 8191);
    wt_compile(&r, small(ctx, N));
    wt_ok(ctx, wf_session_write(r.session, "s", data, N * sizeof *data));
    wt_ok(ctx, wf_session_read(r.session, "s", back, N * sizeof *back));
    assert_memory_equal(data, back, N * sizeof *data);
    /* A range of several upload slots, not aligned to them. */
    char *part = (char *)data + 1234567;
    for (size_t i = 0; i < 5000001; i++)
        part[i] = (char)(i % 63);
    wt_ok(ctx, wf_session_write_at(r.session, "s", 1234567, part, 5000001));
    memset(back, 0, N * sizeof *back);
    wt_ok(ctx, wf_session_read_at(r.session, "s", 99, (char *)back + 99, N * sizeof *back - 99));
    assert_memory_equal((char *)data + 99, (char *)back + 99, N * sizeof *data - 99);
    wt_close(&r);
    free(data);
    free(back);
}

/* The number of blocks must fit the grid's first axis, not the second with its limit of 65535. */
static void test_rows_may_be_very_wide(void **state)
{
    wf_ctx *ctx = *state;
    enum { C = 65535 * 32 + 1, ENTRIES = 9 }; /* elements of one row, in two tiles */
    float *x = malloc(C * sizeof *x), *from = malloc((size_t)ENTRIES * C * sizeof *from);
    const int32_t rows[ENTRIES] = {0};
    assert_non_null(x);
    assert_non_null(from);
    for (int c = 0; c < C; c++)
        x[c] = (float)(c % 1021);
    for (int i = 0; i < ENTRIES * C; i++)
        from[i] = (float)(i / C + i % C % 7);
    wt_run r = wt_open(ctx, "cuda");
    wf_graph *g = wt_graph(ctx);
    wf_output(g, "y",
              wf_scatter_add_rows(g, wf_input(g, "x", WF_F32, 2, D(1, C)),
                                  wf_input(g, "rows", WF_I32, 1, D(ENTRIES)),
                                  wf_input(g, "from", WF_F32, 2, D(ENTRIES, C))));
    wt_compile(&r, g);
    wt_write(&r, "x", x, C * sizeof *x);
    wt_write(&r, "rows", rows, sizeof rows);
    wt_write(&r, "from", from, (size_t)ENTRIES * C * sizeof *from);
    wt_run_once(&r);
    wt_read(&r, "y", x, C * sizeof *x);
    for (int c = 0; c < C; c++)
        if (x[c] != (float)(c % 1021 + 36 + 9 * (c % 7)))
            fail_msg("column %d is %g", c, (double)x[c]);
    wt_close(&r);
    free(x);
    free(from);
}

/* ---- Failures ---- */

/* The memory that a session takes besides its buffers is in the plan before the session exists. */
static void test_memory_of_a_session_is_known_before(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wf_session *session;
    size_t now, peak;
    wt_ok(ctx, wf_device_open(ctx, "cuda", &device));
    const size_t available = wf_device_available(device), reserve = device->reserve;
    wt_ok(ctx, wf_session_new(device, &session));
    wf_device_memory(device, &now, &peak);
    assert_int_equal(now, 0);
    assert_int_equal(wf_device_available(device), available);
    size_t left = 0, all = 0;
    assert_int_equal(cudaMemGetInfo(&left, &all), cudaSuccess);
    assert_int_equal(all - left, reserve);
    wf_session_free(session);
    wf_device_close(device);
}

static void test_memory_that_does_not_suffice(void **state)
{
    wf_ctx *ctx = *state;
    setenv("WEFT_EMULATED_MEMORY", "24", 1);
    wt_run r = wt_open(ctx, "cuda");
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(16 << 20));
    wf_output(g, "y", wf_tanh(g, x));
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_MEMORY, "cannot allocate");
    wf_graph_free(g);
    wt_compile(&r, small(ctx, 3)); /* still works */
    wt_write(&r, "x", F(1, 0, 0), 12);
    wt_run_once(&r);
    wt_expect_state(&r, "s", F(1, 0, 0), 3);
    wt_close(&r);
    unsetenv("WEFT_EMULATED_MEMORY");
}

/* Opens a device, reads a result and closes it. Returns false when a call failed, with a message. A
 * failure while freeing cannot be returned and sets *closing. */
static bool whole_life(wf_ctx *ctx, bool *closing)
{
    wf_device *device = NULL;
    wf_session *session = NULL;
    wf_exec *exec = NULL;
    wf_graph *g = small(ctx, 3);
    float y[3];
    /* A step with a fault word. */
    wf_output(g, "rows",
              wf_embed(g, wf_state(g, "table", WF_F32, 2, D(2, 3)), wf_iota(g, 1, D(2), 0)));
    wf_status status = wf_device_open(ctx, "cuda", &device);
    if (status == WF_OK)
        status = wf_session_new(device, &session);
    if (status == WF_OK) {
        wf_session_share_ports(session);
        status = wf_compile(session, g, &exec);
    }
    for (int i = 0; status == WF_OK && i < 2; i++) {
        status = wf_exec_write(exec, "x", F(1, 2, 3), 12);
        if (status == WF_OK)
            status = wf_exec_run(exec);
        if (status == WF_OK)
            status = wf_exec_read(exec, "y", y, sizeof y);
        if (status == WF_OK)
            status = wf_exec_read_at(exec, "y", 4, y, 8);
    }
    if (status == WF_OK)
        status = wf_session_write_at(session, "s", 4, y, 8);
    if (status == WF_OK)
        status = wf_session_read_at(session, "s", 8, y, 4);
    if (status != WF_OK)
        assert_true(wt_is_sentence(wf_ctx_message(ctx)));
    *closing = !wf_emulated_failed();
    wf_exec_free(exec);
    wf_graph_free(g);
    wf_session_free(session);
    wf_device_close(device);
    return status == WF_OK;
}

static void fail_each(wf_ctx *ctx, cudaError_t error)
{
    const int alive = wf_emulated_count().alive;
    int nth = 1;
    for (;; nth++) {
        uint64_t blocks = wt_live_blocks(ctx);
        wf_emulated_fail(nth, error);
        bool closing, went_well = whole_life(ctx, &closing);
        bool failed = wf_emulated_failed();
        wf_emulated_fail(0, cudaSuccess);
        assert_int_equal(wt_live_blocks(ctx), blocks);
        assert_int_equal(wf_emulated_count().alive, alive);
        if (!failed) {
            assert_true(went_well);
            break;
        }
        if (went_well && !closing)
            fail_msg("call %d failed, and nobody said so", nth);
    }
    assert_true(nth > 20);
    print_message("%d calls failed, each in turn\n", nth - 1);
}

static void test_every_call_may_fail(void **state)
{
    fail_each(*state, cudaErrorMemoryAllocation);
    fail_each(*state, cudaErrorIllegalAddress);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_reports_why_it_cannot_be_opened),
        wt_test(test_a_step_is_captured_once),
        wt_test(test_a_steady_run_moves_its_inputs_alone),
        wt_test(test_a_region_that_moved_is_captured_again),
        wt_test(test_ports_that_moved_are_captured_again),
        wt_test(test_fault_captures_no_graph_again),
        wt_test(test_large_states_go_in_and_out),
        wt_test(test_rows_may_be_very_wide),
        wt_test(test_memory_of_a_session_is_known_before),
        wt_test(test_memory_that_does_not_suffice),
        wt_test(test_every_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
