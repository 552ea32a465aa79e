/* SPDX-License-Identifier: MIT */
/*
 * vocab.c - see vocab.h.
 *
 * The index is an open-addressed hash table with linear probing, at most half full; it stores id +
 * 1. Byte-level vocabularies spell each byte as a printable character, as GPT-2 does.
 */
#include "text/vocab.h"

#include <string.h>

#include "base/hash.h"

wf_status wf_vocab_init(wf_vocab *v, wf_arena *arena, int32_t count)
{
    wf_assert(count >= 0 && count <= WF_VOCAB_MOST);
    uint32_t slots = 16;
    while (slots < 2 * (uint32_t)count)
        slots *= 2;
    *v = (wf_vocab){.count = count, .mask = slots - 1};
    v->token = wf_arena_alloc(arena, (size_t)count * sizeof *v->token);
    v->slot = wf_arena_alloc(arena, (size_t)slots * sizeof *v->slot);
    if (!v->token || !v->slot)
        return WF_ERR_MEMORY;
    for (int32_t i = 0; i < count; i++)
        v->token[i].kind = WF_TOKEN_UNUSED;
    return WF_OK;
}

/* Returns the slot of this text, or the free slot for it. */
static uint32_t *find_slot(const wf_vocab *v, const char *text, size_t bytes)
{
    for (uint32_t i = wf_hash_bytes(text, bytes) & v->mask;; i = (i + 1) & v->mask) {
        if (!v->slot[i])
            return &v->slot[i];
        const wf_vocab_token *t = &v->token[v->slot[i] - 1];
        if (t->bytes == bytes && memcmp(t->text, text, bytes) == 0)
            return &v->slot[i];
    }
}

wf_status wf_vocab_set(wf_vocab *v, wf_arena *arena, int32_t id, const char *text, size_t bytes,
                       wf_token_kind kind)
{
    wf_assert(id >= 0 && id < v->count && !v->token[id].text && bytes <= WF_TOKEN_BYTES_MOST);
    char *copy = wf_arena_alloc(arena, bytes + 1);
    if (!copy)
        return WF_ERR_MEMORY;
    memcpy(copy, text, bytes);
    *find_slot(v, text, bytes) = (uint32_t)id + 1;
    v->token[id] = (wf_vocab_token){.text = copy, .bytes = (uint32_t)bytes, .kind = kind};
    v->longest = bytes > v->longest ? bytes : v->longest;
    return WF_OK;
}

/* Rejects longer texts first: words can have megabytes. */
int32_t wf_vocab_find(const wf_vocab *v, const char *text, size_t bytes)
{
    return bytes > v->longest ? -1 : (int32_t)*find_slot(v, text, bytes) - 1;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

int wf_vocab_byte(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* Printable bytes represent themselves; the others are numbered from U+0100 on. */
static bool prints(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
}

uint32_t wf_byte_letter(uint8_t byte)
{
    if (prints(byte))
        return byte;
    return byte <= 0x20 ? 0x100u + byte : byte <= 0xA0 ? 0x121u + byte - 0x7F : 0x143u;
}

int wf_letter_byte(uint32_t letter)
{
    if (letter < 0x100)
        return prints(letter) ? (int)letter : -1;
    if (letter <= 0x120)
        return (int)(letter - 0x100);
    return letter <= 0x142 ? (int)(letter - 0x121 + 0x7F) : letter == 0x143 ? 0xAD : -1;
}
