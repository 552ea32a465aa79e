/* SPDX-License-Identifier: MIT */
/*
 * tiny_trainer.c - trains a small transformer on the bytes of a text file, then samples from it.
 *
 *     tiny_trainer FILE [STEPS] [f32|bf16|f16]
 *
 * It uses weft.h only. One function builds the model for both graphs, the training step and the
 * sampler; both are compiled into one session and share its states, the weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weft.h"

enum { LAYERS = 3, WIDTH = 96, HEADS = 4, HEAD = 24, BYTES = 128, LENGTH = 64, BATCH = 16 };
enum { MAX_PARAMS = 32, SAMPLE_BYTES = 600 };

static wf_ctx *ctx;

static void check(wf_status status)
{
    if (status != WF_OK) {
        fprintf(stderr, "tiny_trainer: %s\n", wf_ctx_message(ctx));
        exit(1);
    }
}

/* ---- The model ---- */

/* The parameters of a graph, in the order in which the model creates them. */
typedef struct {
    int n;
    wf_value *value[MAX_PARAMS];
    char name[MAX_PARAMS][16];
} params;

static wf_value *param(wf_graph *g, params *p, const char *kind, int layer, int rank, int rows,
                       int columns)
{
    char *name = p->name[p->n];
    snprintf(name, sizeof p->name[0], "%s%d", kind, layer);
    return p->value[p->n++] = wf_state(g, name, WF_F32, rank, (int64_t[]){rows, columns});
}

static wf_value *norm(wf_graph *g, params *p, const char *kind, int layer, wf_value *x)
{
    return wf_rms_norm(g, x, param(g, p, kind, layer, 1, WIDTH, 0), 1e-5);
}

static wf_value *linear(wf_graph *g, params *p, const char *kind, int layer, wf_value *x, int width)
{
    int from = (int)wf_value_dim(x, 1);
    return wf_linear(g, x, param(g, p, kind, layer, 2, width, from), NULL);
}

/* Logits [n, BYTES] of n bytes; rows start[s] .. start[s + 1] are sequence s. */
static wf_value *model(wf_graph *g, params *p, int n, wf_value *tokens, wf_value *start)
{
    int64_t heads[] = {n, HEADS, HEAD}, rows[] = {n, WIDTH}, all = n, half = HEAD / 2;
    wf_value *position = wf_reshape(g, wf_iota(g, 2, (int64_t[]){n / LENGTH, LENGTH}, 1), 1, &all);
    /* 10000^(-2i / HEAD) */
    wf_value *freq = wf_scale(g, wf_cast(g, wf_iota(g, 1, &half, 0), WF_F32), -log(10000) / half);
    freq = wf_unary(g, "exp", freq);

    wf_value *x = wf_embed(g, param(g, p, "embed", 0, 2, BYTES, WIDTH), tokens), *h, *qkv[3];
    for (int i = 0; i < LAYERS; i++) {
        h = linear(g, p, "qkv", i, norm(g, p, "norm_a", i, x), 3 * WIDTH);
        for (int k = 0; k < 3; k++)
            qkv[k] = wf_reshape(g, wf_slice(g, h, 1, k * WIDTH, (k + 1) * WIDTH), 3, heads);
        h = wf_attention(g, wf_rope(g, qkv[0], position, freq, false, 1),
                         wf_rope(g, qkv[1], position, freq, false, 1), qkv[2], start, position,
                         NULL);
        x = wf_binary(g, "add", x, linear(g, p, "out", i, wf_reshape(g, h, 2, rows), WIDTH));
        h = wf_unary(g, "gelu", linear(g, p, "up", i, norm(g, p, "norm_b", i, x), 4 * WIDTH));
        x = wf_block(g, wf_binary(g, "add", x, linear(g, p, "down", i, h, WIDTH)));
    }
    return linear(g, p, "head", 0, norm(g, p, "norm_f", 0, x), BYTES);
}

/* From logits to updated parameters: mean loss, gradients clipped to norm 1, AdamW. Only f16 needs a
 * loss scale; a fixed scale of 1 still clips and skips steps whose gradient is not finite. */
static void add_training(wf_graph *g, const params *p, wf_value *logits, wf_type compute)
{
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, (int64_t[]){wf_value_dim(logits, 0)});
    wf_value *losses = wf_cross_entropy(g, logits, targets, NULL), *grad[MAX_PARAMS];
    wf_value *loss = wf_reduce(g, "mean", losses, WF_AXIS(0), false);
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL);
    wf_loss_scale_options scaling = {.clip = 1, .initial = 1, .interval = -1};
    wf_scaled s;
    if (compute == WF_F16)
        scaling = (wf_loss_scale_options){.clip = 1};
    check(wf_precision(g, compute));
    check(wf_grad_scaled(g, loss, p->value, p->n, &scaling, grad, &s));
    for (int i = 0; i < p->n; i++) {
        char m[20], v[20];
        snprintf(m, sizeof m, "m.%s", p->name[i]);
        snprintf(v, sizeof v, "v.%s", p->name[i]);
        wf_adamw(g, p->value[i], wf_state_like(g, m, p->value[i]), wf_state_like(g, v, p->value[i]),
                 grad[i], lr, s.step, s.factor, s.apply,
                 &(wf_adamw_options){.beta2 = 0.99, .weight_decay = 0.1});
    }
    check(wf_output(g, "loss", loss));
}

static wf_exec *compile(wf_session *session, int sequences, bool train, wf_type compute)
{
    int64_t n = sequences * LENGTH, bounds = sequences + 1;
    params p = {0};
    wf_graph *g;
    wf_exec *exec;
    check(wf_graph_new(ctx, &g));
    wf_value *tokens = wf_input(g, "tokens", WF_I32, 1, &n);
    wf_value *logits = model(g, &p, (int)n, tokens, wf_input(g, "start", WF_I32, 1, &bounds));
    if (train)
        add_training(g, &p, logits, compute);
    else
        check(wf_output(g, "logits", logits));
    check(wf_compile(session, g, &exec)); /* also reports errors of the calls above */
    wf_graph_free(g);
    return exec;
}

/* Sets gains to 1 and weights to random values; AdamW's moments stay 0. Returns the number of parameters. */
static long initialise(wf_session *session)
{
    static float w[4 * WIDTH * WIDTH]; /* the size of the largest state */
    long total = 0;
    wf_info state;
    for (int i = 0; wf_session_state(session, i, &state); i++) {
        bool is_norm = strncmp(state.name, "norm", 4) == 0;
        int64_t count = (int64_t)(state.bytes / sizeof *w);
        if (state.name[1] == '.' || state.rank == 0)
            continue;
        wf_random_normal(1, (uint64_t)i, is_norm ? 1 : 0, is_norm ? 0 : 0.02f, w, count);
        check(wf_session_write(session, state.name, w, state.bytes));
        total += (long)count;
    }
    return total;
}

/* ---- Training and sampling ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void train(wf_exec *exec, const char *text, size_t size, int32_t steps)
{
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH], start[BATCH + 1];
    double begin = seconds();
    for (int s = 0; s <= BATCH; s++)
        start[s] = s * LENGTH;
    check(wf_exec_write(exec, "start", start, sizeof start));
    for (int32_t step = 1; step <= steps; step++) {
        for (int i = 0; i < BATCH * LENGTH; i++) { /* sequences at pseudo-random places */
            size_t draw = (size_t)step * BATCH + (size_t)(i / LENGTH);
            size_t at = draw * 2654435761u % (size - LENGTH) + (size_t)(i % LENGTH);
            tokens[i] = text[at];
            targets[i] = text[at + 1];
        }
        float lr = 3e-3f * fminf(1, (float)step / 20) * (1 - 0.9f * (float)step / (float)steps);
        float loss;
        check(wf_exec_write(exec, "tokens", tokens, sizeof tokens));
        check(wf_exec_write(exec, "targets", targets, sizeof targets));
        check(wf_exec_write(exec, "lr", &lr, sizeof lr));
        check(wf_exec_run(exec));
        check(wf_exec_read(exec, "loss", &loss, sizeof loss));
        double passed = seconds() - begin;
        if (step % 20 == 0 || step == 1 || step == steps)
            printf("step %4d/%d  loss %.3f  %6.0f tokens/s  %3.0f s left\n", step, steps,
                   (double)loss, step * BATCH * LENGTH / passed, passed / step * (steps - step));
        fflush(stdout);
    }
}

/* Continues a prompt byte by byte, sampling at temperature 0.7. */
static void sample(wf_exec *exec, const char *prompt)
{
    static float logits[LENGTH][BYTES];
    int32_t window[LENGTH] = {0}, n = 0;
    uint32_t dice = 1;
    for (; prompt[n] && n < LENGTH; n++)
        window[n] = prompt[n];
    printf("\n%s", prompt);
    for (int k = 0; k < SAMPLE_BYTES; k++) {
        int32_t start[] = {0, n}, next = 0; /* rows from n on belong to no sequence */
        check(wf_exec_write(exec, "start", start, sizeof start));
        check(wf_exec_write(exec, "tokens", window, sizeof window));
        check(wf_exec_run(exec));
        check(wf_exec_read(exec, "logits", logits, sizeof logits));
        float sum = 0, weight[BYTES];
        for (int i = 0; i < BYTES; i++)
            sum += weight[i] = expf(logits[n - 1][i] / 0.7f);
        dice = dice * 1664525 + 1013904223;
        float left = (float)(dice >> 8) / (1 << 24) * sum;
        while (next < BYTES - 1 && (left -= weight[next]) > 0)
            next++;
        putchar(next);
        if (n == LENGTH) { /* the window is full: drop its older half */
            memmove(window, window + LENGTH / 2, sizeof window / 2);
            n = LENGTH / 2;
        }
        window[n++] = next;
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    static char text[1 << 22];
    int steps = argc > 2 ? atoi(argv[2]) : 300;
    wf_type compute = argc > 3 ? wf_type_from_name(argv[3]) : WF_F32;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (size <= 2 * LENGTH || steps < 1 || compute < WF_F32 || compute > WF_BF16) {
        fprintf(stderr,
                "usage: tiny_trainer FILE [STEPS] [f32|bf16|f16]   (FILE: more than %d "
                "bytes)\n",
                2 * LENGTH);
        return 2;
    }
    fclose(file);
    for (size_t i = 0; i < size; i++)
        text[i] = text[i] & 0x80 ? '?' : text[i]; /* the model knows only ASCII */

    wf_device *device;
    wf_session *session;
    wf_memory memory;
    check(wf_ctx_new(&ctx));
    check(wf_device_open(ctx, "cpu", &device));
    check(wf_session_new(device, &session));
    wf_exec *sampler = compile(session, 1, false, compute);
    wf_exec *trainer = compile(session, BATCH, true, compute);
    wf_exec_memory(trainer, &memory);
    printf("%ld parameters, %zu bytes of text, in %s on the cpu: %s\n", initialise(session), size,
           wf_type_name(compute), wf_device_description(device));
    printf("memory: %.1f MB of weights and moments, %.1f MB for a training step\n",
           (double)memory.states / 1e6, (double)(memory.ports + memory.activations) / 1e6);
    train(trainer, text, size, steps);
    sample(sampler, "static wf_status ");
    wf_exec_free(trainer);
    wf_exec_free(sampler);
    wf_session_free(session);
    wf_device_close(device);
    wf_ctx_free(ctx);
    return 0;
}
