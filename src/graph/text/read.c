/* SPDX-License-Identifier: MIT */
/*
 * read.c - reads a graph from text, in the form that text_priv.h describes.
 *
 * The text is untrusted. Memory grows with the bytes read, never with a number in the text. Every
 * node passes wf_node_add, and the verifier checks the finished graph. Reading n bytes takes
 * O(n log n) time.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "graph/text/text_priv.h"

#define WORD_BYTES 64 /* longer than any name of an op or a mark */
#define SHOWN 60      /* bytes of the text that a message quotes at most */

/* A name that must be unique within its kind. */
typedef struct {
    const char *name; /* in the graph's arena */
    int kind;         /* the op of a source; WF_OP_COUNT: an output */
    int64_t line;
} used_name;

typedef struct {
    wf_ctx *ctx;
    wf_graph *g;
    const char *at, *end;        /* the rest of the line */
    const char *next, *text_end; /* the text after the line */
    int64_t line;                /* number of the line, from 1 */
    bool ended;                  /* "end" was read */
    bool counted;                /* "streams" was read */
    int *ids;                    /* [node_count]: the id of each node in the text; increasing */
    int id_cap;
    used_name *names;
    int name_count, name_cap;
    char *name; /* the last name read, escapes resolved */
    size_t name_cap_bytes;
    wf_value *in[WF_MANY]; /* operands of the node being read */
    int nin;
} reader;

/* ---- Failures ---- */

static wf_status fail(reader *r, const char *fmt, ...) WF_PRINTF(2, 3);
static wf_status fail(reader *r, const char *fmt, ...)
{
    char text[WF_MESSAGE_BYTES];
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    return wf_fail(r->ctx, WF_ERR_FORMAT, "line %lld: %s", (long long)r->line, text);
}

/* Adds the line number to the message of a builder that failed. */
static wf_status fail_as_built(reader *r)
{
    if (r->ctx->status == WF_ERR_MEMORY)
        return WF_ERR_MEMORY;
    return wf_fail(r->ctx, WF_ERR_FORMAT, "line %lld: %s", (long long)r->line, r->ctx->message);
}

/* Fails with "expected WANTED, found 'rest of the line'". */
static wf_status fail_wanted(reader *r, const char *wanted)
{
    size_t n = (size_t)(r->end - r->at);
    if (n == 0)
        return fail(r, "expected %s, found the end of the line", wanted);
    return fail(r, "expected %s, found '%.*s'", wanted, (int)(n < SHOWN ? n : SHOWN), r->at);
}

/* ---- Tokens ---- */

/* Moves to the next line that is neither blank nor a comment. *more is false at the end. */
static wf_status next_line(reader *r, bool *more)
{
    for (*more = false; !*more && r->next < r->text_end;) {
        size_t left = (size_t)(r->text_end - r->next);
        const char *newline = memchr(r->next, '\n', left);
        r->at = r->next;
        r->end = newline ? newline : r->text_end;
        r->next = newline ? newline + 1 : r->text_end;
        r->line++;
        if (r->end - r->at > WF_TEXT_LINE)
            return fail(r, "the line is longer than %d bytes", WF_TEXT_LINE);
        for (const char *s = r->at; s < r->end; s++)
            if (*s < ' ' || *s > '~')
                return fail(r, "byte 0x%02x is not printable ASCII", (unsigned)(unsigned char)*s);
        while (r->at < r->end && *r->at == ' ')
            r->at++;
        *more = r->at < r->end && *r->at != '#';
    }
    return WF_OK;
}

static void skip_space(reader *r)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
}

/* Consumes `text` if it comes next, after spaces; returns whether it does. */
static bool take(reader *r, const char *text)
{
    size_t n = strlen(text);
    skip_space(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

static wf_status expect(reader *r, const char *text)
{
    char wanted[16];
    if (take(r, text))
        return WF_OK;
    snprintf(wanted, sizeof wanted, "'%s'", text);
    return fail_wanted(r, wanted);
}

static wf_status expect_end(reader *r)
{
    skip_space(r);
    return r->at == r->end ? WF_OK : fail_wanted(r, "the end of the line");
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Reads letters, digits and '_'. `what` names the word in the message. */
static wf_status take_word(reader *r, const char *what, char word[WORD_BYTES])
{
    size_t n = 0;
    skip_space(r);
    while (r->at + n < r->end && in_word(r->at[n]))
        n++;
    if (n == 0 || n >= WORD_BYTES)
        return fail_wanted(r, what);
    memcpy(word, r->at, n);
    word[n] = '\0';
    r->at += n;
    return WF_OK;
}

/* Reads a decimal number from 0 to `most`. `what` names it in the message. */
static wf_status take_number(reader *r, const char *what, int64_t most, int64_t *out)
{
    const char *start = r->at;
    *out = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (!wf_mul_i64(*out, 10, out) || !wf_add_i64(*out, *r->at - '0', out) || *out > most)
            return fail(r, "%s is larger than %lld", what, (long long)most);
    return r->at > start ? WF_OK : fail_wanted(r, what);
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Reads one byte of a name and resolves its escape. */
static wf_status take_name_byte(reader *r, char *out)
{
    *out = *r->at++;
    if (*out != '\\')
        return WF_OK;
    char escape = r->at < r->end ? *r->at++ : '\0';
    *out = escape;
    if (escape == '"' || escape == '\\')
        return WF_OK;
    int high = escape == 'x' && r->end - r->at >= 2 ? hex_digit(r->at[0]) : -1;
    int low = high >= 0 ? hex_digit(r->at[1]) : -1;
    if (low < 0)
        return fail(r, "invalid escape in a name; use \\\\, \\\" or \\x and two digits 0-9a-f");
    if (high + low == 0)
        return fail(r, "a name cannot contain the byte 0");
    r->at += 2;
    *out = (char)(high * 16 + low);
    return WF_OK;
}

/* Reads a quoted name into r->name. */
static wf_status take_name(reader *r)
{
    WF_TRY(expect(r, "\""));
    size_t most = (size_t)(r->end - r->at) + 1, n = 0;
    if (most > r->name_cap_bytes) {
        char *grown = wf_mem_grow(r->ctx, r->name, most * 2);
        if (!grown)
            return WF_ERR_MEMORY;
        r->name = grown;
        r->name_cap_bytes = most * 2;
    }
    while (r->at < r->end && *r->at != '"')
        WF_TRY(take_name_byte(r, &r->name[n++]));
    r->name[n] = '\0';
    if (r->at == r->end)
        return fail(r, "the name has no closing quote");
    r->at++;
    return n > 0 ? WF_OK : fail(r, "the name is empty");
}

/* ---- Ids and names ---- */

/* Returns the node that the text calls %id, or NULL. Binary search: ids increase but need not be
 * dense, so an array indexed by id could be huge. */
static wf_node *find_node(const reader *r, int64_t id)
{
    int low = 0, high = r->g->node_count; /* ids before low are less, from high on greater */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (r->ids[middle] == id)
            return r->g->nodes[middle];
        if (r->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Makes room for one more element. On failure the array stays as it was. */
static wf_status make_room(reader *r, void **array, int count, int *cap, size_t size)
{
    if (count < *cap)
        return WF_OK;
    int wanted = *cap ? 2 * *cap : 64;
    void *grown = wf_mem_grow(r->ctx, *array, (size_t)wanted * size);
    if (!grown)
        return WF_ERR_MEMORY;
    *array = grown;
    *cap = wanted;
    return WF_OK;
}

/* Duplicates are found at the end: a search per name would take quadratic time. */
static wf_status note_name(reader *r, const char *name, int kind)
{
    void *names = r->names; /* wf_mem_grow takes a void pointer */
    wf_status status = make_room(r, &names, r->name_count, &r->name_cap, sizeof *r->names);
    r->names = names;
    if (status == WF_OK)
        r->names[r->name_count++] = (used_name){name, kind, r->line};
    return status;
}

static int compare_names(const void *left, const void *right)
{
    const used_name *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    int order = strcmp(a->name, b->name);
    return order ? order : a->line < b->line ? -1 : 1;
}

/* Finds duplicates by sorting: hostile names could make a hash table slow. */
static wf_status check_names(reader *r)
{
    if (r->name_count > 0)
        qsort(r->names, (size_t)r->name_count, sizeof *r->names, compare_names);
    for (int i = 1; i < r->name_count; i++) {
        const used_name *a = &r->names[i - 1], *b = &r->names[i];
        if (a->kind != b->kind || strcmp(a->name, b->name) != 0)
            continue;
        r->line = b->line; /* report the second one */
        return fail(r, "this %s has the same name as the one in line %lld",
                    a->kind == WF_OP_COUNT ? "output" : wf_op_get((wf_op)a->kind)->name,
                    (long long)a->line);
    }
    return WF_OK;
}

/* ---- Values ---- */

/* %ID or %ID.K */
static wf_status take_value(reader *r, wf_value **out)
{
    int64_t id, index = 0;
    WF_TRY(expect(r, "%"));
    WF_TRY(take_number(r, "the id of a value", INT32_MAX - 1, &id));
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        WF_TRY(take_number(r, "the index of a result", WF_MAX_OUT, &index));
    }
    wf_node *n = find_node(r, id);
    if (!n)
        return fail(r, "value %%%lld is not defined", (long long)id);
    if (index >= n->nout)
        return fail(r, "%%%lld (%s) has %d result%s; %%%lld.%lld is not defined", (long long)id,
                    wf_node_def(n)->name, n->nout, WF_PLURAL(n->nout), (long long)id,
                    (long long)index);
    *out = &n->out[index];
    return WF_OK;
}

/* Reads operands after '(', including the ')'. */
static wf_status take_operands(reader *r)
{
    r->nin = 0;
    if (take(r, ")"))
        return WF_OK;
    do {
        if (r->nin == WF_MANY)
            return fail(r, "the node has more than %d operands", WF_MANY);
        WF_TRY(take_value(r, &r->in[r->nin]));
        r->nin++;
    } while (take(r, ","));
    return expect(r, ")");
}

/* Copies the attributes: the text up to "->" or the end of the line. */
static wf_status take_attrs(reader *r, char text[WF_TEXT_ATTRS])
{
    skip_space(r);
    /* "->" ends the attributes; a lone '-' is a minus sign. */
    const char *stop = r->at;
    while (stop < r->end && !(stop[0] == '-' && r->end - stop > 1 && stop[1] == '>'))
        stop++;
    size_t n = (size_t)(stop - r->at);
    if (n >= WF_TEXT_ATTRS)
        return fail(r, "the attributes are longer than %d bytes", WF_TEXT_ATTRS - 1);
    memcpy(text, r->at, n);
    text[n] = '\0';
    r->at = stop;
    return WF_OK;
}

/* ---- Results ---- */

/* Reads type, shape and marks of v. Type and shape must match what the shape rule derived: both are
 * compared as text, so one spelling is valid. */
static wf_status take_result(reader *r, wf_value *v)
{
    char text[256];
    size_t len = 0, n = 0;
    wf_value_print(v, text, sizeof text, &len);
    skip_space(r);
    /* A comma inside brackets belongs to the shape. */
    while (r->at + n < r->end && r->at[n] != ' ' && !(r->at[n] == ',' && n && r->at[n - 1] == ']'))
        n++;
    if (n != len || memcmp(r->at, text, n) != 0)
        return fail(r, "result %d of %s is %s, not '%.*s'", v->index, wf_node_def(v->node)->name,
                    text, (int)(n < SHOWN ? n : SHOWN), r->at);
    r->at += n;
    for (skip_space(r); r->at < r->end && *r->at != ','; skip_space(r)) {
        char word[WORD_BYTES];
        const wf_mark_name *m = wf_mark_names;
        WF_TRY(take_word(r, "a mark", word));
        while (m->name && strcmp(m->name, word) != 0)
            m++;
        if (!m->name)
            return fail(r, "unknown mark '%s'", word);
        v->marks |= m->bit;
    }
    return WF_OK;
}

/* [-> results] up to the end of the line */
static wf_status take_results(reader *r, wf_node *n)
{
    if (!take(r, "->"))
        return expect_end(r);
    for (int i = 0; i < n->nout; i++) {
        if (i && !take(r, ","))
            return fail(r, "%s has %d results, not %d", wf_node_def(n)->name, n->nout, i);
        WF_TRY(take_result(r, &n->out[i]));
    }
    skip_space(r);
    if (r->at < r->end)
        return fail(r, "%s has only %d result%s", wf_node_def(n)->name, n->nout,
                    WF_PLURAL(n->nout));
    return WF_OK;
}

/* ---- Statements ---- */

static wf_status add_source(reader *r, wf_op op, const char *attrs, wf_value **out)
{
    wf_attr_source a = {0};
    wf_assert(wf_op_get(op)->attr_bytes == sizeof a); /* all sources share wf_attr_source */
    if (wf_attr_parse(r->ctx, wf_op_get(op), attrs, &a) != WF_OK)
        return fail_as_built(r);
    /* r->name is copied into the graph's arena. Names are checked for duplicates at the end. */
    *out = wf_node_add(r->g, op, &a, r->name, NULL, 0);
    if (!*out)
        return fail_as_built(r);
    return note_name(r, (*out)->node->name, (int)op);
}

/* Reads the id of the next node and makes room for it in r->ids. */
static wf_status take_id(reader *r, int *out)
{
    const wf_graph *g = r->g;
    int64_t id;
    WF_TRY(take_number(r, "the id of a value", INT32_MAX - 1, &id));
    if (g->node_count > 0 && id <= r->ids[g->node_count - 1])
        return fail(r, "%%%lld comes after %%%d; ids must increase", (long long)id,
                    r->ids[g->node_count - 1]);
    if (g->node_count == WF_TEXT_NODES)
        return fail(r, "the graph has more than %d nodes", WF_TEXT_NODES);
    *out = (int)id;
    /* The id is stored after the node was added: read_node relies on this room. */
    void *ids = r->ids;
    wf_status status = make_room(r, &ids, g->node_count, &r->id_cap, sizeof *r->ids);
    r->ids = ids;
    return status;
}

/* op(operands) attributes, or source("name") attributes */
static wf_status take_call(reader *r, const char *name, wf_value **out)
{
    char attrs[WF_TEXT_ATTRS];
    int op = wf_op_find(name);
    WF_TRY(expect(r, "("));
    if (op >= 0 && wf_op_get((wf_op)op)->flags & WF_FLAG_SOURCE) {
        WF_TRY(take_name(r));
        WF_TRY(expect(r, ")"));
        WF_TRY(take_attrs(r, attrs));
        return add_source(r, (wf_op)op, attrs, out);
    }
    WF_TRY(take_operands(r));
    WF_TRY(take_attrs(r, attrs));
    /* wf_op_add reports an unknown op with the nearest name. */
    *out = wf_op_add(r->g, name, attrs, r->in, r->nin);
    return *out ? WF_OK : fail_as_built(r);
}

/* %ID = [backward] call [-> results] */
static wf_status read_node(reader *r)
{
    char word[WORD_BYTES];
    wf_value *v;
    int id = 0;
    WF_TRY(take_id(r, &id));
    WF_TRY(expect(r, "="));
    WF_TRY(take_word(r, "the name of an op", word));
    r->g->backward = strcmp(word, "backward") == 0; /* new nodes take the flag from the graph */
    if (r->g->backward)
        WF_TRY(take_word(r, "the name of an op", word));
    WF_TRY(take_call(r, word, &v));
    r->ids[r->g->node_count - 1] = id; /* the shape rule accepted it, so it is the last node */
    return take_results(r, v->node);
}

/* output "NAME" = %ID */
static wf_status read_output(reader *r)
{
    wf_graph *g = r->g;
    wf_value *value;
    WF_TRY(take_name(r));
    WF_TRY(expect(r, "="));
    WF_TRY(take_value(r, &value));
    WF_TRY(expect_end(r));
    /* wf_output would insert a copy; the text of a valid graph already contains it. */
    if (wf_node_is(value->node, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE))
        return fail(r, "the output has no storage of its own; add a copy of this %s",
                    wf_node_def(value->node)->name);
    void *outputs = g->outputs;
    wf_status status = make_room(r, &outputs, g->output_count, &g->output_cap, sizeof *g->outputs);
    g->outputs = outputs;
    WF_TRY(status);
    char *name = wf_arena_strdup(&g->arena, r->name);
    if (!name)
        return WF_ERR_MEMORY;
    g->outputs[g->output_count++] = (wf_named){name, value};
    return note_name(r, name, WF_OP_COUNT);
}

/* streams N: the number of random streams that the graph has assigned */
static wf_status read_streams(reader *r)
{
    if (r->counted || r->g->node_count > 0)
        return fail(r, "'streams' must appear once, before the first node");
    r->counted = true;
    skip_space(r);
    WF_TRY(take_number(r, "the number of streams", INT64_MAX / 2, &r->g->streams));
    return expect_end(r);
}

static wf_status read_header(reader *r)
{
    bool more;
    int64_t version;
    WF_TRY(next_line(r, &more));
    if (!more || r->line != 1 || !take(r, "weft-graph ")) {
        r->line = 1;
        return fail(r, "expected 'weft-graph %d' in the first line", WF_TEXT_VERSION);
    }
    WF_TRY(take_number(r, "the version of the text", INT32_MAX, &version));
    if (version != WF_TEXT_VERSION)
        return fail(r, "the text has version %lld; this library reads version %d",
                    (long long)version, WF_TEXT_VERSION);
    return expect_end(r);
}

static wf_status read_statement(reader *r)
{
    char word[WORD_BYTES];
    if (r->ended)
        return fail_wanted(r, "nothing after 'end'");
    if (take(r, "%"))
        return read_node(r);
    WF_TRY(take_word(r, "a node, 'output' or 'end'", word));
    if (strcmp(word, "output") == 0)
        return read_output(r);
    if (strcmp(word, "streams") == 0)
        return read_streams(r);
    if (strcmp(word, "end") != 0)
        return fail(r, "unknown statement '%s'", word);
    r->ended = true;
    return expect_end(r);
}

static wf_status read_graph(reader *r)
{
    bool more;
    WF_TRY(read_header(r));
    WF_TRY(next_line(r, &more));
    while (more) {
        WF_TRY(read_statement(r));
        WF_TRY(next_line(r, &more));
    }
    if (!r->ended)
        return fail(r, "the text ends without 'end'");
    r->g->backward = false; /* builders that continue the graph add forward nodes */
    WF_TRY(check_names(r));
    return wf_graph_verify(r->g);
}

/* `text` need not be NUL-terminated. *out is NULL after a failure. */
wf_status wf_graph_parse(wf_ctx *ctx, const char *text, size_t bytes, wf_graph **out)
{
    *out = NULL;
    /* On the heap: the operands alone take WF_MANY pointers. */
    reader *r = wf_mem_new(ctx, sizeof *r);
    if (!r)
        return WF_ERR_MEMORY;
    r->ctx = ctx;
    r->next = text;
    r->text_end = text ? text + bytes : NULL;
    wf_status status = wf_graph_new(ctx, &r->g);
    if (status == WF_OK)
        status = read_graph(r);
    if (status == WF_OK)
        *out = r->g;
    else
        wf_graph_free(r->g);
    wf_mem_free(ctx, r->ids);
    wf_mem_free(ctx, r->names);
    wf_mem_free(ctx, r->name);
    wf_mem_free(ctx, r);
    return status;
}
