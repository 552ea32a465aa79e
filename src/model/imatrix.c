/* SPDX-License-Identifier: MIT */
/* imatrix.c - reads importance matrices. See imatrix.h. */
#include "model/imatrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "base/text.h"

#define NAME_BYTES 256 /* of a matrix, with a suffix */

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

/* ---- Checks ---- */

static const wf_stored *find(const wf_importance *m, const char *name, const char *suffix)
{
    char full[NAME_BYTES];
    int length = snprintf(full, sizeof full, "%s%s", name, suffix);
    return length > 0 && (size_t)length < sizeof full ? wf_store_find(&m->file->store, full) : NULL;
}

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
                       " elements, but this model needs %" PRId64,
                       m->path, WF_SHOWN(t->name), count, columns);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(element(t, i)) || element(t, i) < least)
            return wf_fail(ctx, WF_ERR_FORMAT,
                           "cannot use '%s': element %" PRId64
                           " of %s is %g; sums are finite and not negative, counts at least 1",
                           m->path, i, WF_SHOWN(t->name), (double)element(t, i));
    return WF_OK;
}

/* *found: how many tensors the file has for this matrix. */
static wf_status check_matrix(wf_ctx *ctx, const wf_importance *m, const wf_matrix_columns *matrix,
                              int *found)
{
    const wf_stored *sums = find(m, matrix->name, WF_IMATRIX_SUMS);
    const wf_stored *counts = find(m, matrix->name, WF_IMATRIX_COUNTS);
    const bool needed = strncmp(matrix->name, "blk.", 4) == 0;
    *found = 0;
    if ((!sums || !counts) && (needed || sums || counts))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the importance matrix '%s' lacks %s%s; measure this model with weft "
                       "imatrix",
                       m->path, matrix->name, sums ? WF_IMATRIX_COUNTS : WF_IMATRIX_SUMS);
    if (!sums)
        return WF_OK;
    *found = 2;
    WF_TRY(check_values(ctx, m, sums, matrix->columns, 0));
    return check_values(ctx, m, counts, 1, 1);
}

/* Names a tensor of the file that belongs to no matrix of the model. Sums and counts of matrices
 * come in pairs, so that such a tensor exists. */
static wf_status refuse_others(wf_ctx *ctx, const wf_importance *m,
                               const wf_matrix_columns *matrices, int count)
{
    const wf_store *s = &m->file->store;
    for (int i = 0; i < s->count; i++) {
        bool known = false;
        for (int k = 0; k < count && !known; k++)
            known = find(m, matrices[k].name, WF_IMATRIX_SUMS) == &s->tensor[i] ||
                    find(m, matrices[k].name, WF_IMATRIX_COUNTS) == &s->tensor[i];
        if (!known)
            return wf_fail(ctx, WF_ERR_USAGE,
                           "the importance matrix '%s' is of another model: this model has no "
                           "matrix for %s",
                           m->path, WF_SHOWN(s->tensor[i].name));
    }
    return WF_OK;
}

wf_status wf_importance_check(const wf_importance *m, const wf_matrix_columns *matrices, int count)
{
    const wf_store *s = &m->file->store;
    int known = 0;
    for (int i = 0; i < count; i++) {
        int found;
        WF_TRY(check_matrix(s->ctx, m, &matrices[i], &found));
        known += found;
    }
    if (known < s->count)
        WF_TRY(refuse_others(s->ctx, m, matrices, count));
    return wf_store_check(s);
}

bool wf_importance_copy(const wf_importance *m, const char *name, float *to)
{
    const wf_stored *sums = find(m, name, WF_IMATRIX_SUMS);
    if (sums)
        memcpy(to, sums->data, sums->bytes);
    return sums != NULL;
}
