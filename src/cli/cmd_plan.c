/* SPDX-License-Identifier: MIT */
/*
 * cmd_plan.c - weft plan: predicts memory and cost of a graph before anything is allocated.
 *
 * Three subjects: a graph (an example or a file), which is planned here; running a model
 * (plan_run.c); a training run (plan_train.c). Flags that a subject does not use are refused.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/path.h"
#include "base/words.h"
#include "cli/expansion.h"
#include "cli/open.h"
#include "cli/plan.h"
#include "cli/train.h"
#include "device/expand.h"
#include "model/example.h"

#define LARGEST_FILE ((size_t)64 << 20) /* bytes of a graph as text */

static struct {
    const char *form, *without, *expand, *svg, *dot, *text;
    const char *kv;
    int64_t context, sequences, cache, vocab;
    bool train, serve, fit, explain, json, overwrite;
    wf_run_options run; /* from the training flags; 0: not given */
} options = {.context = -1, .sequences = -1, .cache = -1, .vocab = -1};

/* ---- Choices ---- */

/* Parses "fold,fuse" to a bit set; "all" sets every bit. */
static wf_status parse_without(wf_ctx *ctx, const char *text, uint32_t *out)
{
    const char *names[16] = {"all"};
    uint32_t bits[16] = {0};
    int n = 1;
    for (const wf_pass *p; (p = wf_pass_get(n - 1)) && n < 15; n++) {
        names[n] = p->name;
        bits[n] = p->bit;
    }
    names[n] = "memory"; /* not a pass over the graph; comes last */
    bits[n++] = WF_PASS_MEMORY;
    for (int i = 1; i < n; i++)
        bits[0] |= bits[i];
    for (*out = 0; text && *text;) {
        char word[WF_TEXT_WORD + 1];
        size_t length = strcspn(text, ","), len = 0;
        int i = 0;
        wf_text_append(word, sizeof word, &len, "%.*s", (int)(length < 60 ? length : 60), text);
        WF_TRY(wf_words_find(ctx, "pass", word, names, n, &i));
        *out |= bits[i];
        text += length + (text[length] == ',');
    }
    return WF_OK;
}

/* ---- The graph ---- */

/* The graph to plan: an example in one of its forms, or a graph from a file. */
typedef struct {
    const char *name;
    char title[160]; /* describes the graph in the output */
    wf_type compute; /* type of activations */
    wf_graph *graph; /* owned */
} subject;

static wf_status read_graph(wf_ctx *ctx, subject *s)
{
    char *text;
    size_t bytes, len = 0;
    if (options.form || options.run.train.batch || options.run.train.length)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--form, --batch and --length apply to examples, but '%s' is a file",
                       s->name);
    wf_text_append(s->title, sizeof s->title, &len, "%s", s->name);
    WF_TRY(wf_file_read(ctx, s->name, LARGEST_FILE, &text, &bytes));
    wf_status status = wf_graph_parse(ctx, text, bytes, &s->graph);
    wf_mem_free(ctx, text);
    return status == WF_OK ? wf_precision(s->graph, s->compute) : status;
}

/* Chooses types before the gradient is built. */
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
    const wf_train_options *t = &options.run.train;
    const wf_example *e;
    int form = WF_EXAMPLE_TRAIN;
    size_t len = 0;
    WF_TRY(wf_example_find(ctx, s->name, &e));
    if (options.form)
        WF_TRY(wf_words_find(ctx, "form", options.form, names, 3, &form));
    const wf_example_options o = {.form = (wf_example_form)form,
                                  .batch = t->batch ? t->batch : e->batch,
                                  .length = t->length ? t->length : e->context,
                                  .before_grad = set_precision,
                                  .user = s};
    wf_text_append(s->title, sizeof s->title, &len, "%s, %s %lld %s %lld token%s in %s", e->name,
                   words[form].of, (long long)o.batch, words[form].by, (long long)o.length,
                   WF_PLURAL(o.length), wf_type_name(s->compute));
    WF_TRY(wf_example_build(ctx, s->name, &o, &s->graph));
    return form == WF_EXAMPLE_TRAIN ? WF_OK : wf_precision(s->graph, s->compute);
}

/* Reads a file if the name has a slash or a dot, otherwise builds the example of that name. */
static wf_status get_graph(wf_ctx *ctx, subject *s)
{
    s->compute = options.run.train.compute;
    return strpbrk(s->name, "/.") ? read_graph(ctx, s) : build_example(ctx, s);
}

/* Writes --text and --dot from the graph after the passes. */
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

/* ---- Analysing the plan ---- */

/* Adds the cost of a node, and the bytes of the states that it updates. */
static void add_cost(wf_plan_view *v, const wf_node *n)
{
    wf_cost c;
    wf_node_cost(n, &c);
    wf_cost_add(&v->cost, &c);
    /* Counts each state once, at its first update. */
    for (int k = 0; wf_node_is(n, WF_FLAG_UPDATE) && k < n->nout; k++)
        if (n->in[k]->version == 0)
            v->written += wf_type_bytes(n->out[k].type, wf_dims_count(&n->out[k].shape));
}

static wf_status look(wf_ctx *ctx, wf_plan_view *v)
{
    const wf_plan *plan = v->plan;
    uint64_t most = 0;
    v->alive = wf_mem_array(ctx, (size_t)plan->step_count + 1, sizeof *v->alive);
    if (!v->alive)
        return WF_ERR_MEMORY;
    /* Difference array: bytes that begin and end at each step, then the prefix sums. */
    for (int i = 0; i < plan->block_count; i++) {
        const wf_lifetime *b = &plan->blocks[i];
        wf_use_kind kind = wf_plan_use(plan, i);
        v->alive[b->begin][kind] += b->bytes;
        if (b->end + 1 < plan->step_count)
            v->alive[b->end + 1][kind] -= b->bytes; /* unsigned wrap-around cancels in the sum */
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
    for (int i = 0; i < plan->step_count; i++)
        add_cost(v, plan->steps[i].node);
    return WF_OK;
}

static void print(const wf_plan_view *v)
{
    if (options.json) {
        wf_plan_json(v);
        return;
    }
    wf_plan_print(v);
    if (options.explain)
        wf_plan_explain(v);
}

static wf_status show(wf_ctx *ctx, wf_plan_view *v)
{
    WF_TRY(look(ctx, v));
    if (options.svg)
        WF_TRY(wf_plan_svg(ctx, v, options.svg));
    print(v);
    return WF_OK;
}

/* Plans a graph for a device that compiles it whole: a plan without steps. Its cost is that of the
 * graph as written, because only the device's compiler knows what it fuses. */
static wf_status plan_program(wf_ctx *ctx, const subject *s, wf_device *device)
{
    const wf_given unused[] = {{"without", options.without},
                               {"recompute", options.run.train.recompute > 0},
                               {"svg", options.svg}};
    const wf_report none = {0};
    wf_expansion expansions[WF_OP_COUNT] = {0};
    wf_plan plan = {.expansions = expansions, .ctx = ctx};
    wf_plan_view v = {.title = s->title, .plan = &plan, .report = &none, .device = device};
    WF_TRY(wf_flags_refuse(ctx, unused, 3,
                           "has no effect on a device that compiles whole graphs; leave it out"));
    uint64_t begin = wf_clock_ns();
    WF_TRY(wf_plan_memory(device, s->graph, NULL, &plan.memory));
    v.seconds = (double)(wf_clock_ns() - begin) / 1e9;
    v.nodes = s->graph->node_count;
    for (int i = 0; i < s->graph->node_count; i++)
        add_cost(&v, s->graph->nodes[i]);
    WF_TRY(wf_device_expand(device, s->graph, expansions, &plan.graph));
    wf_status status = write_forms(ctx, plan.graph);
    if (status == WF_OK)
        print(&v);
    wf_graph_free(plan.graph);
    return status;
}

static wf_status plan_graph(wf_ctx *ctx, const subject *s, wf_device *device)
{
    wf_report report = {0};
    wf_compile_options o = {.recompute = options.run.train.recompute};
    wf_plan *plan;
    WF_TRY(parse_without(ctx, options.without, &o.without));
    WF_TRY(wf_expand_ops(ctx, device, options.expand));
    if (!device->kernels)
        return plan_program(ctx, s, device);
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
    puts("examples for weft plan NAME:");
    for (const wf_example *e = wf_examples; e->name; e++)
        printf("  %-12s %-22s %2lld layers, width %4lld, context %4lld\n", e->name, e->doc,
               (long long)e->layers, (long long)e->width, (long long)e->context);
}

/* Plans one graph. */
static wf_status run_graph(wf_ctx *ctx, const char *name)
{
    wf_device *device = NULL;
    subject s = {.name = name};
    wf_status status = get_graph(ctx, &s);
    wf_auto_graph work_graph = {s.graph, NULL};
    const wf_auto_work work = wf_auto_planning(&work_graph);
    if (status == WF_OK)
        status = wf_train_device(ctx, &work, &device);
    if (status == WF_OK)
        status = plan_graph(ctx, &s, device);
    if (status == WF_OK && options.explain && !options.json)
        wf_auto_explain();
    wf_device_close(device);
    wf_graph_free(s.graph);
    return status;
}

/* Returns whether `name` is a model, rather than a graph file or an example. */
static bool is_model(const char *name)
{
    return wf_path_ends(name, ".gguf") || wf_path_look(name) == WF_PATH_FOLDER;
}

/* The flags of wf_train_flags that apply to one graph, and those that apply to running a model. */
static const char *const graph_flags[] = {"batch",  "length",  "compute", "recompute",
                                          "device", "threads", "fast",    NULL};
static const char *const model_flags[] = {"device", "threads", "fast", "memory", "compute", NULL};

/* Refuses flags that this plan does not use. name NULL: the examples are listed. */
static wf_status check_unused(wf_ctx *ctx, const char *name, bool model)
{
    const wf_given training[] = {{"vocab", options.vocab >= 0}};
    const wf_given running[] = {{"ctx-size", options.context >= 0},
                                {"parallel", options.sequences >= 0},
                                {"cache-tokens", options.cache >= 0},
                                {"cache-type-k", options.kv},
                                {"serve", options.serve}};
    const wf_given graphs[] = {{"form", options.form},     {"without", options.without},
                               {"expand", options.expand}, {"svg", options.svg},
                               {"dot", options.dot},       {"text", options.text}};
    const wf_given views[] = {{"explain", options.explain}, {"json", options.json}};
    const char *unused = options.train ? NULL : wf_train_unused(model ? model_flags : graph_flags);
    if (unused)
        return wf_fail(ctx, WF_ERR_USAGE, "--%s applies to training; add --train to plan a run",
                       unused);
    if (!options.train)
        WF_TRY(wf_flags_refuse(ctx, training, 1, "applies to training; add --train to plan a run"));
    if (!model || options.train)
        WF_TRY(wf_flags_refuse(
            ctx, running, 5,
            "applies to running a model; give its file or folder, without --train"));
    if (options.fit && !options.serve)
        return wf_fail(ctx, WF_ERR_USAGE, "--fit needs --serve; add --serve");
    if (!name || model || options.train)
        WF_TRY(wf_flags_refuse(ctx, graphs, 6,
                               "applies to examples and graphs; name one, without --train"));
    if (!name && !options.train)
        return wf_flags_refuse(ctx, views, 2, "needs a MODEL, EXAMPLE or GRAPH to plan");
    return WF_OK;
}

static wf_status check_outputs(wf_ctx *ctx, const char *name)
{
    const char *const outputs[] = {options.svg, options.dot, options.text};
    for (int i = 0; i < 3; i++) {
        if (outputs[i])
            WF_TRY(wf_output_check(ctx, outputs[i], options.overwrite, &name, 1));
        for (int k = 0; outputs[i] && k < i; k++)
            if (outputs[k] && strcmp(outputs[k], outputs[i]) == 0)
                return wf_fail(ctx, WF_ERR_USAGE, "two flags write '%s'; give each its own file",
                               outputs[i]);
    }
    return WF_OK;
}

static wf_status run_model(wf_ctx *ctx, const char *path)
{
    wf_plan_run_options o = {.context = options.context,
                             .sequences = options.sequences,
                             .cache = options.cache,
                             .kv = options.kv,
                             .compute = wf_train_compute(),
                             .serve = options.serve,
                             .fit = options.fit};
    WF_TRY(wf_train_memory(ctx, &o.memory));
    return wf_plan_run(ctx, path, &o, options.json);
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    const char *name = count > 0 ? operands[0] : NULL;
    bool model = name && is_model(name);
    WF_TRY(check_unused(ctx, name, model));
    WF_TRY(check_outputs(ctx, name));
    if (model && !options.train)
        return run_model(ctx, name);
    WF_TRY(wf_train_options_get(ctx, model ? name : NULL, &options.run));
    if (options.train) {
        if (name && !model)
            options.run.train.preset = name;
        return wf_plan_train(ctx, &options.run, options.vocab, options.json,
                             options.explain && !options.json);
    }
    if (!name) {
        list_examples();
        return WF_OK;
    }
    return run_graph(ctx, name);
}

bool wf_example_words(int index, const char **name, const char **doc)
{
    *name = wf_examples[index].name;
    *doc = wf_examples[index].doc;
    return *name != NULL;
}

/* Lists the values of --without: "all", the passes, and "memory". */
static bool pass_words(int index, const char **name, const char **doc)
{
    /* "memory" comes once, after the last pass. */
    const wf_pass *before = index > 1 ? wf_pass_get(index - 2) : NULL;
    const wf_pass *pass = index > 0 ? wf_pass_get(index - 1) : NULL;
    *doc = NULL;
    *name = index == 0 ? "all" : pass ? pass->name : "memory";
    return index == 0 || pass || before;
}

static const wf_flag flags[] = {
    {"train", 0, NULL, "plan a training run, with the flags of weft train below",
     .on = &options.train},
    {"vocab", 0, "N", "vocabulary size", .whole = &options.vocab, .range = "1,2147483647",
     .fallback = "the EXAMPLE's, else 32000"},
    {"ctx-size", 'c', "N", "MODEL: context length in tokens; 0: the model's maximum",
     .whole = &options.context, .fallback = "the maximum, at most 4096"},
    {"parallel", 0, "N", "MODEL: sequences at once", .whole = &options.sequences, .range = "1,1024",
     .also = "-np", .fallback = "1"},
    {"serve", 0, NULL, "MODEL: plan an engine for many requests", .on = &options.serve},
    {"fit", 0, NULL,
     "with --serve: choose the context, sequences and KV cache size to fit in memory",
     .on = &options.fit},
    {"cache-tokens", 0, "N", "MODEL: size of the KV cache in tokens, shared by all sequences",
     .whole = &options.cache, .range = WF_CACHE_RANGE, .fallback = "the context of every sequence"},
    {"cache-type-k", 0, "TYPE", "MODEL: type of the KV cache", .text = &options.kv, .also = "-ctk",
     .fallback = "f16", .offer = {.choices = WF_KV_NAMES}},
    {"form", 'f', "F", "EXAMPLE: the graph to plan", .text = &options.form, .fallback = "train",
     .offer = {.choices = "train prefill decode"}},
    {"without", 'w', "PASSES", "skip passes: all, or some of fold,fuse,recompute,schedule,memory",
     .text = &options.without, .offer = {.words = pass_words}},
    {"expand", 0, "OPS", "expand these ops, such as glu,softmax, or all, even if a kernel fits",
     .text = &options.expand, .offer = {.words = wf_op_words}},
    {"explain", 'e', NULL,
     "print the changes of each pass, memory over time, the largest values and the cost by op",
     .on = &options.explain},
    {"svg", 0, "FILE", "draw memory over time", .text = &options.svg, .offer = WF_OFFER_FILES},
    {"dot", 0, "FILE", "write the final graph for Graphviz (slow above a thousand nodes)",
     .text = &options.dot, .offer = WF_OFFER_FILES},
    {"text", 0, "FILE", "write the final graph as text, which weft plan reads",
     .text = &options.text, .offer = WF_OFFER_FILES},
    WF_FLAG_OVERWRITE(&options.overwrite),
    WF_FLAG_JSON(&options.json),
    {.doc = "batches, types, device; with --train all settings of a run", .more = wf_train_flags},
    {.doc = "with --train: the shape of a new model", .more = wf_shape_flags},
    {.doc = "with --train: adapters", .more = wf_adapter_flags},
    {.doc = "with --train: samples", .more = wf_sample_flags},
    {0},
};

const wf_command wf_cmd_plan = {
    .name = "plan",
    .doc = "predict memory and time of a model, a training run or a graph",
    .operands = "[MODEL|EXAMPLE|GRAPH]",
    .max_operands = 1,
    .offers = {{.words = wf_example_words, .paths = WF_PATHS_FILES}},
    .details =
        "MODEL is a GGUF file or a Hugging Face folder: weft plan plans running it or, with "
        "--train, finetuning it. EXAMPLE is a well-known shape: weft plan plans one of its graphs "
        "or, with --train, a whole run; --depth and --config work, too. GRAPH is a file with a "
        "graph as text. Without an argument, weft plan lists the examples. For a MODEL without "
        "--train, --compute is auto or f32, as in weft run.\n\n"
        "The memory that Weft allocates is exact to the byte. Time is predicted from the measured "
        "peak of the device. --text writes the graph after the passes. To plan this text again "
        "with the same result, add --without fold, because fold would undo --recompute.",
    .examples = {"weft plan gpt2-124M --train --batch 4 --compute bf16 --recompute 1",
                 "weft plan model.gguf --ctx-size 8192 --parallel 4",
                 "weft plan llama-30M --explain --svg memory.svg"},
    .flags = flags,
    .run = run,
};
