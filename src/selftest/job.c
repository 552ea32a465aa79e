/* SPDX-License-Identifier: MIT */
/*
 * job.c - the checks of one case: results, results read alone, views, expansion, same bits.
 *
 * wf_job_run evaluates the reference once. Each check then builds the case again, with the same
 * operands, and compares the device's results with it. A failure is reported and counted, and the
 * harness continues; only a lack of memory ends it.
 */
#include "selftest/job.h"

#include <stdio.h>
#include <string.h>

#include "device/device.h"

/* ---- Reporting ---- */

/* Appends the flag that forces the same expansions. */
static void append_forced(const wf_device *device, char *buf, size_t cap, size_t *len)
{
    const char *before = " --expand ";
    for (int op = 0; op < WF_OP_COUNT; op++)
        if (device->expanded[op]) {
            wf_text_append(buf, cap, len, "%s%s", before, wf_op_get((wf_op)op)->name);
            before = ",";
        }
}

void wf_job_fail(wf_job *j, const char *what, const char *fmt, ...)
{
    const wf_selftest_options *o = j->options;
    const char *label = j->row->label;
    char text[sizeof j->total->first];
    size_t len = 0;
    wf_text_append(text, sizeof text, &len,
                   "%s, variant %d%s%s, %s, %s: ", wf_op_get(j->row->op)->name, j->variant,
                   label ? " of " : "", label ? label : "", wf_type_name(j->type), what);
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    wf_text_append(text, sizeof text, &len,
                   "; %s; repeat with: weft selftest --device %s --op %s --seed %llu", j->node,
                   o->device ? o->device : "cpu", wf_op_get(j->row->op)->name,
                   (unsigned long long)o->seed);
    append_forced(j->device, text, sizeof text, &len);
    if (j->total->failures++ == 0)
        snprintf(j->total->first, sizeof j->total->first, "%s", text);
    if (o->on_failure)
        o->on_failure(o->user, text);
}

wf_status wf_job_status(wf_job *j, const char *what, wf_status status)
{
    if (status == WF_OK || status == WF_ERR_MEMORY)
        return status;
    wf_job_fail(j, what, "%s (%s)", wf_ctx_message(j->ctx), wf_status_string(status));
    return WF_OK;
}

void wf_job_judge(wf_job *j, const char *what, const char *which, const wf_verdict *v)
{
    j->total->checks++;
    if (v->failed)
        wf_job_fail(j, what, "element %lld of %s is %.9g, expected %.9g within %.3g",
                    (long long)v->index, which, v->got, v->wanted, v->bound);
    else if (v->ratio > j->total->worst)
        j->total->worst = v->ratio;
}

/* "matmul(f32[3,4], f32[4,5]) transpose_a=1" */
static void describe(const wf_node *n, char *buf, size_t cap)
{
    const wf_op_def *def = wf_node_def(n);
    size_t len = 0;
    wf_text_append(buf, cap, &len, "%s(", def->name);
    for (int i = 0; i < n->nin; i++) {
        if (i > 0)
            wf_text_append(buf, cap, &len, ", ");
        wf_value_print(n->in[i], buf, cap, &len);
    }
    wf_text_append(buf, cap, &len, ")");
    if (n->attr) {
        wf_text_append(buf, cap, &len, " ");
        wf_attr_print(def, n->attr, buf, cap, &len);
    }
}

wf_status wf_job_build(wf_job *j, const char *what, int views, wf_case **out)
{
    wf_status status =
        j->first ? wf_case_again(j->first, views, out)
                 : wf_case_new(j->ctx, j->row, j->variant, j->type, j->options->seed, views, out);
    WF_TRY(status);
    status = wf_case_status(*out);
    if (status == WF_OK)
        return WF_OK;
    wf_case_free(*out);
    *out = NULL;
    return wf_job_status(j, what, status);
}

/* ---- Checks ---- */

/* Returns the output of the node under test that updates this state, or NULL. */
static wf_value *updated(const wf_case *c, const wf_operand *o)
{
    for (int i = 0; i < c->node->nout; i++)
        if (c->node->out[i].state == o->node)
            return &c->node->out[i];
    return NULL;
}

/* Reads the states, and all outputs of the node or only output `only`. */
static wf_status read_outputs(wf_case *c, int only)
{
    for (int i = 0; i < c->operands; i++) {
        const wf_operand *o = &c->operand[i];
        wf_value *next = updated(c, o);
        bool same = !next || c->untouched;
        if (o->node->op == WF_OP_state)
            WF_TRY(wf_case_read(c, NULL, next ? next : o->value, same ? o->bytes : NULL));
    }
    for (int i = 0; i < c->node->nout; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        if (!c->node->out[i].state && (only < 0 || only == i))
            WF_TRY(wf_case_read(c, name, &c->node->out[i], NULL));
    }
    return WF_OK;
}

/* Compares everything that was read: states that must not change, bit by bit; outputs of the node
 * under test with the reference `want`. */
static void judge_reads(wf_job *j, wf_case *c, const char *what, const wf_ref *want, double bound)
{
    for (int i = 0; i < c->reads; i++) {
        const wf_read *r = &c->read[i];
        char which[32];
        snprintf(which, sizeof which, "output %d", r->value->index);
        if (r->same && memcmp(r->same, r->bytes, r->size) != 0)
            wf_job_fail(j, what, "state %s changed, but apply is 0", r->name);
        if (r->value->node == c->node) {
            wf_verdict v = wf_compare(r->bytes, &want[r->value->index], bound);
            wf_job_judge(j, what, which, &v);
        }
    }
}

static double bound_or(double bound, double otherwise)
{
    return bound > 0 ? bound : otherwise;
}

/* Runs a case on the twin, which must produce the same bits. */
static wf_status look_at_twin(wf_job *j, wf_case *c)
{
    const void *bytes[WF_CASE_READS];
    for (int i = 0; i < c->reads; i++) {
        bytes[i] = wf_arena_copy(&c->arena, c->read[i].bytes, c->read[i].size);
        if (!bytes[i])
            return WF_ERR_MEMORY;
    }
    wf_status status = wf_case_run(c, c->g, j->twin, NULL);
    if (status != WF_OK)
        return wf_job_status(j, "twin", status);
    for (int i = 0; i < c->reads; i++) {
        j->total->checks++;
        if (memcmp(bytes[i], c->read[i].bytes, c->read[i].size) != 0)
            wf_job_fail(j, "twin", "result %d differs in bits on %s", i, j->options->twin);
    }
    return WF_OK;
}

/* Whether the device expands the node under test, so that its result has the bound of an
 * expansion. */
static bool is_expanded(const wf_job *j, const wf_node *n)
{
    if (wf_op_is_core(n->op))
        return false;
    return !j->device->kernels || !j->device->target.supports(&j->device->target, n);
}

double wf_job_slack(const wf_job *j)
{
    return j->device->kernels ? 1 : 4;
}

static double expansion_bound(const wf_job *j)
{
    return wf_job_slack(j) * bound_or(j->row->expansion, WF_CASE_EXPANSION);
}

/* An expanded op has the bound of its expansion. The expansion of a backward op recomputes what the
 * forward op saved, and the expansion of a fused op what lies between its parts. Where these were
 * stored in a narrow type, the reference starts from rounded values and the device need not. Both
 * kinds are ops without a gradient. The expansion of linear rounds the matmul before it adds the
 * bias; program devices have a form of their own for linear. */
static double forward_bound(const wf_job *j, const wf_node *n)
{
    const wf_op_def *def = wf_op_get(j->row->op);
    if (!is_expanded(j, n))
        return bound_or(j->row->forward, WF_CASE_FORWARD);
    bool rounds = (def->grad == wf_grad_refuse && !(def->flags & WF_FLAG_UPDATE)) ||
                  (j->row->op == WF_OP_linear && j->device->kernels);
    return expansion_bound(j) + (rounds ? 2 * wf_type_get(j->type)->roundoff / WF_ROUNDOFF_F32 : 0);
}

/* Builds the case, runs it and compares the results. */
static wf_status look(wf_job *j, const char *what, const wf_ref *want, int views, int only)
{
    wf_case *c;
    WF_TRY(wf_job_build(j, what, views, &c));
    if (!c)
        return WF_OK;
    bool repeats = true, first = views == 0 && only < 0;
    wf_status status = read_outputs(c, only);
    if (status == WF_OK)
        status = wf_case_run(c, c->g, j->device, first ? &repeats : NULL);
    if (status == WF_ERR_UNSUPPORTED && first && c->optional) {
        j->total->skipped++;
        j->total->cases--;
        j->stop = true;
        status = WF_OK;
    } else if (status != WF_OK) {
        j->stop = first;
        status = wf_job_status(j, what, status);
    } else {
        judge_reads(j, c, what, want, forward_bound(j, c->node));
        if (!repeats)
            wf_job_fail(j, what, "a second run gave different bits");
        if (first && j->twin)
            status = look_at_twin(j, c);
    }
    wf_case_free(c);
    return status;
}

/* Returns false, and the name of an op, when the graph has an op that is not a core op. */
static bool all_core(const wf_graph *g, const char **other)
{
    for (int i = 0; i < g->node_count; i++)
        if (!wf_op_is_core(g->nodes[i]->op)) {
            *other = wf_node_def(g->nodes[i])->name;
            return false;
        }
    return true;
}

/* Expands every op as far as core ops and checks the result of that graph. */
static wf_status look_at_expansion(wf_job *j, const wf_ref *want)
{
    const char *what = "expansion", *other;
    wf_case *c;
    wf_graph *g = NULL;
    WF_TRY(wf_job_build(j, what, 0, &c));
    if (!c)
        return WF_OK;
    wf_status status = read_outputs(c, -1);
    if (status == WF_OK)
        status = wf_pass_expand(c->g, NULL, NULL, &g);
    if (status == WF_OK)
        status = wf_graph_verify(g);
    if (status == WF_OK && !all_core(g, &other))
        status = wf_fail(j->ctx, WF_ERR_INTERNAL,
                         "the expansion still contains %s, which is not a core op", other);
    if (status == WF_OK)
        status = wf_case_run(c, g, j->device, NULL);
    if (status == WF_OK)
        judge_reads(j, c, what, want, expansion_bound(j));
    else
        status = wf_job_status(j, what, status);
    wf_graph_free(g);
    wf_case_free(c);
    return status;
}

/* Returns whether the device's table has kernels for this node's type. Program devices take all
 * types, and so do ops without any kernel: they are expanded. */
static bool listed(const wf_device *device, const wf_node *n)
{
    if (!device->kernels || (!wf_op_is_core(n->op) && !wf_kernel_types(device->kernels, n->op)))
        return true;
    return (wf_kernel_types(device->kernels, n->op) & wf_type_bit(wf_node_key_type(n))) != 0;
}

/* Tests the harness itself: a reference that is wrong by this factor must cause failures. */
static void distort(wf_ref *out, int nout, double by)
{
    for (int k = 0; k < nout; k++) {
        int64_t count = wf_type_get(out[k].type)->roundoff > 0 ? wf_dims_count(&out[k].shape) : 0;
        for (int64_t i = 0; i < count; i++)
            out[k].v[i] *= 1 + by;
    }
}

/* Plugins flush subnormal values to zero. */
static void allow_flushing(wf_ref *out, int nout)
{
    for (int k = 0; k < nout; k++)
        for (int64_t i = 0; i < wf_dims_count(&out[k].shape); i++)
            if (out[k].mag[i] > 0)
                out[k].mag[i] += 0x1p-126 / (WF_CASE_FORWARD * WF_ROUNDOFF_F32);
}

/* Runs all checks that apply to this node, type and device. Large cases of other types than f32 get
 * only the first one. */
static wf_status look_all_over(wf_job *j, const wf_case *c, const wf_ref *want)
{
    const wf_node *node = c->node;
    bool update = wf_node_is(node, WF_FLAG_UPDATE), large = wf_case_size(c) > WF_CASE_LARGE;
    /* Devices that compile whole graphs have no views and no outputs without memory: these checks
     * would compile three more programs and test nothing new. */
    bool program = !j->device->kernels;
    j->total->cases++;
    WF_TRY(look(j, "forward", want, 0, -1));
    if (j->stop || (large && j->type != WF_F32))
        return WF_OK;
    for (int i = 0; node->nout > 1 && i < node->nout && !update && !program; i++) {
        char what[32];
        snprintf(what, sizeof what, "output %d alone", i);
        WF_TRY(look(j, what, want, 0, i));
    }
    for (int depth = 1; node->nin > 0 && !program && depth <= (large ? 1 : 2); depth++)
        WF_TRY(look(j, "views", want, depth, -1));
    /* Forces the kernels of views, which the executor rarely needs. */
    j->device->dense_views = wf_node_is(node, WF_FLAG_VIEW) && j->device->kernels;
    if (j->device->dense_views)
        WF_TRY(look(j, "made dense", want, 1, -1));
    j->device->dense_views = false;
    bool blocks = wf_type_get(j->type)->kind == WF_KIND_BLOCK;
    if ((j->type == WF_F32 || blocks) && !wf_op_is_core(node->op))
        WF_TRY(look_at_expansion(j, want));
    return j->type == WF_F32 && wf_op_is_differentiable(node->op) ? wf_job_gradient(j) : WF_OK;
}

wf_status wf_job_run(wf_job *j)
{
    snprintf(j->node, sizeof j->node, "not built");
    wf_case *c;
    j->first = NULL;
    WF_TRY(wf_job_build(j, "building", 0, &c));
    if (!c || !listed(j->device, c->node)) {
        j->total->skipped += c != NULL;
        wf_case_free(c);
        return WF_OK;
    }
    describe(c->node, j->node, sizeof j->node);
    wf_eval *e;
    wf_status status = wf_eval_new(c, c->node, &e);
    if (status == WF_OK)
        status = wf_eval_run(e, true);
    if (status == WF_OK) {
        wf_ref *want = e->node[c->node->id].out;
        distort(want, c->node->nout, j->options->distort_forward);
        if (!j->device->kernels)
            allow_flushing(want, c->node->nout);
        j->first = c;
        status = look_all_over(j, c, want);
    } else {
        status = wf_job_status(j, "reference", status);
    }
    wf_case_free(c);
    return status;
}
