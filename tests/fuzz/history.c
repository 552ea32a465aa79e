/* SPDX-License-Identifier: MIT */
/* history.c - logs of training runs (train/history.h), and the charts drawn from them. */
#include "fuzz.h"

#include "base/mem.h"
#include "train/chart.h"

static void check_order(const wf_history *h)
{
    for (int i = 1; i < h->count; i++) {
        fuzz_check(h->steps[i].step > h->steps[i - 1].step);
        fuzz_check(h->steps[i].seconds >= h->steps[i - 1].seconds);
    }
    for (int i = 1; i < h->valid_count; i++)
        fuzz_check(h->valids[i].step > h->valids[i - 1].step);
    fuzz_check(h->count == 0 || h->steps[0].step >= 0);
}

static void draw(wf_ctx *ctx, const wf_history *h, const wf_chart_options *o)
{
    const wf_chart_run runs[] = {{"a", h}, {"b", h}};
    for (int n = 1; n <= 2; n++) {
        char *svg;
        size_t bytes;
        if (!fuzz_ok(ctx, wf_chart_draw(ctx, runs, n, o, &svg, &bytes)))
            return;
        fuzz_check(bytes < 100000 && wf_utf8_valid(svg, bytes));
        wf_mem_free(ctx, svg);
    }
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_history h = {.ctx = ctx};
    if (fuzz_ok(ctx, wf_history_parse(&h, "input", (const char *)data, size))) {
        check_order(&h);
        for (int x = 0; x <= WF_X_SECONDS; x++)
            for (int log_y = 0; log_y < 2; log_y++)
                draw(ctx, &h, &(wf_chart_options){(wf_curve_x)x, log_y ? 0.9 : -1, log_y != 0});
    }
    wf_history_free(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 20, 256}, data, size);
}
