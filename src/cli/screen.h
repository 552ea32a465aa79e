/* SPDX-License-Identifier: MIT */
/*
 * screen.h - generated text on stdout.
 *
 * A terminal gets the text with its control characters made visible and, where asked for, wrapped between
 * words. A file or a pipe gets the bytes unchanged.
 */
#ifndef WF_CLI_SCREEN_H
#define WF_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

#define WF_SCREEN_WORD 256 /* bytes of a word that are held back at most */

typedef struct {
    bool terminal, wrap;
    int width;   /* columns of the terminal; read again at every write, since it may be resized */
    int column;  /* of the cursor, 0 .. width */
    int spaces;  /* read and not printed yet: they vanish where a line is wrapped */
    bool joined; /* the word goes on from what was printed last: no break before it */
    bool carriage_return; /* the last character was one: nothing where a newline follows */
    char word[WF_SCREEN_WORD];
    size_t bytes; /* of the word */
    int columns;  /* of the word */
} wf_screen;

void wf_screen_begin(wf_screen *s, bool wrap);
/* Writes whole UTF-8 characters; the last word may be held back until the next call. false: stdout takes
 * no more (see wf_put). */
bool wf_screen_write(wf_screen *s, const char *text, size_t bytes);
/* Writes what is held back. */
bool wf_screen_end(wf_screen *s);

#endif
