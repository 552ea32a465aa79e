/* SPDX-License-Identifier: MIT */
/*
 * test_pack.c - weights in the cpu's packed layout. Reads return the written bytes, and matmuls
 * have the bits of unpacked ones. Compilation refuses graphs whose ops have no kernel for packed
 * weights.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/gemm.h"
#include "device/device.h"
#include "device/expand.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

static const wf_type types[3] = {WF_F32, WF_F16, WF_BF16};

/* Random elements of a type; caller frees. */
static void *numbers(wf_ctx *ctx, wf_type type, int64_t n, uint64_t stream)
{
    float *wide = malloc((size_t)n * sizeof *wide);
    void *out = malloc((size_t)n * sizeof *wide);
    assert_true(wide && out);
    wf_random_normal(wt_seed(), stream, 0, 1, wide, n);
    wt_ok(ctx, wf_type_from_f32(ctx, type, wide, out, n));
    free(wide);
    return out;
}

static size_t packed_bytes(int64_t n, int64_t k, wf_type type)
{
    return wf_type_bytes(type, (n + WF_GEMM_COLUMNS - 1) / WF_GEMM_COLUMNS * WF_GEMM_COLUMNS * k);
}

/* ---- Contents ---- */

static void test_contents_come_back(void **state)
{
    static const int64_t shapes[][2] = {{1, 1},  {1, 9},   {7, 5},    {8, 8},
                                        {9, 31}, {17, 64}, {250, 301}};
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:3");
    size_t sum = 0, now, peak;
    for (int i = 0; i < 7; i++)
        for (int t = 0; t < 3; t++) {
            int64_t n = shapes[i][0], k = shapes[i][1];
            size_t bytes = wf_type_bytes(types[t], n * k);
            char name[32];
            snprintf(name, sizeof name, "w%d.%d", i, t);
            unsigned char *from = numbers(ctx, types[t], n * k, (uint64_t)i), *back = malloc(bytes);
            assert_non_null(back);
            wt_ok(ctx, wf_session_pack(r.session, name, types[t], 2, D(n, k)));
            wt_ok(ctx, wf_session_read(r.session, name, back, bytes));
            for (size_t b = 0; b < bytes; b++)
                assert_int_equal(back[b], 0); /* states start as zeros */
            wt_ok(ctx, wf_session_write(r.session, name, from, bytes));
            wt_ok(ctx, wf_session_read(r.session, name, back, bytes));
            assert_memory_equal(back, from, bytes);
            sum += packed_bytes(n, k, types[t]);
            wf_device_memory(r.device, &now, &peak);
            assert_int_equal(now, sum);
            free(from);
            free(back);
        }
    wt_close(&r);
}

static void test_not_packed(void **state)
{
    static const struct {
        wf_type type;
        int rank;
        int64_t dim[3];
        const char *text;
    } bad[] = {
        {WF_F32, 1, {8}, "f32[8]"},
        {WF_F32, 0, {0}, "f32[]"},
        {WF_BF16, 3, {2, 8, 8}, "bf16[2,8,8]"},
        {WF_I32, 2, {8, 8}, "i32[8,8]"},
        {WF_Q8_0, 3, {2, 8, 32}, "q8_0[2,8,32]"},
        {WF_E4M3, 2, {8, 32}, "e4m3[8,32]"},
        {WF_F32, 2, {0, 8}, "f32[0,8]"},
        {WF_F32, 2, {8, 0}, "f32[8,0]"},
        {WF_F32, 2, {1, (int64_t)1 << 60}, NULL}, /* already refused as a state */
        {WF_F16, 2, {1, ((int64_t)1 << 60) - 1}, NULL},
    };
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char part[96] = "";
        if (bad[i].text)
            snprintf(part, sizeof part, "device cpu cannot pack state 'w', which is %s",
                     bad[i].text);
        wf_status status = wf_session_pack(r.session, "w", bad[i].type, bad[i].rank, bad[i].dim);
        wt_fails(ctx, status, bad[i].text ? WF_ERR_UNSUPPORTED : wf_ctx_status(ctx), part);
        assert_int_not_equal(status, WF_OK);
    }
    assert_int_equal(r.session->state_count, 0);
    wt_ok(ctx, wf_session_pack(r.session, "w", WF_F32, 2, D(8, 8)));
    wt_fails(ctx, wf_session_pack(r.session, "w", WF_F32, 2, D(8, 8)), WF_ERR_USAGE, "already");
    wt_fails(ctx, wf_session_write(r.session, "w", (float[]){0}, 4), WF_ERR_USAGE,
             "256 bytes, not 4");
    wt_close(&r);
}

/* ---- Matmuls ---- */

typedef struct {
    int64_t m, n, k;
    wf_type x, w;
    bool bias, strided;
    const char *act;  /* NULL: no activation */
    bool keep_linear; /* an output also reads the activation's operand */
} product;

static wf_graph *build_product(wf_ctx *ctx, const product *p)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", p->x, 2, D(p->m, p->k + 3 * p->strided));
    wf_value *w = wf_state(g, "w", p->w, 2, D(p->n, p->k));
    wf_value *bias = p->bias ? wf_input(g, "bias", p->x, 1, D(p->n)) : NULL;
    if (p->strided)
        x = wf_slice(g, x, 1, 2, p->k + 2);
    wf_value *y = wf_linear(g, x, w, bias);
    if (p->act && p->keep_linear)
        wf_output(g, "linear", y);
    wf_output(g, "y", p->act ? wf_unary(g, p->act, y) : y);
    return g;
}

/* All outputs, and the memory of the executable. */
typedef struct {
    unsigned char *y, *linear;
    wf_memory memory;
    wf_op_stats op;
} result;

static result run_product(wf_ctx *ctx, const product *p, bool packed)
{
    int64_t nx = p->m * (p->k + 3 * p->strided);
    size_t y_bytes = wf_type_bytes(p->x, p->m * p->n);
    wt_run r = wt_open(ctx, "cpu:2");
    void *x = numbers(ctx, p->x, nx, 1), *w = numbers(ctx, p->w, p->n * p->k, 2);
    void *bias = numbers(ctx, p->x, p->n, 3);
    result out = {.y = malloc(y_bytes), .linear = calloc(y_bytes, 1)};
    assert_true(out.y && out.linear);
    if (packed)
        wt_ok(ctx, wf_session_pack(r.session, "w", p->w, 2, D(p->n, p->k)));
    wt_compile(&r, build_product(ctx, p));
    wt_ok(ctx, wf_session_write(r.session, "w", w, wf_type_bytes(p->w, p->n * p->k)));
    wt_write(&r, "x", x, wf_type_bytes(p->x, nx));
    if (p->bias)
        wt_write(&r, "bias", bias, wf_type_bytes(p->x, p->n));
    wt_run_once(&r);
    wt_read(&r, "y", out.y, y_bytes);
    if (p->act && p->keep_linear)
        wt_read(&r, "linear", out.linear, y_bytes);
    wf_exec_memory(r.exec, &out.memory);
    assert_true(wf_exec_op_stats(r.exec, 0, &out.op));
    size_t now, peak;
    wf_device_memory(r.device, &now, &peak);
    assert_int_equal(peak, out.memory.states + out.memory.ports + out.memory.region);
    assert_int_equal(now, peak);
    wt_close(&r);
    free(x);
    free(w);
    free(bias);
    return out;
}

static void check_product(wf_ctx *ctx, const product *p)
{
    size_t bytes = wf_type_bytes(p->x, p->m * p->n);
    result plain = run_product(ctx, p, false), packed = run_product(ctx, p, true);
    if (memcmp(plain.y, packed.y, bytes) != 0 || memcmp(plain.linear, packed.linear, bytes) != 0)
        fail_msg("other bits: m=%lld n=%lld k=%lld x=%s w=%s bias=%d strided=%d act=%s",
                 (long long)p->m, (long long)p->n, (long long)p->k, wf_type_name(p->x),
                 wf_type_name(p->w), p->bias, p->strided, p->act ? p->act : "none");
    assert_string_equal(plain.op.op, p->act ? "linear_act" : "linear");
    assert_string_equal(packed.op.op, p->act ? "linear_act" : "linear");
    assert_string_not_equal(plain.op.kernel, packed.op.kernel);
    assert_non_null(strstr(packed.op.kernel, "packed"));
    assert_int_equal(plain.memory.states, wf_type_bytes(p->w, p->n * p->k));
    assert_int_equal(packed.memory.states, packed_bytes(p->n, p->k, p->w));
    assert_true(packed.memory.workspace <= plain.memory.workspace);
    if (p->n > WF_GEMM_COLUMNS && strcmp(packed.op.kernel, "packed") == 0)
        assert_true(packed.memory.workspace < plain.memory.workspace);
    free(plain.y);
    free(plain.linear);
    free(packed.y);
    free(packed.linear);
}

/* Sizes on both sides of a panel, of a tile and of a block of k; one to nine rows. */
static void test_bits_of_products(void **state)
{
    static const int64_t ns[] = {1, 7, 8, 9, 127, 129, 150}, ks[] = {1, 3, 255, 256, 257, 600};
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 6; j++)
            for (int64_t m = 1; m <= 9; m++) {
                wf_type type = types[(m + i + j) % 3];
                check_product(*state, &(product){.m = m, .n = ns[i], .k = ks[j], type, type});
            }
    check_product(*state, &(product){.m = 131, .n = 137, .k = 300, .x = WF_F32, .w = WF_F32});
    check_product(*state, &(product){.m = 131, .n = 137, .k = 300, .x = WF_BF16, .w = WF_BF16});
}

static void test_bits_of_all_forms(void **state)
{
    static const char *const acts[] = {NULL, "gelu", "gelu_erf", "silu", "relu", "relu2"};
    for (int t = 0; t < 3; t++)
        for (int a = 0; a < 6; a++)
            for (int form = 0; form < 8; form++)
                check_product(*state, &(product){.m = 1 + (a + form) % 5,
                                                 .n = 21,
                                                 .k = 259,
                                                 .x = types[t],
                                                 .w = types[t],
                                                 .bias = form & 1,
                                                 .strided = form & 2,
                                                 .act = acts[a],
                                                 .keep_linear = form & 4});
}

/* ---- Graphs ---- */

/* Compiles a graph whose state "w", f32 [4, 8], is packed. Compilation must fail and leave no
 * state. */
static void refuse(wf_ctx *ctx, wf_graph *g, const char *part)
{
    wt_run r = wt_open(ctx, "cpu:1");
    wt_ok(ctx, wf_session_pack(r.session, "w", WF_F32, 2, D(4, 8)));
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_UNSUPPORTED, part);
    assert_null(r.exec);
    assert_int_equal(r.session->state_count, 1);
    wf_graph_free(g);
    wt_close(&r);
}

static wf_value *weight(wf_graph *g)
{
    return wf_state(g, "w", WF_F32, 2, D(4, 8));
}

static void test_ops_that_cannot_read_it(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx); /* a head tied to the embedding */
    wf_value *w = weight(g);
    wf_value *x = wf_embed(g, w, wf_input(g, "ids", WF_I32, 1, D(3)));
    wf_output(g, "logits", wf_linear(g, x, w, NULL));
    refuse(ctx, g,
           "device cpu has no kernel for embed(f32[4,8], i32[3]) with a packed state, and its "
           "expansion cannot read one either");

    g = wt_graph(ctx);
    wf_output(g, "w", weight(g));
    refuse(ctx, g, "no kernel for copy(f32[4,8]) with a packed state");

    g = wt_graph(ctx); /* views, which would share the packed storage */
    x = wf_input(g, "x", WF_F32, 2, D(2, 8));
    wf_output(g, "y", wf_linear(g, x, wf_slice(g, weight(g), 0, 1, 3), NULL));
    refuse(ctx, g, "slice(f32[4,8]");
    g = wt_graph(ctx);
    x = wf_input(g, "x", WF_F32, 2, D(2, 4));
    wf_output(g, "y", wf_linear(g, x, wf_reshape(g, weight(g), 2, D(8, 4)), NULL));
    refuse(ctx, g, "reshape(f32[4,8]");

    g = wt_graph(ctx); /* as operand x, which cannot be packed */
    wf_output(g, "y", wf_linear(g, weight(g), wf_input(g, "v", WF_F32, 2, D(5, 8)), NULL));
    refuse(ctx, g, "no kernel for linear(f32[4,8], f32[5,8]) with a packed state");

    wf_value *many[40]; /* among more operands than the mask has bits */
    g = wt_graph(ctx);
    for (int i = 0; i < 40; i++)
        many[i] = i == 38 ? weight(g) : wf_fill(g, WF_F32, 2, D(4, 8), i);
    wf_output(g, "y", wf_global_norm(g, many, 40));
    refuse(ctx, g, "no kernel for global_norm(");

    g = wt_graph(ctx); /* a core op has no expansion */
    wf_output(g, "y", wf_unary(g, "exp", weight(g)));
    refuse(ctx, g, "no kernel for exp(f32[4,8]) with a packed state, a core op");
}

static void test_it_is_not_written(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_value *w = weight(g);
    wf_accumulate(g, w, wf_fill(g, WF_F32, 2, D(4, 8), 1), NULL);
    wt_ok(ctx, wf_session_pack(r.session, "w", WF_F32, 2, D(4, 8)));
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_USAGE,
             "accumulate cannot write state 'w', which is packed in this session");
    wf_graph_free(g);
    g = wt_graph(ctx);
    wf_output(g, "y",
              wf_linear(g, wf_input(g, "x", WF_F32, 2, D(2, 7)),
                        wf_state(g, "w", WF_F32, 2, D(4, 7)), NULL));
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_USAGE,
             "state 'w' is f32[4,8] in this session, but f32[4,7] in the graph");
    wf_graph_free(g);
    wt_close(&r);
}

/* The loss of a head: fused with an unpacked w, not fused with a packed one. */
static float head_loss(wf_ctx *ctx, bool packed, bool text)
{
    float loss[3], *x = numbers(ctx, WF_F32, 3 * 8, 4), *w = numbers(ctx, WF_F32, 4 * 8, 5);
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_value *logits = wf_linear(g, wf_input(g, "x", WF_F32, 2, D(3, 8)), weight(g), NULL);
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, D(3));
    wf_output(g, "loss", wf_cross_entropy(g, logits, targets, NULL));
    if (packed)
        wt_ok(ctx, wf_session_pack(r.session, "w", WF_F32, 2, D(4, 8)));
    if (text) { /* a mark of another session that packed w */
        char *written, *at;
        wf_graph *parsed;
        wt_ok(ctx, wf_graph_text(g, &written, NULL));
        size_t bytes = strlen(written);
        char *marked = malloc(bytes + 16);
        assert_non_null(marked);
        at = strstr(written, "f32[4,8]");
        assert_non_null(at);
        int before = (int)(at - written) + 8;
        snprintf(marked, bytes + 16, "%.*s packed%s", before, written, at + 8);
        wt_ok(ctx, wf_graph_parse(ctx, marked, strlen(marked), &parsed));
        wf_text_free(ctx, written);
        wf_graph_free(g);
        free(marked);
        g = parsed;
    }
    wt_compile(&r, g);
    wt_ok(ctx, wf_session_write(r.session, "w", w, 4 * 8 * sizeof *w));
    wt_write(&r, "x", x, 3 * 8 * sizeof *x);
    wt_write(&r, "targets", (int32_t[]){0, 3, 1}, 12);
    wt_run_once(&r);
    wt_read(&r, "loss", loss, sizeof loss);
    wf_op_stats op;
    assert_true(wf_exec_op_stats(r.exec, 0, &op));
    assert_string_equal(op.op, packed ? "linear" : "head_loss");
    wt_close(&r);
    free(x);
    free(w);
    return loss[0] + loss[1] + loss[2];
}

static void test_heads_with_their_loss(void **state)
{
    float plain = head_loss(*state, false, false);
    assert_true(plain > 0 && head_loss(*state, true, false) == plain);
    assert_true(head_loss(*state, false, true) == plain);
}

/* head_loss has no kernel for a packed w, but its expansion reads w by linear, which has one. A
 * device that must expand linear as well cannot run head_loss. */
static void check_expansion(wf_ctx *ctx, bool expand_linear)
{
    const wf_compile_options options = {.without = WF_PASS_FUSE}; /* it would restore head_loss */
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_value *in[] = {wf_input(g, "x", WF_F32, 2, D(3, 8)), weight(g),
                      wf_input(g, "targets", WF_I32, 1, D(3))};
    wf_output(g, "loss", wf_op_add(g, "head_loss", "", in, 3));
    wt_ok(ctx, wf_session_pack(r.session, "w", WF_F32, 2, D(4, 8)));
    if (expand_linear) {
        wt_ok(ctx, wf_device_force_expansion(r.device, WF_OP_linear));
        wt_fails(ctx, wf_compile_with(r.session, g, &options, &r.exec), WF_ERR_UNSUPPORTED,
                 "device cpu has no kernel for head_loss(");
        wf_graph_free(g);
    } else {
        wt_compile(&r, g);
    }
    wt_close(&r);
}

static void test_expansion_that_reads_it(void **state)
{
    check_expansion(*state, false);
    check_expansion(*state, true);
}

int main(void)
{
    /* Bf16: packed weights always use AMX tiles, unpacked ones only at some sizes. */
    wt_without_tiles();
    const struct CMUnitTest tests[] = {
        wt_test(test_contents_come_back),      wt_test(test_not_packed),
        wt_test(test_bits_of_products),        wt_test(test_bits_of_all_forms),
        wt_test(test_ops_that_cannot_read_it), wt_test(test_it_is_not_written),
        wt_test(test_heads_with_their_loss),   wt_test(test_expansion_that_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
