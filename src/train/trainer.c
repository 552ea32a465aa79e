/* SPDX-License-Identifier: MIT */
/*
 * trainer.c - one training step, evaluation and statistics.
 *
 * A step writes its batches, runs its graphs and reads back five values. On devices that run ahead
 * of the host, the next step's first batch is written before these values are read, so that the
 * device is not idle. Reading the report is the only synchronisation per step.
 */
#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/path.h"
#include "device/device.h"
#include "infer/engine.h"
#include "model/family.h"
#include "train/fit.h"
#include "train/generate.h"

/* ---- Creation ---- */

/* Compiles a graph once; all executables share the session's states and one region. */
static wf_status compile(wf_trainer *t, wf_train_form form)
{
    wf_graph *g;
    const wf_compile_options options = wf_train_compiling(&t->setup, form);
    if (t->exec[form])
        return WF_OK;
    WF_TRY(wf_train_graph(&t->setup, form, &g));
    wf_status status = wf_compile_with(t->session, g, &options, &t->exec[form]);
    wf_graph_free(g);
    return status;
}

/* Returns whether a state belongs to the optimizer rather than to the model. */
static bool is_companion(const char *state)
{
    return strncmp(state, "m.", 2) == 0 || strncmp(state, "v.", 2) == 0 ||
           strncmp(state, "grad.", 5) == 0;
}

static int64_t elements(const wf_info *state)
{
    int64_t count = 1;
    for (int i = 0; i < state->rank; i++)
        count *= state->dim[i];
    return count;
}

/* FLOPs per step: 6 per token and matrix element: 2 forward, 2 for the gradient of the input, 2 for
 * that of the matrix, which frozen ones skip. Plus attention, where a query sees half of the keys
 * on average. */
static double count_flops(const wf_trainer *t)
{
    const wf_setup *s = &t->setup;
    const wf_config *c = &s->config;
    const wf_train_options *o = &s->options;
    double tokens = (double)(o->batch * o->length * o->accumulate), matrices = 0, adapters = 0;
    wf_info state;
    for (int i = 0; wf_session_state(t->session, i, &state); i++) {
        double count = state.rank > 1 ? (double)elements(&state) : 0;
        bool rows = strcmp(state.name, "position_embd.weight") == 0 ||
                    (strcmp(state.name, "token_embd.weight") == 0 && !c->tied);
        if (wf_path_ends(state.name, ".lora_a") || wf_path_ends(state.name, ".lora_b"))
            adapters += is_companion(state.name) ? 0 : count;
        else if (!rows &&
                 (strncmp(state.name, "blk.", 4) == 0 || strncmp(state.name, "output.", 7) == 0 ||
                  strncmp(state.name, "token_embd.", 11) == 0))
            matrices += count;
    }
    double row = 0; /* elements of q in all layers */
    for (int64_t i = 0; i < c->layers; i++)
        row += (double)(wf_config_layer(c, i)->heads * wf_config_layer(c, i)->key_dim);
    double attention = 12 * tokens * (double)(o->length + 1) / 2 * row;
    return tokens * ((s->adapter ? 4 : 6) * matrices + 6 * adapters) + attention;
}

/* Refuses a setup that does not fit before anything is allocated. Weights are mapped before
 * compiling, since that decides kernels, and written after it, when the states exist. */
static wf_status prepare(wf_trainer *t, size_t memory)
{
    if (t->setup.options.steps < 1)
        return wf_fail(t->ctx, WF_ERR_USAGE, "the number of steps is missing; set it to 1 or more");
    WF_TRY(wf_setup_refuse(&t->setup, t->device, memory));
    WF_TRY(wf_session_new(t->device, &t->session));
    WF_TRY(wf_trainer_map_weights(t));
    for (int form = 0; form < WF_TRAIN_COUNT; form++)
        if (wf_train_uses(&t->setup, (wf_train_form)form))
            WF_TRY(compile(t, (wf_train_form)form));
    /* Last: executables that are compiled after an engine share its ports. */
    if (t->setup.sample_tokens > 0)
        WF_TRY(wf_trainer_attach(t, t->setup.sample_tokens));
    t->flops = count_flops(t);
    return wf_trainer_write_weights(t);
}

/* Takes over *setup, also on failure; *setup is then empty. */
wf_status wf_trainer_make(wf_device *device, const wf_tokenizer *tokenizer, wf_setup *setup,
                          size_t memory, wf_trainer **out)
{
    *out = NULL;
    wf_trainer *t = wf_mem_new(device->ctx, sizeof *t);
    if (!t) {
        wf_setup_free(setup);
        return WF_ERR_MEMORY;
    }
    t->ctx = device->ctx;
    t->device = device;
    t->ahead = -1;
    t->setup = *setup;
    *setup = (wf_setup){0};
    const wf_model *base = t->setup.base;
    t->tokenizer = tokenizer ? tokenizer : base ? base->tokenizer : NULL;
    t->chat_template = base ? base->info.chat_template : NULL;
    wf_status status = prepare(t, memory);
    if (status == WF_OK)
        *out = t;
    else
        wf_trainer_free(t);
    return status;
}

wf_status wf_trainer_new(wf_device *device, const wf_tokenizer *tokenizer,
                         const wf_train_options *options, size_t memory, wf_trainer **out)
{
    wf_setup setup;
    *out = NULL;
    wf_status status =
        wf_setup_make(device->ctx, options, tokenizer ? wf_tokenizer_count(tokenizer) : 0, &setup);
    if (status != WF_OK) {
        wf_setup_free(&setup);
        return status;
    }
    return wf_trainer_make(device, tokenizer, &setup, memory, out);
}

void wf_trainer_free(wf_trainer *t)
{
    if (!t)
        return;
    wf_engine_free(t->engine);
    for (int i = 0; i < WF_TRAIN_COUNT; i++)
        wf_exec_free(t->exec[i]);
    wf_session_free(t->session);
    wf_setup_free(&t->setup);
    wf_mem_free(t->ctx, t);
}

/* ---- Info ---- */

/* Executables run one at a time and share one region, so the largest counts; their inputs and
 * outputs are separate, but for those of the engine. */
static void add_memory(wf_memory *sum, const wf_memory *m)
{
    const size_t ports = sum->ports + m->ports;
    if (m->activations >= sum->activations)
        *sum = *m;
    sum->ports = ports;
}

void wf_trainer_get_info(const wf_trainer *t, wf_train_info *out)
{
    const wf_setup *s = &t->setup;
    const wf_config *c = &s->config;
    const wf_train_options *o = &s->options;
    *out = (wf_train_info){
        .name = s->name,
        .family = c->family->name,
        .parameters = s->parameters,
        .trained = s->trained,
        .layers = c->layers,
        .width = c->width,
        .heads = c->all.heads,
        .kv_heads = c->all.kv_heads,
        .hidden = c->all.hidden,
        .vocab = c->vocab,
        .context = c->context,
        .batch = o->batch,
        .length = o->length,
        .accumulate = o->accumulate,
        .sequences = s->sequences,
        .step = t->step,
        .steps = o->steps,
        .flops = t->flops,
    };
    wf_memory m;
    for (int i = 0; i < WF_TRAIN_COUNT; i++)
        if (t->exec[i]) {
            wf_exec_memory(t->exec[i], &m);
            add_memory(&out->memory, &m);
        }
    if (t->engine) {
        wf_engine_memory(t->engine, &m);
        add_memory(&out->memory, &m);
    }
}

bool wf_trainer_setting(const wf_trainer *t, int index, const char **name, char value[96])
{
    wf_setting_kind kind;
    return wf_setup_setting(&t->setup, index, name, value, &kind);
}

/* ---- Steps ---- */

/* Checks the promise of wf_attention_options.length: all sequences have one length and positions
 * from 0. */
static wf_status check_places(const wf_trainer *t, const wf_batch *b)
{
    int64_t length = wf_train_length(&t->setup), tokens = wf_train_tokens(&t->setup);
    bool whole = true;
    for (int64_t i = 0; length > 0 && i <= tokens && whole; i += length)
        whole = b->seq_start[i / length] == i;
    for (int64_t i = 0; length > 0 && i < tokens && whole; i++)
        whole = b->positions[i] == i % length;
    return whole ? WF_OK
                 : wf_fail(t->ctx, WF_ERR_USAGE,
                           "without documents, a batch must consist of sequences of %lld tokens "
                           "with positions from 0",
                           (long long)length);
}

/* Positions and sequence starts are constant without documents, so they are written once. */
static wf_status write_batch(wf_trainer *t, wf_train_form form, const wf_batch *b)
{
    wf_exec *e = t->exec[form];
    size_t tokens = (size_t)wf_train_tokens(&t->setup) * sizeof(int32_t);
    size_t starts = ((size_t)t->setup.sequences + 1) * sizeof(int32_t);
    WF_TRY(wf_exec_write(e, "tokens", b->tokens, tokens));
    WF_TRY(wf_exec_write(e, "targets", b->targets, tokens));
    if (t->placed[form])
        return WF_OK;
    WF_TRY(check_places(t, b));
    WF_TRY(wf_exec_write(e, "positions", b->positions, tokens));
    WF_TRY(wf_exec_write(e, "seq_start", b->seq_start, starts));
    t->placed[form] = !t->setup.options.documents;
    return WF_OK;
}

/* Writes the random key. Batches are counted over all steps, so that no two use the same
 * numbers. */
static wf_status write_key(wf_trainer *t, wf_exec *e, int64_t micro)
{
    const wf_train_options *o = &t->setup.options;
    int64_t number = t->step * o->accumulate + micro;
    const uint32_t key[3] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32), (uint32_t)number};
    bool random = o->dropout > 0 || o->lora_dropout > 0;
    return random ? wf_exec_write(e, "key", key, sizeof key) : WF_OK;
}

/* Writes batch `micro` of this step to its graph. */
static wf_status bring(wf_trainer *t, wf_train_form form, int64_t micro, wf_batch_fn *next,
                       void *user)
{
    const wf_batch *b;
    const int64_t number = t->step * t->setup.options.accumulate + micro;
    if (t->ahead == number) {
        t->tokens += t->ahead_valid;
    } else {
        WF_TRY(next(user, number, &b));
        WF_TRY(write_batch(t, form, b));
        t->tokens += b->valid;
    }
    t->ahead = -1;
    return write_key(t, t->exec[form], micro);
}

/* Writes the first batch of the next step while the device still computes this one. If it fails,
 * the next step fails with the same error. */
static void bring_ahead(wf_trainer *t, wf_batch_fn *next, void *user)
{
    const wf_train_options *o = &t->setup.options;
    const int64_t number = (t->step + 1) * o->accumulate;
    const wf_train_form form = o->accumulate == 1 ? WF_TRAIN_WHOLE : WF_TRAIN_MICRO;
    const wf_batch *b;
    if (!t->device->ops->runs_ahead || t->step + 1 >= o->steps || next(user, number, &b) != WF_OK ||
        write_batch(t, form, b) != WF_OK)
        return;
    t->ahead = number;
    t->ahead_valid = b->valid;
}

static bool is_sum(const char *state)
{
    return strncmp(state, "grad.", 5) == 0 || strncmp(state, "sum.", 4) == 0;
}

/* Zeroes the states in which a failed step summed gradients, loss and valid tokens. */
static wf_status clear_sums(wf_trainer *t)
{
    wf_info s;
    size_t most = 0;
    wf_status status = WF_OK;
    for (int i = 0; wf_session_state(t->session, i, &s); i++)
        if (is_sum(s.name) && s.bytes > most)
            most = s.bytes;
    void *zeros = wf_mem_new(t->ctx, most);
    if (!zeros)
        return WF_ERR_MEMORY;
    for (int i = 0; status == WF_OK && wf_session_state(t->session, i, &s); i++)
        if (is_sum(s.name))
            status = wf_session_write(t->session, s.name, zeros, s.bytes);
    wf_mem_free(t->ctx, zeros);
    t->summing = status != WF_OK;
    return status;
}

static wf_status run(wf_trainer *t, wf_batch_fn *next, void *user, double rate, float *report)
{
    const int64_t accumulate = t->setup.options.accumulate;
    wf_train_form last = accumulate == 1 ? WF_TRAIN_WHOLE : WF_TRAIN_UPDATE;
    wf_exec *e = t->exec[last];
    float f32 = (float)rate;
    if (accumulate == 1)
        WF_TRY(bring(t, last, 0, next, user));
    if (t->summing)
        WF_TRY(clear_sums(t));
    t->summing = accumulate > 1;
    for (int64_t i = 0; accumulate > 1 && i < accumulate; i++) {
        WF_TRY(bring(t, WF_TRAIN_MICRO, i, next, user));
        WF_TRY(wf_exec_run(t->exec[WF_TRAIN_MICRO]));
    }
    WF_TRY(wf_exec_write(e, "rate", &f32, sizeof f32));
    WF_TRY(wf_exec_run(e));
    bring_ahead(t, next, user);
    WF_TRY(wf_exec_read(e, "report", report, WF_REPORT_COUNT * sizeof *report));
    t->summing = false;
    return WF_OK;
}

/* Returns a value of a report. Clears the sign of NaN, which printf would show. */
static double reported(float x)
{
    return isnan(x) ? fabs((double)x) : (double)x;
}

static void count(wf_trainer *t, bool applied, double seconds)
{
    t->step++;
    t->skipped += !applied;
    t->skipped_row = applied ? 0 : t->skipped_row + 1;
    /* An exponential average of the seconds per step. The first step in a process is slower; it is
     * replaced by the second. */
    t->late = t->timed++ > 1 ? 0.9 * t->late + 0.1 * seconds : seconds;
}

/* Counters advance even if the device skipped the update. The step's loss is read in any case;
 * fails when too many steps in a row were skipped. */
wf_status wf_trainer_step(wf_trainer *t, wf_batch_fn *next, void *user, wf_train_step *out)
{
    const wf_setup *s = &t->setup;
    const wf_train_options *o = &s->options;
    float report[WF_REPORT_COUNT];
    size_t now;
    const uint64_t begin = wf_clock_ns();
    const int64_t seen = t->tokens;
    *out = (wf_train_step){.rate = wf_schedule_rate(&s->schedule, t->step)};
    const wf_status status = run(t, next, user, out->rate, report);
    if (status != WF_OK) {
        t->tokens = seen;
        return status;
    }
    out->seconds = (double)(wf_clock_ns() - begin) / 1e9;
    out->applied = report[WF_REPORT_APPLIED] != 0;
    count(t, out->applied, out->seconds);
    double tokens = (double)(o->batch * o->length * o->accumulate);
    out->step = t->step;
    out->steps = o->steps;
    out->loss = reported(report[WF_REPORT_LOSS]);
    out->norm = reported(report[WF_REPORT_NORM]);
    out->scale = o->compute == WF_F16 ? report[WF_REPORT_SCALE] : 0;
    out->tokens_per_second = tokens / t->late;
    if (t->peak > 0) { /* a step above the measured peak is the better measurement */
        t->peak = fmax(t->peak, t->flops / out->seconds);
        out->share = t->flops / out->seconds / t->peak;
    }
    out->tokens = t->tokens;
    out->skipped = t->skipped;
    wf_device_memory(t->device, &now, &out->memory);
    out->left = (double)(o->steps - t->step) * t->late;
    if (o->patience > 0 && t->skipped_row >= o->patience)
        return wf_fail(
            t->ctx, WF_ERR_DEVICE,
            "%lld step%s in a row had a gradient that is not finite or far larger than usual, "
            "and %s skipped; continue from an earlier checkpoint with a lower learning rate",
            (long long)t->skipped_row, WF_PLURAL(t->skipped_row),
            t->skipped_row == 1 ? "was" : "were");
    return WF_OK;
}

wf_status wf_trainer_evaluate(wf_trainer *t, const wf_batch *batch, double *loss, int64_t *counted)
{
    float report[2];
    wf_exec *e = t->exec[WF_TRAIN_VALID];
    WF_TRY(write_batch(t, WF_TRAIN_VALID, batch));
    WF_TRY(wf_exec_run(e));
    WF_TRY(wf_exec_read(e, "report", report, sizeof report));
    *loss = reported(report[0]);
    *counted = (int64_t)report[1];
    return WF_OK;
}
