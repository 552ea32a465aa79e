/* SPDX-License-Identifier: MIT */
/*
 * adapter_open.c - opens a PEFT folder: checks its configuration and finds its matrices.
 *
 * adapter_config.json and adapter_model.safetensors are foreign files. Every tensor must belong to
 * a linear of the model and have its shape; every linear that the configuration selects must have
 * both matrices. Options that would change the result are refused by name rather than ignored.
 */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "base/path.h"
#include "format/safetensors.h"
#include "model/adapter_priv.h"
#include "model/rows.h"

#define CONFIG_BYTES ((size_t)1 << 20) /* limit of adapter_config.json */

typedef struct {
    wf_adapter *a;
    const char *path;           /* of the folder */
    const wf_json_node *config; /* adapter_config.json */
} reader;

/* ---- adapter_config.json ---- */

static wf_status fail_folder(const reader *r, const char *why)
{
    return wf_fail(r->a->ctx, WF_ERR_FORMAT, "cannot read the adapter '%s': %s", r->path, why);
}

static wf_status read_config(reader *r)
{
    wf_adapter *a = r->a;
    char *text;
    size_t bytes;
    wf_json_node *root;
    if (wf_path_look(r->path) != WF_PATH_FOLDER)
        return fail_folder(r, "the folder does not exist");
    const char *path = wf_path_join(&a->arena, r->path, "adapter_config.json");
    if (!path)
        return WF_ERR_MEMORY;
    if (wf_path_look(path) == WF_PATH_NONE)
        return fail_folder(r, "adapter_config.json is missing");
    WF_TRY(wf_file_read(a->ctx, path, CONFIG_BYTES, &text, &bytes));
    wf_status status = wf_json_parse(&a->arena, path, text, bytes, &root);
    wf_mem_free(a->ctx, text);
    r->config = status == WF_OK ? root : NULL;
    if (status == WF_OK && root->kind != WF_JSON_OBJECT)
        return fail_folder(r, "adapter_config.json is not a JSON object");
    return status;
}

/* Returns whether an option has a value other than null, false, 0 or empty. */
static bool is_set(const wf_json_node *n)
{
    return n && (n->kind == WF_JSON_BOOL     ? n->boolean
                 : n->kind == WF_JSON_STRING ? n->bytes > 0
                 : n->kind == WF_JSON_NUMBER ? n->number != 0
                                             : n->count > 0);
}

static wf_status refuse_option(const reader *r, const char *key, const char *value)
{
    char shown[WF_TEXT_SHOWN];
    bool said = value != NULL;
    return wf_fail(r->a->ctx, WF_ERR_UNSUPPORTED,
                   "cannot use the adapter '%s': it uses %s%s%s, which Weft does not support",
                   r->path, key, said ? " " : "",
                   said ? wf_text_show(shown, value, strlen(value)) : "");
}

/* PEFT options that change what an adapter computes, or which model it fits. */
static const char *const unsupported[] = {
    "use_dora",
    "use_qalora",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "layer_replication",
    "trainable_token_indices",
    "target_parameters",
    "megatron_config",
    "alora_invocation_tokens",
    "arrow_config",
};

/* Initializations that leave the base model unchanged. Others subtract a part from its weights. */
static const char *const beginnings[] = {"gaussian", "eva", "orthogonal"};

static wf_status check_kind(const reader *r)
{
    const wf_json_node *init = wf_json_get(r->config, "init_lora_weights");
    const char *kind = wf_json_get_string(r->config, "peft_type", "");
    const char *bias = wf_json_get_string(r->config, "bias", "none");
    if (strcmp(kind, "LORA") != 0)
        return refuse_option(r, "peft_type", kind);
    if (strcmp(bias, "none") != 0)
        return refuse_option(r, "bias", bias);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (is_set(wf_json_get(r->config, unsupported[i])))
            return refuse_option(r, unsupported[i], NULL);
    if (!init || init->kind != WF_JSON_STRING)
        return WF_OK;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (wf_json_is(init, beginnings[i]))
            return WF_OK;
    return refuse_option(r, "init_lora_weights", init->string);
}

/* Reads rank, alpha, dropout and rslora; wf_adapter_set checks their ranges. strength: the user's
 * factor of the adapter. */
static wf_status take_numbers(const reader *r, double strength)
{
    const wf_json_node *rank = wf_json_get(r->config, "r");
    const wf_json_node *alpha = wf_json_get(r->config, "lora_alpha");
    if (!rank || rank->kind != WF_JSON_NUMBER || !rank->whole)
        return fail_folder(r, "adapter_config.json has no whole number r, the rank");
    if (!alpha || alpha->kind != WF_JSON_NUMBER)
        return fail_folder(r, "adapter_config.json has no number lora_alpha, the scale");
    const wf_adapter_options o = {
        .rank = rank->integer,
        .alpha = alpha->number,
        .dropout = wf_json_get_number(r->config, "lora_dropout", 0),
        .rslora = wf_json_get_bool(r->config, "use_rslora", false),
    };
    char what[300];
    size_t len = 0;
    wf_text_append(what, sizeof what, &len, "the adapter '%s'", r->path);
    return wf_adapter_set(r->a, what, &o, strength);
}

/* ---- adapter_model.safetensors ---- */

static wf_status read_store(reader *r)
{
    wf_adapter *a = r->a;
    const char *path = wf_path_join(&a->arena, r->path, "adapter_model.safetensors");
    const char *pickle = wf_path_join(&a->arena, r->path, "adapter_model.bin");
    if (!path || !pickle)
        return WF_ERR_MEMORY;
    if (wf_path_look(path) == WF_PATH_NONE && wf_path_look(pickle) == WF_PATH_FILE)
        return fail_folder(
            r, "its matrices are in adapter_model.bin, a pickle that can run any code when opened; "
               "save them as safetensors with PEFT's save_pretrained");
    if (wf_path_look(path) == WF_PATH_NONE)
        return fail_folder(r, "adapter_model.safetensors is missing");
    WF_TRY(wf_safetensors_read(&a->store, path));
    return wf_store_seal(&a->store);
}

/* Names of the decoder in a multimodal model, by transformers 4.52 and later, and by older ones. */
#define DECODER "model.language_model."
#define OLD_DECODER "language_model.model."

/* Returns the module's name without the prefix that adapter.c gave it. */
static const char *without_prefix(const wf_adapter *a, const char *module)
{
    const char *const given[] = {DECODER, a->config.family->prefix};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (strncmp(module, given[i], strlen(given[i])) == 0)
            return module + strlen(given[i]);
    return module;
}

/* Finds A (0) or B (1) of a linear. Checkpoints of a bare model omit the family's prefix. */
static const wf_stored *find(const wf_adapter *a, const wf_adapted *l, int which)
{
    const char *const prefixes[] = {a->config.family->prefix, "", DECODER, OLD_DECODER,
                                    "language_model."};
    const wf_stored *t = NULL;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !t; i++) {
        char name[2 * WF_NAME_BYTES];
        size_t len = 0;
        wf_text_append(name, sizeof name, &len, "base_model.model.%s%s.lora_%c.weight", prefixes[i],
                       without_prefix(a, l->module), "AB"[which]);
        t = wf_store_find(&a->store, name);
    }
    return t;
}

/* Returns true if the list contains the layer's number, if `layers` is that number, or without a
 * list. */
static bool has_layer(const wf_json_node *layers, const wf_adapted *l)
{
    int64_t layer = -1;
    const wf_json_node *one = layers;
    size_t count = 1;
    if (!layers || layers->kind == WF_JSON_NULL)
        return true;
    for (const char *c = strncmp(l->name, "blk.", 4) == 0 ? l->name + 4 : ""; *c && *c != '.'; c++)
        layer = (layer < 0 ? 0 : layer) * 10 + (*c - '0');
    if (layers->kind == WF_JSON_ARRAY) {
        one = layers->child;
        count = layers->count;
    }
    for (size_t i = 0; i < count; i++)
        if (one[i].kind == WF_JSON_NUMBER && one[i].whole && one[i].integer == layer)
            return true;
    return false;
}

/* Returns whether the configuration selects this linear. Patterns are not evaluated: then the
 * tensors present decide. */
static bool is_expected(const reader *r, const wf_adapted *l)
{
    const wf_json_node *targets = wf_json_get(r->config, "target_modules");
    if (!targets || targets->kind != WF_JSON_ARRAY ||
        is_set(wf_json_get(r->config, "exclude_modules")))
        return false;
    for (size_t i = 0; i < targets->count; i++)
        if (targets->child[i].kind == WF_JSON_STRING &&
            wf_adapter_ends(l->module, targets->child[i].string, targets->child[i].bytes))
            return has_layer(wf_json_get(r->config, "layers_to_transform"), l);
    return false;
}

static wf_status check_tensor(const reader *r, const wf_stored *t, int64_t rows, int64_t columns)
{
    char shown[WF_TEXT_SHOWN];
    wf_ctx *ctx = r->a->ctx;
    wf_text_show(shown, t->name, strlen(t->name));
    if (t->shape.n != 2 || t->shape.d[0] != rows || t->shape.d[1] != columns)
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "the adapter '%s' does not fit the model: %s is [%lld, %lld] but must be [%lld, %lld]",
            r->path, shown, (long long)(t->shape.n > 0 ? t->shape.d[0] : 0),
            (long long)(t->shape.n > 1 ? t->shape.d[1] : 0), (long long)rows, (long long)columns);
    if (t->type != WF_F32 && t->type != WF_F16 && t->type != WF_BF16)
        return wf_fail(ctx, WF_ERR_FORMAT, "the adapter '%s' stores %s as %s; use f32, f16 or bf16",
                       r->path, shown, t->type_name);
    return WF_OK;
}

/* *taken: the adapter has this linear. */
static wf_status take_linear(const reader *r, wf_adapted *l, bool *taken)
{
    const wf_adapter *a = r->a;
    const int64_t rank = a->options.rank;
    for (int k = 0; k < 2; k++)
        l->stored[k] = find(a, l, k);
    *taken = l->stored[0] && l->stored[1];
    if (!*taken && (l->stored[0] || l->stored[1] || is_expected(r, l)))
        return wf_fail(a->ctx, WF_ERR_FORMAT,
                       "the adapter '%s' is incomplete: lora_%c of %s is missing", r->path,
                       l->stored[0] ? 'B' : 'A', l->module);
    if (!*taken)
        return WF_OK;
    WF_TRY(check_tensor(r, l->stored[0], rank, l->in));
    return check_tensor(r, l->stored[1], l->out, rank);
}

/* PEFT saves copies of the embedding and the head when one of them is adapted, in case it was
 * trained. */
static bool is_copy(const char *name)
{
    static const char *const parts[] = {"lm_head", "embed_tokens", "wte"};
    bool lora = strstr(name, ".lora_") != NULL, copy = false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        copy |= strstr(name, parts[i]) != NULL;
    return copy && !lora;
}

/* Fails if a tensor belongs to no linear: the adapter is for another model, or of an undeclared
 * kind. */
static wf_status refuse_others(const reader *r)
{
    const wf_adapter *a = r->a;
    for (int i = 0; i < a->store.count; i++) {
        const wf_stored *t = &a->store.tensor[i];
        char shown[WF_TEXT_SHOWN];
        bool used = false;
        for (int k = 0; k < a->linears && !used; k++)
            used = a->linear[k].stored[0] == t || a->linear[k].stored[1] == t;
        if (!used && is_copy(t->name))
            return wf_fail(
                a->ctx, WF_ERR_UNSUPPORTED,
                "the adapter '%s' contains weights of the model itself, %s; save it without them "
                "(save_embedding_layers=False in PEFT)",
                r->path, wf_text_show(shown, t->name, strlen(t->name)));
        if (!used)
            return wf_fail(a->ctx, WF_ERR_FORMAT,
                           "the adapter '%s' does not fit the model: it contains %s, but the "
                           "model has no such linear",
                           r->path, wf_text_show(shown, t->name, strlen(t->name)));
    }
    return WF_OK;
}

/* Keeps the linears that the folder adapts. */
static wf_status take_linears(const reader *r)
{
    wf_adapter *a = r->a;
    int n = 0;
    for (int i = 0; i < a->linears; i++) {
        bool taken;
        WF_TRY(take_linear(r, &a->linear[i], &taken));
        if (taken)
            /* n <= i: the list is compacted in place. */
            a->linear[n++] = a->linear[i];
    }
    a->linears = n;
    WF_TRY(refuse_others(r));
    return n ? WF_OK : fail_folder(r, "it contains no matrices");
}

/* ---- Opening ---- */

/* Opens one adapter. number: its index among several, which makes the names of its states unique.
 * *out is NULL after a failure. */
static wf_status open_one(wf_ctx *ctx, const wf_lora *lora, int number, const wf_config *config,
                          wf_adapter **out)
{
    WF_TRY(wf_adapter_begin(ctx, config, out));
    reader r = {.a = *out, .path = lora->path};
    wf_status status = read_config(&r);
    if (status == WF_OK)
        status = check_kind(&r);
    if (status == WF_OK)
        status = take_numbers(&r, lora->scale != 0 ? lora->scale : 1);
    if (status == WF_OK)
        status = read_store(&r);
    if (status == WF_OK)
        status = take_linears(&r);
    if (status == WF_OK)
        status = wf_adapter_name(*out, number);
    if (status != WF_OK) {
        wf_adapter_free(*out);
        *out = NULL;
    }
    return status;
}

wf_status wf_adapter_open(wf_ctx *ctx, const char *folder, const wf_config *config,
                          wf_adapter **out)
{
    return open_one(ctx, &(wf_lora){.path = folder}, 0, config, out);
}

/* B's rows are those of the weight, so they follow its row order; A's rows are ranks. */
wf_status wf_adapter_read(const wf_adapter *a, int index, float *to)
{
    wf_assert(index >= 0 && index < 2 * a->linears);
    const wf_adapted *l = &a->linear[index / 2];
    const wf_stored *t = l->stored[index % 2];
    wf_assert(t);
    wf_row_order order = WF_ROWS_AS_THEY_ARE;
    if (index % 2)
        order = wf_rows_order(&a->config, l->row, false, a->config.rope[0].interleaved);
    int64_t rows = t->shape.d[0], columns = t->shape.d[1];
    size_t bytes = wf_type_bytes(t->type, columns);
    void *raw = wf_mem_new(a->ctx, bytes); /* copied, because tensors in files may be unaligned */
    if (!raw)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < rows; i++) {
        memcpy(raw, t->data + (size_t)wf_rows_source(&a->config, order, i) * bytes, bytes);
        wf_convert_to_f32(t->type, raw, to + i * columns, columns);
    }
    wf_mem_free(a->ctx, raw);
    return wf_store_check(&a->store);
}

/* ---- Several adapters ---- */

/* After a failure, *out holds those that were opened; the caller closes them. */
wf_status wf_adapters_open(wf_ctx *ctx, const wf_lora *lora, int count, const wf_config *config,
                           wf_adapters *out)
{
    *out = (wf_adapters){.ctx = ctx};
    if (count <= 0)
        return WF_OK;
    out->adapter = wf_mem_array(ctx, (size_t)count, sizeof *out->adapter);
    if (!out->adapter)
        return WF_ERR_MEMORY;
    for (; out->count < count; out->count++)
        WF_TRY(open_one(ctx, &lora[out->count], out->count, config, &out->adapter[out->count]));
    return WF_OK;
}

void wf_adapters_close(wf_adapters *s)
{
    for (int i = 0; i < s->count; i++)
        wf_adapter_free(s->adapter[i]);
    if (s->ctx)
        wf_mem_free(s->ctx, s->adapter);
    *s = (wf_adapters){0};
}

wf_value *wf_adapters_apply(void *adapters, wf_builder *b, const char *name, wf_value *x,
                            wf_value *y)
{
    const wf_adapters *s = adapters;
    for (int i = 0; i < s->count; i++)
        y = wf_adapter_apply(s->adapter[i], b, name, x, y);
    return y;
}
