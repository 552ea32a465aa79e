/* SPDX-License-Identifier: MIT */
/* cmd_info.c - weft info: describes a model and the memory to run it. */
#include <string.h>

#include "cli/info.h"
#include "cli/open.h"
#include "cli/plan.h"
#include "cli/sampling.h"
#include "cli/screen.h"
#include "infer/engine.h"
#include "model/config_json.h"
#include "model/family.h"

#define BAR 30 /* columns */

static struct {
    bool json, tensors, keys, template;
} options;

/* ---- Finding out ---- */

/* Counts a source of a weight. A tensor that several sources share counts with its first row. */
static void count_source(wf_model_view *v, const wf_source *s, size_t bytes)
{
    const wf_stored *t = s->from;
    int k = 0;
    while (k < v->types && strcmp(v->type[k].name, t->type_name) != 0)
        k++;
    /* Cannot happen for known types; an unknown spelling must not overflow the table. */
    if (k == WF_VIEW_TYPES)
        return;
    v->types += k == v->types;
    v->type[k].name = t->type_name;
    v->type[k].type = t->type;
    v->type[k].tensors += s->first == 0 && s->skip == 0;
    v->type[k].bytes += bytes;
    /* Insertion keeps the list sorted. */
    for (; k > 0 && v->type[k].bytes > v->type[k - 1].bytes; k--) {
        wf_type_share other = v->type[k];
        v->type[k] = v->type[k - 1];
        v->type[k - 1] = other;
    }
}

/* Counts tensors and bytes by type, sorted by bytes, largest first. */
static void count_types(wf_model_view *v)
{
    for (int i = 0; i < v->model->weights; i++) {
        const wf_model_weight_info *w = &v->model->weight[i];
        for (int k = 0; k < w->sources; k++)
            count_source(v, &w->source[k], wf_source_bytes(w, k));
    }
}

static void count_control(wf_model_view *v)
{
    for (int32_t i = 0; v->tokenizer && i < wf_tokenizer_count(v->tokenizer); i++)
        v->control += wf_tokenizer_kind(v->tokenizer, i) == WF_TOKEN_CONTROL;
}

/* Plans one sequence of the full context on the cpu device. */
static wf_status plan_memory(wf_ctx *ctx, wf_model_view *v)
{
    wf_device *device;
    int64_t tokens;
    const wf_engine_options o = {.context = v->info.context};
    WF_TRY(wf_device_open(ctx, "cpu", &device));
    wf_status status = wf_engine_plan(device, v->model, &o, &v->memory);
    wf_device_close(device);
    if (status == WF_OK)
        status = wf_engine_limits(v->model, &o, &tokens, &v->kv);
    return status;
}

/* ---- Text ---- */

static void print_types(const wf_model_view *v)
{
    static const char bar[BAR + 1] = "##############################";
    char bytes[32];
    puts("\nweights");
    for (int i = 0; i < v->types; i++) {
        const wf_type_share *t = &v->type[i];
        double part = v->info.bytes ? (double)t->bytes / (double)v->info.bytes : 0;
        printf("  %-6s %5d tensor%s %10s  %5.1f%%  %.*s\n", t->name, t->tensors,
               t->tensors == 1 ? " " : "s", wf_plan_bytes(t->bytes, bytes, sizeof bytes),
               100 * part, (int)(part * BAR + 0.5), bar);
    }
    wf_plan_note_types(v->model, NULL);
}

static void print_special(const wf_model_view *v)
{
    static const struct {
        const char *name;
        wf_special which;
    } specials[] = {{"bos", WF_SPECIAL_BOS},
                    {"eos", WF_SPECIAL_EOS},
                    {"unknown", WF_SPECIAL_UNKNOWN},
                    {"padding", WF_SPECIAL_PAD}};
    if (!v->tokenizer) {
        printf("  tokenizer   none: %s\n", WF_FOREIGN(v->model->no_tokenizer));
        return;
    }
    printf("  tokenizer   %d token%s, %d of them %s", wf_tokenizer_count(v->tokenizer),
           WF_PLURAL(wf_tokenizer_count(v->tokenizer)), v->control,
           v->control == 1 ? "a control token" : "control tokens");
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        int32_t id = wf_tokenizer_special(v->tokenizer, specials[i].which);
        size_t bytes = 0;
        const char *token = id >= 0 ? wf_tokenizer_token(v->tokenizer, id, &bytes) : NULL;
        if (token)
            printf(", %s %d %s", specials[i].name, id, WF_FOREIGN_BYTES(token, bytes));
    }
    putchar('\n');
}

static void print_memory(const wf_model_view *v)
{
    char all[32], weights[32], kv[32], rest[32];
    const wf_memory *m = &v->memory;
    size_t copied = m->states > v->kv ? m->states - v->kv : 0;
    printf("  memory      %s to run with %lld token%s: weights %s, KV cache %s, rest %s\n",
           wf_plan_bytes(m->mapped + m->states + m->activations + m->ports, all, sizeof all),
           (long long)v->info.context, WF_PLURAL(v->info.context),
           wf_plan_bytes(m->mapped + copied, weights, sizeof weights),
           wf_plan_bytes(v->kv, kv, sizeof kv),
           wf_plan_bytes(m->activations + m->ports, rest, sizeof rest));
}

/* Only the first line: templates are long programs. */
static void print_template(const wf_model_view *v)
{
    const char *t = v->info.chat_template;
    if (!t) {
        puts("  chat        no template");
        return;
    }
    t += strspn(t, " \t\r\n");
    size_t line = strcspn(t, "\r\n");
    printf("  chat        %s\n", WF_FOREIGN_BYTES(t, line));
}

static void print_sampling(const wf_model_view *v)
{
    const wf_sampling_defaults *d = &v->model->sampling;
    char text[WF_SAMPLING_TEXT];
    wf_sampling s;
    wf_sampling_resolve(d, &s);
    printf("  sampling    %s: %s\n", wf_sampling_any(d) ? "set by the model" : "Weft's defaults",
           wf_sampling_text(&s, text));
    for (int i = 0; i < d->remarks && i < WF_MAX_REMARKS; i++)
        printf("              %s\n", d->remark[i]);
}

/* The sizes of one layer. */
static void print_sizes(const wf_layer *l)
{
    printf("hidden %lld, %lld head%s of %lld, %lld KV head%s\n", (long long)l->hidden,
           (long long)l->heads, WF_PLURAL(l->heads), (long long)l->key_dim, (long long)l->kv_heads,
           WF_PLURAL(l->kv_heads));
}

/* Returns the end of the layers from `begin` on that have its sizes. */
static int64_t same_until(const wf_config *c, int64_t begin)
{
    int64_t end = begin + 1;
    while (end < c->layers &&
           wf_layer_same_sizes(wf_config_layer(c, begin), wf_config_layer(c, end)))
        end++;
    return end;
}

/* Sizes in the same line if all layers have them, else in a line for each run of equal layers. */
static void print_shape(const wf_config *c)
{
    enum { LISTED = 64 };
    printf("  shape       %lld layer%s, width %lld", (long long)c->layers, WF_PLURAL(c->layers),
           (long long)c->width);
    if (same_until(c, 0) == c->layers) {
        printf(", ");
        print_sizes(wf_config_layer(c, 0));
        return;
    }
    puts("");
    int64_t end = 0;
    for (int lines = 0; end < c->layers && lines < LISTED; lines++) {
        const int64_t begin = end;
        char which[48];
        end = same_until(c, begin);
        snprintf(which, sizeof which, end - begin > 1 ? "layers %lld-%lld" : "layer %lld",
                 (long long)begin, (long long)end - 1);
        printf("  %-11s ", which);
        print_sizes(wf_config_layer(c, begin));
    }
    if (end < c->layers)
        printf("              and %lld more layer%s\n", (long long)(c->layers - end),
               WF_PLURAL(c->layers - end));
}

/* Windows and missing rotary positions. Layers have the numbers of their weights, from 0. */
static void print_layers(const wf_model_view *v)
{
    enum { LISTED = 16 };
    const wf_config *c = &v->model->config;
    int64_t windows = 0, without = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        windows += wf_config_layer(c, i)->window > 0;
        without += wf_config_layer(c, i)->rope == WF_NO_ROPE;
    }
    if (windows > 0)
        printf(", window %lld", (long long)v->info.window);
    if (windows > 0 && windows < c->layers)
        printf(" in %lld of %lld layers", (long long)windows, (long long)c->layers);
    if (without == 0)
        return;
    printf(", no rotary positions in layer%s", WF_PLURAL(without));
    for (int64_t i = 0, listed = 0; i < c->layers && listed <= LISTED; i++)
        if (wf_config_layer(c, i)->rope == WF_NO_ROPE && listed++ < LISTED)
            printf("%s %lld", listed > 1 ? "," : "", (long long)i);
    if (without > LISTED)
        printf(", ...");
}

/* Rotary positions other than plain ones over whole heads. */
static void print_positions(const wf_model_view *v)
{
    const wf_config *c = &v->model->config;
    const wf_rotary *r = &c->rope[0];
    if (!c->family->rotary)
        return;
    if (r->scaling != WF_ROPE_PLAIN) {
        printf(", scaling %s", wf_rope_scaling_name(r->scaling));
        if (r->factor > 0)
            printf(" by %g", r->factor);
        if (r->original > 0)
            printf(" beyond %g tokens", r->original);
    }
    if (r->dims < c->all.key_dim)
        printf(", on %lld of %lld dimensions", (long long)r->dims, (long long)c->all.key_dim);
}

static void print_info(const wf_model_view *v)
{
    const wf_model_info *i = &v->info;
    char count[16], bytes[32];
    printf("%s\n", WF_FOREIGN(i->name));
    printf("  family      %s: %s\n", i->family, v->model->config.family->title);
    printf("  format      %s, %d file%s, %s of weights\n", i->format, i->files, WF_PLURAL(i->files),
           wf_plan_bytes(i->bytes, bytes, sizeof bytes));
    if (i->skipped)
        printf("  skipped     %d tensor%s of vision, audio or multi-token prediction\n", i->skipped,
               WF_PLURAL(i->skipped));
    printf("  parameters  %s (%lld)\n", wf_open_count(i->parameters, count, sizeof count),
           (long long)i->parameters);
    print_shape(&v->model->config);
    printf("  context     %lld token%s", (long long)i->context, WF_PLURAL(i->context));
    if (i->rope_base > 0)
        printf(", rotary positions, base %g", i->rope_base);
    else
        printf(", learned positions");
    print_positions(v);
    print_layers(v);
    printf("\n  vocabulary  %lld token%s, output matrix %s\n", (long long)i->vocab,
           WF_PLURAL(i->vocab), i->tied ? "tied to the embedding" : "separate");
    print_special(v);
    print_template(v);
    print_sampling(v);
    print_memory(v);
    print_types(v);
}

static void print_tensors(const wf_model_view *v)
{
    const wf_store *s = v->model->store;
    for (int i = 0; i < s->count; i++) {
        const wf_stored *t = &s->tensor[i];
        char shape[96];
        size_t len = 0;
        shape[0] = '\0';
        for (int k = 0; k < (int)t->shape.n; k++)
            wf_text_append(shape, sizeof shape, &len, "%s%lld", k ? " x " : "",
                           (long long)t->shape.d[k]);
        printf("%-44s %-6s %-20s %12zu\n", WF_FOREIGN(t->name), t->type_name, shape, t->bytes);
    }
}

/* Through wf_screen, which makes control characters harmless on a terminal. */
static void put_template(const char *text)
{
    wf_screen screen;
    wf_screen_begin(&screen, false);
    if (wf_screen_write(&screen, text, strlen(text)))
        wf_screen_end(&screen);
}

/* ---- The command ---- */

/* Checks the combination of flags, then prints the requested form. Memory is planned only for the
 * summary. */
static wf_status show(wf_ctx *ctx, wf_model_view *v)
{
    const wf_given lists[] = {{"tensors", options.tensors}, {"keys", options.keys}};
    if (options.template)
        WF_TRY(
            wf_flags_refuse(ctx, lists, 2, "and --template exclude each other; give one of them"));
    if (options.keys && !options.json)
        WF_TRY(wf_flags_refuse(ctx, lists, 1,
                               "and --keys exclude each other; give one of them, or "
                               "--json"));
    if (options.template && !v->info.chat_template)
        return wf_fail(ctx, WF_ERR_USAGE, "%s has no chat template", WF_SHOWN(v->info.name));
    if (options.keys && !v->model->gguf)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--keys applies to GGUF files, but %s is a folder; see its "
                       "config.json",
                       WF_SHOWN(v->info.name));
    if (options.template && options.json) {
        wf_json j;
        wf_json_begin(&j, stdout);
        wf_json_string(&j, v->info.chat_template);
        wf_json_end(&j);
    } else if (options.template) {
        put_template(v->info.chat_template);
    } else if (options.keys && !options.json) {
        wf_info_keys(v->model->gguf);
    } else if (options.tensors && !options.json) {
        print_tensors(v);
    } else {
        count_types(v);
        count_control(v);
        WF_TRY(plan_memory(ctx, v));
        if (options.json)
            wf_info_json(v, options.tensors, options.keys);
        else
            print_info(v);
    }
    return WF_OK;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    const char *path;
    wf_model_view v = {.model = NULL};
    WF_TRY(wf_open_path(ctx, operands, count, &path));
    WF_TRY(wf_model_open(ctx, path, &v.model));
    wf_model_get_info(v.model, &v.info);
    v.tokenizer = wf_model_tokenizer(v.model);
    wf_status status = show(ctx, &v);
    wf_model_close(v.model);
    return status;
}

static const wf_flag flags[] = {
    {"model", 'm', "MODEL", "the model, instead of the first argument", .text = &wf_open_set.model,
     .operand = true, .offer = WF_OFFER_FILES},
    {"tensors", 0, NULL, "list the tensors of the files", .on = &options.tensors},
    {"keys", 0, NULL, "list the metadata keys of a GGUF file", .on = &options.keys},
    {"template", 0, NULL, "print only the chat template", .on = &options.template},
    WF_FLAG_JSON(&options.json),
    {0},
};

const wf_command wf_cmd_info = {
    .name = "info",
    .doc = "describe a model: shape, types, tokenizer, memory",
    .operands = "MODEL",
    .max_operands = 1,
    .offers = {WF_OFFER_FILES},
    .details =
        "MODEL is a GGUF file or a Hugging Face folder. Memory is given for the cpu device and one "
        "sequence of the model's full context, with an f16 KV cache. Weights that are mapped from "
        "the file use memory only for the pages that are read.",
    .examples = {"weft info model.gguf", "weft info model.gguf --tensors",
                 "weft info model.gguf --json"},
    .flags = flags,
    .run = run,
};
