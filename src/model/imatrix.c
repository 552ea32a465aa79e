/* SPDX-License-Identifier: MIT */
/* imatrix.c - reads importance matrices. See imatrix.h. */
#include "model/imatrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "base/mem.h"
#include "base/text.h"

#define NAME_BYTES 256 /* of a matrix, with a suffix */
#define MEASURE "; measure this model with weft imatrix"

/* ---- Opening ---- */

static wf_status read_keys(wf_ctx *ctx, wf_importance *m)
{
    char shown[WF_TEXT_SHOWN];
    wf_gguf_text type;
    const wf_gguf_text *datasets;
    size_t count;
    WF_TRY(wf_gguf_get_text(m->file, "general.type", &type));
    if (!type.bytes || type.len != strlen("imatrix") ||
        memcmp(type.bytes, "imatrix", type.len) != 0)
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "cannot use '%s' as an importance matrix: its general.type is '%s', not "
                       "'imatrix'; weft imatrix and llama-imatrix write such files",
                       m->path, type.bytes ? wf_text_show(shown, type.bytes, type.len) : "");
    WF_TRY(wf_gguf_get_int(m->file, WF_IMATRIX_CHUNKS, 0, UINT32_MAX, &m->chunks));
    WF_TRY(wf_gguf_get_texts(m->file, WF_IMATRIX_DATASETS, &datasets, &count));
    if (count > 0)
        m->dataset = datasets[0];
    return WF_OK;
}

wf_status wf_importance_open(wf_ctx *ctx, const char *path, wf_importance *out)
{
    *out = (wf_importance){.path = path};
    WF_TRY(wf_gguf_open(ctx, path, &out->file));
    return read_keys(ctx, out);
}

wf_status wf_importance_read(wf_ctx *ctx, const char *what, const uint8_t *data, size_t bytes,
                             wf_importance *out)
{
    *out = (wf_importance){.path = what};
    WF_TRY(wf_gguf_read(ctx, what, data, bytes, &out->file));
    return read_keys(ctx, out);
}

void wf_importance_close(wf_importance *m)
{
    wf_gguf_close(m->file);
    m->file = NULL;
}

/* ---- Names ---- */

/* Matrices with one input have the same sums. GGUF files of one model may have attn_qkv or the
 * three parts of it, and an importance matrix has the names of the file that was measured. */
static const struct {
    const char *name;
    const char *other[4]; /* up to NULL: what a file may have in its place */
} shared[] = {
    {"attn_qkv.weight", {"attn_q.weight", "attn_k.weight", "attn_v.weight"}},
    {"attn_q.weight", {"attn_qkv.weight"}},
    {"attn_k.weight", {"attn_qkv.weight"}},
    {"attn_v.weight", {"attn_qkv.weight"}},
};

/* Writes the name of matrix i of those with the input of `name`. Returns false beyond the last. */
static bool other_name(const char *name, int i, char out[NAME_BYTES])
{
    const char *last = strstr(name, "attn_");
    for (size_t k = 0; last && k < sizeof shared / sizeof *shared; k++)
        if (strcmp(last, shared[k].name) == 0 && shared[k].other[i]) {
            int length =
                snprintf(out, NAME_BYTES, "%.*s%s", (int)(last - name), name, shared[k].other[i]);
            return length > 0 && length < NAME_BYTES;
        }
    return false;
}

static const wf_stored *find(const wf_importance *m, const char *name, const char *suffix)
{
    char full[NAME_BYTES];
    int length = snprintf(full, sizeof full, "%s%s", name, suffix);
    return length > 0 && (size_t)length < sizeof full ? wf_store_find(&m->file->store, full) : NULL;
}

static bool has(const wf_importance *m, const char *name)
{
    return find(m, name, WF_IMATRIX_SUMS) || find(m, name, WF_IMATRIX_COUNTS);
}

/* ---- Checks ---- */

/* Returns element i of f32 data, which may be unaligned. */
static float element(const wf_stored *t, int64_t i)
{
    float x;
    memcpy(&x, t->data + (size_t)i * sizeof x, sizeof x);
    return x;
}

static wf_status check_values(wf_ctx *ctx, const wf_importance *m, const wf_stored *t,
                              int64_t columns, float least)
{
    int64_t count = wf_dims_count(&t->shape);
    if (t->type != WF_F32)
        return wf_fail(ctx, WF_ERR_FORMAT, "cannot use '%s': %s has the type %s, not F32", m->path,
                       WF_SHOWN(t->name), t->type_name);
    if (count != columns)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the importance matrix '%s' is of another model: %s has %" PRId64
                       " elements, but this model needs %" PRId64 MEASURE,
                       m->path, WF_SHOWN(t->name), count, columns);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(element(t, i)) || element(t, i) < least)
            return wf_fail(ctx, WF_ERR_FORMAT,
                           "cannot use '%s': element %" PRId64
                           " of %s is %g; it must be finite and at least %g",
                           m->path, i, WF_SHOWN(t->name), (double)element(t, i), (double)least);
    return WF_OK;
}

/* Checks the sums and the count of `name`, a matrix with the input of `matrix`, and marks them in
 * used[tensors of the file]. */
static wf_status check_pair(const wf_importance *m, const wf_matrix_columns *matrix,
                            const char *name, bool *used)
{
    const wf_store *s = &m->file->store;
    const wf_stored *sums = find(m, name, WF_IMATRIX_SUMS);
    const wf_stored *counts = find(m, name, WF_IMATRIX_COUNTS);
    const bool needed = strncmp(name, "blk.", 4) == 0;
    if ((!sums || !counts) && (needed || sums || counts))
        return wf_fail(s->ctx, WF_ERR_USAGE, "the importance matrix '%s' lacks %s%s" MEASURE,
                       m->path, name, sums ? WF_IMATRIX_COUNTS : WF_IMATRIX_SUMS);
    if (!sums)
        return WF_OK;
    used[sums - s->tensor] = used[counts - s->tensor] = true;
    const int64_t stack = matrix->stack > 0 ? matrix->stack : 1;
    WF_TRY(check_values(s->ctx, m, sums, matrix->columns * stack, 0));
    /* The router may have sent no token to an expert. Its sums are 0: equal weights. */
    return check_values(s->ctx, m, counts, stack, matrix->stack > 0 ? 0 : 1);
}

static wf_status check_matrix(const wf_importance *m, const wf_matrix_columns *matrix, bool *used)
{
    char other[NAME_BYTES];
    if (has(m, matrix->name) || !other_name(matrix->name, 0, other) || !has(m, other))
        return check_pair(m, matrix, matrix->name, used);
    for (int i = 0; other_name(matrix->name, i, other); i++)
        WF_TRY(check_pair(m, matrix, other, used));
    return WF_OK;
}

/* Fails if a tensor of the file belongs to no matrix of the model. */
static wf_status refuse_others(const wf_importance *m, const bool *used)
{
    const wf_store *s = &m->file->store;
    for (int i = 0; i < s->count; i++)
        if (!used[i])
            return wf_fail(s->ctx, WF_ERR_USAGE,
                           "the importance matrix '%s' is of another model: this model has no "
                           "matrix for %s" MEASURE,
                           m->path, WF_SHOWN(s->tensor[i].name));
    return WF_OK;
}

wf_status wf_importance_check(const wf_importance *m, const wf_matrix_columns *matrices, int count)
{
    const wf_store *s = &m->file->store;
    bool *used = wf_mem_new(s->ctx, ((size_t)s->count + 1) * sizeof *used);
    wf_status status = used ? WF_OK : WF_ERR_MEMORY;
    for (int i = 0; i < count && status == WF_OK; i++)
        status = check_matrix(m, &matrices[i], used);
    if (status == WF_OK)
        status = refuse_others(m, used);
    wf_mem_free(s->ctx, used);
    return status == WF_OK ? wf_store_check(s) : status;
}

/* Of attn_q, attn_k and attn_v the first counts: a program that measures all three adds the same
 * squares in the same order. */
bool wf_importance_copy(const wf_importance *m, const char *name, float *to)
{
    char other[NAME_BYTES];
    const wf_stored *sums = find(m, name, WF_IMATRIX_SUMS);
    if (!sums && other_name(name, 0, other))
        sums = find(m, other, WF_IMATRIX_SUMS);
    if (sums)
        memcpy(to, sums->data, sums->bytes);
    return sums != NULL;
}
