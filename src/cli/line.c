/* SPDX-License-Identifier: MIT */
/*
 * line.c - see line.h.
 *
 * The terminal is switched to single keys for as long as a line is read, and is as it was in between: what
 * the program then prints, and Ctrl-C to stop it, work as ever. A line wider than the terminal scrolls
 * sideways, which needs no knowledge of how terminals wrap.
 */
#include "cli/line.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/typed.h"

#define KEY(letter) ((letter)&0x1f) /* with Ctrl */
#define ESCAPE 27
#define BACKSPACE 127
#define DELETE 256 /* no byte: only an escape sequence is this key */

typedef enum { LINE_DONE, LINE_EDITING, LINE_CANCELLED, LINE_ENDED } outcome;

struct wf_line {
    wf_ctx *ctx;
    bool terminal, cancelled;
    wf_typed now, whole; /* the line being read, and those joined before it */
    size_t cursor;       /* in bytes, at the beginning of a character */
    char *history[WF_LINE_HISTORY];
    int n, shown; /* of the history; shown == n: a line of its own */
};

/* ---- The screen ---- */

/* Shows as much before the cursor as fits, and then as much after it. Looks at no more than that, for a
 * long text may be pasted, and each of its bytes comes here. */
static void redraw(const wf_line *l, const char *prompt)
{
    const wf_typed *b = &l->now, label = {.text = (char *)prompt, .len = strlen(prompt)};
    struct winsize size;
    int room = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    room--; /* terminals wrap when the last column is written */
    for (size_t at = 0; at < label.len; at = wf_typed_after(&label, at))
        room -= wf_typed_columns(prompt + at);
    size_t from = l->cursor, to = l->cursor;
    int back = 0;
    for (size_t at; from > 0 && wf_typed_columns(b->text + (at = wf_typed_before(b, from))) <= room;
         from = at)
        room -= wf_typed_columns(b->text + at);
    for (; to < b->len && wf_typed_columns(b->text + to) <= room; to = wf_typed_after(b, to)) {
        room -= wf_typed_columns(b->text + to);
        back += wf_typed_columns(b->text + to);
    }
    fprintf(stderr, "\r%s%.*s\x1b[K", prompt, (int)(to - from), b->text ? b->text + from : "");
    if (back > 0)
        fprintf(stderr, "\x1b[%dD", back);
}

/* ---- History ---- */

/* Without memory for it a line is forgotten, which is no reason to refuse it. */
static void remember(wf_line *l)
{
    const wf_typed *b = &l->now;
    if (b->len == 0 || (l->n > 0 && strcmp(l->history[l->n - 1], b->text) == 0))
        return;
    char *copy = wf_mem_new(l->ctx, b->len + 1);
    if (!copy)
        return;
    memcpy(copy, b->text, b->len + 1);
    if (l->n == WF_LINE_HISTORY) {
        wf_mem_free(l->ctx, l->history[0]);
        memmove(l->history, l->history + 1, (size_t)--l->n * sizeof *l->history);
    }
    l->history[l->n++] = copy;
}

/* Past the last one there is an empty line. */
static wf_status recall(wf_line *l, int which)
{
    if (which < 0 || which > l->n)
        return WF_OK;
    l->shown = which;
    wf_typed_erase(&l->now, 0, l->now.len);
    l->cursor = 0;
    if (which == l->n)
        return WF_OK;
    const char *old = l->history[which];
    WF_TRY(wf_typed_insert(l->ctx, &l->now, 0, old, strlen(old)));
    l->cursor = l->now.len;
    return WF_OK;
}

/* ---- Keys ---- */

/* -1: there are no more. */
static int next_byte(void)
{
    unsigned char byte;
    ssize_t n;
    do
        n = read(STDIN_FILENO, &byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1 ? byte : -1;
}

/* The control key that does the same as the rest of an escape sequence; 0: none does. */
static int escape_key(void)
{
    static const struct {
        char final;
        int number, key;
    } known[] = {
        {'A', 0, KEY('P')}, {'B', 0, KEY('N')}, {'C', 0, KEY('F')}, {'D', 0, KEY('B')},
        {'H', 0, KEY('A')}, {'F', 0, KEY('E')}, {'~', 1, KEY('A')}, {'~', 7, KEY('A')},
        {'~', 4, KEY('E')}, {'~', 8, KEY('E')}, {'~', 3, DELETE},
    };
    int byte = next_byte(), number = 0;
    if (byte != '[' && byte != 'O')
        return 0;
    while ((byte = next_byte()) >= 0 && (byte < '@' || byte > '~'))
        number = byte >= '0' && byte <= '9' ? (number * 10 + byte - '0') % 1000 : 1000;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].final == byte && known[i].number == number)
            return known[i].key;
    return 0;
}

static wf_status press(wf_line *l, int key, outcome *out)
{
    wf_typed *b = &l->now;
    switch (key) {
    case -1: *out = LINE_ENDED; break;
    case '\r':
    case '\n': *out = LINE_DONE; break;
    case KEY('C'): *out = LINE_CANCELLED; break;
    case KEY('D'):
        if (b->len == 0)
            *out = LINE_ENDED;
        /* fall through */
    case DELETE: wf_typed_erase(b, l->cursor, wf_typed_after(b, l->cursor)); break;
    case KEY('A'): l->cursor = 0; break;
    case KEY('E'): l->cursor = b->len; break;
    case KEY('B'): l->cursor = wf_typed_before(b, l->cursor); break;
    case KEY('F'): l->cursor = wf_typed_after(b, l->cursor); break;
    case KEY('P'): return recall(l, l->shown - 1);
    case KEY('N'): return recall(l, l->shown + 1);
    case KEY('K'): wf_typed_erase(b, l->cursor, b->len); break;
    case KEY('U'):
    case KEY('W'):
    case KEY('H'):
    case BACKSPACE: {
        size_t from = key == KEY('U')   ? 0
                      : key == KEY('W') ? wf_typed_word(b, l->cursor)
                                        : wf_typed_before(b, l->cursor);
        wf_typed_erase(b, from, l->cursor);
        l->cursor = from;
        break;
    }
    default:
        if (key == '\t')
            key = ' ';
        if (key < ' ')
            break;
        WF_TRY(wf_typed_insert(l->ctx, b, l->cursor, &(char){(char)key}, 1));
        l->cursor++;
    }
    return WF_OK;
}

/* The terminal hands over single keys. */
static wf_status edit(wf_line *l, const char *prompt, outcome *out)
{
    wf_status status = WF_OK;
    l->shown = l->n;
    *out = LINE_EDITING;
    while (status == WF_OK && *out == LINE_EDITING) {
        if (wf_typed_whole(&l->now, l->cursor))
            redraw(l, prompt);
        int key = next_byte();
        status = press(l, key == ESCAPE ? escape_key() : key, out);
    }
    fputs(*out == LINE_CANCELLED ? "^C\n" : "\n", stderr);
    if (*out == LINE_DONE)
        remember(l);
    return status;
}

/* From a file or a pipe. */
static wf_status get(wf_line *l, outcome *out)
{
    int byte;
    while ((byte = getc(stdin)) != EOF && byte != '\n')
        if (byte != '\0') /* which would end the text */
            WF_TRY(wf_typed_insert(l->ctx, &l->now, l->now.len, &(char){(char)byte}, 1));
    if (l->now.len > 0 && l->now.text[l->now.len - 1] == '\r')
        wf_typed_erase(&l->now, l->now.len - 1, l->now.len);
    *out = byte == EOF && l->now.len == 0 ? LINE_ENDED : LINE_DONE;
    return WF_OK;
}

/* ---- Lines ---- */

static wf_status read_joined(wf_line *l, const char *prompt, const char **text)
{
    wf_typed_erase(&l->whole, 0, l->whole.len);
    for (bool more = true; more;) {
        outcome how = LINE_ENDED;
        wf_typed_erase(&l->now, 0, l->now.len);
        l->cursor = 0;
        WF_TRY(l->terminal ? edit(l, prompt, &how) : get(l, &how));
        l->cancelled = how == LINE_CANCELLED;
        if (l->cancelled) {
            wf_typed_erase(&l->whole, 0, l->whole.len);
            wf_typed_erase(&l->now, 0, l->now.len);
        }
        if (how == LINE_ENDED && l->whole.len == 0)
            return WF_OK;
        size_t len = l->now.len;
        more = l->terminal && how == LINE_DONE && len > 0 && l->now.text[len - 1] == '\\';
        if (more)
            l->now.text[len - 1] = '\n';
        WF_TRY(wf_typed_insert(l->ctx, &l->whole, l->whole.len, len > 0 ? l->now.text : "", len));
        prompt = "... ";
    }
    *text = l->whole.text;
    return WF_OK;
}

wf_status wf_line_read(wf_line *l, const char *prompt, const char **text)
{
    struct termios saved, raw;
    *text = NULL;
    if (!l->terminal)
        return read_joined(l, prompt, text);
    if (tcgetattr(STDIN_FILENO, &saved) != 0)
        return wf_fail(l->ctx, WF_ERR_IO, "the terminal cannot be set up: %s", strerror(errno));
    raw = saved;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)(ICRNL | IXON | ISTRIP);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw); /* what was typed ahead stays */
    wf_status status = read_joined(l, prompt, text);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
    return status;
}

bool wf_line_cancelled(const wf_line *l)
{
    return l->cancelled;
}

wf_status wf_line_new(wf_ctx *ctx, wf_line **out)
{
    wf_line *l = *out = wf_mem_new(ctx, sizeof *l);
    if (!l)
        return WF_ERR_MEMORY;
    l->ctx = ctx;
    l->terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    return WF_OK;
}

void wf_line_free(wf_line *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->n; i++)
        wf_mem_free(l->ctx, l->history[i]);
    wf_mem_free(l->ctx, l->now.text);
    wf_mem_free(l->ctx, l->whole.text);
    wf_mem_free(l->ctx, l);
}
