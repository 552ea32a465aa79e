/* SPDX-License-Identifier: MIT */
/*
 * model_fixture.c - reads the references of the tiny checkpoints, and runs models to compare with
 * them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "model_fixture.h"
#include "support.h"

const char *const wt_models[] = {"gpt2",
                                 "llama",
                                 "llama-bias",
                                 "mistral",
                                 "qwen2",
                                 "qwen3",
                                 "mistral3-text",
                                 "mistral3",
                                 "mistral3-mistral",
                                 "phi3",
                                 "phi3-short",
                                 "phi3-long",
                                 "olmo2",
                                 "olmo3",
                                 "smollm3",
                                 "granite",
                                 "glm4",
                                 "cohere2",
                                 NULL};

enum { EARLIER = 6 };

const char *const *const wt_later_models = wt_models + EARLIER;

int wt_later_count(void)
{
    return (int)(sizeof wt_models / sizeof *wt_models) - EARLIER - 1;
}

static int32_t *read_ids(const wf_json_node *list, size_t *count)
{
    assert_non_null(list);
    int32_t *ids = malloc(list->count * sizeof *ids + 1);
    for (size_t i = 0; i < list->count; i++)
        ids[i] = (int32_t)list->child[i].integer;
    *count = list->count;
    return ids;
}

/* Reads the prompt, greedy tokens and logits that make_models.py wrote next to the checkpoint. */
void wt_reference_read(const char *name, wt_reference *out)
{
    wf_ctx *ctx;
    wf_arena arena;
    wf_json_node *json;
    char path[160], *text;
    size_t bytes;
    *out = (wt_reference){0};
    snprintf(out->path, sizeof out->path, WT_MODELS_FOLDER "/%s", name);
    wt_ok(NULL, wf_ctx_new(&ctx));
    snprintf(path, sizeof path, "%s/reference.json", out->path);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, &bytes));
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_json_parse(&arena, path, text, bytes, &json));
    out->prompt = read_ids(wf_json_get(json, "prompt"), &out->prompt_count);
    out->greedy = read_ids(wf_json_get(json, "greedy"), &out->greedy_count);
    wf_mem_free(ctx, text);
    wf_arena_free(&arena);

    snprintf(path, sizeof path, "%s/logits.f32", out->path);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &text, &bytes));
    out->vocab = (int64_t)(bytes / sizeof(float) / out->prompt_count);
    out->logits = malloc(bytes);
    memcpy(out->logits, text, bytes);
    wf_mem_free(ctx, text);
    wf_ctx_free(ctx);
}

void wt_reference_free(wt_reference *r)
{
    free(r->prompt);
    free(r->greedy);
    free(r->logits);
}

double wt_relative(const float *got, const float *want, int64_t n)
{
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= 1e30))
            return INFINITY;
        worst = fmax(worst, d);
        largest = fmax(largest, fabs(want[i]));
    }
    return worst / largest;
}

typedef struct {
    float *to;
    size_t next;
} collector;

static wf_status collect(void *user, size_t i, const float *logits, size_t vocab)
{
    collector *c = user;
    assert_int_equal(i, c->next++);
    memcpy(c->to + i * vocab, logits, vocab * sizeof *logits);
    return WF_OK;
}

float *wt_logits(wf_ctx *ctx, wf_engine *e, const int32_t *ids, size_t count, int64_t vocab)
{
    collector c = {malloc(count * (size_t)vocab * sizeof(float)), 0};
    wt_ok(ctx, wf_engine_logits(e, ids, count, 0, collect, &c));
    assert_int_equal(c.next, count);
    return c.to;
}

void wt_greedy(wf_ctx *ctx, wf_engine *e, const int32_t *prompt, size_t count, int32_t *ids,
               size_t n)
{
    const wf_request request = {.limit = (int64_t)n, .ignore_end = true};
    wf_sequence *s;
    bool busy = true;
    wt_ok(ctx, wf_engine_submit(e, prompt, count, &request, &s));
    while (busy)
        wt_ok(ctx, wf_engine_step(e, &busy));
    size_t total, before;
    const int32_t *all = wf_sequence_tokens(s, &total, &before);
    assert_int_equal(before, count);
    assert_int_equal(total, count + n);
    assert_int_equal(wf_sequence_stop(s), WF_STOP_LIMIT);
    memcpy(ids, all + before, n * sizeof *ids);
    wf_sequence_free(s);
}

wt_talker wt_talker_open(wf_ctx *ctx, const char *device, const char *path,
                         const wf_engine_options *options)
{
    static const wf_engine_options usual = {.kv = WF_KV_F32};
    wt_talker t = {.ctx = ctx};
    wt_ok(ctx, wf_device_open(ctx, device, &t.device));
    wt_ok(ctx, wf_model_open(ctx, path, &t.model));
    wt_ok(ctx, wf_engine_new(t.device, t.model, options ? options : &usual, &t.engine));
    return t;
}

void wt_talker_close(wt_talker *t)
{
    wf_engine_free(t->engine);
    wf_model_close(t->model);
    wf_device_close(t->device);
}
