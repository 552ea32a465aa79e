/* SPDX-License-Identifier: MIT */
/*
 * fault.c - reports invalid input (indices, targets, pages, sequence starts) with the cpu device's
 * messages.
 *
 * An asynchronous kernel cannot fail. Every step that reads such input has a word of pinned host
 * memory, which its kernels write only on a fault. The next synchronous call reads the words,
 * without a transfer, and fails. Each kernel documents what it computes for an invalid element.
 */
#include "base/mem.h"
#include "device/cuda/device.h"
#include "device/executor.h"

/* ---- Decoding a word ---- */

typedef struct {
    int kind;
    long long place;
    int value;
} fault;

static fault read_word(uint64_t word)
{
    const uint64_t places = WF_CUDA_FAULT_PLACES - 1;
    return (fault){(int)(word >> WF_CUDA_FAULT_KIND_AT),
                   (long long)(word >> WF_CUDA_FAULT_PLACE_AT & places), (int)(uint32_t)word};
}

/* Prints the coordinates of element i in row-major order: "1,3". */
static void print_place(const wf_view *v, int64_t i, char *text, size_t bytes)
{
    int64_t place[WF_MAX_RANK];
    size_t len = 0;
    text[0] = 0;
    for (int a = v->rank - 1; a >= 0; a--) {
        place[a] = i % v->dim[a];
        i /= v->dim[a];
    }
    for (int a = 0; a < v->rank; a++)
        wf_text_append(text, bytes, &len, "%s%lld", a ? "," : "", (long long)place[a]);
}

static wf_status fail_index(const wf_launch *l, const char *op, fault f)
{
    char place[128];
    print_place(&l->in[1], f.place, place, sizeof place);
    return wf_fail(l->ctx, WF_ERR_DEVICE, "%s: index %d at [%s] of input 1 is not in [0, %lld)", op,
                   f.value, place, (long long)l->in[0].dim[0]);
}

static wf_status fail_target(const wf_launch *l, const char *op, fault f)
{
    const bool head = l->node->op == WF_OP_head_loss;
    const wf_view *logits = &l->in[l->node->op == WF_OP_cross_entropy_grad ? 1 : 0];
    return wf_fail(l->ctx, WF_ERR_DEVICE,
                   "%s: target %d of row %lld is not within the %lld classes", op, f.value, f.place,
                   (long long)(head ? l->in[1].dim[0] : wf_view_last(logits)));
}

static wf_status fail_start(const wf_launch *l, const char *op, fault f)
{
    const wf_view *rows = &l->in[l->node->op == WF_OP_attention ? 0 : 1];
    return wf_fail(l->ctx, WF_ERR_DEVICE,
                   "%s: seq_start[%lld] is %d; starts must not decrease or exceed %lld, the number "
                   "of rows",
                   op, f.place, f.value, (long long)rows->dim[0]);
}

static wf_status fail_pages(const wf_launch *l, const char *op, fault f)
{
    const wf_view *k = &l->in[1], *table = &l->in[5];
    if (f.kind == WF_CUDA_FAULT_INDEX)
        return wf_fail(l->ctx, WF_ERR_DEVICE,
                       "%s: lengths[%lld] is %d, but the table has room for %lld keys", op, f.place,
                       f.value, (long long)(table->dim[1] * k->dim[1]));
    return wf_fail(l->ctx, WF_ERR_DEVICE, "%s: table[%lld][%lld] is page %d, but the pool has %lld",
                   op, f.place / (long long)table->dim[1], f.place % (long long)table->dim[1],
                   f.value, (long long)k->dim[0]);
}

static wf_status fail_by(const wf_launch *l, fault f)
{
    const char *op = wf_op_get(l->node->op)->name;
    if (f.kind == WF_CUDA_FAULT_START)
        return fail_start(l, op, f);
    switch (l->node->op) {
    case WF_OP_embed:
    case WF_OP_gather_rows:
    case WF_OP_scatter_add_rows: return fail_index(l, op, f);
    case WF_OP_attention: return fail_pages(l, op, f);
    case WF_OP_kv_append:
        return wf_fail(l->ctx, WF_ERR_DEVICE, "%s: no page for row %lld, position %d", op, f.place,
                       f.value);
    case WF_OP_adamw:
    case WF_OP_adamw_many:
        return wf_fail(l->ctx, WF_ERR_DEVICE, "%s: step is %d; steps start at 1", op, f.value);
    default: return fail_target(l, op, f);
    }
}

/* ---- The words of a plan ---- */

static bool can_fail(wf_op op)
{
    switch (op) {
    case WF_OP_embed:
    case WF_OP_gather_rows:
    case WF_OP_scatter_add_rows:
    case WF_OP_cross_entropy:
    case WF_OP_cross_entropy_grad:
    case WF_OP_head_loss:
    case WF_OP_attention:
    case WF_OP_attention_grad:
    case WF_OP_kv_append:
    case WF_OP_adamw:
    case WF_OP_adamw_many: return true;
    default: return false;
    }
}

wf_status wf_cuda_faults_new(wf_plan_exec *e, wf_cuda_faults **out)
{
    wf_cuda_queue *q = (wf_cuda_queue *)e->head.session->queue;
    int count = 0;
    *out = NULL;
    for (int i = 0; i < e->plan->step_count; i++)
        count += can_fail(e->steps[i].launch.node->op);
    if (count == 0)
        return WF_OK;
    wf_cuda_faults *f = wf_arena_alloc(&e->arena, sizeof *f);
    const wf_launch **launches = wf_arena_alloc(&e->arena, (size_t)count * sizeof *launches);
    if (!f || !launches)
        return WF_ERR_MEMORY;
    *f = (wf_cuda_faults){.next = q->faults, .launches = launches};
    WF_TRY(wf_cuda_try(
        e->head.session->ctx,
        cudaHostAlloc((void **)&f->words, (size_t)count * sizeof *f->words, cudaHostAllocMapped),
        "pinning host memory"));
    for (int i = 0; i < e->plan->step_count; i++) {
        wf_launch *l = &e->steps[i].launch;
        if (!can_fail(l->node->op))
            continue;
        f->words[f->count] = WF_CUDA_NO_FAULT;
        f->launches[f->count] = l;
        l->fault = &f->words[f->count++]; /* host and device use the same address */
    }
    q->faults = *out = f;
    return WF_OK;
}

void wf_cuda_faults_free(wf_cuda_queue *q, wf_cuda_faults *f)
{
    if (!f)
        return;
    wf_cuda_faults **at = &q->faults;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    cudaFreeHost(f->words);
}

wf_status wf_cuda_faults_look(wf_cuda_queue *q)
{
    const wf_launch *first = NULL;
    uint64_t told = WF_CUDA_NO_FAULT;
    for (wf_cuda_faults *f = q->faults; f; f = f->next)
        for (int i = 0; i < f->count; i++) {
            const uint64_t word = ((volatile uint64_t *)f->words)[i];
            if (word == WF_CUDA_NO_FAULT)
                continue;
            f->words[i] = WF_CUDA_NO_FAULT; /* safe: no kernel is running */
            if (!first) {
                first = f->launches[i];
                told = word;
            }
        }
    return first ? fail_by(first, read_word(told)) : WF_OK;
}
