/* SPDX-License-Identifier: MIT */
/*
 * write.c - writes a graph as text, in the form that text_priv.h describes.
 *
 * The text of a graph is unique: equal graphs give equal texts, and reading it back gives an equal
 * graph. Only printable ASCII is written, whatever names contain. The writer never writes text that
 * the reader would reject.
 */
#include "base/mem.h"
#include "base/writer.h"
#include "graph/text/text_priv.h"

/* Names of the bits of wf_value.marks. A new mark needs a row here; write_result fails without
 * one. */
const wf_mark_name wf_mark_names[] = {
    {WF_MARK_BLOCK, "block"},   {WF_MARK_RECOMPUTE, "recompute"}, {WF_MARK_FOLDED, "folded"},
    {WF_MARK_PACKED, "packed"}, {WF_MARK_ROUNDED, "rounded"},     {0, NULL},
};

/* Escapes quotes, backslashes and all bytes outside of printable ASCII. */
static void write_name(wf_writer *w, const char *name)
{
    wf_writer_char(w, '"');
    for (const char *s = name; *s; s++) {
        if (*s == '"' || *s == '\\')
            wf_writer_char(w, '\\');
        if (*s >= ' ' && *s <= '~')
            wf_writer_char(w, *s);
        else
            wf_writer_print(w, "\\x%02x", (unsigned char)*s);
    }
    wf_writer_char(w, '"');
}

/* %3, or %3.1 for a result other than the first. */
static void write_ref(wf_writer *w, const wf_value *v)
{
    wf_writer_print(w, "%%%d", v->node->id);
    if (v->index > 0)
        wf_writer_print(w, ".%d", v->index);
}

/* Writes " -> f32[2,3] block" for result 0, ", f32[2]" for the others. */
static wf_status write_result(wf_writer *w, const wf_value *v)
{
    char text[256];
    size_t len = 0;
    uint32_t left = v->marks;
    wf_value_print(v, text, sizeof text, &len);
    wf_writer_print(w, "%s%s", v->index ? ", " : " -> ", text);
    for (const wf_mark_name *m = wf_mark_names; m->name; left &= ~m->bit, m++)
        if (left & m->bit)
            wf_writer_print(w, " %s", m->name);
    if (left)
        return wf_fail(w->ctx, WF_ERR_INTERNAL, "node %d (%s) has a mark without a name",
                       v->node->id, wf_node_def(v->node)->name);
    return WF_OK;
}

static wf_status write_node(wf_writer *w, const wf_node *n)
{
    const wf_op_def *def = wf_node_def(n);
    wf_writer_print(w, "%%%d = %s%s(", n->id, n->backward ? "backward " : "", def->name);
    if (n->name)
        write_name(w, n->name);
    for (int i = 0; i < n->nin; i++) {
        wf_writer_print(w, "%s", i ? ", " : "");
        write_ref(w, n->in[i]);
    }
    wf_writer_char(w, ')');
    if (n->attr) {
        char text[WF_TEXT_ATTRS];
        size_t len = 0;
        wf_attr_print(def, n->attr, text, sizeof text, &len);
        /* Otherwise the text was cut, and reading it back would fail. */
        wf_assert(len < sizeof text - 1);
        wf_writer_print(w, " %s", text);
    }
    for (int i = 0; i < n->nout; i++)
        WF_TRY(write_result(w, &n->out[i]));
    return WF_OK;
}

/* Ends the line that began at byte `start`; fails when the reader would reject its length. */
static wf_status end_line(wf_writer *w, size_t start, const char *what, int place)
{
    if (w->len - start > WF_TEXT_LINE)
        return wf_fail(w->ctx, WF_ERR_USAGE,
                       "the line of %s %d exceeds %d bytes; use shorter names", what, place,
                       WF_TEXT_LINE);
    wf_writer_char(w, '\n');
    return WF_OK;
}

static wf_status write_graph(wf_writer *w, const wf_graph *g)
{
    wf_writer_print(w, "weft-graph %d\nstreams %lld\n", WF_TEXT_VERSION, (long long)g->streams);
    for (int i = 0; i < g->node_count; i++) {
        size_t start = w->len;
        WF_TRY(write_node(w, g->nodes[i]));
        WF_TRY(end_line(w, start, "node", i));
    }
    for (int i = 0; i < g->output_count; i++) {
        size_t start = w->len;
        wf_writer_print(w, "output ");
        write_name(w, g->outputs[i].name);
        wf_writer_print(w, " = ");
        write_ref(w, g->outputs[i].value);
        WF_TRY(end_line(w, start, "output", i));
    }
    wf_writer_print(w, "end\n");
    return WF_OK;
}

/* *out is NUL-terminated; `bytes` excludes the terminator. Free it with wf_text_free. */
wf_status wf_graph_text(const wf_graph *g, char **out, size_t *bytes)
{
    *out = NULL;
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    if (g->node_count > WF_TEXT_NODES)
        return wf_fail(g->ctx, WF_ERR_USAGE, "the graph has %d nodes; the text form allows %d",
                       g->node_count, WF_TEXT_NODES);
    wf_writer w = {.ctx = g->ctx};
    wf_status status = write_graph(&w, g);
    if (status == WF_OK)
        return wf_writer_take(&w, out, bytes);
    wf_mem_free(w.ctx, w.text);
    return status;
}

void wf_text_free(wf_ctx *ctx, char *text)
{
    wf_mem_free(ctx, text);
}
