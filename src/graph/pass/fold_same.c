/* SPDX-License-Identifier: MIT */
/*
 * fold_same.c - elimination of common subexpressions: nodes with equal op, attributes and operands.
 *
 *     before    %2 = mul(%0, %1)          after    %2 = mul(%0, %1)
 *               %3 = mul(%0, %1)                   (readers of %3 read %2)
 *
 * Operands are compared as values, so two versions of a state differ. Random ops draw by stream and
 * key, which are an attribute and an operand: equal nodes draw equal values. The first of equal
 * nodes stays, so the replacement always comes before the readers.
 */
#include <string.h>

#include "base/mem.h"
#include "graph/pass/fold_priv.h"

wf_status wf_fold_same_begin(wf_folder *f)
{
    size_t places = 16; /* at most half full, so that probes stay short */
    while (places < 2 * (size_t)f->r.count)
        places *= 2;
    f->table = wf_mem_array(f->g->ctx, places, sizeof *f->table);
    f->mask = places - 1;
    return f->table ? WF_OK : WF_ERR_MEMORY;
}

/* A multiplicative hash (the golden ratio in 64 bits); the shift feeds high bits back into low
 * ones. */
static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* Attributes are compared field by field: the structs have padding. */
static size_t field_bytes(wf_attr_kind kind)
{
    switch (kind) {
    case WF_ATTR_REAL: return sizeof(double); /* compared bitwise: 0 and -0 differ */
    case WF_ATTR_TYPE: return sizeof(wf_type);
    case WF_ATTR_DIMS:
    case WF_ATTR_SHAPE: return sizeof(wf_dims);
    case WF_ATTR_INT:
    case WF_ATTR_STREAM: break;
    }
    return sizeof(int64_t);
}

static uint64_t hash_node(const wf_folder *f, const wf_node *n)
{
    uint64_t h = mix(1, (uint64_t)n->op);
    for (const wf_attr_field *a = wf_node_def(n)->fields; a->name; a++) {
        /* Zeroed, so that the bytes after a short field are the same. */
        uint64_t word[sizeof(wf_dims) / 8 + 1] = {0};
        size_t bytes = field_bytes(a->kind);
        memcpy(word, (const char *)n->attr + a->offset, bytes);
        for (size_t i = 0; i < (bytes + 7) / 8; i++)
            h = mix(h, word[i]);
    }
    for (int i = 0; i < n->nin; i++) {
        /* After replacements: equal subexpressions of equal subexpressions are found in the same
         * round. */
        const wf_value *v = wf_fold_in(f, n, i);
        h = mix(h, (uint64_t)v->node->id << 8 ^ (uint64_t)v->index);
    }
    return h;
}

static bool same(const wf_folder *f, const wf_node *a, const wf_node *b)
{
    if (a->op != b->op || a->nin != b->nin)
        return false;
    for (const wf_attr_field *at = wf_node_def(a)->fields; at->name; at++)
        if (memcmp((const char *)a->attr + at->offset, (const char *)b->attr + at->offset,
                   field_bytes(at->kind)) != 0)
            return false;
    for (int i = 0; i < a->nin; i++)
        if (wf_fold_in(f, a, i) != wf_fold_in(f, b, i))
            return false;
    return true;
}

bool wf_fold_same(wf_folder *f, wf_node *n)
{
    size_t at = (size_t)hash_node(f, n) & f->mask; /* linear probing; entries are never removed */
    while (f->table[at] && !same(f, f->table[at], n))
        at = (at + 1) & f->mask;
    wf_node *first = f->table[at];
    if (!first) {
        f->table[at] = n;
        return false;
    }
    /* Check all outputs before replacing any: half a replacement would be wrong. */
    for (int k = 0; k < n->nout; k++)
        if (!wf_fold_may(f, &n->out[k], &first->out[k]))
            return false;
    for (int k = 0; k < n->nout; k++) {
        wf_rewrite_replace(&f->r, &n->out[k], &first->out[k]);
        wf_fold_past(f, &first->out[k]); /* its gradient now includes that of n's output */
    }
    return true;
}
