/* SPDX-License-Identifier: MIT */
/*
 * render_templates.c - renders chat templates for tests/oracle/templates.py.
 *
 * Each line of stdin is a JSON object with "template", "variables" and optionally "now". Each line
 * of stdout is {"text": ..., "plain": "0110..."} or {"error": ...}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "text/template.h"

static void put_string(const char *text, size_t bytes)
{
    putchar('"');
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == '"' || c == '\\')
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static wf_status answer(wf_ctx *ctx, const wf_json_node *job)
{
    const wf_json_node *text = wf_json_get(job, "template");
    wf_template_options options = {.now = wf_json_get_int(job, "now", 0)};
    wf_template *t = NULL;
    wf_rendered out = {0};
    wf_status status = wf_template_new(ctx, "template", text->string, text->bytes, &t);
    if (status == WF_OK)
        status = wf_template_render(t, ctx, wf_json_get(job, "variables"), &options, &out);
    if (status == WF_OK) {
        printf("{\"text\": ");
        put_string(out.text, out.bytes);
        printf(", \"plain\": \"");
        for (size_t i = 0; i < out.bytes; i++)
            putchar(out.plain[i] ? '1' : '0');
        printf("\"}\n");
    }
    wf_rendered_free(ctx, &out);
    wf_template_free(t);
    return status;
}

int main(void)
{
    wf_ctx *ctx;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    if (wf_ctx_new(&ctx) != WF_OK)
        return 1;
    while ((n = getline(&line, &room, stdin)) > 0) {
        wf_arena arena;
        wf_json_node *job;
        wf_arena_init(&arena, ctx);
        wf_status status = wf_json_parse(&arena, "job", line, (size_t)n, &job);
        if (status == WF_OK)
            status = answer(ctx, job);
        if (status != WF_OK) {
            printf("{\"error\": ");
            put_string(wf_ctx_message(ctx), strlen(wf_ctx_message(ctx)));
            printf("}\n");
        }
        fflush(stdout);
        wf_arena_free(&arena);
    }
    free(line);
    wf_ctx_free(ctx);
    return 0;
}
