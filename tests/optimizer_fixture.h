/* SPDX-License-Identifier: MIT */
/* optimizer_fixture.h - reads tests/fixtures/optimizers.json and makes the initial values of its
 * steps. Include after cmocka.h. */
#ifndef WEFT_TESTS_OPTIMIZER_FIXTURE_H
#define WEFT_TESTS_OPTIMIZER_FIXTURE_H

#include "base/json_tree.h"

typedef struct {
    wf_arena arena;
    wf_json_node *root;
} wt_optimizers;

wt_optimizers wt_optimizers_open(wf_ctx *ctx);
void wt_optimizers_close(wt_optimizers *f);

/* Returns the next value in [-1, 1) of the LCG that the fixture scripts use; advances *x. */
float wt_lcg(uint64_t *x);

#endif
