/* SPDX-License-Identifier: MIT */
/* unicode.h - character properties that tokenizers need, from Unicode 16. */
#ifndef WF_TEXT_UNICODE_H
#define WF_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WF_CHAR_L = 1, /* letters */
    WF_CHAR_N = 2, /* numbers */
    WF_CHAR_SPACE = 4,
    WF_CHAR_P = 8,      /* punctuation */
    WF_CHAR_S = 16,     /* symbols */
    WF_CHAR_M = 32,     /* marks */
    WF_CHAR_WORD = 64,  /* \w of regular expressions */
    WF_CHAR_LOOSE = 128 /* may change under NFC: a text without such characters is in NFC */
};

/* Returns WF_CHAR_ bits; c <= U+10FFFF. */
unsigned wf_char_class(uint32_t c);
/* Returns the canonical combining class. */
unsigned wf_char_order(uint32_t c);
/* Does one step of canonical decomposition. *b is 0 when c decomposes to the single character *a.
 * Returns false when c does not decompose. */
bool wf_char_parts(uint32_t c, uint32_t *a, uint32_t *b);
/* Returns the canonical composition of a and b; 0: they do not compose. */
uint32_t wf_char_compose(uint32_t a, uint32_t b);

/* The tables of the normalizers, as in the package tokenizers, which uses another version of
 * Unicode for each. */
enum {
    WF_TRAIT_OTHER = 1,      /* BertNormalizer removes it: control and private characters, U+FFFD */
    WF_TRAIT_NONSPACING = 2, /* BertNormalizer removes it with the accents */
    WF_TRAIT_COMBINING = 4   /* StripAccents removes it */
};
/* Returns WF_TRAIT_ bits, and 16 times a WF_GRAPHEME_ value. */
unsigned wf_char_traits(uint32_t c);
/* Returns the character in lower case. U+0130 is unchanged: its lower case has two characters. */
uint32_t wf_char_lower(uint32_t c);
/* Returns the length of the full compatibility decomposition, which is *parts; 0: none. */
size_t wf_char_compat(uint32_t c, const uint32_t **parts);

/* Returns the bytes of the grapheme cluster at the start of s, valid UTF-8 of n >= 1 bytes. */
size_t wf_grapheme(const char *s, size_t n);

#endif
