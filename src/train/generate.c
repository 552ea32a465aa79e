/* SPDX-License-Identifier: MIT */
/* generate.c - see generate.h. */
#include "train/generate.h"

#include <string.h>

#include "base/mem.h"
#include "infer/engine.h"

#define MOST_TOKENS (1 << 20) /* of one sample, without its prompt */

/* ---- The engine ---- */

int64_t wf_run_sample_tokens(const wf_run_options *o)
{
    const int64_t given = o->sample_tokens, wanted = given == 0 ? WF_SAMPLE_TOKENS : given;
    const size_t prompt = o->sample_prompt ? strlen(o->sample_prompt) : 0;
    if (o->sample_every <= 0)
        return 0;
    /* A token is at least a byte. One more: an empty prompt becomes one token, and some tokenizers
     * add a space. */
    return (int64_t)(prompt < MOST_TOKENS ? prompt : MOST_TOKENS) + 1 +
           (wanted < 0             ? 0
            : wanted < MOST_TOKENS ? wanted
                                   : MOST_TOKENS);
}

static wf_engine_source source_of(const wf_setup *s, const wf_tokenizer *tokenizer)
{
    return (wf_engine_source){.ctx = s->ctx,
                              .config = &s->config,
                              .tokenizer = tokenizer,
                              .build = wf_train_weights(s, true),
                              .compute = s->options.compute};
}

/* Keys and values have the type that the model computes with, so that nothing is rounded. The pools
 * hold whole pages. */
static wf_engine_options options_of(const wf_setup *s, int64_t tokens)
{
    const wf_type compute = s->options.compute;
    const int64_t most = s->config.context;
    const int64_t paged = wf_pages_for(tokens) * WF_PAGE_TOKENS;
    return (wf_engine_options){.context = paged < most ? paged : most,
                               .kv = compute == WF_BF16  ? WF_KV_BF16
                                     : compute == WF_F16 ? WF_KV_F16
                                                         : WF_KV_F32,
                               .no_reuse = true};
}

wf_status wf_setup_sample_graph(const wf_setup *s, wf_graph **out)
{
    const wf_engine_source source = source_of(s, NULL); /* text takes no device memory */
    const wf_engine_options options = options_of(s, s->sample_tokens);
    return wf_engine_attach_graph(&source, &options, out);
}

wf_status wf_trainer_attach(wf_trainer *t, int64_t tokens)
{
    const wf_engine_source source = source_of(&t->setup, t->tokenizer);
    const wf_engine_options options = options_of(&t->setup, tokens);
    wf_engine_free(t->engine);
    t->engine = NULL;
    return wf_engine_attach(t->session, &source, &options, &t->engine);
}

/* Makes an engine for sequences of this many tokens, unless there is one. Doubles, so that growing
 * sequences compile few engines. */
static wf_status ensure_engine(wf_trainer *t, int64_t tokens)
{
    const int64_t most = t->setup.config.context;
    const int64_t have = t->engine ? t->engine->limit : 0;
    if (have >= (tokens < most ? tokens : most))
        return WF_OK;
    return wf_trainer_attach(t, tokens > 2 * have ? tokens : 2 * have);
}

/* ---- Samples ---- */

/* Copies the generated tokens, without the one that ended the text. */
static wf_status copy_ids(const wf_trainer *t, const wf_sequence *s, int32_t **ids, size_t *nids)
{
    size_t count, prompt;
    const int32_t *tokens = wf_sequence_tokens(s, &count, &prompt);
    if (wf_sequence_stop(s) == WF_STOP_END)
        count--;
    *ids = wf_mem_array(t->ctx, count - prompt, sizeof **ids);
    if (!*ids)
        return WF_ERR_MEMORY;
    *nids = count - prompt;
    memcpy(*ids, tokens + prompt, *nids * sizeof **ids);
    return WF_OK;
}

/* Runs the request to its end. */
static wf_status finish(const wf_trainer *t, const wf_sequence *s)
{
    wf_status why;
    while (wf_sequence_stop(s) == WF_UNFINISHED)
        WF_TRY(wf_engine_step(t->engine, NULL));
    const char *message = wf_sequence_error(s, &why);
    return why == WF_OK ? WF_OK : wf_fail(t->ctx, why, "%s", message);
}

wf_status wf_trainer_generate(wf_trainer *t, const int32_t *prompt, size_t count, int64_t limit,
                              const wf_sampling *sampling, int32_t **ids, size_t *nids)
{
    const wf_request request = {.limit = limit,
                                .sampling = sampling ? *sampling : (wf_sampling){0}};
    const int64_t context = t->setup.config.context;
    wf_sequence *s;
    *ids = NULL;
    *nids = 0;
    if (count < 1)
        return wf_fail(t->ctx, WF_ERR_USAGE, "the prompt is empty; give at least one token");
    if (limit < 0 || limit > MOST_TOKENS)
        return wf_fail(t->ctx, WF_ERR_USAGE, "limit is %lld, but must be 0 to %d tokens",
                       (long long)limit, MOST_TOKENS);
    if (count > (size_t)context)
        return wf_fail(t->ctx, WF_ERR_USAGE,
                       "the prompt has %zu tokens, but the model's context is %lld; shorten the "
                       "prompt",
                       count, (long long)context);
    if (limit == 0) { /* in a request it means no limit */
        *ids = wf_mem_array(t->ctx, 0, sizeof **ids);
        return *ids ? WF_OK : WF_ERR_MEMORY;
    }
    WF_TRY(ensure_engine(t, (int64_t)count + limit));
    WF_TRY(wf_engine_submit(t->engine, prompt, count, &request, &s));
    wf_status status = finish(t, s);
    if (status == WF_OK)
        status = copy_ids(t, s, ids, nids);
    wf_sequence_free(s);
    return status;
}
