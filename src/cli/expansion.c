/* SPDX-License-Identifier: MIT */
/* expansion.c - see expansion.h. */
#include "cli/expansion.h"

#include <string.h>

#include "device/expand.h"
#include "selftest/case.h"

#define ROWS_OF_ONE_OP 8 /* the most rows that an op has in the selftest */

static wf_status expand_all(wf_device *device)
{
    for (int op = 0; op < WF_OP_COUNT; op++)
        if (!wf_op_is_core((wf_op)op))
            WF_TRY(wf_device_force_expansion(device, (wf_op)op));
    return WF_OK;
}

wf_status wf_expand_ops(wf_ctx *ctx, wf_device *device, const char *list)
{
    if (list && strcmp(list, "all") == 0)
        return expand_all(device);
    for (bool more = list != NULL; more;) {
        char word[WF_TEXT_WORD + 1];
        size_t length = strcspn(list, ","), len = 0;
        wf_op op;
        wf_text_append(word, sizeof word, &len, "%.*s", (int)(length < 60 ? length : 60), list);
        WF_TRY(wf_find_op(ctx, word, &op));
        WF_TRY(wf_device_force_expansion(device, op));
        more = list[length] == ',';
        list += length + more;
    }
    return WF_OK;
}

/* ---- What an expansion costs ---- */

/* Makes every output of the node an output of the graph, so that the expansion keeps it. */
static wf_status expand_case(const wf_device *device, wf_case *c, wf_expansion *out)
{
    wf_expansion counts[WF_OP_COUNT] = {0};
    wf_graph *expanded;
    for (int i = 0; i < c->node->nout; i++) {
        char name[16];
        size_t len = 0;
        wf_text_append(name, sizeof name, &len, "y%d", i);
        if (!c->node->out[i].state)
            WF_TRY(wf_output(c->g, name, &c->node->out[i]));
    }
    WF_TRY(device ? wf_device_expand(device, c->g, counts, &expanded)
                  : wf_pass_expand_counted(c->g, NULL, NULL, counts, &expanded));
    wf_graph_free(expanded);
    *out = counts[c->node->op];
    return WF_OK;
}

wf_status wf_expansion_example(wf_ctx *ctx, const wf_device *device, wf_op op, wf_expansion *out,
                               char *call, size_t cap)
{
    wf_case_row rows[ROWS_OF_ONE_OP];
    wf_case *c;
    size_t len = 0;
    *out = (wf_expansion){0};
    *call = '\0';
    if (wf_case_rows(op, rows, ROWS_OF_ONE_OP) == 0)
        return WF_OK;
    /* Prefer f32; otherwise the first type that the row allows. */
    wf_type type = WF_F32;
    /* A row has at least one type, so the loop finds one. */
    for (int t = 0; t < WF_TYPE_COUNT && !(rows[0].types & wf_type_bit(type)); t++)
        type = (wf_type)t;
    WF_TRY(wf_case_new(ctx, &rows[0], 0, type, 0, 0, &c));
    wf_status status = wf_case_status(c);
    if (status == WF_OK) {
        const wf_node *n = c->node;
        wf_call_print(wf_node_def(n), n->in, n->nin, n->attr, call, cap, &len);
        status = expand_case(device, c, out);
    }
    wf_case_free(c);
    return status;
}

static uint64_t bytes_of(const wf_cost *c)
{
    return c->bytes_read + c->bytes_written;
}

static double times(uint64_t after, uint64_t before)
{
    return before > 0 ? (double)after / (double)before : 0;
}

const char *wf_expansion_text(const wf_expansion *e, char *buf, size_t cap)
{
    size_t len = 0;
    wf_text_append(buf, cap, &len, "%d launch%s instead of %d", e->launches,
                   e->launches == 1 ? "" : "es", e->nodes);
    if (e->before.flops > 0)
        wf_text_append(buf, cap, &len, ", %.2fx FLOP", times(e->after.flops, e->before.flops));
    if (bytes_of(&e->before) > 0)
        wf_text_append(buf, cap, &len, ", %.2fx bytes",
                       times(bytes_of(&e->after), bytes_of(&e->before)));
    return buf;
}

static void put_int(wf_json *j, const char *key, uint64_t value)
{
    wf_json_put_int(j, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

void wf_expansion_json(wf_json *j, wf_op op, const wf_expansion *e)
{
    wf_json_object_begin(j);
    wf_json_put_text(j, "op", wf_op_get(op)->name);
    put_int(j, "nodes", (uint64_t)e->nodes);
    put_int(j, "launches", (uint64_t)e->launches);
    put_int(j, "flops_before", e->before.flops);
    put_int(j, "flops", e->after.flops);
    put_int(j, "bytes_before", bytes_of(&e->before));
    put_int(j, "bytes", bytes_of(&e->after));
    wf_json_object_end(j);
}
