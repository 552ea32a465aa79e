/* SPDX-License-Identifier: MIT */
/* width.h - the terminal columns of a character, and characters in a safe form. */
#ifndef WF_CLI_WIDTH_H
#define WF_CLI_WIDTH_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* 0 for combining marks and format characters, 2 for East Asian wide characters and emoji, else
 * 1. */
int wf_width(uint32_t code);

/* A character in the form of wf_text_escape, which cannot control the terminal. */
typedef struct {
    char text[WF_TEXT_ESCAPE];
    size_t bytes; /* of text */
    size_t taken; /* bytes of the input; 0 only for empty input */
    int columns;
} wf_shown;

/* Returns the first character of s[0..n). */
wf_shown wf_width_show(const char *s, size_t n);

#endif
