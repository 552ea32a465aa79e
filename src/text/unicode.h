/* SPDX-License-Identifier: MIT */
/* unicode.h - what tokenizers must know of characters. */
#ifndef WF_TEXT_UNICODE_H
#define WF_TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WF_CHAR_L = 1, /* letters */
    WF_CHAR_N = 2, /* numbers */
    WF_CHAR_SPACE = 4,
    WF_CHAR_P = 8,      /* punctuation */
    WF_CHAR_S = 16,     /* symbols */
    WF_CHAR_M = 32,     /* marks */
    WF_CHAR_WORD = 64,  /* \w of a regular expression */
    WF_CHAR_LOOSE = 128 /* a text without any such character is in form NFC */
};

/* Bits of WF_CHAR_; c is at most U+10FFFF. */
unsigned wf_char_class(uint32_t c);
/* The canonical combining class. */
unsigned wf_char_order(uint32_t c);
/* One step of canonical decomposition; *b is 0 when c becomes the single character *a. */
bool wf_char_parts(uint32_t c, uint32_t *a, uint32_t *b);
/* The character that a and b compose to, 0: none. */
uint32_t wf_char_compose(uint32_t a, uint32_t b);

#endif
