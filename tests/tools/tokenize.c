/* SPDX-License-Identifier: MIT */
/*
 * tokenize.c - a tokenizer behind pipes, for tests in other languages: tokenize PATH FLAGS.
 *
 * Each text on stdin is a length (u32 in host byte order) and that many bytes. The answer on stdout
 * is the number of ids, the ids, the length of the decoded text, and its bytes; all numbers are
 * u32.
 */
#include <stdio.h>
#include <stdlib.h>

#include "weft.h"

static int fail(wf_ctx *ctx)
{
    fprintf(stderr, "tokenize: %s\n", wf_ctx_message(ctx));
    return 1;
}

static void put(const void *data, size_t bytes)
{
    uint32_t length = (uint32_t)bytes;
    fwrite(&length, sizeof length, 1, stdout);
    fwrite(data, 1, bytes, stdout);
}

int main(int argc, char **argv)
{
    wf_ctx *ctx;
    wf_tokenizer *t;
    uint32_t length;
    if (argc != 3 || wf_ctx_new(&ctx) != WF_OK)
        return 2;
    if (wf_tokenizer_open(ctx, argv[1], &t) != WF_OK)
        return fail(ctx);
    uint32_t flags = (uint32_t)strtoul(argv[2], NULL, 10);
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        char *text = malloc(length + 1u), *back;
        int32_t *ids;
        size_t count, bytes;
        if (!text || fread(text, 1, length, stdin) != length)
            return 2;
        if (wf_tokenizer_encode(t, ctx, text, length, flags, &ids, &count) != WF_OK ||
            wf_tokenizer_decode(t, ctx, ids, count, flags, &back, &bytes) != WF_OK)
            return fail(ctx);
        put(ids, count * sizeof *ids);
        put(back, bytes);
        wf_ids_free(ctx, ids);
        wf_text_free(ctx, back);
        free(text);
    }
    wf_tokenizer_free(t);
    wf_ctx_free(ctx);
    return 0;
}
