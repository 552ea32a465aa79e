/* SPDX-License-Identifier: MIT */
/*
 * run.c - runs the steps of a plan in a random legal order and checks every memory access it can.
 *
 * Unused memory of the region is poisoned. A block gets its guards before the first step that
 * touches it and is poisoned after the last. Reading unwritten or expired memory thus yields NaN in
 * the results. A write outside a step's results and workspace fails the run. Runs allocate nothing.
 *
 * Per step, in order: guard extents that come into use, hash operands, launch, check guards and
 * hashes, compare small memory with its shadow copy, poison extents that go out of use.
 */
#include "base/hash.h"
#include "device/check/check.h"

typedef struct {
    wf_plan_exec *e;
    wf_check *c;
    int step; /* the current step; -1: no step runs */
} watch;

/* ---- Addresses ---- */

/* Returns the base address of an extent's offsets. */
static unsigned char *base_of(const watch *w, const wf_check_extent *x)
{
    const wf_session *session = w->e->head.session;
    if (x->kind == WF_PLACE_STATE)
        return w->e->states[x->node->id]->buffer->base;
    return x->kind == WF_PLACE_PORT ? wf_plan_exec_ports(w->e)->base : session->region->base;
}

/* Returns the same base in the shadow copy; NULL: it has no copy. */
static unsigned char *copy_of(const watch *w, const wf_check_extent *x)
{
    if (x->kind == WF_PLACE_STATE)
        return NULL;
    return x->kind == WF_PLACE_PORT ? w->c->ports_copy : w->c->region_copy;
}

/* Updates the shadow copy: bytes [from, to) now have their expected contents. */
static void accept(const watch *w, const wf_check_extent *x, size_t from, size_t to)
{
    unsigned char *copy = copy_of(w, x);
    if (copy)
        memcpy(copy + from, base_of(w, x) + from, to - from);
}

static void poison(const watch *w, const wf_check_extent *x, size_t from, size_t to)
{
    memset(base_of(w, x) + from, WF_CHECK_POISON, to - from);
    accept(w, x, from, to);
}

static bool is_poisoned(const unsigned char *from, size_t bytes)
{
    /* All bytes equal their successor, so all equal the first. */
    return bytes == 0 || (from[0] == WF_CHECK_POISON && memcmp(from, from + 1, bytes - 1) == 0);
}

/* Guards cover [low, begin) and the padding up to `high`. */
static void set_guards(const watch *w, const wf_check_extent *x)
{
    unsigned char *base = base_of(w, x);
    wf_check_guard(base + x->low, x->begin - x->low);
    wf_check_guard(base + x->begin + x->bytes, x->high - x->begin - x->bytes);
    accept(w, x, x->low, x->begin);
    accept(w, x, x->begin + x->bytes, x->high);
}

/* Detects changes of operands; not cryptographic. */
static uint64_t hash(const unsigned char *from, size_t bytes)
{
    uint64_t h = bytes, word;
    for (; bytes >= sizeof word; from += sizeof word, bytes -= sizeof word) {
        memcpy(&word, from, sizeof word);
        h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return wf_hash_fnv1a(h, from, bytes);
}

/* ---- Messages ---- */

static bool lies_in(const watch *w, const wf_value *v, const wf_check_extent *x)
{
    const wf_place *place = &w->e->plan->places[v->node->id][v->index];
    if (place->kind != x->kind)
        return false;
    if (place->kind == WF_PLACE_REGION)
        return &w->c->extents[place->block] == x;
    return place->kind == WF_PLACE_PORT ? place->offset == x->begin : place->state == x->node;
}

/* Names an extent relative to the current step: "its output 0", "its operand 1", or by its node. */
static void name_extent(const watch *w, const wf_check_extent *x, char *buf, size_t cap)
{
    const wf_node *n = w->step < 0 ? NULL : w->e->plan->steps[w->step].node;
    size_t len = 0;
    for (int k = 0; n && !x->workspace && k < n->nout; k++)
        if (lies_in(w, &n->out[k], x)) {
            wf_text_append(buf, cap, &len, "its output %d", k);
            return;
        }
    for (int i = 0; n && !x->workspace && i < n->nin; i++)
        if (lies_in(w, n->in[i], x)) {
            wf_text_append(buf, cap, &len, "its operand %d", i);
            return;
        }
    if (x->workspace && x->node == n)
        wf_text_append(buf, cap, &len, "its workspace");
    else if (x->node->name)
        wf_text_append(buf, cap, &len, "%s '%s'", wf_node_def(x->node)->name, x->node->name);
    else
        wf_text_append(buf, cap, &len, "%s of node %d (%s)",
                       x->workspace ? "the workspace" : "a result", x->node->id,
                       wf_node_def(x->node)->name);
}

/* Fails with "sin (kernel k, node 3) wrote before its output 0, in run 1 with seed 7". `did` is the
 * verb part; x names the extent and may be NULL. */
static wf_status fault(const watch *w, const char *did, const wf_check_extent *x)
{
    const wf_check_device *device = (const wf_check_device *)w->e->head.session->device;
    /* No step: found at the end of the run, too late to name one. */
    char who[128] = "some step", what[160] = "";
    size_t len = 0;
    if (w->step >= 0) {
        const wf_step *step = &w->e->plan->steps[w->step];
        len = 0;
        wf_text_append(who, sizeof who, &len, "%s (kernel %s, node %d)",
                       wf_node_def(step->node)->name, step->kernel->name, step->node->id);
    }
    if (x)
        name_extent(w, x, what, sizeof what);
    return wf_fail(device->head.ctx, WF_ERR_INTERNAL, "%s %s%s%s, in run %llu with seed %llu", who,
                   did, x ? " " : "", what, (unsigned long long)w->c->runs,
                   (unsigned long long)device->seed);
}

/* ---- Checks ---- */

static wf_status check_guards(const watch *w, const wf_check_extent *x)
{
    const unsigned char *base = base_of(w, x);
    size_t before = x->begin - x->low, after = x->high - x->begin - x->bytes;
    if (x->kind == WF_PLACE_STATE) { /* its own buffer, which has edges unless it is borrowed */
        bool borrowed = w->e->states[x->node->id]->buffer->borrowed;
        before = after = borrowed ? 0 : WF_CHECK_EDGE;
    }
    base += x->begin;
    if (!wf_check_intact(base - before, before))
        return fault(w, "wrote before", x);
    if (!wf_check_intact(base + x->bytes, after))
        return fault(w, "wrote after", x);
    return WF_OK;
}

/* Fails with the owner of byte `at` of the region or port memory, which changed unexpectedly. */
static wf_status wrote_to(const watch *w, wf_place_kind kind, size_t at)
{
    for (int i = 0; i < w->c->extent_count; i++) {
        const wf_check_extent *x = &w->c->extents[i];
        /* In use; unused memory has no owner. */
        if (x->kind == kind && w->c->left[i] > 0 && at >= x->low && at < x->high)
            return fault(w,
                         at < x->begin               ? "wrote before"
                         : at >= x->begin + x->bytes ? "wrote after"
                                                     : "changed",
                         x);
    }
    return fault(w, "wrote to unused memory", NULL);
}

/* Compares memory with its shadow copy and reports the first difference. */
static wf_status compare_copy(const watch *w, wf_place_kind kind, const unsigned char *base,
                              const unsigned char *copy, size_t bytes)
{
    if (!copy || bytes == 0 || memcmp(base, copy, bytes) == 0)
        return WF_OK;
    size_t at = 0;
    while (base[at] == copy[at]) /* ends: memcmp found a difference */
        at++;
    return wrote_to(w, kind, at);
}

static bool edges_intact(const wf_buffer *b)
{
    const unsigned char *base = b->base;
    return wf_check_intact(base - WF_CHECK_EDGE, WF_CHECK_EDGE) &&
           wf_check_intact(base + b->bytes, WF_CHECK_EDGE);
}

/* Checks that a step changed only its results and its workspace. */
static wf_status check_step(const watch *w, const wf_check_touch *touch, int count)
{
    const wf_memory *memory = &w->e->plan->memory;
    const wf_check *c = w->c;
    for (int i = 0; i < count; i++)
        WF_TRY(check_guards(w, &c->extents[touch[i].extent]));
    for (int i = 0; i < count; i++) {
        const wf_check_extent *x = &c->extents[touch[i].extent];
        if (touch[i].written) /* its results may have any contents */
            accept(w, x, x->begin, x->begin + x->bytes);
        else if (hash(base_of(w, x) + x->begin, x->bytes) != c->hash[i])
            return fault(w, "changed", x);
    }
    const wf_buffer *ports = wf_plan_exec_ports(w->e);
    if (!edges_intact(w->e->head.session->region) || !edges_intact(ports))
        return fault(w, "wrote outside the memory of the plan", NULL);
    WF_TRY(compare_copy(w, WF_PLACE_REGION, w->e->head.session->region->base, c->region_copy,
                        memory->activations));
    return compare_copy(w, WF_PLACE_PORT, ports->base, c->ports_copy, memory->ports);
}

/* ---- Running ---- */

/* Poisons the region, sets the guards of ports, and poisons outputs. */
static void begin_run(const watch *w)
{
    const wf_memory *memory = &w->e->plan->memory;
    wf_check *c = w->c;
    memset(w->e->head.session->region->base, WF_CHECK_POISON, memory->activations);
    if (c->region_copy)
        memset(c->region_copy, WF_CHECK_POISON, memory->activations);
    for (int i = 0; i < c->extent_count; i++) {
        const wf_check_extent *x = &c->extents[i];
        c->left[i] = -1;
        if (x->kind != WF_PLACE_PORT)
            continue;
        c->left[i] = x->touches + 1; /* + 1: ports stay in use after the run */
        set_guards(w, x);
        if (x->node->op == WF_OP_input)
            accept(w, x, x->begin, x->begin + x->bytes);
        else
            poison(w, x, x->begin, x->begin + x->bytes);
    }
}

/* Prepares an extent before its first touch: it must still be poisoned, and gets its guards. */
static wf_status begin_touch(const watch *w, int extent)
{
    const wf_check_extent *x = &w->c->extents[extent];
    if (w->c->left[extent] >= 0) /* already in use */
        return WF_OK;
    w->c->left[extent] = x->touches;
    if (x->kind != WF_PLACE_REGION)
        return WF_OK;
    if (!is_poisoned(base_of(w, x) + x->low, x->high - x->low)) {
        /* The step that wrote there has finished: it is unknown. */
        const watch nobody = {w->e, w->c, -1};
        return fault(&nobody, "wrote to unused memory reserved for", x);
    }
    set_guards(w, x);
    return WF_OK;
}

static void end_touch(const watch *w, int extent)
{
    const wf_check_extent *x = &w->c->extents[extent];
    if (--w->c->left[extent] == 0 && x->kind == WF_PLACE_REGION)
        poison(w, x, x->low, x->high);
}

static wf_status run_step(const watch *w)
{
    wf_check *c = w->c;
    const wf_check_touch *touch = &c->touches[c->touch_first[w->step]];
    int count = c->touch_first[w->step + 1] - c->touch_first[w->step];
    for (int i = 0; i < count; i++) {
        const wf_check_extent *x = &c->extents[touch[i].extent];
        WF_TRY(begin_touch(w, touch[i].extent));
        if (!touch[i].written)
            c->hash[i] = hash(base_of(w, x) + x->begin, x->bytes);
    }
    WF_TRY(wf_plan_exec_step(w->e, w->step));
    WF_TRY(check_step(w, touch, count));
    for (int i = 0; i < count; i++)
        end_touch(w, touch[i].extent);
    return WF_OK;
}

/* Checks the guards of ports and states, and that the whole region is poisoned again. */
static wf_status end_run(const watch *w)
{
    const wf_session *session = w->e->head.session;
    for (int i = 0; i < w->c->extent_count; i++)
        if (w->c->extents[i].kind == WF_PLACE_PORT || w->c->extents[i].kind == WF_PLACE_STATE)
            WF_TRY(check_guards(w, &w->c->extents[i]));
    if (!is_poisoned(session->region->base, w->e->plan->memory.activations))
        return fault(w, "wrote to unused memory", NULL);
    return WF_OK;
}

wf_status wf_check_run(wf_plan_exec *e)
{
    watch w = {e, e->own, -1};
    /* The run number is the stream, so each run of a seed draws another order. */
    wf_check_draw(w.c, ((const wf_check_device *)e->head.session->device)->seed, ++w.c->runs);
    begin_run(&w);
    for (int i = 0; i < w.c->graph.steps; i++) {
        w.step = w.c->order[i];
        WF_TRY(run_step(&w));
    }
    w.step = -1;
    return end_run(&w);
}
