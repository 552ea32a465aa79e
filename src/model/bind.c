/* SPDX-License-Identifier: MIT */
/*
 * bind.c - finds the tensors of each weight, and checks that the file has all of them and no others.
 *
 * The list of weights comes from a graph: the states of the smallest one that wf_model_graph
 * builds. Faults are collected, so that one message names the first few of them.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/family.h"
#include "model/model.h"

/* Faults named in the error message. The log contains all of them. */
#define TOLD 4

typedef struct {
    wf_model *m;
    uint8_t *used;     /* [tensors of the store]: 1 if a weight uses the tensor */
    bool prefixed;     /* names in the folder start with the family's prefix */
    char *faults;      /* text, separated by "; " */
    size_t faults_len; /* bytes used of faults */
    int count;         /* faults found */
} binder;

#define FAULT_BYTES 800 /* room for TOLD faults */

static void fault(binder *b, const char *fmt, ...) WF_PRINTF(2, 3);
static void fault(binder *b, const char *fmt, ...)
{
    char text[400];
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    wf_ctx_log(b->m->ctx, WF_LOG_ERROR, "%s: %s", wf_store_base_name(b->m->path), text);
    if (b->count++ < TOLD)
        wf_text_append(b->faults, FAULT_BYTES, &b->faults_len, "%s%s", b->count > 1 ? "; " : "",
                       text);
}

static const char *shape_text(const wf_dims *shape, char out[96])
{
    size_t len = 0;
    wf_text_append(out, 96, &len, "[");
    for (int i = 0; i < shape->n; i++)
        wf_text_append(out, 96, &len, "%s%lld", i ? ", " : "", (long long)shape->d[i]);
    wf_text_append(out, 96, &len, "]");
    return out;
}

#define EMBEDDING "token_embd.weight"
#define HEAD "lm_head.weight" /* in Hugging Face folders, for all families */

/* Prefixes of the decoder's tensors: none, and those of multimodal checkpoints, as published, saved by
 * transformers 4.52 or later, and without a prefix of their own. */
static const char *const prefixes[] = {"", "language_model.model.", "model.language_model.",
                                       "language_model."};

/* Finds a tensor by its Hugging Face name without the family's prefix. */
static const wf_stored *find_inner(const wf_model *m, const char *name)
{
    const wf_stored *t = NULL;
    char full[WF_NAME_BYTES + 32];
    for (size_t i = 0; !t && i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(full, sizeof full, "%s%s", prefixes[i], name);
        t = wf_store_find(m->store, full);
    }
    return t;
}

/* Finds tensor `part` of a weight in a GGUF file: the weight, or one of the tensors that it may be
 * split into. */
static const wf_stored *find_gguf(const wf_model *m, const char *name, int part)
{
    char other[WF_NAME_BYTES];
    int64_t rows;
    const wf_stored *whole = wf_store_find(m->store, name);
    if (whole)
        return part == 0 ? whole : NULL;
    return wf_family_split(&m->config, name, part, other, &rows) ? wf_store_find(m->store, other)
                                                                 : NULL;
}

/* Finds tensor `part` of a weight in a folder: the weight, or that of an expert. */
static const wf_stored *find_hugging_face(const wf_model *m, const char *name, int part)
{
    char other[WF_NAME_BYTES];
    const wf_weight_name *row = wf_family_part_name(m->config.family, name, true, part, other);
    if (!row)
        return NULL;
    const wf_stored *t = wf_store_find(m->store, other);
    if (!t) {
        wf_family_part_name(m->config.family, name, false, part, other);
        t = find_inner(m, other);
    }
    if (!t && part == 0 && m->config.tied && strcmp(name, EMBEDDING) == 0)
        t = find_inner(m, HEAD); /* tied: one matrix, stored under either name */
    return t;
}

/* Finds tensor `part` of a weight, by the weight's name in the graph. */
static const wf_stored *find(const wf_model *m, const char *name, int part)
{
    return m->gguf ? find_gguf(m, name, part) : find_hugging_face(m, name, part);
}

/* Returns whether kernels can read the type: floats and quantized blocks. */
static bool computable(wf_type type)
{
    const wf_type_info *info = wf_type_get(type);
    return info->kind == WF_KIND_FLOAT || info->kind == WF_KIND_BLOCK;
}

/* The type of all tensors of the weight; f32 holds those of different types. */
wf_type wf_model_weight_type(void *model, const char *name)
{
    const wf_stored *first = find(model, name, 0), *t;
    for (int part = 1; first && (t = find(model, name, part)) != NULL; part++)
        if (t->type != first->type)
            return WF_F32;
    return first && computable(first->type) ? first->type : WF_F32; /* bind_state reports others */
}

/* A folder may omit the family's prefix for all weights; messages follow its spelling. */
static bool has_prefix(const wf_model *m)
{
    const char *prefix = m->config.family->prefix;
    for (int i = 0; m->folder && i < m->store->count; i++)
        if (strncmp(m->store->tensor[i].name, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* Returns the name of tensor `part` of a weight as the model's files would spell it. */
static const char *foreign_name(const binder *b, const char *name, int part,
                                char out[WF_NAME_BYTES])
{
    const wf_model *m = b->m;
    int64_t rows;
    bool known = m->folder
                     ? wf_family_part_name(m->config.family, name, b->prefixed, part, out) != NULL
                     : part > 0 && wf_family_split(&m->config, name, part, out, &rows);
    return known ? out : name;
}

/* Returns " in FILE" for folders and split files, else "". */
static const char *place(const wf_model *m, const wf_stored *t, char out[96])
{
    size_t len = 0;
    char shown[WF_TEXT_SHOWN];
    const char *file = wf_store_base_name(m->store->file[t->file].path);
    out[0] = 0;
    if (m->folder || m->store->files > 1)
        wf_text_append(out, 96, &len, " in %s", wf_text_show(shown, file, strlen(file)));
    return out;
}

/* ---- The sources of a weight ---- */

/* A weight as its file has it: E matrices of F rows, which may be some of the rows of a tensor. */
typedef struct {
    const wf_node *node;       /* its state */
    const wf_weight_name *row; /* NULL: the family's table lacks it, so no file has it */
    int64_t matrices, rows, columns;
    /* Other weights share the tensor: its matrices have `all` rows; this one's begin at `before`,
     * or alternate with those of the others, as number `before` of `step`. */
    int64_t all, before, step;
    bool split; /* GGUF: several tensors, whose rows follow one another */
} layout;

static int64_t rows_of_node(const wf_node *n)
{
    const wf_dims *s = &n->out[0].shape;
    return s->n > 1 ? s->d[s->n - 2] : s->d[0];
}

static const wf_node *find_state(const wf_graph *g, const char *name)
{
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state && strcmp(g->nodes[i]->name, name) == 0)
            return g->nodes[i];
    return NULL;
}

/* Finds the rows of a weight in a tensor that it shares: table rows with one Hugging Face name
 * follow one another in it. */
static void find_range(binder *b, const wf_graph *g, layout *l)
{
    const wf_family *f = b->m->config.family;
    int64_t before = 0, all = 0, sharers = 0, index = 0, named = 0;
    bool alternate = l->row->flags & WF_NAME_ALTERNATE;
    for (const wf_weight_name *other = f->weights; other->name; other++)
        named += strcmp(other->hugging_face, l->row->hugging_face) == 0;
    for (const wf_weight_name *other = f->weights; named > 1 && other->name; other++) {
        char name[WF_NAME_BYTES];
        if (strcmp(other->hugging_face, l->row->hugging_face) != 0)
            continue;
        wf_family_sibling(l->row, other, l->node->name, name);
        const wf_node *n = find_state(g, name);
        if (other == l->row) {
            before = all;
            index = sharers;
        }
        all += n ? rows_of_node(n) : 0;
        sharers += n != NULL;
    }
    if (sharers < 2)
        return;
    if (alternate && l->rows * sharers != all)
        fault(b, "%s has %lld rows, but the %lld interleaved tensors have %lld in all",
              l->node->name, (long long)l->rows, (long long)sharers, (long long)all);
    l->all = all;
    l->before = alternate ? index : before;
    l->step = alternate ? sharers : 1;
}

static layout layout_of(binder *b, const wf_graph *g, const wf_node *n)
{
    char name[WF_NAME_BYTES];
    const wf_dims *s = &n->out[0].shape;
    const wf_model *m = b->m;
    layout l = {.node = n,
                .row = wf_family_hugging_face(m->config.family, n->name, true, name),
                .matrices = s->n > 2 ? wf_dims_rows(s) / s->d[s->n - 2] : 1,
                .rows = rows_of_node(n),
                .columns = s->n > 1 ? wf_dims_last(s) : 1,
                .step = 1};
    l.all = l.rows;
    if (m->folder && l.row)
        find_range(b, g, &l);
    l.split = m->gguf && !wf_store_find(m->store, n->name) && find(m, n->name, 0);
    return l;
}

/* Returns whether tensors of the file are transposed. Vectors are not. */
static bool is_transposed(const binder *b, const layout *l)
{
    return b->m->folder && l->row && l->row->flags & WF_NAME_TRANSPOSED &&
           l->node->out[0].shape.n > 1;
}

static bool is_per_expert(const binder *b, const layout *l)
{
    return b->m->folder && l->row && strstr(l->row->hugging_face, "%e");
}

/* Returns the shape that tensor `part` of the weight must have. */
static wf_dims stored_shape(const binder *b, const layout *l, int part)
{
    wf_dims s = l->node->out[0].shape;
    char name[WF_NAME_BYTES];
    int64_t rows = l->all;
    if (l->split)
        wf_family_split(&b->m->config, l->node->name, part, name, &rows);
    if (s.n == 1)
        return (wf_dims){1, {rows}};
    if (is_per_expert(b, l) || s.n == 2)
        s = (wf_dims){2, {rows, l->columns}};
    else
        s.d[s.n - 2] = rows;
    if (is_transposed(b, l)) {
        int64_t columns = s.d[s.n - 1];
        s.d[s.n - 1] = s.d[s.n - 2];
        s.d[s.n - 2] = columns;
    }
    return s;
}

/* Checks type and shape of a tensor, and marks it as used. */
static void check_stored(binder *b, const layout *l, int part, const wf_stored *t)
{
    char want[96], have[96], at[96], shown[WF_TEXT_SHOWN];
    wf_dims shape = stored_shape(b, l, part);
    b->used[t - b->m->store->tensor] = 1;
    wf_text_show(shown, t->name, strlen(t->name));
    if (!computable(t->type))
        fault(b, "%s%s has type %s, which Weft cannot read as a weight", shown, place(b->m, t, at),
              t->type_name);
    else if (!wf_dims_equal(&shape, &t->shape))
        fault(b, "%s%s is %s but must be %s", shown, place(b->m, t, at),
              shape_text(&t->shape, have), shape_text(&shape, want));
}

/* Adds the rows of a weight that come from one tensor: all of them, those of one expert, or those
 * of a part. */
static void add_sources(const binder *b, const layout *l, const wf_stored *t, wf_source *source,
                        int *count)
{
    wf_source s = {.from = t,
                   .rows = l->rows,
                   .first = l->before,
                   .step = l->step,
                   .transposed = is_transposed(b, l),
                   .add = b->m->folder && l->row->flags & WF_NAME_PLUS_ONE ? 1 : 0};
    const bool one_range = l->all == l->rows && !s.transposed;
    int64_t matrices = is_per_expert(b, l) ? 1 : l->matrices;
    if (l->split)
        s.rows = t->shape.d[0];
    else if (one_range)
        s.rows *= matrices;
    matrices = one_range ? 1 : matrices;
    for (int64_t e = 0; e < matrices; e++) {
        source[(*count)++] = s;
        s.first += s.transposed ? 0 : l->all;
        s.skip += s.transposed ? l->columns : 0;
    }
}

/* Returns the number of tensors that the weight is made of. */
static int parts_of(const binder *b, const layout *l)
{
    return is_per_expert(b, l) ? (int)l->matrices : l->split ? 3 : 1;
}

static wf_status bind_state(binder *b, const wf_graph *g, const wf_node *n)
{
    wf_model *m = b->m;
    char foreign[WF_NAME_BYTES];
    const int faults = b->count;
    const layout l = layout_of(b, g, n);
    if (l.matrices > m->store->count && is_per_expert(b, &l)) { /* before anything is allocated */
        fault(b, "%s has %lld parts, more than the file has tensors", n->name,
              (long long)l.matrices);
        return WF_OK;
    }
    const int parts = parts_of(b, &l);
    wf_model_weight_info *w = &m->weight[m->weights];
    *w = (wf_model_weight_info){wf_arena_strdup(&m->arena, n->name), n->out[0].type,
                                n->out[0].shape, NULL, 0};
    const bool one_range = l.all == l.rows && !is_transposed(b, &l);
    const size_t most = (size_t)(one_range || l.matrices < parts ? parts : l.matrices);
    wf_source *source = wf_arena_alloc(&m->arena, most * sizeof *source);
    if (!w->name || !source)
        return WF_ERR_MEMORY;
    w->source = source;
    for (int part = 0; part < parts; part++) {
        const wf_stored *t = find(m, n->name, part);
        if (!t) {
            fault(b, "%s is missing", foreign_name(b, n->name, part, foreign));
            continue;
        }
        check_stored(b, &l, part, t);
        if (b->count == faults)
            add_sources(b, &l, t, source, &w->sources);
    }
    m->weights += b->count == faults;
    return WF_OK;
}

/* ---- Tied weights ---- */

/* Compares two tensors of one shape as f32, whatever their types. */
static wf_status compare_values(wf_model *m, const wf_stored *a, const wf_stored *b, bool *equal)
{
    int64_t columns = wf_dims_last(&a->shape), rows = wf_dims_rows(&a->shape);
    size_t a_row = wf_type_bytes(a->type, columns), b_row = wf_type_bytes(b->type, columns);
    size_t row = (size_t)columns * sizeof(float);
    *equal = a->type == b->type && memcmp(a->data, b->data, a->bytes) == 0;
    if (a->type == b->type)
        return WF_OK;
    uint8_t *raw = wf_mem_new(m->ctx, row);
    float *x = wf_mem_new(m->ctx, row), *y = wf_mem_new(m->ctx, row);
    wf_status status = raw && x && y ? WF_OK : WF_ERR_MEMORY;
    *equal = status == WF_OK;
    for (int64_t i = 0; i < rows && *equal; i++) {
        memcpy(raw, a->data + (size_t)i * a_row, a_row);
        wf_convert_to_f32(a->type, raw, x, columns);
        memcpy(raw, b->data + (size_t)i * b_row, b_row);
        wf_convert_to_f32(b->type, raw, y, columns);
        *equal = memcmp(x, y, row) == 0;
    }
    wf_mem_free(m->ctx, y);
    wf_mem_free(m->ctx, x);
    wf_mem_free(m->ctx, raw);
    return status;
}

/* Like transformers 5: if a checkpoint contains a head that differs from the embedding,
 * tie_word_embeddings is ignored. */
static wf_status settle_head(wf_model *m)
{
    bool equal = false;
    const wf_stored *head = find_inner(m, HEAD);
    const wf_stored *table = find(m, EMBEDDING, 0);
    if (!m->folder || !m->config.tied || !head || !table || head == table)
        return WF_OK;
    bool plain = wf_type_get(head->type)->kind == WF_KIND_FLOAT &&
                 wf_type_get(table->type)->kind == WF_KIND_FLOAT;
    if (plain && wf_dims_equal(&head->shape, &table->shape) && head->shape.n == 2)
        WF_TRY(compare_values(m, head, table, &equal));
    WF_TRY(wf_store_check(m->store));
    if (equal)
        return WF_OK;
    m->config.tied = false;
    wf_ctx_log(m->ctx, WF_LOG_WARN,
               "%s: tie_word_embeddings is true, but " HEAD
               " differs from the embedding: using both, as transformers does",
               wf_store_base_name(m->path));
    return WF_OK;
}

/* ---- Tensors without a weight ---- */

/* Tensors that are allowed although no weight uses them. */
static bool harmless(const wf_model *m, const char *name)
{
    if (m->gguf && (strcmp(name, "rope_freqs.weight") == 0 || strcmp(name, WF_TENSOR_SHORT) == 0 ||
                    strcmp(name, WF_TENSOR_LONG) == 0))
        return true;
    if (m->folder && m->config.tied && wf_store_find(m->store, name) == find_inner(m, HEAD))
        return true;
    for (const char *const *part = m->config.family->ignored; !m->gguf && *part; part++)
        if (strstr(name, *part))
            return true;
    return false;
}

/* Tensors of multimodal checkpoints that a decoder of text does not use: vision, audio, and layers
 * that predict several tokens (MTP). */
static bool is_of_other_part(const char *name)
{
    static const char *const parts[] = {"vision_tower.", "vision_model.", "multi_modal_projector.",
                                        "audio_tower.",  "embed_vision.", "embed_audio.",
                                        "visual.",       "mtp."};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(name, parts[i]);
        if (at && (at == name || at[-1] == '.'))
            return true;
    }
    return false;
}

/* A tensor that no weight uses means that the file is of another model. */
static void look_for_extra(binder *b)
{
    const wf_store *s = b->m->store;
    for (int i = 0; i < s->count; i++) {
        const char *name = s->tensor[i].name;
        char shown[WF_TEXT_SHOWN], at[96];
        if (!b->used[i] && b->m->folder && is_of_other_part(name))
            b->m->info.skipped++;
        else if (!b->used[i] && !harmless(b->m, name))
            fault(b, "%s%s is not a weight of %s", wf_text_show(shown, name, strlen(name)),
                  place(b->m, &s->tensor[i], at), b->m->config.family->name);
    }
}

/* Builds the smallest graph that contains all weights. */
static wf_status make_graph(wf_model *m, wf_graph **out)
{
    const wf_build_options options = {.form = WF_FORM_TRAIN,
                                      .tokens = 1,
                                      .sequences = 1,
                                      .type = wf_model_weight_type,
                                      .user = m};
    WF_TRY(wf_graph_new(m->ctx, out));
    wf_model_graph(*out, &m->config, &options, NULL);
    return wf_graph_status(*out);
}

static wf_status bind_all(binder *b, const wf_graph *g)
{
    wf_model *m = b->m;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state)
            WF_TRY(bind_state(b, g, g->nodes[i]));
    look_for_extra(b);
    if (b->count > TOLD)
        wf_text_append(b->faults, FAULT_BYTES, &b->faults_len, "; and %d more", b->count - TOLD);
    if (b->count)
        return wf_fail(m->ctx, WF_ERR_FORMAT, "%s does not match its configuration: %s",
                       wf_store_base_name(m->path), b->faults);
    return WF_OK;
}

wf_status wf_model_bind(wf_model *m)
{
    binder b = {.m = m, .prefixed = has_prefix(m)};
    wf_graph *g = NULL;
    wf_status status = WF_ERR_MEMORY;
    if (m->store->count < m->config.layers) /* do not build a huge graph for a broken file */
        return wf_fail(m->ctx, WF_ERR_FORMAT, "%s has %d tensor%s, too few for %lld layers",
                       wf_store_base_name(m->path), m->store->count, WF_PLURAL(m->store->count),
                       (long long)m->config.layers);
    WF_TRY(settle_head(m));
    b.used = wf_mem_new(m->ctx, (size_t)m->store->count);
    b.faults = wf_mem_new(m->ctx, FAULT_BYTES);
    if (!b.used || !b.faults)
        goto done;
    status = make_graph(m, &g);
    if (status != WF_OK)
        goto done;
    m->weight = wf_mem_array(m->ctx, (size_t)g->node_count, sizeof *m->weight);
    status = m->weight ? bind_all(&b, g) : WF_ERR_MEMORY;
done:
    wf_graph_free(g);
    wf_mem_free(m->ctx, b.used);
    wf_mem_free(m->ctx, b.faults);
    return status;
}

const wf_model_weight_info *wf_model_find_weight(const wf_model *m, const char *name)
{
    for (int i = 0; i < m->weights; i++)
        if (strcmp(m->weight[i].name, name) == 0)
            return &m->weight[i];
    return NULL;
}
