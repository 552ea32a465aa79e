/* SPDX-License-Identifier: MIT */
/*
 * string.h - strings with marks: every operation on text copies the marks of the bytes it copies.
 *
 * Lengths and indices that a template sees count characters (code points); those here count bytes
 * unless a name says otherwise. A byte that is not UTF-8 is one character.
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
/* Bytes [from, to) of s, marks and all. */
wf_jstr wf_jstr_part(const wf_jstr *s, size_t from, size_t to);

/* ---- Building ---- */

wf_status wf_jbuf_put(wf_jrun *r, wf_jbuf *b, const char *text, size_t bytes, bool plain);
wf_status wf_jbuf_text(wf_jrun *r, wf_jbuf *b, const char *text); /* the interpreter's own words */
wf_status wf_jbuf_str(wf_jrun *r, wf_jbuf *b, const wf_jstr *s);
wf_status wf_jbuf_part(wf_jrun *r, wf_jbuf *b, const wf_jstr *s, size_t from, size_t to);
wf_status wf_jbuf_fill(wf_jrun *r, wf_jbuf *b, char c, size_t count);
wf_status wf_jbuf_char(wf_jrun *r, wf_jbuf *b, uint32_t code, bool plain);
/* What was put into b, as a value; b is empty then. */
wf_status wf_jbuf_take(wf_jrun *r, wf_jbuf *b, wf_jvalue *out);

/* a then b. Appends in place where a is the end of its buffer, so that a string that grows in a loop
 * costs its length and not the square. */
wf_status wf_jstr_concat(wf_jrun *r, const wf_jstr *a, const wf_jstr *b, wf_jvalue *out);
wf_status wf_jstr_repeat(wf_jrun *r, const wf_jstr *s, int64_t times, wf_jvalue *out);

/* ---- Characters ---- */

/* The character at text[0 .. bytes), bytes > 0: its length, and its code to *code (which may be NULL);
 * a byte that is not UTF-8 gives 1 and 0xFFFD. */
size_t wf_utf8_next(const char *text, size_t bytes, uint32_t *code);
size_t wf_utf8_write(char out[4], uint32_t code);
size_t wf_jstr_chars(const wf_jstr *s);
/* The byte at which character `index` begins, s->bytes behind the last. */
size_t wf_jstr_offset(const wf_jstr *s, size_t index);
wf_status wf_jstr_slice(wf_jrun *r, const wf_jstr *s, const wf_jvalue part[3], wf_jvalue *out);
bool wf_char_is_space(uint32_t code); /* what Python's strip and split take for white space */
bool wf_char_is_break(uint32_t code); /* where splitlines ends a line */
bool wf_char_is_printable(uint32_t code);

typedef enum { WF_J_UPPER, WF_J_LOWER, WF_J_TITLE } wf_jcase;
/* The character in another case: 1 to 3 characters. */
int wf_char_map(uint32_t code, wf_jcase to, uint32_t out[3]);
bool wf_char_is_cased(uint32_t code);
wf_status wf_jstr_map(wf_jrun *r, wf_jbuf *b, const wf_jstr *s, wf_jcase to);

/* ---- Searching ---- */

#define WF_J_NOWHERE SIZE_MAX
/* The first (or last) place of `what` in bytes [from, to) of s, or WF_J_NOWHERE. */
wf_status wf_jstr_find(wf_jrun *r, const wf_jstr *s, size_t from, size_t to, const wf_jstr *what,
                       bool last, size_t *out);
/* count < 0: all. */
wf_status wf_jstr_replace(wf_jrun *r, const wf_jstr *s, const wf_jstr *old, const wf_jstr *with,
                          int64_t count, wf_jvalue *out);
/* Without the characters of `set` (NULL: white space) at its ends. */
enum { WF_J_LEFT = 1, WF_J_RIGHT = 2 };
wf_jstr wf_jstr_strip(const wf_jstr *s, const wf_jstr *set, int sides);

#endif
