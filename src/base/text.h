/* SPDX-License-Identifier: MIT */
/* text.h - bounded message building, and "did you mean" for misspelt names. */
#ifndef WF_BASE_TEXT_H
#define WF_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define WF_TEXT_DOUBLE 40

#define WF_PRINTF(format, args) __attribute__((__format__(__printf__, format, args)))

/* Distance of a pair in which either word is longer than WF_TEXT_WORD bytes. */
#define WF_TEXT_FAR 1000
#define WF_TEXT_WORD 63

/* The number of single-byte insertions, deletions, substitutions and swaps of neighbours that turn
 * a into b, no byte being edited twice. */
int wf_text_distance(const char *a, const char *b);

/* The entry of list[0..n) nearest to word, the first of equals; NULL if none is within a third of
 * the word's length (and at least 1). */
const char *wf_text_nearest(const char *word, const char *const *list, int n);

/* Appends to buf, which holds *len bytes and has room for cap with the NUL. Text that does not fit
 * is cut between UTF-8 characters and ends in "...", and the buffer then counts as full: later
 * appends change nothing. Start with *len = 0; an empty buffer need not be initialised. */
void wf_text_append(char *buf, size_t cap, size_t *len, const char *fmt, ...) WF_PRINTF(4, 5);
void wf_text_vappend(char *buf, size_t cap, size_t *len, const char *fmt, va_list args)
    WF_PRINTF(4, 0);

/* The length of the UTF-8 character that s[0..n) begins with, 1 to 4; 0 if there is none: overlong
 * forms, surrogates and what lies beyond U+10FFFF are none. */
size_t wf_text_utf8(const char *s, size_t n);
/* The code point of a character of so many bytes, as wf_text_utf8 found it. */
unsigned wf_text_point(const char *s, size_t length);
/* Writes a character, which must be one, as UTF-8 and returns its length. */
size_t wf_text_put_utf8(char *to, unsigned character);

/* ---- Foreign text: names, metadata and tokens from files, which may hold anything ---- */

/* Shows the first character of s[0..n), n > 0, as a NUL-terminated string; returns the bytes it takes of s.
 * Terminal controls (C0, DEL, C1), line breaks, bidirectional overrides and bytes that are not UTF-8 become escapes:
 * \n \r \t \x1b \u202e. */
#define WF_TEXT_ESCAPE 8
size_t wf_text_escape(char out[WF_TEXT_ESCAPE], const char *s, size_t n);
/* True if wf_text_escape changes no character. */
bool wf_text_harmless(const char *s, size_t n);

/* Foreign text for people to read: escaped, at most WF_TEXT_FOREIGN_MOST characters and cap bytes; longer text ends
 * in "... (60 MB in all)". cap is at least 48. Returns out. */
#define WF_TEXT_FOREIGN_MOST 200
#define WF_TEXT_FOREIGN (WF_TEXT_FOREIGN_MOST * (WF_TEXT_ESCAPE - 1) + 48)
const char *wf_text_foreign(char *out, size_t cap, const char *bytes, size_t len);
/* The same in a buffer that lives until the end of the block: an argument of printf. */
#define WF_FOREIGN_BYTES(bytes, len) \
    wf_text_foreign((char[WF_TEXT_FOREIGN]){0}, WF_TEXT_FOREIGN, (bytes), (len))
#define WF_FOREIGN(text) WF_FOREIGN_BYTES((text), strlen(text))

/* The same as part of a message of the library. */
#define WF_TEXT_SHOWN 96
const char *wf_text_show(char out[WF_TEXT_SHOWN], const char *bytes, size_t len);
#define WF_SHOWN(text) wf_text_show((char[WF_TEXT_SHOWN]){0}, (text), strlen(text))
/* The ending of a counted noun: "" for 1, otherwise "s". */
#define WF_PLURAL(n) ((n) == 1 ? "" : "s")

/* "512 bytes", "1.5 kB", "60 MB": powers of 1000. */
#define WF_TEXT_SIZE 32
void wf_text_size(char out[WF_TEXT_SIZE], double bytes);

/* Numbers as text, with a dot whatever the locale of the host program says. Written in as few digits
 * as give the same number back; read from *s, which moves past it. false: there is none. */
void wf_text_from_double(char out[WF_TEXT_DOUBLE], double value);
bool wf_text_to_double(const char **s, double *out);

#endif
