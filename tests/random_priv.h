/* SPDX-License-Identifier: MIT */
/* random_priv.h - what the files of the generator of random graphs share. */
#ifndef WEFT_TESTS_RANDOM_PRIV_H
#define WEFT_TESTS_RANDOM_PRIV_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/philox.h"
#include "graph/build.h"
#include "random_graph.h"

#define RG_MAX_POOL 6000
#define RG_MAX_STATES 600
#define RG_MAX_COUNT 2000 /* elements of a value that is used further */

/* A value that steps may read, or a source that is made when the first of them does. */
typedef struct {
    wf_value *value;  /* NULL: not made yet */
    const char *name; /* of a source not made yet */
    wf_type type;
    wf_dims shape;
    int step, k; /* value k of this step; sources of the beginning have steps below 0 */
} rg_entry;

typedef struct {
    wf_graph *g;
    const rg_recipe *recipe;
    int step;       /* the one that is being added */
    wf_rng rng;     /* its decisions */
    wf_rng picking; /* its operands, which shift no decision */
    wf_rng naming;  /* which of its values are outputs and have marks */
    int made;       /* values of this step in the pool */
    int serial;     /* sources of this step */
    int taken;      /* nodes before this one are in the pool */
    double cap;     /* values larger than this are calmed before they are used */
    rg_entry pool[RG_MAX_POOL];
    int pool_count;
    wf_value *states[RG_MAX_STATES]; /* the newest version of each */
    int state_count;
    double *size; /* by node id: roughly the largest magnitude of its output 0 */
    int sized, size_cap;
} rg_maker;

typedef struct {
    const char *name;
    void (*add)(rg_maker *m);
    int weight;
    enum { RG_ANY, RG_JUMPS, RG_UPDATES, RG_JUMPING_UPDATES, RG_GRAD } kind;
} rg_step;
extern const rg_step rg_steps[]; /* a NULL name ends it */

/* ---- Decisions ---- */

/* Steps draw what they will do before they pick what they do it with. */
int64_t rg_draw(rg_maker *m, int64_t n);
static inline bool rg_chance(rg_maker *m, int64_t n)
{
    return rg_draw(m, n) == 0;
}
uint64_t rg_hash(const char *text, uint64_t salt);
/* One of the float types of the recipe, f32 more often than others. */
wf_type rg_type(rg_maker *m);

/* ---- Values ---- */

/* What a step looks for. Zeros ask for nothing, but by default values are small and calm. */
typedef struct {
    wf_type_set types; /* default: floats */
    int min_rank, max_rank;
    bool full; /* not empty */
    bool wild; /* of any magnitude */
    int64_t max_count;
    const wf_dims *shape; /* exactly */
    bool (*fits)(rg_maker *m, const wf_value *v, void *arg);
    void *arg;
} rg_want;
/* NULL when there is none. */
wf_value *rg_pick(rg_maker *m, const rg_want *want);
wf_value *rg_pick_float(rg_maker *m, int min_rank, int max_rank, int64_t max_count);
/* One that goes with a in an elementwise op: a itself in the worst case. */
wf_value *rg_partner(rg_maker *m, wf_value *a);
/* Whether nodes that are added now may read v: it shows no version of a state that was replaced. */
bool rg_readable(const rg_maker *m, const wf_value *v);
/* The newest version of a state. */
wf_value *rg_newest(const rg_maker *m, const wf_node *state);
/* Roughly the largest magnitude. */
double rg_size(rg_maker *m, const wf_value *v);
/* v, or something bounded made from it. */
wf_value *rg_settle(rg_maker *m, wf_value *v);
bool rg_has_kink(wf_op op);

/* ---- Sources ---- */

/* The input or the newest version of the state of this name, which is made when there is none. The
 * letters that begin the name decide its contents (random_run.c). */
wf_value *rg_input(rg_maker *m, const char *name, wf_type type, int rank, const int64_t *dims);
wf_value *rg_state(rg_maker *m, const char *name, wf_type type, int rank, const int64_t *dims);
/* A new state of this step. */
wf_value *rg_new_state(rg_maker *m, const char *letters, int rank, const int64_t *dims);
/* i32 rows or tokens below `limit`. */
wf_value *rg_ids(rg_maker *m, int64_t limit, int rank, const int64_t *dims);
wf_value *rg_key(rg_maker *m);
/* u8: an input that is 0 or 1, for where and for updates. */
wf_value *rg_flag(rg_maker *m);

/* Whether steps may use a source of this name as a number like any other. */
bool rg_name_is_plain(const char *name);
bool rg_name_has_limit(const char *name, double *limit);

/* Takes all nodes made so far into the pool and names outputs among them. To be called before an
 * update, after which what shows the old version cannot be read any more. */
void rg_flush(rg_maker *m);
/* After an update: nothing that shows older versions is read again. */
void rg_retire(rg_maker *m, wf_value *updated);

/* ---- Pieces that several steps use ---- */

wf_value *rg_linear(rg_maker *m, wf_value *x, int64_t to);
wf_value *rg_norm(rg_maker *m, wf_value *x);
/* Scalar f32: the loss of a head over x [..., C]. */
wf_value *rg_head(rg_maker *m, wf_value *x);
void rg_add_assign(rg_maker *m);
void rg_add_adamw(rg_maker *m);
void rg_add_sgd(rg_maker *m);
void rg_add_lion(rg_maker *m);
void rg_add_grad(rg_maker *m);

#endif
