/* SPDX-License-Identifier: MIT */
/*
 * test_bad_data.c - invalid indices and other invalid inputs. The run fails with the message of the
 * cpu; on an asynchronous device the next read fails with it. The executable then works again with
 * valid data.
 *
 * WEFT_BAD_DATA_DEVICE names a device other than the cpu; the tests are skipped when it cannot be
 * opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "graph/build.h"
#include "pjrt_support.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

static const char *device_under_test(void)
{
    const char *given = getenv("WEFT_BAD_DATA_DEVICE");
    return given ? given : "cpu";
}

/* An i32 input of a case: valid values, and invalid ones. All zeros in `wrong`: stays valid. */
typedef struct {
    const char *name;
    int count;
    int32_t right[8], wrong[8];
} data;

typedef struct {
    const char *op;
    void (*build)(wf_graph *g);
    data inputs[4];
    const char *word; /* part of the message */
} fault_case;

static wf_value *input(wf_graph *g, const char *name, int64_t n)
{
    return wf_input(g, name, WF_I32, 1, D(n));
}

/* ---- Graphs; states are zero ---- */

static void build_embed(wf_graph *g)
{
    wf_value *table = wf_state(g, "table", WF_F32, 2, D(5, 3));
    wf_output(g, "y", wf_embed(g, table, wf_input(g, "ids", WF_I32, 2, D(2, 3))));
}

static void build_embed_blocks(wf_graph *g)
{
    wf_value *table = wf_state(g, "table", WF_Q8_0, 2, D(5, 64));
    wf_output(g, "y", wf_embed(g, table, wf_input(g, "ids", WF_I32, 2, D(2, 3))));
}

static void build_gather(wf_graph *g)
{
    wf_value *x = wf_state(g, "x", WF_BF16, 3, D(5, 2, 8));
    wf_output(g, "y", wf_cast(g, wf_gather_rows(g, x, input(g, "rows", 3)), WF_F32));
}

static void build_scatter(wf_graph *g)
{
    wf_value *x = wf_state(g, "x", WF_F32, 2, D(5, 4)),
             *from = wf_state(g, "from", WF_F32, 2, D(3, 4));
    wf_output(g, "y", wf_scatter_add_rows(g, x, input(g, "rows", 3), from));
}

static void build_loss(wf_graph *g)
{
    wf_value *logits = wf_state(g, "logits", WF_F32, 2, D(4, 5));
    wf_output(g, "y", wf_cross_entropy(g, logits, input(g, "targets", 4), NULL));
}

static void build_loss_grad(wf_graph *g)
{
    wf_value *logits = wf_state(g, "logits", WF_F32, 2, D(4, 5));
    wf_value *scalar = wf_state(g, "scalar", WF_F32, 1, D(4));
    wf_value *in[] = {scalar, logits, input(g, "targets", 4), scalar};
    wf_output(g, "y", wf_op_add(g, "cross_entropy_grad", "", in, 4));
}

/* The invalid target is in the second chunk: the message must count rows from the start. */
static void build_head(wf_graph *g)
{
    wf_value *in[] = {wf_state(g, "x", WF_F32, 2, D(4, 8)), wf_state(g, "w", WF_F32, 2, D(5, 8)),
                      input(g, "targets", 4)};
    wf_output(g, "y", wf_op_add(g, "head_loss", "chunk=2", in, 3));
}

/* The head size and the type select the kernel. */
static void attention(wf_graph *g, wf_type type, int64_t size)
{
    wf_value *q = wf_state(g, "q", type, 3, D(6, 2, size)),
             *k = wf_state(g, "k", type, 3, D(6, 1, size));
    wf_value *o =
        wf_attention(g, q, k, k, input(g, "seq_start", 4), input(g, "positions", 6), NULL);
    wf_output(g, "y", wf_cast(g, o, WF_F32));
}

static void build_attention(wf_graph *g)
{
    attention(g, WF_F32, 16);
}

static void build_flash(wf_graph *g)
{
    attention(g, WF_BF16, 32);
}

static void build_hopper(wf_graph *g)
{
    attention(g, WF_BF16, 64);
}

static void attention_grad(wf_graph *g, wf_type type, int64_t size)
{
    wf_value *q = wf_state(g, "q", type, 3, D(6, 2, size)),
             *k = wf_state(g, "k", type, 3, D(6, 1, size)),
             *lse = wf_state(g, "lse", WF_F32, 2, D(6, 2));
    wf_value *in[] = {q, q, k, k, input(g, "seq_start", 4), input(g, "positions", 6), q, lse};
    wf_output(g, "y", wf_cast(g, wf_op_add(g, "attention_grad", "", in, 8), WF_F32));
}

static void build_attention_grad(wf_graph *g)
{
    attention_grad(g, WF_F32, 16);
}

static void build_flash_grad(wf_graph *g)
{
    attention_grad(g, WF_BF16, 32);
}

static void build_hopper_grad(wf_graph *g)
{
    attention_grad(g, WF_F16, 64);
}

/* Two sequences of one query each; three pages of two tokens. */
static void build_paged(wf_graph *g)
{
    wf_value *q = wf_state(g, "q", WF_F32, 3, D(2, 1, 8)),
             *pool = wf_state(g, "pool", WF_F32, 4, D(3, 2, 1, 8)),
             *starts = wf_iota(g, 1, D(3), 0);
    wf_output(g, "y",
              wf_attention_paged(g, q, pool, pool, starts, input(g, "positions", 2),
                                 wf_input(g, "table", WF_I32, 2, D(2, 2)), input(g, "lengths", 2),
                                 NULL));
}

static void build_append(wf_graph *g)
{
    wf_value *pool = wf_state(g, "pool", WF_F32, 4, D(3, 2, 1, 8)),
             *x = wf_state(g, "x", WF_F32, 3, D(4, 1, 8));
    wf_value *new = wf_kv_append(g, pool, x, input(g, "seq_start", 3), input(g, "positions", 4),
                                 wf_input(g, "table", WF_I32, 2, D(2, 2)));
    wf_output(g, "y", wf_reduce(g, "sum", new, 1, false));
}

static void build_adamw(wf_graph *g)
{
    wf_value *p = wf_state(g, "p", WF_F32, 1, D(4)), *m = wf_state(g, "m", WF_F32, 1, D(4)),
             *v = wf_state(g, "v", WF_F32, 1, D(4));
    wf_value *grad = wf_fill(g, WF_F32, 1, D(4), 1), *lr = wf_fill(g, WF_F32, 0, NULL, 1);
    wf_value *step = wf_reshape(g, input(g, "step", 1), 0, NULL);
    wf_output(g, "y", wf_adamw(g, p, m, v, grad, lr, step, NULL, NULL, NULL));
}

static const fault_case cases[] = {
    {"embed",
     build_embed,
     {{"ids", 6, {0, 1, 2, 3, 4, 0}, {0, 1, 2, 3, -1, 7}}},
     "index -1 at [1,1]"},
    {"embed", build_embed_blocks, {{"ids", 6, {0, 1}, {0, 1, 5, 3, -1, 7}}}, "index 5 at [0,2]"},
    {"gather_rows", build_gather, {{"rows", 3, {4, 4, 1}, {4, INT32_MIN, 9}}}, "[0, 5)"},
    {"scatter_add_rows", build_scatter, {{"rows", 3, {0, 4, 0}, {0, 5, -1}}}, "index 5 at [1]"},
    {"cross_entropy", build_loss, {{"targets", 4, {0, -100, 4, 1}, {0, -100, 5, -1}}}, "of row 2"},
    {"cross_entropy_grad", build_loss_grad, {{"targets", 4, {0}, {0, 0, 0, -1}}}, "of row 3"},
    {"head_loss", build_head, {{"targets", 4, {0, -100, 4, 1}, {0, -100, 4, 5}}}, "of row 3"},
    {"attention",
     build_attention,
     {{"seq_start", 4, {0, 2, 4, 6}, {0, 4, 3, 6}}, {"positions", 6, {0, 1, 0, 1, 0, 1}, {0}}},
     "seq_start[2] is 3"},
    {"attention",
     build_flash,
     {{"seq_start", 4, {0, 2, 4, 6}, {0, 2, 4, 7}}, {"positions", 6, {0, 1, 0, 1, 0, 1}, {0}}},
     "exceed 6, the number of rows"},
    {"attention",
     build_hopper,
     {{"seq_start", 4, {0, 2, 4, 6}, {0, 3, 2, 6}}, {"positions", 6, {0, 1, 0, 1, 0, 1}, {0}}},
     "seq_start[2] is 2"},
    {"attention_grad",
     build_attention_grad,
     {{"seq_start", 4, {0, 2, 4, 6}, {-1, 2, 4, 6}}, {"positions", 6, {0, 1, 0, 1, 0, 1}, {0}}},
     "seq_start[0] is -1"},
    {"attention_grad",
     build_flash_grad,
     {{"seq_start", 4, {0, 2, 4, 6}, {-1, 2, 4, 6}}, {"positions", 6, {0, 1, 0, 1, 0, 1}, {0}}},
     "seq_start[0] is -1"},
    {"attention_grad",
     build_hopper_grad,
     {{"seq_start", 4, {0, 2, 4, 6}, {0, 2, 4, 8}}, {"positions", 6, {0, 1, 0, 1, 0, 1}, {0}}},
     "seq_start[3] is 8"},
    {"attention",
     build_paged,
     {{"positions", 2, {3, 1}, {0}},
      {"table", 4, {0, 1, 2, 3}, {0}}, /* page 3 is never read */
      {"lengths", 2, {4, 2}, {4, 5}}},
     "lengths[1] is 5"},
    {"attention",
     build_paged,
     {{"positions", 2, {3, 1}, {0}},
      {"table", 4, {0, 1, 2, 3}, {0, 1, 3, 3}},
      {"lengths", 2, {4, 2}, {0}}},
     "table[1][0] is page 3"},
    {"kv_append",
     build_append,
     {{"seq_start", 3, {0, 1, 3}, {0}},
      {"positions", 4, {3, 0, 1, 9}, {3, 0, 4, 9}}, /* row 3 belongs to no sequence */
      {"table", 4, {0, 1, 2, 3}, {0}}},
     "no page for row 2, position 4"},
    {"kv_append",
     build_append,
     {{"seq_start", 3, {0, 1, 3}, {0, 1, 5}},
      {"positions", 4, {3, 0, 1, 0}, {0}},
      {"table", 4, {0, 1, 2, 3}, {0}}},
     "seq_start[2] is 5"},
    {"adamw", build_adamw, {{"step", 1, {1}, {-3}}}, "step is -3"},
};

/* ---- Runs ---- */

static void write_inputs(wt_run *r, const fault_case *c, bool wrong)
{
    static const int32_t none[8];
    for (int i = 0; i < 4 && c->inputs[i].name; i++) {
        const data *d = &c->inputs[i];
        const bool other = wrong && memcmp(d->wrong, none, sizeof none) != 0;
        wt_write(r, d->name, other ? d->wrong : d->right, (size_t)d->count * sizeof(int32_t));
    }
}

static wf_status read_y(wt_run *r)
{
    static char y[4096];
    wf_info info;
    assert_true(wf_exec_output(r->exec, 0, &info));
    assert_true(info.bytes <= sizeof y);
    return wf_exec_read(r->exec, "y", y, info.bytes);
}

/* The cpu runs a step synchronously. Other devices run it later and report its error at the next
 * read. */
static bool reports_at_once(void)
{
    return strncmp(device_under_test(), "cpu", 3) == 0;
}

static wf_status run_and_read(wt_run *r)
{
    if (reports_at_once())
        return wf_exec_run(r->exec);
    wt_run_once(r);
    return read_y(r);
}

static void open_case(wf_ctx *ctx, const fault_case *c, const char *device, wt_run *r)
{
    wf_graph *g = wt_graph(ctx);
    c->build(g);
    *r = wt_open(ctx, device);
    wt_compile(r, g);
}

/* Gets the cpu's message for the case. */
static void ask_cpu(wf_ctx *ctx, const fault_case *c, char *sentence, size_t bytes)
{
    wt_run r;
    open_case(ctx, c, "cpu:1", &r);
    write_inputs(&r, c, true);
    wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_DEVICE, c->word);
    snprintf(sentence, bytes, "%s", wf_ctx_message(ctx));
    write_inputs(&r, c, false);
    wt_run_once(&r);
    wt_close(&r);
}

/* Expects the cpu's message, or a prefix of it. */
static void expect_sentence(wf_ctx *ctx, const char *wanted, const char *word)
{
    const char *got = wf_ctx_message(ctx);
    if (strncmp(got, wanted, strlen(got)) != 0 || !strstr(got, word))
        fail_msg("\"%s\" instead of \"%s\"", got, wanted);
}

/* Runs with valid, invalid and valid data, and expects the cpu's message for the invalid run. */
static void run_case(wf_ctx *ctx, const fault_case *c)
{
    char wanted[512];
    wt_run r;
    ask_cpu(ctx, c, wanted, sizeof wanted);
    open_case(ctx, c, device_under_test(), &r);
    for (int times = 0; times < 2; times++) {
        write_inputs(&r, c, false);
        wt_run_once(&r);
        wt_ok(ctx, read_y(&r));
        write_inputs(&r, c, true);
        wt_fails(ctx, run_and_read(&r), WF_ERR_DEVICE, c->op);
        expect_sentence(ctx, wanted, c->word);
        wt_fails(ctx, read_y(&r), WF_ERR_DEVICE, "is not available");
    }
    r.device->timed = true; /* timed: steps run one at a time, and the run itself fails */
    wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_DEVICE, c->op);
    expect_sentence(ctx, wanted, c->word);
    r.device->timed = false;
    write_inputs(&r, c, false);
    wt_run_once(&r);
    wt_ok(ctx, read_y(&r));
    wt_close(&r);
}

static void test_invalid_data_has_the_message_of_the_cpu(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(*state, &cases[i]);
}

/* A read reports another executable's error; reading a state reports it too. */
static void test_next_read_fails(void **state)
{
    wf_ctx *ctx = *state;
    if (reports_at_once())
        skip();
    const fault_case *c = &cases[0];
    wt_run first, second;
    float table[15];
    open_case(ctx, c, device_under_test(), &first);
    second = (wt_run){.ctx = ctx, .device = first.device, .session = first.session};
    wf_graph *g = wt_graph(ctx);
    wf_output(g, "y", wf_fill(g, WF_F32, 1, D(3), 2));
    wt_compile(&second, g);
    for (int i = 0; i < 2; i++) {
        write_inputs(&first, c, true);
        wt_run_once(&first);
        write_inputs(&first, c, false); /* later runs must not hide the error */
        wt_run_once(&first);
        wt_run_once(&second);
        if (i == 0)
            wt_fails(ctx, read_y(&second), WF_ERR_DEVICE, c->word);
        else
            wt_fails(ctx, wf_session_read(first.session, "table", table, sizeof table),
                     WF_ERR_DEVICE, c->word);
        wt_ok(ctx, read_y(&first));
        wt_run_once(&second);
        wt_ok(ctx, read_y(&second));
    }
    wf_exec_free(second.exec);
    wt_close(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_invalid_data_has_the_message_of_the_cpu),
        wt_test(test_next_read_fails),
    };
    if (!wt_can_open(device_under_test()))
        return 0;
    return cmocka_run_group_tests_name("bad_data", tests, NULL, NULL);
}
