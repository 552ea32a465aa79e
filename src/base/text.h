/* SPDX-License-Identifier: MIT */
/* text.h - bounded string building, UTF-8, escaping of foreign text, number formatting, and "did
 * you mean" for misspelt names. */
#ifndef WF_BASE_TEXT_H
#define WF_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* "-1.7976931348623157e+308" has 24 characters; the rest is for a locale's decimal point of several
 * bytes. */
#define WF_TEXT_DOUBLE 40

#define WF_PRINTF(format, args) __attribute__((__format__(__printf__, format, args)))

/* The distance when either word is longer than WF_TEXT_WORD bytes. */
#define WF_TEXT_FAR 1000
#define WF_TEXT_WORD 63

/* Returns the edit distance: the fewest single-byte insertions, deletions, substitutions and swaps
 * of neighbours that change a into b, without editing a byte twice. */
int wf_text_distance(const char *a, const char *b);

/* Returns the entry of list[0..n) nearest to word, the first on ties. NULL: every distance exceeds
 * a third of the word's length (and 1). */
const char *wf_text_nearest(const char *word, const char *const *list, int n);

/* Appends to buf, which contains *len bytes and has room for cap, NUL included. Text that does not
 * fit is cut between UTF-8 characters and ends in "..."; the buffer is then full, and later appends
 * change nothing. Start with *len = 0; an empty buffer need not be initialised. */
void wf_text_append(char *buf, size_t cap, size_t *len, const char *fmt, ...) WF_PRINTF(4, 5);
void wf_text_vappend(char *buf, size_t cap, size_t *len, const char *fmt, va_list args)
    WF_PRINTF(4, 0);

/* Returns the length, 1 to 4, of the UTF-8 character at the start of s[0..n); 0: the bytes are
 * invalid. Overlong forms, surrogates and code points above U+10FFFF are invalid. */
size_t wf_text_utf8(const char *s, size_t n);
/* Returns the code point of a valid character; length is wf_text_utf8's result. */
unsigned wf_text_point(const char *s, size_t length);
/* Writes a valid code point as UTF-8 and returns its length. */
size_t wf_text_put_utf8(char *to, unsigned character);

/* ---- Foreign text: names, metadata and tokens from files, which may contain any bytes ---- */

/* Writes the first character of s[0..n), n > 0, as a printable NUL-terminated string. Returns the
 * bytes consumed. Terminal controls (C0, DEL, C1), line breaks, bidirectional overrides and bytes
 * that are not UTF-8 become escapes: \n \r \t \x1b \u202e. */
#define WF_TEXT_ESCAPE 8
size_t wf_text_escape(char out[WF_TEXT_ESCAPE], const char *s, size_t n);
/* Returns whether wf_text_escape would change no character. */
bool wf_text_harmless(const char *s, size_t n);

/* Escapes foreign text for display, at most WF_TEXT_FOREIGN_MOST characters and cap bytes, cap >=
 * 48. Longer text ends in "... (60 MB in all)". Returns out. */
#define WF_TEXT_FOREIGN_MOST 200
#define WF_TEXT_FOREIGN (WF_TEXT_FOREIGN_MOST * (WF_TEXT_ESCAPE - 1) + 48)
const char *wf_text_foreign(char *out, size_t cap, const char *bytes, size_t len);
/* The same in a buffer that lives until the end of the enclosing block, for use as a printf
 * argument. */
#define WF_FOREIGN_BYTES(bytes, len) \
    wf_text_foreign((char[WF_TEXT_FOREIGN]){0}, WF_TEXT_FOREIGN, (bytes), (len))
#define WF_FOREIGN(text) WF_FOREIGN_BYTES((text), strlen(text))

/* The same, shorter, for error messages. */
#define WF_TEXT_SHOWN 96
const char *wf_text_show(char out[WF_TEXT_SHOWN], const char *bytes, size_t len);
#define WF_SHOWN(text) wf_text_show((char[WF_TEXT_SHOWN]){0}, (text), strlen(text))
/* The ending of a counted noun: "" for 1, otherwise "s". */
#define WF_PLURAL(n) ((n) == 1 ? "" : "s")

/* "512 bytes", "1.5 kB", "60 MB": powers of 1000. */
#define WF_TEXT_SIZE 32
void wf_text_size(char out[WF_TEXT_SIZE], double bytes);

/* Convert between double and text, with a decimal point in any locale. _from_ writes the shortest
 * of 15 to 17 digits that reads back exactly. _to_ reads from *s and advances it; false: not a
 * number. */
void wf_text_from_double(char out[WF_TEXT_DOUBLE], double value);
bool wf_text_to_double(const char **s, double *out);

#endif
