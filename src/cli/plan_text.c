/* SPDX-License-Identifier: MIT */
/* plan_text.c - prints a plan as text and JSON. */
#include "cli/expansion.h"
#include "cli/plan.h"

#include <string.h>

const wf_use_info wf_use_infos[WF_USE_COUNT] = {
    [WF_USE_FORWARD] = {"forward", "#4e79a7"},
    [WF_USE_BACKWARD] = {"backward", "#b07aa1"},
    [WF_USE_WORKSPACE] = {"workspace", "#bab0ac"},
};

/* A block without a value is workspace of a kernel. */
wf_use_kind wf_plan_use(const wf_plan *plan, int block)
{
    const wf_value *v = plan->block_info[block].value;
    return !v ? WF_USE_WORKSPACE : v->node->backward ? WF_USE_BACKWARD : WF_USE_FORWARD;
}

const char *wf_plan_bytes(uint64_t bytes, char *buf, size_t cap)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double x = (double)bytes;
    int u = 0;
    for (; x >= 1000 && u < 5; u++)
        x /= 1000;
    snprintf(buf, cap, u ? "%.2f %s" : "%.0f %s", x, units[u]);
    return buf;
}

static const char *count_text(double x, char *buf, size_t cap)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    int u = 0;
    for (; x >= 1000 && u < 5; u++)
        x /= 1000;
    snprintf(buf, cap, u ? "%.2f %s" : "%.0f %s", x, units[u]);
    return buf;
}

void wf_plan_line(const char *what, uint64_t bytes, const char *remark)
{
    char buf[32];
    printf("  %-14s %15llu  %10s  %s\n", what, (unsigned long long)bytes,
           wf_plan_bytes(bytes, buf, sizeof buf), remark);
}

/* ---- Types without fast kernels ---- */

void wf_plan_note_generic(wf_type_set types)
{
    for (int t = 0; t < WF_TYPE_COUNT; t++)
        if (types & wf_type_bit((wf_type)t))
            printf("note: %s has no dedicated kernel; a slower generic kernel decodes it\n",
                   wf_type_name((wf_type)t));
}

void wf_plan_put_generic(wf_json *j, wf_type_set types)
{
    wf_json_key(j, "generic_types");
    wf_json_array_begin(j);
    for (int t = 0; t < WF_TYPE_COUNT; t++)
        if (types & wf_type_bit((wf_type)t))
            wf_json_string(j, wf_type_name((wf_type)t));
    wf_json_array_end(j);
}

/* Returns the generic types that the steps of a plan read. */
static wf_type_set generic_inputs(const wf_plan *plan)
{
    wf_type_set types = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const wf_node *n = plan->steps[i].node;
        for (int k = 0; k < n->nin; k++)
            if (n->in[k] && wf_type_get(n->in[k]->type)->generic)
                types |= wf_type_bit(n->in[k]->type);
    }
    return types;
}

/* ---- The table ---- */

static void print_memory(const wf_plan_view *v)
{
    const wf_memory *m = &v->plan->memory;
    char remark[128], buf[32];
    puts("memory, in bytes:");
    snprintf(remark, sizeof remark, "a run changes %s", wf_plan_bytes(v->written, buf, sizeof buf));
    wf_plan_line("states", m->states, remark);
    wf_plan_line("ports", m->ports, "inputs and outputs");
    double above = m->lower_bound ? 100 * ((double)m->activations / (double)m->lower_bound - 1) : 0;
    if (!v->device->kernels)
        snprintf(remark, sizeof remark, "temporary memory of the compiled program");
    else if (m->activations == m->lower_bound)
        snprintf(remark, sizeof remark, "with workspace; equal to the lower bound");
    else
        snprintf(remark, sizeof remark, "with workspace; %.2f%% above the lower bound", above);
    wf_plan_line("activations", m->activations, remark);
    wf_plan_line("total", m->states + m->ports + m->activations,
                 v->device->kernels ? "allocated by Weft" : "allocated by the plugin");
}

static void print_cost(const wf_plan_view *v)
{
    char flops[32], bytes[32];
    double moved = (double)v->cost.bytes_read + (double)v->cost.bytes_written;
    printf("\nper run: %sFLOP, %s read and written, %.1f FLOP/byte\n",
           count_text((double)v->cost.flops, flops, sizeof flops),
           wf_plan_bytes(v->cost.bytes_read + v->cost.bytes_written, bytes, sizeof bytes),
           moved > 0 ? (double)v->cost.flops / moved : 0);
}

void wf_plan_print(const wf_plan_view *v)
{
    printf("%s, on %s\n", WF_FOREIGN(v->title), v->device->target.name);
    if (v->device->kernels)
        printf("%d node%s before the passes, %d kernel%s to launch, planned in %.0f ms\n\n",
               v->nodes, WF_PLURAL(v->nodes), v->plan->step_count, WF_PLURAL(v->plan->step_count),
               1e3 * v->seconds);
    else
        printf("%d node%s, expanded to %d, compiled as one program in %.0f ms\n\n", v->nodes,
               WF_PLURAL(v->nodes), v->plan->graph->node_count, 1e3 * v->seconds);
    print_memory(v);
    print_cost(v);
}

/* ---- Explaining ---- */

/* Every pass reports "nodes before" first and "nodes after" last; both go on one line. */
static void print_passes(const wf_report *r)
{
    const char *pass = "";
    for (int i = 0; i < r->count; i++) {
        const wf_report_line *line = &r->line[i];
        if (line->count == 0 || strcmp(line->what, "nodes after") == 0)
            continue;
        const char *name = strcmp(line->pass, pass) == 0 ? "" : line->pass;
        printf("%s  %-10s ", *pass ? "" : "\npasses:\n", name);
        if (strcmp(line->what, "nodes before") == 0)
            printf("%lld node%s become%s %lld\n", (long long)line->count, WF_PLURAL(line->count),
                   line->count == 1 ? "s" : "",
                   (long long)wf_report_get(r, line->pass, "nodes after"));
        else
            printf("%-42s %15lld\n", line->what, (long long)line->count);
        pass = line->pass;
    }
}

#define SLICES 16 /* rows of the table of memory over time */

/* Prints the peak of each part of the run. */
static void print_time(const wf_plan_view *v)
{
    int steps = v->plan->step_count, slices = steps < SLICES ? steps : SLICES;
    if (steps == 0 || v->plan->memory.activations == 0)
        return;
    puts("\nmemory over time (peak of each part of the run), in MB:");
    printf("  %-15s", "steps");
    for (int k = 0; k < WF_USE_COUNT; k++)
        printf(" %12s", wf_use_infos[k].name);
    printf(" %12s\n", "all");
    /* 64-bit products, so that steps * slices cannot overflow. */
    for (int i = 0; i < slices; i++) {
        int begin = (int)((int64_t)steps * i / slices),
            end = (int)((int64_t)steps * (i + 1) / slices);
        int most = begin;
        uint64_t all[2] = {0, 0};
        for (int s = begin; s < end; s++, all[1] = 0) {
            for (int k = 0; k < WF_USE_COUNT; k++)
                all[1] += v->alive[s][k];
            if (all[1] > all[0]) {
                all[0] = all[1];
                most = s;
            }
        }
        printf("  %6d .. %-5d", begin, end - 1);
        for (int k = 0; k < WF_USE_COUNT; k++)
            printf(" %12.2f", (double)v->alive[most][k] / 1e6);
        printf(" %12.2f\n", (double)all[0] / 1e6);
    }
}

#define LARGEST 8 /* values listed at the peak */

/* Prints the largest values at the peak. */
static void print_busiest(const wf_plan_view *v)
{
    const wf_plan *plan = v->plan;
    int shown[LARGEST], count = 0;
    if (plan->step_count == 0 || plan->memory.activations == 0)
        return;
    /* Selection of the largest few: O(LARGEST * blocks), without sorting. */
    for (; count < LARGEST; count++) {
        int best = -1;
        for (int i = 0; i < plan->block_count; i++) {
            const wf_lifetime *b = &plan->blocks[i];
            bool there = b->begin <= v->busiest && v->busiest <= b->end && b->bytes > 0;
            for (int k = 0; k < count; k++)
                there &= shown[k] != i;
            if (there && (best < 0 || b->bytes > plan->blocks[best].bytes))
                best = i;
        }
        if (best < 0)
            break;
        shown[count] = best;
    }
    printf("\npeak at step %d of %d, %s; the largest values:\n", v->busiest, plan->step_count,
           wf_node_def(plan->steps[v->busiest].node)->name);
    for (int i = 0; i < count; i++) {
        char what[160] = "workspace", size[32];
        size_t len = 0;
        const wf_lifetime *b = &plan->blocks[shown[i]];
        const wf_value *value = plan->block_info[shown[i]].value;
        if (value) {
            wf_text_append(what, sizeof what, &len, "%s of %s, ",
                           wf_use_infos[wf_plan_use(plan, shown[i])].name,
                           wf_node_def(value->node)->name);
            wf_value_print(value, what, sizeof what, &len);
        }
        printf("  %10s  steps %d .. %d  %s\n", wf_plan_bytes(b->bytes, size, sizeof size), b->begin,
               b->end, WF_FOREIGN(what));
    }
}

#define MOST_OPS 12 /* ops listed by cost */

typedef struct {
    int nodes;
    wf_cost cost;
} op_cost;

static void print_ops(const wf_plan_view *v)
{
    op_cost ops[WF_OP_COUNT] = {0};
    int kinds = 0;
    for (int i = 0; i < v->plan->step_count; i++) {
        const wf_node *n = v->plan->steps[i].node;
        wf_cost c;
        wf_node_cost(n, &c);
        kinds += ops[n->op].nodes++ == 0;
        wf_cost_add(&ops[n->op].cost, &c);
    }
    if (kinds == 0)
        return;
    puts("\ncost by op, sorted by FLOPs:");
    printf("  %-22s %6s %12s %12s %12s\n", "op", "nodes", "GFLOP", "MB read", "MB written");
    for (int shown = 0; shown < MOST_OPS; shown++) {
        op_cost *best = NULL;
        for (int i = 0; i < WF_OP_COUNT; i++)
            if (ops[i].nodes > 0 && (!best || ops[i].cost.flops > best->cost.flops))
                best = &ops[i];
        if (!best)
            break;
        printf("  %-22s %6d %12.3f %12.2f %12.2f\n", wf_op_get((wf_op)(best - ops))->name,
               best->nodes, (double)best->cost.flops / 1e9, (double)best->cost.bytes_read / 1e6,
               (double)best->cost.bytes_written / 1e6);
        /* Not a candidate again. */
        best->nodes = 0;
    }
    if (kinds > MOST_OPS)
        printf("  and %d op%s with fewer\n", kinds - MOST_OPS, WF_PLURAL(kinds - MOST_OPS));
}

/* Ops that the device has no kernel for, and what their expansions cost. */
static void print_expansions(const wf_plan_view *v)
{
    bool any = false;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        const wf_expansion *e = &v->plan->expansions[op];
        char text[128];
        if (e->nodes == 0)
            continue;
        if (!any)
            printf("\nexpanded into ops that %s %s:\n", v->device->target.name,
                   v->device->kernels ? "has kernels for (cost before fold and fuse)"
                                      : "compiles (cost before its compiler fuses them)");
        any = true;
        printf("  %-22s %5d node%s %s\n", wf_op_get((wf_op)op)->name, e->nodes,
               e->nodes == 1 ? ": " : "s:", wf_expansion_text(e, text, sizeof text));
    }
}

void wf_plan_explain(const wf_plan_view *v)
{
    print_passes(v->report);
    print_expansions(v);
    print_time(v);
    print_busiest(v);
    print_ops(v);
    wf_plan_note_generic(generic_inputs(v->plan));
}

/* ---- JSON ---- */

/* Saturates at INT64_MAX. */
static void put_count(wf_json *j, const char *key, uint64_t value)
{
    wf_json_put_int(j, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void put_passes(wf_json *j, const wf_report *r)
{
    wf_json_key(j, "passes");
    wf_json_array_begin(j);
    for (int i = 0; i < r->count; i++) {
        wf_json_object_begin(j);
        wf_json_key(j, "pass");
        wf_json_string(j, r->line[i].pass);
        wf_json_key(j, "what");
        wf_json_string(j, r->line[i].what);
        wf_json_key(j, "count");
        wf_json_int(j, r->line[i].count);
        wf_json_object_end(j);
    }
    wf_json_array_end(j);
}

static void put_expansions(wf_json *j, const wf_plan *plan)
{
    wf_json_key(j, "expanded");
    wf_json_array_begin(j);
    for (int op = 0; op < WF_OP_COUNT; op++)
        if (plan->expansions[op].nodes > 0)
            wf_expansion_json(j, (wf_op)op, &plan->expansions[op]);
    wf_json_array_end(j);
}

void wf_plan_json(const wf_plan_view *v)
{
    const wf_memory *m = &v->plan->memory;
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    wf_json_key(&j, "plan");
    wf_json_object_begin(&j);
    wf_json_key(&j, "graph");
    wf_json_string(&j, v->title);
    wf_json_key(&j, "device");
    wf_json_string(&j, v->device->target.name);
    wf_version_json(&j);
    put_count(&j, "nodes", (uint64_t)v->nodes);
    put_count(&j, "launches", v->device->kernels ? (uint64_t)v->plan->step_count : 1);
    put_count(&j, "states", m->states);
    put_count(&j, "ports", m->ports);
    put_count(&j, "activations", m->activations);
    put_count(&j, "workspace", m->workspace);
    put_count(&j, "lower_bound", m->lower_bound);
    put_count(&j, "total", m->states + m->ports + m->activations);
    put_count(&j, "states_written", v->written);
    put_count(&j, "flops", v->cost.flops);
    put_count(&j, "bytes_read", v->cost.bytes_read);
    put_count(&j, "bytes_written", v->cost.bytes_written);
    wf_json_key(&j, "seconds");
    wf_json_double(&j, v->seconds);
    wf_plan_put_generic(&j, generic_inputs(v->plan));
    put_passes(&j, v->report);
    put_expansions(&j, v->plan);
    wf_json_object_end(&j);
    wf_json_object_end(&j);
    wf_json_end(&j);
}
