/* SPDX-License-Identifier: MIT */
/*
 * test_hostile.c - indices, lengths and tables that point out of bounds. The run fails with one
 * message that names the op, and writes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "support.h"

#define MAX_OPERANDS 8

/* An operand: floats (all 1), or the valid i32 or u8 values. */
typedef struct {
    wf_type type;
    int rank;
    int64_t dim[4];
    int32_t good[16];
} operand;

/* Replaces one value of one operand with an invalid one. */
typedef struct {
    int operand, element;
    int32_t value;
} damage;

typedef struct {
    const char *op, *attrs;
    int nin;
    operand in[MAX_OPERANDS];
    damage bad[12]; /* ends at operand 0, which is never an index here */
} hostile_call;

#define F(...)               \
    {                        \
        WF_F32, __VA_ARGS__, \
        {                    \
            0                \
        }                    \
    }
#define INT_MIN32 (-2147483647 - 1)
#define INT_MAX32 2147483647

/* Two packed sequences, rows [0, 2) and [2, 5). */
#define PACKED                                                                      \
    F(3, {5, 2, 4}), F(3, {5, 1, 4}), F(3, {5, 1, 4}), {WF_I32, 1, {3}, {0, 2, 5}}, \
    {                                                                               \
        WF_I32, 1, {5},                                                             \
        {                                                                           \
            0, 1, 0, 1, 2                                                           \
        }                                                                           \
    }

static const hostile_call calls[] = {
    {"embed",
     "",
     2,
     {F(2, {7, 3}), {WF_I32, 1, {3}, {0, 6, 2}}},
     {{1, 0, -1}, {1, 1, 7}, {1, 2, INT_MIN32}, {1, 2, INT_MAX32}}},
    {"gather_rows",
     "",
     2,
     {F(2, {7, 3}), {WF_I32, 1, {3}, {0, 6, 2}}},
     {{1, 0, -1}, {1, 1, 7}, {1, 2, INT_MIN32}, {1, 2, INT_MAX32}}},
    {"scatter_add_rows",
     "",
     3,
     {F(2, {7, 3}), {WF_I32, 1, {3}, {0, 6, 2}}, F(2, {3, 3})},
     {{1, 0, -1}, {1, 1, 7}, {1, 2, INT_MIN32}, {1, 2, INT_MAX32}}},
    {"cross_entropy",
     "",
     2,
     {F(2, {3, 5}), {WF_I32, 1, {3}, {0, 4, -100}}},
     {{1, 0, -1}, {1, 1, 5}, {1, 2, INT_MIN32}, {1, 2, INT_MAX32}, {1, 0, -99}}},
    {"cross_entropy_grad",
     "",
     4,
     {F(1, {3}), F(2, {3, 5}), {WF_I32, 1, {3}, {0, 4, -100}}, F(1, {3})},
     {{2, 0, -1}, {2, 1, 5}, {2, 2, INT_MIN32}, {2, 2, INT_MAX32}}},
    {"attention",
     "",
     5,
     {PACKED},
     {{3, 0, -1},
      {3, 0, 3},
      {3, 1, 6},
      {3, 1, INT_MIN32},
      {3, 2, 1},
      {3, 2, 6},
      {3, 2, INT_MAX32}}},
    {"attention_grad",
     "",
     8,
     {F(3, {5, 2, 4}), PACKED, F(3, {5, 2, 4}), F(2, {5, 2})},
     {{4, 0, -1},
      {4, 0, 3},
      {4, 1, 6},
      {4, 1, INT_MIN32},
      {4, 2, 1},
      {4, 2, 6},
      {4, 2, INT_MAX32}}},
    /* Pools of 4 pages of 2 rows; sequences of 3 and 4 keys. */
    {"attention",
     "",
     7,
     {F(3, {2, 2, 4}),
      F(4, {4, 2, 1, 4}),
      F(4, {4, 2, 1, 4}),
      {WF_I32, 1, {3}, {0, 1, 2}},
      {WF_I32, 1, {2}, {2, 3}},
      {WF_I32, 2, {2, 2}, {3, 0, 1, 2}},
      {WF_I32, 1, {2}, {3, 4}}},
     {{3, 1, 3},
      {3, 2, 0},
      {5, 0, 4},
      {5, 1, -1},
      {5, 3, INT_MAX32},
      {5, 2, INT_MIN32},
      {6, 0, -1},
      {6, 1, 5},
      {6, 0, INT_MAX32},
      {6, 1, INT_MIN32}}},
    {"kv_append",
     "",
     5,
     {F(4, {4, 2, 1, 4}),
      F(3, {3, 1, 4}),
      {WF_I32, 1, {3}, {0, 1, 3}},
      {WF_I32, 1, {3}, {2, 0, 3}},
      {WF_I32, 2, {2, 2}, {3, 0, 1, 2}}},
     {{2, 1, 4},
      {2, 0, -1},
      {2, 2, 4},
      {3, 0, -1},
      {3, 2, 4},
      {3, 1, INT_MAX32},
      {3, 2, INT_MIN32},
      {4, 1, 4},
      {4, 2, -1},
      {4, 3, INT_MAX32},
      {4, 3, INT_MIN32}}},
    {"adamw",
     "",
     8,
     {F(1, {3}),
      F(1, {3}),
      F(1, {3}),
      F(1, {3}),
      F(0, {0}),
      {WF_I32, 0, {0}, {1}},
      F(0, {0}),
      {WF_U8, 0, {0}, {1}}},
     {{5, 0, 0}, {5, 0, -1}, {5, 0, INT_MIN32}}},
};

typedef struct {
    float f32[64];
    int32_t i32[16];
    uint8_t u8;
} memory;

static void fill(const operand *o, memory *m, wf_tensor *t)
{
    for (int i = 0; i < 64; i++)
        m->f32[i] = 1;
    memcpy(m->i32, o->good, sizeof m->i32);
    m->u8 = (uint8_t)o->good[0];
    *t = (wf_tensor){.type = o->type, .rank = o->rank};
    memcpy(t->dim, o->dim, sizeof o->dim);
    t->data = o->type == WF_F32 ? (void *)m->f32 : o->type == WF_I32 ? (void *)m->i32 : &m->u8;
}

/* Runs the call with one value replaced; NULL: unchanged. */
static wf_status call(wf_device *device, const hostile_call *c, const damage *d, float *result)
{
    memory m[MAX_OPERANDS];
    wf_tensor in[MAX_OPERANDS], out = {.data = NULL};
    for (int i = 0; i < c->nin; i++)
        fill(&c->in[i], &m[i], &in[i]);
    if (d)
        m[d->operand].i32[d->element] = d->value;
    wf_status status = wf_call_op(device, c->op, c->attrs, in, c->nin, &out, 1);
    assert_int_equal(status, WF_OK); /* the shapes are valid */
    out.data = result;
    return wf_call_op(device, c->op, c->attrs, in, c->nin, &out, 1);
}

/* Each invalid value fails the op with its name, and the result is not written. */
static void test_bad_numbers_fail_the_run(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    int refused = 0;
    wt_ok(ctx, wf_device_open(ctx, "cpu", &device));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const hostile_call *c = &calls[i];
        float good[64], result[64];
        wt_ok(ctx, call(device, c, NULL, good));
        for (const damage *d = c->bad; d->operand != 0; d++, refused++) {
            for (int k = 0; k < 64; k++)
                result[k] = -5;
            wf_status status = call(device, c, d, result);
            if (status == WF_OK)
                fail_msg("%s took %d as element %d of operand %d", c->op, d->value, d->element,
                         d->operand);
            wt_fails(ctx, status, WF_ERR_DEVICE, c->op);
            for (int k = 0; k < 64; k++)
                assert_true(result[k] == -5);
        }
    }
    print_message("%d calls refused\n", refused);
    wf_device_close(device);
}

/* A refused update keeps every bit of the state. */
static void test_refused_updates_write_nothing(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu");
    wf_graph *g;
    int64_t pool[] = {2, 2, 1, 1}, x[] = {3, 1, 1}, two = 2, three = 3, table[] = {1, 2};
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wf_kv_append(g, wf_state(g, "pool", WF_F32, 4, pool), wf_input(g, "x", WF_F32, 3, x),
                 wf_input(g, "start", WF_I32, 1, &two), wf_input(g, "positions", WF_I32, 1, &three),
                 wf_input(g, "table", WF_I32, 2, table));
    wt_compile(&r, g);
    const float before[] = {1, 2, 3, 4}, rows[] = {7, 8, 9};
    float after[4];
    wt_ok(ctx, wf_session_write(r.session, "pool", before, sizeof before));
    wt_write(&r, "x", rows, sizeof rows);
    wt_write(&r, "start", (int32_t[]){0, 3}, 8);
    wt_write(&r, "positions", (int32_t[]){0, 1, 4}, 12); /* the last position is beyond the table */
    wt_write(&r, "table", (int32_t[]){1, 0}, 8);
    wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_DEVICE, "kv_append");
    wt_ok(ctx, wf_session_read(r.session, "pool", after, sizeof after));
    wt_floats_equal(after, before, 4);
    wt_write(&r, "positions", (int32_t[]){0, 1, 2}, 12);
    wt_ok(ctx, wf_exec_run(r.exec));
    wt_ok(ctx, wf_session_read(r.session, "pool", after, sizeof after));
    wt_floats_equal(after, (const float[]){9, 2, 7, 8}, 4);
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_bad_numbers_fail_the_run),
        wt_test(test_refused_updates_write_nothing),
    };
    return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
