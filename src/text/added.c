/* SPDX-License-Identifier: MIT */
/* added.c - see added.h. A tree of bytes. */
#include "text/added.h"

#include <string.h>

#include "text/unicode.h"
#include "text/utf8.h"

static uint32_t child_of(const wf_added *a, uint32_t node, uint8_t byte)
{
    if (node == 0)
        return a->first[byte];
    uint32_t c = a->node[node].child;
    while (c && a->node[c].byte != byte)
        c = a->node[c].sibling;
    return c;
}

static void insert(wf_added *a, int index)
{
    const wf_added_token *t = &a->token[index];
    uint32_t node = 0;
    for (uint32_t i = 0; i < t->bytes; i++) {
        uint8_t byte = (uint8_t)t->text[i];
        uint32_t next = child_of(a, node, byte);
        if (!next) {
            next = a->nodes++;
            a->node[next] = (wf_added_node){
                .sibling = node ? a->node[node].child : 0, .token = -1, .byte = byte};
            if (node)
                a->node[node].child = next;
            else
                a->first[byte] = next;
        }
        node = next;
    }
    a->node[node].token = index;
}

wf_status wf_added_init(wf_added *a, wf_arena *arena, const wf_added_token *tokens, int count,
                        bool normalized)
{
    *a = (wf_added){.token = tokens, .nodes = 1};
    size_t nodes = 1;
    for (int i = 0; i < count; i++)
        nodes += tokens[i].bytes;
    a->node = wf_arena_alloc(arena, nodes * sizeof *a->node);
    if (!a->node)
        return WF_ERR_MEMORY;
    for (int i = 0; i < count; i++)
        if (tokens[i].normalized == normalized && tokens[i].bytes > 0 &&
            wf_utf8_valid(tokens[i].text, tokens[i].bytes))
            insert(a, i);
    return WF_OK;
}

/* The longest token at text[at], NULL: none. */
static const wf_added_token *longest_at(const wf_added *a, const char *text, const uint8_t *plain,
                                        size_t n, size_t at, bool control)
{
    const wf_added_token *found = NULL;
    bool marked = false;
    uint32_t node = 0;
    for (size_t i = at; i < n; i++) {
        node = child_of(a, node, (uint8_t)text[i]);
        if (!node)
            break;
        marked = marked || (plain && plain[i]);
        int32_t token = a->node[node].token;
        if (token >= 0 && (!a->token[token].control || (control && !marked)))
            found = &a->token[token];
    }
    return found;
}

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

static bool stands_alone(const char *text, size_t n, size_t begin, size_t end)
{
    return !(begin > 0 && has_class(text, char_before(text, begin), WF_CHAR_WORD)) &&
           !(end < n && has_class(text, end, WF_CHAR_WORD));
}

bool wf_added_next(const wf_added *a, const char *text, const uint8_t *plain, size_t n, size_t from,
                   bool control, wf_added_match *out)
{
    if (a->nodes <= 1)
        return false;
    for (size_t at = from; at < n;) {
        const wf_added_token *t =
            a->first[(uint8_t)text[at]] ? longest_at(a, text, plain, n, at, control) : NULL;
        if (!t) {
            at++;
            continue;
        }
        size_t begin = at, end = at + t->bytes;
        at = end;
        if (t->single_word && !stands_alone(text, n, begin, end))
            continue;
        while (t->lstrip && begin > from &&
               has_class(text, char_before(text, begin), WF_CHAR_SPACE))
            begin = char_before(text, begin);
        while (t->rstrip && end < n && has_class(text, end, WF_CHAR_SPACE)) {
            size_t length;
            wf_utf8_decode(text + end, &length);
            end += length;
        }
        *out = (wf_added_match){begin, end, t->id};
        return true;
    }
    return false;
}
