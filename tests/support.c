/* SPDX-License-Identifier: MIT */
/* support.c - see support.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/sanitize.h"
#include "device/cpu/cpu.h"
#include "device/device.h"
#include "support.h"

/* ---- Contexts ---- */

int wt_setup(void **state)
{
    wf_ctx *ctx;
    if (wf_ctx_new(&ctx) != WF_OK)
        return -1;
    *state = ctx;
    return 0;
}

int wt_teardown(void **state)
{
    wf_mem_stats mem;
    wf_ctx_mem_stats(*state, &mem);
    wf_ctx_free(*state);
    if (mem.live_blocks != 0)
        print_error("%llu blocks of memory were not freed\n", (unsigned long long)mem.live_blocks);
    return mem.live_blocks == 0 && mem.live_bytes == 0 ? 0 : -1;
}

uint64_t wt_live_blocks(wf_ctx *ctx)
{
    wf_mem_stats mem;
    wf_ctx_mem_stats(ctx, &mem);
    return mem.live_blocks;
}

uint64_t wt_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        const char *given = getenv("WEFT_SEED");
        seed =
            given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
        print_message("seed %llu (WEFT_SEED repeats it)\n", (unsigned long long)seed);
    }
    return seed;
}

int wt_cases(int n)
{
#if WF_ADDRESS_SANITIZER
    if (!getenv("WEFT_ALL_CASES"))
        return (n + 3) / 4;
#elif WF_THREAD_SANITIZER
    return (n + 31) / 32;
#endif
    return n;
}

/* ---- Statuses ---- */

void wt_ok_at(wf_ctx *ctx, wf_status status, const char *file, int line)
{
    if (status == WF_OK)
        return;
    print_error("%s: %s\n", wf_status_string(status), wf_ctx_message(ctx));
    _fail(file, line);
}

bool wt_is_sentence(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && isalnum((unsigned char)text[0]) && text[n - 1] != '.' && !strchr(text, '\n');
}

void wt_fails_at(wf_ctx *ctx, wf_status status, wf_status wanted, const char *part,
                 const char *file, int line)
{
    const char *text = wf_ctx_message(ctx);
    if (status == wanted && wf_ctx_status(ctx) == wanted && wt_is_sentence(text) &&
        strstr(text, part))
        return;
    print_error("wanted \"%s\" with \"%s\", got \"%s\": %s\n", wf_status_string(wanted), part,
                wf_status_string(status), text);
    _fail(file, line);
}

/* ---- One executable ---- */

wt_run wt_open(wf_ctx *ctx, const char *device)
{
    wt_run r = {.ctx = ctx};
    wt_ok(ctx, wf_device_open(ctx, device, &r.device));
    wt_ok(ctx, wf_session_new(r.device, &r.session));
    return r;
}

void wt_compile(wt_run *r, wf_graph *g)
{
    wf_exec_free(r->exec);
    r->exec = NULL;
    wt_ok(r->ctx, wf_compile(r->session, g, &r->exec));
    wf_graph_free(g);
}

void wt_close(wt_run *r)
{
    wf_exec_free(r->exec);
    wf_session_free(r->session);
    wf_device_close(r->device);
}

void wt_make_dense(wt_run *r)
{
    static wf_kernel copies[512];
    static const wf_kernel *table[] = {copies, NULL};
    int n = 0;
    for (const wf_kernel *const *rows = r->device->kernels; *rows; rows++)
        for (const wf_kernel *k = *rows; k->launch; k++) {
            assert_true(n + 1 < (int)(sizeof copies / sizeof *copies));
            copies[n] = *k;
            copies[n++].strided = (wf_op_get(k->op)->flags & WF_FLAG_VIEW) != 0;
        }
    copies[n] = (wf_kernel){0};
    r->device->kernels = table;
}

void wt_write(wt_run *r, const char *input, const void *from, size_t bytes)
{
    wt_ok(r->ctx, wf_exec_write(r->exec, input, from, bytes));
}

void wt_read(wt_run *r, const char *output, void *to, size_t bytes)
{
    wt_ok(r->ctx, wf_exec_read(r->exec, output, to, bytes));
}

wf_graph *wt_graph(wf_ctx *ctx)
{
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    return g;
}

void wt_run_once(wt_run *r)
{
    wt_ok(r->ctx, wf_exec_run(r->exec));
}

void wt_set_state(wt_run *r, const char *name, const float *from, int64_t n)
{
    wt_ok(r->ctx, wf_session_write(r->session, name, from, (size_t)n * sizeof *from));
}

void wt_expect_state(wt_run *r, const char *name, const float *want, int64_t n)
{
    float got[64];
    wt_ok(r->ctx, wf_session_read(r->session, name, got, (size_t)n * sizeof *got));
    wt_floats_equal(got, want, n);
}

void wt_floats_equal(const float *got, const float *wanted, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (got[i] != wanted[i])
            fail_msg("element %lld is %g, not %g", (long long)i, got[i], wanted[i]);
}

/* ---- A small transformer ---- */

const wt_sizes wt_tiny = {
    .tokens = 5, .vocab = 7, .width = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .hidden = 6};

static wf_value *param(wf_graph *g, wt_model *m, const char *name, int rank, int64_t a, int64_t b)
{
    assert_true(m->count < WT_PARAMS);
    m->name[m->count] = name;
    m->elements[m->count] = rank == 2 ? a * b : a;
    m->param[m->count] = wf_state(g, name, WF_F32, rank, (int64_t[]){a, b});
    return m->param[m->count++];
}

static wf_value *linear(wf_graph *g, wt_model *m, wf_value *x, const char *name, int64_t to,
                        wf_value *bias)
{
    return wf_linear(g, x, param(g, m, name, 2, to, wf_value_dim(x, wf_value_rank(x) - 1)), bias);
}

static wf_value *attention(wf_graph *g, wt_model *m, wf_value *x, wf_value *positions)
{
    const wt_sizes *s = &m->size;
    const int64_t n = s->tokens, d = s->head_dim;
    wf_value *inv_freq = wf_input(g, "inv_freq", WF_F32, 1, (int64_t[]){d / 2});
    wf_value *start = wf_input(g, "seq_start", WF_I32, 1, (int64_t[]){3});
    wf_value *bias = param(g, m, "q.bias", 1, s->heads * d, 0);
    wf_value *q = linear(g, m, x, "q", s->heads * d, bias);
    /* keys and values are views of one matmul's result */
    wf_value *kv = linear(g, m, x, "kv", 2 * s->kv_heads * d, NULL);
    wf_value *k = wf_slice(g, kv, 1, 0, s->kv_heads * d);
    wf_value *v = wf_slice(g, kv, 1, s->kv_heads * d, 2 * s->kv_heads * d);
    q = wf_reshape(g, q, 3, (int64_t[]){n, s->heads, d});
    k = wf_reshape(g, k, 3, (int64_t[]){n, s->kv_heads, d});
    v = wf_reshape(g, v, 3, (int64_t[]){n, s->kv_heads, d});
    q = wf_rope(g, q, positions, inv_freq, false, 1);
    k = wf_rope(g, k, positions, inv_freq, true, 1);
    wf_value *y = wf_attention(g, q, k, v, start, positions, &(wf_attention_options){0});
    return linear(g, m, wf_reshape(g, y, 2, (int64_t[]){n, -1}), "o", s->width, NULL);
}

void wt_forward(wf_graph *g, const wt_sizes *size, wt_model *m)
{
    *m = (wt_model){.size = *size};
    const int64_t n = size->tokens, c = size->width;
    wf_value *tokens = wf_input(g, "tokens", WF_I32, 1, &n);
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, &n);
    wf_value *positions = wf_input(g, "positions", WF_I32, 1, &n);
    wf_value *key = wf_input(g, "key", WF_I32, 1, (int64_t[]){3});

    wf_value *table = param(g, m, "table", 2, size->vocab, c);
    wf_value *x = wf_dropout(g, wf_embed(g, table, tokens), key, 0.1);
    wf_value *h = wf_rms_norm(g, x, param(g, m, "norm1", 1, c, 0), 1e-5);
    x = wf_binary(g, "add", x, attention(g, m, h, positions));
    wf_value *gamma = param(g, m, "norm2", 1, c, 0);
    h = wf_layer_norm(g, x, gamma, param(g, m, "norm2.bias", 1, c, 0), 1e-5);
    wf_value *gate = linear(g, m, h, "gate", size->hidden, NULL);
    h = wf_glu(g, gate, linear(g, m, h, "up", size->hidden, NULL), WF_GLU_SILU);
    h = wf_unary(g, "gelu", linear(g, m, h, "down", c, NULL));
    x = wf_binary(g, "add", x, wf_dropout(g, h, key, 0.1));
    m->logits = wf_linear(g, x, table, NULL);
    m->losses = wf_cross_entropy(g, m->logits, targets, NULL);
    m->loss = wf_reduce(g, "mean", m->losses, 1, false);
    wf_output(g, "loss", m->loss);
}

void wt_train(wf_graph *g, wt_model *m)
{
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL);
    wf_value *step = wf_input(g, "step", WF_I32, 0, NULL);
    wf_grad(g, m->loss, m->param, m->count, m->grad);
    wf_value *norm = wf_global_norm(g, m->grad, m->count);
    wf_value *apply = wf_binary(g, "lt", norm, wf_fill(g, WF_F32, 0, NULL, 1e30));
    wf_output(g, "norm", norm);
    for (int i = 0; i < m->count; i++) {
        wf_value *moment[2];
        for (int k = 0; k < 2; k++) {
            char name[32];
            snprintf(name, sizeof name, "%c.%s", "mv"[k], m -> name[i]);
            moment[k] = wf_state_like(g, name, m->param[i]);
        }
        wf_adamw(g, m->param[i], moment[0], moment[1], m->grad[i], lr, step, NULL, apply,
                 &(wf_adamw_options){0.9, 0.95, 1e-8, 0.1});
    }
}

wf_value *wt_merged(wf_graph *g, wf_value *x)
{
    int64_t rows = wf_value_dim(x, 0);
    wf_value *s[9], *one = wf_fill(g, WF_F32, 0, NULL, 1), *yes = wf_fill(g, WF_U8, 0, NULL, 1);
    for (int i = 0; i < 9; i++) {
        char name[24];
        snprintf(name, sizeof name, "merged.%d", i);
        s[i] = wf_state_like(g, name, x);
    }
    wf_value *step = wf_fill(g, WF_I32, 0, NULL, 1);
    wf_value *adamw[] = {s[0], s[1], s[2], s[3], s[4], s[5], x, x, one, step, one, yes};
    wf_op_add(g, "adamw_many", NULL, adamw, 12);
    wf_op_add(g, "accumulate_many", NULL, (wf_value *[]){s[6], s[7], x, x, yes}, 5);
    wf_value *head[] = {x, s[8], wf_fill(g, WF_I32, 1, &rows, 1), wf_fill(g, WF_F32, 1, &rows, 1)};
    return wf_op_add(g, "head_loss", NULL, head, 4);
}

static wf_status write_i32(wf_exec *exec, const char *name, const int32_t *from, int64_t n)
{
    return wf_exec_write(exec, name, from, (size_t)n * sizeof *from);
}

/* The second sequence starts at two fifths of the tokens. */
wf_status wt_write_inputs(wf_exec *exec, const wt_sizes *size, int32_t step)
{
    int32_t tokens[1024], targets[1024], positions[1024];
    float inv_freq[64], lr = 0.01f;
    const int32_t n = (int32_t)size->tokens, second = 2 * n / 5;
    assert_true(n <= 1024 && size->head_dim <= 128);
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = (i * 5 + 3) % (int32_t)size->vocab;
        targets[i] = i == 1 ? -100 : (i * 3 + 1) % (int32_t)size->vocab;
        positions[i] = i < second ? i : i - second;
    }
    for (int64_t i = 0; i < size->head_dim / 2; i++)
        inv_freq[i] = 1 / (float)(1 + 3 * i);
    wf_status status[] = {
        write_i32(exec, "tokens", tokens, n),
        write_i32(exec, "targets", targets, n),
        write_i32(exec, "positions", positions, n),
        write_i32(exec, "seq_start", (int32_t[]){0, second, n}, 3),
        write_i32(exec, "key", (int32_t[]){17, 4, step}, 3),
        wf_exec_write(exec, "inv_freq", inv_freq, (size_t)(size->head_dim / 2) * sizeof(float)),
        step > 0 ? write_i32(exec, "step", &step, 1) : WF_OK,
        step > 0 ? wf_exec_write(exec, "lr", &lr, sizeof lr) : WF_OK,
    };
    for (size_t i = 0; i < sizeof status / sizeof *status; i++)
        if (status[i] != WF_OK)
            return status[i];
    return WF_OK;
}

wf_status wt_write_params(wf_session *session, const wt_model *m)
{
    for (int i = 0; i < m->count; i++) {
        size_t count = (size_t)m->elements[i];
        float *numbers = malloc(count * sizeof *numbers);
        assert_non_null(numbers);
        wf_random_normal(5, (uint64_t)i, 0.5f, 0.3f, numbers, (int64_t)count);
        wf_status status = wf_session_write(session, m->name[i], numbers, count * sizeof *numbers);
        free(numbers);
        if (status != WF_OK)
            return status;
    }
    return WF_OK;
}

void wt_without_tiles(void)
{
    const char *best;
    if (!getenv("WEFT_CPU") && wf_cpu_isa_at(0, &best) && strncmp(best, "amx", 3) == 0)
        setenv("WEFT_CPU", "avx512", 1);
}
