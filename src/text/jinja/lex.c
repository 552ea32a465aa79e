/* SPDX-License-Identifier: MIT */
/*
 * lex.c - see lex.h.
 *
 * trim_blocks and lstrip_blocks are on, as Hugging Face sets them: a newline after a block is
 * removed, and so is the white space before a block at the start of its line. A sign overrides
 * both: "{%-" and "-%}" strip all white space on their side, "{%+" and "+%}" keep it.
 *
 * One linear pass over a copy of the text. Brackets are matched here, because "}}" ends a tag only
 * outside of brackets.
 */
#include "text/jinja/lex.h"

#include "base/mem.h"
#include "text/jinja/ast.h"
#include "text/jinja/string.h"
#include "text/utf8.h"

/* Bounds what is allocated for a template: a copy of the text and at most about one token per
 * byte. */
#define MAX_BYTES ((size_t)4 << 20)
#define MAX_BRACKETS 200 /* the parser has its own, smaller limit; this one bounds closers[] */

typedef struct {
    wf_arena *arena; /* owns src and the text of tokens */
    wf_ctx *ctx;
    const char *what; /* names the template in messages */
    char *src;        /* line breaks converted to \n, without a final one */
    size_t bytes, pos;
    size_t counted; /* lines have been counted up to here */
    int line;
    bool line_start;            /* only stripped white space precedes pos in its line */
    char closers[MAX_BRACKETS]; /* the closing brackets that are due, innermost last */
    size_t open;                /* nested brackets of the current tag */
    wf_jtoken *token;           /* [cap], of the context; copied to the arena at the end */
    size_t count, cap;
} lexer;

/* Returns the line of byte pos. Counts from the last call on, so all calls together are linear; pos
 * must not decrease. */
static int line_at(lexer *l, size_t pos)
{
    for (; l->counted < pos; l->counted++)
        l->line += l->src[l->counted] == '\n';
    return l->line;
}

static wf_status fail(lexer *l, const char *sentence)
{
    return wf_fail(l->ctx, WF_ERR_FORMAT, "%s, line %d: %s", l->what, line_at(l, l->pos), sentence);
}

static wf_status push(lexer *l, wf_jtoken t)
{
    if (l->count == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 256;
        wf_jtoken *grown = wf_mem_grow(l->ctx, l->token, cap * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        l->token = grown;
        l->cap = cap;
    }
    l->token[l->count++] = t;
    return WF_OK;
}

static wf_status push_span(lexer *l, wf_jtoken_kind kind, size_t from, size_t to)
{
    return push(
        l, (wf_jtoken){
               .kind = kind, .line = line_at(l, from), .text = l->src + from, .bytes = to - from});
}

/* Returns whether `text` lies at pos, which may be past the end. */
static bool at(const lexer *l, size_t pos, const char *text)
{
    size_t n = strlen(text);
    return pos <= l->bytes && l->bytes - pos >= n && memcmp(l->src + pos, text, n) == 0;
}

/* Returns the first position from pos on that is not white space in Python's sense. */
static size_t skip_space(const lexer *l, size_t pos)
{
    while (pos < l->bytes) {
        uint32_t code;
        size_t length = wf_utf8_next(l->src + pos, l->bytes - pos, &code);
        if (!wf_char_is_space(code))
            break;
        pos += length;
    }
    return pos;
}

/* Returns the end of the text [from, to) before a tag, after stripping by the tag's sign or
 * lstrip_blocks. */
static size_t text_end(const lexer *l, size_t from, size_t to, char sign, bool block)
{
    wf_jstr text = {.text = l->src + from, .bytes = to - from};
    if (sign == '-')
        return from + wf_jstr_strip(&text, WF_J_RIGHT).bytes;
    if (sign == '+' || !block)
        return to;
    /* lstrip_blocks: strip only if nothing but white space separates the tag from its line's
     * start. */
    size_t start = to;
    while (start > from && l->src[start - 1] != '\n')
        start--;
    if (start == from && !l->line_start)
        return to;
    return skip_space(l, start) >= to ? start : to;
}

/* Consumes the end of a tag at pos: [+-]close, white space after '-', one newline after a block.
 * Returns false when pos is not at an end. */
static bool pass_end(lexer *l, const char *close, bool block, size_t pos)
{
    char sign = pos < l->bytes ? l->src[pos] : '\0';
    bool minus = sign == '-', plus = sign == '+' && block;
    size_t end = pos + (minus || plus);
    if (!at(l, end, close))
        return false;
    end += 2;
    if (minus)
        end = skip_space(l, end);
    else if (block && !plus && end < l->bytes && l->src[end] == '\n')
        end++;
    l->pos = end;
    l->line_start = end > 0 && l->src[end - 1] == '\n';
    return true;
}

/* ---- Inside tags ---- */

/* Returns whether a byte may be part of a name. Any byte above ASCII may: the text is valid
 * UTF-8. */
static bool is_name(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns 99, which is above any base, for a character that is not a digit. */
static int hex_digit(char c)
{
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

/* Returns the end of digits that may be separated by single underscores. src[pos] is a digit, so
 * pos - 1 is valid when an underscore is met. */
static size_t digits_end(const lexer *l, size_t pos)
{
    while (pos < l->bytes &&
           (is_digit(l->src[pos]) || (l->src[pos] == '_' && pos + 1 < l->bytes &&
                                      is_digit(l->src[pos + 1]) && is_digit(l->src[pos - 1]))))
        pos++;
    return pos;
}

/* Reads a float in [pos, end) without its underscores. */
static wf_status lex_float(lexer *l, size_t end)
{
    char text[64];
    size_t n = 0;
    for (size_t i = l->pos; i < end; i++) {
        if (n + 1 == sizeof text)
            return fail(l, "a number has too many digits");
        if (l->src[i] != '_')
            text[n++] = l->src[i];
    }
    text[n] = '\0';
    const char *s = text;
    wf_jtoken t = {.kind = WF_JT_FLOAT, .line = line_at(l, l->pos)};
    if (!wf_text_to_double(&s, &t.number))
        return fail(l, "a number is malformed");
    l->pos = end;
    return push(l, t);
}

/* Reads an integer, or a float if a fraction or exponent follows. A dot counts only before a digit,
 * so that 1.attr stays an item of 1. */
static wf_status lex_number(lexer *l)
{
    size_t end = digits_end(l, l->pos), digits = end;
    if (end + 1 < l->bytes && l->src[end] == '.' && is_digit(l->src[end + 1]))
        end = digits_end(l, end + 1);
    if (end < l->bytes && (l->src[end] == 'e' || l->src[end] == 'E')) {
        size_t power = end + 1;
        power += power < l->bytes && (l->src[power] == '+' || l->src[power] == '-');
        if (power < l->bytes && is_digit(l->src[power]))
            end = digits_end(l, power);
    }
    if (end > digits)
        return lex_float(l, end);

    wf_jtoken t = {.kind = WF_JT_INT, .line = line_at(l, l->pos)};
    int base = 10;
    size_t from = l->pos;
    if (l->src[from] == '0' && from + 2 < l->bytes) {
        char mark = l->src[from + 1] | 0x20;
        base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
        if (base != 10 && hex_digit(l->src[from + 2]) < base)
            from += 2;
        else
            base = 10;
    }
    for (end = from; end < l->bytes && (l->src[end] == '_' || hex_digit(l->src[end]) < base); end++)
        if (l->src[end] != '_' && (!wf_mul_i64(t.integer, base, &t.integer) ||
                                   !wf_add_i64(t.integer, hex_digit(l->src[end]), &t.integer)))
            return fail(l, "a number is too large");
    l->pos = end;
    return push(l, t);
}

/* Reads `count` digits of `base` at *pos; fewer: 1 to `count` digits. */
static bool read_code(const lexer *l, size_t *pos, size_t end, int base, int count, bool fewer,
                      uint32_t *code)
{
    int n = 0;
    for (*code = 0; n < count && *pos < end && hex_digit(l->src[*pos]) < base; n++)
        *code = *code * (uint32_t)base + (uint32_t)hex_digit(l->src[(*pos)++]);
    return fewer ? n > 0 : n == count;
}

/* Decodes one Python escape, whose backslash is at *pos, and appends it to out. Unknown escapes
 * stay unchanged. Returns false for an invalid code point. No escape is shorter than its UTF-8, so
 * out needs no more room than the source. */
static bool unescape(const lexer *l, size_t *pos, size_t end, char *out, size_t *n)
{
    static const char letter[] = "\\'\"abfnrtv", meaning[] = "\\'\"\a\b\f\n\r\t\v";
    char c = l->src[*pos + 1];
    const char *known = c ? strchr(letter, c) : NULL;
    uint32_t code;
    *pos += 2;
    if (known) {
        out[(*n)++] = meaning[known - letter];
        return true;
    }
    /* A backslash before a line break joins the lines. */
    if (c == '\n')
        return true;
    if (c >= '0' && c <= '7') {
        (*pos)--;
        read_code(l, pos, end, 8, 3, true, &code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (!read_code(l, pos, end, 16, count, false, &code))
            return false;
    } else {
        out[(*n)++] = '\\';
        out[(*n)++] = c;
        return true;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return false;
    *n += wf_utf8_write(out + *n, code);
    return true;
}

static wf_status lex_string(lexer *l)
{
    char quote = l->src[l->pos];
    size_t from = l->pos + 1, end = from, n = 0;
    /* An escaped byte is skipped, so a backslash is always followed by a byte before `end`. */
    for (; end < l->bytes && l->src[end] != quote; end++)
        end += l->src[end] == '\\';
    if (end >= l->bytes)
        return fail(l, "a string is not closed");
    char *text = wf_arena_alloc(l->arena, end - from); /* decoding never lengthens the text */
    if (!text)
        return WF_ERR_MEMORY;
    for (size_t pos = from; pos < end;) {
        if (l->src[pos] != '\\')
            text[n++] = l->src[pos++];
        else if (!unescape(l, &pos, end, text, &n))
            return fail(l, "a string has an escape that is not a valid character");
    }
    wf_jtoken t = {.kind = WF_JT_STRING, .line = line_at(l, l->pos), .text = text, .bytes = n};
    l->pos = end + 1;
    return push(l, t);
}

/* Reads an operator and keeps track of open brackets. Two characters match before one. */
static wf_status lex_operator(lexer *l)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    static const char one[] = "+-/*%~[](){}><=.:|,;", openers[] = "([{", closers[] = ")]}";
    char c = l->src[l->pos];
    wf_jtoken t = {.kind = WF_JT_OP, .line = line_at(l, l->pos)};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (at(l, l->pos, two[i]))
            t.op = WF_J_OP(two[i][0], two[i][1]);
    if (!t.op && (!c || !strchr(one, c)))
        return fail(l, "a tag has an unexpected character");
    const char *opener = t.op ? NULL : strchr(openers, c),
               *closer = t.op ? NULL : strchr(closers, c);
    if (opener) {
        if (l->open == MAX_BRACKETS)
            return fail(l, "brackets are nested too deeply");
        l->closers[l->open++] = closers[opener - openers];
    }
    if (closer && (l->open == 0 || l->closers[--l->open] != c))
        return fail(l, "a closing bracket has no matching opening bracket");
    l->pos += t.op ? 2 : 1;
    t.op = t.op ? t.op : c;
    return push(l, t);
}

/* Reads the tokens between {% or {{ and its end. */
static wf_status lex_tag(lexer *l, bool block)
{
    l->open = 0;
    for (;;) {
        l->pos = skip_space(l, l->pos);
        if (l->pos == l->bytes)
            return fail(l, "a tag is not closed");
        size_t from = l->pos;
        if (l->open == 0 && pass_end(l, block ? "%}" : "}}", block, from))
            return push_span(l, block ? WF_JT_BLOCK_END : WF_JT_PRINT_END, from, from + 2);
        char c = l->src[l->pos];
        size_t end = l->pos;
        if (is_digit(c)) {
            WF_TRY(lex_number(l));
        } else if (is_name((unsigned char)c)) {
            while (end < l->bytes && is_name((unsigned char)l->src[end]))
                end++;
            WF_TRY(push_span(l, WF_JT_NAME, l->pos, end));
            l->pos = end;
        } else if (c == '\'' || c == '"') {
            WF_TRY(lex_string(l));
        } else {
            WF_TRY(lex_operator(l));
        }
    }
}

/* ---- Between tags ---- */

/* Skips {# ... #}; comments do not nest. */
static wf_status pass_comment(lexer *l)
{
    for (size_t end = l->pos; end + 1 < l->bytes; end++)
        if (l->src[end] == '#' && l->src[end + 1] == '}')
            /* a sign before the end is part of the end */
            return pass_end(l, "#}", true,
                            end > l->pos && strchr("+-", l->src[end - 1]) ? end - 1 : end)
                       ? WF_OK
                       : WF_ERR_INTERNAL;
    return fail(l, "a comment is not closed");
}

/* Returns whether the tag whose {% and sign end at pos is `{% word %}`; *end: start of its %}. */
static bool is_tag(const lexer *l, size_t pos, const char *word, size_t *end)
{
    pos = skip_space(l, pos);
    if (!at(l, pos, word))
        return false;
    *end = skip_space(l, pos + strlen(word));
    return at(l, *end, "%}") || at(l, *end, "-%}") || at(l, *end, "+%}");
}

/* Returns '+' or '-' if one follows the start of a tag at pos, otherwise 0. */
static char sign_at(const lexer *l, size_t pos)
{
    return pos < l->bytes && (l->src[pos] == '-' || l->src[pos] == '+') ? l->src[pos] : '\0';
}

/* Reads a raw block, from the end of {% raw at `end` through {% endraw %}. */
static wf_status lex_raw(lexer *l, size_t end)
{
    l->pos = at(l, end, "-%}") ? skip_space(l, end + 3) : end + 2; /* keeps the newline */
    l->line_start = l->src[l->pos - 1] == '\n';
    size_t from = l->pos;
    if (from == l->bytes) /* jinja2 accepts this */
        return WF_OK;
    for (size_t tag = from; tag + 1 < l->bytes; tag++) {
        if (!at(l, tag, "{%"))
            continue;
        char sign = sign_at(l, tag + 2);
        if (is_tag(l, tag + 2 + (sign != 0), "endraw", &end)) {
            size_t to = text_end(l, from, tag, sign, true);
            if (to > from)
                WF_TRY(push_span(l, WF_JT_DATA, from, to));
            return pass_end(l, "%}", true, end) ? WF_OK : WF_ERR_INTERNAL;
        }
    }
    return fail(l, "{% raw %} is not closed");
}

/* Reads the text up to the next tag, and the tag. */
static wf_status lex_piece(lexer *l)
{
    size_t from = l->pos, tag = from, raw_end;
    while (tag + 1 < l->bytes &&
           !(l->src[tag] == '{' && strchr("{%#", l->src[tag + 1]) && l->src[tag + 1]))
        tag++;
    if (tag + 1 >= l->bytes) {
        l->pos = l->bytes;
        return push_span(l, WF_JT_DATA, from, l->bytes);
    }
    char kind = l->src[tag + 1], sign = sign_at(l, tag + 2);
    size_t to = text_end(l, from, tag, sign, kind != '{');
    if (to > from)
        WF_TRY(push_span(l, WF_JT_DATA, from, to));
    l->line_start = false;
    l->pos = tag + 2 + (sign != 0);
    if (kind == '#')
        return pass_comment(l);
    if (kind == '%' && is_tag(l, l->pos, "raw", &raw_end) && !at(l, raw_end, "+%}"))
        return lex_raw(l, raw_end);
    WF_TRY(push_span(l, kind == '%' ? WF_JT_BLOCK_BEGIN : WF_JT_PRINT_BEGIN, tag, tag + 2));
    return lex_tag(l, kind == '%');
}

wf_status wf_jlex(wf_arena *arena, const char *what, const char *text, size_t bytes,
                  wf_jtoken **out)
{
    lexer l = {.arena = arena, .ctx = arena->ctx, .what = what, .line = 1, .line_start = true};
    wf_status status = WF_OK;
    if (bytes > MAX_BYTES)
        return wf_fail(l.ctx, WF_ERR_FORMAT, "%s has %zu bytes; the limit is %zu", what, bytes,
                       MAX_BYTES);
    if (!wf_utf8_valid(text, bytes))
        return wf_fail(l.ctx, WF_ERR_FORMAT, "%s is not UTF-8; save the template as UTF-8", what);
    l.src = wf_arena_alloc(arena, bytes + 1);
    if (!l.src)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < bytes; i++) {
        /* Convert \r\n and \r to \n, as jinja2 does. */
        l.src[l.bytes++] = text[i] == '\r' ? '\n' : text[i];
        i += text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n';
    }
    /* jinja2 drops one final newline (keep_trailing_newline is off). */
    l.bytes -= l.bytes > 0 && l.src[l.bytes - 1] == '\n';
    while (status == WF_OK && l.pos < l.bytes)
        status = lex_piece(&l);
    if (status == WF_OK)
        status = push_span(&l, WF_JT_END, l.pos, l.pos);
    if (status == WF_OK) {
        *out = wf_arena_copy(arena, l.token, l.count * sizeof *l.token);
        status = *out ? WF_OK : WF_ERR_MEMORY;
    }
    wf_mem_free(l.ctx, l.token);
    return status;
}
