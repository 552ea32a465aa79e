/* SPDX-License-Identifier: MIT */
/*
 * test_session.c - sessions and executables through the public interface: states shared by name,
 * reads and writes, listings, the order of freeing, and graphs that a device cannot run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/philox.h"
#include "device/device.h"
#include "graph/build.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})
#define F(...) ((float[]){__VA_ARGS__})

/* ---- States of a session ---- */

static void test_states_are_shared_by_name(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_exec *writer, *reader;
    wf_graph *g = wt_graph(ctx);
    wf_value *w = wf_state(g, "w", WF_F32, 1, D(2));
    wf_accumulate(g, w, wf_input(g, "x", WF_F32, 1, D(2)), NULL);
    wt_ok(ctx, wf_compile(r.session, g, &writer));
    wf_graph_free(g);

    g = wt_graph(ctx);
    wf_output(g, "w", wf_state(g, "w", WF_F32, 1, D(2)));
    wf_output(g, "z", wf_state(g, "z", WF_F32, 1, D(3)));
    wt_ok(ctx, wf_compile(r.session, g, &reader));
    wf_graph_free(g);

    wf_memory memory; /* of the session, so equal for both */
    wf_exec_memory(writer, &memory);
    assert_int_equal(memory.states, 20);
    wf_exec_memory(reader, &memory);
    assert_int_equal(memory.states, 20);

    r.exec = reader;
    wt_run_once(&r);
    wt_expect(&r, "w", {0, 0}); /* states start as zeros */
    wt_expect(&r, "z", {0, 0, 0});
    r.exec = writer;
    wt_write(&r, "x", F(1, 2), 8);
    wt_run_once(&r);
    wt_run_once(&r);
    r.exec = reader;
    wt_expect(&r, "w", {0, 0}); /* the value during the last run */
    wt_run_once(&r);
    wt_expect(&r, "w", {2, 4});
    wt_set_state(&r, "w", F(7, 8), 2);
    wt_run_once(&r);
    wt_expect(&r, "w", {7, 8});
    wt_expect_state(&r, "w", F(7, 8), 2);

    wf_exec_free(writer); /* the state outlives its executable */
    wt_run_once(&r);
    wt_expect(&r, "w", {7, 8});
    wt_close(&r);
}

/* A session rejects a graph whose states differ from its own, and adds none of the graph's
 * states. */
static void test_mismatched_states(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_exec *exec;
    wf_graph *g = wt_graph(ctx);
    wf_output(g, "w", wf_state(g, "w", WF_F32, 1, D(2)));
    wt_compile(&r, g);
    uint64_t blocks = wt_live_blocks(ctx);
    for (int i = 0; i < 3; i++) {
        g = wt_graph(ctx);
        wf_state(g, "new", WF_F32, 1, D(5));
        wf_state(g, "w", i == 0 ? WF_BF16 : WF_F32, 1 + (i == 2), D(i == 1 ? 3 : 2, 1));
        wt_fails(ctx, wf_compile(r.session, g, &exec), WF_ERR_USAGE,
                 i == 0   ? "state 'w' is f32[2] in this session, but bf16[2] in the graph"
                 : i == 1 ? "f32[2] in this session, but f32[3]"
                          : "f32[2] in this session, but f32[2,1]");
        assert_null(exec);
        wf_graph_free(g);
        assert_int_equal(wt_live_blocks(ctx), blocks);
    }
    wf_ctx *other;
    wt_ok(ctx, wf_ctx_new(&other));
    g = wt_graph(other);
    wt_fails(ctx, wf_compile(r.session, g, &exec), WF_ERR_USAGE,
             "the graph and device cpu come from different contexts");
    assert_null(exec);
    wf_graph_free(g);
    wf_ctx_free(other);
    g = wt_graph(ctx); /* "new" was not created */
    wf_output(g, "new", wf_state(g, "new", WF_I32, 0, NULL));
    wt_compile(&r, g);
    wt_close(&r);
}

static void test_reads_and_writes(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    float x[2] = {0};
    wf_value *in = wf_input(g, "x", WF_F32, 1, D(2));
    wf_input(g, "unused", WF_F32, 1, D(2));
    wf_output(g, "y", wf_add(g, in, wf_state(g, "s", WF_F32, 1, D(2))));
    wt_compile(&r, g);
    wt_fails(ctx, wf_exec_write(r.exec, "z", x, 8), WF_ERR_USAGE, "no input 'z'");
    wt_fails(ctx, wf_exec_write(r.exec, "y", x, 8), WF_ERR_USAGE, "no input 'y'");
    wt_fails(ctx, wf_exec_write(r.exec, "x", x, 4), WF_ERR_USAGE, "input 'x' has 8 bytes, not 4");
    wt_fails(ctx, wf_exec_write(r.exec, "x", x, 0), WF_ERR_USAGE, "input 'x' has 8 bytes, not 0");
    wt_fails(ctx, wf_exec_write(r.exec, "unused", x, 4), WF_ERR_USAGE, "8 bytes, not 4");
    wt_fails(ctx, wf_exec_read(r.exec, "y", x, 8), WF_ERR_USAGE, "before the first run");
    wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_USAGE, "input 'x' was never written");
    wt_fails(ctx, wf_session_read(r.session, "t", x, 8), WF_ERR_USAGE, "no state 't'");
    wt_fails(ctx, wf_session_write(r.session, "x", x, 8), WF_ERR_USAGE, "no state 'x'");
    wt_fails(ctx, wf_session_write(r.session, "s", x, 12), WF_ERR_USAGE, "8 bytes, not 12");
    wt_fails(ctx, wf_session_read(r.session, "s", x, 4), WF_ERR_USAGE, "8 bytes, not 4");
    wt_write(&r, "x", F(1, 2), 8);
    wt_run_once(&r);
    wt_write(&r, "unused", x, 8); /* checked, although not needed */
    wt_fails(ctx, wf_exec_read(r.exec, "x", x, 8), WF_ERR_USAGE, "no output 'x'");
    wt_fails(ctx, wf_exec_read(r.exec, "y", x, 12), WF_ERR_USAGE, "output 'y' has 8 bytes, not 12");
    for (int i = 0; i < 3; i++) { /* inputs keep their contents */
        wt_expect(&r, "y", {1 + (float)i, 2});
        wt_set_state(&r, "s", F((float)i + 1, 0), 2);
        wt_run_once(&r);
    }

    wf_run_stats stats;
    wf_exec_stats(r.exec, &stats);
    assert_int_equal(stats.runs, 4);
    assert_int_equal(stats.bytes_in, 16); /* failed calls do not count */
    assert_int_equal(stats.bytes_out, 24);
    assert_int_equal(stats.bytes_copied, 0);
    assert_int_equal(stats.allocations, 0);
    assert_true(stats.nanoseconds > 0);
    wt_close(&r);
}

/* ---- Ranges ---- */

static const char *const range_devices[] = {"cpu:1", "check"};
enum { RANGE_DEVICES = sizeof range_devices / sizeof *range_devices, ROW = 7, ROWS = 5 };

/* y = x and a second output; compares every range of bytes with the whole output. */
static void test_ranges_of_an_output(void **state)
{
    wf_ctx *ctx = *state;
    for (int d = 0; d < RANGE_DEVICES; d++) {
        wt_run r = wt_open(ctx, range_devices[d]);
        wf_graph *g = wt_graph(ctx);
        wf_value *x = wf_input(g, "x", WF_F32, 2, D(ROWS, ROW));
        wf_output(g, "before", wf_scale(g, x, 2));
        wf_output(g, "y", wf_scale(g, x, 3));
        wf_output(g, "empty", wf_slice(g, x, 0, 2, 2));
        wt_compile(&r, g);
        float in[ROWS * ROW];
        char all[sizeof in], part[sizeof in + 1];
        for (int i = 0; i < ROWS * ROW; i++)
            in[i] = (float)i;
        wt_write(&r, "x", in, sizeof in);
        wt_fails(ctx, wf_exec_read_at(r.exec, "y", 0, part, 4), WF_ERR_USAGE,
                 "before the first run");
        wt_run_once(&r);
        wt_read(&r, "y", all, sizeof all);
        for (size_t from = 0; from <= sizeof all; from++)
            for (size_t n = 0; n <= sizeof all - from; n += 1 + n / 8) {
                memset(part, 0x5A, sizeof part);
                wt_ok(ctx, wf_exec_read_at(r.exec, "y", from, part, n));
                assert_memory_equal(part, all + from, n);
                assert_int_equal(part[n], 0x5A);
            }
        wt_ok(ctx, wf_exec_read_at(r.exec, "y", sizeof all, NULL, 0));
        wt_ok(ctx, wf_exec_read_at(r.exec, "empty", 0, NULL, 0));

        wf_run_stats before, after;
        wf_exec_stats(r.exec, &before);
        wt_fails(ctx, wf_exec_read_at(r.exec, "y", 138, part, 4), WF_ERR_USAGE,
                 "4 bytes at byte 138 are outside output 'y', which has 140 bytes");
        wt_fails(ctx, wf_exec_read_at(r.exec, "y", 141, part, 0), WF_ERR_USAGE, "at byte 141");
        wt_fails(ctx, wf_exec_read_at(r.exec, "y", 8, part, SIZE_MAX - 4), WF_ERR_USAGE,
                 "at byte 8 are outside output 'y'");
        wt_fails(ctx, wf_exec_read_at(r.exec, "y", SIZE_MAX, part, 8), WF_ERR_USAGE, "8 bytes at");
        wt_fails(ctx, wf_exec_read_at(r.exec, "x", 0, part, 4), WF_ERR_USAGE, "no output 'x'");
        wf_exec_stats(r.exec, &after);
        assert_int_equal(after.bytes_out, before.bytes_out); /* failed calls do not count */
        wt_ok(ctx, wf_exec_read_at(r.exec, "y", 4 * ROW, part, 4 * ROW));
        wf_exec_stats(r.exec, &after);
        assert_int_equal(after.bytes_out, before.bytes_out + 4 * ROW); /* the range alone */
        wt_close(&r);
    }
}

/* Random ranges of owned states, plain and quantized, against a copy on the host. */
static void test_ranges_of_a_state(void **state)
{
    wf_ctx *ctx = *state;
    for (int d = 0; d < RANGE_DEVICES; d++) {
        wf_rng rng;
        wf_rng_init(&rng, wt_seed(), (uint64_t)d);
        wt_run r = wt_open(ctx, range_devices[d]);
        wf_graph *g = wt_graph(ctx);
        wf_output(g, "y", wf_copy(g, wf_state(g, "s", WF_F32, 2, D(ROWS, ROW))));
        wf_state(g, "q", WF_Q8_0, 2, D(4, 64)); /* 272 bytes */
        wf_state(g, "after", WF_F32, 1, D(3));
        wt_compile(&r, g);
        unsigned char want[2][272] = {{0}}, got[272];
        static const char *const name[] = {"s", "q"};
        static const size_t size[] = {4 * ROWS * ROW, 272};
        for (int i = 0; i < 300; i++) {
            int k = (int)(wf_rng_u32(&rng) % 2);
            size_t from = (size_t)wf_rng_below(&rng, size[k] + 1);
            size_t n = (size_t)wf_rng_below(&rng, size[k] - from + 1);
            /* The high byte of every f32 is small, so no element is NaN. */
            for (size_t b = from; b < from + n; b++)
                want[k][b] = (unsigned char)wf_rng_below(&rng, 64);
            wt_ok(ctx, wf_session_write_at(r.session, name[k], from, want[k] + from, n));
            wt_ok(ctx, wf_session_read(r.session, name[k], got, size[k]));
            assert_memory_equal(got, want[k], size[k]);
            from = (size_t)wf_rng_below(&rng, size[k] + 1);
            n = (size_t)wf_rng_below(&rng, size[k] - from + 1);
            memset(got, 0xA5, sizeof got);
            wt_ok(ctx, wf_session_read_at(r.session, name[k], from, got, n));
            assert_memory_equal(got, want[k] + from, n);
            assert_true(n == sizeof got || got[n] == 0xA5);
        }
        wt_run_once(&r);
        wt_read(&r, "y", got, size[0]);
        assert_memory_equal(got, want[0], size[0]);
        wt_expect_state(&r, "after", F(0, 0, 0), 3);
        wt_ok(ctx, wf_session_write_at(r.session, "s", size[0], NULL, 0));
        wt_ok(ctx, wf_session_read_at(r.session, "s", 3, NULL, 0));
        wt_fails(ctx, wf_session_read_at(r.session, "s", 138, got, 4), WF_ERR_USAGE,
                 "4 bytes at byte 138 are outside state 's', which has 140 bytes");
        wt_fails(ctx, wf_session_write_at(r.session, "s", 138, got, 4), WF_ERR_USAGE,
                 "outside state 's'");
        wt_fails(ctx, wf_session_write_at(r.session, "q", 8, got, SIZE_MAX - 4), WF_ERR_USAGE,
                 "outside state 'q', which has 272 bytes");
        wt_fails(ctx, wf_session_read_at(r.session, "q", SIZE_MAX, got, 1), WF_ERR_USAGE, "'q'");
        wt_fails(ctx, wf_session_read_at(r.session, "t", 0, got, 4), WF_ERR_USAGE, "no state 't'");
        wt_fails(ctx, wf_session_write_at(r.session, "t", 0, got, 4), WF_ERR_USAGE, "'t'");
        wt_close(&r);
    }
}

/* A packed state has another layout, and a mapped one cannot be written. */
static void test_ranges_of_other_states(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    char bytes[16] = {0};
    wf_status status = wf_session_pack(r.session, "packed", WF_Q4_K, 2, D(64, 256));
    if (status != WF_ERR_UNSUPPORTED) { /* reference kernels pack nothing */
        wt_ok(ctx, status);
        wt_fails(ctx, wf_session_read_at(r.session, "packed", 0, bytes, 16), WF_ERR_USAGE,
                 "state 'packed' is packed in this session");
        wt_fails(ctx, wf_session_write_at(r.session, "packed", 0, bytes, 16), WF_ERR_USAGE,
                 "is packed");
    }
    wt_ok(ctx, wf_session_map(r.session, "mapped", WF_I8, 1, D(32), "LICENSE", 0));
    wt_fails(ctx, wf_session_read_at(r.session, "mapped", 0, bytes, 16), WF_ERR_USAGE,
             "state 'mapped' is mapped from a file in this session, so a part");
    wt_fails(ctx, wf_session_write_at(r.session, "mapped", 0, bytes, 16), WF_ERR_USAGE, "mapped");
    wt_close(&r);
}

static void test_what_there_is(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_BF16, 2, D(2, 3));
    wf_input(g, "unused", WF_U8, 0, NULL);
    wf_output(g, "y", wf_cast(g, x, WF_F32));
    wf_state(g, "s", WF_I32, 1, D(7));
    wt_compile(&r, g);
    wf_info info;
    assert_true(wf_exec_input(r.exec, 0, &info) && info.type == WF_BF16 && info.rank == 2);
    assert_true(strcmp(info.name, "x") == 0 && info.dim[1] == 3 && info.bytes == 12);
    assert_true(wf_exec_input(r.exec, 1, &info) && strcmp(info.name, "unused") == 0);
    assert_true(wf_exec_output(r.exec, 0, &info) && strcmp(info.name, "y") == 0);
    assert_true(info.type == WF_F32 && info.bytes == 24);
    assert_true(wf_session_state(r.session, 0, &info) && strcmp(info.name, "s") == 0);
    assert_true(info.type == WF_I32 && info.rank == 1 && info.bytes == 28);
    assert_false(wf_exec_input(r.exec, 2, &info) || wf_exec_input(r.exec, -1, &info));
    assert_false(wf_exec_output(r.exec, 1, &info) || wf_exec_output(r.exec, -1, &info));
    assert_false(wf_session_state(r.session, 1, &info) || wf_session_state(r.session, -1, &info));
    wt_close(&r);
}

static void remember(void *user, wf_log_level level, const char *message)
{
    assert_int_equal(level, WF_LOG_ERROR);
    assert_true(wt_is_sentence(message));
    ++*(int *)user;
}

/* An executable that needs no region still runs after another's region could not be allocated. */
static void test_a_region_that_cannot_grow(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *small = wt_graph(ctx), *large = wt_graph(ctx);
    wf_output(small, "y", wf_scale(small, wf_input(small, "x", WF_F32, 0, NULL), 2));
    wt_compile(&r, small);
    wt_write(&r, "x", &(float){3}, sizeof(float));
    wf_value *x = wf_input(large, "x", WF_F32, 1, (int64_t[]){100});
    wf_value *y = wf_softmax(large, wf_scale(large, x, 2));
    wf_output(large, "y", wf_scale(large, y, 2));
    wf_exec *exec = NULL;
    for (uint64_t nth = 1; !exec; nth++) {
        wf_ctx_fail_allocation(ctx, nth);
        wf_compile(r.session, large, &exec);
        wf_ctx_fail_allocation(ctx, 0);
        wt_run_once(&r);
        wt_expect(&r, "y", {6});
    }
    wf_exec_free(exec);
    wf_graph_free(large);
    wt_close(&r);
}

/* A session or device that is still in use stays alive, and the log reports it. */
static void test_freeing_in_the_wrong_order(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    int messages = 0;
    wf_output(g, "y", wf_fill(g, WF_F32, 1, D(2), 3));
    wt_compile(&r, g);
    wf_ctx_set_log(ctx, remember, &messages);
    wf_session_free(r.session);
    wf_device_close(r.device);
    assert_int_equal(messages, 2);
    wt_run_once(&r);
    wt_expect(&r, "y", {3, 3});
    wt_close(&r);
    assert_int_equal(messages, 2);
    wf_ctx_set_log(ctx, NULL, NULL);
}

static void test_opening_devices(void **state)
{
    static const char *const bad[][2] = {
        {"cpo", "did you mean 'cpu'?"},
        {"abacus", "unknown device 'abacus'"},
        {"", "unknown device ''"},
        {NULL, "unknown device ''"},
        {"cpu:0", "cpu:0"},
        {"cpu:-3", "cpu:-3"},
        {"cpu:99999", "cpu:99999"},
        {"cpu:2x", "cpu:2x"},
        {"cpu:99999999999999999999", "cpu:9999"},
    };
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_device *device;
        wt_fails(ctx, wf_device_open(ctx, bad[i][0], &device), WF_ERR_USAGE, bad[i][1]);
        assert_null(device);
    }
    assert_string_equal(wf_device_kind(0), "cpu");
    assert_null(wf_device_kind(-1));
    assert_null(wf_device_kind(1000));
}

/* A device without kernels names the missing one, and creates no state. */
static void test_unsupported_ops(void **state)
{
    wf_ctx *ctx = *state;
    static const wf_kernel *const none[] = {NULL};
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_info info;
    wf_output(g, "y", wf_exp(g, wf_state(g, "s", WF_BF16, 1, D(2))));
    r.device->kernels = none;
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_UNSUPPORTED,
             "device cpu has no kernel for exp(bf16[2])");
    assert_null(r.exec);
    assert_false(wf_session_state(r.session, 0, &info));
    wf_graph_free(g);
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_states_are_shared_by_name),
        wt_test(test_mismatched_states),
        wt_test(test_reads_and_writes),
        wt_test(test_what_there_is),
        wt_test(test_ranges_of_an_output),
        wt_test(test_ranges_of_a_state),
        wt_test(test_ranges_of_other_states),
        wt_test(test_a_region_that_cannot_grow),
        wt_test(test_freeing_in_the_wrong_order),
        wt_test(test_unsupported_ops),
        wt_test(test_opening_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
