/* SPDX-License-Identifier: MIT */
/*
 * adapter.c - chooses the linears of a LoRA adapter, adds it to a graph, initializes its states.
 *
 * The list of linears is not a second table: it comes from building the model's smallest graph with
 * a hook (wf_build_options.adapt) that records each call. The same hook later adds the adapter.
 */
#include "model/adapter.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "model/adapter_priv.h"

#define DEFAULT_RANK 16 /* adapter.h documents it */

/* ---- The linears of a model ---- */

typedef struct {
    wf_adapter *a;
    int room;         /* capacity of a->linear */
    wf_status status; /* the first failure; the hook cannot return one */
} collector;

/* Writes the module's name in transformers. In a multimodal model the decoder is language_model. */
static const wf_weight_name *name_module(const wf_config *c, const char *name,
                                         char module[WF_NAME_BYTES])
{
    char full[WF_NAME_BYTES], other[WF_NAME_BYTES];
    const size_t prefix = strlen(c->family->prefix);
    size_t len = 0;
    /* wf_family_hugging_face expects a suffix: here a dot, which is dropped again. */
    wf_text_append(full, sizeof full, &len, "%s.", name);
    const wf_weight_name *row = wf_family_hugging_face(c->family, full, true, other);
    wf_assert(row);
    other[strlen(other) - 1] = '\0';
    len = 0;
    if (c->wrapped && strncmp(other, c->family->prefix, prefix) == 0)
        wf_text_append(module, WF_NAME_BYTES, &len, "model.language_model.%s", other + prefix);
    else
        wf_text_append(module, WF_NAME_BYTES, &len, "%s", other);
    return row;
}

static wf_status add_linear(collector *c, const char *name, int64_t in, int64_t out)
{
    wf_adapter *a = c->a;
    char module[WF_NAME_BYTES];
    wf_adapted *grown = wf_mem_room(a->ctx, a->linear, a->linears, &c->room, sizeof *grown);
    if (!grown)
        return WF_ERR_MEMORY;
    a->linear = grown;
    const wf_weight_name *row = name_module(&a->config, name, module);
    wf_adapted *l = &a->linear[a->linears++];
    *l = (wf_adapted){.row = row, .in = in, .out = out};
    l->name = wf_arena_strdup(&a->arena, name);
    l->module = wf_arena_strdup(&a->arena, module);
    return l->name && l->module ? WF_OK : WF_ERR_MEMORY;
}

static wf_value *collect(void *user, wf_builder *b, const char *name, wf_value *x, wf_value *y)
{
    collector *c = user;
    (void)b;
    if (x && y && c->status == WF_OK)
        c->status = add_linear(c, name, wf_dims_last(&x->shape), wf_dims_last(&y->shape));
    return y;
}

/* Lists all linears of the model: builds the smallest graph, whose builder calls collect() for
 * each. */
static wf_status list_linears(wf_adapter *a)
{
    collector c = {.a = a};
    const wf_build_options options = {
        .form = WF_FORM_TRAIN, .tokens = 1, .sequences = 1, .adapt = collect, .adapt_user = &c};
    wf_graph *g;
    WF_TRY(wf_graph_new(a->ctx, &g));
    wf_model_graph(g, &a->config, &options, NULL);
    wf_status status = wf_graph_status(g);
    wf_graph_free(g);
    return status != WF_OK ? status : c.status;
}

wf_status wf_adapter_begin(wf_ctx *ctx, const wf_config *config, wf_adapter **out)
{
    *out = NULL;
    wf_adapter *a = wf_mem_new(ctx, sizeof *a);
    if (!a)
        return WF_ERR_MEMORY;
    a->ctx = ctx;
    a->config = *config;
    wf_arena_init(&a->arena, ctx);
    wf_store_init(&a->store, ctx);
    wf_status status = list_linears(a);
    if (status == WF_OK)
        *out = a;
    else
        wf_adapter_free(a);
    return status;
}

void wf_adapter_free(wf_adapter *a)
{
    if (!a)
        return;
    wf_store_free(&a->store);
    wf_mem_free(a->ctx, a->linear);
    wf_arena_free(&a->arena);
    wf_mem_free(a->ctx, a);
}

/* ---- Targets ---- */

bool wf_adapter_ends(const char *name, const char *part, size_t bytes)
{
    size_t length = strlen(name);
    return bytes > 0 && length >= bytes && memcmp(name + length - bytes, part, bytes) == 0 &&
           (length == bytes || name[length - bytes - 1] == '.');
}

/* Returns the part of the name after "blk.3.", or NULL if the linear is outside the blocks. */
static const char *in_block(const wf_adapted *l)
{
    return strncmp(l->name, "blk.", 4) == 0 ? strchr(l->name + 4, '.') + 1 : NULL;
}

/* Words that select several linears, by the prefix of their names inside a block. */
static const struct {
    const char *word, *begin;
} groups[] = {{"all", ""}, {"all-linear", ""}, {"attention", "attn_"}, {"mlp", "ffn_"}};
#define GROUPS ((int)(sizeof groups / sizeof *groups))

static bool is_target(const wf_adapted *l, const char *word, size_t bytes)
{
    const char *short_name = in_block(l);
    for (int i = 0; i < GROUPS && short_name; i++)
        if (strlen(groups[i].word) == bytes && memcmp(groups[i].word, word, bytes) == 0 &&
            strncmp(short_name, groups[i].begin, strlen(groups[i].begin)) == 0)
            return true;
    return wf_adapter_ends(l->name, word, bytes) || wf_adapter_ends(l->module, word, bytes);
}

/* Lists the linears of the first block and those outside of blocks. */
static wf_status refuse_target(const wf_adapter *a, const char *word, size_t bytes)
{
    char shown[WF_TEXT_SHOWN], known[300];
    size_t len = 0;
    for (int i = 0; i < a->linears; i++) {
        const char *name = in_block(&a->linear[i]);
        if (!name || strncmp(a->linear[i].name, "blk.0.", 6) == 0)
            wf_text_append(known, sizeof known, &len, "%s%s", len ? ", " : "",
                           name ? name : a->linear[i].name);
    }
    return wf_fail(
        a->ctx, WF_ERR_USAGE,
        "the model has no linear '%s' to adapt; its linears are %s, and the words attention, "
        "mlp and all select several",
        wf_text_show(shown, word, bytes), known);
}

/* Keeps the linears that a word of the comma-separated list selects. Each word must select at least
 * one. keep: zeroed, [linears]. */
static wf_status choose(wf_adapter *a, const char *targets, bool *keep)
{
    const char *word = targets, *end;
    for (; word; word = *end ? end + 1 : NULL) {
        bool found = false;
        size_t bytes = strcspn(word, ",");
        end = word + bytes;
        for (int i = 0; i < a->linears; i++) {
            bool match = is_target(&a->linear[i], word, bytes);
            keep[i] |= match;
            found |= match;
        }
        if (!found)
            return refuse_target(a, word, bytes);
    }
    int n = 0;
    for (int i = 0; i < a->linears; i++)
        if (keep[i])
            a->linear[n++] = a->linear[i];
    a->linears = n;
    return WF_OK;
}

/* ---- Creating an adapter ---- */

wf_status wf_adapter_set(wf_adapter *a, const char *what, const wf_adapter_options *options,
                         double strength)
{
    wf_adapter_options o = *options;
    if (o.rank < 1 || o.rank > WF_ADAPTER_RANK)
        return wf_fail(a->ctx, WF_ERR_USAGE, "%s has rank %lld; the rank must be 1 to %d", what,
                       (long long)o.rank, WF_ADAPTER_RANK);
    if (!isfinite(o.alpha) || !isfinite(strength))
        return wf_fail(a->ctx, WF_ERR_USAGE, "the alpha or scale of %s is not a finite number",
                       what);
    if (!(o.dropout >= 0 && o.dropout < 1))
        return wf_fail(a->ctx, WF_ERR_USAGE,
                       "%s has a dropout of %g; dropout must be at least 0 and below 1", what,
                       o.dropout);
    o.targets = NULL;
    a->options = o;
    a->scale = strength * o.alpha / (o.rslora ? sqrt((double)o.rank) : (double)o.rank);
    return WF_OK;
}

wf_status wf_adapter_name(wf_adapter *a, int number)
{
    for (int i = 0; i < a->linears; i++)
        for (int k = 0; k < 2; k++) {
            char name[WF_NAME_BYTES];
            size_t len = 0;
            wf_text_append(name, sizeof name, &len, "%s.lora_%c", a->linear[i].name, "ab"[k]);
            if (number)
                wf_text_append(name, sizeof name, &len, ".%d", number);
            a->linear[i].state[k] = wf_arena_strdup(&a->arena, name);
            if (!a->linear[i].state[k])
                return WF_ERR_MEMORY;
        }
    return WF_OK;
}

/* Chooses the targets and fills in the defaults. */
static wf_status make(wf_adapter *a, const wf_adapter_options *options)
{
    wf_adapter_options o = *options;
    bool *keep = wf_mem_array(a->ctx, (size_t)a->linears, sizeof *keep);
    wf_status status =
        keep ? choose(a, o.targets && *o.targets ? o.targets : "all", keep) : WF_ERR_MEMORY;
    wf_mem_free(a->ctx, keep);
    WF_TRY(status);
    o.rank = o.rank ? o.rank : DEFAULT_RANK;
    o.alpha = o.alpha != 0 ? o.alpha : 2 * (double)o.rank;
    WF_TRY(wf_adapter_set(a, "an adapter", &o, 1));
    return wf_adapter_name(a, 0);
}

wf_status wf_adapter_new(wf_ctx *ctx, const wf_config *config, const wf_adapter_options *options,
                         wf_adapter **out)
{
    const wf_adapter_options defaults = {0};
    WF_TRY(wf_adapter_begin(ctx, config, out));
    wf_status status = make(*out, options ? options : &defaults);
    if (status != WF_OK) {
        wf_adapter_free(*out);
        *out = NULL;
    }
    return status;
}

void wf_adapter_get_options(const wf_adapter *a, wf_adapter_options *out)
{
    *out = a->options;
}

/* ---- Graph ---- */

wf_value *wf_adapter_apply(void *adapter, wf_builder *b, const char *name, wf_value *x, wf_value *y)
{
    const wf_adapter *a = adapter;
    const wf_adapted *l = a->linear, *end = a->linear + a->linears;
    const int64_t r = a->options.rank;
    while (l < end && strcmp(l->name, name) != 0)
        l++;
    if (l == end)
        return y;
    wf_value *down = wf_state(b->g, l->state[0], WF_F32, 2, (int64_t[]){r, l->in});
    wf_value *up = wf_state(b->g, l->state[1], WF_F32, 2, (int64_t[]){l->out, r});
    if (b->key && a->options.dropout > 0)
        x = wf_dropout(b->g, x, b->key, a->options.dropout);
    /* Scale here, where each token has r values, not after B, where it has `out`. */
    wf_value *h = wf_scale(b->g, wf_linear(b->g, x, down, NULL), a->scale);
    /* Not wf_part_add: the adapter is part of its branch and gets no dropout of its own. */
    return wf_binary(b->g, "add", y, wf_linear(b->g, h, up, NULL));
}

/* ---- States ---- */

bool wf_adapter_tensor(const wf_adapter *a, int index, wf_info *out)
{
    if (index < 0 || index >= 2 * a->linears)
        return false;
    const wf_adapted *l = &a->linear[index / 2];
    const int64_t r = a->options.rank;
    const bool up = index % 2;
    *out = (wf_info){.name = l->state[up], .type = WF_F32, .rank = 2};
    out->dim[0] = up ? l->out : r;
    out->dim[1] = up ? r : l->in;
    out->bytes = wf_type_bytes(WF_F32, out->dim[0] * out->dim[1]);
    return true;
}

int wf_adapter_find(const wf_adapter *a, const char *weight)
{
    for (int i = 0; i < a->linears; i++) {
        size_t length = strlen(a->linear[i].name);
        if (strncmp(a->linear[i].name, weight, length) == 0 &&
            strcmp(weight + length, ".weight") == 0)
            return 2 * i;
    }
    return -1;
}

double wf_adapter_scale(const wf_adapter *a)
{
    return a->scale;
}

void wf_adapter_init(const wf_adapter *a, uint64_t seed, int index, float *to)
{
    wf_info info;
    wf_rng rng;
    if (!wf_adapter_tensor(a, index, &info))
        return;
    int64_t count = info.dim[0] * info.dim[1];
    /* torch's kaiming_uniform with a = sqrt(5): the bound is sqrt(6 / (1 + 5) / in). */
    double bound = 1 / sqrt((double)info.dim[1]);
    wf_rng_init(&rng, seed, (uint64_t)index);
    for (int64_t i = 0; i < count; i++)
        to[i] = index % 2 ? 0.0f : (float)(bound * (2 * wf_rng_unit(&rng) - 1));
}
