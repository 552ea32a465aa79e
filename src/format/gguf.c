/* SPDX-License-Identifier: MIT */
/*
 * gguf.c - opens GGUF files: a single file, or all parts of a split one. gguf_read.c parses them.
 *
 * A split file is NAME-00001-of-0000N.gguf and so on; each part is a complete GGUF file with its
 * own tensors, and the first one has the model's keys. Part numbers, counts and names must agree.
 */
#include "format/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/gguf_priv.h"
#include "format/names.h"

/* The split.* keys of a part. A file that is not split has {-1, 1, -1}. */
typedef struct {
    int64_t no, count, tensors; /* number from 0; parts; tensors of all parts */
} split;

static void drop_pairs(wf_gguf *f)
{
    wf_mem_free(f->store.ctx, f->pair);
    wf_mem_free(f->store.ctx, f->sorted);
    f->pair = NULL;
    f->pairs = 0;
    f->sorted = NULL;
}

void wf_gguf_close(wf_gguf *f)
{
    if (!f)
        return;
    wf_ctx *ctx = f->store.ctx;
    drop_pairs(f);
    wf_store_free(&f->store);
    wf_mem_free(ctx, f);
}

/* Reads a mapped file: adds its tensors, and replaces the pairs of f with its own. */
static wf_status read_file(wf_gguf *f, int file, split *out)
{
    wf_gguf_part part;
    drop_pairs(f);
    wf_status status = wf_gguf_read_part(&f->store, file, &part);
    f->version = part.version;
    f->pair = part.pair;
    f->pairs = part.pairs;
    f->sorted = part.sorted;
    f->pairs_file = file;
    WF_TRY(status);

    *out = (split){-1, 1, -1};
    WF_TRY(wf_gguf_get_int(f, "split.no", 0, UINT16_MAX, &out->no));
    WF_TRY(wf_gguf_get_int(f, "split.count", 0, UINT16_MAX, &out->count));
    WF_TRY(wf_gguf_get_int(f, "split.tensors.count", 0, INT32_MAX, &out->tensors));
    if (out->count <= 1 || (out->no >= 0 && out->tensors >= 0))
        return WF_OK;
    return wf_fail(f->store.ctx, WF_ERR_FORMAT,
                   "cannot read '%s': it is part of a split file, but key '%s' is missing",
                   wf_store_base_name(f->store.file[file].path),
                   out->no < 0 ? "split.no" : "split.tensors.count");
}

/* ---- Parts ---- */

void wf_gguf_part_suffix(char out[WF_GGUF_SUFFIX_BYTES + 1], int64_t no, int64_t count)
{
    snprintf(out, WF_GGUF_SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (unsigned)(uint16_t)no + 1,
             (unsigned)(uint16_t)count);
}

/* Returns the path of part `no`, given the path of any part. NULL: out of memory. The suffix has a
 * fixed length, so replacing it in place is safe; check_name made sure that it is there. */
static char *part_path(wf_gguf *f, const char *path, int64_t no, int64_t count)
{
    char suffix[WF_GGUF_SUFFIX_BYTES + 1];
    char *copy = wf_arena_strdup(&f->store.arena, path);
    wf_gguf_part_suffix(suffix, no, count);
    if (copy)
        memcpy(copy + strlen(copy) - WF_GGUF_SUFFIX_BYTES, suffix, WF_GGUF_SUFFIX_BYTES);
    return copy;
}

/* The path of the other parts is derived from this one, so its end must be the suffix that its keys
 * describe. The suffix contains the number and the count, so neither can lie. */
static wf_status check_name(wf_ctx *ctx, const char *path, const split *s)
{
    char suffix[WF_GGUF_SUFFIX_BYTES + 1];
    size_t len = strlen(path);
    wf_gguf_part_suffix(suffix, s->no, s->count);
    if (s->no < s->count && len > WF_GGUF_SUFFIX_BYTES &&
        strcmp(path + len - WF_GGUF_SUFFIX_BYTES, suffix) == 0)
        return WF_OK;
    return wf_fail(ctx, WF_ERR_FORMAT,
                   "cannot read '%s': its keys say part %" PRId64 " of %" PRId64
                   ", but its name does not end in '%s'",
                   wf_store_base_name(path), s->no + 1, s->count, suffix);
}

/* Checks that a part's keys match its name and the part that was opened first. */
static wf_status check_part(wf_ctx *ctx, const char *path, const split *got, const split *wanted)
{
    static const char *const names[] = {"split.no", "split.count", "split.tensors.count"};
    const int64_t g[] = {got->no, got->count, got->tensors};
    const int64_t w[] = {wanted->no, wanted->count, wanted->tensors};
    for (int i = 0; i < 3; i++)
        if (g[i] != w[i])
            return wf_fail(ctx, WF_ERR_FORMAT,
                           "cannot read '%s': key '%s' is %" PRId64 "; its name and the other "
                           "parts require %" PRId64,
                           wf_store_base_name(path), names[i], g[i], w[i]);
    return WF_OK;
}

/* Adds to the message which part is missing. The status stays the same. */
static wf_status map_part(wf_gguf *f, const char *path, const split *s, int *file)
{
    wf_status status = wf_store_map(&f->store, path, file);
    if (status == WF_ERR_IO)
        wf_fail(f->store.ctx, status, "part %" PRId64 " of %" PRId64 " is missing: %s", s->no + 1,
                s->count, f->store.ctx->message);
    return status;
}

/* Opens part wanted->no. `path` is the path of any part. */
static wf_status open_part(wf_gguf *f, const char *path, const split *wanted)
{
    split got;
    int file;
    const char *part = part_path(f, path, wanted->no, wanted->count);
    if (!part)
        return WF_ERR_MEMORY;
    WF_TRY(map_part(f, part, wanted, &file));
    WF_TRY(read_file(f, file, &got));
    return check_part(f->store.ctx, part, &got, wanted);
}

/* Moves the pairs of `from` to `to`, and frees those that `to` had. */
static void move_pairs(wf_gguf *to, wf_gguf *from)
{
    drop_pairs(to);
    to->version = from->version;
    to->pair = from->pair;
    to->pairs = from->pairs;
    to->pairs_file = from->pairs_file;
    to->sorted = from->sorted;
    from->pair = NULL;
    from->pairs = 0;
    from->sorted = NULL;
}

/* Maps all parts in order, so that the tensors of the store are in the order of the model. The keys
 * of part 0 are kept; those of other parts are checked and dropped. */
static wf_status open_parts(wf_gguf *f, const char *path, const split *whole)
{
    wf_gguf first = {.store.ctx =
                         f->store.ctx}; /* keeps the pairs of part 0 while other parts are read */
    split wanted = *whole;
    wf_status status = WF_OK;
    for (wanted.no = 0; status == WF_OK && wanted.no < wanted.count; wanted.no++) {
        status = open_part(f, path, &wanted);
        if (wanted.no == 0)
            move_pairs(&first, f);
    }
    move_pairs(f, &first);
    if (status == WF_OK && f->store.count != whole->tensors)
        status = wf_fail(f->store.ctx, WF_ERR_FORMAT,
                         "cannot read '%s': its parts have %d tensors, but key "
                         "'split.tensors.count' is %" PRId64,
                         wf_store_base_name(path), f->store.count, whole->tensors);
    return status;
}

/* ---- Files ---- */

static wf_status open_path(wf_gguf *f, const char *path)
{
    wf_ctx *ctx = f->store.ctx;
    split s;
    int file;
    WF_TRY(wf_store_map(&f->store, path, &file));
    WF_TRY(read_file(f, file, &s));
    /* Only now are the keys known to describe a split file: the file that was opened may be any
     * part. */
    if (s.count > 1) {
        WF_TRY(check_name(ctx, path, &s));
        drop_pairs(f);
        wf_store_free(&f->store); /* restart: tensors must be in the order of the parts */
        WF_TRY(open_parts(f, path, &s));
    }
    return wf_store_seal(&f->store);
}

static wf_status read_memory(wf_gguf *f, const char *what, const uint8_t *data, size_t bytes)
{
    split s;
    int file;
    WF_TRY(wf_store_memory(&f->store, what, data, bytes, &file));
    WF_TRY(read_file(f, file, &s));
    if (s.count > 1)
        return wf_fail(f->store.ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it is one of %" PRId64 " parts; open it by its path",
                       wf_store_base_name(what), s.count);
    return wf_store_seal(&f->store);
}

static wf_status begin(wf_ctx *ctx, wf_gguf **out)
{
    *out = wf_mem_new(ctx, sizeof **out);
    if (!*out)
        return WF_ERR_MEMORY;
    wf_store_init(&(*out)->store, ctx);
    return WF_OK;
}

/* Ends wf_gguf_open: frees everything on failure. A mapping that broke meanwhile turns success into
 * failure, because zeros were parsed. */
static wf_status finish(wf_status status, wf_gguf **out)
{
    if (wf_store_check(&(*out)->store) != WF_OK) /* truncated meanwhile: what was read is invalid */
        status = WF_ERR_IO;
    if (status != WF_OK) {
        wf_gguf_close(*out);
        *out = NULL;
    }
    return status;
}

wf_status wf_gguf_open(wf_ctx *ctx, const char *path, wf_gguf **out)
{
    WF_TRY(begin(ctx, out));
    return finish(open_path(*out, path), out);
}

wf_status wf_gguf_read(wf_ctx *ctx, const char *what, const uint8_t *data, size_t bytes,
                       wf_gguf **out)
{
    WF_TRY(begin(ctx, out));
    return finish(read_memory(*out, what, data, bytes), out);
}

const wf_gguf_pair *wf_gguf_find(const wf_gguf *f, const char *key)
{
    return wf_names_find(f->sorted, (size_t)f->pairs, key);
}
