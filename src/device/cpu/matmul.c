/* SPDX-License-Identifier: MIT */
/*
 * matmul.c - matmul (batched, either operand transposed), linear, linear with an activation
 * (applied to each tile in the cache), and gradients. linear reads a weight as stored or packed, by
 * the same code and with the same bits.
 *
 * Each op only describes its GEMM; gemm.c runs it. *_sizes derives m, n and k from the node, so
 * that the planner (workspace) and the launch agree; *_product fills in operands. The vector
 * kernels share both.
 */
#include "device/cpu/matmul.h"
#include "device/cpu/activation.h"
#include "device/cpu/gemm.h"
#include "device/cpu/reduce.h"
#include "device/cpu/row.h"

/* NULL if no node reads the output. */
static const wf_view *output(const wf_launch *l, int i)
{
    return l->out[i].data ? &l->out[i] : NULL;
}

/* ---- matmul: a [..., M, K] or [..., K, M], b [..., K, N] or [..., N, K] -> [..., M, N] ---- */

wf_gemm wf_matmul_sizes(const wf_node *n)
{
    const wf_attr_matmul *attr = n->attr;
    const wf_dims *a = &n->in[0]->shape, *y = &n->out[0].shape;
    wf_gemm g = {.batch = 1, .m = y->d[y->n - 2], .n = y->d[y->n - 1]};
    g.k = a->d[attr->transpose_a ? a->n - 2 : a->n - 1];
    for (int i = 0; i < y->n - 2; i++)
        g.batch *= y->d[i];
    return g;
}

static size_t matmul_workspace(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_matmul_sizes(n);
    return wf_gemm_scratch(g.m, g.n, g.k, wf_device_threads(device));
}

wf_gemm wf_matmul_product(const wf_launch *l)
{
    const wf_attr_matmul *attr = l->attr;
    wf_gemm g = wf_matmul_sizes(l->node);
    /* rows: rows of the stored matrix, used to step between the matrices of a batch. */
    g.a = (wf_gemm_operand){&l->in[0], 0, attr->transpose_a ? g.k : g.m, attr->transpose_a};
    g.b = (wf_gemm_operand){&l->in[1], 0, attr->transpose_b ? g.n : g.k, !attr->transpose_b};
    g.y = output(l, 0);
    g.threads = l->threads;
    g.scratch = l->workspace;
    return g;
}

static wf_status launch_matmul(const wf_launch *l)
{
    wf_gemm g = wf_matmul_product(l);
    wf_gemm_run(&g);
    return WF_OK;
}

/* ---- linear: x [..., K], w [N, K], bias [N]? -> [..., N] ---- */

wf_gemm wf_linear_sizes(const wf_node *n)
{
    const wf_dims *w = &n->in[1]->shape;
    return (wf_gemm){.batch = 1, .m = wf_dims_rows(&n->in[0]->shape), .n = w->d[0], .k = w->d[1]};
}

static size_t linear_workspace(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_linear_sizes(n);
    return wf_gemm_scratch(g.m, g.n, g.k, wf_device_threads(device));
}

static size_t linear_workspace_packed(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_linear_sizes(n);
    return wf_gemm_scratch_packed(g.m, g.n, g.k, n->in[1]->type, wf_device_threads(device));
}

wf_gemm wf_linear_product(const wf_launch *l)
{
    wf_gemm g = wf_linear_sizes(l->node);
    g.a = (wf_gemm_operand){&l->in[0], 0, g.m, false};
    g.b = (wf_gemm_operand){&l->in[1], 0, g.n, false};
    g.bias = l->nin > 2 ? &l->in[2] : NULL;
    g.y = output(l, 0);
    g.pre = l->nout > 1 ? output(l, 1) : NULL; /* linear_act only: the operand of the activation */
    g.threads = l->threads;
    g.scratch = l->workspace;
    return g;
}

static wf_status launch_linear(const wf_launch *l)
{
    wf_gemm g = wf_linear_product(l);
    wf_gemm_run(&g);
    return WF_OK;
}

/* ---- linear_act: the same -> act(pre), pre ---- */

/* One loop per activation, generated from its expression in ops.def. */
#define ACTIVATE_ROW(act, name)                                    \
    static void name##_row(const float *in, float *out, int64_t n) \
    {                                                              \
        for (int64_t i = 0; i < n; i++)                            \
            out[i] = wf_apply_##name(in[i]);                       \
    }
WF_ACTIVATIONS(ACTIVATE_ROW)

#define ROW_OF_ACT(act, name) [WF_ACT_##act] = name##_row,
static wf_gemm_act *const activations[WF_ACT_COUNT] = {WF_ACTIVATIONS(ROW_OF_ACT)};

static wf_status launch_linear_act(const wf_launch *l)
{
    const wf_attr_linear_act *attr = l->attr;
    wf_gemm g = wf_linear_product(l);
    g.act = activations[attr->act];
    wf_gemm_run(&g);
    return WF_OK;
}

/* ---- matmul_act_grad: dy [M, N], w [N, K], pre [M, K] -> d [M, K], column sums f32 [K] ---- */

wf_gemm wf_matmul_act_grad_sizes(const wf_node *n)
{
    const wf_dims *w = &n->in[1]->shape;
    return (wf_gemm){.batch = 1, .m = n->in[0]->shape.d[0], .n = w->d[1], .k = w->d[0]};
}

static size_t matmul_act_grad_workspace(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_matmul_act_grad_sizes(n);
    size_t product = wf_gemm_scratch(g.m, g.n, g.k, wf_device_threads(device));
    size_t sum = wf_sum_rows_workspace(g.m, g.n);
    return product > sum ? product : sum; /* they run in sequence and share it */
}

wf_gemm wf_matmul_act_grad_product(const wf_launch *l)
{
    wf_gemm g = wf_matmul_act_grad_sizes(l->node);
    g.a = (wf_gemm_operand){&l->in[0], 0, g.m, false};
    g.b = (wf_gemm_operand){&l->in[1], 0, g.k, true};
    g.y = output(l, 0);
    g.at = &l->in[2];
    g.threads = l->threads;
    g.scratch = l->workspace;
    return g;
}

/* y *= gelu'(x) */
static void gelu_slope_row(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] *= wf_gelu_slope_f32(x[i]);
}

static wf_status launch_matmul_act_grad(const wf_launch *l)
{
    wf_gemm g = wf_matmul_act_grad_product(l);
    g.slope = gelu_slope_row;
    wf_gemm_run(&g);
    wf_sum_rows(l, &l->out[0], &l->out[1]); /* of the rounded result, in the launch's workspace */
    return WF_OK;
}

/* ---- linear_grad_weight: dy [M, N], x [M, K] -> dw f32 [N, K], db f32 [N] ---- */

wf_gemm wf_linear_grad_weight_sizes(const wf_node *n)
{
    const wf_dims *dy = &n->in[0]->shape, *x = &n->in[1]->shape;
    return (wf_gemm){.batch = 1, .m = dy->d[1], .n = x->d[1], .k = dy->d[0]};
}

static size_t linear_grad_weight_workspace(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_linear_grad_weight_sizes(n);
    size_t product = wf_gemm_scratch(g.m, g.n, g.k, wf_device_threads(device));
    size_t sum = wf_sum_rows_workspace(g.k, g.m);
    return product > sum ? product : sum; /* they run in sequence and share it */
}

wf_gemm wf_linear_grad_weight_product(const wf_launch *l)
{
    wf_gemm g = wf_linear_grad_weight_sizes(l->node);
    g.a = (wf_gemm_operand){&l->in[0], 0, g.k, true};
    g.b = (wf_gemm_operand){&l->in[1], 0, g.k, true};
    g.y = output(l, 0);
    g.threads = l->threads;
    g.scratch = l->workspace;
    return g;
}

static wf_status launch_linear_grad_weight(const wf_launch *l)
{
    wf_gemm g = wf_linear_grad_weight_product(l);
    wf_gemm_run(&g);
    wf_sum_rows(l, &l->in[0], &l->out[1]);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_, workspace_)                                                                     \
    {.op = WF_OP_##name_, .name = "reference", .types = WF_TYPES_FLOAT,                            \
     .weights = WF_TYPES_WEIGHT, .strided = true, .workspace = workspace_,                         \
     .launch = launch_##name_}
#define PACKED(name_)                                                                              \
    {.op = WF_OP_##name_, .name = "packed", .types = WF_TYPES_FLOAT, .weights = WF_TYPES_FLOAT,    \
     .strided = true, .packed = 1u << 1, .workspace = linear_workspace_packed,                     \
     .launch = launch_##name_}
#define GRAD(name_, weights_, ...)                                                                 \
    {.op = WF_OP_##name_, .name = "reference", .types = WF_TYPES_FLOAT, .weights = weights_,       \
     .strided = true, .workspace = name_##_workspace, .launch = launch_##name_, __VA_ARGS__}
const wf_kernel wf_cpu_matmul[] = {
    ROW(matmul, matmul_workspace),
    ROW(linear, linear_workspace),
    PACKED(linear),
    ROW(linear_act, linear_workspace),
    PACKED(linear_act),
    GRAD(matmul_act_grad, WF_TYPES_WEIGHT, .from_first = 1u << 1),
    GRAD(linear_grad_weight, WF_TYPES_FLOAT),
    {0},
};
