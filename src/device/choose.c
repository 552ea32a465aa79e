/* SPDX-License-Identifier: MIT */
/*
 * choose.c - measures devices, estimates run times from op costs, and picks the fastest device.
 *
 * The estimate is a roofline: each node takes the longer of its memory traffic and its arithmetic,
 * and at least one launch. Rates are measured on this machine, so the estimate needs no table of
 * devices. It ranks devices; it does not predict a run time to the percent.
 */
#include "device/choose.h"

#include <math.h>

#include "base/clock.h"
#include "graph/build.h"

#define STREAMED ((size_t)256 << 20) /* bytes that the bandwidth measurement reads and writes */
#define UNSTREAMED ((size_t)1 << 20) /* bytes where the bandwidth does not matter */
#define LEAST_SECONDS 4e-3           /* shorter runs are too noisy: try a larger matmul */
#define MATMULS 8                    /* per run */
#define LARGEST 8192                 /* rows and columns of the largest matmul */

/* ---- Measuring a device ---- */

/* Returns the best time of three runs, after one warm-up run. */
static wf_status time_runs(wf_session *session, wf_exec *e, double *seconds)
{
    *seconds = 0;
    for (int i = 0; i < 4; i++) { /* run 0 is the warm-up */
        uint64_t begin = wf_clock_ns();
        WF_TRY(wf_exec_run(e));
        WF_TRY(session->device->ops->queue_wait(session->queue));
        double s = (double)(wf_clock_ns() - begin) / 1e9;
        if (i == 1 || (i > 1 && s < *seconds))
            *seconds = s;
    }
    return WF_OK;
}

/* Times MATMULS matmuls of a random x [n, n] with itself. The graph generates x, so that the caller
 * needs no input; MATMULS is large enough to hide that cost. */
static wf_status run_matmuls(wf_device *device, wf_type type, int64_t n, double *seconds)
{
    wf_graph *g;
    wf_session *session = NULL;
    wf_exec *e = NULL;
    WF_TRY(wf_graph_new(device->ctx, &g));
    wf_value *key = wf_cast(g, wf_fill(g, WF_F32, 1, &(int64_t){3}, 7), WF_I32);
    wf_value *u = wf_uniform(g, key, 2, (int64_t[]){n, n});
    wf_value *x = wf_cast(g, wf_sub(g, u, wf_fill(g, WF_F32, 0, NULL, 0.5)), type), *y = x;
    for (int i = 0; i < MATMULS; i++)
        y = wf_linear(g, y, x, NULL);
    /* One value of the result is enough to keep all matmuls alive. */
    wf_output(g, "y", wf_reduce(g, "sum", wf_slice(g, y, 0, 0, 1), WF_AXIS(0) | WF_AXIS(1), false));
    wf_status status = wf_session_new(device, &session);
    if (status == WF_OK)
        status = wf_compile(session, g, &e);
    if (status == WF_OK)
        status = time_runs(session, e, seconds);
    wf_exec_free(e);
    wf_session_free(session);
    wf_graph_free(g);
    return status;
}

/* Sets *out to FLOP/s. Doubles n until a run takes LEAST_SECONDS, and keeps the best rate. */
static wf_status measure_matmuls(wf_device *device, wf_type type, double *out)
{
    double seconds = 0;
    *out = 0;
    for (int64_t n = 512; n <= LARGEST && seconds < LEAST_SECONDS; n *= 2) {
        WF_TRY(run_matmuls(device, type, n, &seconds));
        double rate = MATMULS * 2.0 * (double)n * (double)n * (double)n / seconds;
        *out = rate > *out ? rate : *out;
    }
    return WF_OK;
}

/* Measures the peak over `bytes` of memory and, if `narrow`, matmuls in bf16. */
static wf_status measure(wf_device *device, size_t bytes, bool narrow, wf_device_peak *out)
{
    *out = (wf_device_peak){0};
    if (!device->ops->peak)
        return WF_OK;
    /* Restored below: the measurement's own buffers do not count as the user's peak. */
    const size_t most = device->peak_bytes;
    wf_status status = device->ops->peak(device, device->threads, bytes, out);
    if (status == WF_OK && narrow)
        status = measure_matmuls(device, WF_BF16, &out->narrow);
    device->peak_bytes = most > device->bytes ? most : device->bytes;
    return status;
}

wf_status wf_device_measure(wf_device *device, size_t bytes, wf_device_peak *out)
{
    return measure(device, bytes, true, out);
}

wf_status wf_device_measure_flops(wf_device *device, wf_type type, double *out)
{
    wf_device_peak peak;
    WF_TRY(measure(device, UNSTREAMED, type != WF_F32, &peak));
    *out = fmax(peak.flops, peak.narrow);
    return WF_OK;
}

/* ---- Estimating run time ---- */

double wf_peak_seconds(const wf_device_peak *peak, wf_type type, const wf_cost *cost)
{
    double bytes = (double)cost->bytes_read + (double)cost->bytes_written;
    double rate = type != WF_F32 && peak->narrow > 0 ? peak->narrow : peak->flops;
    if (!(peak->copy > 0) || !(rate > 0)) /* written so that NaN counts as unknown */
        return 0;
    double moving = bytes / peak->copy, computing = (double)cost->flops / rate;
    double most = moving > computing ? moving : computing;
    /* Cost 0: a view or source, which is not launched. */
    return most > peak->launch || most == 0 ? most : peak->launch;
}

/* Uses the type of operand 0 for every node, as matmuls dominate. */
double wf_peak_graph_seconds(const wf_device_peak *peak, const wf_graph *g)
{
    double sum = 0;
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        wf_cost cost;
        wf_node_cost(n, &cost);
        sum += wf_peak_seconds(peak, n->nin > 0 ? n->in[0]->type : WF_F32, &cost);
    }
    return sum;
}

/* ---- Choosing ---- */

/* Copies the message now: the next call with this context replaces it. */
static void keep_message(wf_ctx *ctx, wf_candidate *c)
{
    size_t len = 0;
    wf_text_append(c->why, sizeof c->why, &len, "%s", wf_ctx_message(ctx));
}

/* Rejects the candidate with the context's message as the reason. */
static void give_up(wf_ctx *ctx, wf_candidate *c)
{
    keep_message(ctx, c);
    wf_device_close(c->device);
    c->device = NULL;
}

/* Opens and measures c->kind. Closes the device again when the work cannot run there. */
static void evaluate(wf_ctx *ctx, wf_candidate *c, wf_forecast_fn *forecast, void *user, bool fast)
{
    if (wf_device_open(ctx, c->kind, &c->device) != WF_OK) {
        keep_message(ctx, c);
        return;
    }
    wf_device_allow_nondeterministic(c->device, fast);
    c->available = wf_device_available(c->device);
    if (wf_device_measure(c->device, STREAMED, &c->peak) != WF_OK ||
        forecast(user, c->device, &c->peak, &c->forecast) != WF_OK) {
        give_up(ctx, c);
    } else if (c->available > 0 && c->forecast.bytes > c->available) {
        size_t len = 0;
        wf_text_append(c->why, sizeof c->why, &len, "it needs %zu bytes, but only %zu are free",
                       c->forecast.bytes, c->available);
        wf_device_close(c->device);
        c->device = NULL;
    }
}

/* A known forecast beats an unknown one (0 seconds). Of two unknown ones the first device stays. */
static bool is_faster(const wf_candidate *a, const wf_candidate *b)
{
    return a->forecast.seconds > 0 &&
           (b->forecast.seconds <= 0 || a->forecast.seconds < b->forecast.seconds);
}

wf_status wf_devices_compare(wf_ctx *ctx, wf_forecast_fn *forecast, void *user, bool fast,
                             wf_candidates *out)
{
    const wf_device_ops *ops;
    *out = (wf_candidates){.best = -1};
    for (int i = 0; (ops = wf_device_ops_get(i)); i++) {
        /* The bound only guards the array; builds have fewer kinds. */
        if (!ops->automatic || out->count == WF_MAX_CANDIDATES)
            continue;
        wf_candidate *c = &out->all[out->count];
        c->kind = ops->kind;
        evaluate(ctx, c, forecast, user, fast);
        const wf_candidate *best = out->best >= 0 ? &out->all[out->best] : NULL;
        if (c->device && (!best || is_faster(c, best)))
            out->best = out->count;
        out->count++;
    }
    if (out->best >= 0)
        return WF_OK;
    char why[512];
    size_t len = 0;
    wf_text_append(why, sizeof why, &len, "%s",
                   out->count > 0 ? out->all[0].why : "this build has no devices");
    return wf_fail(ctx, WF_ERR_DEVICE, "no device can run this; the first device failed: %s", why);
}

wf_device *wf_candidates_take(wf_candidates *c)
{
    /* Moves the device out of the list, so that wf_candidates_close does not close it. */
    wf_device *best = c->best >= 0 ? c->all[c->best].device : NULL;
    if (best)
        c->all[c->best].device = NULL;
    wf_candidates_close(c);
    return best;
}

void wf_candidates_close(wf_candidates *c)
{
    for (int i = 0; i < c->count; i++) {
        wf_device_close(c->all[i].device);
        c->all[i].device = NULL;
    }
}
