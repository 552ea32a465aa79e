/* SPDX-License-Identifier: MIT */
/*
 * test_graph_text.c - graphs as text: any graph survives writing and reading, and mutated texts do
 * no harm. Also draws graphs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "selftest/case.h"
#include "support.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define HEAD "weft-graph 1\n"
#define X "%0 = input(\"x\") type=f32 dims=[2]\n"

/* ---- Comparing graphs field by field ---- */

static bool same_value(const wf_value *a, const wf_value *b)
{
    int state_a = a->state ? a->state->id : -1, state_b = b->state ? b->state->id : -1;
    return a->node->id == b->node->id && a->index == b->index && a->type == b->type &&
           wf_dims_equal(&a->shape, &b->shape) && a->marks == b->marks && state_a == state_b &&
           a->version == b->version;
}

/* Compares bits, except for NaN, whose payload has no text form. */
static bool same_attr(const wf_attr_field *f, const void *a, const void *b)
{
    const char *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;
    switch (f->kind) {
    case WF_ATTR_TYPE:
        return *(const wf_type *)(const void *)x == *(const wf_type *)(const void *)y;
    case WF_ATTR_DIMS:
    case WF_ATTR_SHAPE: return memcmp(x, y, sizeof(wf_dims)) == 0;
    case WF_ATTR_REAL:
        if (isnan(*(const double *)(const void *)x))
            return isnan(*(const double *)(const void *)y);
        return memcmp(x, y, sizeof(double)) == 0;
    default: return memcmp(x, y, sizeof(int64_t)) == 0;
    }
}

static bool same_node(const wf_node *a, const wf_node *b)
{
    if (a->op != b->op || a->id != b->id || a->nin != b->nin || a->nout != b->nout ||
        a->backward != b->backward || (a->attr != NULL) != (b->attr != NULL) ||
        strcmp(a->name ? a->name : "", b->name ? b->name : "") != 0)
        return false;
    for (int i = 0; i < a->nin; i++)
        if (!same_value(a->in[i], b->in[i]))
            return false;
    for (int i = 0; i < a->nout; i++)
        if (!same_value(&a->out[i], &b->out[i]))
            return false;
    for (const wf_attr_field *f = wf_node_def(a)->fields; f->name; f++)
        if (!same_attr(f, a->attr, b->attr))
            return false;
    return true;
}

static bool same_graph(const wf_graph *a, const wf_graph *b)
{
    if (a->node_count != b->node_count || a->output_count != b->output_count ||
        a->streams != b->streams || a->backward != b->backward)
        return false;
    for (int i = 0; i < a->node_count; i++)
        if (!same_node(a->nodes[i], b->nodes[i]))
            return false;
    for (int i = 0; i < a->output_count; i++)
        if (strcmp(a->outputs[i].name, b->outputs[i].name) != 0 ||
            !same_value(a->outputs[i].value, b->outputs[i].value))
            return false;
    return true;
}

/* ---- Round trips ---- */

static char *text_of(const wf_graph *g)
{
    char *text;
    size_t bytes;
    wt_ok(g->ctx, wf_graph_text(g, &text, &bytes));
    assert_int_equal(bytes, strlen(text));
    return text;
}

static wf_graph *parse(wf_ctx *ctx, const char *text)
{
    wf_graph *g;
    wt_ok(ctx, wf_graph_parse(ctx, text, strlen(text), &g));
    return g;
}

/* Expects a graph to be equal after writing and reading, and its text to be the same. */
static void round_trip(wf_ctx *ctx, const wf_graph *g)
{
    char *text = text_of(g);
    wf_graph *again = parse(ctx, text);
    char *second = text_of(again);
    assert_string_equal(text, second);
    if (!same_graph(g, again))
        fail_msg("the graph that was read is another:\n%s", text);
    wf_graph_free(again);
    wf_text_free(ctx, text);
    wf_text_free(ctx, second);
}

/* Round-trips every op, type and variant of the selftest; with views, long chains of them. */
static void test_every_op(void **state)
{
    wf_ctx *ctx = *state;
    bool seen[WF_OP_COUNT] = {false};
    wf_case_row rows[16];
    const bool all = wt_cases(4) == 4; /* else a quarter, and the first case of each op */
    uint64_t number = wt_seed();
    for (int op = 0; op < WF_OP_COUNT; op++) {
        int n = wf_case_rows((wf_op)op, rows, (int)COUNT(rows));
        assert_true(n <= (int)COUNT(rows));
        for (int i = 0; i < n * 2; i++)
            for (int variant = 0; variant < rows[i / 2].variants; variant++)
                for (int type = 1; type < WF_TYPE_COUNT; type++) {
                    wf_case *c;
                    if (!(rows[i / 2].types & wf_type_bit((wf_type)type)) ||
                        (!all && seen[op] && number++ % 4 != 0))
                        continue;
                    wt_ok(ctx, wf_case_new(ctx, &rows[i / 2], variant, (wf_type)type, 1,
                                           i % 2 ? 2 : 0, &c));
                    if (wf_case_status(c) == WF_OK) {
                        round_trip(ctx, c->g);
                        for (int k = 0; k < c->g->node_count; k++)
                            seen[c->g->nodes[k]->op] = true;
                    }
                    wf_case_free(c);
                }
    }
    for (int op = 0; op < WF_OP_COUNT; op++)
        if (!seen[op])
            fail_msg("no graph had the op %s", wf_op_get((wf_op)op)->name);
}

/* Builds the transformer's training step, with a mark of every kind. */
static wf_graph *trained(wf_ctx *ctx)
{
    wt_model m;
    wf_graph *g = wt_graph(ctx);
    wt_forward(g, &wt_tiny, &m);
    wt_train(g, &m);
    wf_block(g, m.logits);
    wf_recompute(g, m.logits);
    wf_recompute(g, m.losses);
    wt_ok(ctx, wf_graph_verify(g));
    return g;
}

/* A whole training step survives a round trip, with marks, backward nodes and streams. */
static void test_transformer(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = trained(ctx);
    char *text = text_of(g);
    round_trip(ctx, g);
    assert_non_null(strstr(text, " block recompute\n"));
    assert_non_null(strstr(text, " = backward "));
    assert_non_null(strstr(text, "\nstreams 2\n"));
    wf_text_free(ctx, text);
    wf_graph_free(g);
}

/* An empty graph, states and inputs of every type, and a scalar -0. */
static void test_small_graphs(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    char *text = text_of(g);
    assert_string_equal(text, "weft-graph 1\nstreams 0\nend\n");
    wf_text_free(ctx, text);
    round_trip(ctx, g);
    for (int type = 1; type < WF_TYPE_COUNT; type++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", type);
        wf_value *s = wf_state(g, name, (wf_type)type, 2, (int64_t[]){0, 256});
        wf_input(g, name, (wf_type)type, 6, (int64_t[]){1, 2, 1, 0, 1, 256});
        wf_output(g, name, s); /* inserts a copy, which must not be copied again */
    }
    wf_output(g, "scalar", wf_fill(g, WF_F32, 0, NULL, -0.0));
    round_trip(ctx, g);
    wf_graph_free(g);
}

/* Checks the text form, including a second output (top_k). */
static void test_the_form(void **state)
{
    static const char wanted[] = "weft-graph 1\n"
                                 "streams 1\n"
                                 "%0 = input(\"x\") type=f32 dims=[2,3] -> f32[2,3]\n"
                                 "%1 = state(\"w\") type=f32 dims=[4,3] -> f32[4,3]\n"
                                 "%2 = linear(%0, %1) -> f32[2,4] block\n"
                                 "%3 = top_k(%2) k=2 -> f32[2,2], i32[2,2]\n"
                                 "%4 = input(\"key\") type=i32 dims=[3] -> i32[3]\n"
                                 "%5 = dropout(%2, %4) p=0.1 stream=0 -> f32[2,4]\n"
                                 "%6 = copy(%0) -> f32[2,3]\n"
                                 "output \"best\" = %3.1\n"
                                 "output \"y\" = %5\n"
                                 "output \"x\" = %6\n"
                                 "end\n";
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){2, 3});
    wf_value *w = wf_state(g, "w", WF_F32, 2, (int64_t[]){4, 3});
    wf_value *y = wf_block(g, wf_linear(g, x, w, NULL));
    wf_output(g, "best", wf_value_output(wf_top_k(g, y, 2), 1));
    wf_output(g, "y", wf_dropout(g, y, wf_input(g, "key", WF_I32, 1, (int64_t[]){3}), 0.1));
    wf_output(g, "x", x);
    char *text = text_of(g);
    assert_string_equal(text, wanted);
    wf_text_free(ctx, text);
    round_trip(ctx, g);
    wf_graph_free(g);
}

/* Parses handwritten text: defaults, omitted types, gaps between ids, spaces, comments, the next
 * stream. */
static void test_by_hand(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = parse(ctx, "weft-graph 1\n"
                             "\n"
                             "# a comment with %7 = and \"\n"
                             "  %3=input( \"a\" )dims=[2] type=f32\n"
                             "%10 = input(\"key\") type=i32 dims=[3]\n"
                             "   # another\n"
                             "%11 = dropout ( %3 , %10 )  ->f32[2]  block \n"
                             "%2000000000 = dropout(%11.0, %10) p=0.5\n"
                             "output \"y\"=%2000000000\n"
                             "end");
    char *text = text_of(g);
    assert_string_equal(text, "weft-graph 1\n"
                              "streams 2\n"
                              "%0 = input(\"a\") type=f32 dims=[2] -> f32[2]\n"
                              "%1 = input(\"key\") type=i32 dims=[3] -> i32[3]\n"
                              "%2 = dropout(%0, %1) p=0 stream=0 -> f32[2] block\n"
                              "%3 = dropout(%2, %1) p=0.5 stream=1 -> f32[2]\n"
                              "output \"y\" = %3\n"
                              "end\n");
    wf_text_free(ctx, text);
    wf_graph_free(g);
}

/* Any bytes in a name survive, and the text stays printable ASCII. */
static void test_names(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const names[] = {
        "\"",
        "\\",
        "\\x41",
        "a\nb",
        "\t",
        " ",
        "%0",
        "=",
        ")",
        "# no comment",
        "-> f32[2]",
        "Gr\xc3\xb6\xc3\x9f"
        "e",
        "\x7f",
        "\xff",
        "end",
        "\r\n",
        "&amp;",
        "''",
    };
    char all[256], *text;
    wf_graph *g = wt_graph(ctx);
    for (int i = 0; i < 255; i++)
        all[i] = (char)(i + 1);
    all[255] = '\0';
    for (size_t i = 0; i <= COUNT(names); i++) {
        const char *name = i < COUNT(names) ? names[i] : all;
        wf_value *x = wf_input(g, name, WF_F32, 0, NULL);
        wf_state(g, name, WF_F32, 0, NULL);
        wf_output(g, name, wf_unary(g, "exp", x));
    }
    round_trip(ctx, g);
    text = text_of(g);
    for (const char *s = text; *s; s++)
        assert_true(*s == '\n' || (*s >= ' ' && *s <= '~'));
    wf_text_free(ctx, text);
    wt_ok(ctx, wf_graph_dot(g, &text, NULL));
    for (const char *s = text; *s; s++)
        assert_true(*s == '\n' || (*s >= ' ' && *s <= '~'));
    wf_text_free(ctx, text);
    wf_graph_free(g);

    /* The writer refuses a name that is too long for a line, because the reader would. */
    char *longest = calloc(1, (1 << 20) + 1);
    assert_non_null(longest);
    memset(longest, 'n', 1 << 20);
    g = wt_graph(ctx);
    wf_input(g, longest, WF_F32, 0, NULL);
    wt_fails(ctx, wf_graph_text(g, &text, NULL), WF_ERR_USAGE, "the line of node 0 exceeds");
    assert_null(text);
    wf_graph_free(g);
    g = wt_graph(ctx);
    longest[(1 << 20) - 100] = '\0';
    wf_input(g, longest, WF_F32, 0, NULL);
    round_trip(ctx, g);
    wf_graph_free(g);
    free(longest);
}

/* Any double survives as an attribute, with the same bits. */
static void test_numbers(void **state)
{
    wf_ctx *ctx = *state;
    static const double known[] = {0.1,     -0.0, 1e-320, 5e-324,   1.7976931348623157e308,
                                   1.0 / 3, 1e21, NAN,    INFINITY, -INFINITY};
    wf_graph *g = wt_graph(ctx);
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    for (size_t i = 0; i < COUNT(known); i++)
        wf_fill(g, WF_F32, 0, NULL, known[i]);
    for (int i = 0; i < 2000; i++) {
        uint64_t bits = wf_rng_u64(&rng);
        double value;
        memcpy(&value, &bits, sizeof value);
        wf_fill(g, WF_F32, 0, NULL, value);
    }
    wf_value *x = wf_fill(g, WF_F32, 1, (int64_t[]){4}, 0);
    wf_value *t = wf_fill(g, WF_I32, 0, NULL, 1);
    wf_cross_entropy(g, x, t, &(wf_cross_entropy_options){.ignore_index = WF_IGNORE_ZERO});
    wf_cross_entropy(g, x, t, &(wf_cross_entropy_options){.ignore_index = INT64_MAX});
    round_trip(ctx, g);
    wf_graph_free(g);
}

/* Writing a graph that failed to build returns its own error. */
static void test_failed_graph(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    char *text;
    wf_unary(g, "nope", wf_fill(g, WF_F32, 0, NULL, 1));
    wt_fails(ctx, wf_graph_text(g, &text, NULL), WF_ERR_USAGE, "unknown op 'nope'");
    assert_null(text);
    wt_fails(ctx, wf_graph_dot(g, &text, NULL), WF_ERR_USAGE, "unknown op 'nope'");
    assert_null(text);
    wf_text_free(ctx, NULL);
    wf_graph_free(g);
}

/* ---- Mutations ---- */

static const char *const pieces[] = {
    "%0",
    "%1",
    "%2",
    "%3.1",
    "%2147483646",
    "-1",
    "0",
    "1",
    "3",
    "7",
    "4096",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "1e308",
    "-inf",
    "nan",
    "-> ",
    " -> f32[2]",
    "(",
    ")",
    "[",
    "]",
    "[]",
    "[0]",
    "[1,2,3,4,5,6]",
    "\"",
    "\\",
    "\\x00",
    "\\xff",
    "backward ",
    "block",
    "end\n",
    "\n",
    "=",
    ", ",
    " ",
    "output \"q\" = %2\n",
    "f16",
    "bf16",
    "u8",
    "i32",
    "q4_K",
    "axis=",
    "dims=",
    "type=",
    "axes=",
    "k=",
    "\xff",
    "#",
    "streams 1\n",
};

typedef struct {
    wf_rng rng;
    char text[1 << 17];
    size_t len;
} mutant;

static size_t below(mutant *m, size_t n)
{
    return n ? (size_t)wf_rng_below(&m->rng, n) : 0;
}

/* Replaces bytes [from, to) with n others. */
static void replace(mutant *m, size_t from, size_t to, const char *with, size_t n)
{
    if (m->len - (to - from) + n > sizeof m->text)
        return;
    char *copy = malloc(n + 1); /* `with` may point into the text */
    assert_non_null(copy);
    if (n)
        memcpy(copy, with, n);
    memmove(m->text + from + n, m->text + to, m->len - to);
    if (n)
        memcpy(m->text + from, copy, n);
    m->len += n - (to - from);
    free(copy);
}

static size_t line_start(const mutant *m, size_t at)
{
    while (at > 0 && m->text[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const mutant *m, size_t at)
{
    while (at < m->len && m->text[at] != '\n')
        at++;
    return at < m->len ? at + 1 : at;
}

/* Picks a run of digits or letters at or after a random place. */
static void pick_word(mutant *m, size_t *from, size_t *to)
{
    static const char chars[] = "abcdefghijklmnopqrstuvwxyzKQ_0123456789";
    *from = below(m, m->len);
    while (*from < m->len && !strchr(chars, m->text[*from]))
        ++*from;
    *to = *from;
    while (*to < m->len && m->text[*to] && strchr(chars, m->text[*to]))
        ++*to;
}

/* Applies one random change to the text; `other` is a text to splice in. */
static void mutate(mutant *m, const char *other, size_t other_len)
{
    size_t a = below(m, m->len), b, n;
    const char *piece = pieces[below(m, COUNT(pieces))];
    switch (below(m, 10)) {
    case 0: replace(m, a, a + (a < m->len), &(char){(char)below(m, 256)}, 1); break;
    case 1: replace(m, a, a + below(m, m->len - a < 8 ? m->len - a : 8), "", 0); break;
    case 2: replace(m, a, a, piece, strlen(piece)); break;
    case 3: /* replaces a word: most of these reach the rules of ops */
    case 4:
        pick_word(m, &a, &b);
        replace(m, a, b, piece, strlen(piece));
        break;
    case 5:
        pick_word(m, &a, &b);
        piece = wf_op_get((wf_op)below(m, WF_OP_COUNT))->name;
        replace(m, a, b, piece, strlen(piece));
        break;
    case 6: replace(m, line_start(m, a), line_end(m, a), "", 0); break;
    case 7: /* repeats a line elsewhere */
        n = line_start(m, below(m, m->len));
        a = line_start(m, a);
        replace(m, a, a, m->text + n, line_end(m, n) - n);
        break;
    case 8:
        if (below(m, 4) == 0)
            m->len = a;
        break;
    default: /* takes the rest from another text */
        n = below(m, other_len);
        replace(m, line_start(m, a), m->len, other + n, other_len - n);
        break;
    }
}

/* Returns whether the text was accepted. An accepted graph must verify and survive a round trip. */
static bool try_text(wf_ctx *ctx, const char *text, size_t len)
{
    wf_graph *g;
    char *copy = malloc(len + 1); /* exact size, so that a sanitizer detects an overrun */
    assert_non_null(copy);
    memcpy(copy, text, len);
    uint64_t blocks = wt_live_blocks(ctx);
    wf_ctx_clear(ctx);
    wf_status status = wf_graph_parse(ctx, copy, len, &g);
    free(copy);
    if (status == WF_OK) {
        wt_ok(ctx, wf_graph_verify(g));
        round_trip(ctx, g);
        wf_graph_free(g);
    } else {
        assert_null(g);
        assert_true(status == WF_ERR_FORMAT || status == WF_ERR_GRAPH);
        if (status == WF_ERR_FORMAT)
            assert_int_equal(strncmp(wf_ctx_message(ctx), "line ", 5), 0);
    }
    assert_int_equal(wt_live_blocks(ctx), blocks);
    return status == WF_OK;
}

/* Collects texts to mutate: one per op, and the transformer's. */
static int seeds(wf_ctx *ctx, char **text)
{
    int n = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        wf_case_row rows[16];
        wf_case *c;
        if (wf_case_rows((wf_op)op, rows, (int)COUNT(rows)) == 0)
            continue;
        wt_ok(ctx, wf_case_new(ctx, &rows[0], 0,
                               rows[0].types & wf_type_bit(WF_F32) ? WF_F32 : WF_I32, 1, 1, &c));
        if (wf_case_status(c) == WF_OK)
            text[n++] = text_of(c->g);
        wf_case_free(c);
    }
    wf_graph *g = trained(ctx);
    text[n++] = text_of(g);
    wf_graph_free(g);
    return n;
}

/* Parses 20000 random mutants. Some must be accepted, or the mutations are too crude. */
static void test_mutations(void **state)
{
    wf_ctx *ctx = *state;
    enum { ROUNDS = 20000 };
    char *text[WF_OP_COUNT + 1];
    int n = seeds(ctx, text), accepted = 0;
    assert_true(n > WF_OP_COUNT / 2);
    mutant *m = calloc(1, sizeof *m);
    assert_non_null(m);
    uint64_t seed = wt_seed();
    for (int round = 0; round < ROUNDS; round++) {
        wf_rng_init(&m->rng, seed, (uint64_t)round);
        /* The transformer's text is long, so it is used rarely. */
        int which = (int)below(m, (size_t)(round % 100 ? n - 1 : n));
        const char *other = text[below(m, (size_t)n)];
        m->len = strlen(text[which]);
        memcpy(m->text, text[which], m->len);
        for (size_t k = 1 + below(m, 4); k > 0; k--)
            mutate(m, other, strlen(other));
        accepted += try_text(ctx, m->text, m->len);
    }
    print_message("%d of %d mutants were graphs\n", accepted, (int)ROUNDS);
    assert_true(accepted > ROUNDS / 50);
    for (int i = 0; i < n; i++)
        wf_text_free(ctx, text[i]);
    free(m);
}

/* Parses every prefix of a text: only the whole text, with or without its last newline, is a
 * graph. */
static void test_truncations(void **state)
{
    wf_ctx *ctx = *state;
    static const char text[] = HEAD "streams 1\n" X "%1 = state(\"\\xff\") type=f32 dims=[2]\n"
                                    "%2 = backward add(%0, %1) -> f32[2] block\n"
                                    "%3 = top_k(%2) k=1 -> f32[1], i32[1]\n"
                                    "output \"y\" = %3.1\nend\n";
    for (size_t n = 0; n < sizeof text; n++)
        assert_int_equal(try_text(ctx, text, n), n >= sizeof text - 2);
}

/* ---- Failing allocations ---- */

typedef wf_status stage_fn(wf_ctx *ctx, const wf_graph *g, const char *text);

static wf_status stage_write(wf_ctx *ctx, const wf_graph *g, const char *text)
{
    char *out;
    (void)text;
    wf_status status = wf_graph_text(g, &out, NULL);
    assert_int_equal(out != NULL, status == WF_OK);
    wf_text_free(ctx, out);
    return status;
}

static wf_status stage_draw(wf_ctx *ctx, const wf_graph *g, const char *text)
{
    char *out;
    (void)text;
    wf_status status = wf_graph_dot(g, &out, NULL);
    assert_int_equal(out != NULL, status == WF_OK);
    wf_text_free(ctx, out);
    return status;
}

static wf_status stage_read(wf_ctx *ctx, const wf_graph *g, const char *text)
{
    wf_graph *out;
    (void)g;
    wf_status status = wf_graph_parse(ctx, text, strlen(text), &out);
    assert_int_equal(out != NULL, status == WF_OK);
    wf_graph_free(out);
    return status;
}

/* Fails each allocation of the stage in turn. Returns how many there are. */
static int sweep(wf_ctx *ctx, stage_fn *fn, const wf_graph *g, const char *text)
{
    for (int nth = 1;; nth++) {
        uint64_t blocks = wt_live_blocks(ctx);
        wf_ctx_clear(ctx);
        wf_ctx_fail_allocation(ctx, (uint64_t)nth);
        wf_status status = fn(ctx, g, text);
        bool reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        assert_int_equal(wt_live_blocks(ctx), blocks);
        if (!reached) {
            wt_ok(ctx, status);
            return nth - 1;
        }
        wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
    }
}

static void test_memory_runs_out(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = trained(ctx);
    char *text = text_of(g);
    assert_true(sweep(ctx, stage_write, g, text) >= 3);
    assert_true(sweep(ctx, stage_draw, g, text) >= 3);
    assert_true(sweep(ctx, stage_read, g, text) >= 12);
    wf_text_free(ctx, text);
    wf_graph_free(g);
}

/* ---- DOT and SVG ---- */

/* Checks the DOT output line by line, including escapes. */
static void test_dot(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = parse(ctx, HEAD "%0 = input(\"a\\\"\\\\&\\x0a\") type=f32 dims=[2]\n"
                                  "%1 = state(\"w\") type=f32 dims=[2]\n"
                                  "%2 = top_k(%0) k=2\n"
                                  "%3 = backward mul(%2, %1)\n"
                                  "%4 = backward assign(%1, %3)\n"
                                  "output \"y>\" = %2.1\nend\n");
    static const char *const lines[] = {
        "digraph weft {\n",
        "  n0 [label=\"input a\\\"\\\\&amp;\\\\x0a\\nf32[2]\", fillcolor=\"#e2f0d9\"];\n",
        "  n1 [label=\"state w\\nf32[2]\", fillcolor=\"#fde8c8\"];\n",
        "  n2 [label=\"top_k\\nk=2\", fillcolor=\"white\"];\n",
        "  n3 [label=\"mul\", fillcolor=\"#e9e2f5\"];\n",
        "  n2 -> n3 [label=\"f32[2]\"];\n  n1 -> n3 [label=\"f32[2]\"];\n",
        "  n4 [label=\"assign\", fillcolor=\"#f8d7da\"];\n",
        "  o0 [shape=plaintext, style=\"\", label=\"y>\"];\n",
        "  n2 -> o0 [label=\".1 i32[2]\"];\n}\n",
    };
    char *text;
    size_t bytes;
    wt_ok(ctx, wf_graph_dot(g, &text, &bytes));
    assert_int_equal(bytes, strlen(text));
    for (size_t i = 0; i < COUNT(lines); i++)
        if (!strstr(text, lines[i]))
            fail_msg("not in the drawing: %s\n%s", lines[i], text);
    wf_text_free(ctx, text);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_every_op),    wt_test(test_transformer),     wt_test(test_small_graphs),
        wt_test(test_the_form),    wt_test(test_by_hand),         wt_test(test_names),
        wt_test(test_numbers),     wt_test(test_failed_graph),    wt_test(test_mutations),
        wt_test(test_truncations), wt_test(test_memory_runs_out), wt_test(test_dot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
