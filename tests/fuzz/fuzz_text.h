/* SPDX-License-Identifier: MIT */
/* fuzz_text.h - properties of every tokenizer and text. */
#ifndef WEFT_FUZZ_TEXT_H
#define WEFT_FUZZ_TEXT_H

#include "fuzz.h"

#include "base/mem.h"
#include "text/token.h"

/* Streaming decode returns the same text as decoding at once, and each piece is valid UTF-8. */
static inline void fuzz_check_stream(wf_ctx *ctx, const wf_tokenizer *t, const int32_t *ids,
                                     size_t count, uint32_t flags, const char *whole, size_t bytes)
{
    wf_decoder *d;
    size_t at = 0;
    if (!fuzz_ok(ctx, wf_decoder_new(t, ctx, flags, &d)))
        return;
    for (size_t i = 0; i <= count; i++) {
        const char *piece;
        size_t length;
        if (!fuzz_ok(ctx, i < count ? wf_decoder_next(d, ids[i], &piece, &length)
                                    : wf_decoder_end(d, &piece, &length)))
            break;
        fuzz_check(wf_utf8_valid(piece, length));
        fuzz_check(length <= bytes - at && memcmp(piece, whole + at, length) == 0);
        at += length;
        fuzz_check(i < count || at == bytes);
    }
    wf_decoder_free(d);
}

static inline void fuzz_check_decode(wf_ctx *ctx, const wf_tokenizer *t, const int32_t *ids,
                                     size_t count, uint32_t flags)
{
    char *text;
    size_t bytes;
    if (!fuzz_ok(ctx, wf_tokenizer_decode(t, ctx, ids, count, flags, &text, &bytes)))
        return;
    fuzz_check(text[bytes] == '\0' && wf_utf8_valid(text, bytes));
    fuzz_check_stream(ctx, t, ids, count, flags, text, bytes);
    wf_text_free(ctx, text);
}

/* Whether plain text may become this control token: it is a single character or byte that no other
 * token represents. */
static inline bool fuzz_is_symbol(const wf_tokenizer *t, int32_t id)
{
    size_t bytes, characters = 0;
    const char *s = wf_tokenizer_token(t, id, &bytes);
    for (size_t i = 0; i < bytes; i++)
        characters += ((unsigned char)s[i] & 0xc0) != 0x80;
    return bytes == 1 || characters <= 1 || (bytes == 6 && memcmp(s, "<0x", 3) == 0);
}

/* Encodes and decodes. Ids must be valid; where the flags allow no control tokens, only single
 * symbols may be one. Encoding may fail when a pattern takes too long. */
static inline void fuzz_check_text(wf_ctx *ctx, const wf_tokenizer *t, const char *text,
                                   size_t bytes, uint32_t flags)
{
    int32_t *ids;
    size_t count;
    if (wf_tokenizer_encode(t, ctx, text, bytes, flags, &ids, &count) != WF_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        fuzz_check(wf_tokenizer_token(t, ids[i], NULL) != NULL);
        fuzz_check(flags || wf_tokenizer_kind(t, ids[i]) != WF_TOKEN_CONTROL ||
                   fuzz_is_symbol(t, ids[i]));
    }
    fuzz_check_decode(ctx, t, ids, count, 0);
    fuzz_check_decode(ctx, t, ids, count, WF_TEXT_CONTROL);
    for (size_t i = 0; i < count; i += 2) /* tokens in an order that no text produces */
        ids[i] = (int32_t)((uint32_t)ids[i] * 7919u % ((uint32_t)wf_tokenizer_count(t) + 1u)) - 1;
    fuzz_check_decode(ctx, t, ids, count, WF_TEXT_CONTROL);
    wf_ids_free(ctx, ids);
}

/* A written tokenizer can be read and used. Equal encodings are not required: random tokenizers
 * need not make sense, and other tests check that. */
static inline void fuzz_check_written(wf_ctx *ctx, const wf_tokenizer *t)
{
    char *json = NULL, *config = NULL;
    size_t bytes, config_bytes;
    wf_tokenizer *again;
    if (wf_tokenizer_to_json(t, ctx, &json, &bytes) == WF_OK &&
        fuzz_ok(ctx, wf_tokenizer_to_config(t, ctx, NULL, &config, &config_bytes)) &&
        fuzz_ok(ctx, wf_tokenizer_from_json(ctx, "written", json, bytes, config, config_bytes,
                                            &again))) {
        fuzz_check_text(ctx, again, "Hello low <s> [x]", 17, 0);
        wf_tokenizer_free(again);
    }
    wf_mem_free(ctx, json);
    wf_mem_free(ctx, config);
}

/* Runs a tokenizer that was just read on a fixed text and on its own tokens. */
static inline void fuzz_check_tokenizer(wf_ctx *ctx, const wf_tokenizer *t)
{
    static const char text[] =
        "Hello, world's  12345 <s>\n\n\t<|end|> low\xC3\xA9r e\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD "
        "\xF0\x9F\x98\x80\xE2\x96\x81 <0x0A>\xFF [x] aaaaaaaaaaaaaaaa";
    for (uint32_t flags = 0; flags < 4; flags++)
        fuzz_check_text(ctx, t, text, sizeof text - 1, flags);
    fuzz_check_text(ctx, t, "", 0, WF_TEXT_SPECIAL);

    int32_t count = wf_tokenizer_count(t), ids[64];
    fuzz_check(count >= 0);
    for (int i = 0; i < 64; i++)
        ids[i] = i - 1;
    fuzz_check_decode(ctx, t, ids, 64, WF_TEXT_CONTROL);
    for (int32_t id = 0; id < count; id += 1 + count / 64) {
        size_t bytes;
        const char *token = wf_tokenizer_token(t, id, &bytes);
        if (token)
            fuzz_check_text(ctx, t, token, bytes, 0);
        wf_tokenizer_kind(t, id);
        wf_tokenizer_ends(t, id);
    }
    for (int i = 0; i < 4; i++) {
        int32_t id = wf_tokenizer_special(t, (wf_special)i);
        fuzz_check(id >= -1 && id < count);
    }
    fuzz_check_written(ctx, t);
}

#endif
