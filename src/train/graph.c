/* SPDX-License-Identifier: MIT */
/*
 * graph.c - builds the graphs of a training run.
 *
 * All forms are built from the same setup and name the same states, so executables of one session
 * share them. Gradients are of the loss multiplied by the loss scale; wf_unscale divides by the
 * scale and by the number of targets, and decides whether the step is applied.
 */
#include "train/graph.h"

#include <stdio.h>

#include "base/mem.h"
#include "graph/graph.h"
#include "model/family.h"

#define IGNORED (-100) /* target of a token without loss */

/* ---- Shared by the forms ---- */

bool wf_train_uses(const wf_setup *s, wf_train_form form)
{
    bool merged = s->options.accumulate == 1;
    return form == WF_TRAIN_WHOLE                              ? merged
           : form == WF_TRAIN_MICRO || form == WF_TRAIN_UPDATE ? !merged
                                                               : true;
}

int64_t wf_train_tokens(const wf_setup *s)
{
    return s->options.batch * s->options.length;
}

int64_t wf_train_length(const wf_setup *s)
{
    return s->options.documents ? 0 : s->options.length;
}

wf_compile_options wf_train_compiling(const wf_setup *s, wf_train_form form)
{
    bool backward = form == WF_TRAIN_WHOLE || form == WF_TRAIN_MICRO;
    return (wf_compile_options){.recompute = backward ? s->options.recompute : 0};
}

wf_build_options wf_train_weights(const wf_setup *s, bool average)
{
    wf_build_options b = {.given_frequencies = s->config.family->rotary,
                          .prefix = average && s->options.ema > 0 ? "ema." : NULL};
    if (s->adapter) {
        b.type = wf_model_weight_type;
        b.user = s->base;
        b.adapt = wf_adapter_apply;
        b.adapt_user = s->adapter;
    }
    return b;
}

/* Builds the model. Dropout and adapters' dropout exist only in training. */
static wf_value *forward(const wf_setup *s, wf_train_form form, wf_graph *g,
                         wf_model_values *values)
{
    const wf_train_options *o = &s->options;
    bool training = form == WF_TRAIN_WHOLE || form == WF_TRAIN_MICRO;
    wf_build_options b = wf_train_weights(s, !training);
    b.form = WF_FORM_TRAIN;
    b.tokens = wf_train_tokens(s);
    b.sequences = s->sequences;
    b.length = wf_train_length(s);
    b.dropout = training ? o->dropout : 0;
    b.random = training && (o->dropout > 0 || o->lora_dropout > 0);
    return wf_model_graph(g, &s->config, &b, values);
}

static wf_value *scalar(wf_graph *g, double value)
{
    return wf_fill(g, WF_F32, 0, NULL, value);
}

static wf_value *sum_of(wf_graph *g, wf_value *x)
{
    return wf_reduce(g, "sum", x, WF_AXIS(0), false);
}

typedef struct {
    wf_value *data;  /* cross-entropy, summed over the targets with loss; reported */
    wf_value *whole; /* data + count * the model's extra loss; differentiated */
    wf_value *count; /* targets with loss, f32 */
} losses;

static losses find_losses(const wf_setup *s, wf_train_form form, wf_graph *g)
{
    const wf_train_options *o = &s->options;
    wf_cross_entropy_options ce = {.ignore_index = IGNORED};
    if (form != WF_TRAIN_VALID) {
        ce.label_smoothing = o->label_smoothing;
        ce.z_loss = o->z_loss;
    }
    int64_t n = wf_train_tokens(s);
    wf_model_values values;
    losses l;
    wf_value *logits = forward(s, form, g, &values);
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, &n);
    wf_value *none = wf_fill(g, WF_I32, 0, NULL, IGNORED);
    l.count = sum_of(g, wf_cast(g, wf_binary(g, "ne", targets, none), WF_F32));
    l.whole = l.data = sum_of(g, wf_cross_entropy(g, logits, targets, &ce));
    if (values.extra_loss)
        l.whole = wf_binary(g, "add", l.data, wf_binary(g, "mul", values.extra_loss, l.count));
    return l;
}

/* Concatenates scalars to the output "report", f32[n]. */
static wf_status put_report(wf_graph *g, wf_value *const *x, int n)
{
    wf_value *item[WF_REPORT_COUNT];
    for (int i = 0; i < n; i++)
        item[i] = wf_reshape(g, wf_cast(g, x[i], WF_F32), 1, &(int64_t){1});
    return wf_output(g, "report", wf_concat(g, item, n, 0));
}

/* ---- Parameters ---- */

typedef struct {
    wf_value **param, **grad; /* [n] */
    int n;
} trained;

static void free_trained(wf_graph *g, trained *t)
{
    wf_mem_free(g->ctx, t->param);
    wf_mem_free(g->ctx, t->grad);
}

/* Allocates both arrays for `most` parameters. */
static wf_status room_for(wf_graph *g, size_t most, trained *t)
{
    t->param = wf_mem_array(g->ctx, most + 1, sizeof(wf_value *));
    t->grad = wf_mem_array(g->ctx, most + 1, sizeof(wf_value *));
    return t->param && t->grad ? WF_OK : WF_ERR_MEMORY;
}

/* Collects the states that the setup trains, in the order of the graph. */
static wf_status find_trained(const wf_setup *s, wf_graph *g, trained *t)
{
    WF_TRY(room_for(g, (size_t)g->node_count, t));
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        if (n->op == WF_OP_state && wf_setup_trains(s, n->name))
            t->param[t->n++] = &g->nodes[i]->out[0];
    }
    return WF_OK;
}

static wf_value *sum_state(wf_graph *g, const char *what)
{
    return wf_state(g, what, WF_F32, 0, NULL);
}

static wf_value *grad_state(wf_graph *g, const wf_value *param)
{
    char name[WF_NAME_BYTES + 8];
    snprintf(name, sizeof name, "grad.%s", param->node->name);
    return wf_state_like(g, name, param);
}

/* ---- The forms ---- */

/* Adds the gradients of the loss, multiplied by the loss scale. */
static wf_status differentiate(const wf_setup *s, wf_graph *g, wf_value *loss, trained *t)
{
    WF_TRY(wf_graph_status(g));
    WF_TRY(find_trained(s, g, t));
    /* Before the gradient, so that the backward pass gets the same types. */
    WF_TRY(wf_precision(g, s->options.compute));
    wf_value *scaled = wf_binary(g, "mul", loss, wf_loss_scale(g, &s->scale));
    return wf_grad(g, scaled, t->param, t->n, t->grad);
}

/* Adds the updates: from summed gradients to new parameters. */
static wf_status update(const wf_setup *s, wf_graph *g, const trained *t, wf_value *loss,
                        wf_value *count)
{
    wf_scaled scaled;
    wf_value *rate = wf_input(g, "rate", WF_F32, 0, NULL);
    /* Avoids 0/0 if every target is ignored. */
    wf_value *most = wf_binary(g, "maximum", count, scalar(g, 1));
    WF_TRY(wf_unscale(g, t->grad, t->n, most, &s->scale, &scaled));
    WF_TRY(wf_optimizer_update(g, &s->optimizer, t->param, t->grad, t->n, rate, &scaled));
    wf_value *mean = wf_binary(g, "div", loss, most);
    wf_value *report[WF_REPORT_COUNT] = {mean, scaled.norm, scaled.apply, scaled.scale, count};
    return put_report(g, report, WF_REPORT_COUNT);
}

static wf_status build_whole(const wf_setup *s, wf_graph *g, trained *t)
{
    const losses l = find_losses(s, WF_TRAIN_WHOLE, g);
    WF_TRY(differentiate(s, g, l.whole, t));
    return update(s, g, t, l.data, l.count);
}

/* Adds gradients, loss and count of one batch to states that build_update reads. */
static wf_status build_micro(const wf_setup *s, wf_graph *g, trained *t)
{
    const losses l = find_losses(s, WF_TRAIN_MICRO, g);
    WF_TRY(differentiate(s, g, l.whole, t));
    for (int i = 0; i < t->n; i++)
        wf_accumulate(g, grad_state(g, t->param[i]), t->grad[i], NULL);
    wf_accumulate(g, sum_state(g, "sum.loss"), l.data, NULL);
    wf_accumulate(g, sum_state(g, "sum.count"), l.count, NULL);
    return WF_OK;
}

/* Lists the parameters by building the model's graph, whose nodes are not used here. */
static wf_status list_params(const wf_setup *s, wf_graph *g, trained *t)
{
    wf_graph *model;
    trained there = {0};
    WF_TRY(wf_graph_new(g->ctx, &model));
    forward(s, WF_TRAIN_MICRO, model, NULL);
    wf_status status = wf_graph_status(model);
    if (status == WF_OK)
        status = find_trained(s, model, &there);
    if (status == WF_OK)
        status = room_for(g, (size_t)there.n, t);
    for (int i = 0; status == WF_OK && i < there.n; i++) {
        const wf_value *v = there.param[i];
        t->param[i] = wf_state(g, v->node->name, v->type, v->shape.n, v->shape.d);
        t->grad[i] = grad_state(g, v);
    }
    t->n = there.n;
    free_trained(model, &there);
    wf_graph_free(model);
    return status;
}

/* Zeros the sums after their use, for the next step. */
static wf_status build_update(const wf_setup *s, wf_graph *g, trained *t)
{
    WF_TRY(list_params(s, g, t));
    wf_value *loss = sum_state(g, "sum.loss"), *count = sum_state(g, "sum.count");
    WF_TRY(update(s, g, t, loss, count));
    for (int i = 0; i < t->n; i++) {
        const wf_dims *shape = &t->grad[i]->shape;
        wf_assign(g, t->grad[i], wf_fill(g, WF_F32, shape->n, shape->d, 0), NULL);
    }
    wf_assign(g, loss, scalar(g, 0), NULL);
    wf_assign(g, count, scalar(g, 0), NULL);
    return WF_OK;
}

static wf_status build_valid(const wf_setup *s, wf_graph *g, trained *t)
{
    (void)t;
    const losses l = find_losses(s, WF_TRAIN_VALID, g);
    WF_TRY(wf_graph_status(g));
    WF_TRY(wf_precision(g, s->options.compute));
    return put_report(g, (wf_value *[]){l.data, l.count}, 2);
}

wf_status wf_train_graph(const wf_setup *s, wf_train_form form, wf_graph **out)
{
    static wf_status (*const build[WF_TRAIN_COUNT])(const wf_setup *, wf_graph *, trained *) = {
        build_whole, build_micro, build_update, build_valid};
    wf_graph *g;
    trained t = {0};
    *out = NULL;
    WF_TRY(wf_graph_new(s->ctx, &g));
    wf_status status = build[form](s, g, &t);
    if (status == WF_OK)
        status = wf_graph_status(g);
    free_trained(g, &t);
    if (status == WF_OK)
        *out = g;
    else
        wf_graph_free(g);
    return status;
}
