/* SPDX-License-Identifier: MIT */
/* op_case.c - see op_case.h. */
#include "bench/op_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/philox.h"
#include "bench/fill.h"
#include "bench/profile.h"
#include "graph/graph.h"

#define SEED 20
/* Limits of one case: operands, and copies of its states. */
#define MOST_OPERANDS 8
#define MOST_COPIES 64
#define DEVIATION 0.1 /* of the values: small enough that every op stays finite */

/* ---- Operands ---- */

typedef struct {
    bool state;
    wf_type type;
    wf_dims shape;
    char rule;    /* one of < % * =, or 0: normally distributed */
    double value; /* of the rule */
} operand;

/* Parses an operand of the table; asserts that it is valid. */
static operand parse_operand(const char **text)
{
    operand o = {0};
    char name[16], *end;
    const char *s = *text + strspn(*text, " ");
    o.state = *s == '=';
    s += o.state;
    size_t n = strcspn(s, "["), len = 0;
    wf_text_append(name, sizeof name, &len, "%.*s", (int)n, s);
    o.type = wf_type_from_name(name);
    wf_assert(o.type != WF_TYPE_NONE && s[n] == '[');
    for (s += n + 1; *s != ']'; s = end + (*end == ',')) {
        wf_assert(o.shape.n < WF_MAX_RANK);
        o.shape.d[o.shape.n++] = strtoll(s, &end, 10);
        wf_assert(end > s);
    }
    s++;
    if (*s && strchr("<%*=", *s)) {
        o.rule = *s;
        o.value = strtod(s + 1, &end);
        s = end;
    }
    *text = s;
    return o;
}

static int parse_operands(const wf_bench_case *c, operand o[MOST_OPERANDS])
{
    int n = 0;
    for (const char *s = c->operands; *s; n++) {
        wf_assert(n < MOST_OPERANDS);
        o[n] = parse_operand(&s);
    }
    return n;
}

static int32_t element(const operand *o, int64_t i, wf_rng *rng)
{
    switch (o->rule) {
    case '<': return (int32_t)wf_rng_below(rng, (uint64_t)o->value);
    case '%': return (int32_t)(i % (int64_t)o->value);
    case '*': return (int32_t)(i * (int64_t)o->value);
    default: return (int32_t)o->value;
    }
}

static wf_status fill(wf_ctx *ctx, const operand *o, void *to)
{
    const int64_t count = wf_dims_count(&o->shape);
    wf_rng rng;
    wf_rng_init(&rng, SEED, 0);
    if (!o->rule)
        return wf_bench_fill(ctx, o->type, DEVIATION, to, count);
    for (int64_t i = 0; i < count; i++) {
        float x = (float)o->value;
        if (o->type == WF_I32)
            ((int32_t *)to)[i] = element(o, i, &rng);
        else if (o->type == WF_U8)
            ((uint8_t *)to)[i] = (uint8_t)o->value;
        else
            WF_TRY(wf_type_from_f32(ctx, o->type, &x, (char *)to + wf_type_bytes(o->type, i), 1));
    }
    return WF_OK;
}

/* ---- A case being run ---- */

typedef struct {
    wf_device *device;
    const wf_bench_case *c;
    operand operand[MOST_OPERANDS];
    /* copies: of the op and its states in the graph. */
    int operands, copies;
    /* Owned, as the next three are; empty until created. */
    wf_graph *graph;
    wf_session *session;
    wf_exec *exec;
    wf_bench_profile profile;
} job;

/* Without fold and fuse: one op, one kernel. */
static const wf_compile_options plain = {.without = WF_PASS_FOLD | WF_PASS_FUSE};

static void name_operand(const job *j, int index, int copy, char name[32])
{
    snprintf(name, 32, j->operand[index].state ? "x%d.%d" : "x%d", index, copy);
}

/* Enough copies that their states together exceed `streamed` bytes and no cache can hold them. 1
 * without states. */
static void choose_copies(job *j, uint64_t streamed)
{
    uint64_t bytes = 0;
    for (int i = 0; i < j->operands; i++)
        if (j->operand[i].state)
            bytes += wf_type_bytes(j->operand[i].type, wf_dims_count(&j->operand[i].shape));
    uint64_t copies = bytes > 0 ? (streamed + bytes - 1) / bytes : 1;
    j->copies = copies < 1 ? 1 : copies > MOST_COPIES ? MOST_COPIES : (int)copies;
}

/* Adds one copy of the op. All outputs are read, so that all are computed. */
static wf_status add_copy(job *j, wf_value *shared[MOST_OPERANDS], int copy, wf_cost *cost)
{
    wf_value *in[MOST_OPERANDS], *y;
    char name[32];
    for (int i = 0; i < j->operands; i++) {
        const operand *o = &j->operand[i];
        name_operand(j, i, copy, name);
        if (o->state)
            in[i] = wf_state(j->graph, name, o->type, (int)o->shape.n, o->shape.d);
        else if (copy == 0)
            in[i] = shared[i] = wf_input(j->graph, name, o->type, (int)o->shape.n, o->shape.d);
        else
            in[i] = shared[i];
    }
    y = wf_op_add(j->graph, j->c->op, j->c->attrs, in, j->operands);
    if (!y)
        return wf_graph_status(j->graph);
    wf_node_cost(y->node, cost);
    if (wf_node_is(y->node, WF_FLAG_UPDATE))
        return WF_OK;
    for (int i = 0; i < y->node->nout; i++) {
        snprintf(name, sizeof name, "y%d.%d", i, copy);
        WF_TRY(wf_output(j->graph, name, wf_value_output(y, i)));
    }
    return WF_OK;
}

static wf_status build(job *j, wf_cost *cost)
{
    wf_value *shared[MOST_OPERANDS] = {0};
    WF_TRY(wf_graph_new(j->device->ctx, &j->graph));
    for (int copy = 0; copy < j->copies; copy++)
        WF_TRY(add_copy(j, shared, copy, cost));
    return wf_graph_status(j->graph);
}

static bool packs(wf_device *d, const operand *o)
{
    return o->state && d->ops->packed_bytes && d->ops->packed_bytes(d, o->type, &o->shape) > 0;
}

bool wf_bench_case_packs(wf_device *device, const wf_bench_case *c)
{
    operand o[MOST_OPERANDS];
    bool any = false;
    if (wf_op_get((wf_op)wf_op_find(c->op))->flags & WF_FLAG_UPDATE)
        return false; /* packed states are read-only */
    for (int n = parse_operands(c, o), i = 0; i < n; i++)
        any = any || packs(device, &o[i]);
    return any;
}

static wf_status pack(job *j)
{
    char name[32];
    for (int i = 0; i < j->operands; i++)
        for (int copy = 0; packs(j->device, &j->operand[i]) && copy < j->copies; copy++) {
            const operand *o = &j->operand[i];
            name_operand(j, i, copy, name);
            WF_TRY(wf_session_pack(j->session, name, o->type, (int)o->shape.n, o->shape.d));
        }
    return WF_OK;
}

/* Allows rounding for the states, which exist after the graph is compiled. */
static wf_status round_states(job *j)
{
    char name[32];
    WF_TRY(wf_compile_with(j->session, j->graph, &plain, &j->exec));
    wf_exec_free(j->exec);
    j->exec = NULL;
    for (int i = 0; i < j->operands; i++)
        for (int copy = 0; j->operand[i].state && copy < j->copies; copy++) {
            name_operand(j, i, copy, name);
            wf_session_round(j->session, name);
        }
    return WF_OK;
}

static wf_status write_operand(job *j, int index)
{
    const operand *o = &j->operand[index];
    const size_t bytes = wf_type_bytes(o->type, wf_dims_count(&o->shape));
    char name[32];
    void *data = wf_mem_new(j->device->ctx, bytes);
    wf_status status = data ? fill(j->device->ctx, o, data) : WF_ERR_MEMORY;
    for (int copy = 0; status == WF_OK && copy < (o->state ? j->copies : 1); copy++) {
        name_operand(j, index, copy, name);
        status = o->state ? wf_session_write(j->session, name, data, bytes)
                          : wf_exec_write(j->exec, name, data, bytes);
    }
    wf_mem_free(j->device->ctx, data);
    return status;
}

/* Stores the time of the kernels or, if the device does not report it, of the run. */
static wf_status time_run(job *j, double *seconds)
{
    uint64_t begin = wf_clock_ns();
    wf_bench_profile_start(&j->profile);
    WF_TRY(wf_exec_run(j->exec));
    WF_TRY(j->device->ops->queue_wait(j->session->queue));
    *seconds = (double)(wf_clock_ns() - begin) / 1e9;
    wf_bench_profile_end(&j->profile, 1);
    double sum = 0;
    for (int i = 0; i < j->profile.count; i++)
        sum += j->profile.op[i].seconds;
    *seconds = (sum > 0 ? sum : *seconds) / j->copies;
    return WF_OK;
}

static wf_status time_runs(job *j, const wf_bench_case_options *o, wf_bench_case_result *out)
{
    double seconds;
    WF_TRY(time_run(j, &seconds)); /* warmup: touches all memory */
    uint64_t begin = wf_clock_ns();
    for (out->runs = 0;
         out->runs < o->repeats || (double)(wf_clock_ns() - begin) / 1e9 < o->seconds;
         out->runs++) {
        WF_TRY(time_run(j, &seconds));
        if (out->runs == 0 || seconds < out->best)
            out->best = seconds;
    }
    /* The resolution of the clock: rates are divided by this. */
    out->best = out->best > 0 ? out->best : 1e-9;
    for (int i = j->profile.count - 1; i >= 0; i--) /* the kernel of the op, else the slowest */
        if (i == 0 || strcmp(j->profile.op[i].op, j->c->op) == 0) {
            out->kernel = j->profile.op[i].kernel;
            break;
        }
    return WF_OK;
}

/* Returns whether the op would run with this kernel, according to the compiled plan. */
static bool has_kernel(const job *j, const char *name)
{
    for (int i = 0; i < j->profile.count; i++)
        if (strcmp(j->profile.op[i].op, j->c->op) == 0 &&
            strcmp(j->profile.op[i].kernel, name) == 0)
            return true;
    return false;
}

static wf_status run(job *j, const wf_bench_case_options *o, wf_bench_case_result *out)
{
    WF_TRY(build(j, &out->cost));
    WF_TRY(wf_session_new(j->device, &j->session));
    if (o->packed)
        WF_TRY(pack(j));
    if (o->rounded)
        WF_TRY(round_states(j));
    WF_TRY(wf_compile_with(j->session, j->graph, &plain, &j->exec));
    WF_TRY(wf_bench_profile_new(&j->exec, 1, &j->profile));
    if (o->unless && has_kernel(j, o->unless))
        return WF_OK;
    for (int i = 0; i < j->operands; i++)
        WF_TRY(write_operand(j, i));
    return time_runs(j, o, out);
}

wf_status wf_bench_case_run(wf_device *device, const wf_bench_case *c,
                            const wf_bench_case_options *options, wf_bench_case_result *out)
{
    job j = {.device = device, .c = c};
    *out = (wf_bench_case_result){.kernel = ""};
    j.operands = parse_operands(c, j.operand);
    choose_copies(&j, options->streamed);
    wf_status status = run(&j, options, out);
    wf_bench_profile_free(&j.profile);
    wf_exec_free(j.exec);
    wf_session_free(j.session);
    wf_graph_free(j.graph);
    return status;
}

wf_status wf_bench_case_plan(wf_device *device, const wf_bench_case *c, wf_memory *out)
{
    wf_cost cost;
    job j = {.device = device, .c = c, .copies = 1};
    j.operands = parse_operands(c, j.operand);
    wf_status status = build(&j, &cost);
    if (status == WF_OK)
        status = wf_plan_memory(device, j.graph, &plain, out);
    wf_graph_free(j.graph);
    return status;
}
