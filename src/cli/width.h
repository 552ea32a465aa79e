/* SPDX-License-Identifier: MIT */
/* width.h - how many columns of a terminal a character takes, and characters that are safe to show. */
#ifndef WF_CLI_WIDTH_H
#define WF_CLI_WIDTH_H

#include <stddef.h>
#include <stdint.h>

/* 0 for combining marks and format characters, 2 for East Asian wide characters and emoji, else 1. */
int wf_width(uint32_t code);

/* One character in a form that cannot control the terminal. */
typedef struct {
    const char *text; /* points into the caller's text or is static */
    size_t bytes;     /* of text; at most 4 */
    size_t taken;     /* bytes of the caller's text; 0 only when there are none */
    int columns;
} wf_shown;

/* The character that s[0..n) begins with. A control character of ASCII, newline and tab included, becomes ^X;
 * a C1 control character or a byte that is not UTF-8 becomes '?'. */
wf_shown wf_width_show(const char *s, size_t n);

#endif
