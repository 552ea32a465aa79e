/* SPDX-License-Identifier: MIT */
/* imatrix.c - importance matrices: a file that passes the checks has finite sums for every matrix. */
#include "fuzz.h"

#include <math.h>

#include "model/imatrix.h"

static const wf_matrix_columns matrices[] = {
    {"blk.0.attn_q.weight", 4, 0}, {"blk.0.ffn_down.weight", 6, 0}, {"output.weight", 4, 0}};
#define MATRICES ((int)(sizeof matrices / sizeof *matrices))

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_importance m;
    wf_status status = wf_importance_read(ctx, "input", data, size, &m);
    if (status == WF_OK)
        status = wf_importance_check(&m, matrices, MATRICES);
    for (int i = 0; i < MATRICES && status == WF_OK; i++) {
        float sums[6];
        bool found = wf_importance_copy(&m, matrices[i].name, sums);
        fuzz_check(found || i == 2);
        for (int64_t k = 0; k < matrices[i].columns && found; k++)
            fuzz_check(isfinite(sums[k]) && sums[k] >= 0);
    }
    wf_importance_close(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 20, 512}, data, size);
}
