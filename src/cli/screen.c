/* SPDX-License-Identifier: MIT */
/*
 * screen.c - see screen.h.
 *
 * A word is held back until the character after it arrives, so no escape sequence is needed to move
 * it to the next line. A word wider than the terminal is left to the terminal, which keeps it in
 * one piece when it is copied.
 */
#include "cli/screen.h"

#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/term.h"
#include "cli/width.h"

#define TAB 8 /* columns between tab stops */

static const wf_shown carriage_return = {"\\r", 2, 1, 2};

/* Buffers output, so that a write is one call of wf_put. */
typedef struct {
    char text[4096];
    size_t len;
    bool works;
} output;

/* n is far below the buffer's size: one word or one character. */
static void put(output *o, const char *bytes, size_t n)
{
    if (o->len + n > sizeof o->text) {
        o->works = o->works && wf_put(o->text, o->len);
        o->len = 0;
    }
    memcpy(o->text + o->len, bytes, n);
    o->len += n;
}

static bool finish(output *o)
{
    return o->works && wf_put(o->text, o->len);
}

/* Moves the cursor; the terminal wraps at its width. */
static void advance(wf_screen *s, int columns)
{
    int total = s->column + columns;
    s->column = total > s->width ? (total - 1) % s->width + 1 : total;
}

static void put_newline(wf_screen *s, output *o)
{
    put(o, "\n", 1);
    s->column = s->spaces = 0;
    s->joined = false;
}

/* Prints the held word, on a new line if it does not fit. Spaces before a wrapped word are
 * dropped. */
static void put_word(wf_screen *s, output *o)
{
    if (s->bytes == 0)
        return;
    if (!s->joined && s->column > 0 && s->column + s->spaces + s->columns > s->width)
        put_newline(s, o);
    for (int i = 0; i < s->spaces; i++)
        put(o, " ", 1);
    put(o, s->word, s->bytes);
    advance(s, s->spaces);
    advance(s, s->columns);
    s->spaces = s->columns = 0;
    s->bytes = 0;
}

/* Adds to the held word; a word that is too long is printed in pieces without a break. */
static void add_character(wf_screen *s, output *o, const wf_shown *c)
{
    bool alone = c->columns == 2 && c->bytes > 2; /* wide: a line may break around it */
    if (alone) {
        put_word(s, o);
        s->joined = false;
    } else if (s->bytes + c->bytes > WF_SCREEN_WORD || s->columns + c->columns > s->width) {
        put_word(s, o);
        s->joined = true;
    }
    memcpy(s->word + s->bytes, c->text, c->bytes);
    s->bytes += c->bytes;
    s->columns += c->columns;
    if (alone)
        put_word(s, o);
}

static void add_wrapped(wf_screen *s, output *o, const wf_shown *c, char first)
{
    if (first != '\n' && first != ' ' && first != '\t') {
        add_character(s, o, c);
        return;
    }
    put_word(s, o);
    s->joined = false;
    if (first == '\n')
        put_newline(s, o);
    else if (s->spaces < s->width)
        s->spaces += first == ' ' ? 1 : TAB - (s->column + s->spaces) % TAB;
}

static void add(wf_screen *s, output *o, const wf_shown *c, char first)
{
    if (s->wrap)
        add_wrapped(s, o, c, first);
    else if (first == '\n' || first == '\t')
        put(o, &first, 1);
    else
        put(o, c->text, c->bytes);
}

void wf_screen_begin(wf_screen *s, bool wrap)
{
    *s = (wf_screen){.terminal = isatty(STDOUT_FILENO), .wrap = wrap};
}

bool wf_screen_write(wf_screen *s, const char *text, size_t bytes)
{
    output o = {.works = true};
    if (!s->terminal)
        return wf_put(text, bytes);
    s->width = wf_term_columns(STDOUT_FILENO) + 1;
    for (size_t i = 0; i < bytes;) {
        wf_shown c = wf_width_show(text + i, bytes - i);
        char first = text[i];
        /* \r\n is a newline; a single \r is shown as text, since it would overwrite the line. */
        if (s->carriage_return && first != '\n')
            add(s, &o, &carriage_return, '\r');
        s->carriage_return = first == '\r';
        if (!s->carriage_return)
            add(s, &o, &c, first);
        i += c.taken;
    }
    return finish(&o);
}

bool wf_screen_end(wf_screen *s)
{
    output o = {.works = true};
    if (!s->terminal)
        return true;
    if (s->carriage_return)
        add(s, &o, &carriage_return, '\r');
    s->carriage_return = false;
    put_word(s, &o);
    s->spaces = 0;
    return finish(&o);
}
