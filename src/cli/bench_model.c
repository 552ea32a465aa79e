/* SPDX-License-Identifier: MIT */
/*
 * bench_model.c - weft bench MODEL: measures prefill and decode like llama-bench.
 *
 * Each test runs once to warm up (page faults, packing of weights) and then `repeats` times. The
 * machine's peak is measured last, after the engine is freed: it needs much memory itself, and
 * would raise the peak of resident memory that is reported.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "bench/generate.h"
#include "bench/profile.h"
#include "cli/bench.h"
#include "cli/open.h"
#include "cli/progress.h"

enum { PROMPT, GENERATED, RUNS };

typedef struct {
    const char *mode; /* "model" measures both tests */
    wf_open open;
    wf_bench_run run[RUNS]; /* 0 tokens: not measured */
    wf_bench_times times[RUNS];
    wf_bench_work work[RUNS];
    wf_bench_profile profile[RUNS];
    int repeats;
    double load;        /* seconds to load the model */
    double packing;     /* seconds of weight packing in the first runs */
    double first[RUNS]; /* seconds of the warmup run, packing included */
    size_t planned;     /* bytes, including mapped weights */
    uint64_t resident;  /* peak bytes */
} job;

/* ---- Arguments ---- */

/* Sets the tests from mode and flags; 0 tokens leave a test out. */
static wf_status choose(wf_ctx *ctx, job *t)
{
    const wf_bench_options *o = &wf_bench_set;
    const int64_t depth = o->depth > 0 ? o->depth : 0, n_seq = o->parallel > 0 ? o->parallel : 1;
    bool both = strcmp(t->mode, "model") == 0;
    int64_t p = o->prompt >= 0 ? o->prompt : 512, n = o->generated >= 0 ? o->generated : 128;
    t->repeats = o->repeats >= 0 ? (int)o->repeats : 3;
    t->run[PROMPT] = (wf_bench_run){.prompt = true,
                                    .depth = depth,
                                    .tokens = both || strcmp(t->mode, "prefill") == 0 ? p : 0,
                                    .sequences = n_seq,
                                    .shared = o->shared > 0 ? o->shared : 0,
                                    .logits = o->logits};
    t->run[GENERATED] = (wf_bench_run){.depth = depth,
                                       .tokens = both || strcmp(t->mode, "decode") == 0 ? n : 0,
                                       .sequences = n_seq};
    if (o->slots >= 0 && o->slots < n_seq)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--slots %lld is less than --parallel %lld; use --slots %lld or more",
                       (long long)o->slots, (long long)n_seq, (long long)n_seq);
    if (o->no_reuse && depth > 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--no-reuse and --depth %lld exclude each other; give one of them",
                       (long long)depth);
    if (t->run[PROMPT].tokens == 0 && t->run[GENERATED].tokens == 0)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "there is nothing to measure: --n-prompt and --n-gen are both 0; raise one of them");
    return WF_OK;
}

/* Uses the smallest context: the page table, and the work of attention, grow with it. */
static wf_status choose_context(job *t)
{
    wf_open *e = &t->open;
    int64_t need = 0;
    for (int i = 0; i < RUNS; i++)
        if (t->run[i].tokens > 0 && wf_bench_run_context(&t->run[i]) > need)
            need = wf_bench_run_context(&t->run[i]);
    if (need > e->info.context)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "%lld tokens exceed the context of %s, which is %lld; give fewer "
                       "(--n-prompt, --n-gen, --depth)",
                       (long long)need, WF_SHOWN(e->info.name), (long long)e->info.context);
    if (wf_open_set.context > 0 && need > e->asked)
        return wf_fail(
            e->ctx, WF_ERR_USAGE,
            "%lld tokens exceed --ctx-size %lld; give fewer (--n-prompt, --n-gen, --depth)",
            (long long)need, (long long)e->asked);
    if (wf_open_set.context < 0)
        WF_TRY(wf_open_limit(e, need));
    if (e->context < need)
        return wf_fail(
            e->ctx, WF_ERR_USAGE,
            "a sequence of %lld tokens exceeds the KV cache of %lld; use --cache-tokens %lld",
            (long long)need, (long long)e->context, (long long)need);
    return WF_OK;
}

/* ---- Measuring ---- */

/* Returns the seconds spent packing weights so far. */
static double packing(const job *t)
{
    wf_engine_stats s;
    wf_engine_get_stats(t->open.engine, &s);
    return (double)s.packing_nanoseconds / 1e9;
}

/* Profiles the executables that the engine has compiled. */
static wf_status begin_profile(job *t, wf_bench_profile *p)
{
    const wf_engine *e = t->open.engine;
    wf_exec **exec = wf_arena_alloc(&t->open.arena, (size_t)e->buckets * sizeof *exec);
    if (!exec)
        return WF_ERR_MEMORY;
    for (int k = 0; k < e->buckets; k++)
        exec[k] = e->bucket[k].exec;
    WF_TRY(wf_bench_profile_new(exec, e->buckets, p));
    wf_bench_profile_start(p);
    return WF_OK;
}

/* Runs twice while the device times each op, which may slow it down. The first run compiles the
 * executables that slower runs need. */
static wf_status profile(job *t, int i)
{
    double seconds;
    t->open.device->timed = true;
    wf_status status = wf_bench_run_time(t->open.engine, &t->run[i], &seconds);
    if (status == WF_OK)
        status = begin_profile(t, &t->profile[i]);
    if (status == WF_OK)
        status = wf_bench_run_time(t->open.engine, &t->run[i], &seconds);
    t->open.device->timed = false;
    if (status == WF_OK)
        wf_bench_profile_end(&t->profile[i], 1);
    return status;
}

static wf_status measure(job *t)
{
    static const char *const labels[] = {"prompt", "generated"};
    for (int i = 0; i < RUNS; i++) {
        const wf_bench_run *r = &t->run[i];
        wf_engine *g = t->open.engine;
        wf_progress progress;
        if (r->tokens == 0)
            continue;
        wf_progress_begin(&progress, labels[i], WF_PROGRESS_ITEMS, (t->repeats + 1) * r->tokens);
        for (int k = 0; k <= t->repeats; k++) {
            double seconds;
            wf_status status = wf_bench_run_time(g, r, &seconds);
            if (k > 0)
                wf_bench_times_add(&t->times[i], seconds);
            t->first[i] = k == 0 ? seconds : t->first[i];
            if (status != WF_OK) {
                wf_progress_clear(&progress);
                return status;
            }
            wf_progress_update(&progress, (k + 1) * r->tokens);
        }
        wf_progress_clear(&progress);
        if (wf_bench_set.ops)
            WF_TRY(profile(t, i));
        wf_bench_run_work(g, r, &t->work[i]);
    }
    return WF_OK;
}

/* Loads the model with the smallest context that the tests need. */
static wf_status load(wf_ctx *ctx, job *t, const char *path)
{
    wf_open *e = &t->open;
    wf_memory memory;
    uint64_t begin = wf_clock_ns();
    WF_TRY(wf_open_weights(ctx, path, e));
    WF_TRY(choose_context(t));
    const int64_t slots = wf_bench_set.slots > 0 ? wf_bench_set.slots : t->run[0].sequences;
    wf_open_set.no_reuse = wf_bench_set.no_reuse;
    WF_TRY(wf_open_load(e, slots, wf_bench_set.logits ? t->run[PROMPT].tokens : 0));
    t->load = (double)(wf_clock_ns() - begin) / 1e9;
    wf_engine_memory(e->engine, &memory);
    t->planned = memory.states + memory.mapped + memory.ports + memory.activations;
    return WF_OK;
}

/* ---- Reporting ---- */

static void put_model(wf_bench_report *r, const job *t)
{
    static const wf_bench_column columns[] = {
        {"name", "model", WF_SHOW_TEXT},
        {"family", NULL, WF_SHOW_TEXT},
        {"parameters", "parameters", WF_SHOW_WHOLE},
        {"weight_bytes", "weights", WF_SHOW_BYTES},
        {"kv_type", "KV cache", WF_SHOW_TEXT},
        {"context_tokens", "context", WF_SHOW_WHOLE},
        {"load_s", "load time, s", WF_SHOW_THOUSANDTHS},
        {"packing_s", "packing, s", WF_SHOW_THOUSANDTHS},
        {"planned_bytes", "planned memory", WF_SHOW_BYTES},
        {"peak_resident_bytes", "peak resident", WF_SHOW_BYTES},
        {0},
    };
    const wf_model_info *i = &t->open.info;
    wf_bench_begin(r, "model", columns, true);
    wf_bench_text(r, "%s", i->name);
    wf_bench_text(r, "%s", i->family);
    wf_bench_number(r, (double)i->parameters);
    wf_bench_number(r, (double)i->bytes);
    wf_bench_text(r, "%s", wf_open_kv_name(t->open.kv));
    wf_bench_number(r, (double)t->open.context);
    wf_bench_number(r, t->load);
    wf_bench_number(r, t->packing);
    wf_bench_number(r, (double)t->planned);
    wf_bench_number(r, t->resident > 0 ? (double)t->resident : NAN);
}

/* "pp512", "tg128 @ 1000": the names of llama-bench; "tg128 x 32" with 32 sequences. */
static void put_test(wf_bench_report *r, const wf_bench_run *run)
{
    char depth[32] = "", times[32] = "";
    if (run->depth > 0)
        snprintf(depth, sizeof depth, " @ %lld", (long long)run->depth);
    if (run->sequences > 1)
        snprintf(times, sizeof times, " x %lld", (long long)run->sequences);
    wf_bench_text(r, "%s%lld%s%s", run->prompt ? "pp" : "tg", (long long)run->tokens, times, depth);
}

static void put_results(wf_bench_report *r, const job *t, const wf_bench_machine *m)
{
    static const wf_bench_column columns[] = {
        {"test", "test", WF_SHOW_TEXT},
        {"tokens", NULL, WF_SHOW_WHOLE},
        {"depth_tokens", NULL, WF_SHOW_WHOLE},
        {"sequences", NULL, WF_SHOW_WHOLE},
        {"repetitions", "runs", WF_SHOW_WHOLE},
        {"tokens_per_s", "tokens/s", WF_SHOW_HUNDREDTHS},
        {"tokens_per_s_deviation", "+-", WF_SHOW_HUNDREDTHS},
        {"tokens_per_s_best", "best", WF_SHOW_HUNDREDTHS},
        {"ms_per_token", "ms/token", WF_SHOW_THOUSANDTHS},
        {"first_s", NULL, WF_SHOW_THOUSANDTHS},
        {"bytes_read", NULL, WF_SHOW_WHOLE},
        {"flop", NULL, WF_SHOW_WHOLE},
        WF_BENCH_RATES,
        {0},
    };
    wf_bench_begin(r, "results", columns, false);
    for (int i = 0; i < RUNS; i++) {
        const wf_bench_run *run = &t->run[i];
        const double tokens = (double)(run->tokens * run->sequences);
        if (run->tokens == 0)
            continue;
        double mean = wf_bench_rate_mean(&t->times[i], tokens);
        put_test(r, run);
        wf_bench_number(r, tokens);
        wf_bench_number(r, (double)run->depth);
        wf_bench_number(r, (double)run->sequences);
        wf_bench_number(r, t->times[i].count);
        wf_bench_number(r, mean);
        wf_bench_number(r, wf_bench_rate_deviation(&t->times[i], tokens));
        wf_bench_number(r, tokens / wf_bench_times_best(&t->times[i]));
        wf_bench_number(r, 1000 / mean);
        wf_bench_number(r, t->first[i]);
        wf_bench_number(r, t->work[i].bytes);
        wf_bench_number(r, t->work[i].flops);
        wf_bench_put_rates(r, m, WF_F32, t->work[i].bytes, t->work[i].flops, tokens / mean);
    }
}

/* A kernel that did not run in a test has no row. */
static void put_ops(wf_bench_report *r, const job *t)
{
    static const wf_bench_column columns[] = {
        {"test", "test", WF_SHOW_TEXT},
        {"op", "op", WF_SHOW_TEXT},
        {"kernel", "kernel", WF_SHOW_TEXT},
        {"launches", "launches", WF_SHOW_WHOLE},
        {"ms", "ms", WF_SHOW_HUNDREDTHS},
        {"time_share", "time", WF_SHOW_SHARE},
        {0},
    };
    wf_bench_begin(r, "ops", columns, false);
    for (int i = 0; i < RUNS; i++) {
        double all = 0;
        for (int k = 0; k < t->profile[i].count; k++)
            all += t->profile[i].op[k].seconds;
        for (int k = 0; k < t->profile[i].count; k++) {
            const wf_bench_op *o = &t->profile[i].op[k];
            if (o->launches == 0)
                continue;
            put_test(r, &t->run[i]);
            wf_bench_text(r, "%s", o->op);
            wf_bench_text(r, "%s", o->kernel);
            wf_bench_number(r, o->launches);
            wf_bench_number(r, o->seconds * 1e3);
            wf_bench_number(r, o->seconds / all);
        }
    }
}

static wf_status report(wf_ctx *ctx, job *t)
{
    wf_bench_machine machine;
    wf_bench_report r;
    WF_TRY(wf_bench_measure(t->open.device, &machine));
    wf_bench_report_init(&r, ctx, t->mode);
    wf_bench_put_machine(&r, &machine);
    put_model(&r, t);
    put_results(&r, t, &machine);
    if (wf_bench_set.ops)
        put_ops(&r, t);
    wf_status status = wf_bench_report_write(&r);
    wf_bench_report_free(&r);
    return status;
}

wf_status wf_bench_model(wf_ctx *ctx, const char *mode, char *const *operands, int count)
{
    const char *path;
    job t = {.mode = mode};
    WF_TRY(choose(ctx, &t));
    WF_TRY(wf_open_path(ctx, operands, count, &path));
    wf_status status = load(ctx, &t, path);
    if (status == WF_OK)
        status = measure(&t);
    t.resident = wf_machine_peak_resident();
    if (status == WF_OK)
        t.packing = packing(&t);
    wf_engine_free(t.open.engine);
    t.open.engine = NULL;
    if (status == WF_OK)
        status = report(ctx, &t);
    for (int i = 0; i < RUNS; i++)
        wf_bench_profile_free(&t.profile[i]);
    wf_open_close(&t.open);
    return status;
}
