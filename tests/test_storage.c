/* SPDX-License-Identifier: MIT */
/*
 * test_storage.c - states mapped from a file: the results of written states without a copy, and
 * every invalid file, offset or graph.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/device.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

enum { N = 5, K = 7, ROWS = 3 };

/* ---- Files ---- */

static char folder[] = "/tmp/weft-storage-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A weight [N, K] of each type, one after the other, at offsets with the minimal alignment of the
 * type. */
typedef struct {
    unsigned char bytes[1024];
    size_t size, at[3], length[3];
} contents;

static const wf_type types[3] = {WF_F16, WF_F32, WF_BF16};
static const char *const names[3] = {"half", "single", "brain"};

static contents fill_contents(wf_ctx *ctx)
{
    contents c = {.size = 2};
    float w[N * K];
    for (int i = 0; i < 3; i++) {
        size_t align = types[i] == WF_F32 ? 4 : 2;
        c.at[i] = (c.size + align) / align * align; /* always some bytes in between */
        c.length[i] = wf_type_bytes(types[i], N * K);
        wf_random_normal(11, (uint64_t)i, 0, 1, w, N * K);
        wt_ok(ctx, wf_type_from_f32(ctx, types[i], w, c.bytes + c.at[i], N * K));
        c.size = c.at[i] + c.length[i];
        c.bytes[c.size++] = 0xff;
    }
    c.size--; /* the last weight ends with the file */
    assert_true(c.size <= sizeof c.bytes && c.at[1] % 8 == 4);
    return c;
}

static wf_status map_weight(wf_session *s, int i, const char *path, uint64_t offset)
{
    return wf_session_map(s, names[i], types[i], 2, D(N, K), path, offset);
}

/* y0, y1, y2: the matmul of x with each weight, in the weight's type. */
static wf_status build_products(wf_ctx *ctx, wf_graph **g)
{
    WF_TRY(wf_graph_new(ctx, g));
    wf_value *x = wf_input(*g, "x", WF_F32, 2, D(ROWS, K));
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        wf_value *w = wf_state(*g, names[i], types[i], 2, D(N, K));
        wf_output(*g, name, wf_linear(*g, wf_cast(*g, x, types[i]), w, NULL));
    }
    return wf_graph_status(*g);
}

static void run_products(wt_run *r, unsigned char y[3][ROWS * N * 4])
{
    float x[ROWS * K];
    wf_random_normal(12, 0, 0, 1, x, ROWS * K);
    memset(y, 0, 3 * sizeof *y);
    wt_write(r, "x", x, sizeof x);
    wt_run_once(r);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        wt_read(r, name, y[i], wf_type_bytes(types[i], ROWS * N));
    }
}

static wf_graph *products(wf_ctx *ctx)
{
    wf_graph *g;
    wt_ok(ctx, build_products(ctx, &g));
    return g;
}

/* ---- Valid files ---- */

static void test_results_of_mapped_states(void **state)
{
    wf_ctx *ctx = *state;
    unsigned char want[3][ROWS * N * 4], got[3][ROWS * N * 4], back[N * K * 4];
    const contents c = fill_contents(ctx);
    const char *path = in_folder("weights");
    write_file(path, c.bytes, c.size);

    wt_run r = wt_open(ctx, "cpu:1");
    wt_compile(&r, products(ctx));
    for (int i = 0; i < 3; i++)
        wt_ok(ctx, wf_session_write(r.session, names[i], c.bytes + c.at[i], c.length[i]));
    run_products(&r, want);
    wt_close(&r);

    r = wt_open(ctx, "cpu:1");
    wt_run other = {.ctx = ctx, .device = r.device}; /* a second session maps the same file */
    wt_ok(ctx, wf_session_new(r.device, &other.session));
    for (int i = 0; i < 3; i++) {
        wt_ok(ctx, map_weight(r.session, i, path, c.at[i]));
        wt_ok(ctx, map_weight(other.session, i, path, c.at[i]));
    }
    size_t bytes, peak;
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, 0); /* nothing was copied */
    assert_int_equal(unlink(path), 0);
    wt_compile(&r, products(ctx));
    wt_compile(&other, products(ctx));
    run_products(&r, got);
    assert_memory_equal(got, want, sizeof want);
    wf_memory m;
    wf_exec_memory(r.exec, &m);
    assert_int_equal(m.states, 0);
    assert_int_equal(m.mapped, N * K * (2 + 4 + 2));
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, 2 * (m.ports + m.region));
    for (int i = 0; i < 3; i++) {
        wt_ok(ctx, wf_session_read(r.session, names[i], back, c.length[i]));
        assert_memory_equal(back, c.bytes + c.at[i], c.length[i]);
    }
    wf_exec_free(r.exec); /* one session closes its file; the other still runs */
    wf_session_free(r.session);
    run_products(&other, got);
    assert_memory_equal(got, want, sizeof want);
    wt_close(&other);
}

static void test_mapped_states_are_not_written(void **state)
{
    wf_ctx *ctx = *state;
    const contents c = fill_contents(ctx);
    const char *path = in_folder("weights");
    unsigned char back[N * K * 4];
    write_file(path, c.bytes, c.size);
    wt_run r = wt_open(ctx, "cpu:1");
    wt_ok(ctx, map_weight(r.session, 1, path, c.at[1]));
    wt_fails(ctx, wf_session_write(r.session, "single", c.bytes, c.length[1]), WF_ERR_USAGE,
             "state 'single' is mapped from a file and cannot be written");
    wf_graph *g = wt_graph(ctx);
    wf_value *w = wf_state(g, "single", WF_F32, 2, D(N, K));
    wf_state(g, "new", WF_F32, 1, D(2));
    wf_assign(g, w, wf_scale(g, w, 2), NULL);
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_USAGE,
             "assign cannot write state 'single', which is mapped from a file in this session");
    assert_null(r.exec);
    assert_int_equal(r.session->state_count, 1);
    wf_graph_free(g);
    wt_ok(ctx, wf_session_read(r.session, "single", back, c.length[1]));
    assert_memory_equal(back, c.bytes + c.at[1], c.length[1]);
    wt_close(&r);
    unlink(path);
}

/* On a device that cannot read host memory the state is a copy, and still read-only. */
static void test_a_device_that_copies(void **state)
{
    wf_ctx *ctx = *state;
    const contents c = fill_contents(ctx);
    const char *mock = getenv("WEFT_TEST_MOCK_PJRT"), *path = in_folder("weights");
    char spec[1024];
    unsigned char back[N * K * 4];
    if (!mock)
        fail_msg("WEFT_TEST_MOCK_PJRT does not say where the mock is");
    snprintf(spec, sizeof spec, "pjrt:%s", mock ? mock : "");
    write_file(path, c.bytes, c.size);
    wt_run r = wt_open(ctx, spec);
    wt_ok(ctx, map_weight(r.session, 1, path, c.at[1]));
    assert_null(r.session->files);
    unlink(path);
    wt_ok(ctx, wf_session_read(r.session, "single", back, c.length[1]));
    assert_memory_equal(back, c.bytes + c.at[1], c.length[1]);
    wt_fails(ctx, wf_session_write(r.session, "single", c.bytes, c.length[1]), WF_ERR_USAGE,
             "cannot be written");
    size_t bytes, peak;
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, c.length[1]);
    wt_fails(ctx, wf_session_pack(r.session, "w", WF_F32, 2, D(N, K)), WF_ERR_UNSUPPORTED,
             "cannot pack state 'w', which is f32[5,7]");
    assert_int_equal(r.session->state_count, 1);
    wt_close(&r);
}

/* ---- Invalid files ---- */

static void test_files_that_will_not_do(void **state)
{
    wf_ctx *ctx = *state;
    const contents c = fill_contents(ctx);
    const char *path = in_folder("weights");
    const int64_t large = (int64_t)1 << 40;
    write_file(path, c.bytes, c.size);
    wt_run r = wt_open(ctx, "cpu:1");
    wf_session *s = r.session;
    uint64_t blocks = wt_live_blocks(ctx);

    wt_fails(ctx, map_weight(s, 1, path, c.size), WF_ERR_FORMAT,
             "needs 140 bytes at byte 288 of '");
    wt_fails(ctx, map_weight(s, 1, path, c.size - 140 + 4), WF_ERR_FORMAT, "has only");
    wt_fails(ctx, map_weight(s, 1, path, UINT64_MAX), WF_ERR_FORMAT,
             "at byte 18446744073709551615");
    wt_fails(ctx, map_weight(s, 1, path, UINT64_MAX - 139), WF_ERR_FORMAT, "has only");
    wt_fails(ctx, map_weight(s, 1, path, c.at[1] + 2), WF_ERR_FORMAT, "not a multiple of 4");
    wt_fails(ctx, map_weight(s, 0, path, c.at[0] + 1), WF_ERR_FORMAT, "not a multiple of 2");
    wt_fails(ctx, wf_session_map(s, "q", WF_Q8_0, 1, D(32), path, 1), WF_ERR_FORMAT,
             "not a multiple of 2");
    wt_fails(ctx, wf_session_map(s, "w", WF_F32, 1, &large, path, 0), WF_ERR_FORMAT, "has only");
    wt_fails(ctx, wf_session_map(s, "w", WF_F32, 2, D(large, large), path, 0), WF_ERR_USAGE,
             "too large to address");
    wt_fails(ctx, wf_session_map(s, "w", WF_F32, 1, D(-1), path, 0), WF_ERR_USAGE, "state");
    wt_fails(ctx, wf_session_map(s, "w", WF_F32, 7, D(1, 1, 1, 1, 1, 1, 1), path, 0), WF_ERR_USAGE,
             "state");
    wt_fails(ctx, wf_session_map(s, "w", WF_Q8_0, 1, D(31), path, 0), WF_ERR_USAGE,
             "multiple of 32");
    wt_fails(ctx, wf_session_map(s, "", WF_F32, 1, D(1), path, 0), WF_ERR_USAGE, "name");
    wt_fails(ctx, wf_session_map(s, NULL, WF_F32, 1, D(1), path, 0), WF_ERR_USAGE, "name");
    wt_fails(ctx, map_weight(s, 1, folder, 0), WF_ERR_IO, folder);
    wt_fails(ctx, map_weight(s, 1, in_folder("nothing"), 0), WF_ERR_IO, "nothing");
    write_file(in_folder("empty"), "", 0);
    wt_fails(ctx, map_weight(s, 1, in_folder("empty"), 0), WF_ERR_FORMAT, "has only 0");
    wt_ok(ctx, wf_session_map(s, "nil", WF_F32, 2, D(0, 3), in_folder("empty"), 0));
    unlink(in_folder("empty"));
    assert_int_equal(s->state_count, 1);

    path = in_folder("weights");
    wt_ok(ctx, map_weight(s, 1, path, c.at[1]));
    wt_fails(ctx, map_weight(s, 1, path, c.at[1]), WF_ERR_USAGE,
             "the session already has a state 'single'");
    wt_fails(ctx, wf_session_pack(s, "single", WF_F32, 2, D(N, K)), WF_ERR_USAGE, "already");
    assert_int_equal(s->state_count, 2);
    unlink(path);
    wt_close(&r);
    assert_true(wt_live_blocks(ctx) < blocks);
}

/* A refused file may be replaced by a valid one. */
static void test_a_file_that_grows(void **state)
{
    wf_ctx *ctx = *state;
    const float w[4] = {1, 2, 3, 4};
    float back[4];
    wt_run r = wt_open(ctx, "cpu:1");
    write_file(in_folder("short"), w, 8);
    wt_fails(ctx, wf_session_map(r.session, "w", WF_F32, 1, D(4), in_folder("short"), 0),
             WF_ERR_FORMAT, "has only");
    unlink(in_folder("short"));
    write_file(in_folder("short"), w, 16);
    wt_ok(ctx, wf_session_map(r.session, "w", WF_F32, 1, D(4), in_folder("short"), 0));
    wt_ok(ctx, wf_session_read(r.session, "w", back, sizeof back));
    assert_memory_equal(back, w, sizeof w);
    unlink(in_folder("short"));
    wt_close(&r);
}

static void test_graphs_that_disagree(void **state)
{
    wf_ctx *ctx = *state;
    const contents c = fill_contents(ctx);
    write_file(in_folder("weights"), c.bytes, c.size);
    wt_run r = wt_open(ctx, "cpu:1");
    wt_ok(ctx, map_weight(r.session, 1, in_folder("weights"), c.at[1]));
    for (int i = 0; i < 2; i++) {
        wf_graph *g = wt_graph(ctx);
        wf_state(g, "single", i ? WF_F32 : WF_F16, 2, D(N, K + i));
        wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_USAGE,
                 i ? "f32[5,7] in this session, but f32[5,8]"
                   : "f32[5,7] in this session, but f16[5,7]");
        wf_graph_free(g);
    }
    unlink(in_folder("weights"));
    wt_close(&r);
}

/* ---- Allocation failures ---- */

static wf_status map_and_compile(wf_device *device, const contents *c)
{
    wf_session *s = NULL;
    wf_graph *g = NULL;
    wf_exec *exec = NULL;
    wf_status status = wf_session_new(device, &s);
    for (int i = 0; i < 3 && status == WF_OK; i++)
        status = map_weight(s, i, in_folder("weights"), c->at[i]);
    if (status == WF_OK)
        status = wf_session_pack(s, "packed", WF_BF16, 2, D(N, K));
    if (status == WF_OK)
        status = build_products(device->ctx, &g);
    if (status == WF_OK)
        status = wf_compile(s, g, &exec);
    wf_exec_free(exec);
    wf_graph_free(g);
    wf_session_free(s);
    return status;
}

static void test_every_allocation_fails(void **state)
{
    wf_ctx *ctx = *state;
    const contents c = fill_contents(ctx);
    write_file(in_folder("weights"), c.bytes, c.size);
    wt_run r = wt_open(ctx, "cpu:1");
    uint64_t blocks = wt_live_blocks(ctx), nth = 0;
    size_t bytes, peak;
    bool reached;
    do {
        wf_ctx_fail_allocation(ctx, ++nth);
        wf_status status = map_and_compile(r.device, &c);
        reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        if (reached)
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
        else
            wt_ok(ctx, status);
        assert_int_equal(wt_live_blocks(ctx), blocks);
        wf_device_memory(r.device, &bytes, &peak);
        assert_int_equal(bytes, 0);
    } while (reached);
    assert_true(nth > 40);
    unlink(in_folder("weights"));
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_results_of_mapped_states), wt_test(test_mapped_states_are_not_written),
        wt_test(test_a_device_that_copies),     wt_test(test_files_that_will_not_do),
        wt_test(test_a_file_that_grows),        wt_test(test_graphs_that_disagree),
        wt_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
