/* SPDX-License-Identifier: MIT */
/*
 * test_graph_text_bad.c - malformed graph texts are refused with a line number, and long texts are
 * read in linear time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph/graph.h"
#include "support.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Malformed texts ---- */

#define HEAD "weft-graph 1\n"
#define X "%0 = input(\"x\") type=f32 dims=[2]\n"

static const struct {
    const char *text, *part;
} malformed[] = {
    {"", "line 1: expected 'weft-graph 1' in the first line"},
    {"hello\n", "line 1: expected 'weft-graph 1'"},
    {"\nweft-graph 1\nend\n", "line 1: expected 'weft-graph 1'"},
    {"weft-graph one\n", "line 1: expected the version of the text, found 'one'"},
    {"weft-graph 2\n", "line 1: the text has version 2; this library reads version 1"},
    {"weft-graph 99999999999999999999\n", "line 1: the version of the text is larger than"},
    {"weft-graph 1 x\n", "line 1: expected the end of the line, found 'x'"},
    {"weft-graph 1", "line 1: the text ends without 'end'"},
    {HEAD X, "line 2: the text ends without 'end'"},
    {HEAD "end\n\nend\n", "line 4: expected nothing after 'end', found 'end'"},
    {HEAD "end of it\n", "line 2: expected the end of the line, found 'of it'"},
    {HEAD "\tend\n", "line 2: byte 0x09 is not printable ASCII"},
    {HEAD "end\r\n", "line 2: byte 0x0d is not printable ASCII"},
    {HEAD "caf\xc3\xa9\n", "line 2: byte 0xc3 is not printable ASCII"},
    {HEAD "node 1\n", "line 2: unknown statement 'node'"},
    {HEAD "= 1\n", "line 2: expected a node, 'output' or 'end', found '= 1'"},
    {HEAD "streams\n", "line 2: expected the number of streams, found the end of the line"},
    {HEAD "streams -1\n", "line 2: expected the number of streams, found '-1'"},
    {HEAD "streams 9223372036854775807\n", "line 2: the number of streams is larger than"},
    {HEAD "streams 1\nstreams 1\n", "line 3: 'streams' must appear once"},
    {HEAD X "streams 1\n", "line 3: 'streams' must appear once, before the first node"},
    {HEAD "%x = 1\n", "line 2: expected the id of a value, found 'x = 1'"},
    {HEAD "%0 input(\"x\")\n", "line 2: expected '=', found 'input(\"x\")'"},
    {HEAD "%2147483647 = fill()\n", "line 2: the id of a value is larger than 2147483646"},
    {HEAD "%99999999999999999999 = fill()\n", "line 2: the id of a value is larger than"},
    {HEAD X "%0 = exp(%0)\n", "line 3: %0 comes after %0; ids must increase"},
    {HEAD "%5 = input(\"x\") type=f32\n%4 = exp(%5)\n", "line 3: %4 comes after %5"},
    {HEAD "%0 = \n", "line 2: expected the name of an op, found the end of the line"},
    {HEAD "%0 = backward (\n", "line 2: expected the name of an op, found '('"},
    {HEAD X "%1 = expp(%0)\n", "line 3: unknown op 'expp'; did you mean 'exp'?"},
    {HEAD X "%1 = exp %0\n", "line 3: expected '(', found '%0'"},
    {HEAD X "%1 = exp(0)\n", "line 3: expected '%', found '0)'"},
    {HEAD X "%1 = exp(%0\n", "line 3: expected ')', found the end of the line"},
    {HEAD X "%1 = exp(%0,)\n", "line 3: expected '%', found ')'"},
    {HEAD X "%1 = exp(%40)\n", "line 3: value %40 is not defined"},
    {HEAD X "%1 = exp(%1)\n", "line 3: value %1 is not defined"},
    {HEAD X "%1 = exp(%0.1)\n", "line 3: %0 (input) has 1 result; %0.1 is not defined"},
    {HEAD X "%1 = exp(%0.999999)\n", "line 3: the index of a result is larger than"},
    {HEAD X "%1 = exp(%0.)\n", "line 3: expected the index of a result, found ')'"},
    {HEAD X "%1 = exp(%0, %0)\n", "line 3: exp(f32[2], f32[2]): takes 1 operand, not 2"},
    {HEAD X "%1 = exp()\n", "line 3: exp(): takes 1 operand, not 0"},
    {HEAD X "%1 = exp(\"x\")\n", "line 3: expected '%', found '\"x\")'"},
    {HEAD "%0 = input(%0)\n", "line 2: expected '\"', found '%0)'"},
    {HEAD "%0 = input()\n", "line 2: expected '\"', found ')'"},
    {HEAD "%0 = input(\"\")\n", "line 2: the name is empty"},
    {HEAD "%0 = input(\"x)\n", "line 2: the name has no closing quote"},
    {HEAD "%0 = input(\"x\\\")\n", "line 2: the name has no closing quote"},
    {HEAD "%0 = input(\"x\\", "line 2: invalid escape in a name"},
    {HEAD "%0 = input(\"\\n\")\n", "line 2: invalid escape in a name"},
    {HEAD "%0 = input(\"\\x4\")\n", "line 2: invalid escape in a name"},
    {HEAD "%0 = input(\"\\x4G\")\n", "line 2: invalid escape in a name"},
    {HEAD "%0 = input(\"\\x00\")\n", "line 2: a name cannot contain the byte 0"},
    {HEAD "%0 = input(\"x\", \"y\")\n", "line 2: expected ')', found ', \"y\")'"},
    {HEAD "%0 = input(\"x\") dims=[2]\n", "line 2: input(type=none dims=[2]): the type is unknown"},
    {HEAD "%0 = input(\"x\") type=f33\n", "line 2: input: invalid value of attribute type"},
    {HEAD "%0 = input(\"x\") size=2\n", "line 2: input has no attribute 'size'"},
    {HEAD "%0 = input(\"x\") type=f32 dims=[-1]\n", "line 2: input(type=f32 dims=[-1]): axis 0"},
    {HEAD "%0 = input(\"x\") type=f32 dims=[4294967296,4294967296]\n",
     "line 2: input(type=f32 dims=[4294967296,4294967296]): the result is too large"},
    {HEAD "%0 = input(\"x\") type=q4_K dims=[100]\n", "q4_K needs a multiple of 256"},
    {HEAD X "%1 = exp(%0) -> f32[3]\n", "line 3: result 0 of exp is f32[2], not 'f32[3]'"},
    {HEAD X "%1 = exp(%0) -> bf16[2]\n", "line 3: result 0 of exp is f32[2], not 'bf16[2]'"},
    {HEAD X "%1 = exp(%0) ->\n", "line 3: result 0 of exp is f32[2], not ''"},
    {HEAD X "%1 = exp(%0) -> f32[2], f32[2]\n", "line 3: exp has only 1 result"},
    {HEAD X "%1 = exp(%0) -> f32[2],\n", "line 3: exp has only 1 result"},
    {HEAD X "%1 = top_k(%0) k=1 -> f32[1]\n", "line 3: top_k has 2 results, not 1"},
    {HEAD X "%1 = exp(%0) -> f32[2] blok\n", "line 3: unknown mark 'blok'"},
    {HEAD X "%1 = exp(%0) -> f32[2] !\n", "line 3: expected a mark, found '!'"},
    {HEAD X "%1 = exp(%0) now\n", "line 3: exp has no attribute 'now'"},
    {HEAD X X, "line 3: %0 comes after %0"},
    {HEAD X "%1 = input(\"x\") type=f32\nend\n",
     "line 3: this input has the same name as the one in line 2"},
    {HEAD X "%1 = exp(%0)\noutput \"y\" = %1\noutput \"z\" = %1\noutput \"y\" = %1\nend\n",
     "line 6: this output has the same name as the one in line 4"},
    {HEAD X "output \"y\" = %0\n",
     "line 3: the output has no storage of its own; add a copy of this input"},
    {HEAD "output \"y\" = %0\n", "line 2: value %0 is not defined"},
    {HEAD X "output y = %0\n", "line 3: expected '\"', found 'y = %0'"},
    {HEAD X "%1 = exp(%0)\noutput \"y\" %1\n", "line 4: expected '=', found '%1'"},
    {HEAD X "%1 = exp(%0)\noutput \"y\" = %1 %1\n",
     "line 4: expected the end of the line, found '%1'"},
    {HEAD X "%1 = assign(%0, %0)\n", "operand 0 must be a state, not a computed value"},
};

static void test_malformed(void **state)
{
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < COUNT(malformed); i++) {
        wf_graph *g = (wf_graph *)&g;
        wf_ctx_clear(ctx);
        wf_status status = wf_graph_parse(ctx, malformed[i].text, strlen(malformed[i].text), &g);
        wt_fails(ctx, status, WF_ERR_FORMAT, malformed[i].part);
        assert_null(g);
    }
    wf_graph *g;
    wt_fails(ctx, wf_graph_parse(ctx, NULL, 0, &g), WF_ERR_FORMAT,
             "line 1: expected 'weft-graph 1'");
    wt_fails(ctx, wf_graph_parse(ctx, HEAD "\0end\n", sizeof HEAD "\0end\n" - 1, &g), WF_ERR_FORMAT,
             "line 2: byte 0x00 is not printable ASCII");
    /* An error that only the verifier finds. */
    static const char stale[] = HEAD "%0 = state(\"w\") type=f32\n"
                                     "%1 = assign(%0, %0)\n%2 = exp(%0)\nend\n";
    wt_fails(ctx, wf_graph_parse(ctx, stale, sizeof stale - 1, &g), WF_ERR_GRAPH,
             "reader-after-writer: node 2 (exp)");
    assert_null(g);
}

/* ---- Limits and long texts ---- */

typedef struct {
    char *text;
    size_t len, cap;
} long_text;

static void add(long_text *t, const char *fmt, ...) WF_PRINTF(2, 3);
static void add(long_text *t, const char *fmt, ...)
{
    if (t->cap - t->len < 256) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->text = realloc(t->text, t->cap);
        assert_non_null(t->text);
    }
    va_list args;
    va_start(args, fmt);
    t->len += (size_t)vsnprintf(t->text + t->len, t->cap - t->len, fmt, args);
    va_end(args);
}

static void refuse(wf_ctx *ctx, long_text *t, const char *part)
{
    wf_graph *g;
    wt_fails(ctx, wf_graph_parse(ctx, t->text, t->len, &g), WF_ERR_FORMAT, part);
    assert_null(g);
    t->len = 0;
}

/* The largest number of operands, attributes and line lengths; one more is refused. */
static void test_limits(void **state)
{
    wf_ctx *ctx = *state;
    long_text t = {0};
    wf_mem_stats mem;
    wf_graph *g;
    for (int n = WF_MANY; n <= WF_MANY + 1; n++) {
        t.len = 0;
        add(&t, "%s%%1 = global_norm(%%0", HEAD X);
        for (int i = 1; i < n; i++)
            add(&t, ", %%0");
        add(&t, ")\nend\n");
        if (n == WF_MANY) {
            wt_ok(ctx, wf_graph_parse(ctx, t.text, t.len, &g));
            wf_graph_free(g);
        }
    }
    refuse(ctx, &t, "line 3: the node has more than 4096 operands");
    add(&t, "%s%%1 = exp(%%0", HEAD X);
    for (int i = 0; i < 300; i++)
        add(&t, "      ");
    add(&t, ") ");
    for (int i = 0; i < 300; i++)
        add(&t, "k=1 ");
    refuse(ctx, &t, "line 3: the attributes are longer than 1023 bytes");
    add(&t, HEAD);
    for (int i = 0; i < (1 << 20) / 16 + 1; i++)
        add(&t, "#123456789abcdef");
    refuse(ctx, &t, "line 2: the line is longer than 1048576 bytes");
    add(&t, HEAD "%%0 = ");
    for (int i = 0; i < 64; i++)
        add(&t, "longer_");
    refuse(ctx, &t, "expected the name of an op, found ");
    /* Large ids take no memory. */
    wf_ctx_mem_stats(ctx, &mem);
    uint64_t peak = mem.peak_bytes;
    add(&t, HEAD "streams 4000000000000000000\n%%2147483646 = fill() type=f32\nend\n");
    wt_ok(ctx, wf_graph_parse(ctx, t.text, t.len, &g));
    wf_ctx_mem_stats(ctx, &mem);
    assert_true(mem.peak_bytes <= peak || mem.live_bytes < 1 << 20);
    wf_graph_free(g);
    free(t.text);
}

/* A long chain of views and hundreds of thousands of names: slow for a reader that searches from
 * the start at every line. The bound is far above a linear reader's time and far below a quadratic
 * one's. */
static void test_long(void **state)
{
    wf_ctx *ctx = *state;
    enum { N = 200000 };
    long_text t = {0};
    wf_graph *g;
    add(&t, "%s", HEAD X);
    for (int i = 0; i < N; i++)
        add(&t, "%%%d = reshape(%%%d) dims=[%s]\n", 2 * i + 1, i ? 2 * i - 1 : 0,
            i % 2 ? "2" : "1,2");
    for (int i = 0; i < N; i++)
        add(&t, "%%%d = input(\"layers.%d\") type=f32\n", 2 * N + i, i);
    add(&t, "%%%d = exp(%%0)\n", 4 * N);
    for (int i = 0; i < N; i++)
        add(&t, "output \"layers.%d\" = %%%d\n", i, 4 * N);
    add(&t, "end\n");
    clock_t start = clock(); /* CPU time, because the machine may be busy */
    wt_ok(ctx, wf_graph_parse(ctx, t.text, t.len, &g));
    char *text;
    wt_ok(ctx, wf_graph_text(g, &text, NULL));
    assert_true(clock() - start < 15 * (clock_t)CLOCKS_PER_SEC);
    wf_text_free(ctx, text);
    wf_graph_free(g);
    free(t.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_malformed),
        wt_test(test_limits),
        wt_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
