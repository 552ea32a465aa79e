/* SPDX-License-Identifier: MIT */
/*
 * json_tree.c - see json_tree.h.
 *
 * Items of open containers are on one stack. When a container closes, its items are on top of the
 * stack and move to an array in the arena. A decoded string is never longer than its source, so one
 * block of the text's size holds all strings.
 *
 * Keys are looked up by binary search, not by hash: an attacker could choose keys that collide.
 */
#include "base/json_tree.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* Objects with more members than this get a sorted index. */
#define FEW_MEMBERS 8
/* Initial capacity of the stack, in nodes; it doubles when full. */
#define FIRST_NODES 256

typedef struct {
    wf_arena *arena;
    /* Name of the text, for messages. */
    const char *what;
    /* text <= at <= end. Every read of *at is preceded by a check against end: the text has no
     * NUL. */
    const char *text, *at, *end;
    char *pool; /* the next decoded string is written here */
    /* [room], of which `used` items belong to open containers. From wf_mem, freed by
     * wf_json_parse. */
    wf_json_node *stack;
    size_t used, room;
    const wf_json_limits *limits;
    size_t values; /* parsed so far, at most limits->values */
    /* Open containers, at most limits->depth: bounds the recursion of read_value. */
    int depth;
} parser;

/* ---- Failing ---- */

/* Fails with the line of p->at. */
static wf_status fail(const parser *p, const char *why)
{
    /* Counted only on failure, so that parsing does not track lines. */
    size_t line = 1;
    for (const char *s = p->text; s < p->at; s++)
        line += *s == '\n';
    return wf_fail(p->arena->ctx, WF_ERR_FORMAT, "cannot read '%s', line %zu: %s", p->what, line,
                   why);
}

static wf_status fail_expected(const parser *p, const char *wanted)
{
    char why[128];
    if (p->at == p->end)
        snprintf(why, sizeof why, "expected %s, but the text ends", wanted);
    else if (*p->at > ' ' && *p->at <= '~')
        snprintf(why, sizeof why, "expected %s, found '%c'", wanted, *p->at);
    else
        snprintf(why, sizeof why, "expected %s, found the byte 0x%02x", wanted,
                 (unsigned)(unsigned char)*p->at);
    return fail(p, why);
}

static wf_status fail_twice(const parser *p, const wf_json_node *member)
{
    char key[WF_TEXT_SHOWN], why[WF_TEXT_SHOWN + 64];
    snprintf(why, sizeof why, "the object that ends here has a duplicate key '%s'",
             wf_text_show(key, member->key, member->key_bytes));
    return fail(p, why);
}

static wf_status fail_values(const parser *p)
{
    char why[64];
    snprintf(why, sizeof why, "it has more than %zu values", p->limits->values);
    return fail(p, why);
}

/* ---- Strings ---- */

/* Reads four hexadecimal digits. */
static bool read_hex(parser *p, unsigned *out)
{
    unsigned value = 0;
    if (p->end - p->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = p->at[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 16;
        if (digit == 16)
            return false;
        value = value * 16 + digit;
    }
    p->at += 4;
    *out = value;
    return true;
}

/* Reads the digits after "\u". A character above U+FFFF is a surrogate pair: two escapes. */
static wf_status read_unicode(parser *p)
{
    unsigned c, low;
    if (!read_hex(p, &c))
        return fail(p, "\\u is not followed by four hexadecimal digits");
    if (c >= 0xD800 && c <= 0xDFFF) {
        if (c >= 0xDC00 || p->end - p->at < 2 || p->at[0] != '\\' || p->at[1] != 'u')
            return fail(p, "\\u escape is a surrogate without its other half");
        p->at += 2;
        if (!read_hex(p, &low) || low < 0xDC00 || low > 0xDFFF)
            return fail(p, "\\u escape is a surrogate without its other half");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    p->pool += wf_text_put_utf8(p->pool, c);
    return WF_OK;
}

/* p->at is after the backslash. */
static wf_status read_escape(parser *p)
{
    static const char letter[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return fail_expected(p, "an escape");
    if (*p->at == 'u') {
        p->at++;
        return read_unicode(p);
    }
    const char *known = *p->at ? strchr(letter, *p->at) : NULL;
    if (!known)
        return fail_expected(p, "an escape");
    p->at++;
    *p->pool++ = meaning[known - letter];
    return WF_OK;
}

/* p->at is at the opening quote. The pool suffices: two quotes become one NUL. */
static wf_status read_string(parser *p, const char **string, size_t *bytes)
{
    char *start = p->pool;
    p->at++;
    for (;;) {
        const unsigned char *s = (const unsigned char *)p->at;
        const unsigned char *end = (const unsigned char *)p->end;
        while (s < end && *s >= ' ' && *s < 0x80 && *s != '"' && *s != '\\')
            *p->pool++ = (char)*s++;
        p->at = (const char *)s;
        if (s == end)
            return fail(p, "the text ends inside a string");
        if (*s == '"')
            break;
        if (*s == '\\') {
            p->at++;
            WF_TRY(read_escape(p));
            continue;
        }
        if (*s < ' ')
            return fail(p, "a string contains a control character; write it as an escape");
        size_t n = wf_text_utf8(p->at, (size_t)(end - s));
        if (n == 0)
            return fail(p, "a string is not UTF-8");
        memcpy(p->pool, s, n);
        p->pool += n;
        p->at += n;
    }
    p->at++;
    *string = start;
    *bytes = (size_t)(p->pool - start);
    *p->pool++ = '\0';
    return WF_OK;
}

/* ---- Numbers ---- */

static void skip_digits(parser *p)
{
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
}

/* Skips digits; fails unless there is at least one. */
static wf_status need_digits(parser *p)
{
    const char *start = p->at;
    skip_digits(p);
    return p->at == start ? fail_expected(p, "a digit") : WF_OK;
}

/* strtod needs a NUL, and the decimal point of the host program's locale. */
static wf_status read_double(parser *p, const char *start, double *out)
{
    char few[128], *copy = few;
    const char *point = localeconv()->decimal_point;
    size_t n = (size_t)(p->at - start), extra = strlen(point) + 1, at = 0;
    if (n + extra > sizeof few)
        copy = wf_mem_new(p->arena->ctx, n + extra);
    if (!copy)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (start[i] == '.') {
            memcpy(copy + at, point, extra - 1);
            at += extra - 1;
        } else {
            copy[at++] = start[i];
        }
    }
    copy[at] = '\0';
    *out = strtod(copy, NULL);
    if (copy != few)
        wf_mem_free(p->arena->ctx, copy);
    return isfinite(*out) ? WF_OK : fail(p, "a number is too large for a double");
}

/* Reads an optional minus and digits, which the caller has checked. Returns false when the number
 * does not fit. */
static bool read_integer(const char *s, const char *end, int64_t *out)
{
    bool negative = *s == '-';
    int64_t value = 0;
    for (s += negative; s < end; s++) {
        int64_t digit = *s - '0';
        /* Accumulate negatively: INT64_MIN has no positive counterpart. */
        if (!wf_mul_i64(value, 10, &value) || !wf_add_i64(value, -digit, &value))
            return false;
    }
    *out = value;
    return negative || wf_mul_i64(value, -1, out);
}

/* Checks JSON's grammar first, so that strtod never sees text that it alone would accept
 * (hexadecimal, "inf", a leading plus). */
static wf_status read_number(parser *p, wf_json_node *node)
{
    const char *start = p->at;
    node->kind = WF_JSON_NUMBER;
    p->at += *p->at == '-';
    if (p->at < p->end && *p->at == '0') {
        p->at++;
        if (p->at < p->end && *p->at >= '0' && *p->at <= '9')
            return fail(p, "a number has a leading zero");
    } else {
        WF_TRY(need_digits(p));
    }
    node->whole = true;
    if (p->at < p->end && *p->at == '.') {
        node->whole = false;
        p->at++;
        WF_TRY(need_digits(p));
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        node->whole = false;
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-'))
            p->at++;
        WF_TRY(need_digits(p));
    }
    node->whole = node->whole && read_integer(start, p->at, &node->integer);
    if (!node->whole) {
        node->integer = 0;
        return read_double(p, start, &node->number);
    }
    /* The sign of -0 exists only in the double. */
    node->number = node->integer == 0 && *start == '-' ? -0.0 : (double)node->integer;
    return WF_OK;
}

/* ---- Keys ---- */

/* Orders keys by their bytes; a prefix comes before the longer key. */
static int compare_keys(const char *a, size_t na, const char *b, size_t nb)
{
    int order = memcmp(a, b, na < nb ? na : nb);
    return order != 0 ? order : (na > nb) - (na < nb);
}

/* Most keys differ in their first eight bytes, which are compared without loading the key. */
typedef struct {
    uint64_t head; /* the first eight bytes of the key, big endian */
    uint32_t index;
} sort_entry;

static int compare_entries(const wf_json_node *child, const sort_entry *a, const sort_entry *b)
{
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    const wf_json_node *x = &child[a->index], *y = &child[b->index];
    return compare_keys(x->key, x->key_bytes, y->key, y->key_bytes);
}

/* Merges the sorted a[0 .. half) and a[half .. n) into `to`. */
static void merge(const wf_json_node *child, const sort_entry *a, size_t half, size_t n,
                  sort_entry *to)
{
    size_t i = 0, j = half;
    for (size_t k = 0; k < n; k++) {
        bool first = j == n || (i < half && compare_entries(child, &a[i], &a[j]) <= 0);
        to[k] = first ? a[i++] : a[j++];
    }
}

/* Merge sort: n log n comparisons even for hostile keys. Returns the array that holds the
 * result. */
static sort_entry *sort(const wf_json_node *child, sort_entry *a, sort_entry *spare, size_t n)
{
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t at = 0; at < n; at += 2 * run) {
            size_t left = n - at, half = run < left ? run : left;
            merge(child, a + at, half, left < 2 * run ? left : 2 * run, spare + at);
        }
        sort_entry *swap = a;
        a = spare;
        spare = swap;
    }
    return a;
}

/* Builds object->sorted and fails on duplicate keys, which are neighbours after sorting. `entries`
 * has two halves: the sort alternates between them. n is at most WF_JSON_TREE_VALUES, so no product
 * overflows and an index fits 32 bits. */
static wf_status index_keys(parser *p, wf_json_node *object)
{
    size_t n = object->count;
    sort_entry *entries = wf_mem_array(p->arena->ctx, n, 2 * sizeof *entries);
    uint32_t *sorted = wf_arena_alloc(p->arena, n * sizeof *sorted);
    wf_status status = entries && sorted ? WF_OK : WF_ERR_MEMORY;
    for (size_t i = 0; status == WF_OK && i < n; i++) {
        const wf_json_node *member = &object->child[i];
        entries[i].index = (uint32_t)i;
        for (size_t k = 0; k < 8; k++)
            entries[i].head =
                entries[i].head << 8 | (k < member->key_bytes ? (unsigned char)member->key[k] : 0u);
    }
    const sort_entry *in_order =
        status == WF_OK ? sort(object->child, entries, entries + n, n) : NULL;
    for (size_t i = 0; status == WF_OK && i < n; i++) {
        sorted[i] = in_order[i].index;
        if (i > 0 && compare_entries(object->child, &in_order[i - 1], &in_order[i]) == 0)
            status = fail_twice(p, &object->child[sorted[i]]);
    }
    wf_mem_free(p->arena->ctx, entries);
    object->sorted = sorted;
    return status;
}

/* Fails on duplicate keys. A few members are compared pairwise; more get an index. */
static wf_status check_keys(parser *p, wf_json_node *object)
{
    if (object->count > FEW_MEMBERS)
        return index_keys(p, object);
    for (size_t i = 0; i < object->count; i++) {
        const wf_json_node *a = &object->child[i];
        for (size_t k = 0; k < i; k++) {
            const wf_json_node *b = &object->child[k];
            if (compare_keys(a->key, a->key_bytes, b->key, b->key_bytes) == 0)
                return fail_twice(p, a);
        }
    }
    return WF_OK;
}

/* ---- Values ---- */

static void skip_space(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

static wf_status push(parser *p, const wf_json_node *node)
{
    if (p->used == p->room) {
        size_t room = p->room ? p->room * 2 : FIRST_NODES, bytes;
        if (!wf_mul_size(room, sizeof *node, &bytes))
            bytes = SIZE_MAX; /* refused, with a message, by wf_mem_grow */
        wf_json_node *grown = wf_mem_grow(p->arena->ctx, p->stack, bytes);
        if (!grown)
            return WF_ERR_MEMORY;
        p->stack = grown;
        p->room = room;
    }
    p->stack[p->used++] = *node;
    return WF_OK;
}

static wf_status read_value(parser *p, wf_json_node *node);

static wf_status read_item(parser *p, bool keyed)
{
    wf_json_node item = {0};
    if (keyed) {
        if (p->at == p->end || *p->at != '"')
            return fail_expected(p, "a key in quotes");
        WF_TRY(read_string(p, &item.key, &item.key_bytes));
        skip_space(p);
        if (p->at == p->end || *p->at != ':')
            return fail_expected(p, "a colon");
        p->at++;
        skip_space(p);
    }
    if (p->values++ == p->limits->values)
        return fail_values(p);
    WF_TRY(read_value(p, &item));
    return push(p, &item);
}

/* Leaves the items on the stack and p->at at the closing bracket. */
static wf_status read_items(parser *p, char close)
{
    skip_space(p);
    if (p->at < p->end && *p->at == close)
        return WF_OK;
    for (;;) {
        WF_TRY(read_item(p, close == '}'));
        skip_space(p);
        if (p->at < p->end && *p->at == close)
            return WF_OK;
        if (p->at == p->end || *p->at != ',')
            return fail_expected(p, close == '}' ? "a comma or '}'" : "a comma or ']'");
        p->at++;
        skip_space(p);
    }
}

/* p->at is at the opening bracket. Items of nested containers have already left the stack, so those
 * from `first` on are this container's own. */
static wf_status read_container(parser *p, wf_json_node *node)
{
    bool object = *p->at++ == '{';
    size_t first = p->used;
    if (p->depth == p->limits->depth)
        return fail(p, "arrays and objects are nested too deeply");
    p->depth++;
    WF_TRY(read_items(p, object ? '}' : ']'));
    p->depth--;
    node->kind = object ? WF_JSON_OBJECT : WF_JSON_ARRAY;
    node->count = p->used - first;
    p->used = first;
    if (node->count > 0) {
        node->child = wf_arena_copy(p->arena, p->stack + first, node->count * sizeof *node);
        if (!node->child)
            return WF_ERR_MEMORY;
    }
    WF_TRY(object ? check_keys(p, node) : WF_OK);
    p->at++;
    return WF_OK;
}

static wf_status read_word(parser *p, wf_json_node *node)
{
    static const struct {
        const char *word;
        wf_json_kind kind;
        bool boolean;
    } words[] = {{"null", WF_JSON_NULL, false},
                 {"true", WF_JSON_BOOL, true},
                 {"false", WF_JSON_BOOL, false}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(p->end - p->at) >= n && memcmp(p->at, words[i].word, n) == 0) {
            p->at += n;
            node->kind = words[i].kind;
            node->boolean = words[i].boolean;
            return WF_OK;
        }
    }
    return fail_expected(p, "a value");
}

/* White space before the value has been skipped. */
static wf_status read_value(parser *p, wf_json_node *node)
{
    char c = p->at < p->end ? *p->at : '\0';
    if (c == '{' || c == '[')
        return read_container(p, node);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(p, node);
    if (c != '"')
        return read_word(p, node);
    node->kind = WF_JSON_STRING;
    return read_string(p, &node->string, &node->bytes);
}

static wf_status read_text(parser *p, wf_json_node *root)
{
    if (p->end - p->at >= 3 && memcmp(p->at, "\xEF\xBB\xBF", 3) == 0)
        return fail(p, "it begins with a byte order mark; save it as UTF-8 without one");
    skip_space(p);
    WF_TRY(read_value(p, root));
    skip_space(p);
    return p->at < p->end ? fail_expected(p, "the end") : WF_OK;
}

wf_status wf_json_parse(wf_arena *arena, const char *what, const char *text, size_t bytes,
                        wf_json_node **out)
{
    static const wf_json_limits most = {WF_JSON_TREE_DEPTH, WF_JSON_TREE_VALUES};
    return wf_json_parse_with(arena, what, &most, text, bytes, out);
}

wf_status wf_json_parse_with(wf_arena *arena, const char *what, const wf_json_limits *limits,
                             const char *text, size_t bytes, wf_json_node **out)
{
    *out = NULL;
    wf_assert(limits->depth <= WF_JSON_TREE_DEPTH && limits->values <= WF_JSON_TREE_VALUES);
    if (bytes >= UINT32_MAX) /* indices of members are 32 bits wide */
        return wf_fail(arena->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has %zu bytes, but JSON is limited to 4 GiB", what,
                       bytes);
    parser p = {.arena = arena,
                .what = what,
                .text = text,
                .at = text,
                .end = text + bytes,
                .limits = limits};
    wf_json_node *root = wf_arena_alloc(arena, sizeof *root);
    p.pool = root ? wf_arena_alloc(arena, bytes) : NULL;
    wf_status status = p.pool ? read_text(&p, root) : WF_ERR_MEMORY;
    wf_mem_free(arena->ctx, p.stack);
    if (status == WF_OK)
        *out = root;
    return status;
}

/* ---- Lookup ---- */

const wf_json_node *wf_json_get_n(const wf_json_node *object, const char *key, size_t bytes)
{
    if (!object || object->kind != WF_JSON_OBJECT)
        return NULL;
    size_t low = 0, high = object->sorted ? object->count : 0;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const wf_json_node *member = &object->child[object->sorted[mid]];
        int order = compare_keys(key, bytes, member->key, member->key_bytes);
        if (order == 0)
            return member;
        *(order < 0 ? &high : &low) = order < 0 ? mid : mid + 1;
    }
    for (size_t i = 0; !object->sorted && i < object->count; i++) {
        const wf_json_node *member = &object->child[i];
        if (member->key_bytes == bytes && memcmp(member->key, key, bytes) == 0)
            return member;
    }
    return NULL;
}

const wf_json_node *wf_json_get(const wf_json_node *object, const char *key)
{
    return wf_json_get_n(object, key, strlen(key));
}

/* Returns NULL when the member is of another kind. */
static const wf_json_node *get_kind(const wf_json_node *object, const char *key, wf_json_kind kind)
{
    const wf_json_node *member = wf_json_get(object, key);
    return member && member->kind == kind ? member : NULL;
}

const char *wf_json_get_string(const wf_json_node *object, const char *key, const char *otherwise)
{
    const wf_json_node *member = get_kind(object, key, WF_JSON_STRING);
    return member ? member->string : otherwise;
}

double wf_json_get_number(const wf_json_node *object, const char *key, double otherwise)
{
    const wf_json_node *member = get_kind(object, key, WF_JSON_NUMBER);
    return member ? member->number : otherwise;
}

int64_t wf_json_get_int(const wf_json_node *object, const char *key, int64_t otherwise)
{
    const wf_json_node *member = get_kind(object, key, WF_JSON_NUMBER);
    return member && member->whole ? member->integer : otherwise;
}

bool wf_json_get_bool(const wf_json_node *object, const char *key, bool otherwise)
{
    const wf_json_node *member = get_kind(object, key, WF_JSON_BOOL);
    return member ? member->boolean : otherwise;
}

bool wf_json_is(const wf_json_node *node, const char *string)
{
    return node && node->kind == WF_JSON_STRING && strlen(string) == node->bytes &&
           memcmp(node->string, string, node->bytes) == 0;
}
