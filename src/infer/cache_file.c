/* SPDX-License-Identifier: MIT */
/*
 * cache_file.c - saves the keys and values of a sequence, and reads them into the prefix cache.
 *
 * The file has GGUF's form:
 *
 *     general.type             "weft.cache"
 *     weft.cache.version       1
 *     weft.cache.identity      a checksum of the inputs that determine keys and values (identity.c)
 *     weft.cache.salt          of the request
 *     weft.cache.tokens        of the whole pages, 16 each
 *     kv.LAYER.k, kv.LAYER.v   [pages, 16, Hk, D]; behind a window, the pages that are still needed
 *     checksum                 i32[2]: of salt, tokens and all pages
 *
 * Reading changes nothing unless the file belongs to this engine, its checksum is right and the
 * pools have room. So the file is read twice: no page of another text is evicted for a damaged
 * file.
 */
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "device/device.h"
#include "format/gguf.h"
#include "infer/engine.h"

#define TYPE "weft.cache"
#define VERSION 1
#define KEY_TYPE "general.type"
#define KEY_VERSION "weft.cache.version"
#define KEY_IDENTITY "weft.cache.identity"
#define KEY_SALT "weft.cache.salt"
#define KEY_TOKENS "weft.cache.tokens"
#define CHECKSUM "checksum"

/* ---- Pools ---- */

/* The keys, or the values, of one layer in the engine's session, of some pages of a sequence. */
typedef struct {
    char name[WF_POOL_NAME];
    int cache;
    int64_t first; /* page of the sequence; earlier ones are behind the window */
    wf_dims shape; /* [pages, WF_PAGE_TOKENS, Hk, D] of those that are stored */
    size_t bytes;  /* of a page */
} pool;

/* Returns the first of `count` pages that the token after them reads. */
static int64_t first_page(const wf_engine *e, int cache, int64_t count)
{
    return wf_cache_first_page(&e->caches.cache[cache], WF_PAGE_TOKENS, count * WF_PAGE_TOKENS);
}

/* Finds the next pool that has pages of a sequence of `count` pages; *at starts as 0. Returns false
 * at the end. */
static bool next_pool(const wf_engine *e, int64_t count, int64_t *at, pool *out)
{
    for (; *at < WF_MOST_POOLS * e->source.config->layers; ++*at) {
        const wf_layer *l = wf_config_layer(e->source.config, *at / WF_MOST_POOLS);
        const int which = (int)(*at % WF_MOST_POOLS);
        wf_pool_row row[WF_MOST_POOLS];
        out->cache = wf_caches_find(&e->caches, l);
        out->first = first_page(e, out->cache, count);
        if (which >= wf_layer_pools(l, row) || out->first == count)
            continue;
        wf_pool_name(out->name, *at / WF_MOST_POOLS, which);
        out->shape = (wf_dims){
            .n = 4, .d = {count - out->first, WF_PAGE_TOKENS, row[which].heads, row[which].dim}};
        out->bytes = wf_type_bytes(e->kv, wf_dims_count(&out->shape) / out->shape.d[0]);
        ++*at;
        return true;
    }
    return false;
}

static wf_status check_engine(const wf_engine *e)
{
    if (!e->model || e->model->fetch)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "keys and values can be saved and restored only for a model from files; "
                       "this engine runs a model in training");
    if (!e->prefix)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "keys and values cannot be saved or restored by an engine with no_reuse");
    return WF_OK;
}

static void add_head(wf_checksum_state *sum, uint64_t salt, const int32_t *tokens, int64_t count)
{
    wf_checksum_begin(sum);
    wf_checksum_add(sum, &salt, sizeof salt);
    wf_checksum_add(sum, tokens, (size_t)count * WF_PAGE_TOKENS * sizeof *tokens);
}

/* ---- Saving ---- */

static wf_status declare(const wf_sequence *s, int64_t count, wf_gguf_writer *w)
{
    const wf_engine *e = s->engine;
    uint64_t identity;
    pool p;
    WF_TRY(wf_engine_identity(e, &identity));
    WF_TRY(wf_gguf_write_text(w, KEY_TYPE, TYPE, strlen(TYPE)));
    WF_TRY(wf_gguf_write_int(w, KEY_VERSION, WF_GGUF_U32, VERSION));
    WF_TRY(wf_gguf_write_int(w, KEY_IDENTITY, WF_GGUF_I64, (int64_t)identity));
    WF_TRY(wf_gguf_write_int(w, KEY_SALT, WF_GGUF_I64, (int64_t)s->salt));
    WF_TRY(wf_gguf_write_array(w, KEY_TOKENS, WF_GGUF_I32, s->token,
                               (size_t)(count * WF_PAGE_TOKENS)));
    for (int64_t at = 0; next_pool(e, count, &at, &p);)
        WF_TRY(wf_gguf_write_tensor(w, p.name, e->kv, &p.shape));
    return wf_gguf_write_tensor(w, CHECKSUM, WF_I32, &(wf_dims){.n = 1, .d = {2}});
}

/* Copies the pages of one pool from the device to the file. */
static wf_status write_pool(const wf_engine *e, const pool *p, int64_t count, wf_gguf_writer *w,
                            wf_checksum_state *sum)
{
    wf_status status = WF_OK;
    void *page = wf_mem_new(e->ctx, p->bytes);
    if (!page)
        return WF_ERR_MEMORY;
    for (int64_t i = p->first; status == WF_OK && i < count; i++) {
        const int32_t from = e->prefix->node[e->match[i]].page[p->cache];
        status = wf_session_read_at(e->session, p->name, (size_t)from * p->bytes, page, p->bytes);
        if (status == WF_OK)
            status = wf_gguf_write_data(w, page, p->bytes);
        wf_checksum_add(sum, page, p->bytes);
    }
    wf_mem_free(e->ctx, page);
    return status;
}

static wf_status write_file(const wf_sequence *s, int64_t count, wf_gguf_writer *w)
{
    wf_checksum_state sum;
    pool p;
    WF_TRY(declare(s, count, w));
    WF_TRY(wf_gguf_write_begin(w));
    add_head(&sum, s->salt, s->token, count);
    for (int64_t at = 0; next_pool(s->engine, count, &at, &p);)
        WF_TRY(write_pool(s->engine, &p, count, w, &sum));
    const uint64_t checksum = wf_checksum_end(&sum);
    WF_TRY(wf_gguf_write_data(w, &checksum, sizeof checksum));
    return wf_gguf_write_end(w);
}

wf_status wf_sequence_save(const wf_sequence *s, const char *path)
{
    const wf_engine *e = s->engine;
    wf_gguf_writer *w;
    bool pending;
    WF_TRY(check_engine(e));
    if (!wf_path_missing(path))
        return wf_fail(e->ctx, WF_ERR_USAGE, "cannot save to '%s': it exists; choose another path",
                       path);
    /* The last generated token has no keys yet. The one before it is computed again when the same
     * text is a prompt, and then sees the pages before it: with windows, others would not help. */
    const int64_t most = (s->count - (s->count > s->prompt) - 1) / WF_PAGE_TOKENS;
    const int64_t count = wf_prefix_match(e->prefix, s->salt, s->token, most, e->match, &pending);
    if (count == 0)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "none of the sequence's %lld tokens can be saved: its keys and values fill "
                       "no page of %d tokens, or are no longer in the pools",
                       (long long)s->count, WF_PAGE_TOKENS);
    WF_TRY(wf_gguf_write_new(e->ctx, path, NULL, &w));
    wf_status status = write_file(s, count, w);
    wf_gguf_write_free(w);
    return status;
}

/* ---- Reading ---- */

/* A file, checked as far as possible without its data. */
typedef struct {
    wf_engine *e;
    wf_gguf *file;
    const char *path;
    uint64_t salt;
    int32_t *token; /* [count * WF_PAGE_TOKENS], owned */
    int64_t count;  /* pages */
    wf_page_list pages[WF_MOST_CACHES];
} saved;

#define REWRITE "; delete the file to write it again"

static wf_status refuse(const saved *f, const char *why)
{
    return wf_fail(f->e->ctx, WF_ERR_FORMAT, "cannot restore '%s': %s", f->path, why);
}

static wf_status check_keys(const saved *f)
{
    static const char *const known[] = {KEY_TYPE, KEY_VERSION, KEY_IDENTITY,
                                        KEY_SALT, KEY_TOKENS,  "general.alignment"};
    char shown[WF_TEXT_SHOWN];
    wf_gguf_text type;
    int64_t version = 0;
    WF_TRY(wf_gguf_get_text(f->file, KEY_TYPE, &type));
    if (!type.bytes || type.len != strlen(TYPE) || memcmp(type.bytes, TYPE, type.len) != 0)
        return refuse(f, "it holds no keys and values; weft run --prompt-cache writes such files");
    WF_TRY(wf_gguf_get_int(f->file, KEY_VERSION, 0, INT32_MAX, &version));
    if (version != VERSION)
        return refuse(f, "another version of Weft wrote it" REWRITE);
    for (int i = 0; i < f->file->pairs; i++) {
        const char *key = f->file->pair[i].key;
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(key, known[k]) != 0)
            k++;
        if (k == sizeof known / sizeof *known)
            return wf_fail(f->e->ctx, WF_ERR_FORMAT, "cannot restore '%s': unknown key '%s'",
                           f->path, wf_text_show(shown, key, strlen(key)));
    }
    return WF_OK;
}

static wf_status read_tokens(saved *f)
{
    const wf_engine *e = f->e;
    const int64_t *ids;
    size_t count;
    WF_TRY(wf_gguf_get_ints(f->file, KEY_TOKENS, &ids, &count));
    if (count == 0 || count % WF_PAGE_TOKENS != 0)
        return refuse(f, "its tokens do not fill whole pages" REWRITE);
    if (count > (size_t)e->limit)
        return wf_fail(
            e->ctx, WF_ERR_USAGE,
            "cannot restore '%s': it has %zu tokens, but this engine allows %lld; use a context "
            "(-c) and a cache of %zu or more",
            f->path, count, (long long)e->limit, count);
    f->token = wf_mem_array(e->ctx, count, sizeof *f->token);
    if (!f->token)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= e->vocab)
            return refuse(f, "a token is outside the vocabulary" REWRITE);
        f->token[i] = (int32_t)ids[i];
    }
    f->count = (int64_t)count / WF_PAGE_TOKENS;
    return WF_OK;
}

static wf_status check_tensor(const saved *f, const char *name, wf_type type, const wf_dims *shape)
{
    const wf_stored *t = wf_store_find(&f->file->store, name);
    if (t && t->type == type && wf_dims_equal(&t->shape, shape))
        return WF_OK;
    return wf_fail(f->e->ctx, WF_ERR_FORMAT,
                   t ? "cannot restore '%s': tensor %s has another type or shape"
                     : "cannot restore '%s': tensor %s is missing",
                   f->path, name);
}

static wf_status check_tensors(const saved *f)
{
    int count = 1;
    pool p;
    for (int64_t at = 0; next_pool(f->e, f->count, &at, &p); count++)
        WF_TRY(check_tensor(f, p.name, f->e->kv, &p.shape));
    WF_TRY(check_tensor(f, CHECKSUM, WF_I32, &(wf_dims){.n = 1, .d = {2}}));
    return f->file->store.count == count ? WF_OK : refuse(f, "it has more tensors than a cache");
}

static wf_status check(saved *f)
{
    uint64_t identity;
    int64_t number = 0, salt = 0;
    WF_TRY(check_keys(f));
    WF_TRY(wf_gguf_get_int(f->file, KEY_IDENTITY, INT64_MIN, INT64_MAX, &number));
    WF_TRY(wf_gguf_get_int(f->file, KEY_SALT, INT64_MIN, INT64_MAX, &salt));
    f->salt = (uint64_t)salt;
    WF_TRY(wf_engine_identity(f->e, &identity));
    if ((uint64_t)number != identity)
        return wf_fail(
            f->e->ctx, WF_ERR_USAGE,
            "cannot restore '%s': it belongs to another model, adapter, type of keys and "
            "values, context scaling, compute type, processor or version of Weft",
            f->path);
    WF_TRY(read_tokens(f));
    return check_tensors(f);
}

/* Takes the pages that the token after the saved ones reads. */
static wf_status hold_pages(saved *f)
{
    wf_engine *e = f->e;
    for (int i = 0; i < e->caches.count; i++) {
        bool held;
        WF_TRY(
            wf_pages_hold(&e->pages[i], &f->pages[i], first_page(e, i, f->count), f->count, &held));
        if (!held)
            return wf_fail(
                e->ctx, WF_ERR_MEMORY,
                "cannot restore '%s': it needs %lld pages of %d tokens, but only %lld are "
                "unused; use a larger cache",
                f->path, (long long)(f->count - first_page(e, i, f->count)), WF_PAGE_TOKENS,
                (long long)wf_pages_available(&e->pages[i]));
    }
    return WF_OK;
}

static wf_status verify(const saved *f)
{
    wf_checksum_state sum;
    uint64_t checksum;
    pool p;
    add_head(&sum, f->salt, f->token, f->count);
    for (int64_t at = 0; next_pool(f->e, f->count, &at, &p);)
        wf_checksum_add(&sum, wf_store_find(&f->file->store, p.name)->data,
                        (size_t)p.shape.d[0] * p.bytes);
    memcpy(&checksum, wf_store_find(&f->file->store, CHECKSUM)->data, sizeof checksum);
    WF_TRY(wf_store_check(&f->file->store));
    return checksum == wf_checksum_end(&sum) ? WF_OK : refuse(f, "the file is damaged" REWRITE);
}

/* Copies all pages to the device. */
static wf_status write_pages(saved *f)
{
    wf_engine *e = f->e;
    pool p;
    for (int64_t at = 0; next_pool(e, f->count, &at, &p);) {
        const wf_page_list *list = &f->pages[p.cache];
        const uint8_t *data = wf_store_find(&f->file->store, p.name)->data;
        for (int64_t i = list->first; i < list->end; i++, data += p.bytes)
            WF_TRY(wf_session_write_at(e->session, p.name, (size_t)list->page[i] * p.bytes, data,
                                       p.bytes));
    }
    return wf_store_check(&f->file->store); /* truncated meanwhile */
}

/* Inserts the pages into the prefix cache. Returns how many it had room for. */
static int64_t insert(saved *f)
{
    wf_prefix *prefix = f->e->prefix;
    int32_t place = -1;
    int64_t i = 0;
    while (i < f->count &&
           wf_prefix_extend(prefix, &place, f->salt, f->token + i * WF_PAGE_TOKENS, f->pages, i))
        i++;
    wf_prefix_move(prefix, &place, -1);
    return i;
}

/* Whether the prefix cache has all tokens of the file already. */
static bool is_cached(const saved *f)
{
    bool pending;
    return wf_prefix_match(f->e->prefix, f->salt, f->token, f->count, f->e->match, &pending) ==
           f->count;
}

static wf_status restore(saved *f, size_t *tokens)
{
    WF_TRY(check(f));
    *tokens = (size_t)(f->count * WF_PAGE_TOKENS);
    if (is_cached(f))
        return WF_OK;
    WF_TRY(verify(f));
    WF_TRY(hold_pages(f));
    WF_TRY(write_pages(f));
    *tokens = (size_t)(insert(f) * WF_PAGE_TOKENS);
    return WF_OK;
}

wf_status wf_engine_restore_file(wf_engine *e, wf_gguf *file, const char *path, size_t *tokens)
{
    saved f = {.e = e, .file = file, .path = path};
    size_t count = 0;
    wf_status status = restore(&f, &count);
    for (int i = 0; i < e->caches.count; i++) /* pages in the prefix cache keep their contents */
        wf_pages_drop(&e->pages[i], &f.pages[i]);
    wf_mem_free(e->ctx, f.token);
    *tokens = status == WF_OK ? count : 0;
    return status;
}

wf_status wf_engine_restore(wf_engine *e, const char *path, size_t *tokens)
{
    wf_gguf *file;
    size_t count;
    if (tokens)
        *tokens = 0;
    WF_TRY(check_engine(e));
    WF_TRY(wf_gguf_open(e->ctx, path, &file));
    wf_status status = wf_engine_restore_file(e, file, path, &count);
    wf_gguf_close(file);
    if (tokens)
        *tokens = count;
    return status;
}
