/* SPDX-License-Identifier: MIT */
/* graph.c - graphs as text: a parsed graph passes the verifier, and writing it reproduces the
 * text. */
#include "fuzz.h"

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_graph *g, *again;
    char *text, *other;
    size_t bytes, other_bytes;
    if (wf_graph_parse(ctx, (const char *)data, size, &g) != WF_OK)
        return;
    if (fuzz_ok(ctx, wf_graph_verify(g)) && fuzz_ok(ctx, wf_graph_text(g, &text, &bytes))) {
        if (fuzz_ok(ctx, wf_graph_parse(ctx, text, bytes, &again))) {
            if (fuzz_ok(ctx, wf_graph_text(again, &other, &other_bytes))) {
                fuzz_check(bytes == other_bytes && memcmp(text, other, bytes) == 0);
                wf_text_free(ctx, other);
            }
            wf_graph_free(again);
        }
        wf_text_free(ctx, text);
    }
    wf_graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 20, 1024}, data, size);
}
