/* SPDX-License-Identifier: MIT */
/* random_priv.h - declarations shared by the files of the random graph generator. */
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
#define RG_MAX_COUNT 2000 /* most elements of a value that later steps may read */

/* A value that steps may read, or a source that its first reader will create. */
typedef struct {
    wf_value *value;  /* NULL: not made yet */
    const char *name; /* of a source not created yet */
    wf_type type;
    wf_dims shape;
    int step, k; /* value k of this step; initial sources have negative steps */
} rg_entry;

typedef struct {
    wf_graph *g;
    const rg_recipe *recipe;
    int step;       /* the step being added */
    wf_rng rng;     /* its decisions */
    wf_rng picking; /* its operands; a separate stream, so that picking does not change decisions */
    wf_rng naming;  /* which of its values become outputs or get marks */
    int made;       /* values that this step added to the pool */
    int serial;     /* sources that this step created */
    int taken;      /* nodes below this index are in the pool */
    double cap;     /* values larger than this are bounded before use */
    rg_entry pool[RG_MAX_POOL];
    int pool_count;
    wf_value *states[RG_MAX_STATES]; /* the newest version of each */
    int state_count;
    double *size; /* by node id: estimated largest magnitude of output 0 */
    int sized, size_cap;
} rg_maker;

typedef struct {
    const char *name;
    void (*add)(rg_maker *m);
    int weight;
    enum { RG_ANY, RG_JUMPS, RG_UPDATES, RG_JUMPING_UPDATES, RG_GRAD } kind;
} rg_step;
extern const rg_step rg_steps[]; /* ends with a NULL name */

/* ---- Decisions ---- */

/* Each step draws its decisions before it picks its operands. */
int64_t rg_draw(rg_maker *m, int64_t n);
static inline bool rg_chance(rg_maker *m, int64_t n)
{
    return rg_draw(m, n) == 0;
}
uint64_t rg_hash(const char *text, uint64_t salt);
/* Returns one of the float types of the recipe; f32 is the most frequent. */
wf_type rg_type(rg_maker *m);

/* ---- Values ---- */

/* Constraints on an operand. A zero field is no constraint, but by default values are small and of
 * moderate magnitude. */
typedef struct {
    wf_type_set types; /* default: floats */
    int min_rank, max_rank;
    bool full; /* not empty */
    bool wild; /* any magnitude */
    int64_t max_count;
    const wf_dims *shape; /* exact shape */
    bool (*fits)(rg_maker *m, const wf_value *v, void *arg);
    void *arg;
} rg_want;
/* Returns NULL when no value satisfies `want`. */
wf_value *rg_pick(rg_maker *m, const rg_want *want);
wf_value *rg_pick_float(rg_maker *m, int min_rank, int max_rank, int64_t max_count);
/* Returns a second operand for an elementwise op on a, or a if no other value fits. */
wf_value *rg_partner(rg_maker *m, wf_value *a);
/* Returns whether a node added now may read v: v must not show a replaced state version. */
bool rg_readable(const rg_maker *m, const wf_value *v);
/* Returns the newest version of a state. */
wf_value *rg_newest(const rg_maker *m, const wf_node *state);
/* Returns an estimate of the largest magnitude. */
double rg_size(rg_maker *m, const wf_value *v);
/* Returns v, or a bounded function of it when v is too large. */
wf_value *rg_settle(rg_maker *m, wf_value *v);
bool rg_has_kink(wf_op op);

/* ---- Sources ---- */

/* Returns the input, or the newest version of the state, of this name, and creates it when missing.
 * The letters at the start of the name determine its contents (random_run.c). */
wf_value *rg_input(rg_maker *m, const char *name, wf_type type, int rank, const int64_t *dims);
wf_value *rg_state(rg_maker *m, const char *name, wf_type type, int rank, const int64_t *dims);
/* Creates a state that belongs to this step. */
wf_value *rg_new_state(rg_maker *m, const char *letters, int rank, const int64_t *dims);
/* An i32 input of row indices or tokens below `limit`. */
wf_value *rg_ids(rg_maker *m, int64_t limit, int rank, const int64_t *dims);
wf_value *rg_key(rg_maker *m);
/* A u8 input of 0 or 1, for where and for updates. */
wf_value *rg_flag(rg_maker *m);

/* Returns whether steps may use a source of this name as an ordinary value. */
bool rg_name_is_plain(const char *name);
bool rg_name_has_limit(const char *name, double *limit);

/* Adds all nodes created so far to the pool and chooses outputs among them. Call before an update:
 * afterwards, values that show the old version are not readable. */
void rg_flush(rg_maker *m);
/* Call after an update: drops all values that show an older version from the pool. */
void rg_retire(rg_maker *m, wf_value *updated);

/* ---- Parts that several steps use ---- */

wf_value *rg_linear(rg_maker *m, wf_value *x, int64_t to);
wf_value *rg_norm(rg_maker *m, wf_value *x);
/* Scalar f32 loss of a head over x [..., C]. */
wf_value *rg_head(rg_maker *m, wf_value *x);
void rg_add_assign(rg_maker *m);
void rg_add_adamw(rg_maker *m);
void rg_add_sgd(rg_maker *m);
void rg_add_lion(rg_maker *m);
void rg_add_grad(rg_maker *m);

#endif
