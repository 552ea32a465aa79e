/* SPDX-License-Identifier: MIT */
/*
 * data.c - opens a folder of shards and verifies all of it.
 *
 * Shards stay mapped; verification reads them once, in parallel, and checks every checksum, id and
 * document start. Later code relies on this, except for files that are truncated afterwards: those
 * read as zeros, so loops must make progress for any value.
 */
#include "train/data.h"

#include <string.h>

#include "base/check.h"
#include "base/checksum.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/thread.h"
#include "text/token.h"
#include "train/data_priv.h"
#include "train/index.h"

#define TOKENIZER_BYTES ((size_t)256 << 20) /* limit of tokenizer.json */

/* ---- Shards ---- */

/* Returns whether a shard's header agrees with data.json. */
static bool same_counts(const wf_shard_info *a, const wf_shard_info *b)
{
    return a->id_bytes == b->id_bytes && a->vocab == b->vocab && a->tokens == b->tokens &&
           a->documents == b->documents && a->bytes == b->bytes && a->counted == b->counted &&
           a->masked == b->masked && a->sum == b->sum;
}

/* Maps the shards and sums their counts; the sums are checked for overflow before ids index
 * them. */
static wf_status open_shards(wf_data *d, const char *folder, const wf_index_split *from,
                             wf_data_split *to)
{
    to->shard = wf_mem_array(d->ctx, from->count, sizeof *to->shard);
    to->token = wf_mem_array(d->ctx, from->count + 1, sizeof *to->token);
    to->document = wf_mem_array(d->ctx, from->count + 1, sizeof *to->document);
    if (!to->shard || !to->token || !to->document)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < from->count; i++) {
        const char *path = wf_path_join(&d->arena, folder, from->shard[i].file);
        wf_data_info *info = &to->info;
        if (!path)
            return WF_ERR_MEMORY;
        WF_TRY(wf_shard_open(d->ctx, path, &to->shard[i]));
        to->shards++;
        const wf_shard_info *s = &to->shard[i].info;
        if (!same_counts(s, &from->shard[i].info))
            return wf_fail(d->ctx, WF_ERR_FORMAT,
                           "the file '%s' is not the shard that %s in its folder describes; run "
                           "`weft prepare` again",
                           path, WF_INDEX_FILE);
        if (!wf_add_i64(info->tokens, s->tokens, &info->tokens) ||
            !wf_add_i64(info->bytes, s->bytes, &info->bytes))
            return wf_fail(d->ctx, WF_ERR_FORMAT, "the folder '%s' has too many tokens to count",
                           folder);
        info->documents += s->documents; /* at most the number of tokens, like `counted` */
        info->counted += s->counted;
        info->masked = s->masked;
        to->token[i + 1] = info->tokens;
        to->document[i + 1] = info->documents;
    }
    return WF_OK;
}

typedef struct {
    const wf_data *d;
    wf_shard_fault *fault; /* [all shards], training shards first */
} verification;

/* Returns shard i of both splits together; *split: the one that it belongs to. */
static const wf_shard *nth_shard(const wf_data *d, int64_t i, int *split)
{
    *split = i >= d->split[0].shards;
    return &d->split[*split].shard[*split ? i - d->split[0].shards : i];
}

static void verify_some(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    verification *v = arg;
    int split;
    for (int64_t i = begin; i < end; i++)
        v->fault[i] = wf_shard_verify(nth_shard(v->d, i, &split));
}

static wf_status verify_all(wf_data *d, const char *folder, const wf_index *x)
{
    int64_t all = (int64_t)d->split[0].shards + d->split[1].shards;
    verification v = {.d = d, .fault = wf_mem_array(d->ctx, (size_t)all, sizeof *v.fault)};
    if (!v.fault)
        return WF_ERR_MEMORY;
    wf_parallel_share(wf_threads_available(), all, 1, verify_some, &v);
    wf_status status = WF_OK;
    for (int64_t i = 0; i < all && status == WF_OK; i++) {
        int split;
        const wf_shard *s = nth_shard(d, i, &split);
        const wf_index_split *named = &x->split[split];
        const char *path =
            wf_path_join(&d->arena, folder, named->shard[split ? i - d->split[0].shards : i].file);
        status = path ? wf_shard_report(d->ctx, path, s, v.fault[i]) : WF_ERR_MEMORY;
    }
    wf_mem_free(d->ctx, v.fault);
    return status;
}

/* ---- The tokenizer ---- */

static wf_status check_tokenizer(wf_data *d, const char *folder, const wf_index *x)
{
    const char *path = wf_path_join(&d->arena, folder, "tokenizer.json");
    char *text;
    size_t bytes;
    if (!path)
        return WF_ERR_MEMORY;
    WF_TRY(wf_file_read(d->ctx, path, TOKENIZER_BYTES, &text, &bytes));
    uint64_t sum = wf_checksum(text, bytes);
    wf_mem_free(d->ctx, text);
    if (sum != x->tokenizer_sum)
        return wf_fail(
            d->ctx, WF_ERR_FORMAT,
            "the file '%s' is not the tokenizer that encoded this data: its checksum differs",
            path);
    WF_TRY(wf_tokenizer_from_folder(d->ctx, folder, &d->tokenizer));
    if (wf_tokenizer_count(d->tokenizer) != x->vocab)
        return wf_fail(d->ctx, WF_ERR_FORMAT,
                       "the tokenizer '%s' has %d token%s, but the data was encoded with %lld",
                       path, (int)wf_tokenizer_count(d->tokenizer),
                       WF_PLURAL(wf_tokenizer_count(d->tokenizer)), (long long)x->vocab);
    d->lengths = wf_mem_array(d->ctx, (size_t)x->vocab, sizeof *d->lengths);
    return d->lengths ? wf_tokenizer_lengths(d->tokenizer, d->ctx, d->lengths) : WF_ERR_MEMORY;
}

/* ---- Opening ---- */

/* A resumed run compares this, so it must depend on content only, not on names or times. */
static uint64_t identify(const wf_data *d, const wf_index *x)
{
    wf_checksum_state s;
    wf_checksum_begin(&s);
    /* Header sums identify shards, so no token is read. */
    uint64_t numbers[] = {x->tokenizer_sum, (uint64_t)d->split[0].shards,
                          (uint64_t)d->split[1].shards};
    wf_checksum_add(&s, numbers, sizeof numbers);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < d->split[i].shards; k++)
            wf_checksum_add(&s, &d->split[i].shard[k].info.sum, sizeof(uint64_t));
    return wf_checksum_end(&s);
}

static wf_status open_all(wf_data *d, const char *folder)
{
    wf_index x;
    WF_TRY(wf_index_read(&d->arena, folder, &x));
    d->chat_template = x.chat_template;
    d->end = x.end;
    for (int i = 0; i < 2; i++)
        WF_TRY(open_shards(d, folder, &x.split[i], &d->split[i]));
    if (d->split[WF_SPLIT_TRAIN].info.tokens == 0)
        return wf_fail(d->ctx, WF_ERR_FORMAT, "the folder '%s' has no training data", folder);
    WF_TRY(verify_all(d, folder, &x));
    WF_TRY(check_tokenizer(d, folder, &x));
    d->identity = identify(d, &x);
    return WF_OK;
}

wf_status wf_data_open(wf_ctx *ctx, const char *folder, wf_data **out)
{
    *out = NULL;
    wf_data *d = wf_mem_new(ctx, sizeof *d);
    if (!d)
        return WF_ERR_MEMORY;
    d->ctx = ctx;
    wf_arena_init(&d->arena, ctx);
    wf_status status = open_all(d, folder);
    if (status == WF_OK)
        *out = d;
    else
        wf_data_close(d);
    return status;
}

void wf_data_close(wf_data *d)
{
    if (!d)
        return;
    for (int i = 0; i < 2; i++) {
        wf_data_split *s = &d->split[i];
        for (int k = 0; k < s->shards; k++)
            wf_shard_close(&s->shard[k]);
        wf_mem_free(d->ctx, s->shard);
        wf_mem_free(d->ctx, s->token);
        wf_mem_free(d->ctx, s->document);
    }
    wf_tokenizer_free(d->tokenizer);
    wf_mem_free(d->ctx, d->lengths);
    wf_arena_free(&d->arena);
    wf_mem_free(d->ctx, d);
}

void wf_data_get_info(const wf_data *d, wf_split split, wf_data_info *out)
{
    *out = d->split[split].info;
}

const wf_tokenizer *wf_data_tokenizer(const wf_data *d)
{
    return d->tokenizer;
}

const char *wf_data_chat_template(const wf_data *d)
{
    return d->chat_template;
}

int32_t wf_data_end(const wf_data *d)
{
    return d->end;
}

uint64_t wf_data_identity(const wf_data *d)
{
    return d->identity;
}

/* ---- Lookup across shards ---- */

int wf_data_shard(const int64_t *numbers, int shards, int64_t n)
{
    int low = 0, high = shards; /* numbers[low] <= n < numbers[high] */
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (numbers[middle] <= n)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* [from, from + count) must lie within the split. Ids may cross shards. */
void wf_data_copy(const wf_data_split *s, int64_t from, int64_t count, int32_t *to)
{
    for (int k = wf_data_shard(s->token, s->shards, from); count > 0; k++) {
        int64_t left = s->token[k + 1] - from, n = count < left ? count : left;
        wf_shard_copy(&s->shard[k], from - s->token[k], n, to);
        from += n;
        to += n;
        count -= n;
    }
}

/* Returns the start of the next document after `token`, or the end of the shard. Always beyond
 * `token`. */
int64_t wf_data_next_start(const wf_data_split *s, int64_t token)
{
    int k = wf_data_shard(s->token, s->shards, token);
    const wf_shard *shard = &s->shard[k];
    int64_t own = token - s->token[k],
            start = wf_shard_start(shard, wf_shard_document(shard, own) + 1);
    /* The starts were verified, but a truncated file reads as zeros and callers rely on
     * progress. */
    return start > own && start <= shard->info.tokens ? s->token[k] + start : s->token[k + 1];
}

bool wf_data_broken(const wf_data_split *s)
{
    for (int k = 0; k < s->shards; k++)
        if (wf_map_broken(s->shard[k].map))
            return true;
    return false;
}
