/* SPDX-License-Identifier: MIT */
/* test_tokenizer.c - tokenizers against recorded ids, against themselves, and against what is hostile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "support.h"
#include "text/token.h"

#define DATA "../shared/data/"

static wf_tokenizer *open_gguf(wf_ctx *ctx, const char *path)
{
    wf_gguf *f;
    wf_tokenizer *t;
    wt_ok(ctx, wf_gguf_open(ctx, path, &f));
    wt_ok(ctx, wf_tokenizer_from_gguf(f, &t));
    wf_gguf_close(f);
    return t;
}

/* ---- Recorded vectors ---- */

#define BREAK "\n__ggml_vocab_test__\n"

static void check_vector(wf_ctx *ctx, const wf_tokenizer *t, const char *text, size_t bytes,
                         const char *want)
{
    int32_t *ids;
    size_t count;
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, bytes, 0, &ids, &count));
    for (size_t i = 0; i < count; i++) {
        char *end;
        long id = strtol(want, &end, 10);
        if (end == want || id != ids[i])
            fail_msg("token %zu of '%.*s' is %d, not %ld", i, (int)bytes, text, (int)ids[i],
                     end == want ? -1 : id);
        want = end;
    }
    while (*want == ' ')
        want++;
    assert_true(*want == '\n' || *want == '\0');
    wf_ids_free(ctx, ids);
}

static void test_vectors(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const names[] = {"gpt-2", "llama-spm", "deepseek-coder", "starcoder"};
    wf_file_stamp stamp;
    if (!wf_file_look(DATA "tokenizers/gpt-2.gguf", &stamp)) {
        print_message("skipped: there is no " DATA "tokenizers\n");
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200], *in, *out;
        size_t in_bytes, out_bytes, n = 0;
        snprintf(path, sizeof path, DATA "tokenizers/%s.gguf", names[i]);
        wf_tokenizer *t = open_gguf(ctx, path);
        snprintf(path, sizeof path, DATA "tokenizers/%s.gguf.inp", names[i]);
        wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &in, &in_bytes));
        snprintf(path, sizeof path, DATA "tokenizers/%s.gguf.out", names[i]);
        wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &out, &out_bytes));
        const char *text = in, *want = out;
        for (; text; n++) {
            const char *end = strstr(text, BREAK);
            size_t bytes = end ? (size_t)(end - text) : in_bytes - (size_t)(text - in);
            check_vector(ctx, t, text, bytes, want);
            const char *line = strchr(want, '\n');
            want = line ? line + 1 : "";
            text = end ? end + strlen(BREAK) : NULL;
        }
        assert_true(n > 40);
        print_message("%s: %zu texts\n", names[i], n);
        wf_mem_free(ctx, in);
        wf_mem_free(ctx, out);
        wf_tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_vectors),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
