/* SPDX-License-Identifier: MIT */
/* bench_machine.c - weft bench machine: measures bandwidth and FMA peak, and describes the
 * machine. */
#include <math.h>

#include "cli/bench.h"
#include "cli/open.h"
#include "device/choose.h"

#define LEAST_STREAM ((uint64_t)512 << 20) /* bytes; used where the cache is small or unknown */

/* Returns the bytes to stream: four times the last-level cache, so that caches do not serve them,
 * but at most a quarter of the memory. */
static size_t stream_bytes(const wf_machine *m)
{
    uint64_t bytes = 4 * m->cache > LEAST_STREAM ? 4 * m->cache : LEAST_STREAM;
    if (wf_bench_set.stream > 0)
        return (size_t)wf_bench_set.stream << 20;
    return (size_t)(m->memory > 0 && bytes > m->memory / 4 ? m->memory / 4 : bytes);
}

wf_status wf_bench_measure(wf_device *device, wf_bench_machine *m)
{
    /* NaN prints as "-" and becomes null in JSON. */
    const wf_device_peak none = {NAN, NAN, NAN, NAN, NAN, 0};
    size_t len = 0, words = 0;
    *m = (wf_bench_machine){.threads = device->threads, .one = none, .all = none};
    wf_machine_get(&m->machine);
    wf_text_append(m->device, sizeof m->device, &len, "%s", device->target.name);
    wf_text_append(m->description, sizeof m->description, &words, "%s",
                   wf_device_description(device));
    if (wf_bench_set.no_peak || !device->ops->peak)
        return WF_OK;
    const size_t bytes = stream_bytes(&m->machine);
    wf_open_say("measuring the peak of the machine with 1 thread%s",
                device->threads > 1 ? " and with all threads" : "");
    WF_TRY(wf_device_measure(device, bytes, &m->all));
    m->one = m->all;
    return device->threads > 1 ? device->ops->peak(device, 1, bytes, &m->one) : WF_OK;
}

/* A narrow peak of 0 is unknown. */
static void put_peak(wf_bench_report *r, int threads, const wf_device_peak *p)
{
    wf_bench_number(r, threads);
    wf_bench_number(r, p->read / 1e9);
    wf_bench_number(r, p->copy / 1e9);
    wf_bench_number(r, p->triad / 1e9);
    wf_bench_number(r, p->flops / 1e9);
    wf_bench_number(r, p->narrow > 0 ? p->narrow / 1e9 : NAN);
}

void wf_bench_put_machine(wf_bench_report *r, const wf_bench_machine *m)
{
    static const wf_bench_column machine[] = {
        {"cpu_model", "cpu", WF_SHOW_TEXT},
        {"cores", "cores", WF_SHOW_WHOLE},
        {"hardware_threads", NULL, WF_SHOW_WHOLE},
        {"memory_bytes", "memory", WF_SHOW_BYTES},
        {"last_cache_bytes", "cache", WF_SHOW_BYTES},
        {"device", "device", WF_SHOW_TEXT},
        {"device_threads", NULL, WF_SHOW_WHOLE},
        {"device_description", "runs", WF_SHOW_TEXT},
        {0},
    };
    static const wf_bench_column peaks[] = {
        {"threads", "threads", WF_SHOW_WHOLE},
        {"read_gb_per_s", "read GB/s", WF_SHOW_TENTHS},
        {"copy_gb_per_s", "copy GB/s", WF_SHOW_TENTHS},
        {"triad_gb_per_s", "triad GB/s", WF_SHOW_TENTHS},
        {"fma_gflop_per_s", "FMA GFLOP/s", WF_SHOW_TENTHS},
        {"bf16_gflop_per_s", "bf16 GFLOP/s", WF_SHOW_TENTHS},
        {0},
    };
    wf_bench_begin(r, "machine", machine, true);
    wf_bench_text(r, "%s", m->machine.cpu);
    wf_bench_number(r, m->machine.cores);
    wf_bench_number(r, m->machine.threads);
    wf_bench_number(r, m->machine.memory > 0 ? (double)m->machine.memory : NAN);
    wf_bench_number(r, m->machine.cache > 0 ? (double)m->machine.cache : NAN);
    wf_bench_text(r, "%s", m->device);
    wf_bench_number(r, m->threads);
    wf_bench_text(r, "%s", m->description);
    if (isnan(m->one.read))
        return;
    wf_bench_begin(r, "peaks", peaks, false);
    if (m->threads > 1)
        put_peak(r, 1, &m->one);
    put_peak(r, m->threads, &m->all);
}

/* The peak for narrow types counts only where the device has faster instructions for them. */
double wf_bench_flops(const wf_bench_machine *m, wf_type type)
{
    return type != WF_F32 && m->all.narrow > m->all.flops ? m->all.narrow : m->all.flops;
}

void wf_bench_put_rates(wf_bench_report *r, const wf_bench_machine *m, wf_type type, double bytes,
                        double flops, double seconds)
{
    wf_bench_number(r, bytes / seconds / 1e9);
    wf_bench_number(r, wf_bench_share(bytes / seconds, m->all.read));
    wf_bench_number(r, flops / seconds / 1e9);
    wf_bench_number(r, wf_bench_share(flops / seconds, wf_bench_flops(m, type)));
}

wf_status wf_bench_machine_mode(wf_ctx *ctx, const char *mode, char *const *operands, int count)
{
    wf_device *device;
    wf_bench_machine m;
    wf_bench_report r;
    (void)operands, (void)count;
    WF_TRY(wf_open_device(ctx, NULL, &device));
    wf_status status = wf_bench_measure(device, &m);
    wf_bench_report_init(&r, ctx, mode);
    if (status == WF_OK) {
        wf_bench_put_machine(&r, &m);
        status = wf_bench_report_write(&r);
    }
    wf_bench_report_free(&r);
    wf_device_close(device);
    return status;
}
