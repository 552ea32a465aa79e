/* SPDX-License-Identifier: MIT */
/*
 * added.c - see added.h.
 *
 * The automaton is a trie of reversed tokens with failure links. It is built level by level: the
 * tokens below a node are a range of order[], which a counting sort splits by the next byte. So
 * building takes O(bytes of all tokens) plus 256 per node with several tokens, and memory is at
 * most one node per byte.
 *
 * A scan computes the best token for every byte of a block, then walks forwards through it.
 */
#include "text/added.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/utf8.h"

#define BLOCK 16384 /* bytes of text scanned at once; bounds the buffer */

/* ---- Building ---- */

/* Returns the child of `node` by this byte, or 0, which is the root and nobody's child. Nodes below
 * the root have few children, so a binary search suffices there. */
static uint32_t find_child(const wf_added *a, uint32_t node, uint8_t byte)
{
    if (node == 0)
        return a->root[byte];
    uint32_t low = a->child[node], high = a->child[node + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (a->byte[middle] == byte)
            return middle;
        if (a->byte[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* Follows failure links until a child exists. Linear in the text overall: each link shortens the
 * match, each child lengthens it by one. */
static uint32_t step(const wf_added *a, uint32_t node, uint8_t byte)
{
    for (;; node = a->fail[node]) {
        uint32_t next = find_child(a, node, byte);
        if (next || node == 0)
            return next;
    }
}

/* The tokens order[low .. high) end with the bytes on the path to the node. */
typedef struct {
    uint32_t node, low, high;
} range;

typedef struct {
    wf_added *a;
    uint32_t *order, *sorted; /* [count] indices of tokens */
    range *level, *next;      /* [count + 1] nodes of one depth */
    uint32_t count, width;    /* tokens; nodes of the next level */
    uint32_t depth;           /* of the level that is split */
} builder;

/* Returns the token's byte at this depth, counted from its end. */
static uint8_t byte_at(const builder *b, uint32_t index)
{
    const wf_added_token *t = &b->a->token[index];
    return (uint8_t)t->text[t->bytes - 1 - b->depth];
}

/* The failure link refers to a shallower node, so all links that step() follows exist already. */
static void add_child(builder *b, uint32_t parent, uint8_t byte, uint32_t low, uint32_t high)
{
    wf_added *a = b->a;
    uint32_t node = a->nodes++;
    a->byte[node] = byte;
    a->fail[node] = parent == 0 ? 0 : step(a, a->fail[parent], byte);
    if (parent == 0)
        a->root[byte] = node;
    b->next[b->width++] = (range){node, low, high};
}

/* Records the token that ends at this node, and removes it and its duplicates from the range. */
static void end_tokens(builder *b, range *r)
{
    wf_added *a = b->a;
    /* `below` is the longest token that ends the path of the failure link: a shorter token. */
    int32_t own = -1, below = r->node == 0 ? -1 : a->best[a->fail[r->node]];
    uint32_t kept = r->low;
    for (uint32_t i = r->low; i < r->high; i++) {
        uint32_t index = b->order[i];
        if (a->token[index].bytes > b->depth)
            b->order[kept++] = index;
        else if (own < 0)
            own = (int32_t)index;
    }
    r->high = kept;
    a->best[r->node] = own < 0 ? below : own;
    if (own >= 0)
        /* Of all shorter tokens here, the longest whose control differs from own's. */
        a->other[own] = below < 0                                          ? -1
                        : a->token[below].control != a->token[own].control ? below
                                                                           : a->other[below];
}

/* Creates the children of one node by a counting sort on the next byte. The sort is stable, so the
 * first of equal tokens stays first. */
static void split_range(builder *b, range r)
{
    b->a->child[r.node] = b->a->nodes;
    end_tokens(b, &r);
    /* Most nodes have one token; skip the 256-entry sort. */
    if (r.high - r.low == 1) {
        add_child(b, r.node, byte_at(b, b->order[r.low]), r.low, r.high);
        return;
    }
    uint32_t start[257] = {0};
    for (uint32_t i = r.low; i < r.high; i++)
        start[byte_at(b, b->order[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    for (uint32_t i = r.low; i < r.high; i++)
        b->sorted[start[byte_at(b, b->order[i])]++] = b->order[i];
    if (r.high > r.low)
        memcpy(b->order + r.low, b->sorted, (r.high - r.low) * sizeof *b->order);
    /* start[i] is now the end of the tokens with byte i. */
    for (size_t i = 0; i < 256; i++) {
        uint32_t low = i == 0 ? 0 : start[i - 1];
        if (start[i] > low)
            add_child(b, r.node, (uint8_t)i, r.low + low, r.low + start[i]);
    }
}

/* Breadth first, so that node numbers ascend by level and children are contiguous. */
static void build(builder *b)
{
    b->level[0] = (range){0, 0, b->count};
    for (uint32_t width = 1; width > 0; width = b->width, b->depth++) {
        b->width = 0;
        for (uint32_t i = 0; i < width; i++)
            split_range(b, b->level[i]);
        range *done = b->level;
        b->level = b->next;
        b->next = done;
    }
    /* Ends the last node's children. */
    b->a->child[b->a->nodes] = b->a->nodes;
}

/* Returns whether the automaton contains this token. An empty text is a disabled token. */
static bool takes(const wf_added_token *t, bool normalized)
{
    return t->normalized == normalized && t->bytes > 0 && wf_utf8_valid(t->text, t->bytes);
}

/* Collects the tokens, control tokens first, as the package tokenizers does. Returns their
 * bytes. */
static size_t collect(builder *b, int count, bool normalized)
{
    size_t bytes = 0;
    for (int others = 0; others < 2; others++)
        for (int i = 0; i < count; i++) {
            const wf_added_token *t = &b->a->token[i];
            if (t->control == !!others || !takes(t, normalized))
                continue;
            b->order[b->count++] = (uint32_t)i;
            bytes += t->bytes;
            b->a->longest = t->bytes > b->a->longest ? t->bytes : b->a->longest;
            b->a->control = b->a->control || t->control;
        }
    return bytes;
}

static wf_status make(builder *b, wf_arena *arena, int count, bool normalized)
{
    wf_added *a = b->a;
    size_t bytes = collect(b, count, normalized);
    if (b->count == 0)
        return WF_OK;
    if (bytes > WF_ADDED_BYTES_ALL)
        return wf_fail(arena->ctx, WF_ERR_UNSUPPORTED,
                       "the tokenizer's added tokens have %zu bytes in total; the limit is %zu",
                       bytes, WF_ADDED_BYTES_ALL);
    a->child = wf_arena_alloc(arena, (bytes + 2) * sizeof *a->child);
    a->fail = wf_arena_alloc(arena, (bytes + 1) * sizeof *a->fail);
    a->best = wf_arena_alloc(arena, (bytes + 1) * sizeof *a->best);
    a->byte = wf_arena_alloc(arena, bytes + 1);
    a->other = wf_arena_alloc(arena, (size_t)count * sizeof *a->other);
    if (!a->child || !a->fail || !a->best || !a->byte || !a->other)
        return WF_ERR_MEMORY;
    a->nodes = 1;
    build(b);
    return WF_OK;
}

wf_status wf_added_init(wf_added *a, wf_arena *arena, const wf_added_token *tokens, int count,
                        bool normalized)
{
    wf_ctx *ctx = arena->ctx;
    size_t room = (size_t)count + 1;
    *a = (wf_added){.token = tokens};
    builder b = {.a = a,
                 .order = wf_mem_array(ctx, room, sizeof *b.order),
                 .sorted = wf_mem_array(ctx, room, sizeof *b.sorted),
                 .level = wf_mem_array(ctx, room, sizeof *b.level),
                 .next = wf_mem_array(ctx, room, sizeof *b.next)};
    wf_status status = WF_ERR_MEMORY;
    if (b.order && b.sorted && b.level && b.next)
        status = make(&b, arena, count, normalized);
    wf_mem_free(ctx, b.order);
    wf_mem_free(ctx, b.sorted);
    wf_mem_free(ctx, b.level);
    wf_mem_free(ctx, b.next);
    return status;
}

/* ---- Matching ---- */

void wf_added_scan_begin(wf_added_scan *s, const wf_added *a, const char *text,
                         const uint8_t *plain, size_t n, bool control)
{
    *s = (wf_added_scan){.ctx = s->ctx,
                         .buffer = s->buffer,
                         .room = s->room,
                         .added = a,
                         .text = text,
                         /* Marks matter only if a control token could match. */
                         .plain = a->control ? plain : NULL,
                         .control = control,
                         .n = n};
}

void wf_added_scan_free(wf_added_scan *s)
{
    wf_mem_free(s->ctx, s->buffer);
    s->buffer = NULL;
    s->room = 0;
}

/* Returns the longest token at the node with this `control`, or -1. */
static int32_t best_of(const wf_added *a, uint32_t node, bool control)
{
    int32_t best = a->best[node];
    return best < 0 || a->token[best].control == control ? best : a->other[best];
}

/* Returns the token with more bytes; ties go to y. -1: missing. */
static int32_t longer(const wf_added *a, int32_t x, int32_t y)
{
    return x < 0 ? y : y < 0 || a->token[x].bytes > a->token[y].bytes ? x : y;
}

/* Scans the block at s->at backwards. A state depends only on the next a->longest bytes, so the
 * automaton starts that far after the block. A second state, for control tokens, restarts where the
 * marks change. */
static wf_status look(wf_added_scan *s)
{
    const wf_added *a = s->added;
    size_t left = s->n - s->at, take = left < BLOCK ? left : BLOCK;
    size_t ahead = left - take < a->longest ? left - take : a->longest;
    if (take > s->room) {
        wf_mem_free(s->ctx, s->buffer);
        s->room = take <= 1024 ? 1024 : BLOCK;
        s->buffer = wf_mem_array(s->ctx, s->room, sizeof *s->buffer);
        if (!s->buffer) {
            s->room = 0;
            return WF_ERR_MEMORY;
        }
    }
    const uint8_t *text = (const uint8_t *)s->text + s->at;
    const uint8_t *plain = s->plain ? s->plain + s->at : NULL;
    uint32_t node = 0, marked = 0;
    for (size_t i = take + ahead; i-- > 0;) {
        node = step(a, node, text[i]);
        if (plain) {
            bool changes = i + 1 < take + ahead && !plain[i] != !plain[i + 1];
            marked = step(a, changes ? 0 : marked, text[i]);
        }
        if (i < take)
            s->buffer[i] = plain ? longer(a, best_of(a, node, false), best_of(a, marked, true))
                                 : a->best[node];
    }
    s->begin = s->at;
    s->end = s->at + take;
    return WF_OK;
}

/* Returns the start of the character that ends before text[at], at > 0, in valid UTF-8. */
static size_t char_before(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

static bool has_class(const char *text, size_t at, unsigned class)
{
    size_t length;
    return wf_char_class(wf_utf8_decode(text + at, &length)) & class;
}

/* Returns whether no word character touches the token, as single_word demands. */
static bool stands_alone(const char *text, size_t n, size_t begin, size_t end)
{
    return !(begin > 0 && has_class(text, char_before(text, begin), WF_CHAR_WORD)) &&
           !(end < n && has_class(text, end, WF_CHAR_WORD));
}

/* Returns the end of the white space at text[at]. Caches it: every token inside a run asks. */
static size_t space_end(wf_added_scan *s, size_t at)
{
    if (at < s->space_from || at >= s->space) {
        s->space_from = s->space = at;
        while (s->space < s->n && has_class(s->text, s->space, WF_CHAR_SPACE)) {
            size_t length;
            wf_utf8_decode(s->text + s->space, &length);
            s->space += length;
        }
    }
    return s->space;
}

/* Returns whether the token at text[at] is a match. */
static bool matches(wf_added_scan *s, const wf_added_token *t, size_t at, wf_added_match *out)
{
    size_t begin = at, end = at + t->bytes;
    if (t->control && (!s->control || (s->plain && s->plain[at])))
        return false;
    if (t->single_word && !stands_alone(s->text, s->n, begin, end))
        return false;
    while (t->lstrip && begin > s->offset &&
           has_class(s->text, char_before(s->text, begin), WF_CHAR_SPACE))
        /* Stops at the last match, so white space is scanned once per match. */
        begin = char_before(s->text, begin);
    if (t->lstrip && begin < s->offset)
        begin = s->offset;
    if (t->rstrip)
        end = space_end(s, end);
    *out = (wf_added_match){begin, end, t->id};
    return begin < end; /* otherwise the previous match consumed it as white space */
}

wf_status wf_added_scan_next(wf_added_scan *s, bool *found, wf_added_match *out)
{
    *found = false;
    if (s->added->nodes <= 1)
        return WF_OK;
    while (s->at < s->n && !*found) {
        if (s->at >= s->end)
            WF_TRY(look(s));
        int32_t index = s->buffer[s->at - s->begin];
        if (index < 0) {
            s->at++;
            continue;
        }
        const wf_added_token *t = &s->added->token[index];
        *found = matches(s, t, s->at, out);
        /* A token that does not match is passed over as a whole, as in the package tokenizers. */
        s->at += t->bytes;
    }
    if (*found)
        s->offset = out->end;
    return WF_OK;
}
