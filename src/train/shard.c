/* SPDX-License-Identifier: MIT */
/*
 * shard.c - reads shards, and verifies everything before it is used.
 *
 * The layout is in shard_format.h. Opening checks magic, version, the header's checksum, counts,
 * offsets and the file's size; the offsets must equal those computed from the counts, so no pointer
 * can leave the file. wf_shard_verify then reads the data once.
 */
#include "train/shard.h"

#include <string.h>

#include "base/check.h"
#include "base/checksum.h"
#include "train/shard_format.h"

#define BLOCK ((size_t)1 << 16) /* checksummed and checked while it is in the cache */

/* The first check keeps the products below from overflowing. */
bool wf_shard_lay_out(const wf_shard_info *info, wf_shard_layout *out)
{
    size_t bytes;
    *out = (wf_shard_layout){.ids = WF_SHARD_HEADER};
    if (info->tokens < 0 || info->documents < 0 || (uint64_t)info->tokens > SIZE_MAX / 16 ||
        (uint64_t)info->documents > SIZE_MAX / 16)
        return false;
    if (!wf_mul_size((size_t)info->tokens, (size_t)info->id_bytes, &bytes) ||
        !wf_add_size(out->ids, bytes, &bytes) || !wf_align_size(bytes, 8, &out->starts) ||
        !wf_add_size(out->starts, ((size_t)info->documents + 1) * 8, &out->size))
        return false;
    if (info->masked) {
        out->mask = out->size;
        return wf_add_size(out->size, ((size_t)info->tokens + 7) / 8, &out->size);
    }
    return true;
}

/* ---- The header ---- */

static wf_status refuse(wf_ctx *ctx, const char *what, const char *why)
{
    return wf_fail(ctx, WF_ERR_FORMAT, "the shard '%s' %s; run `weft prepare` again", what, why);
}

/* Returns -1, which is never valid, for values beyond int64_t. */
static int64_t number(const uint8_t *header, int at)
{
    uint64_t x = wf_shard_load(header + at, 8);
    return x > INT64_MAX ? -1 : (int64_t)x;
}

static wf_status read_counts(wf_ctx *ctx, const char *what, const uint8_t *h, wf_shard_info *i)
{
    uint64_t flags = wf_shard_load(h + WF_AT_FLAGS, 8);
    *i = (wf_shard_info){
        .id_bytes = (int)(wf_shard_load(h + WF_AT_ID_BYTES, 4) & INT32_MAX),
        .vocab = number(h, WF_AT_VOCAB),
        .tokens = number(h, WF_AT_TOKENS),
        .documents = number(h, WF_AT_DOCUMENTS),
        .bytes = number(h, WF_AT_BYTES),
        .counted = number(h, WF_AT_COUNTED),
        .masked = flags & WF_SHARD_MASKED,
        .sum = wf_shard_load(h + WF_AT_HEADER_SUM, 8),
    };
    if (flags & ~(uint64_t)WF_SHARD_MASKED || wf_shard_load(h + WF_AT_ZEROS, 8) != 0 ||
        wf_shard_load(h + WF_AT_ZEROS + 8, 8) != 0)
        return refuse(ctx, what, "has flags that this version does not support");
    if (i->id_bytes != 2 && i->id_bytes != 4)
        return refuse(ctx, what, "has ids of a width other than 2 and 4 bytes");
    if (i->vocab < 1 || i->vocab > (i->id_bytes == 2 ? 65536 : INT32_MAX))
        return refuse(ctx, what, "has a vocabulary size that its ids cannot represent");
    if (i->tokens < 1 || i->documents < 1)
        return refuse(ctx, what, "is empty");
    if (i->documents > i->tokens || i->bytes < 0 || i->counted < 0 || i->counted > i->tokens ||
        (!i->masked && i->counted != i->tokens))
        return refuse(ctx, what, "has inconsistent counts");
    return WF_OK;
}

static wf_status read_header(wf_ctx *ctx, const char *what, const uint8_t *h, size_t size,
                             wf_shard *s)
{
    wf_shard_layout l;
    if (size < 8 || memcmp(h, WF_SHARD_MAGIC, 8) != 0)
        return wf_fail(ctx, WF_ERR_FORMAT, "the file '%s' is not a shard of tokens", what);
    if (size < WF_SHARD_HEADER)
        return refuse(ctx, what, "ends within its header");
    uint64_t version = wf_shard_load(h + WF_AT_VERSION, 4);
    if (version != WF_SHARD_VERSION)
        return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                       "the file '%s' is a shard of version %u, but this program reads version %d",
                       what, (unsigned)version, WF_SHARD_VERSION);
    if (wf_checksum(h, WF_AT_HEADER_SUM) != wf_shard_load(h + WF_AT_HEADER_SUM, 8))
        return refuse(ctx, what, "has a damaged header: its checksum differs");
    WF_TRY(read_counts(ctx, what, h, &s->info));
    if (!wf_shard_lay_out(&s->info, &l) || wf_shard_load(h + WF_AT_IDS, 8) != l.ids ||
        wf_shard_load(h + WF_AT_STARTS, 8) != l.starts ||
        wf_shard_load(h + WF_AT_MASK, 8) != l.mask || wf_shard_load(h + WF_AT_SIZE, 8) != l.size)
        return refuse(ctx, what, "has offsets that do not match its counts");
    if (size != l.size)
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "the shard '%s' has %zu bytes instead of %zu; run `weft prepare` again",
                       what, size, l.size);
    s->ids = h + l.ids;
    s->starts = h + l.starts;
    s->mask = l.mask ? h + l.mask : NULL;
    s->data_sum = wf_shard_load(h + WF_AT_DATA_SUM, 8);
    return WF_OK;
}

/* Reads the header of a mapped shard; closes it on failure. */
static wf_status take(wf_ctx *ctx, const char *what, wf_shard *s)
{
    wf_status status = read_header(ctx, what, s->map->data, s->map->size, s);
    if (status == WF_OK && wf_map_broken(s->map))
        status = refuse(ctx, what, "was truncated while it was read");
    if (status != WF_OK)
        wf_shard_close(s);
    return status;
}

wf_status wf_shard_open(wf_ctx *ctx, const char *path, wf_shard *out)
{
    *out = (wf_shard){0};
    WF_TRY(wf_map_open(ctx, path, &out->map));
    return take(ctx, path, out);
}

wf_status wf_shard_memory(wf_ctx *ctx, const char *what, const uint8_t *data, size_t size,
                          wf_shard *out)
{
    *out = (wf_shard){0};
    WF_TRY(wf_map_memory(ctx, data, size, &out->map));
    return take(ctx, what, out);
}

void wf_shard_close(wf_shard *s)
{
    wf_map_close(s->map);
    *s = (wf_shard){0};
}

/* ---- Verification ---- */

/* Takes the maximum without branches, which compilers vectorize; one comparison decides. */
static bool ids_below(const uint8_t *p, size_t bytes, int width, uint32_t vocab)
{
    /* A 4-byte id with the top bit set is above any vocabulary, so unsigned comparison suffices. */
    uint32_t most = 0;
    for (size_t i = 0; width == 2 && i < bytes; i += 2) {
        uint32_t id = (uint32_t)wf_shard_load(p + i, 2);
        most = id > most ? id : most;
    }
    for (size_t i = 0; width == 4 && i < bytes; i += 4) {
        uint32_t id = (uint32_t)wf_shard_load(p + i, 4);
        most = id > most ? id : most;
    }
    return most < vocab;
}

/* Also rejects empty documents, so that every token belongs to one. */
static bool starts_ascend(const wf_shard *s)
{
    int64_t last = -1;
    for (int64_t d = 0; d <= s->info.documents; d++) {
        uint64_t start = wf_shard_load(s->starts + 8 * d, 8);
        if (start > (uint64_t)s->info.tokens || (int64_t)start <= last || (d == 0 && start != 0))
            return false;
        last = (int64_t)start;
    }
    return last == s->info.tokens;
}

/* Returns -1 if bits after the last token are set. */
static int64_t count_marked(const wf_shard *s)
{
    int64_t bytes = (s->info.tokens + 7) / 8, n = 0;
    int last = (int)(s->info.tokens % 8);
    for (int64_t i = 0; i < bytes; i++)
        n += __builtin_popcount(s->mask[i]);
    return last && s->mask[bytes - 1] >> last ? -1 : n;
}

/* One pass in blocks: checksum and ids of a block while it is cached. */
wf_shard_fault wf_shard_verify(const wf_shard *s)
{
    wf_checksum_state sum;
    wf_checksum_begin(&sum);
    const uint8_t *data = s->ids, *ids_end = s->ids + s->info.tokens * s->info.id_bytes;
    /* The ids follow the header directly, so data starts at s->ids. BLOCK is a multiple of both id
     * widths, so no id crosses blocks. */
    size_t size = s->map->size - WF_SHARD_HEADER;
    bool below = true;
    for (size_t at = 0; at < size; at += BLOCK) {
        size_t n = size - at < BLOCK ? size - at : BLOCK;
        wf_checksum_add(&sum, data + at, n);
        if (data + at < ids_end) {
            size_t left = (size_t)(ids_end - (data + at));
            below = below && ids_below(data + at, left < n ? left : n, s->info.id_bytes,
                                       (uint32_t)s->info.vocab);
        }
    }
    if (wf_checksum_end(&sum) != s->data_sum)
        return WF_SHARD_CHANGED;
    if (!below)
        return WF_SHARD_ID;
    if (!starts_ascend(s))
        return WF_SHARD_STARTS;
    return s->mask && count_marked(s) != s->info.counted ? WF_SHARD_COUNTED : WF_SHARD_GOOD;
}

wf_status wf_shard_report(wf_ctx *ctx, const char *path, const wf_shard *s, wf_shard_fault fault)
{
    if (wf_map_broken(s->map))
        return refuse(ctx, path, "was truncated while it was read");
    switch (fault) {
    case WF_SHARD_GOOD: return WF_OK;
    case WF_SHARD_CHANGED: return refuse(ctx, path, "is damaged: its checksum differs");
    case WF_SHARD_ID: return refuse(ctx, path, "has a token id beyond the vocabulary");
    case WF_SHARD_STARTS: return refuse(ctx, path, "has documents that are not in order");
    case WF_SHARD_COUNTED:
        return refuse(ctx, path, "has a mask that does not match its number of tokens with loss");
    }
    return wf_fail(ctx, WF_ERR_INTERNAL, "unknown shard fault %d", (int)fault);
}

/* ---- Lookup ---- */

/* [from, from + count) must lie within the shard. */
void wf_shard_copy(const wf_shard *s, int64_t from, int64_t count, int32_t *to)
{
    const uint8_t *p = s->ids + from * s->info.id_bytes;
    if (s->info.id_bytes == 2)
        for (int64_t i = 0; i < count; i++)
            to[i] = (int32_t)wf_shard_load(p + 2 * i, 2);
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = (int32_t)wf_shard_load(p + 4 * i, 4);
}

/* Binary search; terminates for any bytes, even if the file was truncated meanwhile. */
int64_t wf_shard_document(const wf_shard *s, int64_t token)
{
    int64_t low = 0, high = s->info.documents; /* start(low) <= token < start(high) */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (wf_shard_start(s, middle) <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}
