/* SPDX-License-Identifier: MIT */
/* width.h - how many columns of a terminal a character takes, and characters that are safe to show. */
#ifndef WF_CLI_WIDTH_H
#define WF_CLI_WIDTH_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* 0 for combining marks and format characters, 2 for East Asian wide characters and emoji, else 1. */
int wf_width(uint32_t code);

/* One character in a form that cannot control the terminal, as wf_text_escape has it. */
typedef struct {
    char text[WF_TEXT_ESCAPE];
    size_t bytes; /* of text */
    size_t taken; /* bytes of the caller's text; 0 only when there are none */
    int columns;
} wf_shown;

/* The character that s[0..n) begins with. */
wf_shown wf_width_show(const char *s, size_t n);

#endif
