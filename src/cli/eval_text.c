/* SPDX-License-Identifier: MIT */
/*
 * eval_text.c - loss and perplexity of a model on a text.
 *
 * The text is split into windows of context tokens that do not overlap. If the tokenizer adds bos,
 * every window begins with bos and all tokens of the text count; otherwise the first token of each
 * window has no prediction and does not count.
 */
#include <math.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/eval.h"
#include "cli/eval_compare.h"
#include "cli/progress.h"
#include "cli/text_ids.h"

#define TEXT_MOST ((size_t)1 << 30) /* bytes; the ids stay in memory */

typedef struct {
    wf_open *e;
    const wf_eval_options *o;
    int32_t *ids; /* of the text */
    size_t *end;  /* [count] offset in bytes where the token's text ends */
    size_t count;
    int32_t bos;     /* put before every window; -1: none */
    int32_t *window; /* [context] */
    /* state of the run */
    wf_progress progress;
    size_t at;                      /* index of the window's first token in ids */
    size_t length;                  /* of the window, bos included */
    size_t windows, counted, bytes; /* windows run; tokens and bytes that were predicted */
    double nats;                    /* sum of -log p */
    wf_comparison comparison;       /* with o->against */
} evaluation;

/* ---- The text ---- */

/* Computes v->end. A character of several tokens counts with the last of them. */
static wf_status measure(evaluation *v)
{
    const wf_open *e = v->e;
    wf_decoder *decoder;
    const char *text;
    size_t bytes, sum = 0;
    v->end = wf_mem_array(e->ctx, v->count, sizeof *v->end);
    if (!v->end)
        return WF_ERR_MEMORY;
    WF_TRY(wf_decoder_new(e->tokenizer, e->ctx, WF_TEXT_CONTROL, &decoder));
    wf_status status = WF_OK;
    for (size_t i = 0; i < v->count && status == WF_OK; i++) {
        status = wf_decoder_next(decoder, v->ids[i], &text, &bytes);
        v->end[i] = sum += status == WF_OK ? bytes : 0;
    }
    wf_decoder_free(decoder);
    return status;
}

static wf_status read_text(evaluation *v)
{
    wf_open *e = v->e;
    wf_ids_list list = {.ctx = e->ctx, .most = v->o->limit > 0 ? (size_t)v->o->limit : 0};
    wf_text_ids text = {.ctx = e->ctx,
                        .tokenizer = e->tokenizer,
                        .most = TEXT_MOST,
                        .fn = wf_ids_list_add,
                        .user = &list};
    wf_status status = wf_text_ids_file(&text, v->o->file);
    v->ids = list.ids;
    v->count = list.most > 0 && list.count > list.most ? list.most : list.count;
    WF_TRY(status);
    WF_TRY(wf_eval_bos(e, &v->bos));
    if (v->count < (v->bos < 0 ? 2 : 1))
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "'%s' has %zu token%s: too few to predict one; give a longer text",
                       v->o->file, v->count, WF_PLURAL(v->count));
    if (e->context < 2)
        return wf_fail(e->ctx, WF_ERR_USAGE, "--ctx-size must be at least 2 tokens");
    v->window = wf_mem_array(e->ctx, (size_t)e->context, sizeof *v->window);
    return v->window ? measure(v) : WF_ERR_MEMORY;
}

/* ---- Windows ---- */

/* Logits after token i of the window predict token i + 1. */
static wf_status add_loss(void *user, size_t i, const float *logits, size_t vocab)
{
    evaluation *v = user;
    if (i + 1 >= v->length)
        return WF_OK;
    /* The index in ids of the predicted token: bos shifts the window by one. */
    size_t place = v->at + i + (v->bos < 0);
    const double nats = wf_eval_nats(logits, vocab, v->window[i + 1]);
    v->nats += nats;
    if (v->o->against)
        wf_comparison_add(&v->comparison, i, logits, v->window[i + 1], nats);
    v->counted++;
    v->bytes += v->end[place] - (place > 0 ? v->end[place - 1] : 0);
    if (!wf_open_set.quiet)
        wf_progress_update(&v->progress, (int64_t)place + 1);
    return WF_OK;
}

static wf_status run_windows(evaluation *v)
{
    size_t room = (size_t)v->e->context - (v->bos >= 0);
    if (!wf_open_set.quiet)
        wf_progress_begin(&v->progress, "tokens", WF_PROGRESS_ITEMS, (int64_t)v->count);
    for (v->at = 0; v->at < v->count; v->at += room) {
        size_t n = v->count - v->at < room ? v->count - v->at : room;
        v->length = 0;
        if (v->bos >= 0)
            v->window[v->length++] = v->bos;
        for (size_t i = 0; i < n; i++)
            v->window[v->length++] = v->ids[v->at + i];
        wf_status status = WF_OK;
        if (v->o->against)
            status = wf_comparison_window(&v->comparison, v->window, v->length);
        if (status == WF_OK)
            status = wf_engine_logits(v->e->engine, v->window, v->length, 0, add_loss, v);
        if (status != WF_OK && !wf_open_set.quiet)
            wf_progress_clear(&v->progress);
        WF_TRY(status);
        v->windows++;
    }
    v->progress.done = (int64_t)v->count;
    if (!wf_open_set.quiet)
        wf_progress_end(&v->progress);
    return WF_OK;
}

/* ---- Results ---- */

static void print_comparison(const wf_comparison *c, size_t counted)
{
    const double count = (double)counted;
    printf("--against    perplexity %.4f\n", exp(c->nats / count));
    printf("KL           %.6f nats per token\n", c->kl / count);
    printf("same token   %.2f%% (the most likely one)\n", 100 * (double)c->same / count);
}

static void print_results(const evaluation *v)
{
    double loss = v->nats / (double)v->counted;
    printf("loss         %.4f nats per token\n", loss);
    printf("perplexity   %.4f\n", exp(loss));
    if (v->bytes > 0)
        printf("bits/byte    %.4f\n", v->nats / log(2) / (double)v->bytes);
    if (v->o->against)
        print_comparison(&v->comparison, v->counted);
    printf("counted      %zu of %zu token%s, %zu byte%s, in %zu window%s of %lld tokens, %s\n",
           v->counted, v->count, WF_PLURAL(v->count), v->bytes, WF_PLURAL(v->bytes), v->windows,
           WF_PLURAL(v->windows), (long long)v->e->context,
           v->bos >= 0       ? "each after bos"
           : v->windows == 1 ? "without the first token"
                             : "without their first tokens");
}

static void put_real(wf_json *j, const char *key, double value)
{
    wf_json_key(j, key);
    wf_json_double(j, value);
}

static void put_comparison(wf_json *j, const wf_comparison *c, size_t counted)
{
    put_real(j, "against_perplexity", exp(c->nats / (double)counted));
    put_real(j, "kl_divergence", c->kl / (double)counted);
    put_real(j, "same_top_token", (double)c->same / (double)counted);
}

static void print_json(const evaluation *v)
{
    const struct {
        const char *key;
        double value;
    } reals[] = {{"loss", v->nats / (double)v->counted},
                 {"perplexity", exp(v->nats / (double)v->counted)},
                 {"bits_per_byte", v->bytes ? v->nats / log(2) / (double)v->bytes : NAN}};
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"counted_tokens", (int64_t)v->counted},
                  {"tokens", (int64_t)v->count},
                  {"counted_bytes", (int64_t)v->bytes},
                  {"windows", (int64_t)v->windows},
                  {"context", v->e->context}};
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        put_real(&j, reals[i].key, reals[i].value);
    if (v->o->against)
        put_comparison(&j, &v->comparison, v->counted);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        wf_json_key(&j, counts[i].key);
        wf_json_int(&j, counts[i].value);
    }
    wf_json_key(&j, "bos");
    wf_json_bool(&j, v->bos >= 0);
    wf_json_object_end(&j);
    wf_json_end(&j);
}

static size_t longest_window(const evaluation *v)
{
    const size_t all = v->count + (v->bos >= 0), most = (size_t)v->e->context;
    return all < most ? all : most;
}

static wf_status evaluate(evaluation *v)
{
    WF_TRY(read_text(v));
    if (v->o->against)
        WF_TRY(wf_comparison_begin(&v->comparison, v->e, v->o->against, longest_window(v)));
    WF_TRY(wf_open_load(v->e, 1, WF_EVAL_ROWS));
    WF_TRY(run_windows(v));
    (v->o->json ? print_json : print_results)(v);
    return WF_OK;
}

wf_status wf_eval_text(wf_open *e, const wf_eval_options *o)
{
    evaluation v = {.e = e, .o = o};
    wf_status status = evaluate(&v);
    wf_ids_free(e->ctx, v.ids);
    wf_mem_free(e->ctx, v.end);
    wf_mem_free(e->ctx, v.window);
    wf_comparison_end(&v.comparison);
    return status;
}
