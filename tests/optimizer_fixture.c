/* SPDX-License-Identifier: MIT */
/* optimizer_fixture.c - see optimizer_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "optimizer_fixture.h"
#include "support.h"

wt_optimizers wt_optimizers_open(wf_ctx *ctx)
{
    static const char path[] = "tests/fixtures/optimizers.json";
    wt_optimizers f = {.root = NULL};
    char *text;
    size_t bytes;
    wf_arena_init(&f.arena, ctx);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, &bytes));
    wt_ok(ctx, wf_json_parse(&f.arena, path, text, bytes, &f.root));
    wf_mem_free(ctx, text);
    return f;
}

void wt_optimizers_close(wt_optimizers *f)
{
    wf_arena_free(&f->arena);
}

float wt_lcg(uint64_t *x)
{
    *x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(*x >> 40) * 0x1p-23f - 1;
}
