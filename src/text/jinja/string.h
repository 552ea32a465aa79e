/* SPDX-License-Identifier: MIT */
/*
 * string.h - strings with marks: every operation copies the marks together with the bytes.
 *
 * Lengths and indices in templates count characters (code points). Those in this file count bytes,
 * unless a name says otherwise. A byte that is not UTF-8 counts as one character.
 */
#ifndef WF_TEXT_JINJA_STRING_H
#define WF_TEXT_JINJA_STRING_H

#include "text/jinja/value.h"

static inline wf_jstr wf_jstr_literal(const char *text)
{
    return (wf_jstr){.text = text, .bytes = strlen(text)};
}
static inline bool wf_jstr_is(const wf_jstr *s, const char *text)
{
    return s->bytes == strlen(text) && memcmp(s->text, text, s->bytes) == 0;
}
static inline bool wf_jstr_equal(const wf_jstr *a, const wf_jstr *b)
{
    return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
}
/* Compares names, of which hostile templates have many long ones; charges steps. */
static inline wf_status wf_jstr_same(wf_jrun *r, const wf_jstr *a, const wf_jstr *b, bool *out)
{
    *out = wf_jstr_equal(a, b);
    return a->bytes == b->bytes ? wf_jrun_step_bytes(r, a->bytes) : WF_OK;
}
/* Returns bytes [from, to) of s with their marks; shares the memory of s. */
wf_jstr wf_jstr_part(const wf_jstr *s, size_t from, size_t to);

/* ---- Building ---- */

/* Append; all charge steps by bytes. plain: the mark of the new bytes. */
wf_status wf_jbuf_put(wf_jrun *r, wf_jbuf *b, const char *text, size_t bytes, bool plain);
wf_status wf_jbuf_text(wf_jrun *r, wf_jbuf *b, const char *text); /* unmarked text */
wf_status wf_jbuf_str(wf_jrun *r, wf_jbuf *b, const wf_jstr *s);
wf_status wf_jbuf_part(wf_jrun *r, wf_jbuf *b, const wf_jstr *s, size_t from, size_t to);
/* Appends `count` unmarked bytes c. */
wf_status wf_jbuf_fill(wf_jrun *r, wf_jbuf *b, char c, size_t count);
wf_status wf_jbuf_char(wf_jrun *r, wf_jbuf *b, uint32_t code, bool plain);
/* Moves the contents of b to a string value; b is empty afterwards. */
wf_status wf_jbuf_take(wf_jrun *r, wf_jbuf *b, wf_jvalue *out);

/* Concatenates. Appends in place if a is the end of its buffer, so that building a string in a loop
 * takes linear, not quadratic, time. */
wf_status wf_jstr_concat(wf_jrun *r, const wf_jstr *a, const wf_jstr *b, wf_jvalue *out);
/* Zero or fewer times give the empty string. */
wf_status wf_jstr_repeat(wf_jrun *r, const wf_jstr *s, int64_t times, wf_jvalue *out);

/* ---- Characters ---- */

/* Returns the length of the character at text, bytes > 0, and stores its code point in *code, which
 * may be NULL. A byte that is not UTF-8 has length 1 and code 0xFFFD. */
size_t wf_utf8_next(const char *text, size_t bytes, uint32_t *code);
/* Encodes a code point up to U+10FFFF; returns its bytes. */
size_t wf_utf8_write(char out[4], uint32_t code);
/* Linear in the bytes; charges no steps. */
size_t wf_jstr_chars(const wf_jstr *s);
/* Returns the offset of character `index`; s->bytes if the string is shorter. */
size_t wf_jstr_offset(const wf_jstr *s, size_t index);
/* Slices by characters, with Python's rules. */
wf_status wf_jstr_slice(wf_jrun *r, const wf_jstr *s, const wf_jvalue part[3], wf_jvalue *out);
bool wf_char_is_space(uint32_t code); /* white space of Python's strip and split */
bool wf_char_is_break(uint32_t code); /* line breaks of Python's splitlines */
bool wf_char_is_printable(uint32_t code);

typedef enum { WF_J_UPPER, WF_J_LOWER, WF_J_TITLE } wf_jcase;
/* Converts the case of a character. Returns the number of resulting characters, 1 to 3. */
int wf_char_map(uint32_t code, wf_jcase to, uint32_t out[3]);
bool wf_char_is_cased(uint32_t code);
/* Appends s with its case converted; marks follow their characters. */
wf_status wf_jstr_map(wf_jrun *r, wf_jbuf *b, const wf_jstr *s, wf_jcase to);

/* ---- Searching ---- */

#define WF_J_NOWHERE SIZE_MAX
/* Finds the first (or last) `what` in bytes [from, to) of s; *out is WF_J_NOWHERE if there is no
 * match. */
wf_status wf_jstr_find(wf_jrun *r, const wf_jstr *s, size_t from, size_t to, const wf_jstr *what,
                       bool last, size_t *out);
/* Replaces the first `count` matches; count < 0: all. */
wf_status wf_jstr_replace(wf_jrun *r, const wf_jstr *s, const wf_jstr *old, const wf_jstr *with,
                          int64_t count, wf_jvalue *out);
/* Removes white space at the given sides. Linear in the bytes; charges no steps. */
enum { WF_J_LEFT = 1, WF_J_RIGHT = 2 };
wf_jstr wf_jstr_strip(const wf_jstr *s, int sides);
/* Removes the characters of `all` (NULL: white space) at the given sides; charges steps. */
wf_status wf_jstr_strip_set(wf_jrun *r, const wf_jstr *s, const wf_jstr *all, int sides,
                            wf_jvalue *out);

#endif
