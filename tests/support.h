/* SPDX-License-Identifier: MIT */
/*
 * support.h - helpers shared by many tests: contexts that must end empty, checks of statuses and
 * messages, and a small transformer.
 *
 * Include after cmocka.h. All names start with wt_.
 */
#ifndef WEFT_TESTS_SUPPORT_H
#define WEFT_TESTS_SUPPORT_H

#include "weft.h"

/* ---- Contexts ---- */

/* cmocka fixtures: *state becomes a context. Teardown fails when it still holds memory. */
int wt_setup(void **state);
int wt_teardown(void **state);
#define wt_test(fn) cmocka_unit_test_setup_teardown(fn, wt_setup, wt_teardown)

uint64_t wt_live_blocks(wf_ctx *ctx);
/* Returns WEFT_SEED from the environment, or a fresh seed. Prints it at the first call. */
uint64_t wt_seed(void);

/*
 * Returns how many of n cases this run tests: all of them, but a quarter in sanitized builds, where a
 * case takes ten times as long, and 1/32 under the thread sanitizer. The seed chooses which.
 * WEFT_ALL_CASES=1 means all in Release and Sanitize.
 */
int wt_cases(int n);

/* ---- Statuses ---- */

void wt_ok_at(wf_ctx *ctx, wf_status status, const char *file, int line);
#define wt_ok(ctx, expr) wt_ok_at(ctx, expr, __FILE__, __LINE__)
/* Fails the test unless the call returned `wanted` and the context's message is one sentence that
 * contains `part`. */
void wt_fails_at(wf_ctx *ctx, wf_status status, wf_status wanted, const char *part,
                 const char *file, int line);
#define wt_fails(ctx, expr, wanted, part) wt_fails_at(ctx, expr, wanted, part, __FILE__, __LINE__)
/* Returns whether the text is one line, starts with a letter or digit, has no full stop at the end
 * and is not truncated. */
bool wt_is_sentence(const char *text);

/* ---- One executable ---- */

/* A device, a session on it and, after wt_compile, an executable. */
typedef struct {
    wf_ctx *ctx;
    wf_device *device;
    wf_session *session;
    wf_exec *exec;
} wt_run;

wt_run wt_open(wf_ctx *ctx, const char *device);
/* Compiles the graph, which must be valid, and frees it. Frees the previous executable. */
void wt_compile(wt_run *r, wf_graph *g);
void wt_close(wt_run *r);
/* Removes stride support from all kernels of the run's device, except the kernels that make views
 * dense. Affects graphs compiled later. Only one device at a time. */
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
    wf_value *param[WT_PARAMS], *grad[WT_PARAMS]; /* invalid once the graph is freed */
} wt_model;

/* Builds the graph from inputs to the mean loss: two sequences, dropout, RMS norm, rotary
 * grouped-query attention, layer norm, a gated MLP, and a head tied to the embedding. */
void wt_forward(wf_graph *g, const wt_sizes *size, wt_model *out);
/* Adds gradients and an AdamW step for every parameter, skipped when the norm is not finite. */
void wt_train(wf_graph *g, wt_model *m);
/* Adds the merged ops, two updates each, over x f32 [R, 2] and new states. Returns the loss of the
 * head. */
wf_value *wt_merged(wf_graph *g, wf_value *x);
/* Writes all inputs and all parameters. Returns errors, because allocations may fail. */
wf_status wt_write_inputs(wf_exec *exec, const wt_sizes *size, int32_t step);
wf_status wt_write_params(wf_session *session, const wt_model *m);

/* For tests of equal bits: selects the AVX-512 kernels on machines with AMX, unless the environment
 * chooses. AMX tiles add bf16 terms in another order, so ops with tile kernels differ from ops
 * without. Call first. */
void wt_without_tiles(void);

#endif
