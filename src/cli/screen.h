/* SPDX-License-Identifier: MIT */
/*
 * screen.h - writes generated text to stdout.
 *
 * A terminal gets the text with control characters escaped and, if asked for, wrapped between
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
    int spaces;  /* pending spaces; dropped where a line is wrapped */
    bool joined; /* the word continues printed text: no break before it */
    bool carriage_return; /* pending; dropped if a newline follows */
    char word[WF_SCREEN_WORD];
    size_t bytes; /* of the word */
    int columns;  /* of the word */
} wf_screen;

void wf_screen_begin(wf_screen *s, bool wrap);
/* Writes whole UTF-8 characters; may hold back the last word until the next call. false: stdout
 * accepts no more bytes (see wf_put). */
bool wf_screen_write(wf_screen *s, const char *text, size_t bytes);
/* Writes what is held back. */
bool wf_screen_end(wf_screen *s);

#endif
