/* SPDX-License-Identifier: MIT */
/*
 * support.h - what several tests share: contexts that must end empty, checks of statuses and their
 * sentences, and a small transformer.
 *
 * To be included after cmocka.h. Everything here begins with wt_.
 */
#ifndef WEFT_TESTS_SUPPORT_H
#define WEFT_TESTS_SUPPORT_H

#include "weft.h"

/* ---- Contexts ---- */

/* For cmocka: *state becomes a context, which must hold no memory at the end. */
int wt_setup(void **state);
int wt_teardown(void **state);
#define wt_test(fn) cmocka_unit_test_setup_teardown(fn, wt_setup, wt_teardown)

uint64_t wt_live_blocks(wf_ctx *ctx);
/* WEFT_SEED of the environment or a fresh one; printed at the first call. */
uint64_t wt_seed(void);

/* ---- Statuses ---- */

void wt_ok_at(wf_ctx *ctx, wf_status status, const char *file, int line);
#define wt_ok(ctx, expr) wt_ok_at(ctx, expr, __FILE__, __LINE__)
/* The call failed with `wanted`, and the context has one sentence about it with `part` in it. */
void wt_fails_at(wf_ctx *ctx, wf_status status, wf_status wanted, const char *part,
                 const char *file, int line);
#define wt_fails(ctx, expr, wanted, part) wt_fails_at(ctx, expr, wanted, part, __FILE__, __LINE__)
/* One line, from a letter or digit on, without a full stop, not cut short. */
bool wt_is_sentence(const char *text);

/* ---- One executable ---- */

/* A device, a session on it and perhaps an executable. */
typedef struct {
    wf_ctx *ctx;
    wf_device *device;
    wf_session *session;
    wf_exec *exec;
} wt_run;

wt_run wt_open(wf_ctx *ctx, const char *device);
/* Compiles the graph, which must be healthy, and frees it. An executable before it is freed. */
void wt_compile(wt_run *r, wf_graph *g);
void wt_close(wt_run *r);
/* Takes strides from all kernels of the run's device, but those that make views dense. For graphs
 * that are compiled from now on; one device at a time. */
void wt_make_dense(wt_run *r);
void wt_write(wt_run *r, const char *input, const void *from, size_t bytes);
void wt_read(wt_run *r, const char *output, void *to, size_t bytes);
wf_graph *wt_graph(wf_ctx *ctx);
void wt_run_once(wt_run *r);
void wt_set_state(wt_run *r, const char *name, const float *from, int64_t n);
void wt_expect_state(wt_run *r, const char *name, const float *want, int64_t n); /* n <= 64 */
void wt_floats_equal(const float *got, const float *wanted, int64_t n);
#define wt_expect(r, output, ...)                                              \
    do {                                                                       \
        const float want_[] = __VA_ARGS__;                                     \
        float got_[sizeof want_ / sizeof *want_];                              \
        wt_read(r, output, got_, sizeof got_);                                 \
        wt_floats_equal(got_, want_, (int64_t)(sizeof want_ / sizeof *want_)); \
    } while (0)

/* ---- A small transformer ---- */

typedef struct {
    int64_t tokens, vocab, width, heads, kv_heads, head_dim, hidden;
} wt_sizes;
extern const wt_sizes wt_tiny;

#define WT_PARAMS 16

typedef struct {
    wt_sizes size;
    wf_value *logits, *losses, *loss;
    int count;
    const char *name[WT_PARAMS];
    int64_t elements[WT_PARAMS];
    wf_value *param[WT_PARAMS], *grad[WT_PARAMS]; /* gone with the graph */
} wt_model;

/* From inputs to the mean loss: two sequences, dropout, RMS norm, rotary attention with grouped
 * heads, layer norm, a gated MLP, and a head that shares its weights with the embedding. */
void wt_forward(wf_graph *g, const wt_sizes *size, wt_model *out);
/* Gradients, and an AdamW step of every parameter, skipped when the norm is not finite. */
void wt_train(wf_graph *g, wt_model *m);
/* The forms that passes merge nodes into, two updates each, of x [R, 2] in f32 and states of their
 * own. Returns the loss of the head. */
wf_value *wt_merged(wf_graph *g, wf_value *x);
/* Numbers for all inputs and for all parameters. Errors are returned: allocations may fail. */
wf_status wt_write_inputs(wf_exec *exec, const wt_sizes *size, int32_t step);
wf_status wt_write_params(wf_session *session, const wt_model *m);

/* For tests of equal bits: on machines with AMX the kernels of AVX-512 run, unless the environment says otherwise. With tiles
 * sums of bf16 are added up in another order, so ops that have them differ from ops that do not. To be called first. */
void wt_without_tiles(void);

#endif
