/* SPDX-License-Identifier: MIT */
/*
 * stablehlo.c - the table of emitters, and the program around the instructions they write.
 *
 *     module @weft {
 *     func.func public @main(states, inputs) -> (outputs, updated states) {
 *       one or more instructions per node
 *       "func.return"(...)
 *     }
 *     }
 *
 * A state that the program updates is an argument and a result; tf.aliasing_output lets the plugin
 * use one buffer for both. Only live nodes are lowered: those that an output or an update needs.
 */
#include "graph/lower/stablehlo.h"

#include <string.h>

#include "base/mem.h"
#include "graph/lower/stablehlo_priv.h"

/* Emitters of all core ops and of linear. Sources have none: they become arguments. */
static const struct {
    wf_hlo_emit *emit;
    const char *name; /* the instruction, for emitters that serve several */
} emitters[WF_OP_COUNT] = {
    [WF_OP_exp] = {wf_hlo_emit_unary, "stablehlo.exponential"},
    [WF_OP_expm1] = {wf_hlo_emit_unary, "stablehlo.exponential_minus_one"},
    [WF_OP_log] = {wf_hlo_emit_unary, "stablehlo.log"},
    [WF_OP_sqrt] = {wf_hlo_emit_unary, "stablehlo.sqrt"},
    [WF_OP_rsqrt] = {wf_hlo_emit_unary, "stablehlo.rsqrt"},
    [WF_OP_sin] = {wf_hlo_emit_unary, "stablehlo.sine"},
    [WF_OP_cos] = {wf_hlo_emit_unary, "stablehlo.cosine"},
    [WF_OP_tanh] = {wf_hlo_emit_unary, "stablehlo.tanh"},
    [WF_OP_sigmoid] = {wf_hlo_emit_unary, "stablehlo.logistic"},
    [WF_OP_erf] = {wf_hlo_emit_erf, NULL},
    [WF_OP_add] = {wf_hlo_emit_binary, "stablehlo.add"},
    [WF_OP_sub] = {wf_hlo_emit_binary, "stablehlo.subtract"},
    [WF_OP_mul] = {wf_hlo_emit_binary, "stablehlo.multiply"},
    [WF_OP_div] = {wf_hlo_emit_binary, "stablehlo.divide"},
    [WF_OP_maximum] = {wf_hlo_emit_binary, "stablehlo.maximum"},
    [WF_OP_minimum] = {wf_hlo_emit_binary, "stablehlo.minimum"},
    [WF_OP_lt] = {wf_hlo_emit_compare, "LT"},
    [WF_OP_le] = {wf_hlo_emit_compare, "LE"},
    [WF_OP_eq] = {wf_hlo_emit_compare, "EQ"},
    [WF_OP_ne] = {wf_hlo_emit_compare, "NE"},
    [WF_OP_scale] = {wf_hlo_emit_scale, NULL},
    [WF_OP_where] = {wf_hlo_emit_where, NULL},
    [WF_OP_fill] = {wf_hlo_emit_fill, NULL},
    [WF_OP_iota] = {wf_hlo_emit_iota, NULL},
    [WF_OP_uniform] = {wf_hlo_emit_uniform, NULL},
    [WF_OP_cast] = {wf_hlo_emit_cast, NULL},
    [WF_OP_copy] = {wf_hlo_emit_copy, NULL},
    [WF_OP_reshape] = {wf_hlo_emit_reshape, NULL},
    [WF_OP_permute] = {wf_hlo_emit_permute, NULL},
    [WF_OP_slice] = {wf_hlo_emit_slice, NULL},
    [WF_OP_pad] = {wf_hlo_emit_pad, NULL},
    [WF_OP_concat] = {wf_hlo_emit_concat, NULL},
    [WF_OP_broadcast] = {wf_hlo_emit_broadcast, NULL},
    [WF_OP_sum] = {wf_hlo_emit_sum, NULL},
    [WF_OP_max] = {wf_hlo_emit_max, NULL},
    [WF_OP_argmax] = {wf_hlo_emit_argmax, NULL},
    [WF_OP_top_k] = {wf_hlo_emit_top_k, NULL},
    [WF_OP_gather_rows] = {wf_hlo_emit_gather_rows, NULL},
    [WF_OP_scatter_add_rows] = {wf_hlo_emit_scatter_add_rows, NULL},
    [WF_OP_matmul] = {wf_hlo_emit_matmul, NULL},
    [WF_OP_linear] = {wf_hlo_emit_linear, NULL},
    [WF_OP_assign] = {wf_hlo_emit_assign, NULL},
    [WF_OP_kv_append] = {wf_hlo_emit_kv_append, NULL},
};

bool wf_stablehlo_has(wf_op op)
{
    return emitters[op].emit != NULL;
}

/* Quantized arrays are decoded when they are copied to the device, so programs see f32. */
wf_type wf_stablehlo_type(wf_type type)
{
    return wf_type_get(type)->kind == WF_KIND_BLOCK ? WF_F32 : type;
}

/* ---- Arguments and results ---- */

typedef struct {
    const wf_graph *g;
    wf_hlo_program *p;
    wf_hlo_text text;
    wf_hlo **values;        /* [node id][output] */
    wf_hlo *in;             /* the operands of one node; reused */
    const wf_value **final; /* [id of a state node]: its last version; NULL: never updated */
    bool *live;             /* [node id]: an output or an update needs it */
} lowering;

/* Everything lives in the program's arena until wf_hlo_program_free. */
static wf_status allocate(lowering *l)
{
    const wf_graph *g = l->g;
    wf_arena *a = &l->p->arena;
    size_t nodes = (size_t)g->node_count + 1, longest = 1;
    l->values = wf_arena_alloc(a, nodes * sizeof *l->values);
    l->final = wf_arena_alloc(a, nodes * sizeof *l->final);
    l->live = wf_arena_alloc(a, nodes * sizeof *l->live);
    l->p->args = wf_arena_alloc(a, nodes * sizeof *l->p->args);
    l->p->results = wf_arena_alloc(a, (nodes + (size_t)g->output_count) * sizeof *l->p->results);
    if (!l->values || !l->final || !l->live || !l->p->args || !l->p->results)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        longest = (size_t)n->nin > longest ? (size_t)n->nin : longest;
        l->values[i] = wf_arena_alloc(a, (size_t)n->nout * sizeof *l->values[i]);
        if (!l->values[i])
            return WF_ERR_MEMORY;
    }
    l->in = wf_arena_alloc(a, longest * sizeof *l->in);
    return l->in ? WF_OK : WF_ERR_MEMORY;
}

/* Empty values are neither arguments nor results. */
static bool crosses(const wf_value *v)
{
    return wf_dims_count(&v->shape) > 0;
}

/* Returns the state that state_copy copies; the verifier has checked that it exists. A copy is not
 * an argument: the program casts version 0 of the state, and no result returns the updated copy. */
static const wf_node *state_of(const lowering *l, const wf_node *copy)
{
    int i = 0;
    while (l->g->nodes[i]->op != WF_OP_state || strcmp(l->g->nodes[i]->name, copy->name) != 0)
        i++;
    return l->g->nodes[i];
}

/* Sets live[] and final[], walking backwards. Every update is live. */
static void find_live(lowering *l)
{
    const wf_graph *g = l->g;
    for (int i = 0; i < g->output_count; i++)
        l->live[g->outputs[i].value->node->id] = true;
    for (int i = g->node_count - 1; i >= 0; i--) {
        const wf_node *n = g->nodes[i];
        bool update = wf_node_is(n, WF_FLAG_UPDATE);
        l->live[i] |= update;
        for (int k = 0; l->live[i] && k < n->nin; k++)
            l->live[n->in[k]->node->id] = true;
        if (l->live[i] && n->op == WF_OP_state_copy)
            l->live[state_of(l, n)->id] = true;
        for (int k = 0; update && k < n->nout; k++)
            if (!l->final[n->out[k].state->id]) /* the first one found is the last version */
                l->final[n->out[k].state->id] = &n->out[k];
    }
}

/* Appends the live sources of one op to the arguments. */
static void find_args(lowering *l, wf_op op)
{
    for (int i = 0; i < l->g->node_count; i++) {
        const wf_node *n = l->g->nodes[i];
        if (n->op == op && l->live[i] && crosses(&n->out[0]))
            l->p->args[l->p->arg_count++] = (wf_hlo_port){n, &n->out[0], -1};
    }
}

/* Results: outputs, then the last version of each updated state, in the order of the arguments. */
static void find_ports(lowering *l)
{
    const wf_graph *g = l->g;
    wf_hlo_program *p = l->p;
    for (int i = 0; i < g->output_count; i++)
        if (crosses(g->outputs[i].value))
            p->results[p->result_count++] = (wf_hlo_port){NULL, g->outputs[i].value, i};
    find_args(l, WF_OP_state);
    find_args(l, WF_OP_input);
    for (int i = 0; i < p->arg_count; i++) {
        const wf_node *n = p->args[i].source;
        if (l->final[n->id])
            p->results[p->result_count++] = (wf_hlo_port){n, l->final[n->id], -1};
    }
}

/* ---- The function ---- */

static void print_args(lowering *l)
{
    const wf_hlo_program *p = l->p;
    wf_hlo_text *t = &l->text;
    for (int i = 0; i < p->arg_count; i++) {
        const wf_hlo_port *arg = &p->args[i];
        wf_hlo v = wf_hlo_new(t, wf_stablehlo_type(arg->value->type), &arg->value->shape);
        l->values[arg->source->id][0] = v;
        wf_hlo_print(t, "%s%%%d: ", i ? ", " : "", v.id);
        wf_hlo_print_type(t, v.type, &v.shape);
        for (int k = 0; k < p->result_count; k++) /* a state that is returned */
            if (p->results[k].source == arg->source)
                wf_hlo_print(t, " {tf.aliasing_output = %d : i32}", k);
    }
}

static void print_result_types(lowering *l)
{
    for (int i = 0; i < l->p->result_count; i++) {
        const wf_value *v = l->p->results[i].value;
        wf_hlo_print(&l->text, i ? ", " : "");
        wf_hlo_print_type(&l->text, v->type, &v->shape);
    }
}

static void print_return(lowering *l)
{
    wf_hlo_text *t = &l->text;
    wf_hlo_print(t, "  \"func.return\"(");
    for (int i = 0; i < l->p->result_count; i++) {
        const wf_value *v = l->p->results[i].value;
        wf_hlo_print(t, i ? ", " : "");
        wf_hlo_print_ref(t, &l->values[v->node->id][v->index]);
    }
    wf_hlo_print(t, ") : (");
    print_result_types(l);
    wf_hlo_print(t, ") -> ()\n");
}

/* Fails with the call when a node has no emitter, or updates a quantized state: quantized arguments
 * arrive decoded, and nothing encodes results. */
static wf_status check_node(const wf_node *n)
{
    char call[256];
    size_t len = 0;
    const bool encodes =
        wf_node_is(n, WF_FLAG_UPDATE) && wf_stablehlo_type(n->out[0].type) != n->out[0].type;
    if (wf_node_is(n, WF_FLAG_SOURCE) || (wf_stablehlo_has(n->op) && !encodes))
        return WF_OK;
    wf_call_print(wf_node_def(n), n->in, n->nin, n->attr, call, sizeof call, &len);
    return wf_fail(n->graph->ctx, WF_ERR_UNSUPPORTED, "cannot lower %s to StableHLO", call);
}

/* Rejects a quantized output: quantized arguments arrive decoded, and nothing encodes results. */
static wf_status check_output(const wf_graph *g, const wf_named *output)
{
    const wf_value *v = output->value;
    if (wf_stablehlo_type(v->type) == v->type)
        return WF_OK;
    return wf_fail(g->ctx, WF_ERR_UNSUPPORTED,
                   "output '%s' is %s, but a StableHLO program cannot return quantized values",
                   output->name, wf_type_name(v->type));
}

static wf_status lower_node(lowering *l, const wf_node *n)
{
    wf_hlo *out = l->values[n->id];
    if (!crosses(&n->out[0])) { /* either all outputs of a node are empty or none is */
        for (int i = 0; i < n->nout; i++)
            out[i] =
                wf_hlo_constant(&l->text, wf_stablehlo_type(n->out[i].type), &n->out[i].shape, 0);
    } else if (n->op == WF_OP_state_copy) {
        out[0] = wf_hlo_cast(&l->text, l->values[state_of(l, n)->id][0], n->out[0].type);
    } else if (!wf_node_is(n, WF_FLAG_SOURCE)) {
        for (int i = 0; i < n->nin; i++)
            l->in[i] = l->values[n->in[i]->node->id][n->in[i]->index];
        wf_hlo_call c = {&l->text, n, n->attr, emitters[n->op].name, l->in, out};
        emitters[n->op].emit(&c);
    }
    return l->text.status;
}

static wf_status lower(lowering *l)
{
    WF_TRY(allocate(l));
    find_live(l);
    for (int i = l->g->node_count - 1; i >= 0; i--) /* backwards: reports the last such node */
        if (l->live[i])
            WF_TRY(check_node(l->g->nodes[i]));
    for (int i = 0; i < l->g->output_count; i++)
        WF_TRY(check_output(l->g, &l->g->outputs[i]));
    find_ports(l);
    wf_hlo_print(&l->text, "module @weft {\nfunc.func public @main(");
    print_args(l);
    wf_hlo_print(&l->text, ") -> (");
    print_result_types(l);
    wf_hlo_print(&l->text, ") {\n");
    for (int i = 0; i < l->g->node_count; i++)
        if (l->live[i])
            WF_TRY(lower_node(l, l->g->nodes[i]));
    print_return(l);
    wf_hlo_print(&l->text, "}\n}\n");
    return l->text.status;
}

wf_status wf_lower_stablehlo(const wf_graph *g, wf_hlo_program *out)
{
    *out = (wf_hlo_program){0};
    wf_arena_init(&out->arena, g->ctx);
    lowering l = {.g = g, .p = out, .text = {.ctx = g->ctx}};
    wf_status status = lower(&l);
    out->text = l.text.text;
    out->bytes = l.text.len;
    if (status != WF_OK)
        wf_hlo_program_free(out);
    return status;
}

void wf_hlo_program_free(wf_hlo_program *p)
{
    wf_ctx *ctx = p->arena.ctx;
    if (!ctx)
        return;
    wf_mem_free(ctx, p->text);
    wf_arena_free(&p->arena);
    *p = (wf_hlo_program){0};
}
