/* SPDX-License-Identifier: MIT */
/* cmd_plan.c - weft plan: what a graph will need, before anything is allocated, and why. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/plan.h"
#include "model/example.h"

#define LARGEST_FILE ((size_t)1 << 30)

static struct {
    const char *device, *form, *precision, *without, *svg, *dot, *text;
    int64_t batch, length, recompute;
    bool explain, json;
} options = {.device = "cpu", .precision = "f32", .batch = -1, .length = -1, .recompute = -1};

/* ---- Choices ---- */

static wf_status find_word(wf_ctx *ctx, const char *what, const char *word,
                           const char *const *words, int n, int *out)
{
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0) {
            *out = i;
            return WF_OK;
        }
    char all[160];
    size_t len = 0;
    for (int i = 0; i < n; i++)
        wf_text_append(all, sizeof all, &len, "%s%s", i ? ", " : "", words[i]);
    return wf_fail(ctx, WF_ERR_USAGE, "there is no %s '%s'; there are: %s", what, word, all);
}

/* "fold,fuse" to a bit set; "all" is one of the words. */
static wf_status parse_without(wf_ctx *ctx, const char *text, uint32_t *out)
{
    const char *names[16] = {"all"};
    uint32_t bits[16] = {0};
    int n = 1;
    for (const wf_pass *p; (p = wf_pass_get(n - 1)) && n < 15; n++) {
        names[n] = p->name;
        bits[n] = p->bit;
    }
    names[n] = "memory"; /* is no pass over the graph, and comes last */
    bits[n++] = WF_PASS_MEMORY;
    for (int i = 1; i < n; i++)
        bits[0] |= bits[i];
    for (*out = 0; text && *text;) {
        char word[WF_TEXT_WORD + 1];
        size_t length = strcspn(text, ","), len = 0;
        int i = 0;
        wf_text_append(word, sizeof word, &len, "%.*s", (int)(length < 60 ? length : 60), text);
        WF_TRY(find_word(ctx, "pass", word, names, n, &i));
        *out |= bits[i];
        text += length + (text[length] == ',');
    }
    return WF_OK;
}

/* ---- The graph ---- */

/* What is planned: an example in one of its forms, or a graph from a file. */
typedef struct {
    const char *name;
    char title[160];
    wf_type compute;
    wf_graph *graph;
} subject;

static wf_status read_graph(wf_ctx *ctx, subject *s)
{
    char *text;
    size_t bytes, len = 0;
    if (options.form || options.batch >= 0 || options.length >= 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--form, --batch and --length are for examples; '%s' is a file", s->name);
    wf_text_append(s->title, sizeof s->title, &len, "%s", s->name);
    WF_TRY(wf_file_read(ctx, s->name, LARGEST_FILE, &text, &bytes));
    wf_status status = wf_graph_parse(ctx, text, bytes, &s->graph);
    wf_mem_free(ctx, text);
    return status == WF_OK ? wf_precision(s->graph, s->compute) : status;
}

/* The gradient comes after the choice of types. */
static wf_status set_precision(void *user, wf_graph **g, wf_value **loss)
{
    (void)loss;
    return wf_precision(*g, ((const subject *)user)->compute);
}

static wf_status build_example(wf_ctx *ctx, subject *s)
{
    static const char *const names[] = {"train", "prefill", "decode"};
    static const struct {
        const char *of, *by;
    } words[] = {
        {"a training step of", "x"}, {"a prefill of", "x"}, {"decoding", "sequences of up to"}};
    const wf_example *e;
    int form = WF_EXAMPLE_TRAIN;
    size_t len = 0;
    WF_TRY(wf_example_find(ctx, s->name, &e));
    if (options.form)
        WF_TRY(find_word(ctx, "form", options.form, names, 3, &form));
    if (options.batch == 0 || options.length == 0)
        return wf_fail(ctx, WF_ERR_USAGE, "--batch and --length want a number from 1 on");
    const wf_example_options o = {.form = (wf_example_form)form,
                                  .batch = options.batch > 0 ? options.batch : e->batch,
                                  .length = options.length > 0 ? options.length : e->context,
                                  .before_grad = set_precision,
                                  .user = s};
    wf_text_append(s->title, sizeof s->title, &len, "%s, %s %lld %s %lld tokens in %s", e->name,
                   words[form].of, (long long)o.batch, words[form].by, (long long)o.length,
                   wf_type_name(s->compute));
    WF_TRY(wf_example_build(ctx, s->name, &o, &s->graph));
    return form == WF_EXAMPLE_TRAIN ? WF_OK : wf_precision(s->graph, s->compute);
}

/* What has a slash or a dot in its name is a file, all else an example. */
static wf_status get_graph(wf_ctx *ctx, subject *s)
{
    static const char *const types[] = {"f32", "bf16", "f16"};
    int type = 0;
    WF_TRY(find_word(ctx, "precision", options.precision, types, 3, &type));
    s->compute = wf_type_from_name(types[type]);
    return strpbrk(s->name, "/.") ? read_graph(ctx, s) : build_example(ctx, s);
}

static wf_status write_forms(wf_ctx *ctx, const wf_graph *g)
{
    char *text;
    size_t bytes;
    wf_status status = WF_OK;
    if (options.text) {
        WF_TRY(wf_graph_text(g, &text, &bytes));
        status = wf_file_write(ctx, options.text, text, bytes);
        wf_text_free(ctx, text);
    }
    if (options.dot && status == WF_OK) {
        WF_TRY(wf_graph_dot(g, &text, &bytes));
        status = wf_file_write(ctx, options.dot, text, bytes);
        wf_text_free(ctx, text);
    }
    return status;
}

/* ---- Looking at the plan ---- */

static wf_status look(wf_ctx *ctx, wf_plan_view *v)
{
    const wf_plan *plan = v->plan;
    uint64_t most = 0;
    v->alive = wf_mem_array(ctx, (size_t)plan->step_count + 1, sizeof *v->alive);
    if (!v->alive)
        return WF_ERR_MEMORY;
    /* What begins and what ends at each step, and then the sums. */
    for (int i = 0; i < plan->block_count; i++) {
        const wf_lifetime *b = &plan->blocks[i];
        wf_use_kind kind = wf_plan_use(plan, i);
        v->alive[b->begin][kind] += b->bytes;
        if (b->end + 1 < plan->step_count)
            v->alive[b->end + 1][kind] -= b->bytes; /* wraps around, and back in the sum */
    }
    for (int s = 0; s < plan->step_count; s++) {
        uint64_t all = 0;
        for (int k = 0; k < WF_USE_COUNT; k++) {
            v->alive[s][k] += s > 0 ? v->alive[s - 1][k] : 0;
            all += v->alive[s][k];
        }
        if (all > most) {
            most = all;
            v->busiest = s;
        }
    }
    for (int i = 0; i < plan->graph->node_count; i++) {
        const wf_node *n = plan->graph->nodes[i];
        wf_cost c;
        wf_node_cost(n, &c);
        wf_cost_add(&v->cost, &c);
        for (int k = 0; wf_node_is(n, WF_FLAG_UPDATE) && k < n->nout; k++)
            if (n->in[k]->version == 0)
                v->written += wf_type_bytes(n->out[k].type, wf_dims_count(&n->out[k].shape));
    }
    return WF_OK;
}

static wf_status show(wf_ctx *ctx, wf_plan_view *v)
{
    WF_TRY(look(ctx, v));
    if (options.svg)
        WF_TRY(wf_plan_svg(ctx, v, options.svg));
    if (options.json) {
        wf_plan_json(v);
        return WF_OK;
    }
    wf_plan_print(v);
    if (options.explain)
        wf_plan_explain(v);
    return WF_OK;
}

static wf_status plan_graph(wf_ctx *ctx, const subject *s, wf_device *device)
{
    wf_report report = {0};
    wf_compile_options o = {.recompute = options.recompute > 0 ? options.recompute : 0};
    wf_plan *plan;
    WF_TRY(parse_without(ctx, options.without, &o.without));
    if (!device->kernels)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "%s compiles whole graphs its own way: there is no plan of ours to show",
                       device->target.name);
    uint64_t begin = wf_clock_ns();
    WF_TRY(wf_plan_new(device, s->graph, &o, NULL, &report, &plan));
    wf_plan_view v = {.title = s->title,
                      .plan = plan,
                      .report = &report,
                      .device = device,
                      .nodes = s->graph->node_count,
                      .seconds = (double)(wf_clock_ns() - begin) / 1e9};
    wf_status status = write_forms(ctx, plan->graph);
    if (status == WF_OK)
        status = show(ctx, &v);
    wf_mem_free(ctx, v.alive);
    wf_plan_free(plan);
    return status;
}

static void list_examples(void)
{
    puts("examples, for weft plan NAME:");
    for (const wf_example *e = wf_examples; e->name; e++)
        printf("  %-12s %-22s %2lld layers, width %4lld, context %4lld\n", e->name, e->doc,
               (long long)e->layers, (long long)e->width, (long long)e->context);
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    wf_device *device = NULL;
    if (count == 0) {
        list_examples();
        return WF_OK;
    }
    subject s = {.name = operands[0]};
    wf_status status = get_graph(ctx, &s);
    if (status == WF_OK)
        status = wf_device_open(ctx, options.device, &device);
    if (status == WF_OK)
        status = plan_graph(ctx, &s, device);
    wf_device_close(device);
    wf_graph_free(s.graph);
    return status;
}

static const wf_flag flags[] = {
    {"form", 'f', "F", "of an example: train, prefill or decode (default train)",
     .text = &options.form},
    {"batch", 'b', "B", "sequences of an example (default: its own)", .whole = &options.batch},
    {"length", 'l', "T", "tokens a sequence (default: the model's context)",
     .whole = &options.length},
    {"precision", 'p', "TYPE", "compute in f32, bf16 or f16", .text = &options.precision},
    {"recompute", 'r', "N", "keep the end of every Nth block only, and compute the rest again",
     .whole = &options.recompute},
    {"without", 'w', "PASSES",
     "leave passes out: all, or some of fold,fuse,recompute,schedule,memory",
     .text = &options.without},
    {"device", 'd', "D", "the device to plan for", .text = &options.device},
    {"explain", 'e', NULL, "what each pass did, memory over time, the largest values, cost by op",
     .on = &options.explain},
    {"svg", 0, "FILE", "draw memory over time and the region", .text = &options.svg},
    {"dot", 0, "FILE",
     "write the graph after all passes for Graphviz (slow from a thousand nodes on)",
     .text = &options.dot},
    {"text", 0, "FILE", "write it as text, which weft plan reads", .text = &options.text},
    WF_FLAG_JSON(&options.json),
    {0},
};

const wf_command wf_cmd_plan = {
    .name = "plan",
    .doc = "memory and cost of a graph, before anything is allocated",
    .operands = "[GRAPH|EXAMPLE]",
    .max_operands = 1,
    .details =
        "GRAPH is a file with a graph as text, its name with a dot or a slash in it; EXAMPLE is a\n"
        "model of a well-known shape. Without either the examples are listed. Figures are exact to\n"
        "the byte for what Weft allocates. What --text wrote has been through the passes: to see\n"
        "the same plan again, leave out fold, which would undo what --recompute did.",
    .example = "weft plan gpt2-124M --batch 4 --precision bf16 --recompute 1 --explain",
    .flags = flags,
    .run = run,
};
