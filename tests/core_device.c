/* SPDX-License-Identifier: MIT */
/* core_device.c - see core_device.h. */
#include "core_device.h"

#include <string.h>

#include "device/cpu/cpu.h"

#define MAX_ROWS 512

static wf_kernel rows[MAX_ROWS]; /* the last one ends the array */
static const wf_kernel *const table[] = {rows, NULL};

static const wf_kernel *const *reference_table(void)
{
    const wf_kernel *const *kernels = NULL;
    const wf_cpu_isa *isa;
    const char *name;
    for (int i = 0; (isa = wf_cpu_isa_at(i, &name)); i++)
        kernels = isa->kernels; /* the reference set is the last */
    return kernels;
}

/* Copies the rows of all core ops but `without`. */
static wf_status fill_table(wf_ctx *ctx, wf_op without)
{
    int count = 0;
    memset(rows, 0, sizeof rows);
    for (const wf_kernel *const *from = reference_table(); *from; from++)
        for (const wf_kernel *k = *from; k->launch; k++) {
            if (!wf_op_is_core(k->op) || k->op == without)
                continue;
            if (count == MAX_ROWS - 1)
                return wf_fail(ctx, WF_ERR_INTERNAL, "more than %d kernels of core ops", count);
            rows[count++] = *k;
        }
    return WF_OK;
}

wf_status wt_device_open(wf_ctx *ctx, const char *name, wf_device **out)
{
    int without = WF_OP_COUNT;
    if (strncmp(name, "core", 4) != 0)
        return wf_device_open(ctx, name, out);
    *out = NULL;
    if (name[4] == ':' && (without = wf_op_find(name + 5)) < 0)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown op '%s'", name + 5);
    WF_TRY(fill_table(ctx, (wf_op)without));
    WF_TRY(wf_device_open(ctx, "cpu", out));
    (*out)->kernels = table;
    (*out)->target.name = "core";
    (*out)->rounds_as = "core";
    return WF_OK;
}
