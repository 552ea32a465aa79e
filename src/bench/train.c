/* SPDX-License-Identifier: MIT */
/* train.c - see train.h. */
#include "bench/train.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/philox.h"
#include "bench/fill.h"

#define SEED 20
#define DEVIATION 0.02 /* GPT-2's: the initial loss is log(vocabulary) */
#define RATE 1e-4f     /* small: the weights keep their distribution */

/* ---- Graph ---- */

static wf_status set_precision(void *user, wf_graph **g, wf_value **loss)
{
    (void)loss;
    return wf_precision(*g, *(const wf_type *)user);
}

/* The moments of NAME are m.NAME and v.NAME. */
static bool is_moment(const char *name)
{
    return (name[0] == 'm' || name[0] == 'v') && name[1] == '.';
}

static void count_work(wf_bench_train *t)
{
    const wf_example *e = t->example;
    const bool training = t->form == WF_EXAMPLE_TRAIN;
    double matrices = 0;
    wf_info s;
    t->parameters = 0;
    t->tokens = t->batch * (t->form == WF_EXAMPLE_DECODE ? 1 : t->length);
    const double tokens = (double)t->tokens;
    for (int i = 0; wf_session_state(t->session, i, &s); i++) {
        int64_t count = 1;
        for (int k = 0; k < s.rank; k++)
            count *= s.dim[k];
        if (is_moment(s.name))
            continue;
        t->parameters += count;
        bool rows = strcmp(s.name, "position_embd.weight") == 0 ||
                    (strcmp(s.name, "token_embd.weight") == 0 && !e->tied);
        matrices += s.rank > 1 && !rows ? (double)count : 0;
    }
    /* A query sees half of the keys on average; two matmuls forward, four backward. */
    double pairs = tokens * (double)(t->length + 1) / (t->form == WF_EXAMPLE_DECODE ? 1 : 2);
    double attention = 4 * pairs * (double)(e->layers * e->heads * e->head_dim);
    t->flops = (training ? 3 : 1) * (2 * matrices * tokens + attention);
}

/* ---- Values ---- */

/* Values drawn once and repeated, since drawing them for each of hundreds of weights is slow. A
 * prime, so that rows differ. */
#define DRAWN 1000003

static wf_status write_state(wf_bench_train *t, const wf_info *s, const float *drawn)
{
    const size_t n = strlen(s->name);
    const bool gain = n > 11 && strcmp(s->name + n - 11, "norm.weight") == 0;
    const int64_t count = (int64_t)(s->bytes / sizeof(float));
    if (is_moment(s->name) || (s->rank < 2 && !gain))
        return WF_OK; /* stays zero */
    float *x = wf_mem_new(t->ctx, s->bytes);
    if (!x)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        x[i] = gain ? 1 : drawn[i % DRAWN];
    wf_status status = wf_session_write(t->session, s->name, x, s->bytes);
    wf_mem_free(t->ctx, x);
    return status;
}

static wf_status write_states(wf_bench_train *t)
{
    wf_info s;
    float *drawn = wf_mem_new(t->ctx, DRAWN * sizeof *drawn);
    wf_status status =
        drawn ? wf_bench_fill(t->ctx, WF_F32, DEVIATION, drawn, DRAWN) : WF_ERR_MEMORY;
    for (int i = 0; status == WF_OK && wf_session_state(t->session, i, &s); i++)
        if (s.type == WF_F32)
            status = write_state(t, &s, drawn);
    wf_mem_free(t->ctx, drawn);
    return status;
}

/* Returns element i of the input `name` (see build.h). */
static int32_t element_of(const wf_bench_train *t, const char *name, int64_t i, wf_rng *rng)
{
    const bool decoding = t->form == WF_EXAMPLE_DECODE;
    if (strcmp(name, "positions") == 0)
        return (int32_t)(decoding ? t->length - 1 : i % t->length);
    if (strcmp(name, "seq_start") == 0)
        return (int32_t)(decoding ? i : i * t->length);
    if (strcmp(name, "table") == 0)
        return (int32_t)i;
    if (strcmp(name, "lengths") == 0)
        return (int32_t)t->length;
    if (strcmp(name, "rows") == 0)
        return (int32_t)(decoding ? i : (i + 1) * t->length - 1);
    return (int32_t)wf_rng_below(rng, (uint64_t)t->example->vocab); /* tokens, targets */
}

static wf_status write_inputs(wf_bench_train *t)
{
    wf_info in;
    wf_rng rng;
    wf_rng_init(&rng, SEED, 0);
    for (int i = 0; wf_exec_input(t->exec, i, &in); i++) {
        if (in.type != WF_I32 || in.rank == 0)
            continue;
        int32_t *x = wf_mem_new(t->ctx, in.bytes);
        if (!x)
            return WF_ERR_MEMORY;
        for (int64_t k = 0; k < (int64_t)(in.bytes / sizeof *x); k++)
            x[k] = element_of(t, in.name, k, &rng);
        wf_status status = wf_exec_write(t->exec, in.name, x, in.bytes);
        wf_mem_free(t->ctx, x);
        WF_TRY(status);
    }
    return t->form == WF_EXAMPLE_TRAIN ? wf_exec_write(t->exec, "lr", &(float){RATE}, sizeof(float))
                                       : WF_OK;
}

/* ---- Steps ---- */

wf_status wf_bench_train_open(wf_device *device, wf_bench_train *t)
{
    const wf_example_options options = {.form = t->form,
                                        .batch = t->batch,
                                        .length = t->length,
                                        .before_grad = set_precision,
                                        .user = &t->compute};
    t->ctx = device->ctx;
    WF_TRY(wf_example_build(t->ctx, t->example->name, &options, &t->graph));
    WF_TRY(wf_session_new(device, &t->session));
    WF_TRY(wf_compile(t->session, t->graph, &t->exec));
    count_work(t);
    WF_TRY(write_states(t));
    return write_inputs(t);
}

void wf_bench_train_close(wf_bench_train *t)
{
    wf_exec_free(t->exec);
    wf_session_free(t->session);
    wf_graph_free(t->graph);
}

wf_status wf_bench_train_step(wf_bench_train *t, double *seconds, float *loss)
{
    uint64_t begin = wf_clock_ns();
    const bool training = t->form == WF_EXAMPLE_TRAIN;
    t->step++;
    *loss = NAN;
    if (training)
        WF_TRY(wf_exec_write(t->exec, "step", &t->step, sizeof t->step));
    WF_TRY(wf_exec_run(t->exec));
    WF_TRY(training ? wf_exec_read(t->exec, "loss", loss, sizeof *loss)
                    : t->session->device->ops->queue_wait(t->session->queue));
    *seconds = (double)(wf_clock_ns() - begin) / 1e9;
    return WF_OK;
}
