/* SPDX-License-Identifier: MIT */
/*
 * test_merged.c - head_loss, adamw_many and accumulate_many return the same bits as the separate
 * ops that they replace. Covers random shapes and types, strided operands, unread outputs, updates
 * that are not applied, and one to three threads. head_loss needs no more memory for more rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/philox.h"
#include "graph/build.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

/* ---- One case, as a merged op and as separate ops ---- */

typedef struct {
    uint64_t seed; /* of shapes and types where the builder draws them, and of all contents */
    int32_t classes, ignore;
    uint8_t apply;
    /* head_loss */
    int64_t rows, width, chunk;
    bool grad, strided, masked; /* masked: few targets count */
    wf_type x, w;
    unsigned read; /* bit i: output i */
} setup;

typedef void build_fn(wf_graph *g, const setup *s, bool merged);

/* All results of a run. */
typedef struct {
    int count;
    struct {
        char name[16];
        size_t bytes;
        void *data;
    } item[WF_MAX_OUT + 16];
    wf_memory memory;
} result;

static wf_rng stream_of(uint64_t seed, const char *name)
{
    wf_rng rng;
    wf_rng_init(&rng, seed, wf_hash_fnv1a_string(WF_FNV1A, name));
    return rng;
}

/* Contents of an input or state. When no update is applied, states hold arbitrary bits, NaNs
 * included. */
static void *draw(wf_ctx *ctx, const wf_info *info, const setup *s)
{
    wf_rng rng = stream_of(s->seed, info->name);
    int64_t n = (int64_t)(info->bytes / wf_type_bytes(info->type, 1));
    void *to = malloc(info->bytes + 1);
    float *f = malloc((size_t)n * sizeof *f + 1);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = wf_rng_u32(&rng);
        f[i] = wf_u32_to_unit(bits) * 2 - 1;
        if (info->name[0] == 'v') /* second moments */
            f[i] = f[i] < 0 ? -f[i] : f[i];
        if (info->type == WF_I32 && strcmp(info->name, "targets") == 0)
            ((int32_t *)to)[i] = (bits % 8 == 0) != s->masked
                                     ? s->ignore
                                     : (int32_t)(bits / 8 % (uint32_t)s->classes);
        else if (info->type == WF_I32)
            ((int32_t *)to)[i] = strcmp(info->name, "step") == 0 ? 3 : (int32_t)bits;
        else if (info->type == WF_U8)
            ((uint8_t *)to)[i] = s->apply;
    }
    if (info->type != WF_I32 && info->type != WF_U8)
        wt_ok(ctx, wf_type_from_f32(ctx, info->type, f, to, n));
    for (size_t i = 0; info->name[0] < 'a' && !s->apply && i < info->bytes; i++)
        ((uint8_t *)to)[i] = (uint8_t)wf_rng_u32(&rng);
    free(f);
    return to;
}

static void write_all(wt_run *r, const setup *s)
{
    wf_info info;
    for (int i = 0; wf_exec_input(r->exec, i, &info); i++) {
        void *data = draw(r->ctx, &info, s);
        wt_write(r, info.name, data, info.bytes);
        free(data);
    }
    for (int i = 0; wf_session_state(r->session, i, &info); i++) {
        void *data = draw(r->ctx, &info, s);
        wt_ok(r->ctx, wf_session_write(r->session, info.name, data, info.bytes));
        free(data);
    }
}

static void *add_item(result *out, const wf_info *info)
{
    assert_true(out->count < WF_MAX_OUT + 16);
    snprintf(out->item[out->count].name, sizeof out->item->name, "%s", info->name);
    out->item[out->count].bytes = info->bytes;
    return out->item[out->count++].data = malloc(info->bytes + 1);
}

static bool has_run(const wf_exec *exec, const char *op)
{
    wf_op_stats stats;
    for (int i = 0; wf_exec_op_stats(exec, i, &stats); i++)
        if (strcmp(stats.op, op) == 0)
            return stats.launches == 1;
    return false;
}

/* op: the merged op, or NULL for the separate ops. */
static result run(wf_ctx *ctx, const char *device, build_fn *build, const setup *s, const char *op)
{
    wt_run r = wt_open(ctx, device);
    wf_graph *g = wt_graph(ctx);
    result out = {0};
    wf_info info;
    build(g, s, op != NULL);
    const wf_compile_options as_written = {.without = WF_PASS_FOLD | WF_PASS_FUSE};
    wt_ok(ctx, wf_compile_with(r.session, g, &as_written, &r.exec));
    wf_graph_free(g);
    write_all(&r, s);
    wt_run_once(&r);
    assert_true(!op || has_run(r.exec, op));
    for (int i = 0; wf_exec_output(r.exec, i, &info); i++)
        wt_read(&r, info.name, add_item(&out, &info), info.bytes);
    for (int i = 0; wf_session_state(r.session, i, &info); i++) {
        void *got = add_item(&out, &info), *before = draw(ctx, &info, s);
        wt_ok(ctx, wf_session_read(r.session, info.name, got, info.bytes));
        if (!s->apply && memcmp(got, before, info.bytes) != 0)
            fail_msg("%s: %s has changed, and apply is 0", op ? op : "separate ops", info.name);
        free(before);
    }
    wf_exec_memory(r.exec, &out.memory);
    wt_close(&r);
    return out;
}

static void free_result(result *r)
{
    for (int i = 0; i < r->count; i++)
        free(r->item[i].data);
}

/* Compares the merged op on one, two and three threads with the separate ops on one. */
static void compare(wf_ctx *ctx, build_fn *build, const setup *s, const char *op)
{
    result want = run(ctx, "cpu:1", build, s, NULL);
    for (int threads = 1; threads <= 3; threads++) {
        char device[16];
        snprintf(device, sizeof device, "cpu:%d", threads);
        result got = run(ctx, device, build, s, op);
        assert_int_equal(got.count, want.count);
        for (int i = 0; i < got.count; i++) {
            assert_string_equal(got.item[i].name, want.item[i].name);
            assert_int_equal(got.item[i].bytes, want.item[i].bytes);
            if (memcmp(got.item[i].data, want.item[i].data, want.item[i].bytes) != 0)
                fail_msg("%s on %d threads: %s has other bits than in separate ops; rows %d, "
                         "classes %d, width %d, chunk %d, x %s, w %s, apply %d, seed %llu",
                         op, threads, got.item[i].name, (int)s->rows, s->classes, (int)s->width,
                         (int)s->chunk, wf_type_name(s->x), wf_type_name(s->w), s->apply,
                         (unsigned long long)s->seed);
        }
        free_result(&got);
    }
    free_result(&want);
}

/* An input, or a slice from the middle of a larger one, whose rows are not contiguous. */
static wf_value *operand(wf_graph *g, const char *name, wf_type type, wf_dims dims, bool strided)
{
    if (!strided || dims.n == 0)
        return wf_input(g, name, type, (int)dims.n, dims.d);
    wf_dims all = dims;
    int last = (int)dims.n - 1;
    all.d[last] += 3;
    all.d[0] += last > 0 ? 1 : 0;
    wf_value *v = wf_input(g, name, type, (int)all.n, all.d);
    v = wf_slice(g, v, last, 2, 2 + dims.d[last]);
    return last > 0 ? wf_slice(g, v, 0, 1, 1 + dims.d[0]) : v;
}

/* ---- head_loss ---- */

static void build_head(wf_graph *g, const setup *s, bool merged)
{
    static const char *const names[] = {"loss", "lse", "dx", "dw"};
    const bool frozen = s->grad && !(s->read >> 3 & 1) && s->seed % 3;
    wf_attr_head_loss attr = {s->ignore, 0, 0, 0, s->chunk, frozen};
    if (s->seed % 2) {
        attr.label_smoothing = 0.1;
        attr.z_loss = 1e-2;
        attr.softcap = 2;
    }
    wf_dims lead = {1, {s->rows}}, x = {2, {s->rows, s->width}};
    if (s->rows % 3 == 0 && s->seed % 4 < 2) {
        lead = (wf_dims){2, {s->rows / 3, 3}};
        x = (wf_dims){3, {s->rows / 3, 3, s->width}};
    }
    wf_value *in[] = {operand(g, "x", s->x, x, s->strided),
                      operand(g, "w", s->w, (wf_dims){2, {s->classes, s->width}}, s->strided),
                      operand(g, "targets", WF_I32, lead, s->strided),
                      s->grad ? operand(g, "dloss", WF_F32, lead, s->strided) : NULL};
    wf_value *out[4] = {NULL};
    if (merged) {
        out[0] = wf_node_add(g, WF_OP_head_loss, &attr, NULL, in, s->grad ? 4 : 3);
        for (int i = 1; i < (frozen ? 3 : s->grad ? 4 : 2); i++)
            out[i] = wf_value_output(out[0], i);
    } else {
        wf_attr_cross_entropy loss = wf_attr_of_loss(&attr);
        wf_value *parts[] = {wf_linear(g, in[0], in[1], NULL), in[2]};
        out[0] = wf_node_add(g, WF_OP_cross_entropy, &loss, NULL, parts, 2);
        out[1] = wf_value_output(out[0], 1);
        if (s->grad)
            wt_ok(g->ctx, wf_pass_grad(g, out, &in[3], 1, in, 2, out + 2));
    }
    for (int i = 0; i < 4; i++)
        if (out[i] && s->read >> i & 1)
            wf_output(g, names[i], out[i]);
}

static int64_t pick_size(wf_rng *rng)
{
    return wf_rng_below(rng, 3) ? 1 + (int64_t)wf_rng_below(rng, 20)
                                : 120 + (int64_t)wf_rng_below(rng, 160);
}

static wf_type pick_float(wf_rng *rng)
{
    static const wf_type types[] = {WF_F32, WF_F32, WF_BF16, WF_F16};
    return types[wf_rng_below(rng, 4)];
}

static setup pick_head(wf_rng *rng, int64_t rows, int64_t chunk)
{
    setup s = {.seed = wf_rng_u32(rng), .rows = rows, .chunk = chunk, .ignore = -1};
    s.classes = (int32_t)pick_size(rng);
    s.width = pick_size(rng);
    if (rows * s.classes * s.width > 3000000)
        s.width = 3000000 / (rows * s.classes) + 1;
    s.x = pick_float(rng);
    s.w = wf_rng_below(rng, 2) ? s.x : pick_float(rng);
    s.strided = wf_rng_below(rng, 2);
    s.grad = wf_rng_below(rng, 8) > 0;
    s.masked = wf_rng_below(rng, 2);
    unsigned all = s.grad ? 15 : 3;
    s.read = wf_rng_below(rng, 2) ? all : 1 + (unsigned)wf_rng_below(rng, all);
    return s;
}

/* All results are bitwise equal, dw included, when chunks are whole blocks of the matmul's sums. */
static void test_head_in_chunks(void **state)
{
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    static const int64_t chunks[] = {0, 256, 512};
    for (int i = 0; i < 3; i++) {
        int64_t chunk = chunks[i] ? chunks[i] : 256;
        const int64_t rows[] = {0, 1, 2, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 77};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            for (int again = 0; again < 2; again++) {
                setup s = pick_head(&rng, rows[k], chunks[i]);
                compare(*state, build_head, &s, "head_loss");
            }
    }
}

/* With other chunk sizes rows are still bitwise equal, and so is dw when it is a single portion. */
static void test_head_in_odd_chunks(void **state)
{
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 2);
    for (int i = 0; i < 30; i++) {
        int64_t chunk = 1 + (int64_t)wf_rng_below(&rng, 9);
        setup s = pick_head(&rng, (int64_t)wf_rng_below(&rng, 30), chunk);
        s.read = s.rows <= chunk ? s.read : (s.read & 7) | 1;
        compare(*state, build_head, &s, "head_loss");
    }
}

/* The last chunk needs more scratch than the others: it has so few rows that they are widened
 * first, or it is split differently. */
static void test_head_of_a_last_chunk(void **state)
{
    static const setup sizes[] = {
        {.rows = 264, .classes = 32, .width = 16384},
        {.rows = 258, .chunk = 130, .classes = 128, .width = 128},
        {.rows = 66, .chunk = 34, .classes = 32, .width = 2048},
    };
    for (int i = 0; i < 3; i++) {
        setup s = sizes[i];
        s.seed = wt_seed();
        s.ignore = -1;
        s.x = s.w = WF_F32;
        s.read = 3;
        compare(*state, build_head, &s, "head_loss");
    }
}

/* Separate ops hold the logits of all rows, head_loss those of one chunk. */
static void test_head_memory(void **state)
{
    wf_ctx *ctx = *state;
    const size_t per_thread = 132 * 1024 + 132 * 1024 + 64 * 1024 + 4096; /* a matmul's blocks */
    setup s = {.seed = 2, .classes = 300, .width = 8, .ignore = -1, .grad = true, .read = 15};
    for (int types = 0; types < 4; types++) {
        size_t first = 0, separate = 0;
        s.x = types & 1 ? WF_BF16 : WF_F32;
        s.w = types & 2 ? WF_BF16 : WF_F32;
        for (s.rows = 256; s.rows <= 2048; s.rows *= 2) {
            result r = run(ctx, "cpu:2", build_head, &s, "head_loss");
            size_t bound = 256 * 300 * wf_type_bytes(s.x, 1) + 2 * per_thread;
            bound += s.w == WF_F32 ? 0 : 300 * 8 * 4;
            first = first ? first : r.memory.workspace;
            assert_int_equal(r.memory.workspace, first);
            assert_in_range(r.memory.workspace, 0, bound);
            separate = r.memory.activations;
            free_result(&r);
        }
        s.rows = 2048;
        result r = run(ctx, "cpu:2", build_head, &s, NULL);
        assert_true(r.memory.activations > separate + 1700 * 300 * wf_type_bytes(s.x, 1));
        free_result(&r);
    }
}

static void test_head_of_bad_targets(void **state)
{
    wf_ctx *ctx = *state;
    static const int32_t bad[] = {5, -2, INT32_MAX, INT32_MIN};
    setup s = {.seed = 2, .classes = 5, .width = 3, .rows = 4, .ignore = -1, .grad = true};
    s.x = s.w = WF_F32;
    s.read = 15;
    wt_run r = wt_open(ctx, "cpu:2");
    wf_graph *g = wt_graph(ctx);
    build_head(g, &s, true);
    wt_compile(&r, g);
    write_all(&r, &s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char sentence[96];
        wt_write(&r, "targets", (int32_t[]){0, 4, bad[i], -1}, 16);
        snprintf(sentence, sizeof sentence,
                 "head_loss: target %d of row 2 is not within the 5 classes", (int)bad[i]);
        wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_DEVICE, sentence);
    }
    wt_write(&r, "targets", (int32_t[]){0, 4, 2, -1}, 16);
    wt_run_once(&r);
    wt_close(&r);
}

/* ---- Merged updates ---- */

static wf_dims pick_shape(wf_rng *rng)
{
    switch (wf_rng_below(rng, 12)) {
    case 0: return (wf_dims){0};
    case 1: return (wf_dims){1, {0}};
    case 2: return (wf_dims){1, {15000 + (int64_t)wf_rng_below(rng, 5000)}};
    case 3: return (wf_dims){3, {2, 1 + (int64_t)wf_rng_below(rng, 4), 3}};
    default: break;
    }
    int64_t rows = 1 + (int64_t)wf_rng_below(rng, 20), columns = 1 + (int64_t)wf_rng_below(rng, 40);
    return (wf_dims){2, {rows, columns}};
}

/* State names start with a capital letter or v, which draw() uses. */
static wf_value *some_state(wf_graph *g, const char *kind, int i, wf_type type, wf_dims dims)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", kind, i);
    return wf_state(g, name, type, (int)dims.n, dims.d);
}

static wf_value *some_operand(wf_graph *g, const char *kind, int i, wf_type type, wf_dims dims,
                              wf_rng *rng)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", kind, i);
    return operand(g, name, type, dims, wf_rng_below(rng, 2));
}

static int pick_count(wf_rng *rng, int most)
{
    return wf_rng_below(rng, 4) ? 1 + (int)wf_rng_below(rng, 6) : most;
}

static void build_adamw(wf_graph *g, const setup *s, bool merged)
{
    wf_rng rng;
    wf_rng_init(&rng, s->seed, 3);
    int n = pick_count(&rng, WF_MAX_OUT / 3);
    wf_attr_adamw attr = {0.9, 0.95, 1e-8, 0.1, 0};
    wf_value *in[WF_MAX_OUT / 3 * 4 + 4], **rest = in + 4 * n;
    for (int i = 0; i < n; i++) {
        wf_dims dims = pick_shape(&rng);
        in[i] = some_state(g, "P", i, pick_float(&rng), dims);
        in[i + n] = some_state(g, "M", i, pick_float(&rng), dims);
        in[i + 2 * n] = some_state(g, s->apply ? "v" : "V", i, pick_float(&rng), dims);
        in[i + 3 * n] = some_operand(g, "grad", i, pick_float(&rng), dims, &rng);
        if (wf_rng_below(&rng, 8) == 0) /* the update reads the state that it changes */
            in[i + 3 * n] = in[i + n * (int)wf_rng_below(&rng, 3)];
    }
    rest[0] = wf_input(g, "lr", WF_F32, 0, NULL);
    rest[1] = wf_input(g, "step", WF_I32, 0, NULL);
    rest[2] = wf_input(g, "scale", WF_F32, 0, NULL);
    rest[3] = wf_input(g, "apply", WF_U8, 0, NULL);
    if (merged)
        wf_node_add(g, WF_OP_adamw_many, &attr, NULL, in, 4 * n + 4);
    for (int i = 0; i < n && !merged; i++) {
        wf_value *one[] = {in[i],   in[i + n], in[i + 2 * n], in[i + 3 * n],
                           rest[0], rest[1],   rest[2],       rest[3]};
        wf_node_add(g, WF_OP_adamw, &attr, NULL, one, 8);
    }
}

static void build_accumulate(wf_graph *g, const setup *s, bool merged)
{
    wf_rng rng;
    wf_rng_init(&rng, s->seed, 4);
    int n = pick_count(&rng, WF_MAX_OUT);
    wf_value *in[2 * WF_MAX_OUT + 1];
    for (int i = 0; i < n; i++) {
        wf_dims dims = pick_shape(&rng);
        bool whole = wf_rng_below(&rng, 4) == 0;
        in[i] = some_state(g, "S", i, whole ? WF_I32 : pick_float(&rng), dims);
        in[i + n] = some_operand(g, "x", i, whole ? WF_I32 : pick_float(&rng), dims, &rng);
    }
    bool always = s->apply && wf_rng_below(&rng, 2);
    in[2 * n] = always ? NULL : wf_input(g, "apply", WF_U8, 0, NULL);
    if (merged)
        wf_node_add(g, WF_OP_accumulate_many, NULL, NULL, in, always ? 2 * n : 2 * n + 1);
    for (int i = 0; i < n && !merged; i++)
        wf_accumulate(g, in[i], in[i + n], in[2 * n]);
}

static void test_updates(void **state)
{
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 5);
    for (int i = 0; i < 24; i++) {
        setup s = {.seed = wf_rng_u32(&rng), .apply = i % 4 ? 255 : 0};
        compare(*state, build_adamw, &s, "adamw_many");
        compare(*state, build_accumulate, &s, "accumulate_many");
    }
}

/* Merged updates have no order, so they cannot read each other's states; and their number is
 * limited. */
static void test_updates_that_cannot_be_merged(void **state)
{
    wf_ctx *ctx = *state;
    for (int which = 0; which < 5; which++) {
        wf_graph *g = wt_graph(ctx);
        wf_value *s[3], *in[5], *x = wf_input(g, "x", WF_F32, 1, D(4));
        wf_value *apply = wf_state(g, "apply", WF_U8, 0, NULL);
        for (int i = 0; i < 3; i++)
            s[i] = some_state(g, "S", i, WF_F32, (wf_dims){1, {4}});
        wf_value *own = which == 0 ? s[0] : wf_reshape(g, wf_reshape(g, s[0], 2, D(2, 2)), 1, D(4));
        in[0] = s[0];
        in[1] = s[1];
        in[2] = which == 3 ? wf_reshape(g, s[2], 1, D(4)) : which == 4 ? own : x;
        in[3] = which < 2 ? own : which == 2 ? in[2] : s[1];
        in[4] = apply;
        wf_node_add(g, WF_OP_accumulate_many, NULL, NULL, in, 5);
        if (which < 2)
            wt_fails(ctx, wf_graph_status(g), WF_ERR_USAGE,
                     "operand 3 is a state that another update of this node writes");
        else
            wt_ok(ctx, wf_graph_status(g));
        wf_graph_free(g);
    }
    wf_graph *g = wt_graph(ctx); /* the shared operands are no exception */
    wf_value *in[12], *step = wf_input(g, "step", WF_I32, 0, NULL);
    for (int i = 0; i < 11; i++)
        in[i] = i < 6 ? some_state(g, "S", i, WF_F32, (wf_dims){0}) : in[0];
    in[6] = in[7] = in[10] = wf_input(g, "x", WF_F32, 0, NULL);
    in[9] = step;
    in[11] = wf_input(g, "apply", WF_U8, 0, NULL);
    wf_node_add(g, WF_OP_adamw_many, &(wf_attr_adamw){0.9, 0.9, 0, 0, 0}, NULL, in, 12);
    wt_fails(ctx, wf_graph_status(g), WF_ERR_USAGE, "operand 8 is a state that another");
    wf_graph_free(g);
    g = wt_graph(ctx);
    wf_value *many[2 * WF_MAX_OUT + 2], *x = wf_input(g, "x", WF_F32, 0, NULL);
    for (int i = 0; i < 2 * WF_MAX_OUT + 2; i++)
        many[i] = i <= WF_MAX_OUT ? some_state(g, "S", i, WF_F32, (wf_dims){0}) : x;
    wf_node_add(g, WF_OP_accumulate_many, NULL, NULL, many, 2 * WF_MAX_OUT + 2);
    wt_fails(ctx, wf_graph_status(g), WF_ERR_USAGE, "takes 2 to 193 operands, not 194");
    wf_graph_free(g);
}

int main(void)
{
    wt_without_tiles(); /* linear multiplies bf16 by AMX tiles, head_loss does not */
    const struct CMUnitTest tests[] = {
        wt_test(test_head_in_chunks),
        wt_test(test_head_in_odd_chunks),
        wt_test(test_head_of_a_last_chunk),
        wt_test(test_head_memory),
        wt_test(test_head_of_bad_targets),
        wt_test(test_updates),
        wt_test(test_updates_that_cannot_be_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
