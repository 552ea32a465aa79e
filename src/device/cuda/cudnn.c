/* SPDX-License-Identifier: MIT */
/*
 * cudnn.c - attention by cuDNN. Its gradient is not bitwise reproducible, so it needs --fast, and
 * only GPUs where our kernels are slower use it (table.c).
 *
 * prepare, which knows the strides, asks cuDNN for a plan. Without one, our kernels run.
 */
#include <string.h>

#include "device/cuda/cudnn_graph.h"
#include "device/cuda/flash_launch.h"

/* Bytes of a plan's workspace, and the alignment of its parts. */
enum { WORKSPACE = 16 << 20, LINE = 256 };

/* The cases that the graphs of cudnn_graph.c describe: equal sequences, causal, no window or soft
 * cap, as many kv heads as q heads. length > 1 excludes decoding. */
static bool accepts(const wf_device *device, const wf_node *n)
{
    const int first = n->op == WF_OP_attention_grad ? 1 : 0;
    const wf_attr_attention *a = n->attr;
    if (n->op == WF_OP_attention && n->nin != 5)
        return false;
    const wf_dims *q = &n->in[first]->shape, *k = &n->in[first + 1]->shape,
                  *v = &n->in[first + 2]->shape;
    return wf_flash_accepts(device, n) && a->length > 1 && a->causal && a->window == 0 &&
           a->softcap == 0 && q->d[0] > 0 && q->d[1] == k->d[1] && q->d[2] == v->d[2] &&
           q->d[2] % 8 == 0 && q->d[2] <= 128 && wf_dnn_available(NULL);
}

/* Strides and sizes identify a plan; addresses do not. */
static wf_dnn_shape shape_of(const wf_launch *l, const wf_flash *f)
{
    wf_dnn_shape s;
    memset(&s, 0, sizeof s); /* clears padding, too: shapes are compared as bytes */
    s.type = f->type;
    s.gradient = l->node->op == WF_OP_attention_grad;
    s.length = (int32_t)((const wf_attr_attention *)l->attr)->length;
    s.batch = f->n / s.length;
    s.heads = f->heads;
    s.d = f->d;
    const wf_flash_operand *from[] = {&f->q, &f->k, &f->v, &f->o, &f->dout, &f->dq, &f->dk, &f->dv};
    int64_t *to[][2] = {{&s.q_row, &s.q_head},       {&s.k_row, &s.k_head},
                        {&s.v_row, &s.v_head},       {&s.o_row, &s.o_head},
                        {&s.dout_row, &s.dout_head}, {&s.dq_row, &s.dq_head},
                        {&s.dk_row, &s.dk_head},     {&s.dv_row, &s.dv_head}};
    for (int i = 0; i < (s.gradient ? 8 : 4); i++) {
        *to[i][0] = from[i]->row;
        *to[i][1] = from[i]->head;
    }
    return s;
}

/* Whether every output is read: a cuDNN graph cannot omit one. */
static bool complete(const wf_launch *l, const wf_flash *f)
{
    bool all = f->o.data && f->lse && f->lse_row == f->heads && wf_flash_aligned(f);
    return l->node->op == WF_OP_attention_grad ? all && f->dq.data && f->dk.data && f->dv.data
                                               : all;
}

/* Returns Weft's own kernel for a node that cuDNN has no plan for: the first deterministic row of
 * the device's table. */
static const wf_kernel *own(const wf_device *device, const wf_node *n)
{
    const wf_kernel *found = NULL;
    for (const wf_kernel *const *table = device->kernels; *table && !found; table++) {
        const wf_kernel *const one[] = {*table, NULL};
        if (*table != wf_cuda_cudnn_kernels)
            found = wf_kernel_choose_from(one, device, n, false);
    }
    return found;
}

/* Room for either: prepare may find no plan. */
static size_t workspace(const wf_device *device, const wf_node *n)
{
    const int first = n->op == WF_OP_attention_grad ? 1 : 0;
    const wf_dims *q = &n->in[first]->shape;
    const size_t ours = wf_kernel_workspace(own(device, n), device, n);
    const size_t sums = first ? (size_t)(q->d[0] * q->d[1] * (q->d[2] + 1)) * sizeof(float) : 0;
    const size_t theirs = sums + LINE + WORKSPACE;
    return ours > theirs ? ours : theirs;
}

static wf_status prepare(const wf_launch *l)
{
    wf_flash f = wf_flash_of(l);
    wf_dnn_shape shape = shape_of(l, &f);
    const char *why;
    if (complete(l, &f) && !wf_dnn_build(&shape, WORKSPACE, &why))
        wf_ctx_log(l->ctx, WF_LOG_WARN, "attention uses Weft's own kernels: %s", why);
    return WF_OK;
}

static wf_status launch(const wf_launch *l)
{
    wf_flash f = wf_flash_of(l);
    wf_dnn_shape shape = shape_of(l, &f);
    const wf_dnn_plan *plan = complete(l, &f) ? wf_dnn_find(&shape) : NULL;
    const char *why;
    if (!plan)
        return own(l->queue->device, l->node)->launch(l);
    if (!wf_dnn_run(plan, &f, l->workspace, wf_cuda_stream(l), &why))
        return wf_fail(l->ctx, WF_ERR_DEVICE, "attention on cuda: %s", why);
    return wf_cuda_launched(l);
}

#define NARROW (WF_TYPE_BIT(WF_BF16) | WF_TYPE_BIT(WF_F16))

const wf_kernel wf_cuda_cudnn_kernels[] = {
    {.op = WF_OP_attention_grad,
     .name = "cudnn",
     .types = NARROW,
     .strided = true,
     .strided_out = 7,
     .nondeterministic = true,
     .accepts = accepts,
     .workspace = workspace,
     .prepare = prepare,
     .launch = launch},
    {.op = WF_OP_attention,
     .name = "cudnn",
     .types = NARROW,
     .strided = true,
     .nondeterministic = true,
     .accepts = accepts,
     .workspace = workspace,
     .prepare = prepare,
     .launch = launch},
    {0},
};
