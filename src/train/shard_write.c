/* SPDX-License-Identifier: MIT */
/* shard_write.c - writes a shard sequentially. Only the header is written twice: its counts are
 * known last. */
#include <string.h>

#include "base/checksum.h"
#include "base/mem.h"
#include "base/sink.h"
#include "train/shard_format.h"

#define GATHER 4096 /* ids converted to bytes at a time */

struct wf_shard_writer {
    wf_ctx *ctx;
    /* Owned; commits in wf_shard_write_end, else the file disappears. */
    wf_sink *sink;
    wf_shard_info info;
    wf_checksum_state sum; /* of everything after the header */
    uint64_t *starts;      /* [info.documents + 1]; the last is the current document's */
    size_t starts_room;
    uint8_t *mask;    /* one bit per token; NULL: no mask */
    size_t mask_room; /* bytes, zeros after the last token */
};

/* Little endian on every machine. */
static void store(uint8_t *p, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

/* Writes data that counts for the checksum. */
static wf_status put(wf_shard_writer *w, const void *data, size_t bytes)
{
    wf_checksum_add(&w->sum, data, bytes);
    return wf_sink_write(w->sink, data, bytes);
}

wf_status wf_shard_write_new(wf_ctx *ctx, const char *path, int64_t vocab, bool masked,
                             wf_shard_writer **out)
{
    static const uint8_t blank[WF_SHARD_HEADER];
    wf_assert(vocab > 0 && vocab <= INT32_MAX);
    *out = NULL;
    wf_shard_writer *w = wf_mem_new(ctx, sizeof *w);
    if (!w)
        return WF_ERR_MEMORY;
    w->ctx = ctx;
    /* 65536 ids, 0 to 65535, fit 2 bytes. */
    w->info = (wf_shard_info){.id_bytes = vocab <= 65536 ? 2 : 4, .vocab = vocab, .masked = masked};
    wf_checksum_begin(&w->sum);
    w->starts_room = 64;
    w->starts = wf_mem_array(ctx, w->starts_room, sizeof *w->starts);
    wf_status status = w->starts ? wf_sink_open(ctx, path, &w->sink) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = wf_sink_write(w->sink, blank, sizeof blank);
    if (status == WF_OK)
        *out = w;
    else
        wf_shard_write_free(w);
    return status;
}

/* Sets the bits of the next `count` tokens, and counts them. */
static wf_status mark(wf_shard_writer *w, const uint8_t *mask, int64_t count)
{
    size_t need = (size_t)(w->info.tokens + count + 7) / 8;
    if (need > w->mask_room) {
        size_t room = need > 2 * w->mask_room ? need : 2 * w->mask_room;
        uint8_t *grown = wf_mem_grow(w->ctx, w->mask, room);
        if (!grown)
            return WF_ERR_MEMORY;
        w->mask = grown;
        w->mask_room = room;
    }
    for (int64_t i = 0, at = w->info.tokens; i < count; i++, at++)
        if (!mask || mask[i]) {
            w->mask[at / 8] |= (uint8_t)(1u << at % 8);
            w->info.counted++;
        }
    return WF_OK;
}

wf_status wf_shard_write_ids(wf_shard_writer *w, const int32_t *ids, const uint8_t *mask,
                             int64_t count)
{
    uint8_t bytes[GATHER * 4];
    const int width = w->info.id_bytes;
    wf_assert(w->info.masked || !mask);
    if (w->info.masked)
        WF_TRY(mark(w, mask, count));
    else
        w->info.counted += count;
    for (int64_t at = 0; at < count; at += GATHER) {
        int64_t n = count - at < GATHER ? count - at : GATHER;
        for (int64_t i = 0; i < n; i++) {
            wf_assert(ids[at + i] >= 0 && ids[at + i] < w->info.vocab);
            store(bytes + i * width, (uint64_t)ids[at + i], width);
        }
        WF_TRY(put(w, bytes, (size_t)(n * width)));
    }
    w->info.tokens += count;
    return WF_OK;
}

/* Ends the current document. An empty one is dropped: starts must ascend. */
wf_status wf_shard_write_document(wf_shard_writer *w, int64_t bytes)
{
    size_t n = (size_t)w->info.documents;
    if (w->starts[n] == (uint64_t)w->info.tokens)
        return WF_OK;
    if (n + 2 > w->starts_room) {
        uint64_t *grown = wf_mem_grow(w->ctx, w->starts, 2 * w->starts_room * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        w->starts = grown;
        w->starts_room *= 2;
    }
    w->starts[n + 1] = (uint64_t)w->info.tokens;
    w->info.documents++;
    w->info.bytes += bytes;
    return WF_OK;
}

const wf_shard_info *wf_shard_write_info(const wf_shard_writer *w)
{
    return &w->info;
}

/* Writes the padding to 8 bytes, the starts and the mask. */
static wf_status put_rest(wf_shard_writer *w, const wf_shard_layout *l)
{
    static const uint8_t zeros[8];
    size_t ids_end = l->ids + (size_t)w->info.tokens * (size_t)w->info.id_bytes;
    WF_TRY(put(w, zeros, l->starts - ids_end));
    for (int64_t d = 0; d <= w->info.documents; d++) {
        uint8_t start[8];
        store(start, w->starts[d], 8);
        WF_TRY(put(w, start, 8));
    }
    return w->info.masked ? put(w, w->mask, l->size - l->mask) : WF_OK;
}

static void make_header(wf_shard_writer *w, const wf_shard_layout *l, uint8_t h[WF_SHARD_HEADER])
{
    memset(h, 0, WF_SHARD_HEADER);
    memcpy(h, WF_SHARD_MAGIC, 8);
    store(h + WF_AT_VERSION, WF_SHARD_VERSION, 4);
    store(h + WF_AT_ID_BYTES, (uint64_t)w->info.id_bytes, 4);
    store(h + WF_AT_VOCAB, (uint64_t)w->info.vocab, 8);
    store(h + WF_AT_TOKENS, (uint64_t)w->info.tokens, 8);
    store(h + WF_AT_DOCUMENTS, (uint64_t)w->info.documents, 8);
    store(h + WF_AT_BYTES, (uint64_t)w->info.bytes, 8);
    store(h + WF_AT_COUNTED, (uint64_t)w->info.counted, 8);
    store(h + WF_AT_FLAGS, w->info.masked ? WF_SHARD_MASKED : 0, 4);
    store(h + WF_AT_IDS, l->ids, 8);
    store(h + WF_AT_STARTS, l->starts, 8);
    store(h + WF_AT_MASK, l->mask, 8);
    store(h + WF_AT_SIZE, l->size, 8);
    store(h + WF_AT_DATA_SUM, wf_checksum_end(&w->sum), 8);
    /* The header's sum covers the data's, so it identifies the whole shard. */
    w->info.sum = wf_checksum(h, WF_AT_HEADER_SUM);
    store(h + WF_AT_HEADER_SUM, w->info.sum, 8);
}

wf_status wf_shard_write_end(wf_shard_writer *w, wf_shard_info *out)
{
    wf_shard_layout l;
    uint8_t header[WF_SHARD_HEADER];
    wf_assert(w->info.documents > 0 && w->starts[w->info.documents] == (uint64_t)w->info.tokens);
    if (!wf_shard_lay_out(&w->info, &l))
        return wf_fail(w->ctx, WF_ERR_USAGE, "a shard of %lld tokens is too large",
                       (long long)w->info.tokens);
    WF_TRY(put_rest(w, &l));
    make_header(w, &l, header);
    /* Last: an incomplete file has a zero header, which no reader accepts. */
    WF_TRY(wf_sink_patch(w->sink, 0, header, sizeof header));
    *out = w->info;
    return wf_sink_commit(w->sink);
}

void wf_shard_write_free(wf_shard_writer *w)
{
    if (!w)
        return;
    wf_sink_free(w->sink);
    wf_mem_free(w->ctx, w->starts);
    wf_mem_free(w->ctx, w->mask);
    wf_mem_free(w->ctx, w);
}
