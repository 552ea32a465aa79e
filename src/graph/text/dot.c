/* SPDX-License-Identifier: MIT */
/*
 * dot.c - writes a graph in Graphviz's DOT language.
 *
 * Nodes are boxes n0, n1, ... with op, name or attributes; edges carry type and shape. Outputs are
 * plain text nodes o0, o1, ... For people: the text form, not DOT, is read back.
 */
#include "base/writer.h"
#include "graph/graph.h"

/* Fill color of a node: the first row that matches by flag, op or backward. */
typedef struct {
    uint32_t flag; /* WF_FLAG_*; 0: matches nothing */
    int op;        /* -1: matches nothing */
    bool backward; /* true: matches nodes of the gradient */
    const char *fill;
} look;

static const look looks[] = {
    {WF_FLAG_STATE, -1, false, "#fde8c8"},  /* orange */
    {0, WF_OP_input, false, "#e2f0d9"},     /* green */
    {WF_FLAG_UPDATE, -1, false, "#f8d7da"}, /* red */
    {0, -1, true, "#e9e2f5"},               /* violet */
};

/* White for ordinary forward nodes. */
static const char *fill_of(const wf_node *n)
{
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (wf_node_is(n, looks[i].flag) || (int)n->op == looks[i].op ||
            (looks[i].backward && n->backward))
            return looks[i].fill;
    return "white";
}

/* Writes text inside a quoted label. Graphviz interprets backslashes and HTML entities there. */
static void write_label(wf_writer *w, const char *text)
{
    for (const char *s = text; *s; s++) {
        if (*s == '&')
            wf_writer_print(w, "&amp;");
        else if (*s < ' ' || *s > '~')
            wf_writer_print(w, "\\\\x%02x", (unsigned char)*s);
        else
            wf_writer_print(w, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
    }
}

static void write_node(wf_writer *w, const wf_node *n)
{
    const wf_op_def *def = wf_node_def(n);
    char text[1024]; /* wf_attr_print cuts longer texts */
    size_t len = 0;
    wf_writer_print(w, "  n%d [label=\"%s", n->id, def->name);
    if (n->name) {
        wf_writer_char(w, ' ');
        write_label(w, n->name);
        wf_value_print(&n->out[0], text, sizeof text, &len);
    } else if (n->attr) {
        wf_attr_print(def, n->attr, text, sizeof text, &len);
    }
    wf_writer_print(w, "%s%s\", fillcolor=\"%s\"];\n", len ? "\\n" : "", len ? text : "",
                    fill_of(n));
}

/* Edge from the node of v to the node whose DOT name is `to` and `number`. */
static void write_edge(wf_writer *w, const wf_value *v, char to, int number)
{
    char text[256];
    size_t len = 0;
    wf_value_print(v, text, sizeof text, &len);
    wf_writer_print(w, "  n%d -> %c%d [label=\"", v->node->id, to, number);
    if (v->index > 0)
        wf_writer_print(w, ".%d ", v->index);
    wf_writer_print(w, "%s\"];\n", text);
}

wf_status wf_graph_dot(const wf_graph *g, char **out, size_t *bytes)
{
    *out = NULL;
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    wf_writer w = {.ctx = g->ctx};
    wf_writer_print(&w, "digraph weft {\n"
                        "  node [shape=box, style=filled, fontname=\"Helvetica\", fontsize=11];\n"
                        "  edge [fontname=\"Helvetica\", fontsize=9];\n");
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        write_node(&w, n);
        for (int k = 0; k < n->nin; k++)
            write_edge(&w, n->in[k], 'n', n->id);
    }
    for (int i = 0; i < g->output_count; i++) {
        wf_writer_print(&w, "  o%d [shape=plaintext, style=\"\", label=\"", i);
        write_label(&w, g->outputs[i].name);
        wf_writer_print(&w, "\"];\n");
        write_edge(&w, g->outputs[i].value, 'o', i);
    }
    wf_writer_print(&w, "}\n");
    return wf_writer_take(&w, out, bytes);
}
