/* SPDX-License-Identifier: MIT */
/*
 * logits.c - models behind pipes, for tests in other languages: logits [DEVICE [CONTEXT]].
 *
 * CONTEXT is the engine's; the default is the model's. Longrope depends on it.
 *
 * Each line on stdin is a command; the answer goes to stdout:
 *
 *     logits GREEDY N ID... PATH   "ok COUNT", then COUNT f32 in host byte order: [number of
 *                                  IDs][vocab], then "N ID...", the N greedy tokens that follow
 *     convert FROM<tab>TO          "ok 0"
 *
 * or "failed MESSAGE". Warnings go to stderr.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"

#define MOST 256

typedef struct {
    float *value;
    size_t count, room;
} values;

static wf_status collect(void *user, size_t i, const float *logits, size_t vocab)
{
    values *v = user;
    (void)i;
    if (v->count + vocab > v->room) {
        size_t room = 2 * (v->count + vocab);
        float *more = realloc(v->value, room * sizeof *more);
        if (!more)
            return WF_ERR_MEMORY;
        v->value = more;
        v->room = room;
    }
    memcpy(v->value + v->count, logits, vocab * sizeof *logits);
    v->count += vocab;
    return WF_OK;
}

static void warn(void *user, wf_log_level level, const char *message)
{
    (void)user;
    if (level == WF_LOG_WARN)
        fprintf(stderr, "warning: %s\n", message);
}

static void print_greedy(const wf_sequence *s)
{
    size_t total, before;
    const int32_t *ids = wf_sequence_tokens(s, &total, &before);
    printf("%zu", total - before);
    for (size_t i = before; i < total; i++)
        printf(" %d", ids[i]);
    printf("\n");
}

static wf_status compute(wf_engine *e, const int32_t *ids, size_t count, int64_t greedy)
{
    const wf_request request = {.limit = greedy, .ignore_end = true};
    values v = {0};
    wf_sequence *s = NULL;
    bool busy = true;
    wf_status status = wf_engine_logits(e, ids, count, 0, collect, &v);
    if (status == WF_OK)
        status = wf_engine_submit(e, ids, count, &request, &s);
    while (status == WF_OK && busy)
        status = wf_engine_step(e, &busy);
    if (status == WF_OK) {
        printf("ok %zu\n", v.count);
        fwrite(v.value, sizeof *v.value, v.count, stdout);
        print_greedy(s);
    }
    wf_sequence_free(s);
    free(v.value);
    return status;
}

static wf_status run_logits(wf_ctx *ctx, wf_device *device, int64_t context, char *args)
{
    int32_t ids[MOST];
    size_t count = 0;
    wf_model *model = NULL;
    wf_engine *e = NULL;
    long greedy = strtol(args, &args, 10), n = strtol(args, &args, 10);
    for (; count < (size_t)n && count < MOST; count++)
        ids[count] = (int32_t)strtol(args, &args, 10);
    args += strspn(args, " ");
    /* The judges cache keys and values in f32. */
    const wf_engine_options options = {.kv = WF_KV_F32, .context = context};
    wf_status status = wf_model_open(ctx, args, &model);
    if (status == WF_OK)
        status = wf_engine_new(device, model, &options, &e);
    if (status == WF_OK)
        status = compute(e, ids, count, greedy);
    wf_engine_free(e);
    wf_model_close(model);
    return status;
}

static wf_status run_convert(wf_ctx *ctx, char *args)
{
    char *to = strchr(args, '\t');
    wf_model *model;
    if (!to)
        return WF_ERR_USAGE;
    *to++ = 0;
    wf_status status = wf_model_open(ctx, args, &model);
    if (status != WF_OK)
        return status;
    status = wf_model_convert(model, ctx, to, NULL);
    wf_model_close(model);
    if (status == WF_OK)
        printf("ok 0\n");
    return status;
}

int main(int argc, char **argv)
{
    static char line[8192];
    wf_ctx *ctx;
    wf_device *device;
    const int64_t context = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (wf_ctx_new(&ctx) != WF_OK)
        return 2;
    wf_ctx_set_log(ctx, warn, NULL);
    if (wf_device_open(ctx, argc > 1 ? argv[1] : "cpu", &device) != WF_OK) {
        fprintf(stderr, "logits: %s\n", wf_ctx_message(ctx));
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        wf_ctx_clear(ctx);
        wf_status status = WF_ERR_USAGE;
        if (strncmp(line, "logits ", 7) == 0)
            status = run_logits(ctx, device, context, line + 7);
        else if (strncmp(line, "convert ", 8) == 0)
            status = run_convert(ctx, line + 8);
        if (status != WF_OK)
            printf("failed %s\n", wf_ctx_message(ctx));
        fflush(stdout);
        fflush(stderr);
    }
    wf_device_close(device);
    wf_ctx_free(ctx);
    return 0;
}
