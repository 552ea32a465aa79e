/* SPDX-License-Identifier: MIT */
/* info_json.c - weft info as JSON, and the metadata keys of a GGUF file. */
#include <math.h>
#include <string.h>

#include "cli/info.h"
#include "cli/plan.h"

/* ---- JSON ---- */

static void put_shape(wf_json *j, const wf_model_info *i)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"parameters", i->parameters}, {"bytes", (int64_t)i->bytes}, {"layers", i->layers},
        {"width", i->width},           {"hidden", i->hidden},        {"heads", i->heads},
        {"kv_heads", i->kv_heads},     {"head_dim", i->head_dim},    {"vocab", i->vocab},
        {"context", i->context},       {"window", i->window},        {"skipped", i->skipped}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        wf_json_put_int(j, sizes[k].key, sizes[k].value);
    wf_json_key(j, "rope_base");
    wf_json_double(j, i->rope_base);
    wf_json_key(j, "tied");
    wf_json_bool(j, i->tied);
}

/* The numbers of layers with a window, and of those without rotary positions, from 0. */
static void put_layers(wf_json *j, const wf_config *c)
{
    static const char *const keys[] = {"window_layers", "no_rope_layers"};
    for (int which = 0; which < 2; which++) {
        wf_json_key(j, keys[which]);
        wf_json_array_begin(j);
        for (int64_t i = 0; i < c->layers; i++) {
            const wf_layer *l = wf_config_layer(c, i);
            if (which == 0 ? l->window > 0 : l->rope == WF_NO_ROPE)
                wf_json_int(j, i);
        }
        wf_json_array_end(j);
    }
}

/* An object for each layer if their sizes differ; the keys of the model are those of layer 0. */
static void put_sizes(wf_json *j, const wf_config *c)
{
    bool differ = false;
    for (int64_t i = 1; i < c->layers; i++)
        differ |= !wf_layer_same_sizes(wf_config_layer(c, 0), wf_config_layer(c, i));
    wf_json_key(j, "layer_sizes");
    wf_json_array_begin(j);
    for (int64_t i = 0; differ && i < c->layers; i++) {
        const wf_layer *l = wf_config_layer(c, i);
        wf_json_object_begin(j);
        wf_json_put_int(j, "hidden", l->hidden);
        wf_json_put_int(j, "heads", l->heads);
        wf_json_put_int(j, "kv_heads", l->kv_heads);
        wf_json_put_int(j, "head_dim", l->key_dim);
        wf_json_object_end(j);
    }
    wf_json_array_end(j);
}

/* Missing special tokens are -1. */
static void put_tokenizer(wf_json *j, const wf_model_view *v)
{
    static const char *const names[] = {"bos", "eos", "unknown", "padding"};
    wf_json_key(j, "tokenizer");
    if (!v->tokenizer) {
        wf_json_null(j);
        return;
    }
    wf_json_object_begin(j);
    wf_json_put_int(j, "tokens", wf_tokenizer_count(v->tokenizer));
    wf_json_put_int(j, "control", v->control);
    for (int i = 0; i < 4; i++)
        wf_json_put_int(j, names[i], wf_tokenizer_special(v->tokenizer, (wf_special)i));
    wf_json_object_end(j);
}

/* Writes null for settings that the model does not have. */
static void put_sampling(wf_json *j, const wf_sampling_defaults *d)
{
    wf_json_key(j, "sampling");
    if (wf_sampling_any(d)) {
        wf_json_object_begin(j);
        for (int i = 0; i < WF_SETTINGS; i++) {
            if (!d->given[i])
                continue;
            wf_json_key(j, wf_settings[i].json);
            wf_json_double(j, d->value[i]);
        }
        if (d->samplers)
            wf_json_put_text(j, "sequence", d->samplers);
        wf_json_object_end(j);
    } else {
        wf_json_null(j);
    }
    wf_json_key(j, "ignored");
    wf_json_array_begin(j);
    for (int i = 0; i < d->remarks && i < WF_MAX_REMARKS; i++)
        wf_json_string(j, d->remark[i]);
    wf_json_array_end(j);
}

static void put_memory(wf_json *j, const wf_model_view *v)
{
    wf_json_key(j, "memory");
    wf_json_object_begin(j);
    wf_json_put_int(j, "mapped", (int64_t)v->memory.mapped);
    /* States contain the KV cache; the rest are weights that cannot be mapped. */
    wf_json_put_int(j, "copied",
                    (int64_t)(v->memory.states > v->kv ? v->memory.states - v->kv : 0));
    wf_json_put_int(j, "kv", (int64_t)v->kv);
    wf_json_put_int(j, "activations", (int64_t)v->memory.activations);
    wf_json_put_int(j, "ports", (int64_t)v->memory.ports);
    wf_json_object_end(j);
}

static void put_types(wf_json *j, const wf_model_view *v)
{
    wf_json_key(j, "types");
    wf_json_array_begin(j);
    for (int i = 0; i < v->types; i++) {
        wf_json_object_begin(j);
        wf_json_put_text(j, "type", v->type[i].name);
        wf_json_put_int(j, "tensors", v->type[i].tensors);
        wf_json_put_int(j, "bytes", (int64_t)v->type[i].bytes);
        wf_json_object_end(j);
    }
    wf_json_array_end(j);
}

static void put_tensors(wf_json *j, const wf_store *s)
{
    wf_json_key(j, "tensors");
    wf_json_array_begin(j);
    for (int i = 0; i < s->count; i++) {
        const wf_stored *t = &s->tensor[i];
        wf_json_object_begin(j);
        wf_json_put_text(j, "name", t->name);
        wf_json_put_text(j, "type", t->type_name);
        wf_json_key(j, "shape");
        wf_json_array_begin(j);
        for (int k = 0; k < (int)t->shape.n; k++)
            wf_json_int(j, t->shape.d[k]);
        wf_json_array_end(j);
        wf_json_put_int(j, "bytes", (int64_t)t->bytes);
        wf_json_put_int(j, "file", t->file);
        wf_json_put_int(j, "offset", (int64_t)t->offset);
        wf_json_object_end(j);
    }
    wf_json_array_end(j);
}

/* Writes only the length of an array, since some are as long as the vocabulary. */
static void put_value(wf_json *j, const wf_gguf *f, const wf_gguf_pair *p)
{
    int64_t whole = 0;
    double real = 0;
    bool on = false;
    if (p->kind == WF_GGUF_ARRAY) {
        wf_json_object_begin(j);
        wf_json_put_int(j, "items", (int64_t)p->count);
        wf_json_object_end(j);
    } else if (p->kind == WF_GGUF_STRING) {
        wf_json_text(j, p->text->bytes, p->text->len);
    } else if (p->kind == WF_GGUF_BOOL && wf_gguf_get_bool(f, p->key, &on) == WF_OK) {
        wf_json_bool(j, on);
    } else if (p->kind == WF_GGUF_F32 || p->kind == WF_GGUF_F64) {
        wf_json_double(j, wf_gguf_get_float(f, p->key, &real) == WF_OK ? real : NAN);
    } else if (wf_gguf_get_int(f, p->key, INT64_MIN, INT64_MAX, &whole) == WF_OK) {
        wf_json_int(j, whole);
    } else {
        wf_json_null(j);
    }
}

/* Keys of a GGUF file are unique, so the object is valid JSON. */
static void put_keys(wf_json *j, const wf_gguf *f)
{
    wf_json_key(j, "keys");
    wf_json_object_begin(j);
    for (int i = 0; i < f->pairs; i++) {
        wf_json_key(j, f->pair[i].key);
        put_value(j, f, &f->pair[i]);
    }
    wf_json_object_end(j);
}

void wf_info_json(const wf_model_view *v, bool tensors, bool keys)
{
    const wf_store *s = v->model->store;
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    wf_json_put_text(&j, "name", v->info.name);
    wf_json_put_text(&j, "family", v->info.family);
    wf_json_put_text(&j, "format", v->info.format);
    wf_json_key(&j, "files");
    wf_json_array_begin(&j);
    for (int i = 0; i < s->files; i++)
        wf_json_string(&j, s->file[i].path);
    wf_json_array_end(&j);
    put_shape(&j, &v->info);
    put_layers(&j, &v->model->config);
    put_sizes(&j, &v->model->config);
    put_tokenizer(&j, v);
    put_sampling(&j, &v->model->sampling);
    wf_json_put_text(&j, "chat_template", v->info.chat_template);
    put_memory(&j, v);
    put_types(&j, v);
    wf_plan_put_generic(&j, wf_plan_generic(v->model, NULL));
    if (tensors)
        put_tensors(&j, s);
    if (keys)
        put_keys(&j, v->model->gguf);
    wf_json_object_end(&j);
    wf_json_end(&j);
}

/* ---- Keys ---- */

static void print_value(const wf_gguf *f, const wf_gguf_pair *p)
{
    int64_t whole = 0;
    double real = 0;
    bool on = false;
    if (p->kind == WF_GGUF_ARRAY)
        printf("%llu item%s\n", (unsigned long long)p->count, WF_PLURAL(p->count));
    else if (p->kind == WF_GGUF_STRING)
        printf("%s\n", WF_FOREIGN_BYTES(p->text->bytes, p->text->len));
    else if (p->kind == WF_GGUF_BOOL && wf_gguf_get_bool(f, p->key, &on) == WF_OK)
        puts(on ? "true" : "false");
    else if (p->kind == WF_GGUF_F32 || p->kind == WF_GGUF_F64)
        printf("%g\n", wf_gguf_get_float(f, p->key, &real) == WF_OK ? real : 0);
    else if (wf_gguf_get_int(f, p->key, INT64_MIN, INT64_MAX, &whole) == WF_OK)
        printf("%lld\n", (long long)whole);
    else
        puts("?");
}

void wf_info_keys(const wf_gguf *f)
{
    for (int i = 0; i < f->pairs; i++) {
        printf("%-44s ", WF_FOREIGN(f->pair[i].key));
        print_value(f, &f->pair[i]);
    }
}
