/* SPDX-License-Identifier: MIT */
/*
 * test_pack_later.c - packed states whose contents stay in a file until the first run or read packs
 * them. Results have the same bits as with written states. A truncated file is an error of that run
 * and of every later one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "support.h"

enum { N = 70, K = 512, AT = 4096 + 64 };

static char path[64];
static uint8_t blocks[N * K * 2], back[sizeof blocks];
static float numbers[N * K], x[K];

static int make_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/weft-later-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* Writes a file that contains the blocks of a matrix at an offset. */
static size_t fill(wf_ctx *ctx, wf_type type)
{
    const uint64_t seed = wt_seed();
    const size_t bytes = wf_type_bytes(type, N * K);
    static char file[AT + sizeof blocks + 100];
    wf_random_normal(seed, 1, 0, 1, numbers, N * K);
    wf_random_normal(seed, 2, 0, 1, x, K);
    wt_ok(ctx, wf_type_from_f32(ctx, type, numbers, blocks, N * K));
    memset(file, 0xee, sizeof file);
    memcpy(file + AT, blocks, bytes);
    wt_ok(ctx, wf_file_write(ctx, path, file, sizeof file));
    return bytes;
}

/* Opens a session with "w" packed and still empty. Returns false when the device packs no
 * blocks. */
static bool open_session(wf_ctx *ctx, const char *device, wf_type type, wt_run *r)
{
    const wf_dims shape = {2, {N, K}};
    *r = wt_open(ctx, device);
    if (r->device->ops->packed_bytes(r->device, type, &shape) == 0) {
        wt_close(r);
        return false;
    }
    wt_ok(ctx, wf_session_pack(r->session, "w", type, 2, shape.d));
    return true;
}

static void compile_product(wf_ctx *ctx, wt_run *r, wf_type type)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *in = wf_input(g, "x", WF_F32, 2, (int64_t[]){1, K});
    wf_value *w = wf_state(g, "w", type, 2, (int64_t[]){N, K});
    wt_ok(ctx, wf_output(g, "y", wf_linear(g, in, w, NULL)));
    wt_compile(r, g);
    wt_write(r, "x", x, sizeof x);
}

static void multiply(wt_run *r, float y[N])
{
    wt_run_once(r);
    wt_read(r, "y", y, N * sizeof *y);
}

static void test_the_first_run_packs(void **state)
{
    static const wf_type types[] = {WF_Q8_0, WF_Q4_0, WF_Q4_1, WF_Q4_K, WF_Q6_K};
    static const char *const devices[] = {"cpu:1", "cpu:2", "check"};
    wf_ctx *ctx = *state;
    for (int i = 0; i < 15; i++) {
        const wf_type type = types[i % 5];
        wt_run now, later;
        wf_map *map;
        float want[N], got[N];
        const size_t bytes = fill(ctx, type);
        if (!open_session(ctx, devices[i / 5], type, &now))
            skip();
        assert_true(open_session(ctx, devices[i / 5], type, &later));
        wt_ok(ctx, wf_map_open(ctx, path, &map));
        compile_product(ctx, &now, type);
        compile_product(ctx, &later, type);
        wt_ok(ctx, wf_session_write(now.session, "w", blocks, bytes));
        wf_session_write_later(later.session, "w", map, AT);
        assert_int_equal(now.session->waiting, 0);
        assert_int_equal(later.session->waiting, 1);
        multiply(&now, want);
        multiply(&later, got);
        assert_int_equal(later.session->waiting, 0);
        wf_map_close(map);
        assert_memory_equal(got, want, sizeof want);
        multiply(&later, got);
        assert_memory_equal(got, want, sizeof want);
        wt_close(&now);
        wt_close(&later);
    }
}

static void test_reading_packs_and_writing_replaces(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r;
    wf_map *map;
    const size_t bytes = fill(ctx, WF_Q4_K);
    if (!open_session(ctx, "cpu:2", WF_Q4_K, &r))
        skip();
    wt_ok(ctx, wf_map_open(ctx, path, &map));
    wf_session_write_later(r.session, "w", map, AT);
    wt_ok(ctx, wf_session_read(r.session, "w", back, bytes));
    assert_memory_equal(back, blocks, bytes);
    assert_int_equal(r.session->waiting, 0);
    wf_session_write_later(r.session, "w", map, AT);
    wf_session_write_later(r.session, "w", map, AT);
    assert_int_equal(r.session->waiting, 1);
    blocks[17] ^= 1;
    wt_ok(ctx, wf_session_write(r.session, "w", blocks, bytes));
    assert_int_equal(r.session->waiting, 0);
    wt_ok(ctx, wf_session_settle(r.session, NULL));
    wt_ok(ctx, wf_session_read(r.session, "w", back, bytes));
    assert_memory_equal(back, blocks, bytes);
    wf_session_write_later(r.session, "w", map, AT); /* superseded, so never read */
    wt_close(&r);
    wf_map_close(map);
}

/* Rows so long that they are packed in several pieces; the last piece is not a whole panel. */
static void test_pieces(void **state)
{
    enum { LONG = 1 << 17 };
    wf_ctx *ctx = *state;
    const wf_dims shape = {2, {N, LONG}};
    const size_t bytes = wf_type_bytes(WF_Q8_0, N * LONG);
    uint8_t *from = malloc(bytes), *to = malloc(bytes);
    wt_run r = wt_open(ctx, "cpu:2");
    wf_map *map;
    if (r.device->ops->packed_bytes(r.device, WF_Q8_0, &shape) == 0) {
        free(from);
        free(to);
        wt_close(&r);
        skip();
    }
    for (size_t i = 0; i < bytes; i++)
        from[i] = (uint8_t)(i * 2654435761u >> 13);
    wt_ok(ctx, wf_session_pack(r.session, "w", WF_Q8_0, 2, shape.d));
    wt_ok(ctx, wf_map_memory(ctx, from, bytes, &map));
    wf_session_write_later(r.session, "w", map, 0);
    wt_ok(ctx, wf_session_settle(r.session, NULL));
    wf_map_close(map);
    wt_ok(ctx, wf_session_read(r.session, "w", to, bytes));
    assert_memory_equal(to, from, bytes);
    wt_close(&r);
    free(from);
    free(to);
}

static void test_a_file_cut_short(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r;
    wf_map *map;
    float y[N];
    const size_t bytes = fill(ctx, WF_Q8_0);
    if (!open_session(ctx, "cpu:2", WF_Q8_0, &r))
        skip();
    wf_guard_mapped_files(true);
    wt_ok(ctx, wf_map_open(ctx, path, &map));
    compile_product(ctx, &r, WF_Q8_0);
    wf_session_write_later(r.session, "w", map, AT);
    assert_int_equal(truncate(path, 0), 0); /* cut to 0, because pages may be large */
    for (int i = 0; i < 2; i++) {
        wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_IO, "state 'w' was truncated");
        assert_int_equal(r.session->waiting, 1);
    }
    wt_ok(ctx, wf_session_write(r.session, "w", blocks, bytes));
    multiply(&r, y);
    wf_map_close(map);
    wf_guard_mapped_files(false);
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_the_first_run_packs),
        wt_test(test_reading_packs_and_writing_replaces),
        wt_test(test_pieces),
        wt_test(test_a_file_cut_short),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
