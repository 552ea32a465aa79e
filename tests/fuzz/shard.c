/* SPDX-License-Identifier: MIT */
/*
 * shard.c - a shard of tokens in memory. Random input never has valid checksums, so the target also
 * reads each input with its checksums corrected.
 */
#include "fuzz.h"

#include "base/checksum.h"
#include "train/shard_format.h"

static void look(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_shard s;
    if (wf_shard_memory(ctx, "input", data, size, &s) != WF_OK)
        return;
    fuzz_check(s.info.tokens > 0 && s.info.documents > 0 && s.info.documents <= s.info.tokens);
    fuzz_touch(s.ids, (size_t)(s.info.tokens * s.info.id_bytes));
    fuzz_touch(s.starts, (size_t)(s.info.documents + 1) * 8);
    if (wf_shard_report(ctx, "input", &s, wf_shard_verify(&s)) == WF_OK) {
        int64_t document = 0, counted = 0;
        for (int64_t i = 0; i < s.info.tokens; i++) {
            int32_t id;
            wf_shard_copy(&s, i, 1, &id);
            fuzz_check(id >= 0 && id < s.info.vocab);
            document += i == wf_shard_start(&s, document + 1);
            fuzz_check(wf_shard_document(&s, i) == document);
            counted += wf_shard_counts(&s, i);
        }
        fuzz_check(document == s.info.documents - 1 && counted == s.info.counted);
    }
    wf_shard_close(&s);
}

static void put(uint8_t *p, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    look(ctx, data, size);
    if (size < WF_SHARD_HEADER)
        return;
    uint8_t *copy = malloc(size);
    fuzz_check(copy != NULL);
    memcpy(copy, data, size);
    put(copy + WF_AT_DATA_SUM, wf_checksum(copy + WF_SHARD_HEADER, size - WF_SHARD_HEADER));
    put(copy + WF_AT_HEADER_SUM, wf_checksum(copy, WF_AT_HEADER_SUM));
    look(ctx, copy, size);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 16, 16}, data, size);
}
