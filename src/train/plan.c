/* SPDX-License-Identifier: MIT */
/*
 * plan.c - the memory and cost of all graphs of a setup.
 *
 * Every graph that the run uses is built and planned as it would be compiled. States are shared, so
 * each is counted once, by name; the graphs share one region, so only the largest counts; ports are
 * summed. Of the engine that writes samples only the largest graph counts: the others share its
 * memory.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "device/choose.h"
#include "device/plan.h"
#include "graph/cost.h"
#include "train/fit.h"
#include "train/generate.h"
#include "train/graph.h"
#include "train/trainer.h"

typedef struct {
    const char *name;
    wf_type copy; /* type of a narrow copy; WF_TYPE_NONE: the state itself */
    size_t bytes;
} state;

typedef struct {
    const wf_setup *setup;
    wf_device *device; /* plans only; nothing is allocated on it */
    const wf_device_peak *peak;
    wf_arena arena; /* owns names */
    state *states;  /* [room], with duplicates until they are summed */
    size_t count, room;
    wf_setup_plan *out;
} planning;

/* ---- States of all graphs, each counted once ---- */

static wf_status add_state(planning *p, const wf_node *n)
{
    if (p->count == p->room) {
        size_t room = p->room ? 2 * p->room : 256;
        state *grown = wf_mem_grow(p->setup->ctx, p->states, room * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        p->states = grown;
        p->room = room;
    }
    const wf_value *v = &n->out[0];
    state *s = &p->states[p->count++];
    s->copy = n->op == WF_OP_state_copy ? v->type : WF_TYPE_NONE;
    s->bytes = wf_device_value_bytes(p->device, v->type, &v->shape);
    s->name = wf_arena_strdup(&p->arena, n->name);
    return s->name ? WF_OK : WF_ERR_MEMORY;
}

/* Orders equal states next to each other; copies of different types differ. */
static int by_name(const void *a, const void *b)
{
    const state *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (int)x->copy - (int)y->copy;
}

/* Sorts, skips duplicates, and assigns each state to a part of the breakdown by its name. */
static void sum_states(planning *p)
{
    wf_setup_plan *o = p->out;
    qsort(p->states, p->count, sizeof *p->states, by_name);
    for (size_t i = 0; i < p->count; i++) {
        const state *s = &p->states[i];
        const char *name = s->name;
        if (i > 0 && by_name(&s[-1], s) == 0)
            continue;
        if (s->copy != WF_TYPE_NONE) {
            o->memory.states += s->bytes;
            o->weights += s->bytes;
            continue;
        }
        if (wf_setup_maps(p->setup, p->device, name)) {
            o->memory.mapped += s->bytes;
            continue;
        }
        o->memory.states += s->bytes;
        bool moment = (name[0] == 'm' || name[0] == 'v') && name[1] == '.';
        *(moment                           ? &o->moments
          : strncmp(name, "grad.", 5) == 0 ? &o->gradients
          : strncmp(name, "ema.", 4) == 0  ? &o->averages
          : wf_is_pool(name)               ? &o->samples
          : strncmp(name, "sum.", 4) == 0 || strncmp(name, "loss_scale", 10) == 0 ||
                  strncmp(name, "rope.", 5) == 0
              ? &o->others
              : &o->weights) += s->bytes;
    }
}

/* ---- Graphs ---- */

/* Adds a graph's cost; `times` is how often it runs per step. */
static void add_cost(planning *p, const wf_graph *g, double times)
{
    wf_setup_plan *o = p->out;
    for (int i = 0; i < g->node_count; i++) {
        wf_cost c;
        wf_node_cost(g->nodes[i], &c);
        o->flops += times * (double)c.flops;
        o->bytes += times * ((double)c.bytes_read + (double)c.bytes_written);
    }
    if (p->peak)
        o->seconds += times * wf_peak_graph_seconds(p->peak, g);
}

/* The graphs run one at a time and share a region of the largest size. */
static void add_memory(planning *p, const wf_memory *m)
{
    wf_memory *o = &p->out->memory;
    o->ports += m->ports;
    if (m->activations > o->activations) {
        o->activations = o->region = m->activations;
        o->lower_bound = m->lower_bound;
        o->workspace = m->workspace;
    }
}

/* `times` is how often the graph runs per step. */
static wf_status add_graph(planning *p, wf_graph *g, const wf_compile_options *options,
                           double times)
{
    wf_report report = {0};
    wf_plan *plan;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state)
            WF_TRY(add_state(p, g->nodes[i]));
    /* A device that compiles whole graphs reports its memory itself. */
    if (!p->device->kernels) {
        wf_memory m;
        WF_TRY(wf_plan_memory(p->device, g, options, &m));
        add_memory(p, &m);
        add_cost(p, g, times);
        return WF_OK;
    }
    WF_TRY(wf_plan_new(p->device, g, options, NULL, &report, &plan));
    add_memory(p, &plan->memory);
    add_cost(p, plan->graph, times);
    wf_status status = WF_OK;
    for (int i = 0; i < plan->graph->node_count && status == WF_OK; i++)
        if (plan->graph->nodes[i]->op == WF_OP_state_copy)
            status = add_state(p, plan->graph->nodes[i]);
    wf_plan_free(plan);
    return status;
}

static wf_status plan_form(planning *p, wf_train_form form)
{
    const wf_compile_options options = wf_train_compiling(p->setup, form);
    double times = form == WF_TRAIN_MICRO ? (double)p->setup->options.accumulate
                   : form == WF_TRAIN_WHOLE || form == WF_TRAIN_UPDATE ? 1
                                                                       : 0;
    wf_graph *g;
    WF_TRY(wf_train_graph(p->setup, form, &g));
    wf_status status = add_graph(p, g, &options, times);
    wf_graph_free(g);
    return status;
}

static wf_status plan_samples(planning *p)
{
    const wf_compile_options options = {0};
    wf_graph *g;
    WF_TRY(wf_setup_sample_graph(p->setup, &g));
    wf_status status = add_graph(p, g, &options, 0);
    wf_graph_free(g);
    return status;
}

static wf_status plan_all(planning *p)
{
    wf_setup_plan *o = p->out;
    for (int form = 0; form < WF_TRAIN_COUNT; form++)
        if (wf_train_uses(p->setup, (wf_train_form)form))
            WF_TRY(plan_form(p, (wf_train_form)form));
    if (p->setup->sample_tokens > 0)
        WF_TRY(plan_samples(p));
    sum_states(p);
    o->total = o->memory.states;
    if (!wf_add_size(o->total, o->memory.region, &o->total) ||
        !wf_add_size(o->total, o->memory.ports, &o->total))
        return wf_fail(p->setup->ctx, WF_ERR_MEMORY,
                       "this setup needs more memory than can be addressed");
    return WF_OK;
}

wf_status wf_setup_plan_memory(const wf_setup *s, wf_device *device, const wf_device_peak *peak,
                               wf_setup_plan *out)
{
    planning p = {.setup = s, .device = device, .peak = peak, .out = out};
    *out = (wf_setup_plan){0};
    wf_arena_init(&p.arena, s->ctx);
    wf_status status = plan_all(&p);
    wf_mem_free(s->ctx, p.states);
    wf_arena_free(&p.arena);
    return status;
}
