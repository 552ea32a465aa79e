/* SPDX-License-Identifier: MIT */
/*
 * test_ports.c - executables that share memory for inputs and outputs (wf_session_share_ports): its
 * size, when contents are lost, and reservations that fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "device/device.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})
#define F(...) ((float[]){__VA_ARGS__})

static const char *const devices[] = {"cpu:1", "cpu:3", "check"};
enum { DEVICES = sizeof devices / sizeof *devices, MOST = 300 };

/* y = (2 < max of sigmoid(a)) + 3 b = 3 b, with temporaries in the region; z = a + b + s. */
static wf_graph *sums(wf_ctx *ctx, int64_t n)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *a = wf_input(g, "a", WF_F32, 1, &n), *b = wf_input(g, "b", WF_F32, 1, &n);
    wf_input(g, "unread", WF_F32, 1, &n);
    wf_value *s = wf_state(g, "s", WF_F32, 0, NULL);
    wf_value *most = wf_reduce(g, "max", wf_unary(g, "sigmoid", a), WF_AXIS(0), true);
    wf_value *none = wf_binary(g, "lt", wf_fill(g, WF_F32, 0, NULL, 2), most);
    wf_output(g, "y", wf_binary(g, "add", wf_cast(g, none, WF_F32), wf_scale(g, b, 3)));
    wf_output(g, "z", wf_binary(g, "add", wf_binary(g, "add", a, b), s));
    return g;
}

static wf_status compile(wf_ctx *ctx, wf_session *session, int64_t n, wf_exec **out)
{
    wf_graph *g = sums(ctx, n);
    wf_status status = wf_compile(session, g, out);
    wf_graph_free(g);
    return status;
}

static wf_status write_all(wf_exec *exec, const char *input, int64_t n, float value)
{
    float x[MOST];
    for (int64_t i = 0; i < n; i++)
        x[i] = value + (float)i;
    return wf_exec_write(exec, input, x, (size_t)n * sizeof *x);
}

/* Checks both outputs for inputs value + i and state 0. */
static void expect_outputs(wf_ctx *ctx, wf_exec *exec, int64_t n, float a, float b)
{
    float y[MOST], z[MOST];
    wt_ok(ctx, wf_exec_read(exec, "y", y, (size_t)n * sizeof *y));
    wt_ok(ctx, wf_exec_read(exec, "z", z, (size_t)n * sizeof *z));
    for (int64_t i = 0; i < n; i++) {
        assert_true(y[i] == 3 * (b + (float)i));
        assert_true(z[i] == a + (float)i + (b + (float)i));
    }
}

static void use(wf_ctx *ctx, wf_exec *exec, int64_t n, float a, float b)
{
    wt_ok(ctx, write_all(exec, "a", n, a));
    wt_ok(ctx, write_all(exec, "b", n, b));
    wt_ok(ctx, wf_exec_run(exec));
    expect_outputs(ctx, exec, n, a, b);
}

static size_t ports_of(const wf_exec *exec)
{
    wf_memory m;
    wf_exec_memory(exec, &m);
    return m.ports;
}

/* ---- Contents ---- */

/* What the library promises about one executable. */
typedef struct {
    wf_exec *exec;
    int64_t n;
    bool wrote[2], ran, current; /* `current`: its outputs are those of the last run */
    float in[2], out[2];
} model;

enum { EXECS = 4 };

/* Another executable, or none, takes the shared memory. */
static void lose_others(model *m, int keep)
{
    for (int i = 0; i < EXECS; i++)
        if (i != keep)
            m[i].wrote[0] = m[i].wrote[1] = m[i].current = false;
}

/* Compiles executable `at` and checks that planned memory equals allocated memory. */
static void compile_one(wt_run *r, model *m, int at, int64_t n)
{
    size_t before = r->session->ports ? r->session->ports->bytes : 0, now, peak;
    wf_memory planned, got;
    wf_graph *g = sums(r->ctx, n);
    m[at] = (model){.n = n};
    wt_ok(r->ctx, wf_session_plan(r->session, g, NULL, &planned));
    wt_ok(r->ctx, wf_compile(r->session, g, &m[at].exec));
    wf_graph_free(g);
    wf_exec_memory(m[at].exec, &got);
    assert_int_equal(got.ports, planned.ports);
    assert_true(got.ports >= before);
    for (int i = 0; i < EXECS; i++)
        assert_true(!m[i].exec || ports_of(m[i].exec) == got.ports);
    wf_device_memory(r->device, &now, &peak);
    assert_int_equal(now, got.states + got.ports + got.region);
    assert_int_equal(peak, now);
    if (got.ports > before)
        lose_others(m, -1);
}

static void write_one(wt_run *r, model *m, int at, int which, float value)
{
    wt_ok(r->ctx, write_all(m[at].exec, which ? "b" : "a", m[at].n, value));
    lose_others(m, at);
    m[at].wrote[which] = true;
    m[at].in[which] = value;
}

static void run_one(wt_run *r, model *m, int at)
{
    if (!m[at].wrote[0] || !m[at].wrote[1]) {
        wt_fails(r->ctx, wf_exec_run(m[at].exec), WF_ERR_USAGE,
                 m[at].wrote[0] ? "input 'b' was not written since" : "input 'a' was not written");
        return;
    }
    wt_ok(r->ctx, wf_exec_run(m[at].exec));
    m[at].ran = m[at].current = true;
    memcpy(m[at].out, m[at].in, sizeof m[at].in);
}

/* Checks the outputs of all executables, or that reading them fails. */
static void read_all(wt_run *r, model *m)
{
    float y[MOST];
    for (int i = 0; i < EXECS; i++)
        if (m[i].current)
            expect_outputs(r->ctx, m[i].exec, m[i].n, m[i].out[0], m[i].out[1]);
        else if (m[i].exec)
            wt_fails(r->ctx, wf_exec_read(m[i].exec, "y", y, (size_t)m[i].n * sizeof *y),
                     WF_ERR_USAGE,
                     m[i].ran ? "output 'y' was overwritten" : "read before the first run");
}

/* Compiles, writes, runs and frees at random. */
static void test_contents(void **state)
{
    wf_ctx *ctx = *state;
    for (int d = 0; d < DEVICES; d++) {
        wf_rng rng;
        wf_rng_init(&rng, wt_seed(), (uint64_t)d);
        wt_run r = wt_open(ctx, devices[d]);
        model m[EXECS] = {{0}};
        wf_session_share_ports(r.session);
        for (int i = 0; i < wt_cases(400); i++) {
            int at = (int)(wf_rng_u32(&rng) % EXECS), what = (int)(wf_rng_u32(&rng) % 16);
            if (!m[at].exec) {
                compile_one(&r, m, at, 1 + (int64_t)(wf_rng_u32(&rng) % MOST));
            } else if (what == 0) {
                wf_exec_free(m[at].exec);
                m[at] = (model){0};
            } else if (what < 10) {
                write_one(&r, m, at, what % 2, (float)(wf_rng_u32(&rng) % 1000));
            } else if (what == 10) { /* the input "unread" needs no memory, but is a use */
                wt_ok(ctx, write_all(m[at].exec, "unread", m[at].n, 0));
                lose_others(m, at);
            } else {
                run_one(&r, m, at);
            }
            read_all(&r, m);
        }
        for (int i = 0; i < EXECS; i++)
            wf_exec_free(m[i].exec);
        wt_close(&r);
    }
}

/* An executable without inputs takes the memory when it runs. */
static void test_an_executable_without_inputs(void **state)
{
    wf_ctx *ctx = *state;
    for (int d = 0; d < DEVICES; d++) {
        wt_run r = wt_open(ctx, devices[d]);
        wf_exec *exec, *none;
        float y[2];
        wf_session_share_ports(r.session);
        wt_ok(ctx, compile(ctx, r.session, 50, &exec));
        wf_graph *g = wt_graph(ctx);
        wf_output(g, "y", wf_fill(g, WF_F32, 1, D(2), 7));
        wt_ok(ctx, wf_compile(r.session, g, &none));
        wf_graph_free(g);
        use(ctx, exec, 50, 1, 2);
        wt_ok(ctx, wf_exec_run(exec)); /* its inputs are intact */
        wt_ok(ctx, wf_exec_run(none));
        wt_ok(ctx, wf_exec_read(none, "y", y, sizeof y));
        wt_floats_equal(y, F(7, 7), 2);
        wt_fails(ctx, wf_exec_run(exec), WF_ERR_USAGE, "input 'a' was not written since");
        /* A refused run, and a refused write, leave the other executable's outputs readable. */
        wt_fails(ctx, wf_exec_write(exec, "a", y, 4), WF_ERR_USAGE, "200 bytes, not 4");
        wt_ok(ctx, wf_exec_read(none, "y", y, sizeof y));
        use(ctx, exec, 50, 3, 4);
        wt_fails(ctx, wf_exec_read(none, "y", y, sizeof y), WF_ERR_USAGE, "was overwritten");
        wf_exec_free(exec);
        wf_exec_free(none);
        wt_close(&r);
    }
}

/* Executables compiled before wf_session_share_ports keep their own memory. */
static void test_own_and_shared(void **state)
{
    wf_ctx *ctx = *state;
    for (int d = 0; d < DEVICES; d++) {
        wt_run r = wt_open(ctx, devices[d]);
        wf_exec *own, *shared[2];
        size_t now, peak;
        wf_memory m;
        wt_ok(ctx, compile(ctx, r.session, 10, &own));
        use(ctx, own, 10, 1, 2);
        size_t ports = ports_of(own);
        wf_session_share_ports(r.session);
        for (int i = 0; i < 2; i++) {
            wt_ok(ctx, compile(ctx, r.session, 100 * (i + 1), &shared[i]));
            use(ctx, shared[i], 100 * (i + 1), 5, 6);
            expect_outputs(ctx, own, 10, 1, 2);
        }
        assert_int_equal(ports_of(own), ports);
        assert_int_equal(ports_of(shared[0]), ports_of(shared[1]));
        wf_exec_memory(shared[0], &m);
        wf_device_memory(r.device, &now, &peak);
        assert_int_equal(now, m.states + m.region + m.ports + ports);
        wt_ok(ctx, wf_exec_run(own)); /* its inputs are intact */
        expect_outputs(ctx, own, 10, 1, 2);
        expect_outputs(ctx, shared[1], 200, 5, 6);
        wf_exec_free(own);
        wf_exec_free(shared[0]);
        wf_exec_free(shared[1]);
        wt_close(&r);
    }
}

/* ---- Reservations that fail ---- */

static struct {
    wf_device_ops ops;
    wf_status (*buffer_new)(wf_device *device, size_t bytes, wf_buffer **out);
    size_t limit; /* larger allocations fail */
} scarce;

static wf_status scarce_buffer_new(wf_device *device, size_t bytes, wf_buffer **out)
{
    *out = NULL;
    if (bytes > scarce.limit)
        return wf_fail(device->ctx, WF_ERR_MEMORY, "out of memory: %zu bytes were wanted", bytes);
    return scarce.buffer_new(device, bytes, out);
}

static void test_a_reservation_fails(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_exec *small, *large;
    float y[20];
    scarce.ops = *r.device->ops;
    scarce.buffer_new = scarce.ops.buffer_new;
    scarce.ops.buffer_new = scarce_buffer_new;
    scarce.limit = SIZE_MAX;
    r.device->ops = &scarce.ops;
    wf_session_share_ports(r.session);
    wt_ok(ctx, compile(ctx, r.session, 20, &small));
    use(ctx, small, 20, 1, 2);
    size_t ports = ports_of(small);

    scarce.limit = ports; /* the old size is restored, but the contents are lost */
    wt_fails(ctx, compile(ctx, r.session, 200, &large), WF_ERR_MEMORY, "out of memory");
    assert_int_equal(ports_of(small), ports);
    wt_fails(ctx, wf_exec_read(small, "y", y, sizeof y), WF_ERR_USAGE, "was overwritten");
    wt_fails(ctx, wf_exec_run(small), WF_ERR_USAGE, "input 'a' was not written since");
    use(ctx, small, 20, 3, 4);

    scarce.limit = ports - 1; /* not even the old size */
    wt_fails(ctx, compile(ctx, r.session, 200, &large), WF_ERR_MEMORY, "out of memory");
    assert_int_equal(ports_of(small), 0);
    wt_fails(ctx, write_all(small, "a", 20, 0), WF_ERR_MEMORY,
             "the session's input and output memory could not be allocated again");
    wt_fails(ctx, wf_exec_run(small), WF_ERR_USAGE, "input 'a' was not written since");
    scarce.limit = SIZE_MAX;
    wt_ok(ctx, compile(ctx, r.session, 10, &large)); /* allocates it for all executables again */
    assert_int_equal(ports_of(large), ports);
    use(ctx, small, 20, 5, 6);
    use(ctx, large, 10, 7, 8);
    wf_exec_free(small);
    wf_exec_free(large);
    wt_close(&r);
}

/* Every allocation of compiling a larger executable fails in turn; the smaller one still works. */
static void test_every_allocation_fails(void **state)
{
    wf_ctx *ctx = *state;
    for (int d = 0; d < DEVICES; d++) {
        wt_run r = wt_open(ctx, devices[d]);
        wf_exec *small, *large = NULL;
        wf_session_share_ports(r.session);
        wt_ok(ctx, compile(ctx, r.session, 20, &small));
        wf_graph *g = sums(ctx, MOST);
        for (uint64_t nth = 1; !large; nth++) {
            use(ctx, small, 20, (float)nth, 2);
            wf_ctx_fail_allocation(ctx, nth);
            wf_status status = wf_compile(r.session, g, &large);
            bool reached = ctx->fail_in_calls == 0;
            wf_ctx_fail_allocation(ctx, 0);
            if (reached)
                wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
            else
                wt_ok(ctx, status);
        }
        use(ctx, small, 20, 1, 2);
        use(ctx, large, MOST, 3, 4);
        wf_graph_free(g);
        wf_exec_free(small);
        wf_exec_free(large);
        wt_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_contents),
        wt_test(test_an_executable_without_inputs),
        wt_test(test_own_and_shared),
        wt_test(test_a_reservation_fails),
        wt_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
