/* SPDX-License-Identifier: MIT */
/*
 * precision.c - mixed precision: computes in bf16 or f16 while parameters stay f32.
 *
 *     before    %2 = linear(%x, %w) -> f32             %w: state, f32
 *     after     %1 = cast(%w) type=bf16
 *               %2 = linear(%x, %1) -> bf16
 *
 * The pass visits nodes in order. The last column of ops.def says whether an op computes in the
 * compute type, follows its operands, or stays as written. The op's shape rule then determines the
 * result types. A narrowed result stays the same wf_value with another type. Readers that need f32
 * get a cast, one for all of them. Casts have gradients, so the gradients of f32 parameters are
 * f32. They pass through the compute type on the way, as in PyTorch: a matmul of narrow operands
 * has a narrow result, in the gradient too.
 *
 * Narrow: matmuls and everything between them, the residual stream included. Time and memory go
 * there. f32: values of few elements that matter much (statistics of norms, losses, reductions of
 * many terms, scalars); functions that amplify rounding errors (exp, log, 1/sqrt, angles);
 * parameter vectors (gains and biases), which their ops take as f32 at no cost.
 */
#include <string.h>

#include "base/mem.h"
#include "graph/build.h"
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

/* ---- Policies ---- */

/* The last column of ops.def. */
typedef enum {
    AS_WRITTEN, /* operands keep the types that the node was built with */
    NARROW,     /* operands are rounded to the compute type */
    FOLLOW,     /* narrow if the largest operands are; smaller parameters are then rounded too */
    MOVE,       /* like FOLLOW, for ops that only move data: a moved parameter is a parameter */
    FEW,  /* like FOLLOW up to FEW_TERMS terms: kernels sum in f32 and round once. A sum of more
                   terms may be a statistic or a loss that overflows f16; it stays as written */
    ROWS, /* selects rows of a parameter in f32; readers round them. This needs no narrow copy of
                   the table, and gradients of repeated rows are summed in f32 */
    READ  /* takes operands as they are, if the shape rule accepts them; results stay f32 */
} policy;

typedef struct {
    policy policy;
    uint32_t tied; /* bit set of operands it applies to; 0: all. Others stay as written */
} rule;

#define FEW_TERMS 64 /* terms of a reduction that FEW accepts */

/* Expand the column `precision` to a rule. */
#define RULE_AS_WRITTEN AS_WRITTEN, 0
#define RULE_NARROW NARROW, 0
#define RULE_NARROW_OF(bits) NARROW, bits
#define RULE_FOLLOW FOLLOW, 0
#define RULE_FOLLOW_OF(bits) FOLLOW, bits
#define RULE_MOVE MOVE, 0
#define RULE_FEW FEW, 0
#define RULE_ROWS ROWS, 0
#define RULE_READ READ, 0

/* clang-format off */
static const rule rules[WF_OP_COUNT] = {
#define WF_UNARY(name, doc, f32, range, grad, expand, flops, precision) \
    [WF_OP_##name] = {RULE_##precision},
#define WF_BINARY(name, doc, types, f32, i32, range_a, range_b, grad_a, grad_b, expand, flops, \
                  precision) \
    [WF_OP_##name] = {RULE_##precision},
#define WF_OP(name, doc, attrs, min_in, max_in, flags, shape, grad, expand, flops, bytes, \
              precision) \
    [WF_OP_##name] = {RULE_##precision},
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP
};
/* clang-format on */

/* ---- Values ---- */

/* What the pass knows about a value of the original graph. All but PLAIN are or were f32. */
typedef enum {
    PLAIN,
    PARAMETER, /* a version of a state, a constant, or one of these moved */
    LEANING,   /* f32, but counts as narrow for ops that follow: they read it rounded */
    RETYPED    /* was f32, now has the compute type */
} standing;

typedef struct {
    wf_rewrite r;
    wf_graph *g;
    wf_type compute;
    wf_report *report;
    standing *stands; /* [slot] */
    wf_value **other; /* [slot] the value cast to the other type; NULL: no cast yet */
    /* Scratch for one node, [operand]: */
    wf_type *types;   /* the types chosen for its operands */
    wf_value *tried;  /* copies of its operands with these types, for the shape rule */
    wf_value **trial; /* pointers to tried[] */
} precision;

static void count(const precision *p, const char *what, int64_t n)
{
    wf_report_add(p->report, "precision", what, n);
}

static standing stands(const precision *p, const wf_value *v)
{
    return p->stands[wf_uses_slot(&p->r.uses, v)];
}

/* The type with which v was built. */
static wf_type written_type(const precision *p, const wf_value *v)
{
    return stands(p, v) == RETYPED ? WF_F32 : v->type;
}

static bool is_narrow(const precision *p, const wf_value *v)
{
    return stands(p, v) == RETYPED || stands(p, v) == LEANING;
}

/* Returns v in this type: itself, or a cast placed before the visited node. The cast may read a
 * state version there because the node does. Later readers of v share the cast. */
static wf_value *in_type(precision *p, wf_value *v, wf_type type)
{
    if (v->type == type)
        return v;
    wf_value **other = &p->other[wf_uses_slot(&p->r.uses, v)];
    if (*other)
        return *other;
    /* A constant of the other type instead of a cast of a constant. */
    if (v->node->op == WF_OP_fill) {
        wf_attr_fill a = *(const wf_attr_fill *)v->node->attr;
        a.type = type;
        return *other = wf_node_add(p->g, WF_OP_fill, &a, NULL, NULL, 0);
    }
    *other = wf_cast(p->g, v, type);
    if (*other && stands(p, v) == LEANING) { /* readers continue from the rounded value */
        (*other)->marks = v->marks;
        v->marks = 0;
    }
    count(p,
          type == WF_F32              ? "casts back to f32"
          : stands(p, v) == PARAMETER ? "casts of parameters"
                                      : "casts of other values",
          1);
    return *other;
}

/* ---- One node ---- */

static bool is_tied(const wf_node *n, int operand)
{
    /* Never cast a page pool: it has many more rows than the op reads. */
    if (n->op == WF_OP_attention && n->nin == 7 && operand > 0)
        return false;
    uint32_t tied = rules[n->op].tied;
    /* Operands from 32 on are never tied. */
    return tied == 0 || (operand < 32 && (tied >> operand & 1));
}

/* False if the user chose another narrow type for an operand: the pass does not mix two. */
static bool may_round(const precision *p, const wf_node *n)
{
    for (int i = 0; i < n->nin; i++) {
        wf_type type = written_type(p, n->in[i]);
        if (is_tied(n, i) && wf_type_get(type)->kind == WF_KIND_FLOAT && type != WF_F32 &&
            type != p->compute)
            return false;
    }
    return true;
}

/* Whether the largest f32 operands are narrow or parameters, and at least one operand is narrow.
 * Smaller operands are broadcast and do not count. A result of one element stays f32: narrowing it
 * saves nothing. */
static bool largest_are_narrow(const precision *p, const wf_node *n)
{
    int64_t most = 0;
    bool narrow = false;
    for (int i = 0; i < n->nin; i++)
        if (is_tied(n, i) && written_type(p, n->in[i]) == WF_F32 && wf_value_count(n->in[i]) > most)
            most = wf_value_count(n->in[i]);
    for (int i = 0; i < n->nin; i++) {
        const wf_value *v = n->in[i];
        if (!is_tied(n, i) || written_type(p, v) != WF_F32)
            continue;
        /* A large f32 value that is neither narrow nor a parameter keeps the node in f32. */
        if (stands(p, v) == PLAIN && wf_value_count(v) == most)
            return false;
        narrow |= is_narrow(p, v);
    }
    return narrow && wf_value_count(&n->out[0]) > 1;
}

/* Whether n's tied operands are rounded to the compute type. */
static bool rounds(const precision *p, const wf_node *n)
{
    switch (rules[n->op].policy) {
    case NARROW: return may_round(p, n);
    case FOLLOW:
    case MOVE: return largest_are_narrow(p, n);
    case FEW:
        return largest_are_narrow(p, n) &&
               wf_value_count(n->in[0]) <= FEW_TERMS * wf_value_count(&n->out[0]);
    default: return false;
    }
}

/* Only f32 operands change type: a user's own f16 or integers stay. */
static void choose_types(precision *p, const wf_node *n)
{
    policy how = rules[n->op].policy;
    bool as_is = how == READ || how == ROWS, narrow = rounds(p, n);
    for (int i = 0; i < n->nin; i++) {
        wf_type written = written_type(p, n->in[i]);
        p->types[i] = as_is                                          ? n->in[i]->type
                      : narrow && written == WF_F32 && is_tied(n, i) ? p->compute
                                                                     : written;
    }
}

/* Whether the op's shape rule accepts operands of the chosen types; fills r with the results. A
 * refusal is not an error, so the context's status and message are restored. */
static bool accepts(precision *p, const wf_node *n, wf_infer *r)
{
    wf_graph scratch = {.ctx = p->g->ctx};
    const wf_status status = p->g->ctx->status;
    char message[WF_MESSAGE_BYTES];
    memcpy(message, p->g->ctx->message, sizeof message);
    for (int i = 0; i < n->nin; i++) {
        /* Only type and shape of an operand are read; node and state stay those of the original. */
        p->tried[i] = *n->in[i];
        p->tried[i].type = p->types[i];
        p->trial[i] = &p->tried[i];
    }
    *r = (wf_infer){
        .g = &scratch, .def = wf_node_def(n), .in = p->trial, .nin = n->nin, .attr = n->attr};
    bool accepted = r->def->shape(r) == WF_OK;
    p->g->ctx->status = status;
    memcpy(p->g->ctx->message, message, sizeof message);
    return accepted;
}

static bool all_parameters(const precision *p, const wf_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (n->in[i]->type == WF_F32 && stands(p, n->in[i]) != PARAMETER)
            return false;
    return true;
}

/* The standing of a result that was not retyped. */
static standing standing_of(const precision *p, const wf_value *v)
{
    const wf_node *n = v->node;
    policy how = rules[n->op].policy;
    if (v->type != WF_F32)
        return PLAIN;
    if (v->state || n->op == WF_OP_fill || (how == MOVE && all_parameters(p, n)))
        return PARAMETER;
    return how == ROWS && stands(p, n->in[0]) != PLAIN ? LEANING : PLAIN;
}

static wf_status visit(precision *p, wf_node *n)
{
    wf_infer r;
    choose_types(p, n);
    bool accepted = accepts(p, n, &r);
    /* Refused: fall back to the types as written, which the rule accepted before. */
    for (int i = 0; i < n->nin && !accepted; i++)
        p->types[i] = written_type(p, n->in[i]);
    for (int i = 0; i < n->nout; i++) {
        wf_value *v = &n->out[i];
        standing *s = &p->stands[wf_uses_slot(&p->r.uses, v)];
        *s = standing_of(p, v);
        if (accepted && r.out[i].type != v->type) {
            /* Only f32 results of the op can become narrow, and never a state. */
            wf_assert(v->type == WF_F32 && r.out[i].type == p->compute && !v->state);
            v->type = p->compute;
            *s = RETYPED;
            count(p, "values narrowed", 1);
        }
    }
    /* Results are retyped before the casts are added: casts read operands only. */
    wf_rewrite_before(&p->r, n);
    for (int i = 0; i < n->nin; i++) {
        wf_value *v = in_type(p, n->in[i], p->types[i]);
        if (!v)
            return p->g->status;
        n->in[i] = v;
    }
    return WF_OK;
}

/* ---- The pass ---- */

/* Bytes of all computed values; views, sources and states are left out. */
static int64_t bytes_computed(const wf_graph *g)
{
    int64_t bytes = 0;
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        for (int k = 0; k < n->nout; k++)
            if (!wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE))
                bytes += (int64_t)wf_type_bytes(n->out[k].type, wf_value_count(&n->out[k]));
    }
    return bytes;
}

static wf_status prepare(precision *p)
{
    wf_ctx *ctx = p->g->ctx;
    size_t values = (size_t)p->r.uses.values + 1, longest = 1;
    for (int i = 0; i < p->r.count; i++)
        if ((size_t)p->g->nodes[i]->nin > longest)
            longest = (size_t)p->g->nodes[i]->nin;
    p->stands = wf_mem_array(ctx, values, sizeof *p->stands);
    p->other = wf_mem_array(ctx, values, sizeof(wf_value *));
    p->types = wf_mem_array(ctx, longest, sizeof *p->types);
    p->tried = wf_mem_array(ctx, longest, sizeof *p->tried);
    p->trial = wf_mem_array(ctx, longest, sizeof(wf_value *));
    return p->stands && p->other && p->types && p->tried && p->trial ? WF_OK : WF_ERR_MEMORY;
}

static void release(precision *p)
{
    wf_ctx *ctx = p->g->ctx;
    wf_mem_free(ctx, p->stands);
    wf_mem_free(ctx, p->other);
    wf_mem_free(ctx, p->types);
    wf_mem_free(ctx, p->tried);
    wf_mem_free(ctx, p->trial);
}

static wf_status visit_all(precision *p)
{
    WF_TRY(prepare(p));
    for (int i = 0; i < p->r.count; i++)
        WF_TRY(visit(p, p->g->nodes[i]));
    wf_rewrite_before(&p->r, NULL);
    /* Outputs keep the type that the caller declared. */
    for (int i = 0; i < p->g->output_count; i++) {
        wf_value **v = &p->g->outputs[i].value;
        wf_value *as_declared = in_type(p, *v, written_type(p, *v));
        if (!as_declared)
            return p->g->status;
        *v = as_declared;
    }
    return WF_OK;
}

static wf_status check_call(wf_graph *g, wf_type compute)
{
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    if (compute != WF_F32 && compute != WF_F16 && compute != WF_BF16)
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "precision: the compute type must be f32, f16 or bf16, not %s",
                             wf_type_name(compute));
    /* f32 changes nothing, so it is allowed at any time. */
    for (int i = 0; i < g->node_count && compute != WF_F32; i++)
        if (g->nodes[i]->backward)
            return wf_graph_fail(g, WF_ERR_USAGE,
                                 "precision: the graph already has gradients; call wf_precision "
                                 "before wf_grad");
    return WF_OK;
}

wf_status wf_pass_precision(wf_graph *g, wf_type compute, wf_report *report)
{
    WF_TRY(check_call(g, compute));
    if (compute == WF_F32 || g->node_count == 0)
        return WF_OK;
    precision p = {.g = g, .compute = compute, .report = report};
    count(&p, "bytes computed before", bytes_computed(g));
    wf_status status = wf_rewrite_begin(g, &p.r);
    if (status == WF_OK) {
        status = wf_rewrite_end(&p.r, visit_all(&p));
        release(&p);
    }
    if (status == WF_OK)
        status = WF_VERIFY(g);
    if (status != WF_OK) /* only some values have their new types: the graph is unusable */
        return wf_graph_fail(g, status, "%s", g->ctx->message);
    count(&p, "bytes computed after", bytes_computed(g));
    return WF_OK;
}

wf_status wf_precision(wf_graph *g, wf_type compute)
{
    return wf_pass_precision(g, compute, NULL);
}
