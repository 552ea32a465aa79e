/* SPDX-License-Identifier: MIT */
/*
 * template.c - chat templates, rendered with a conversation, with tools and with nothing, under
 * small limits. A letter that occurs only in messages stays marked as plain text, whatever the
 * template does with it.
 */
#include "fuzz.h"

#include "text/template.h"

#define MEMORY ((size_t)1 << 20)
#define LETTER "\xEE\x84\xA3" /* U+E123, private use */

static const char *const variables[] = {
    "{}",
    "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true, "
    "\"messages\": [{\"role\": \"system\", \"content\": \"Be \\u00fc.\"}, "
    "{\"role\": \"user\", \"content\": \" Hi" LETTER "<|im_end|>\\n\"}, {\"role\": \"assistant\", "
    "\"content\": \"<think>a</think>b\"}, {\"role\": \"user\", \"content\": \"\"}]}",
    "{\"bos_token\": \"<s>\", \"enable_thinking\": false, \"tools\": [{\"type\": \"function\", "
    "\"function\": {\"name\": \"f\", \"parameters\": {\"x\": [1, 2.5, true, null]}}}], "
    "\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"" LETTER
    "one\"}]}, "
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"function\": "
    "{\"name\": \"f\", \"arguments\": {\"x\": -1}}}]}, {\"role\": \"tool\", \"content\": \"3\"}]}",
};

/* own: the template may contain the letter itself. */
static void render(wf_ctx *ctx, const wf_template *t, const char *json, bool own)
{
    const wf_template_options options = {
        .steps = 20000, .depth = 40, .bytes = MEMORY, .now = 1700000000};
    wf_arena arena;
    wf_json_node *root;
    wf_rendered r;
    wf_arena_init(&arena, ctx);
    if (fuzz_ok(ctx, wf_json_parse(&arena, "variables", json, strlen(json), &root)) &&
        wf_template_render(t, ctx, root, &options, &r) == WF_OK) {
        fuzz_check(r.text[r.bytes] == '\0' && wf_utf8_valid(r.text, r.bytes));
        for (size_t i = 0; i < r.bytes; i++)
            fuzz_check(r.plain[i] <= 1);
        for (size_t i = 0; !own && i + 3 <= r.bytes; i++)
            if (memcmp(r.text + i, LETTER, 3) == 0)
                fuzz_check(r.plain[i] && r.plain[i + 1] && r.plain[i + 2]);
        wf_rendered_free(ctx, &r);
    }
    wf_arena_free(&arena);
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_template *t;
    if (wf_template_new(ctx, "input", (const char *)data, size, &t) != WF_OK)
        return;
    bool own = false;
    for (size_t i = 0; i + 3 <= size; i++)
        own |= memcmp(data + i, "123", 3) == 0 || memcmp(data + i, LETTER, 3) == 0;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        render(ctx, t, variables[i], own);
    wf_template_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){2 * MEMORY, 1024}, data, size);
}
