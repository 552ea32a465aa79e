/* SPDX-License-Identifier: MIT */
/* sampling.c - see sampling.h. */
#include "cli/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/entropy.h"
#include "base/mem.h"
#include "cli/open.h"
#include "cli/prompt.h"
#include "model/sampler_order.h"

/* NAN, WF_NOT_GIVEN and -1 mean that a flag was not given. */
wf_sampling_options wf_sampling_set = {
    .temp = NAN,
    .top_p = NAN,
    .min_p = NAN,
    .repeat = NAN,
    .top_k = WF_NOT_GIVEN,
    .last = WF_NOT_GIVEN,
    .seed = -1,
    .limit = -1,
};

/* The defaults in words are those of wf_model_sampling; a test compares them. */
const wf_flag wf_sampling_flags[] = {
    {"predict", 'n', "N", "maximum number of tokens to generate; -1: no limit",
     .whole = &wf_sampling_set.limit, .range = "1,", .also = "--n-predict", .minus_one = true,
     .fallback = "-1"},
    {"seed", 's', "S", "random seed; a seed reproduces a run; -1: a fresh seed",
     .whole = &wf_sampling_set.seed, .minus_one = true, .fallback = "-1"},
    {"temp", 0, "T", "temperature; 0: always the most likely token", .real = &wf_sampling_set.temp,
     .range = "0,", .also = "--temperature", .fallback = "the model's, else 0.6"},
    {"top-k", 0, "K", "sample from the K most likely tokens; 0: from all",
     .whole = &wf_sampling_set.top_k, .fallback = "the model's, else 40"},
    {"top-p", 0, "P",
     "sample from the most likely tokens whose probabilities add up to P; 1: from all",
     .real = &wf_sampling_set.top_p, .range = "0,1", .fallback = "the model's, else 0.95"},
    {"min-p", 0, "P",
     "drop tokens less likely than P times the most likely token; 0: drop no tokens",
     .real = &wf_sampling_set.min_p, .range = "0,1", .fallback = "the model's, else 0.05"},
    {"repeat-penalty", 0, "X", "penalize recent tokens by this factor; 1: no penalty",
     .real = &wf_sampling_set.repeat, .range = "(0,", .fallback = "the model's, else 1"},
    {"frequency-penalty", 0, "X", "penalize a recent token by X for each occurrence",
     .real = &wf_sampling_set.frequency},
    {"presence-penalty", 0, "X", "penalize a recent token by X once",
     .real = &wf_sampling_set.presence},
    {"repeat-last-n", 0, "N", "number of recent tokens to penalize; -1: all; 0: no penalties",
     .whole = &wf_sampling_set.last, .minus_one = true, .fallback = "the model's, else 64"},
    {"samplers", 0, "NAMES", "samplers and their order", .text = &wf_sampling_set.samplers,
     .fallback = "the model's, else " WF_SAMPLER_ORDER},
    {"logit-bias", 'l', "ID+BIAS",
     "add BIAS to the logit of token ID, or subtract it: ID-BIAS; repeatable",
     .values = &wf_sampling_set.bias},
    {"stop", 0, "TEXT", "stop before this string; repeatable", .values = &wf_sampling_set.stop,
     .also = "-r --reverse-prompt"},
    {"ignore-eos", 0, NULL, "continue after end-of-text tokens", .on = &wf_sampling_set.ignore_end},
    {"special", 0, NULL, "print control tokens", .on = &wf_sampling_set.special, .also = "-sp"},
    {0},
};

/* 31 bits: short enough to copy by hand, and exact as a double in any JSON reader. */
int64_t wf_fresh_seed(void)
{
    return (int64_t)(wf_entropy_id() >> 33);
}

/* "15043+1.5", "15043-inf" */
static wf_status parse_bias(wf_ctx *ctx, const char *text, int64_t vocab, wf_logit_bias *out)
{
    char *end;
    long long id = strtoll(text, &end, 10);
    const char *number = end;
    double bias = strtod(number, &end);
    if (text[0] < '0' || text[0] > '9' || (*number != '+' && *number != '-') || end == number ||
        *end || isnan(bias) || bias > FLT_MAX)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--logit-bias must be ID+BIAS or ID-BIAS, such as 15043+1.5, not '%s'",
                       text);
    if (id >= vocab)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--logit-bias names token %lld, but this model has tokens 0 to %lld", id,
                       (long long)vocab - 1);
    *out = (wf_logit_bias){.token = (int32_t)id, .bias = (float)bias};
    return WF_OK;
}

static wf_status make_stops(wf_ctx *ctx, wf_sampled *s)
{
    for (int i = 0; i < wf_sampling_set.stop.count; i++) {
        char *text;
        size_t bytes;
        WF_TRY(wf_prompt_unescape(ctx, wf_sampling_set.stop.item[i], &text, &bytes));
        /* Counted one by one, so that wf_sampled_free frees exactly those that exist. */
        s->stop[s->request.stops++] = text;
    }
    return WF_OK;
}

/* Flags override the model's settings. */
static void choose(const wf_sampling_options *o, wf_sampling *s)
{
    if (!isnan(o->temp))
        s->temperature = o->temp;
    if (o->top_k >= 0)
        s->top_k = o->top_k;
    if (!isnan(o->top_p))
        s->top_p = o->top_p > 0 ? o->top_p : DBL_MIN; /* keeps one token; 0 would keep all */
    if (!isnan(o->min_p))
        s->min_p = o->min_p;
    if (!isnan(o->repeat))
        s->repeat_penalty = o->repeat;
    if (o->last != WF_NOT_GIVEN)
        s->penalty_last = o->last;
    if (o->samplers)
        s->samplers = o->samplers;
    /* A window of 0 tokens turns all penalties off. */
    bool penalties = s->penalty_last != 0;
    s->repeat_penalty = penalties ? s->repeat_penalty : 1;
    s->frequency_penalty = penalties ? o->frequency : 0;
    s->presence_penalty = penalties ? o->presence : 0;
    s->seed = (uint64_t)(o->seed < 0 ? wf_fresh_seed() : o->seed);
}

/* Checks --samplers before the model is loaded; the library would check it afterwards. */
static wf_status check_order(wf_ctx *ctx)
{
    wf_sampler_order order;
    const char *text = wf_sampling_set.samplers;
    return text ? wf_sampler_order_parse(ctx, text, strlen(text), &order) : WF_OK;
}

/* request.stop points into *out, so the result must not be copied. */
wf_status wf_sampled_make(wf_ctx *ctx, const wf_model *model, wf_sampled *out)
{
    const wf_sampling_options *o = &wf_sampling_set;
    wf_model_info info;
    wf_model_get_info(model, &info);
    *out = (wf_sampled){.request = {.limit = o->limit > 0 ? o->limit : 0,
                                    .stop = out->stop,
                                    .ignore_end = o->ignore_end,
                                    .control = o->special}};
    WF_TRY(check_order(ctx));
    for (int i = 0; i < o->bias.count; i++)
        WF_TRY(parse_bias(ctx, o->bias.item[i], info.vocab, &out->bias[i]));
    WF_TRY(make_stops(ctx, out));
    wf_sampling *s = &out->request.sampling;
    out->models = wf_model_sampling(model, s);
    choose(o, s);
    s->bias = out->bias;
    s->biases = o->bias.count;
    return WF_OK;
}

const char *wf_sampling_text(const wf_sampling *s, char out[WF_SAMPLING_TEXT])
{
    size_t len = 0;
    double top_p = s->top_p <= DBL_MIN ? 0 : s->top_p;
    wf_text_append(out, WF_SAMPLING_TEXT, &len, "temp %g", s->temperature);
    if (s->temperature > 0)
        wf_text_append(out, WF_SAMPLING_TEXT, &len, ", top-k %lld, top-p %g, min-p %g",
                       (long long)s->top_k, top_p, s->min_p);
    if (s->repeat_penalty != 1) {
        wf_text_append(out, WF_SAMPLING_TEXT, &len, ", repeat-penalty %g over ", s->repeat_penalty);
        if (s->penalty_last < 0)
            wf_text_append(out, WF_SAMPLING_TEXT, &len, "all tokens");
        else
            wf_text_append(out, WF_SAMPLING_TEXT, &len, "the last %lld token%s",
                           (long long)s->penalty_last, WF_PLURAL(s->penalty_last));
    }
    if (s->samplers)
        wf_text_append(out, WF_SAMPLING_TEXT, &len, ", samplers %s", s->samplers);
    return out;
}

void wf_sampled_say(const wf_sampled *s)
{
    char text[WF_SAMPLING_TEXT];
    if (s->models || wf_open_set.verbose)
        wf_open_say("sampling: %s", wf_sampling_text(&s->request.sampling, text));
    if (wf_sampling_set.seed < 0 && s->request.sampling.temperature > 0)
        wf_open_say("seed: %lld", (long long)s->request.sampling.seed);
}

void wf_sampled_free(wf_ctx *ctx, wf_sampled *s)
{
    for (int i = 0; i < s->request.stops; i++)
        wf_mem_free(ctx, (void *)(uintptr_t)s->stop[i]);
}

static const struct {
    const char *word, *sentence;
} stops[] = {
    [WF_UNFINISHED] = {"unfinished", "not finished"},
    [WF_STOP_END] = {"end", "end of text"},
    [WF_STOP_TEXT] = {"stop", "stop string found"},
    [WF_STOP_LIMIT] = {"limit", "token limit reached"},
    [WF_STOP_CONTEXT] = {"context", "the context is full"},
    [WF_STOP_CANCEL] = {"cancel", "cancelled"},
};

const char *wf_stop_sentence(wf_stop stop)
{
    return stops[stop].sentence;
}

const char *wf_stop_word(wf_stop stop)
{
    return stops[stop].word;
}
