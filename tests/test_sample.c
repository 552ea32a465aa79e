/* SPDX-License-Identifier: MIT */
/* test_sample.c - the sampler against a slow reference that sorts everything, and against exact
 * probabilities. test_sample_picks.c has recordings, faults and memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "infer/sample.h"
#include "support.h"

enum { LARGE = 151936 }; /* a very large vocabulary */

/* All samplers share it, with vocabularies of any size: a pick must leave nothing behind. */
static wf_sampler_scratch *scratch;

static int set_up(void **state)
{
    wt_setup(state);
    wt_ok(*state, wf_sampler_scratch_new(*state, LARGE, &scratch));
    return 0;
}

static int tear_down(void **state)
{
    wf_sampler_scratch_free(scratch);
    return wt_teardown(state);
}

#define sample_test(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static wf_sampler *make(wf_ctx *ctx, int64_t vocab, wf_sampling how)
{
    wf_sampler *s;
    wt_ok(ctx, wf_sampler_new(ctx, vocab, &how, &s));
    return s;
}

static wf_status try_pick(wf_sampler *s, const float *logits, int32_t *id)
{
    return wf_sampler_report(s, wf_sampler_pick(s, scratch, logits, id));
}

static int32_t pick(wf_ctx *ctx, wf_sampler *s, const float *logits)
{
    int32_t id = -1;
    wt_ok(ctx, try_pick(s, logits, &id));
    return id;
}

static const wf_likely *filter(wf_ctx *ctx, const wf_sampler *s, const float *logits)
{
    const wf_likely *kept;
    wt_ok(ctx, wf_sampler_report(s, wf_sampler_filter(s, scratch, logits, &kept)));
    return kept;
}

static void accept(wf_ctx *ctx, wf_sampler *s, int32_t id)
{
    wt_ok(ctx, wf_sampler_accept(s, id));
}

/* ---- Settings ---- */

static void test_settings(void **state)
{
    static const wf_logit_bias beyond = {10, 1}, below = {-1, 1}, nan_bias = {3, NAN},
                               inf_bias = {3, INFINITY};
    static const struct {
        const char *part;
        wf_sampling how;
    } bad[] = {
        {"temperature is -1", {.temperature = -1}},
        {"temperature is nan", {.temperature = NAN}},
        {"temperature is inf", {.temperature = INFINITY}},
        {"top_k is -2", {.top_k = -2}},
        {"top_p is 1.5", {.top_p = 1.5}},
        {"top_p is nan", {.top_p = NAN}},
        {"top_p is -0.1", {.top_p = -0.1}},
        {"min_p is 2", {.min_p = 2}},
        {"min_p is -1", {.min_p = -1}},
        {"repeat_penalty is -1.1", {.repeat_penalty = -1.1}},
        {"repeat_penalty is inf", {.repeat_penalty = INFINITY}},
        {"frequency_penalty is nan", {.frequency_penalty = NAN}},
        {"presence_penalty is -inf", {.presence_penalty = -INFINITY}},
        {"penalty_last is -2", {.penalty_last = -2}},
        {"penalty_last is 1048577", {.penalty_last = WF_PENALTY_MAX + 1}},
        {"bias is for token 10, ", {.bias = &beyond, .biases = 1}},
        {"bias is for token -1, ", {.bias = &below, .biases = 1}},
        {"bias of token 3 is nan", {.bias = &nan_bias, .biases = 1}},
        {"bias of token 3 is inf", {.bias = &inf_bias, .biases = 1}},
        {"biases is -1", {.biases = -1}},
        {"biases is 1", {.biases = 1}},
        {"unknown sampler 'mirostat'; use penalties;", {.samplers = "top_k;mirostat"}},
        {"unknown sampler ''", {.samplers = ";top_k"}},
        {"unknown sampler ' top_k'", {.samplers = "top_p; top_k"}},
        {"unknown sampler '\\x1b[2J'", {.samplers = "\033[2J"}},
        {"unknown sampler 'top_______", {.samplers = "top______________________________________k"}},
        {"more than 64 names",
         {.samplers = "dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;"
                      "dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;"
                      "dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;dry;"
                      "dry;dry;dry;dry;dry;dry;dry;dry"}},
        {"more than 16 samplers",
         {.samplers = "temp;temp;temp;temp;temp;temp;temp;temp;temp;temp;temp;temp;temp;temp;"
                      "temp;temp;temp"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_sampler *s = (wf_sampler *)state;
        wt_fails(*state, wf_sampler_new(*state, 10, &bad[i].how, &s), WF_ERR_USAGE, bad[i].part);
        assert_null(s);
    }
}

/* Settings at the ends of their ranges must not turn logits into NaN. */
static void test_extremes(void **state)
{
    static const wf_logit_bias bias[] = {{0, FLT_MAX}, {1, -FLT_MAX}};
    static const wf_sampling how[] = {
        {.temperature = DBL_TRUE_MIN},
        {.temperature = DBL_MAX},
        {.temperature = 1, .top_p = DBL_TRUE_MIN},
        {.temperature = 1, .min_p = 1},
        {.temperature = 1, .top_k = INT64_MAX},
        {.temperature = 1, .repeat_penalty = DBL_TRUE_MIN, .bias = bias, .biases = 2},
        {.temperature = 1, .repeat_penalty = DBL_MAX, .bias = bias, .biases = 2},
        {.temperature = 1, .frequency_penalty = DBL_MAX, .presence_penalty = DBL_MAX},
        {.temperature = 1, .frequency_penalty = DBL_MAX, .presence_penalty = -DBL_MAX},
        {.temperature = 1, .penalty_last = WF_PENALTY_MAX, .presence_penalty = -DBL_MAX},
    };
    static const float logits[4] = {FLT_MAX, -FLT_MAX, 0, -INFINITY};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        wf_sampler *s = make(*state, 4, how[i]);
        for (int32_t k = 0; k < 20; k++) {
            int32_t id = pick(*state, s, logits);
            assert_in_range(id, 0, 2);
            accept(*state, s, id);
            accept(*state, s, k % 4);
        }
        wf_sampler_free(s);
    }
}

/* ---- A single candidate, or zero ---- */

static void test_greedy(void **state)
{
    static const float logits[5] = {-1, 3, -INFINITY, 3, 2};
    static const wf_logit_bias bias[] = {{1, -0.5f}, {1, -1}, {3, -INFINITY}};
    wf_sampler *s;
    wt_ok(*state, wf_sampler_new(*state, 5, NULL, &s));
    assert_false(wf_sampler_needs_logits(s));
    assert_int_equal(pick(*state, s, logits), 1); /* the first of equals */
    wf_sampler_free(s);

    s = make(*state, 5, (wf_sampling){.temperature = 5, .top_k = 1});
    assert_false(wf_sampler_needs_logits(s));
    assert_int_equal(pick(*state, s, logits), 1);
    wf_sampler_free(s);

    s = make(*state, 5, (wf_sampling){.top_p = 0.1, .bias = bias, .biases = 1});
    assert_true(wf_sampler_needs_logits(s));
    assert_int_equal(pick(*state, s, logits), 3);
    wf_sampler_free(s);

    s = make(*state, 5, (wf_sampling){.bias = bias, .biases = 3});
    assert_int_equal(pick(*state, s, logits), 4); /* biases add up, and can exclude a token */
    wf_sampler_free(s);

    s = make(*state, 5, (wf_sampling){.presence_penalty = 2});
    assert_true(wf_sampler_needs_logits(s));
    accept(*state, s, 1);
    assert_int_equal(pick(*state, s, logits), 3);
    accept(*state, s, 3);
    assert_int_equal(pick(*state, s, logits), 4);
    wf_sampler_free(s);

    static const struct {
        wf_sampling how;
        bool needs;
    } others[] = {
        {{.temperature = 1}, true},
        {{.top_p = 0.9, .min_p = 0.1}, false},
        {{.samplers = "top_p;temperature"}, false},
        {{.samplers = "top_p"}, true}, /* temperature is not applied, which differs from 0 */
        {{.temperature = 1, .top_k = 1, .samplers = "temperature"}, true},
        {{.repeat_penalty = 2, .samplers = "temperature"}, false},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        s = make(*state, 5, others[i].how);
        assert_int_equal(wf_sampler_needs_logits(s), others[i].needs);
        wf_sampler_free(s);
    }
}

static void test_no_token(void **state)
{
    static const float with_nan[3] = {1, 2, NAN}, with_inf[3] = {1, INFINITY, 2},
                       nothing[3] = {-INFINITY, -INFINITY, -INFINITY},
                       one[3] = {-INFINITY, 2, -INFINITY};
    static const wf_logit_bias bias = {1, -INFINITY}, more = {0, 100};
    for (int mode = 0; mode < 3; mode++) {
        wf_sampling how = {.temperature = mode > 0, .top_p = mode > 1 ? 0.5 : 0};
        wf_sampler *s = make(*state, 3, how);
        int32_t id = 7;
        wt_fails(*state, try_pick(s, with_nan, &id), WF_ERR_DEVICE, "token 2 is nan");
        wt_fails(*state, try_pick(s, with_inf, &id), WF_ERR_DEVICE, "token 1 is inf");
        wt_fails(*state, try_pick(s, nothing, &id), WF_ERR_DEVICE, "all logits are -inf");
        assert_int_equal(id, 7);
        assert_int_equal(pick(*state, s, one), 1); /* a fault is not a pick */
        wf_sampler_free(s);
        how.bias = &bias;
        how.biases = 1;
        s = make(*state, 3, how);
        wt_fails(*state, try_pick(s, one, &id), WF_ERR_DEVICE, "after the biases");
        wf_sampler_free(s);
        how.bias = &more;
        s = make(*state, 3, how);
        assert_int_equal(pick(*state, s, one), 1); /* no bias makes an impossible token possible */
        wf_sampler_free(s);
    }
}

/* ---- Against a reference that keeps all rows, sorts them and counts by linear search ---- */

typedef struct {
    double logit, p; /* p: probability among the remaining rows, sums to 1; 0: dropped */
    int32_t id;
} row;

static int by_likelihood(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void normalize(row *rows, int64_t n)
{
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += rows[i].p;
    for (int64_t i = 0; i < n; i++)
        rows[i].p /= total;
}

static double penalized(double x, int32_t id, const wf_sampling *how, const int32_t *past,
                        int64_t n)
{
    int64_t last = how->penalty_last ? how->penalty_last : 64, count = 0;
    for (int64_t i = last < 0 || n < last ? 0 : n - last; i < n; i++)
        count += past[i] == id;
    if (count == 0)
        return x;
    double repeat = how->repeat_penalty ? how->repeat_penalty : 1;
    x = x > 0 ? x / repeat : x * repeat;
    return x - ((double)count * how->frequency_penalty + how->presence_penalty);
}

/* Sets the probabilities of the remaining rows from logits divided by `temperature`. */
static void soften(row *rows, int64_t vocab, double temperature)
{
    for (int64_t i = 0; i < vocab; i++)
        if (rows[i].p > 0)
            rows[i].p = exp((rows[i].logit - rows[0].logit) / temperature);
    normalize(rows, vocab);
}

/* Applies one sampler: sorts the rows, remaining ones first, and sets their probabilities. Returns
 * false when a decision is so close that rounding could change it. */
static bool step(const char *name, const wf_sampling *how, const int32_t *past, int64_t n,
                 double *temperature, row *rows, int64_t vocab)
{
    bool sure = true;
    if (strcmp(name, "penalties") == 0) {
        for (int64_t i = 0; i < vocab; i++)
            rows[i].logit = rows[i].p > 0
                                ? (float)penalized(rows[i].logit, rows[i].id, how, past, n)
                                : -INFINITY; /* dropped rows sort last */
        qsort(rows, (size_t)vocab, sizeof *rows, by_likelihood);
    } else if (strcmp(name, "temperature") == 0) {
        for (int64_t i = 1; i < vocab && how->temperature == 0; i++)
            rows[i].p = 0;
        *temperature *= how->temperature > 0 ? how->temperature : 1;
    } else if (strcmp(name, "top_k") == 0) {
        for (int64_t i = how->top_k; i < vocab && how->top_k > 0; i++)
            rows[i].p = 0;
    } else if (strcmp(name, "top_p") == 0) {
        double mass = 0;
        for (int64_t i = 0; i < vocab && how->top_p > 0 && how->top_p < 1; i++) {
            double p = rows[i].p;
            sure &= p == 0 || fabs(mass - how->top_p) > 1e-5;
            if (mass >= how->top_p)
                rows[i].p = 0;
            mass += p;
        }
    } else {
        assert_string_equal(name, "min_p");
        for (int64_t i = 0; i < vocab; i++) {
            double relative = rows[i].p / rows[0].p;
            sure &= how->min_p == 0 || how->min_p == 1 || fabs(relative / how->min_p - 1) > 1e-5;
            if (relative < how->min_p)
                rows[i].p = 0;
        }
    }
    soften(rows, vocab, *temperature);
    return sure;
}

/* Computes the rows in order of probability. Returns false like step. */
static bool reference(const float *logits, int64_t vocab, const wf_sampling *how,
                      const int32_t *past, int64_t n, row *rows)
{
    const char *names = how->samplers ? how->samplers : "penalties;top_k;top_p;min_p;temperature";
    double temperature = 1;
    bool sure = true;
    for (int64_t i = 0; i < vocab; i++) {
        double x = logits[i];
        for (int k = 0; k < how->biases; k++)
            if (how->bias[k].token == i)
                x = (float)(x + (double)how->bias[k].bias);
        rows[i] = (row){x, 1, (int32_t)i};
    }
    qsort(rows, (size_t)vocab, sizeof *rows, by_likelihood);
    soften(rows, vocab, 1);
    while (*names) {
        char name[16] = {0};
        size_t len = strcspn(names, ";");
        assert_true(len < sizeof name);
        memcpy(name, names, len);
        sure &= step(name, how, past, n, &temperature, rows, vocab);
        names += len + (names[len] == ';');
    }
    return sure;
}

/* Expects the same tokens with the same probabilities. */
static void compare(wf_ctx *ctx, wf_sampler *s, const float *logits, int64_t vocab, const row *rows)
{
    const wf_likely *kept = filter(ctx, s, logits);
    double total = 0;
    double *p = calloc((size_t)vocab, sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < kept->n; i++) {
        assert_in_range(kept->id[i], 0, vocab - 1);
        assert_true(p[kept->id[i]] == 0 && kept->value[i] > 0);
        total += p[kept->id[i]] = kept->value[i];
    }
    for (int64_t i = 0; i < vocab; i++) {
        double got = p[rows[i].id] / total;
        /* The absolute term covers weights that underflow in f32. */
        if (fabs(got - rows[i].p) > 1e-5 * rows[i].p + 1e-37)
            fail_msg("token %d, logit %.9g: probability %.9g, not %.9g", rows[i].id, rows[i].logit,
                     got, rows[i].p);
    }
    free(p);
}

static double one_of(wf_rng *rng, const double *values, uint64_t n)
{
    return values[wf_rng_below(rng, n)];
}
#define ONE_OF(rng, ...)                       \
    one_of(rng, (const double[]){__VA_ARGS__}, \
           sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

/* Half of the time the default order, else random samplers, possibly missing or repeated. */
static const char *random_order(wf_rng *rng, char out[96])
{
    static const char *const names[] = {"penalties", "top_k", "top_p", "min_p", "temperature"};
    if (wf_rng_below(rng, 2))
        return NULL;
    out[0] = '\0';
    for (uint64_t i = wf_rng_below(rng, 7); i > 0; i--) {
        strcat(out, *out ? ";" : "");
        strcat(out, names[wf_rng_below(rng, 5)]);
    }
    return out;
}

static wf_sampling random_settings(wf_rng *rng, int64_t vocab, wf_logit_bias bias[4],
                                   char order[96])
{
    wf_sampling how = {
        .temperature = ONE_OF(rng, 0, 0.3, 0.8, 1, 1, 2),
        .top_k = (int64_t)ONE_OF(rng, 0, 0, 1, 2, 5, 40, 1000),
        .top_p = ONE_OF(rng, 0, 0, 0.1, 0.5, 0.9, 0.95, 1),
        .min_p = ONE_OF(rng, 0, 0, 0.05, 0.3, 1),
        .repeat_penalty = ONE_OF(rng, 0, 1, 1.1, 1.5, 0.7),
        .frequency_penalty = ONE_OF(rng, 0, 0, 0.3, -0.2),
        .presence_penalty = ONE_OF(rng, 0, 0, 0.6, -0.5),
        .penalty_last = (int64_t)ONE_OF(rng, 0, -1, 1, 3, 17, 100),
        .bias = bias,
        .biases = (int)ONE_OF(rng, 0, 0, 1, 4),
        .samplers = random_order(rng, order),
    };
    for (int i = 0; i < how.biases; i++)
        bias[i] =
            (wf_logit_bias){(int32_t)wf_rng_below(rng, (uint64_t)vocab), (float)wf_rng_normal(rng)};
    return how;
}

/* Half of the time on a coarse grid, so that many are equal. */
static void random_logits(wf_rng *rng, float *logits, int64_t vocab)
{
    bool coarse = wf_rng_below(rng, 2) != 0;
    for (int64_t i = 0; i < vocab; i++) {
        double x = 3 * wf_rng_normal(rng);
        logits[i] = (float)(coarse ? round(x) : x);
    }
}

static void test_against_reference(void **state)
{
    enum { MOST = 300, TOKENS = 150, CASES = 400 };
    float logits[MOST];
    row rows[MOST];
    int32_t past[TOKENS];
    int compared = 0;
    for (uint64_t i = 0; i < CASES; i++) {
        wf_rng rng;
        wf_rng_init(&rng, wt_seed(), i);
        int64_t vocab = 1 + (int64_t)wf_rng_below(&rng, MOST);
        int64_t used = 1 + (int64_t)wf_rng_below(&rng, (uint64_t)vocab);
        wf_logit_bias bias[4];
        char order[96];
        wf_sampling how = random_settings(&rng, vocab, bias, order);
        wf_sampler *s = make(*state, vocab, how);
        for (int64_t n = 0; n < TOKENS; n++) {
            if (n % 10 == 0 || n < 5) {
                random_logits(&rng, logits, vocab);
                if (reference(logits, vocab, &how, past, n, rows)) {
                    compare(*state, s, logits, vocab, rows);
                    compared++;
                }
            }
            past[n] = (int32_t)wf_rng_below(&rng, (uint64_t)used);
            accept(*state, s, past[n]);
        }
        wf_sampler_free(s);
    }
    assert_true(compared > CASES * 10);
}

static void expect(wf_ctx *ctx, const wf_sampling *how, const double wanted[4])
{
    /* logarithms of probabilities, unsorted */
    const float logits[4] = {logf(0.15f), logf(0.5f), logf(0.05f), logf(0.3f)};
    double p[4] = {0}, total = 0;
    wf_sampler *s = make(ctx, 4, *how);
    const wf_likely *kept = filter(ctx, s, logits);
    for (size_t i = 0; i < kept->n; i++)
        total += p[kept->id[i]] = kept->value[i];
    for (int i = 0; i < 4; i++)
        if (fabs(p[i] / total - wanted[i]) > 1e-6)
            fail_msg("%s: token %d has probability %.9g, not %.9g",
                     how->samplers ? how->samplers : "default", i, p[i] / total, wanted[i]);
    wf_sampler_free(s);
}

/* Computed by hand for 0.5, 0.3, 0.15 and 0.05. Filters see the probabilities before the
 * temperature, as in llama.cpp. At temperature 0.5 these are squared: 0.25, 0.09, 0.0225 and
 * 0.0025, with the sum 0.365. */
static void test_order(void **state)
{
    static const struct {
        wf_sampling how;
        double wanted[4];
    } cases[] = {
        /* 0.5 + 0.3 < 0.9 <= 0.5 + 0.3 + 0.15 */
        {{.temperature = 0.5, .top_p = 0.9}, {0.0225 / 0.3625, 0.25 / 0.3625, 0, 0.09 / 0.3625}},
        /* squared first, two tokens are 0.34 / 0.365 = 0.93 */
        {{.temperature = 0.5, .top_p = 0.9, .samplers = "temperature;top_p"},
         {0, 0.25 / 0.34, 0, 0.09 / 0.34}},
        /* 0.15 >= 0.2 * 0.5, but 0.0225 < 0.2 * 0.25 */
        {{.temperature = 0.5, .min_p = 0.2}, {0.0225 / 0.3625, 0.25 / 0.3625, 0, 0.09 / 0.3625}},
        {{.temperature = 0.5, .min_p = 0.2, .samplers = "temp;min-p"},
         {0, 0.25 / 0.34, 0, 0.09 / 0.34}},
        /* of two tokens the first has 0.5 / 0.8 = 0.625; of all tokens it has 0.5 */
        {{.temperature = 1, .top_k = 2, .top_p = 0.6}, {0, 1, 0, 0}},
        {{.temperature = 1, .top_k = 2, .top_p = 0.6, .samplers = "top_p;top_k"},
         {0, 0.625, 0, 0.375}},
        /* an unnamed sampler is off; one named twice is applied twice */
        {{.temperature = 0.5, .top_k = 2, .samplers = "top_k"}, {0, 0.625, 0, 0.375}},
        {{.temperature = 0, .top_k = 2, .samplers = "top_k"}, {0, 0.625, 0, 0.375}},
        {{.temperature = 0.5, .samplers = ""}, {0.15, 0.5, 0.05, 0.3}},
        {{.temperature = 0.70710678118654752,
          .top_k = 2,
          .samplers = "temperature;top_k;temperature"},
         {0, 0.25 / 0.34, 0, 0.09 / 0.34}},
        /* llama.cpp's complete list, and its other spellings */
        {{.temperature = 0.5,
          .top_p = 0.9,
          .samplers = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"},
         {0.0225 / 0.3625, 0.25 / 0.3625, 0, 0.09 / 0.3625}},
        {{.temperature = 0.5, .top_p = 0.9, .samplers = "TEMP;nucleus;top-k;topk"},
         {0, 0.25 / 0.34, 0, 0.09 / 0.34}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(*state, &cases[i].how, cases[i].wanted);
}

/* A very large vocabulary, with peaked, flat and sorted logits. */
static void test_large(void **state)
{
    enum { VOCAB = LARGE };
    static float logits[VOCAB];
    static row rows[VOCAB];
    static const wf_sampling how[] = {
        {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05},
        {.temperature = 1, .top_p = 0.9},
        {.temperature = 1, .min_p = 0.01},
        {.temperature = 1, .top_k = 100000},
    };
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1u << 20);
    for (int shape = 0; shape < 3; shape++)
        for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
            for (int64_t k = 0; k < VOCAB; k++)
                logits[k] = shape == 0   ? (float)(3 * wf_rng_normal(&rng))
                            : shape == 1 ? 0.5f
                                         : (float)k * 1e-4f;
            wf_sampler *s = make(*state, VOCAB, how[i]);
            if (reference(logits, VOCAB, &how[i], NULL, 0, rows))
                compare(*state, s, logits, VOCAB, rows);
            wf_sampler_free(s);
        }
}

/* Computes the penalties apart from the sampler, by counting. A sampler without them must then keep
 * the same candidates with the same weights, and pick the same tokens. */
static void test_penalties(void **state)
{
    enum { MOST = 300, TOKENS = 200, CASES = 100 };
    float logits[MOST], lower[MOST], weight[MOST];
    int32_t past[TOKENS], ids[MOST];
    for (uint64_t i = 0; i < CASES; i++) {
        wf_rng rng;
        wf_rng_init(&rng, wt_seed(), (1u << 22) + i);
        int64_t vocab = 1 + (int64_t)wf_rng_below(&rng, MOST);
        wf_logit_bias bias[4];
        char order[96];
        wf_sampling how = random_settings(&rng, vocab, bias, order);
        how.biases = 0; /* they come before the penalties */
        how.samplers = NULL;
        how.seed = i;
        wf_sampling plain = how;
        plain.repeat_penalty = plain.frequency_penalty = plain.presence_penalty = 0;
        wf_sampler *s = make(*state, vocab, how), *without = make(*state, vocab, plain);
        for (int64_t n = 0; n < TOKENS; n++) {
            random_logits(&rng, logits, vocab);
            for (int64_t k = 0; k < vocab; k++)
                lower[k] = (float)penalized(logits[k], (int32_t)k, &how, past, n);
            const wf_likely *kept = filter(*state, s, logits);
            size_t count = kept->n;
            memcpy(ids, kept->id, count * sizeof *ids);
            memcpy(weight, kept->value, count * sizeof *weight);
            kept = filter(*state, without, lower);
            assert_int_equal(kept->n, count);
            assert_memory_equal(kept->id, ids, count * sizeof *ids);
            assert_memory_equal(kept->value, weight, count * sizeof *weight);
            past[n] = pick(*state, s, logits);
            assert_int_equal(pick(*state, without, lower), past[n]);
            if (wf_rng_below(&rng, 2))
                past[n] = (int32_t)wf_rng_below(&rng, (uint64_t)vocab);
            accept(*state, s, past[n]);
        }
        wf_sampler_free(s);
        wf_sampler_free(without);
    }
}

/* ---- Draws ---- */

/* Chi-squared of N draws against the expected frequencies. */
static void test_frequencies(void **state)
{
    enum { VOCAB = 12, DRAWS = 20000 };
    static const float logits[VOCAB] = {0.5f, -1, 2, 2, 0, 1, -INFINITY, 0.1f, -0.5f, 3, 1.5f, -2};
    static const wf_sampling settings[] = {
        {.temperature = 1},
        {.temperature = 0.5},
        {.temperature = 3},
        {.temperature = 1, .top_k = 4},
        {.temperature = 1, .top_p = 0.7},
        {.temperature = 1, .min_p = 0.1},
        {.temperature = 1.5, .top_k = 8, .top_p = 0.9, .min_p = 0.15},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        wf_sampling how = settings[i];
        how.seed = wt_seed() + i;
        row rows[VOCAB];
        reference(logits, VOCAB, &how, NULL, 0, rows);
        int seen[VOCAB] = {0};
        wf_sampler *s = make(*state, VOCAB, how);
        for (int k = 0; k < DRAWS; k++)
            seen[pick(*state, s, logits)]++;
        wf_sampler_free(s);
        double chi = 0;
        for (int k = 0; k < VOCAB; k++) {
            double wanted = DRAWS * rows[k].p, got = seen[rows[k].id];
            if (rows[k].p == 0)
                assert_true(got == 0);
            else
                chi += (got - wanted) * (got - wanted) / wanted;
        }
        /* at most 10 degrees of freedom: a correct sampler exceeds 66 once in 10^9 runs */
        if (chi > 66)
            fail_msg("settings %zu: chi-square %g", i, chi);
    }
}

/* Draws of neighbouring seeds, and consecutive draws of one seed, are independent. */
static void test_independence(void **state)
{
    static const float logits[2] = {0, 0};
    int along = 0, across = 0, before = 0;
    wf_sampler *a = make(*state, 2, (wf_sampling){.temperature = 1, .seed = wt_seed()});
    for (uint64_t i = 0; i < 10000; i++) {
        wf_sampler *b = make(*state, 2, (wf_sampling){.temperature = 1, .seed = wt_seed() + i});
        int first = pick(*state, b, logits), now = pick(*state, a, logits);
        across += first == pick(*state, b, logits);
        along += now == before;
        before = now;
        wf_sampler_free(b);
    }
    wf_sampler_free(a);
    assert_in_range(across, 5000 - 350, 5000 + 350); /* seven standard deviations */
    assert_in_range(along, 5000 - 350, 5000 + 350);
}

static void test_repeats(void **state)
{
    enum { VOCAB = 50, N = 200, FROM = 77 };
    static float logits[N][VOCAB];
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1u << 21);
    for (int i = 0; i < N; i++)
        random_logits(&rng, logits[i], VOCAB);
    wf_sampling how = {.temperature = 1, .top_p = 0.9, .repeat_penalty = 1.2, .seed = wt_seed()};
    int32_t alone[N];
    wf_sampler *s = make(*state, VOCAB, how);
    for (int i = 0; i < N; i++) {
        alone[i] = pick(*state, s, logits[i]);
        accept(*state, s, alone[i]);
    }
    wf_sampler_free(s);

    /* The same draws while another sampler is in use. */
    wf_sampler *other = make(*state, VOCAB, (wf_sampling){.temperature = 2, .seed = how.seed});
    s = make(*state, VOCAB, how);
    int differ = 0;
    for (int i = 0; i < N; i++) {
        differ += pick(*state, other, logits[i]) != alone[i];
        int32_t id = pick(*state, s, logits[i]);
        assert_int_equal(id, alone[i]);
        accept(*state, s, id);
        accept(*state, other, id);
    }
    assert_true(differ > 0);
    wf_sampler_free(other);
    wf_sampler_free(s);

    /* And when another sampler continues. */
    s = make(*state, VOCAB, how);
    for (int i = 0; i < FROM; i++)
        accept(*state, s, alone[i]);
    wf_sampler_seek(s, FROM);
    for (int i = FROM; i < N; i++) {
        assert_int_equal(pick(*state, s, logits[i]), alone[i]);
        accept(*state, s, alone[i]);
    }
    wf_sampler_free(s);

    how.seed++;
    s = make(*state, VOCAB, how);
    differ = 0;
    for (int i = 0; i < N; i++)
        differ += pick(*state, s, logits[i]) != alone[i];
    assert_true(differ > 0);
    wf_sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        sample_test(test_settings),
        sample_test(test_extremes),
        sample_test(test_greedy),
        sample_test(test_no_token),
        sample_test(test_against_reference),
        sample_test(test_order),
        sample_test(test_large),
        sample_test(test_penalties),
        sample_test(test_frequencies),
        sample_test(test_independence),
        sample_test(test_repeats),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
