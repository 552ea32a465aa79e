/* SPDX-License-Identifier: MIT */
/*
 * test_graph.c - building graphs: a wrong call is refused at once with the op, the shapes and the
 * rule that it breaks. Also covers attributes as text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build.h"
#include "support.h"

#define BIG ((int64_t)1 << 40)

static wf_graph *graph(wf_ctx *ctx)
{
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    return g;
}

/* ---- Wrong calls ---- */

/* Operands are given as types and shapes; a star marks a state, all others are inputs. */
typedef struct {
    const char *op, *attrs, *operands, *rule;
} bad_call;

static const bad_call bad_calls[] = {
    {"exp", "", "f32[2] f32[2]", "takes 1 operand, not 2"},
    {"add", "", "f32[2]", "takes 2 operands, not 1"},
    {"scale", "factor=2", "i32[2]", "x must be f32, f16 or bf16"},
    {"where", "", "f32[2] f32[2] f32[2]", "the condition must be u8"},
    {"where", "", "u8[2] f32[2] f16[2]", "a and b must have the same plain type"},
    {"where", "", "u8[3] f32[2] f32[2]", "must be equal or 1"},
    {"gelu_grad", "", "f32[2] f32[3]", "the same type and shape"},
    {"glu", "kind=0", "f32[2] f32[3]", "the same type and shape"},
    {"glu", "kind=3", "f32[2] f32[2]", "kind must be"},
    {"glu_grad", "kind=0", "f32[2] f32[2] f16[2]", "the same type and shape"},
    {"dropout", "p=0.5", "f32[2] i32[2]", "the key must be i32[3]"},
    {"dropout", "p=1", "f32[2] i32[3]", "p must lie in [0, 1), not 1"},
    {"dropout", "p=-0.1", "f32[2] i32[3]", "not -0.1"},
    {"dropout", "p=0.5", "u8[2] i32[3]", "x must be f32, f16 or bf16"},
    {"uniform", "dims=[2]", "i32[2]", "the key must be i32[3]"},
    {"cast", "type=q8_0", "f32[32]", "the new type must be a plain type"},
    {"cast", "", "f32[2]", "the new type must be a plain type"},
    {"cast", "type=i8", "q8_0[32]", "can only be cast to f32, f16 or bf16"},
    {"permute", "order=[1,0]", "q8_0[32,64]", "must stay last"},
    {"slice", "axis=1 begin=16 end=48", "q8_0[2,64]", "must be whole blocks of 32"},
    {"slice", "axis=1 begin=32 end=48", "q8_0[2,64]", "needs a multiple of 32"},
    {"copy", "", "f32[2] f32[2]", "takes 1 operand, not 2"},
    {"reshape", "dims=[4]", "f32[2,3]", "as many elements as x: 6, not 4"},
    {"reshape", "dims=[8,8]", "q8_0[64]", "needs a multiple of 32"},
    {"permute", "order=[0,0]", "f32[2,3]", "each axis of x once"},
    {"permute", "order=[0]", "f32[2,3]", "each axis of x once"},
    {"permute", "order=[0,2]", "f32[2,3]", "each axis of x once"},
    {"slice", "axis=2 begin=0 end=1", "f32[2,3]", "axis 2 is out of range"},
    {"slice", "axis=1 begin=1 end=4", "f32[2,3]", "[1, 4) must lie within axis 1"},
    {"slice", "axis=1 begin=2 end=1", "f32[2,3]", "[2, 1) must lie within axis 1"},
    {"slice", "axis=0 begin=-1 end=1", "f32[2,3]", "[-1, 1) must lie within axis 0"},
    {"pad", "axis=2", "f32[2,3]", "axis 2 is out of range"},
    {"pad", "axis=1 before=-1", "f32[2,3]", "must not be negative"},
    {"pad", "axis=0 before=9223372036854775807", "f32[2]", "over 2^31"},
    {"pad", "axis=0", "q4_0[32]", "x must have a plain type"},
    {"concat", "axis=0", "f32[2,3] f32[2,4]", "must be equal in all axes but axis 0"},
    {"concat", "axis=2", "f32[2,3] f32[2,3]", "axis 2 is out of range"},
    {"concat", "axis=0", "f32[2] bf16[2]", "the same type and rank"},
    {"concat", "axis=0", "f32[2,3] f32[2]", "the same type and rank"},
    {"broadcast", "dims=[2,3]", "f32[2]", "must be equal, or 1 in x"},
    {"broadcast", "dims=[1]", "f32[3]", "must be equal, or 1 in x"},
    {"sum", "axes=4", "f32[2,3]", "an axis that x does not have"},
    {"sum", "axes=-1", "f32[2,3]", "an axis that x does not have"},
    {"sum", "axes=1", "u8[2]", "x must be f32, f16, bf16 or i32"},
    {"mean", "axes=1", "i32[2]", "x must be f32, f16 or bf16"},
    {"max", "axes=1", "f32[0,2]", "max over zero elements"},
    {"argmax", "axis=1", "f32[2]", "axis 1 is out of range"},
    {"argmax", "axis=0", "f32[0]", "1 to 2^31 - 1 elements"},
    {"argmax", "axis=0", "u8[2]", "x must be f32, f16, bf16 or i32"},
    {"top_k", "k=4", "f32[3]", "k = 4 must lie within the last axis"},
    {"top_k", "k=-1", "f32[3]", "k = -1 must lie within the last axis"},
    {"top_k", "k=1", "f32[]", "rank 1 or more"},
    {"softmax", "", "f32[]", "a non-empty last axis"},
    {"softmax", "", "f32[2,0]", "a non-empty last axis"},
    {"softmax_grad", "", "f32[2] f32[3]", "the same type and shape"},
    {"global_norm", "", "f32[2] i32[2]", "all operands must be f32, f16 or bf16"},
    {"embed", "", "f32[2,3,4] i32[2]", "a table [V, C] and i32 ids"},
    {"embed", "", "f32[2,3] f32[2]", "a table [V, C] and i32 ids"},
    {"embed", "", "f32[2,3] i32[1,1,1,1,1,2]", "i32 ids of rank 5 or less"},
    {"gather_rows", "", "f32[] i32[2]", "x must be [R, ...]"},
    {"gather_rows", "", "q8_0[32] i32[2]", "a quantized x must have rank 2"},
    {"gather_rows", "", "f32[2,3] i32[2,2]", "rows must be i32[n]"},
    {"scatter_add_rows", "", "i32[2,3] i32[2] i32[2,3]", "x must be [R, ...] of f32"},
    {"scatter_add_rows", "", "f32[2,3] f32[2] f32[2,3]", "rows must be i32[n]"},
    {"scatter_add_rows", "", "f32[2,3] i32[2] f32[2,4]", "rows of x's type and shape"},
    {"matmul", "", "f32[2,3] f32[4,5]", "the inner axes must be equal, not 3 and 4"},
    {"matmul", "transpose_a=1", "f32[2,3] f32[3,5]", "the inner axes must be equal, not 2 and 3"},
    {"matmul", "", "f32[3] f32[3]", "the same rank, 2 or more"},
    {"matmul", "", "f32[2,2,3] f32[3,3,4]", "all axes but the last two must be equal"},
    {"matmul", "", "i32[2,3] i32[3,2]", "a must be f32, f16 or bf16"},
    {"linear", "", "f32[2,3] f32[4,5]", "the last axis of x must equal the last axis of w"},
    {"linear", "", "f32[2,3] f32[3]", "x must be [..., K] and w [N, K]"},
    {"linear", "", "f32[2,3] f32[4,3] f32[3]", "the bias must be [N]"},
    {"linear", "", "i32[2,3] f32[4,3]", "x must be f32, f16 or bf16"},
    {"layer_norm", "eps=1e-5", "f32[2,3] f32[4]", "of length C, the last axis of x"},
    {"layer_norm", "eps=1e-5", "f32[]", "a non-empty last axis"},
    {"layer_norm", "eps=-1", "f32[2]", "eps must not be negative"},
    {"layer_norm_grad", "", "f32[2,3] f32[2,3] f32[2] f32[3]", "without the last axis"},
    {"layer_norm_grad", "", "f32[2,2] f32[2,3] f32[2] f32[2]", "dy and x must have the same type"},
    {"rms_norm", "eps=1e-5", "f32[2,3] i32[3]", "of length C, the last axis of x"},
    {"rms_norm_grad", "", "f32[2,3] f32[2,3] f16[2]", "the statistics must be f32"},
    {"rope", "", "f32[2,3] i32[2] f32[1]", "x must be [N, H, D]"},
    {"rope", "", "f32[2,3,4] i32[3] f32[2]", "positions must be i32[N]"},
    {"rope", "", "f32[2,3,4] i32[2] f32[3]", "inv_freq must be f32[R/2]"},
    {"attention", "", "f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[2] i32[4] i32[1,1]", "takes q, k, v"},
    {"attention", "", "f32[4,2] f32[4,1,8] f32[4,1,8] i32[2] i32[4]", "q must be [N, H, D]"},
    {"attention", "", "f32[4,2,32] q8_0[4,1,32] q8_0[4,1,32] i32[2] i32[4]",
     "q, k and v must be f32"},
    {"attention", "", "f32[4,2,32] q8_0[3,4,1,32] f32[3,4,1,32] i32[2] i32[4] i32[1,2] i32[1]",
     "quantized k and v must have the same type"},
    {"attention", "", "f32[4,2,8] f32[4,1,6] f32[4,1,8] i32[2] i32[4]",
     "k's last axis must equal q's D"},
    {"attention", "", "f32[4,3,8] f32[4,2,8] f32[4,2,8] i32[2] i32[4]", "kv heads (2)"},
    {"attention", "", "f32[4,2,8] f32[4,1,8] f32[4,2,8] i32[2] i32[4]", "k and v must agree"},
    {"attention", "", "f32[4,2,8] f32[5,1,8] f32[5,1,8] i32[2] i32[4]", "as many rows as q"},
    {"attention", "", "f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[0] i32[4]", "i32[S + 1]"},
    {"attention", "", "f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[2] i32[3]", "positions must be i32[N]"},
    {"attention", "window=-1", "f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[2] i32[4]",
     "window and softcap must not be negative"},
    {"attention", "length=-1", "f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[2] i32[4]",
     "length must not be negative"},
    {"attention", "length=3", "f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[2] i32[4]",
     "q must have S * length rows"},
    {"attention", "length=4", "f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[3] i32[4]",
     "q must have S * length rows"},
    {"attention", "length=4", "f32[4,2,8] f32[3,4,1,8] f32[3,4,1,8] i32[2] i32[4] i32[1,2] i32[1]",
     "length must be 0 for attention over page pools"},
    {"attention_grad", "length=2",
     "f32[4,2,8] f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[2] i32[4] f32[4,2,8] f32[4,2]",
     "q must have S * length rows"},
    {"attention", "", "f32[4,2,8] f32[3,4,1,8] f32[3,4,1,8] i32[2] i32[4] i32[2,2] i32[1]",
     "the table must be i32[S, pages]"},
    {"attention", "", "f32[4,2,8] f32[3,4,1,8] f32[3,4,1,8] i32[2] i32[4] i32[1,2] i32[2]",
     "lengths must be i32[S]"},
    {"attention_grad", "",
     "f32[4,2,8] f32[4,2,8] f32[4,1,8] f32[4,1,8] i32[2] i32[4] f32[4,2,8] f32[4,1]",
     "lse must be f32[N, H]"},
    {"cross_entropy", "", "f32[2,3] i32[3]", "without the last axis"},
    {"cross_entropy", "", "i32[2,3] i32[2]", "logits must be f32, f16 or bf16"},
    {"cross_entropy", "", "f32[2,0] i32[2]", "a non-empty last axis"},
    {"cross_entropy", "label_smoothing=2", "f32[2,3] i32[2]", "label_smoothing must lie in"},
    {"cross_entropy", "softcap=-1", "f32[2,3] i32[2]", "softcap must not be negative"},
    {"cross_entropy_grad", "", "f32[2] f32[2,3] i32[2] f32[3]", "f32 of the targets' shape"},
    {"residual_rms_norm", "", "f32[2,3] f32[3,2]",
     "x and residual must have the same type and shape"},
    {"residual_rms_norm", "", "f32[2,3] f16[2,3]",
     "x and residual must have the same type and shape"},
    {"residual_rms_norm", "", "f32[2,3] f32[2,3] f32[2]", "of length C, the last axis of x"},
    {"residual_rms_norm", "eps=-1", "f32[2,3] f32[2,3]", "eps must not be negative"},
    {"residual_layer_norm", "", "f32[2,3] f32[3]",
     "x and residual must have the same type and shape"},
    {"residual_layer_norm", "", "f32[2,0] f32[2,0]", "a non-empty last axis"},
    {"residual_layer_norm", "", "f32[2,3] f32[2,3] f32[3] f32[4]",
     "of length C, the last axis of x"},
    {"linear_act", "act=5", "f32[2,3] f32[4,3]", "act must be 0 (gelu)"},
    {"linear_act", "act=-1", "f32[2,3] f32[4,3]", "act must be 0 (gelu)"},
    {"linear_act", "", "f32[2,3] f32[4,5]", "the last axis of x must equal the last axis of w"},
    {"residual_rms_norm_grad", "", "f32[2,3] f32[2,3] f32[2] f32[2,4]",
     "dsum and x must have the same"},
    {"residual_rms_norm_grad", "", "f32[2,3] f32[2,3] f32[2] f16[2,3]",
     "dsum and x must have the same"},
    {"residual_layer_norm_grad", "", "f32[2,3] f32[2,3] f32[2] f32[2] f32[3,2]",
     "dsum and x must have the same"},
    {"residual_layer_norm_grad", "", "f32[2,3] f32[2,3] f32[2] f32[3] f32[2,3]",
     "without the last axis"},
    {"residual_layer_norm_grad", "", "f32[2,3] f32[2,3] f32[2] f32[2] f32[2,3] f32[2]",
     "of length C, the last axis of x"},
    {"matmul_act_grad", "act=1", "f32[2,3] f32[3,4] f32[2,4]", "act must be 0 (gelu)"},
    {"matmul_act_grad", "", "i32[2,3] f32[3,4] f32[2,4]", "dy must be f32, f16 or bf16"},
    {"matmul_act_grad", "", "f32[2,3] f32[4,3] f32[2,4]", "dy must be [M, N] and w [N, K]"},
    {"matmul_act_grad", "", "f32[2,3] f32[3,4] f32[2,3]", "pre must be [M, K] of dy's type"},
    {"matmul_act_grad", "", "f32[2,3] f32[3,4] f16[2,4]", "pre must be [M, K] of dy's type"},
    {"linear_grad_weight", "", "f32[2,3] f16[2,4]", "floats of the same type"},
    {"linear_grad_weight", "", "i32[2,3] i32[2,4]", "floats of the same type"},
    {"linear_grad_weight", "", "f32[2,3] f32[3,4]", "dy must be [M, N] and x [M, K]"},
    {"head_loss", "", "f32[2,3] i32[4,3] i32[2]", "and w must be one of these or quantized"},
    {"head_loss", "", "f32[2,3] f32[0,3] i32[2]", "with V > 0"},
    {"head_loss", "", "f32[] f32[4,3] i32[]", "x must be [..., C]"},
    {"head_loss", "", "f32[2,3] f32[4,5] i32[2]", "must equal the last axis of w"},
    {"head_loss", "", "f32[2,3] f32[4,3] i32[3]", "without the last axis"},
    {"head_loss", "", "f32[2,3] f32[4,3] i32[2] f16[2]", "dloss must be f32"},
    {"head_loss", "chunk=-1", "f32[2,3] f32[4,3] i32[2]", "chunk must not be negative"},
    {"head_loss", "label_smoothing=2", "f32[2,3] f32[4,3] i32[2]", "label_smoothing must lie in"},
    {"head_loss", "softcap=-1", "f32[2,3] f32[4,3] i32[2]", "softcap must not be negative"},
    {"assign", "", "f32[2] f32[2]", "operand 0 must be a state"},
    {"assign", "", "*f32[2] f32[3]", "x must have the state's shape"},
    {"assign", "", "*i32[2] f32[2]", "must both be floats"},
    {"assign", "", "*f32[2] f32[2] f32[]", "apply must be a u8 scalar"},
    {"accumulate", "", "*u8[2] u8[2]", "the same number type"},
    {"accumulate_many", "", "*f32[2] *u8[2] f32[2] u8[2]", "the same number type"},
    {"accumulate_many", "", "*f32[2] *f32[3] f32[3] f32[2]", "x must have the state's shape"},
    {"accumulate_many", "", "*f32[2] f32[2] f32[2] f32[2]", "operand 1 must be a state"},
    {"accumulate_many", "", "*f32[2] *f32[2] f32[2] f32[2] f32[]", "apply must be a u8 scalar"},
    {"adamw", "", "*f32[2] *f32[2] *f32[3] f32[2] f32[] i32[] f32[] u8[]", "of the same shape"},
    {"adamw", "", "*f32[2] *f32[2] *f32[2] f32[2] f32[] f32[] f32[] u8[]", "step i32"},
    {"adamw", "beta1=1", "*f32[2] *f32[2] *f32[2] f32[2] f32[] i32[] f32[] u8[]", "betas must"},
    {"adamw", "", "*f32[2] f32[2] *f32[2] f32[2] f32[] i32[] f32[] u8[]", "operand 1 must be"},
    {"adamw_many", "", "*f32[2] *f32[2] *f32[2] f32[2] f32[] i32[] f32[] u8[] u8[]",
     "then lr, step"},
    {"adamw_many", "",
     "*f32[2] *f32[3] *f32[2] *f32[3] *f32[2] *f32[3] f32[3] f32[2] f32[] i32[] f32[] u8[]",
     "of the same shape"},
    {"adamw_many", "",
     "*f32[2] *f32[3] *f32[2] *f32[3] *f32[2] *f32[3] f32[2] f32[3] f32[] f32[] f32[] u8[]",
     "step i32"},
    {"adamw_many", "",
     "*f32[2] *f32[3] *f32[2] *f32[3] *f32[2] f32[3] f32[2] f32[3] f32[] i32[] f32[] u8[]",
     "operand 5 must be a state"},
    {"sgd", "", "*f32[2] f32[3] f32[] f32[] u8[]", "floats of the same shape"},
    {"sgd", "momentum=0.9", "*f32[2] f32[2] f32[] f32[] u8[]", "needs a velocity"},
    {"sgd", "nesterov=1", "*f32[2] f32[2] f32[] f32[] u8[]", "nesterov needs momentum"},
    {"lion", "", "*f32[2] *f32[3] f32[2] f32[] f32[] u8[]", "floats of the same shape"},
    {"lion", "", "*f32[2] f32[2] f32[2] f32[] f32[] u8[]", "operand 1 must be"},
    {"lion", "", "*f32[2] *f32[2] f32[2] f32[] f32[] f32[]", "apply u8"},
    {"lion", "beta2=1", "*f32[2] *f32[2] f32[2] f32[] f32[] u8[]", "betas must"},
    {"kv_append", "", "*f32[3,4,2] f32[5,1,2] i32[2] i32[5] i32[1,2]", "the pool must be"},
    {"kv_append", "", "*f32[3,4,1,2] f32[5,1,3] i32[2] i32[5] i32[1,2]", "the same Hk and D"},
    {"kv_append", "", "*i32[3,4,1,2] f32[5,1,2] i32[2] i32[5] i32[1,2]", "or quantized"},
    {"kv_append", "", "*q8_0[3,4,1,32] q8_0[5,1,32] i32[2] i32[5] i32[1,2]", "x [N, Hk, D] of f32"},
    {"kv_append", "", "*f32[3,4,1,2] f32[5,1,2] i32[2] i32[5] i32[2,2]", "the table must be"},
};

/* Adds the sources that `text` names. Returns how many. */
static int operands(wf_graph *g, const char *text, wf_value **in)
{
    int n = 0, used;
    char type[8], dims[64], name[16];
    for (const char *s = text; *s; s += used) {
        bool state = *s == '*';
        s += state;
        dims[0] = used = 0;
        if (sscanf(s, "%7[^[][%63[0-9,]] %n", type, dims, &used) != 2)
            assert_int_equal(sscanf(s, "%7[^[][] %n", type, &used), 1);
        int64_t d[WF_MAX_RANK];
        int rank = 0;
        for (char *at = dims; *at; at += *at == ',')
            d[rank++] = strtoll(at, &at, 10);
        snprintf(name, sizeof name, "v%d", n);
        in[n] = (state ? wf_state : wf_input)(g, name, wf_type_from_name(type), rank, d);
        assert_non_null(in[n++]);
    }
    return n;
}

/* Expects the call to fail with a message that begins with the op and contains the rule, without
 * adding a node. */
static void check_bad_call(wf_ctx *ctx, const bad_call *call)
{
    wf_value *in[16];
    wf_graph *g = graph(ctx);
    int n = operands(g, call->operands, in), nodes = g->node_count;
    wf_ctx_clear(ctx);
    assert_null(wf_op_add(g, call->op, call->attrs, in, n));
    const char *text = wf_ctx_message(ctx);
    print_message("%s\n", text);
    size_t len = strlen(call->op);
    if (strncmp(text, call->op, len) != 0 || text[len] != '(' || !strchr(text, '['))
        fail_msg("%s with \"%s\": op and shapes are not in: %s", call->op, call->operands, text);
    wt_fails(ctx, wf_graph_status(g), WF_ERR_USAGE, call->rule);
    assert_int_equal(g->node_count, nodes);
    wf_graph_free(g);
}

/* Every op with operands must refuse some wrong call. */
static void test_wrong_calls_are_refused(void **state)
{
    bool seen[WF_OP_COUNT] = {false};
    for (size_t i = 0; i < sizeof bad_calls / sizeof *bad_calls; i++) {
        check_bad_call(*state, &bad_calls[i]);
        seen[wf_op_find(bad_calls[i].op)] = true;
    }
    for (int i = 0; i < WF_OP_COUNT; i++) {
        const wf_op_def *def = wf_op_get((wf_op)i);
        if (def->flags & WF_FLAG_ELEMENTWISE && def->max_in == 1) {
            check_bad_call(*state, &(bad_call){def->name, "", "i32[2]", "f32, f16 or bf16"});
        } else if (def->flags & WF_FLAG_ELEMENTWISE) {
            check_bad_call(*state, &(bad_call){def->name, "", "f32[2] f16[2]", "the same type"});
            check_bad_call(*state, &(bad_call){def->name, "", "f32[3,2] f32[2,2]", "equal or 1"});
            check_bad_call(*state, &(bad_call){def->name, "", "u8[2] u8[2]", "operands must be"});
        } else if (def->max_in > 0 && !seen[i]) {
            fail_msg("%s has no wrong call in the table", def->name);
        }
    }
}

/* Evaluates a wrong call in a new graph, and expects it to fail with this message. */
#define REFUSED(part, ...)                                            \
    do {                                                              \
        wf_graph *g = graph(ctx);                                     \
        wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){2, 3}); \
        wf_ctx_clear(ctx);                                            \
        assert_null(__VA_ARGS__);                                     \
        (void)x;                                                      \
        wt_fails(ctx, wf_graph_status(g), WF_ERR_USAGE, part);        \
        wf_graph_free(g);                                             \
    } while (0)

#define D(...) ((int64_t[]){__VA_ARGS__})

/* Inputs, states and constants with invalid names, types or shapes are refused. */
static void test_sources_are_checked(void **state)
{
    wf_ctx *ctx = *state;
    REFUSED("the name is missing or empty", wf_input(g, NULL, WF_F32, 0, NULL));
    REFUSED("the name is missing or empty", wf_state(g, "", WF_F32, 0, NULL));
    REFUSED("already has an input 'x'", wf_input(g, "x", WF_I32, 0, NULL));
    REFUSED("already has a state 's'",
            (wf_state(g, "s", WF_F32, 0, NULL), wf_state(g, "s", WF_F32, 0, NULL)));
    REFUSED("the type is unknown", wf_input(g, "y", WF_TYPE_NONE, 0, NULL));
    REFUSED("the type is unknown", wf_state(g, "y", (wf_type)77, 0, NULL));
    REFUSED("the type is unknown", wf_state(g, "y", (wf_type)-1, 0, NULL));
    REFUSED("rank 7 is not within 0 .. 6", wf_input(g, "y", WF_F32, 7, D(1, 1, 1, 1, 1, 1, 1)));
    REFUSED("rank -1 is not within 0 .. 6", wf_fill(g, WF_F32, -1, NULL, 0));
    REFUSED("axis 1 has the negative length -2", wf_input(g, "y", WF_F32, 2, D(3, -2)));
    REFUSED("too large", wf_input(g, "y", WF_F32, 2, D(BIG, BIG)));
    REFUSED("too large", wf_state(g, "y", WF_F32, 3, D(BIG, 0, BIG)));
    REFUSED("a multiple of 256", wf_state(g, "y", WF_Q4_K, 2, D(2, 255)));
    REFUSED("the type must be a plain type", wf_fill(g, WF_Q8_0, 1, D(32), 0));
    REFUSED("axis 1 is out of range", wf_iota(g, 1, D(4), 1));
    REFUSED("at most 2^31 - 1 elements", wf_iota(g, 1, D(BIG), 0));
    REFUSED("operand 0 is missing", wf_uniform(g, NULL, 1, D(4)));

    REFUSED("state 'y': the value to take type and shape from is missing",
            wf_state_like(g, "y", NULL));

    /* a state and an input may share a name */
    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_BF16, 2, D(2, 3));
    wf_value *like = wf_state_like(g, "x", x);
    assert_true(wf_value_type(like) == WF_BF16 && wf_dims_equal(&like->shape, &x->shape));
    wt_ok(ctx, wf_graph_verify(g));
    wf_graph_free(g);
}

/* Unknown ops and missing or too many operands are refused. */
static void test_builders_are_checked(void **state)
{
    wf_ctx *ctx = *state;
    REFUSED("unknown op 'mathmul'; did you mean 'matmul'?", wf_op_add(g, "mathmul", "", &x, 1));
    REFUSED("unknown op 'zzzzzzzzzzz'", wf_op_add(g, "zzzzzzzzzzz", "", &x, 1));
    REFUSED("unknown op ''", wf_op_add(g, NULL, "", &x, 1));
    REFUSED("did you mean 'tanh'?", wf_unary(g, "tahn", x));
    REFUSED("input needs a name", wf_op_add(g, "input", "type=f32", NULL, 0));
    REFUSED("add is not an elementwise op with 1 operand", wf_unary(g, "add", x));
    REFUSED("scale is not an elementwise op with 2 operands", wf_binary(g, "scale", x, x));
    REFUSED("softmax is not a reduction", wf_reduce(g, "softmax", x, 1, false));
    REFUSED("operand 1 is missing", wf_binary(g, "add", x, NULL));
    REFUSED("operand 0 is missing", wf_concat(g, NULL, 2, 0));
    REFUSED("each axis of x once", wf_permute(g, x, NULL));
    REFUSED("exp has no output 1", wf_value_output(wf_exp(g, x), 1));
    REFUSED("exp has no output -1", wf_value_output(wf_exp(g, x), -1));
    REFUSED("takes 1 to 4096 operands, not 0", wf_concat(g, &x, 0, 0));
    REFUSED("takes 1 to 4096 operands, not -3", wf_global_norm(g, &x, -3));
    REFUSED("too large", wf_broadcast(g, x, 4, D(BIG, BIG, 2, 3)));
    REFUSED("rank 7", wf_broadcast(g, x, 7, D(1, 1, 1, 1, 1, 2, 3)));
    REFUSED("too large", wf_matmul(g, wf_input(g, "a", WF_F32, 2, D(BIG, 1)),
                                   wf_input(g, "b", WF_F32, 2, D(1, BIG)), false, false));
    REFUSED("axis 0 has the negative length -5", wf_fill(g, WF_F32, 1, D(-5), 0));

    /* sixteen times this size overflows 64 bits */
    wf_graph *g = graph(ctx);
    wf_value *long_axis = wf_input(g, "a", WF_U8, 1, D(((int64_t)1 << 59) - 1)), *many[40];
    for (int i = 0; i < 40; i++)
        many[i] = long_axis;
    assert_null(wf_concat(g, many, 40, 0));
    wt_fails(ctx, wf_graph_status(g), WF_ERR_USAGE, "concat(u8[");
    wf_graph_free(g);
}

/* One axis may be -1; element counts must match. */
static void test_reshape(void **state)
{
    wf_ctx *ctx = *state;
    REFUSED("reshape(f32[2,3]", wf_reshape(g, x, 2, D(-1, -1)));
    REFUSED("as many elements as x: 6, not 4", wf_reshape(g, x, 2, D(4, -1)));
    REFUSED("as many elements as x: 6, not 0", wf_reshape(g, x, 2, D(0, -1)));
    REFUSED("axis 0 has the negative length -2", wf_reshape(g, x, 2, D(-2, -3)));
    REFUSED("rank 7 is not within 0 .. 6", wf_reshape(g, x, 7, D(1, 1, 1, 1, 1, 2, 3)));
    REFUSED("too large", wf_reshape(g, x, 2, D(BIG, BIG)));

    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 3)), *y = wf_reshape(g, x, 3, D(1, -1, 2));
    assert_int_equal(wf_value_dim(y, 1), 3);
    assert_int_equal(wf_value_rank(y), 3);
    /* a reshape that does nothing adds no node */
    assert_ptr_equal(wf_reshape(g, x, 2, D(2, -1)), x);
    y = wf_reshape(g, wf_input(g, "none", WF_F32, 2, D(0, 3)), 2, D(-1, 3));
    assert_int_equal(wf_value_dim(y, 0), 0);
    assert_int_equal(wf_value_count(y), 0);
    y = wf_reshape(g, wf_input(g, "huge", WF_F32, 2, D(BIG, 6)), 2, D(-1, 2 * BIG));
    assert_int_equal(wf_value_dim(y, 0), 3);
    assert_int_equal(wf_value_dim(y, 7), 0);
    wt_ok(ctx, wf_graph_verify(g));
    wf_graph_free(g);
}

/* Values of another graph, which may have more nodes, are refused as operands, outputs, losses and
 * parameters. */
static void test_values_of_another_graph(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *other = graph(ctx);
    wf_value *source = wf_input(other, "x", WF_F32, 0, NULL), *made = source, *grad;
    for (int i = 0; i < 200; i++)
        made = wf_unary(other, "exp", made);
    REFUSED("belongs to another graph", wf_unary(g, "exp", source));
    REFUSED("belongs to another graph", wf_unary(g, "exp", made));
    REFUSED("another graph", wf_output(g, "y", made) ? NULL : x);
    REFUSED("another graph", wf_output(g, "y", source) ? NULL : x);
    REFUSED("another graph", wf_grad(g, made, &x, 1, &grad) ? NULL : x);
    REFUSED("another graph",
            wf_grad(g, wf_reduce(g, "sum", x, 3, false), &made, 1, &grad) ? NULL : x);
    assert_null(grad);
    wf_graph_free(other);
}

static void test_outputs(void **state)
{
    wf_ctx *ctx = *state;
    REFUSED("has no name", wf_output(g, "", x) ? NULL : x);
    REFUSED("has no name", wf_output(g, NULL, x) ? NULL : x);
    REFUSED("output 'y' has no value", wf_output(g, "y", NULL) ? NULL : x);
    REFUSED("already has an output 'y'", (wf_output(g, "y", x), wf_output(g, "y", x) ? NULL : x));
}

/* After a failed call every later call fails with the first message. */
static void test_the_first_error_stays(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = graph(ctx), *core;
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(4)), *grad;
    assert_null(wf_unary(g, "expp", x));
    char first[512];
    snprintf(first, sizeof first, "%s", wf_ctx_message(ctx));
    assert_null(wf_unary(g, "exp", x)); /* valid, but the graph has failed already */
    assert_null(wf_op_add(g, "nothing like it", "", &x, 1));
    assert_null(wf_op_add(g, "scale", "factor=zero", &x, 1));
    assert_null(wf_input(g, "x", WF_F32, 1, D(4)));
    assert_null(wf_linear(g, NULL, NULL, NULL));
    assert_int_equal(wf_output(g, "y", NULL), WF_ERR_USAGE);
    assert_int_equal(wf_grad(g, NULL, &x, 1, &grad), WF_ERR_USAGE);
    wt_fails(ctx, wf_graph_verify(g), WF_ERR_USAGE, first);
    wf_ctx_clear(ctx);
    wt_fails(ctx, wf_output(g, "y", x), WF_ERR_USAGE, first);
    wf_ctx_clear(ctx);
    wt_fails(ctx, wf_grad(g, x, &x, 1, &grad), WF_ERR_USAGE, first);
    wf_ctx_clear(ctx);
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_USAGE, first);
    wf_ctx_clear(ctx);
    wt_fails(ctx, wf_pass_expand(g, NULL, NULL, &core), WF_ERR_USAGE, first);
    assert_null(r.exec);
    assert_null(core);
    wf_graph_free(g);
    wt_close(&r);
}

/* ---- Attributes as text ---- */

#define MAX_ATTR 256

/* Sets a different value for every (field, round), including extremes. */
static void set_field(const wf_attr_field *f, void *attr, int round)
{
    static const int64_t ints[] = {0, 1, -1, 42, INT64_MAX, INT64_MIN};
    static const double reals[] = {0, -INFINITY, -0.1, 1e-300, 1.7976931348623157e308, 1.0 / 3};
    void *to = (char *)attr + f->offset;
    switch (f->kind) {
    case WF_ATTR_INT:
    case WF_ATTR_STREAM: *(int64_t *)to = ints[round % 6]; break;
    case WF_ATTR_REAL: *(double *)to = reals[round % 6]; break;
    case WF_ATTR_TYPE: *(wf_type *)to = (wf_type)(1 + round % (WF_TYPE_COUNT - 1)); break;
    case WF_ATTR_DIMS:
    case WF_ATTR_SHAPE:
        *(wf_dims *)to = (wf_dims){.n = round % (WF_MAX_RANK + 1)};
        for (int i = 0; i < round % (WF_MAX_RANK + 1); i++)
            ((wf_dims *)to)->d[i] = ints[(round + i) % 6];
        break;
    }
}

/* Attributes of every op survive printing and parsing bit for bit. */
static void test_attributes_survive_text(void **state)
{
    wf_ctx *ctx = *state;
    int sets = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        const wf_op_def *def = wf_op_get((wf_op)op);
        for (int round = 0; round < 42 && def->attr_bytes > 0; round++, sets++) {
            _Alignas(16) char a[MAX_ATTR] = {0}, b[MAX_ATTR] = {0};
            char text[1024];
            size_t len = 0;
            for (const wf_attr_field *f = def->fields; f->name; f++)
                set_field(f, a, round + (int)(f - def->fields));
            wf_attr_print(def, a, text, sizeof text, &len);
            wt_ok(ctx, wf_attr_parse(ctx, def, text, b));
            if (memcmp(a, b, def->attr_bytes) != 0)
                fail_msg("%s: \"%s\" is read back as something else", def->name, text);
        }
    }
    assert_true(sets > 42 * 20);

    char text[64];
    size_t len = 0;
    wf_attr_print(wf_op_get(WF_OP_scale), &(wf_attr_scale){0.1}, text, sizeof text, &len);
    assert_string_equal(text, "factor=0.1"); /* readable, not only exact */

    /* attributes not given by name get the builder's defaults */
    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 3)), *id = wf_fill(g, WF_I32, 1, D(2), 0);
    const wf_node *a = wf_op_add(g, "cross_entropy", NULL, (wf_value *[]){x, id}, 2)->node;
    const wf_node *b = wf_cross_entropy(g, x, id, NULL)->node;
    assert_memory_equal(a->attr, b->attr, sizeof(wf_attr_cross_entropy));
    a = wf_op_add(g, "rms_norm", "", &x, 1)->node;
    assert_true(((const wf_attr_norm *)a->attr)->eps == 1e-5);
    wf_graph_free(g);
}

static void test_attribute_garbage_is_refused(void **state)
{
    static const struct {
        const char *op, *text, *part;
    } bad[] = {
        {"slice", "axle=1", "slice has no attribute 'axle'"},
        {"add", "axis=1", "add has no attribute 'axis'"},
        {"slice", "=1", "slice has no attribute ''"},
        {"slice", "axis", "attribute axis must be followed by = and a value"},
        {"slice", "axis =1", "attribute axis must be followed by"},
        {"slice", "axis=", "invalid value of attribute axis in 'axis='"},
        {"slice", "axis=one", "invalid value of attribute"},
        {"slice", "axis=1x", "invalid value of attribute"},
        {"slice", "axis=1,begin=2", "invalid value of attribute"},
        {"slice", "axis=1.5", "invalid value of attribute"},
        {"slice", "begin=9223372036854775808", "attribute begin"},
        {"slice", "begin=-99999999999999999999999", "attribute begin"},
        {"scale", "factor=1e999", "attribute factor"},
        {"scale", "factor=nana", "attribute factor"},
        {"scale", "factor=", "attribute factor"},
        {"cast", "type=f33", "attribute type"},
        {"cast", "type=none", "attribute type"},
        {"cast", "type=", "attribute type"},
        {"cast", "type=ffffffffffffffffffffffffffffffffffff", "attribute type"},
        {"reshape", "dims=", "attribute dims"},
        {"reshape", "dims=4", "attribute dims"},
        {"reshape", "dims=[", "attribute dims"},
        {"reshape", "dims=[1", "attribute dims"},
        {"reshape", "dims=[1,", "attribute dims"},
        {"reshape", "dims=[1,,2]", "attribute dims"},
        {"reshape", "dims=[,1]", "attribute dims"},
        {"reshape", "dims=[1 2]", "attribute dims"},
        {"reshape", "dims=[1,2]]", "attribute dims"},
        {"reshape", "dims=[1,2,3,4,5,6,7]", "attribute dims"},
        {"reshape", "dims=[99999999999999999999]", "attribute dims"},
    };
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        _Alignas(16) char attr[MAX_ATTR] = {0};
        const wf_op_def *def = wf_op_get((wf_op)wf_op_find(bad[i].op));
        /* in its own block, so that a sanitizer detects reading past the end */
        char *text = strdup(bad[i].text);
        wt_fails(ctx, wf_attr_parse(ctx, def, text, attr), WF_ERR_USAGE, bad[i].part);
        free(text);
    }
    _Alignas(16) char attr[MAX_ATTR] = {0};
    const wf_op_def *slice = wf_op_get(WF_OP_slice);
    wt_ok(ctx, wf_attr_parse(ctx, slice, NULL, attr));
    wt_ok(ctx, wf_attr_parse(ctx, slice, "   ", attr));
    wt_ok(ctx, wf_attr_parse(ctx, slice, "  end=3   axis=1 ", attr));
    assert_memory_equal(attr, (&(wf_attr_slice){.axis = 1, .end = 3}), sizeof(wf_attr_slice));
}

#define ATTR(set, value) (*(const wf_attr_##set *)(value)->node->attr)

/* Options reach the node. 0 means the default; another value stands for 0. */
static void test_options(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx);
    wf_value *q = wf_input(g, "q", WF_F32, 3, D(4, 2, 8)), *n = wf_iota(g, 1, D(4), 0), *v;
    wf_value *start = wf_iota(g, 1, D(2), 0);
    v = wf_attention(g, q, q, q, start, n, NULL);
    assert_true(ATTR(attention, v).causal == 1 && ATTR(attention, v).window == 0);
    assert_int_equal(ATTR(attention, v).length, 0);
    v = wf_attention(g, q, q, q, start, n, &(wf_attention_options){true, 0.5, 3, 7, 4});
    assert_true(ATTR(attention, v).causal == 0 && ATTR(attention, v).scale == 0.5);
    assert_true(ATTR(attention, v).window == 3 && ATTR(attention, v).softcap == 7);
    assert_int_equal(ATTR(attention, v).length, 4);

    wf_value *logits = wf_input(g, "logits", WF_F32, 2, D(4, 9));
    v = wf_cross_entropy(g, logits, n, &(wf_cross_entropy_options){0, 0.25, 0.5, 7});
    assert_true(ATTR(cross_entropy, v).ignore_index == -100);
    assert_true(ATTR(cross_entropy, v).label_smoothing == 0.25);
    assert_true(ATTR(cross_entropy, v).z_loss == 0.5 && ATTR(cross_entropy, v).softcap == 7);
    v = wf_cross_entropy(g, logits, n, &(wf_cross_entropy_options){.ignore_index = 5});
    assert_true(ATTR(cross_entropy, v).ignore_index == 5);
    v = wf_cross_entropy(g, logits, n, &(wf_cross_entropy_options){.ignore_index = WF_IGNORE_ZERO});
    assert_true(ATTR(cross_entropy, v).ignore_index == 0);

    wf_value *p = wf_state(g, "p", WF_F32, 0, NULL), *m = wf_state_like(g, "m", p);
    wf_value *one = wf_fill(g, WF_F32, 0, NULL, 1), *step = wf_fill(g, WF_I32, 0, NULL, 1);
    v = wf_adamw(g, p, m, wf_state_like(g, "v", p), one, one, step, NULL, NULL, NULL);
    assert_true(ATTR(adamw, v).beta1 == 0.9 && ATTR(adamw, v).beta2 == 0.999);
    assert_true(ATTR(adamw, v).eps == 1e-8 && ATTR(adamw, v).weight_decay == 0);
    v = wf_adamw(g, v, wf_value_output(v, 1), wf_value_output(v, 2), one, one, step, NULL, NULL,
                 &(wf_adamw_options){-1, 0.5, -1, 0.1});
    assert_true(ATTR(adamw, v).beta1 == 0 && ATTR(adamw, v).beta2 == 0.5);
    assert_true(ATTR(adamw, v).eps == 0 && ATTR(adamw, v).weight_decay == 0.1);
    v = wf_sgd(g, v, wf_value_output(v, 1), one, one, NULL, NULL,
               &(wf_sgd_options){0.9, 0.1, true});
    assert_true(ATTR(sgd, v).momentum == 0.9 && ATTR(sgd, v).weight_decay == 0.1);
    assert_true(ATTR(sgd, v).nesterov == 1);
    v = wf_sgd(g, v, NULL, one, one, NULL, NULL, NULL);
    assert_true(ATTR(sgd, v).momentum == 0 && ATTR(sgd, v).nesterov == 0);
    v = wf_lion(g, v, wf_state_like(g, "lion", p), one, one, NULL, NULL, NULL);
    assert_true(ATTR(lion, v).beta1 == 0.9 && ATTR(lion, v).beta2 == 0.99);
    v = wf_lion(g, v, wf_value_output(v, 1), one, one, NULL, NULL,
                &(wf_lion_options){-1, 0.5, 0.1});
    assert_true(ATTR(lion, v).beta1 == 0 && ATTR(lion, v).beta2 == 0.5);
    assert_true(ATTR(lion, v).weight_decay == 0.1);
    wt_ok(ctx, wf_graph_verify(g));
    wf_graph_free(g);
}

/* Random nodes added by name get their own streams, as with the builder functions. */
static void test_streams_are_counted(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx);
    wf_value *in[] = {wf_input(g, "x", WF_F32, 1, D(4)), wf_input(g, "key", WF_I32, 1, D(3))};
    wf_value *a = wf_dropout(g, in[0], in[1], 0.5);
    wf_value *b = wf_op_add(g, "dropout", "p=0.5", in, 2);
    wf_value *c = wf_op_add(g, "uniform", "dims=[4]", &in[1], 1);
    wf_value *d = wf_uniform(g, in[1], 1, D(4));
    wf_value *e = wf_op_add(g, "dropout", "p=0.5 stream=1", in, 2); /* shares a stream on purpose */
    assert_int_equal(ATTR(dropout, a).stream, 0);
    assert_int_equal(ATTR(dropout, b).stream, 1);
    assert_int_equal(ATTR(uniform, c).stream, 2);
    assert_int_equal(ATTR(uniform, d).stream, 3);
    assert_int_equal(ATTR(dropout, e).stream, 1);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_wrong_calls_are_refused),
        wt_test(test_sources_are_checked),
        wt_test(test_builders_are_checked),
        wt_test(test_reshape),
        wt_test(test_values_of_another_graph),
        wt_test(test_outputs),
        wt_test(test_the_first_error_stays),
        wt_test(test_attributes_survive_text),
        wt_test(test_attribute_garbage_is_refused),
        wt_test(test_streams_are_counted),
        wt_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
