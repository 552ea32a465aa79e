/* SPDX-License-Identifier: MIT */
/*
 * kernel.c - chooses the kernel for a node, and computes addresses of view elements.
 *
 * Tables are searched linearly, and only while planning, never during a run.
 */
#include "device/kernel.h"

#include "device/device.h"

/* `packed` is wf_kernel_packed(n), computed once per node. It must match exactly: a row for dense
 * weights would read a packed state as if it were dense, and the other way round. `accepts` is
 * called last, as it may be expensive and relies on the types. */
static bool fits(const wf_kernel *k, const wf_device *device, const wf_node *n, uint32_t packed,
                 bool fast)
{
    return k->op == n->op && k->packed == packed && (k->types & wf_type_bit(wf_node_key_type(n))) &&
           (!k->weights || k->weights & wf_type_bit(n->in[1]->type)) &&
           (fast || !k->nondeterministic) && (!k->accepts || k->accepts(device, n));
}

uint32_t wf_kernel_packed(const wf_node *n)
{
    uint32_t set = 0;
    for (int i = 0; i < n->nin; i++)
        /* Direct reads only. A view of a packed state has no kernel: planning fails. */
        if (n->in[i]->node->op == WF_OP_state && n->in[i]->marks & WF_MARK_PACKED)
            set |= 1u << (i < 31 ? i : 31);
    return set;
}

const wf_kernel *wf_kernel_choose_from(const wf_kernel *const *table, const wf_device *device,
                                       const wf_node *n, bool fast)
{
    uint32_t packed = wf_kernel_packed(n);
    for (; *table; table++)
        for (const wf_kernel *k = *table; k->launch; k++)
            if (fits(k, device, n, packed, fast))
                return k;
    return NULL;
}

const wf_kernel *wf_kernel_choose(const wf_device *device, const wf_node *n)
{
    return wf_kernel_choose_from(device->kernels, device, n, device->fast);
}

size_t wf_kernel_workspace(const wf_kernel *k, const wf_device *device, const wf_node *n)
{
    return k && k->workspace ? k->workspace(device, n) : 0;
}

/* The union over all rows: another row may add conditions, so a set bit is no promise. */
wf_type_set wf_kernel_types(const wf_kernel *const *table, wf_op op)
{
    wf_type_set types = 0;
    for (; *table; table++)
        for (const wf_kernel *k = *table; k->launch; k++)
            if (k->op == op)
                types |= k->types;
    return types;
}

int64_t wf_view_count(const wf_view *v)
{
    return wf_view_rows(v) * wf_view_last(v);
}

int64_t wf_view_rows(const wf_view *v)
{
    int64_t rows = 1;
    for (int i = 0; i < v->rank - 1; i++)
        rows *= v->dim[i];
    return rows;
}

/* Peels off axes from the innermost: r is a mixed-radix number with the dims as digits. */
int64_t wf_view_row(const wf_view *v, int64_t r)
{
    if (v->dense)
        return r * wf_view_last(v);
    int64_t offset = 0;
    for (int i = v->rank - 2; i >= 0; i--) {
        offset += r % v->dim[i] * v->stride[i];
        r /= v->dim[i];
    }
    return offset;
}

void *wf_view_at(const wf_view *v, int64_t offset)
{
    const wf_type_info *info = wf_type_get(v->type);
    /* Offsets within a block do not occur: views of quantized types cut at block boundaries. */
    if (info->block > 1)
        offset /= info->block;
    return (char *)v->data + offset * info->block_bytes;
}

static bool is_float(wf_type type)
{
    return (wf_type_bit(type) & WF_TYPES_FLOAT) != 0;
}

bool wf_update_types_meet(const wf_device *device, const wf_node *n)
{
    (void)device; /* the signature of wf_kernel.accepts */
    /* Update ops take their states first, then one operand per state. */
    for (int i = 0; i < n->nout; i++) {
        wf_type state = n->in[i]->type, x = n->in[n->nout + i]->type;
        if (state != x && !(is_float(state) && is_float(x)))
            return false;
    }
    return true;
}
