/* SPDX-License-Identifier: MIT */
/*
 * check.c - the check device: its options, its guarded buffers, and preparing a plan for checks.
 *
 * It shares kernels, copies, queues and events with the cpu device, and differs in three slots:
 * buffers have guarded edges, prepare_plan derives extents and order, run_plan runs steps under
 * checks. The seed determines every random order, so a failure repeats with check:SEED.
 */
#include "device/check/check.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "device/cpu/cpu.h"

extern const wf_device_ops wf_check_device_ops;

/* ---- Device ---- */

/* Returns a random seed of 31 bits: short enough to type. */
static uint64_t fresh_seed(const void *somewhere)
{
    /* Mixes time and an address, which differs between processes. */
    uint64_t x = wf_clock_ns() ^ (uint64_t)(uintptr_t)somewhere << 32;
    return x * UINT64_C(0x9E3779B97F4A7C15) >> 33;
}

/* Parses "", "SEED" or "SEED,THREADS". Leaves missing values unchanged; returns false on a syntax
 * error. */
static bool parse_options(const char *text, uint64_t *seed, long *threads)
{
    char *end;
    if (!*text)
        return true;
    if (*text < '0' || *text > '9')
        return false;
    *seed = strtoull(text, &end, 10);
    if (*end == ',' && end[1] >= '0' && end[1] <= '9')
        *threads = strtol(end + 1, &end, 10);
    return !*end && *threads >= 1 && *threads <= WF_CPU_MAX_THREADS;
}

static wf_status check_open(wf_ctx *ctx, const char *options, wf_device **out)
{
    *out = NULL;
    long threads = wf_threads_available();
    WF_TRY(wf_cpu_isa_check(ctx));
    wf_check_device *d = wf_mem_new(ctx, sizeof *d);
    if (!d)
        return WF_ERR_MEMORY;
    d->seed = fresh_seed(d);
    if (!parse_options(options, &d->seed, &threads)) {
        wf_mem_free(ctx, d);
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "invalid device 'check:%s'; use check:SEED or check:SEED,THREADS with 1 to %d "
            "threads",
            options, WF_CPU_MAX_THREADS);
    }
    d->head = (wf_device){.ops = &wf_check_device_ops,
                          .ctx = ctx,
                          .target = {.name = "check",
                                     .alignment = WF_MEM_ALIGN,
                                     .guard = WF_CHECK_GUARD,
                                     .owner = d,
                                     .supports = wf_kernel_target_supports,
                                     .workspace = wf_kernel_target_workspace},
                          .kernels = wf_cpu_isa_now()->kernels,
                          .threads = (int)threads};
    snprintf(d->head.description, sizeof d->head.description,
             "cpu kernels in random order with memory checks, seed %llu, %ld thread%s",
             (unsigned long long)d->seed, threads, WF_PLURAL(threads));
    *out = &d->head;
    return WF_OK;
}

static void check_close(wf_device *d)
{
    wf_mem_free(d->ctx, d);
}

/* ---- Buffers: their guards are not in the device's account ---- */

static wf_status check_buffer_new(wf_device *d, size_t bytes, wf_buffer **out)
{
    *out = NULL;
    if (bytes > SIZE_MAX - 2 * WF_CHECK_EDGE)
        return wf_fail(d->ctx, WF_ERR_MEMORY, "out of memory: %zu bytes could not be allocated",
                       bytes);
    WF_TRY(wf_cpu_buffer_new(d, bytes + 2 * WF_CHECK_EDGE, out));
    /* The buffer pretends to be the part between the edges: base and bytes exclude them. */
    unsigned char *memory = (*out)->base;
    (*out)->base = memory + WF_CHECK_EDGE;
    (*out)->bytes = bytes;
    wf_check_guard(memory, WF_CHECK_EDGE);
    wf_check_guard(memory + WF_CHECK_EDGE + bytes, WF_CHECK_EDGE);
    return WF_OK;
}

static void check_buffer_free(wf_buffer *b)
{
    if (!b->borrowed)
        b->base = (unsigned char *)b->base - WF_CHECK_EDGE;
    wf_cpu_buffer_free(b);
}

/* ---- Executables ---- */

/* Allocates the arrays that runs use, and copies of region and ports if they are small. */
static wf_status allocate(wf_plan_exec *e, wf_check *c)
{
    const wf_memory *memory = &e->plan->memory;
    int most = 0;
    for (int s = 0; s < c->graph.steps; s++) {
        int touches = c->touch_first[s + 1] - c->touch_first[s];
        most = touches > most ? touches : most;
    }
    c->order = wf_arena_alloc(&e->arena, (size_t)(c->graph.steps + 1) * sizeof *c->order);
    c->left = wf_arena_alloc(&e->arena, (size_t)(c->extent_count + 1) * sizeof *c->left);
    c->hash = wf_arena_alloc(&e->arena, (size_t)(most + 1) * sizeof *c->hash);
    if (!c->order || !c->left || !c->hash)
        return WF_ERR_MEMORY;
    if (memory->activations < WF_CHECK_SMALL &&
        !(c->region_copy = wf_arena_alloc(&e->arena, memory->activations + 1)))
        return WF_ERR_MEMORY;
    if (memory->ports < WF_CHECK_SMALL &&
        !(c->ports_copy = wf_arena_alloc(&e->arena, memory->ports + 1)))
        return WF_ERR_MEMORY;
    return WF_OK;
}

static wf_status check_prepare(wf_plan_exec *e)
{
    wf_check *c = e->own = wf_arena_alloc(&e->arena, sizeof *c);
    if (!c)
        return WF_ERR_MEMORY;
    /* The draft lives on the stack and its arrays in `scratch`; only the results go into the
     * executable's arena. */
    wf_check_draft d = {.e = e, .plan = e->plan, .check = c};
    wf_arena_init(&d.scratch, e->head.session->ctx);
    wf_status status = wf_check_find_touches(&d);
    if (status == WF_OK)
        status = wf_check_find_order(&d);
    wf_arena_free(&d.scratch);
    return status == WF_OK ? allocate(e, c) : status;
}

const wf_device_ops wf_check_device_ops = {
    .kind = "check",
    .sizes_per_doubling = 4,
    .doc = "cpu kernels with memory checks, to find bugs in Weft; check:SEED repeats a run, "
           "check:SEED,N uses N threads",
    .open = check_open,
    .close = check_close,
    .buffer_new = check_buffer_new,
    .buffer_free = check_buffer_free,
    WF_CPU_HOST_SLOTS,
    .compile = wf_plan_compile,
    .plan = wf_plan_sizes,
    .prepare_plan = check_prepare,
    .run_plan = wf_check_run,
};
