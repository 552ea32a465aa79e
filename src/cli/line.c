/* SPDX-License-Identifier: MIT */
/*
 * line.c - see line.h.
 *
 * The terminal is in raw mode only while a text is read, so output in between and Ctrl-C work as
 * usual. Every line of the text takes one row of the screen. A line wider than the terminal scrolls
 * sideways, so the code does not depend on how terminals wrap.
 */
#include "cli/line.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/writer.h"
#include "cli/keys.h"
#include "cli/line_history.h"
#include "cli/term.h"
#include "cli/typed.h"

#define KEY(letter) ((letter)&0x1f) /* with Ctrl */
#define ESCAPE 27
#define ESCAPE_MS 100 /* timeout for the rest of an escape sequence */
#define BACKSPACE 127
#define QUOTES "\"\"\""
#define NEXT_PROMPT "... "
#define COLOR "\x1b[1;32m"
#define PLAIN "\x1b[0m"

/* Keys that are not bytes. */
enum { DELETE = 256, PASTE, NEWLINE };

typedef enum { LINE_DONE, LINE_EDITING, LINE_CANCELLED, LINE_ENDED } outcome;

/* The lines of the text that are on the screen. */
typedef struct {
    int width;  /* columns of a row */
    int first;  /* line */
    int rows;   /* lines from there on */
    int cursor; /* the row it is in */
    size_t at;  /* offset of the first line */
} view;

struct wf_line {
    wf_ctx *ctx;
    bool tty;    /* stdin is a terminal */
    bool prompt; /* stderr is a terminal, too */
    bool keys_work, color, cancelled, quoted;
    wf_keys *keys; /* if keys_work */
    wf_typed now;
    wf_typed draft; /* the unfinished text while the history is shown */
    wf_typed pasted;
    size_t cursor; /* byte offset, at the start of a character */
    bool block;    /* Enter adds lines until """ */
    wf_line_history history;
    int shown; /* index in the history; its count: the draft */
    const char *label;
    int row, rows; /* row of the cursor, and number of rows drawn */
    view drawn;
    wf_writer out;
};

/* ---- The screen ---- */

static view choose_view(const wf_line *l, int width, int most)
{
    const wf_typed *b = &l->now;
    view v = {.width = width};
    int all = 1, line = 0;
    for (size_t at = 0; (at = wf_typed_line_end(b, at)) < b->len; at++, all++)
        line += at < l->cursor;
    if (all > most) {
        v.first = line > most / 2 ? line - most / 2 : 0;
        v.first = v.first > all - most ? all - most : v.first;
    }
    v.rows = all - v.first < most ? all - v.first : most;
    v.cursor = line - v.first;
    for (int i = 0; i < v.first; i++)
        v.at = wf_typed_line_end(b, v.at) + 1;
    return v;
}

/* Chooses the visible part of a line: as much before `place` as fits, then as much after it. Reads
 * only that part, since a line may be long. Returns its columns. */
static int choose_part(const wf_typed *b, size_t place, int room, size_t *from, size_t *to)
{
    size_t end = wf_typed_line_end(b, place), before;
    int used = 0, columns;
    *from = *to = place;
    for (; *from > 0 && b->text[*from - 1] != '\n'; *from = before, used += columns) {
        before = wf_typed_before(b, *from);
        if ((columns = wf_typed_show(b, before).columns) > room - used)
            break;
    }
    for (; *to < end; *to = wf_typed_after(b, *to), used += columns)
        if ((columns = wf_typed_show(b, *to).columns) > room - used)
            break;
    return used;
}

static int columns_of(const wf_typed *b, size_t from, size_t to)
{
    int columns = 0;
    for (; from < to; from = wf_typed_after(b, from))
        columns += wf_typed_show(b, from).columns;
    return columns;
}

static const char *label_of(const wf_line *l, const view *v, int row)
{
    return v->first + row == 0 ? l->label : NEXT_PROMPT;
}

static void put_row(wf_line *l, const char *label, size_t from, size_t to)
{
    wf_writer *w = &l->out;
    wf_writer_print(w, "\r%s%s", l->color ? COLOR : "", label);
    for (; from < to; from = wf_typed_after(&l->now, from)) {
        wf_shown c = wf_typed_show(&l->now, from);
        wf_writer_bytes(w, c.text, c.bytes);
    }
    wf_writer_print(w, "%s\x1b[K", l->color ? PLAIN : "");
}

static void send_out(wf_line *l)
{
    if (l->out.status == WF_OK && l->out.len > 0)
        fwrite(l->out.text, 1, l->out.len, stderr);
    fflush(stderr);
    l->out.len = 0;
}

/* Redraws the lines around the cursor. */
static void draw(wf_line *l)
{
    const wf_typed *b = &l->now;
    view v = choose_view(l, wf_term_columns(STDERR_FILENO), wf_term_rows(STDERR_FILENO));
    size_t at = v.at, from, to;
    int back = 0, forward = 0;
    if (l->row > 0)
        wf_writer_print(&l->out, "\x1b[%dA", l->row);
    for (int i = 0; i < v.rows; i++, at = wf_typed_line_end(b, at) + 1) {
        const char *label = label_of(l, &v, i);
        int indent = (int)strlen(label);
        choose_part(b, i == v.cursor ? l->cursor : at, v.width - indent, &from, &to);
        put_row(l, label, from, to);
        if (i == v.cursor) {
            back = columns_of(b, l->cursor, to);
            forward = indent + columns_of(b, from, l->cursor);
        }
        if (i + 1 < v.rows)
            wf_writer_char(&l->out, '\n');
    }
    if (v.rows < l->rows)
        wf_writer_print(&l->out, "\x1b[J");
    if (v.cursor < v.rows - 1)
        wf_writer_print(&l->out, "\x1b[%dA\r\x1b[%dC", v.rows - 1 - v.cursor, forward);
    else if (back > 0)
        wf_writer_print(&l->out, "\x1b[%dD", back);
    l->row = v.cursor;
    l->rows = v.rows;
    l->drawn = v;
    send_out(l);
}

/* A terminal that becomes narrower wraps the drawn rows, which moves the first one up. */
static void follow_resize(wf_line *l)
{
    const view *v = &l->drawn;
    int width = wf_term_columns(STDERR_FILENO) + 1;
    size_t at = v->at, from, to;
    if (width > v->width)
        return;
    for (int i = 0; i <= v->cursor; i++, at = wf_typed_line_end(&l->now, at) + 1) {
        int indent = (int)strlen(label_of(l, v, i));
        int columns = indent + choose_part(&l->now, i == v->cursor ? l->cursor : at,
                                           v->width - indent, &from, &to);
        if (i == v->cursor)
            columns = indent + columns_of(&l->now, from, l->cursor) + 1;
        l->row += (columns - 1) / width;
    }
    l->rows = 1 << 20; /* erase everything below */
}

/* Leaves the text on the screen and moves the cursor below it. */
static void leave_screen(wf_line *l, const char *ending)
{
    size_t cursor = l->cursor;
    l->cursor = l->now.len;
    draw(l);
    l->cursor = cursor;
    l->row = l->rows = 0;
    fputs(ending, stderr);
}

/* ---- History ---- */

static wf_status replace_text(wf_line *l, const char *text)
{
    wf_typed_erase(&l->now, 0, l->now.len);
    l->cursor = 0;
    l->block = false;
    WF_TRY(wf_typed_insert(l->ctx, &l->now, 0, text, strlen(text)));
    l->cursor = l->now.len;
    return WF_OK;
}

/* Shows entry `which`; past the last entry, the draft. */
static wf_status recall(wf_line *l, int which)
{
    const wf_line_history *h = &l->history;
    if (which < 0 || which > h->count)
        return WF_OK;
    if (l->shown == h->count) {
        wf_typed_erase(&l->draft, 0, l->draft.len);
        WF_TRY(wf_typed_insert(l->ctx, &l->draft, 0, l->now.len ? l->now.text : "", l->now.len));
    }
    l->shown = which;
    return replace_text(l, which < h->count ? h->entry[which] : l->draft.text);
}

/* Up and Down: moves between the lines of the text, then through the history. */
static wf_status move_line(wf_line *l, bool up)
{
    const wf_typed *b = &l->now;
    size_t begin = wf_typed_line_begin(b, l->cursor), end = wf_typed_line_end(b, l->cursor);
    if (up ? begin == 0 : end == b->len)
        return recall(l, l->shown + (up ? -1 : 1));
    int columns = columns_of(b, begin, l->cursor);
    size_t at = up ? wf_typed_line_begin(b, begin - 1) : end + 1;
    size_t stop = wf_typed_line_end(b, at);
    while (at < stop && (columns -= wf_typed_show(b, at).columns) >= 0)
        at = wf_typed_after(b, at);
    l->cursor = at;
    return WF_OK;
}

/* ---- Keys ---- */

/* Reads the rest of an escape sequence and returns its key; 0: unknown. */
static int escape_key(wf_keys *k)
{
    static const struct {
        char final;
        int number, key;
    } known[] = {
        {'A', 0, KEY('P')}, {'B', 0, KEY('N')}, {'C', 0, KEY('F')}, {'D', 0, KEY('B')},
        {'H', 0, KEY('A')}, {'F', 0, KEY('E')}, {'~', 1, KEY('A')}, {'~', 7, KEY('A')},
        {'~', 4, KEY('E')}, {'~', 8, KEY('E')}, {'~', 3, DELETE},   {'~', 200, PASTE},
    };
    int byte = wf_keys_next(k, ESCAPE_MS), number = 0;
    if (byte == '\r' || byte == '\n')
        return NEWLINE;
    if (byte != '[' && byte != 'O')
        return 0;
    while ((byte = wf_keys_next(k, ESCAPE_MS)) >= 0 && (byte < '@' || byte > '~'))
        number = byte >= '0' && byte <= '9' ? (number * 10 + byte - '0') % 1000 : 1000;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].final == byte && known[i].number == number)
            return known[i].key;
    return 0;
}

/* Inserts bytes; rings the bell if the text is full. */
static wf_status insert(wf_line *l, const char *bytes, size_t n)
{
    if (n > WF_TYPED_MAX - l->now.len) {
        fputc('\a', stderr);
        return WF_OK;
    }
    WF_TRY(wf_typed_insert(l->ctx, &l->now, l->cursor, bytes, n));
    l->cursor += n;
    return WF_OK;
}

/* Adds a pasted byte; drops control characters except newlines and tabs. */
static wf_status add_pasted(wf_line *l, int byte, int before)
{
    if (byte == '\n' && before == '\r')
        return WF_OK;
    char c = byte == '\r' ? '\n' : (char)byte;
    if ((byte < ' ' && c != '\n' && c != '\t') || byte == BACKSPACE)
        return WF_OK;
    if (l->pasted.len == WF_TYPED_MAX)
        return WF_OK;
    return wf_typed_insert(l->ctx, &l->pasted, l->pasted.len, &c, 1);
}

/* Reads a paste as text up to its end sequence. */
static wf_status paste(wf_line *l)
{
    static const char end[] = "\x1b[201~";
    size_t matched = 0;
    int before = 0;
    wf_typed_erase(&l->pasted, 0, l->pasted.len);
    while (matched < sizeof end - 1) {
        int byte = wf_keys_next(l->keys, -1);
        if (byte == WF_KEYS_END)
            break;
        if (byte < 0)
            continue;
        if (byte == end[matched]) {
            matched++;
            continue;
        }
        for (size_t i = 0; i < matched; i++)
            WF_TRY(add_pasted(l, end[i], 0));
        matched = byte == end[0];
        if (!matched)
            WF_TRY(add_pasted(l, byte, before));
        before = byte;
    }
    return l->pasted.len > 0 ? insert(l, l->pasted.text, l->pasted.len) : WF_OK;
}

static bool begins_quoted(const wf_typed *b)
{
    return b->len >= 3 && memcmp(b->text, QUOTES, 3) == 0;
}

/* Returns whether closing quotes end the text. */
static bool ends_quoted(const wf_typed *b)
{
    size_t len = b->len;
    while (len > 0 && strchr(" \t\n", b->text[len - 1]))
        len--;
    return len >= 6 && memcmp(b->text + len - 3, QUOTES, 3) == 0;
}

/* Returns whether the text continues after this line. A final backslash becomes the newline;
 * otherwise *newline is set to add one. A pasted text that begins with quotes is not a block. */
static bool goes_on(wf_line *l, bool *newline)
{
    wf_typed *b = &l->now;
    *newline = false;
    if (begins_quoted(b) && !memchr(b->text, '\n', b->len))
        l->block = true;
    if (l->block && begins_quoted(b)) {
        *newline = !ends_quoted(b);
        return *newline;
    }
    if (l->cursor == b->len && b->len > 0 && b->text[b->len - 1] == '\\') {
        b->text[b->len - 1] = '\n';
        return true;
    }
    return false;
}

static wf_status enter(wf_line *l, outcome *out)
{
    bool newline;
    if (!goes_on(l, &newline))
        *out = LINE_DONE;
    return newline ? insert(l, "\n", 1) : WF_OK;
}

static wf_status suspend(wf_line *l, bool group)
{
    leave_screen(l, "\n");
    return wf_keys_suspend(l->keys, group);
}

static void erase_before(wf_line *l, int key)
{
    wf_typed *b = &l->now;
    size_t from = key == KEY('U')   ? wf_typed_line_begin(b, l->cursor)
                  : key == KEY('W') ? wf_typed_word(b, l->cursor)
                                    : wf_typed_before(b, l->cursor);
    wf_typed_erase(b, from, l->cursor);
    l->cursor = from;
}

static wf_status press(wf_line *l, int key, outcome *out)
{
    wf_typed *b = &l->now;
    switch (key) {
    case WF_KEYS_END: *out = LINE_ENDED; break;
    case WF_KEYS_RESIZED: follow_resize(l); break;
    case WF_KEYS_CONTINUED: l->row = l->rows = 0; break;
    case WF_KEYS_SUSPEND: return suspend(l, false);
    case KEY('Z'): return suspend(l, true);
    case '\r':
    case '\n': return enter(l, out);
    case NEWLINE: return insert(l, "\n", 1);
    case PASTE: return paste(l);
    case KEY('C'): *out = LINE_CANCELLED; break;
    case KEY('D'):
        if (b->len == 0)
            *out = LINE_ENDED;
        /* fall through */
    case DELETE: wf_typed_erase(b, l->cursor, wf_typed_after(b, l->cursor)); break;
    case KEY('A'): l->cursor = wf_typed_line_begin(b, l->cursor); break;
    case KEY('E'): l->cursor = wf_typed_line_end(b, l->cursor); break;
    case KEY('B'): l->cursor = wf_typed_before(b, l->cursor); break;
    case KEY('F'): l->cursor = wf_typed_after(b, l->cursor); break;
    case KEY('P'): return move_line(l, true);
    case KEY('N'): return move_line(l, false);
    case KEY('K'): wf_typed_erase(b, l->cursor, wf_typed_line_end(b, l->cursor)); break;
    case KEY('L'):
        fputs("\x1b[H\x1b[2J", stderr);
        l->row = l->rows = 0;
        break;
    case KEY('U'):
    case KEY('W'):
    case KEY('H'):
    case BACKSPACE: erase_before(l, key); break;
    default:
        if (key == '\t')
            key = ' ';
        if (key >= ' ')
            return insert(l, &(char){(char)key}, 1);
    }
    return WF_OK;
}

/* ---- Texts ---- */

static wf_status edit(wf_line *l, outcome *out)
{
    l->shown = l->history.count;
    l->row = l->rows = 0;
    *out = LINE_EDITING;
    WF_TRY(wf_keys_begin(l->keys));
    wf_status status = WF_OK;
    while (status == WF_OK && *out == LINE_EDITING) {
        if (wf_typed_whole(&l->now, l->cursor) && !wf_keys_pending(l->keys))
            draw(l);
        int key = wf_keys_next(l->keys, -1);
        status = press(l, key == ESCAPE ? escape_key(l->keys) : key, out);
    }
    leave_screen(l, *out == LINE_CANCELLED ? "^C" : "");
    wf_keys_end(l->keys);
    fputc('\n', stderr);
    return status;
}

/* Appends a line from a file, a pipe or a terminal in cooked mode. */
static wf_status get_line(wf_line *l, outcome *out)
{
    int byte;
    while ((byte = getc(stdin)) != EOF && byte != '\n')
        if (byte != '\0') /* NUL would end the text */
            WF_TRY(wf_typed_insert(l->ctx, &l->now, l->now.len, &(char){(char)byte}, 1));
    if (l->now.len > 0 && l->now.text[l->now.len - 1] == '\r')
        wf_typed_erase(&l->now, l->now.len - 1, l->now.len);
    *out = byte == EOF && l->now.len == 0 ? LINE_ENDED : LINE_DONE;
    return WF_OK;
}

static wf_status get(wf_line *l, outcome *out)
{
    const char *label = l->label;
    bool newline = false, more = true;
    while (more) {
        if (l->prompt)
            fprintf(stderr, "%s%s%s", l->color ? COLOR : "", label, l->color ? PLAIN : "");
        WF_TRY(get_line(l, out));
        l->cursor = l->now.len;
        more = l->tty && *out == LINE_DONE && !feof(stdin) && goes_on(l, &newline);
        if (newline)
            WF_TRY(wf_typed_insert(l->ctx, &l->now, l->now.len, "\n", 1));
        label = NEXT_PROMPT;
    }
    return WF_OK;
}

/* Removes the quotes and, on a terminal, newlines at the end. */
static void finish_text(wf_line *l)
{
    wf_typed *b = &l->now;
    l->quoted = l->block && begins_quoted(b) && ends_quoted(b);
    while (l->tty && b->len > 0 && b->text[b->len - 1] == '\n')
        wf_typed_erase(b, b->len - 1, b->len);
    if (!l->quoted)
        return;
    while (b->len > 0 && strchr(" \t\n", b->text[b->len - 1]))
        wf_typed_erase(b, b->len - 1, b->len);
    wf_typed_erase(b, b->len - 3, b->len);
    if (b->text[b->len - 1] == '\n')
        wf_typed_erase(b, b->len - 1, b->len);
    wf_typed_erase(b, 0, b->len > 3 && b->text[3] == '\n' ? 4 : 3);
}

static wf_status read_text(wf_line *l, const char *prompt, bool keep, const char **text)
{
    outcome how = LINE_ENDED;
    *text = NULL;
    l->label = prompt;
    l->block = l->quoted = false;
    wf_typed_erase(&l->now, 0, l->now.len);
    l->cursor = 0;
    WF_TRY(l->keys_work ? edit(l, &how) : get(l, &how));
    l->cancelled = how == LINE_CANCELLED;
    if (how == LINE_ENDED && l->now.len == 0)
        return WF_OK;
    if (l->cancelled)
        wf_typed_erase(&l->now, 0, l->now.len);
    finish_text(l);
    *text = l->now.len > 0 ? l->now.text : "";
    if (l->keys_work && keep && !l->cancelled)
        wf_line_history_add(&l->history, *text);
    return WF_OK;
}

wf_status wf_line_read(wf_line *l, const char *prompt, const char **text)
{
    return read_text(l, prompt, true, text);
}

wf_status wf_line_ask(wf_line *l, const char *prompt, const char **text)
{
    return read_text(l, prompt, false, text);
}

bool wf_line_cancelled(const wf_line *l)
{
    return l->cancelled;
}

bool wf_line_quoted(const wf_line *l)
{
    return l->quoted;
}

wf_status wf_line_new(wf_ctx *ctx, const wf_line_options *options, wf_line **out)
{
    static const wf_line_options none;
    const wf_line_options *o = options ? options : &none;
    wf_line *l = *out = wf_mem_new(ctx, sizeof *l);
    if (!l)
        return WF_ERR_MEMORY;
    l->ctx = l->out.ctx = ctx;
    l->tty = isatty(STDIN_FILENO);
    l->prompt = l->tty && isatty(STDERR_FILENO);
    l->keys_work = l->prompt && wf_term_is(STDERR_FILENO);
    l->color = o->color;
    wf_line_history_open(ctx, l->keys_work ? o->history : NULL, &l->history);
    wf_status status = l->keys_work ? wf_keys_new(ctx, &l->keys) : WF_OK;
    if (status != WF_OK) {
        wf_line_free(l);
        *out = NULL;
    }
    return status;
}

void wf_line_free(wf_line *l)
{
    if (!l)
        return;
    wf_keys_free(l->keys);
    wf_line_history_close(&l->history);
    wf_mem_free(l->ctx, l->now.text);
    wf_mem_free(l->ctx, l->draft.text);
    wf_mem_free(l->ctx, l->pasted.text);
    wf_mem_free(l->ctx, l->out.text);
    wf_mem_free(l->ctx, l);
}
