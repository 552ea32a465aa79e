/* SPDX-License-Identifier: MIT */
/* grid.c - schedules the blocks of a grid and their threads, and implements everything that threads
 * wait for. */
#define _GNU_SOURCE
#include "grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fiber.h"

#define MOST_THREADS 1024
#define MOST_WARPS (MOST_THREADS / 32)
#define BARRIERS 16

typedef enum { READY, AT_SYNC, AT_BARRIER, AT_SHARED, AT_WARP, YIELDED, ENDED } wait;

typedef struct {
    uint3 index;
    bool awaited; /* called wf_emulated_await */
    wait at;
    wf_fiber *fiber;  /* NULL: not started */
    int barrier;      /* AT_BARRIER: its index */
    const void *what; /* AT_SHARED: address of its barrier */
    wf_warp_kind kind;
    int source;
    unsigned mask;
    uint64_t value, result;
} thread;

typedef struct {
    unsigned ready;   /* runnable lanes */
    unsigned waiting; /* lanes waiting in a warp function */
    unsigned live;    /* lanes that have not ended */
    unsigned gathers; /* completed gathers */
    unsigned phase;   /* completed warp functions */
    _Alignas(16) char gathered[2][32][WF_EMULATED_GATHERED];
} warp;

/* A __shared__ variable in a block. */
typedef struct {
    void *data;
    uint64_t serial; /* of the block it was initialized for */
} variable;

typedef struct block {
    struct block *next;
    uint64_t serial;
    variable *variable; /* by number, from 1 */
    int variables;
    uint3 index;
    int threads, warps, live;
    unsigned phase;      /* barriers passed */
    unsigned ready;      /* warps with runnable lanes */
    unsigned yielded;    /* threads that yielded to other blocks */
    int waiting;         /* threads in __syncthreads */
    int sum, count, all; /* values of the waiting threads, and the last results */
    int arrived[BARRIERS], expected[BARRIERS];
    wf_async *async;
    bool interrupted; /* other blocks run first */
    bool gives_way;   /* the running warp yields to others */
    unsigned turn;    /* the warp that runs first */
    bool down;        /* runs lanes from last to first */
    void *shared;
    thread thread[MOST_THREADS];
    warp warp[MOST_WARPS];
} block;

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
uint64_t wf_emulated_serial;
wf_grid_place wf_grid_here;

static struct {
    const wf_emulated_grid *grid;
    block *block;    /* the running block */
    int thread;      /* index in the block */
    int next;        /* index of the fiber switched to */
    wf_fiber *fiber; /* the running fiber */
    wf_fiber main;
    wf_fiber *idle; /* fibers */
    block *spare;   /* blocks */
    uint64_t random;
    uint64_t serial;   /* of the last block created */
    int variables;     /* number of __shared__ variables in all kernels */
    uint64_t progress; /* increases with every event other than waiting */
} now;

uint64_t wf_grid_random(void)
{
    if (!now.random) {
        const char *text = getenv("WEFT_EMULATED_SEED");
        now.random = text ? strtoull(text, NULL, 10) * 2 + 1 : 3;
    }
    uint64_t x = now.random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- Deadlocks ---- */

_Noreturn void wf_grid_stop(const char *what)
{
    fprintf(stderr, "emulator: %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n", now.grid->name,
            blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what);
    abort();
}

/* Reports the first waiting thread and what it waits for. */
static _Noreturn void deadlock(const block *b)
{
    int at[ENDED + 1] = {0};
    for (int i = 0; i < b->threads; i++)
        at[b->thread[i].at]++;
    fprintf(
        stderr,
        "emulator: %s, block (%u, %u, %u): its threads wait for each other: %d at __syncthreads, "
        "%d at other barriers, %d at barriers in shared memory, %d in functions of warps, %d for other "
        "blocks, %d have ended\n",
        now.grid->name, b->index.x, b->index.y, b->index.z, at[AT_SYNC], at[AT_BARRIER],
        at[AT_SHARED], at[AT_WARP], at[YIELDED], at[ENDED]);
    for (int i = 0; i < b->threads; i++) {
        const thread *t = &b->thread[i];
        if (t->at != AT_WARP)
            continue;
        const warp *w = &b->warp[i / 32];
        unsigned same = 0;
        for (int lane = 0; lane < 32 && i / 32 * 32 + lane < b->threads; lane++) {
            const thread *o = &b->thread[i / 32 * 32 + lane];
            if (o->at == AT_WARP && o->kind == t->kind && o->mask == t->mask)
                same |= 1u << lane;
        }
        fprintf(stderr,
                "emulator: thread %d calls a warp function for lanes 0x%08x; lanes that called it: "
                "0x%08x, ended: 0x%08x\n",
                i, t->mask, same, ~w->live);
        break;
    }
    abort();
}

/* ---- Switching between threads ---- */

/* Chooses the next thread, preferably of the running warp. Returns -1 when no thread is
 * runnable. */
static int choose(block *b)
{
    if (b->interrupted)
        return -1;
    while (!b->ready)
        if (b->live == 0 || !wf_async_advance(b->async))
            return -1;
    unsigned w = (unsigned)now.thread / 32, others = b->ready & ~(1u << w);
    if (!b->warp[w].ready || (b->gives_way && others)) {
        unsigned rotated = others >> b->turn | (b->turn ? others << (32 - b->turn) : 0);
        w = ((unsigned)__builtin_ctz(rotated) + b->turn) % 32;
    }
    b->gives_way = false;
    unsigned ready = b->warp[w].ready;
    return (int)(w * 32 +
                 (b->down ? 31u - (unsigned)__builtin_clz(ready) : (unsigned)__builtin_ctz(ready)));
}

static void set_ready(block *b, int first_lane, unsigned lanes)
{
    b->warp[first_lane / 32].ready |= lanes;
    b->ready |= 1u << first_lane / 32;
}

static void set_busy(block *b, int i)
{
    warp *w = &b->warp[i / 32];
    w->ready &= ~(1u << i % 32);
    if (!w->ready)
        b->ready &= ~(1u << i / 32);
}

static void enter(int i)
{
    now.thread = i;
    threadIdx = now.block->thread[i].index;
    wf_grid_here.thread = i;
    wf_grid_here.phase = now.block->phase;
    wf_grid_here.warp_phase = now.block->warp[i / 32].phase;
    wf_grid_here.stack = now.fiber->stack;
    wf_grid_here.stack_end = (const char *)now.fiber->stack + now.fiber->bytes;
    set_busy(now.block, i);
}

static void run_threads(void);

static wf_fiber *fiber_for(thread *t)
{
    if (!t->fiber) {
        t->fiber = now.idle;
        if (t->fiber)
            now.idle = t->fiber->next;
        else
            t->fiber = wf_fiber_new();
        wf_fiber_start(t->fiber, run_threads);
    }
    return t->fiber;
}

/* Suspends the running thread, which waits; returns when it is runnable again. */
static void leave(void)
{
    if (wf_race_pending)
        wf_race_settle();
    block *b = now.block;
    int mine = now.thread, next = choose(b);
    if (next == mine) {
        enter(mine);
        return;
    }
    wf_fiber *from = now.fiber, *to = &now.main;
    if (next >= 0) {
        to = fiber_for(&b->thread[next]);
        now.next = next;
    }
    now.fiber = to;
    wf_fiber_change(from, to, 0);
    enter(now.next);
}

static void ended(block *b, int i);

/* The body of a fiber: starts new threads one after the other while no suspended thread is
 * runnable. */
static void run_threads(void)
{
    enter(now.next);
    for (;;) {
        block *b = now.block;
        wf_fiber *self = now.fiber, *to = &now.main;
        b->thread[now.thread].fiber = self;
        now.grid->call(now.grid->arguments);
        ended(b, now.thread);
        int next = choose(b);
        if (next >= 0 && !b->thread[next].fiber) {
            enter(next);
            continue;
        }
        if (next >= 0)
            to = b->thread[next].fiber;
        now.next = next;
        self->next = now.idle;
        now.idle = self;
        now.fiber = to;
        wf_fiber_change(self, to, 1);
    }
}

/* ---- Block barriers ---- */

static void release_sync(block *b)
{
    b->phase++;
    b->count = b->sum;
    b->all = b->waiting;
    b->sum = b->waiting = 0;
    for (int i = 0; i < b->threads; i++)
        if (b->thread[i].at == AT_SYNC) {
            b->thread[i].at = READY;
            set_ready(b, i, 1u << i % 32);
        }
    now.progress++;
}

static void ended(block *b, int i)
{
    wf_async_thread_ends(b->async);
    if (wf_race_pending)
        wf_race_settle();
    b->thread[i].at = ENDED;
    b->warp[i / 32].live &= ~(1u << i % 32);
    now.progress++;
    if (--b->live > 0 && b->waiting == b->live)
        release_sync(b);
}

int wf_emulated_syncthreads(wf_barrier_kind kind, int value)
{
    block *b = now.block;
    thread *t = &b->thread[now.thread];
    b->sum += kind == WF_BARRIER_AND || kind == WF_BARRIER_OR ? value != 0 : value;
    b->waiting++;
    t->at = AT_SYNC;
    if (b->waiting == b->live)
        release_sync(b);
    leave();
    return kind == WF_BARRIER_AND  ? b->count == b->all
           : kind == WF_BARRIER_OR ? b->count > 0
                                   : b->count;
}

void wf_emulated_barrier_arrive(int barrier, int threads)
{
    block *b = now.block;
    if (barrier < 0 || barrier >= BARRIERS || threads <= 0 || threads % 32)
        wf_grid_stop("uses a barrier outside 0 to 15, or not for whole warps");
    if (b->arrived[barrier] > 0 && b->expected[barrier] != threads)
        wf_grid_stop("expects a number of threads at a barrier that differs from other threads");
    b->expected[barrier] = threads;
    if (++b->arrived[barrier] == threads) {
        b->arrived[barrier] = 0;
        b->phase++;
        now.progress++;
        for (int i = 0; i < b->threads; i++)
            if (b->thread[i].at == AT_BARRIER && b->thread[i].barrier == barrier) {
                b->thread[i].at = READY;
                set_ready(b, i, 1u << i % 32);
            }
    }
}

void wf_emulated_barrier(int barrier, int threads)
{
    thread *t = &now.block->thread[now.thread];
    t->at = AT_BARRIER;
    t->barrier = barrier;
    wf_emulated_barrier_arrive(barrier, threads);
    leave();
}

void wf_grid_wait(const void *what)
{
    thread *t = &now.block->thread[now.thread];
    t->at = AT_SHARED;
    t->what = what;
    leave();
}

void wf_grid_wake(const void *what)
{
    block *b = now.block;
    now.progress++;
    for (int i = 0; i < b->threads; i++)
        if (b->thread[i].at == AT_SHARED && b->thread[i].what == what) {
            b->thread[i].at = READY;
            set_ready(b, i, 1u << i % 32);
        }
}

void wf_grid_give_way(void)
{
    block *b = now.block;
    b->gives_way = true;
    set_ready(b, now.thread, 1u << now.thread % 32);
    leave();
}

void wf_grid_interrupt(void)
{
    now.block->interrupted = true;
}

/* ---- Warps ---- */

static uint64_t reduce(wf_warp_kind kind, uint64_t a, uint64_t b)
{
    switch (kind) {
    case WF_WARP_ADD: return a + b;
    case WF_WARP_AND: return a & b;
    case WF_WARP_OR: return a | b;
    case WF_WARP_XOR: return a ^ b;
    case WF_WARP_MIN: return (int64_t)a < (int64_t)b ? a : b;
    case WF_WARP_MAX: return (int64_t)a > (int64_t)b ? a : b;
    case WF_WARP_UMIN: return a < b ? a : b;
    case WF_WARP_UMAX: return a > b ? a : b;
    default: return 0;
    }
}

/* Computes the results of all lanes in the mask, once all have arrived. */
static void finish_warp(thread *lanes, wf_warp_kind kind, unsigned mask)
{
    uint64_t all = 0;
    bool first = true;
    for (unsigned m = mask; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        thread *t = &lanes[lane];
        switch (kind) {
        case WF_WARP_SYNC:
        case WF_WARP_GATHER: break;
        case WF_WARP_SHUFFLE: /* the value of an absent source lane is undefined */
            t->result = mask >> t->source & 1 ? lanes[t->source].value : UINT64_MAX;
            break;
        case WF_WARP_BALLOT: all |= t->value ? 1u << lane : 0; break;
        case WF_WARP_MATCH:
            t->result = 0;
            for (unsigned o = mask; o; o &= o - 1)
                if (lanes[__builtin_ctz(o)].value == t->value)
                    t->result |= o & -o;
            break;
        default: all = first ? t->value : reduce(kind, all, t->value);
        }
        first = false;
    }
    if (kind != WF_WARP_SHUFFLE && kind != WF_WARP_MATCH)
        for (unsigned m = mask; m; m &= m - 1)
            lanes[__builtin_ctz(m)].result = all;
}

uint64_t wf_emulated_warp(wf_warp_kind kind, unsigned mask, uint64_t value, int source)
{
    block *b = now.block;
    int first = now.thread / 32 * 32, lane = now.thread % 32;
    thread *lanes = &b->thread[first], *t = &lanes[lane];
    warp *w = &b->warp[first / 32];
    if (!(mask >> lane & 1))
        wf_grid_stop("calls a function of its warp for other lanes, and not for its own");
    if (mask & ~w->live)
        wf_grid_stop(
            "calls a function of its warp for lanes that have ended or that there are not");
    t->at = AT_WARP;
    t->kind = kind;
    t->mask = mask;
    t->value = value;
    t->source = source;
    w->waiting |= 1u << lane;
    bool all = (w->waiting & mask) == mask;
    for (unsigned m = mask; all && m; m &= m - 1) {
        const thread *o = &lanes[__builtin_ctz(m)];
        all = o->kind == kind && o->mask == mask;
    }
    if (all) {
        finish_warp(lanes, kind, mask);
        w->gathers += kind == WF_WARP_GATHER;
        w->phase++;
        for (unsigned m = mask; m; m &= m - 1)
            lanes[__builtin_ctz(m)].at = READY;
        w->waiting &= ~mask;
        set_ready(b, first, mask);
        now.progress++;
    }
    leave();
    return t->result;
}

/* Two buffers suffice: a lane that calls again has read its result, and all lanes meet in the next
 * call. */
const void *wf_emulated_gather(const void *mine, size_t bytes)
{
    warp *w = &now.block->warp[now.thread / 32];
    const unsigned turn = w->gathers % 2;
    if (bytes > WF_EMULATED_GATHERED)
        wf_grid_stop("brings more than lanes can exchange");
    memcpy(w->gathered[turn][now.thread % 32], mine, bytes);
    wf_emulated_warp(WF_WARP_GATHER, 0xffffffffu, 0, 0);
    return w->gathered[turn];
}

unsigned wf_emulated_activemask(void)
{
    return now.block->warp[now.thread / 32].live;
}

/* ---- Programmatic dependent launch ---- */

void wf_emulated_early(void)
{
    now.block->thread[now.thread].awaited = false;
}

void wf_emulated_await(void)
{
    now.block->thread[now.thread].awaited = true;
}

void wf_emulated_early_end(void)
{
    if (!now.block->thread[now.thread].awaited)
        wf_grid_stop("the thread of an early kernel ended without wf_grid_await");
}

int wf_emulated_lane(void)
{
    return now.thread % 32;
}

/* ---- Blocks ---- */

void *wf_emulated_shared(void)
{
    return now.block->shared;
}

size_t wf_grid_shared(void)
{
    return now.grid->shared;
}

wf_async **wf_grid_async(void)
{
    return &now.block->async;
}

void wf_emulated_yield(void)
{
    block *b = now.block;
    b->thread[now.thread].at = YIELDED;
    b->yielded++;
    leave();
}

/* Fills memory with one bits, which are NaN in all float types. */
static void *filled(void *data, size_t bytes, size_t alignment)
{
    if (bytes && !data && posix_memalign(&data, alignment, bytes) != 0) {
        fputs("emulator: no memory for what a block shares\n", stderr);
        abort();
    }
    if (bytes) {
        memset(data, 0xff, bytes);
        wf_race_forget(data, bytes);
    }
    return data;
}

void *wf_emulated_find(wf_emulated_slot *slot, size_t bytes, size_t alignment)
{
    block *b = now.block;
    if (!slot->number)
        slot->number = ++now.variables;
    if (slot->number >= b->variables) {
        int count = now.variables + 1;
        b->variable = realloc(b->variable, (size_t)count * sizeof *b->variable);
        if (!b->variable)
            abort();
        memset(b->variable + b->variables, 0, (size_t)(count - b->variables) * sizeof *b->variable);
        b->variables = count;
    }
    variable *v = &b->variable[slot->number];
    if (v->serial != b->serial) {
        v->data = filled(v->data, bytes, alignment < sizeof(void *) ? sizeof(void *) : alignment);
        v->serial = b->serial;
    }
    slot->address = v->data;
    slot->serial = b->serial;
    return v->data;
}

static block *block_new(const wf_emulated_grid *g, uint64_t number)
{
    block *b = now.spare;
    if (b)
        now.spare = b->next;
    else if (!(b = calloc(1, sizeof *b)))
        abort();
    b->index = (uint3){(unsigned)(number % g->grid.x), (unsigned)(number / g->grid.x % g->grid.y),
                       (unsigned)(number / g->grid.x / g->grid.y)};
    b->threads = b->live = (int)(g->block.x * g->block.y * g->block.z);
    b->warps = (b->threads + 31) / 32;
    b->serial = ++now.serial;
    b->ready = b->yielded = b->phase = 0;
    b->waiting = b->sum = 0;
    memset(b->arrived, 0, sizeof b->arrived);
    uint64_t random = wf_grid_random();
    b->turn = (unsigned)(random % (unsigned)b->warps);
    b->down = random >> 32 & 1;
    b->shared = filled(b->shared, g->shared, 1024);
    for (int w = 0; w < b->warps; w++) {
        int lanes = b->threads - w * 32 < 32 ? b->threads - w * 32 : 32;
        unsigned all = lanes == 32 ? ~0u : (1u << lanes) - 1;
        b->warp[w].ready = b->warp[w].live = all;
        b->warp[w].waiting = b->warp[w].gathers = b->warp[w].phase = 0;
        b->ready |= 1u << w;
    }
    for (int i = 0; i < b->threads; i++)
        b->thread[i] =
            (thread){.index = {(unsigned)i % g->block.x, (unsigned)i / g->block.x % g->block.y,
                               (unsigned)i / g->block.x / g->block.y},
                     .at = READY};
    return b;
}

/* Runs the block until it ends, or until all its threads wait for other blocks. */
static void block_run(block *b)
{
    for (int i = 0; b->yielded && i < b->threads; i++)
        if (b->thread[i].at == YIELDED) {
            b->thread[i].at = READY;
            set_ready(b, i, 1u << i % 32);
        }
    b->yielded = 0;
    b->interrupted = false;
    now.block = b;
    blockIdx = b->index;
    wf_emulated_serial = b->serial;
    wf_grid_here.block = b->serial;
    now.thread = 0;
    now.next = choose(b);
    if (now.next >= 0) {
        now.fiber = fiber_for(&b->thread[now.next]);
        wf_fiber_change(&now.main, now.fiber, 0);
    }
    if (b->live > 0 && !b->yielded && !b->interrupted)
        deadlock(b);
    if (b->live == 0) {
        wf_async_end(b->async);
        b->async = NULL;
    }
    wf_grid_here.block = 0;
}

/* The order of blocks: position i holds block (i * step + start) mod count. */
typedef struct {
    uint64_t count, step, start;
} order;

static order order_of(uint64_t count)
{
    order o = {count, 1, 0};
    if (count > 2) {
        uint64_t a, b;
        do {
            o.step = wf_grid_random() % (count - 1) + 1;
            for (a = count, b = o.step; b;) {
                uint64_t rest = a % b;
                a = b;
                b = rest;
            }
        } while (a != 1);
        o.start = wf_grid_random() % count;
    }
    return o;
}

void wf_grid_run(const wf_emulated_grid *g)
{
    now.grid = g;
    wf_grid_here.kernel = g->name;
    wf_grid_here.first = now.serial + 1;
    gridDim = g->grid;
    blockDim = g->block;
    order o = order_of((uint64_t)g->grid.x * g->grid.y * g->grid.z);
    block *waiting = NULL; /* blocks that wait for others */
    uint64_t begun = 0, rounds = 0, progress = 0;
    while (begun < o.count || waiting) {
        block **at = &waiting;
        while (*at) {
            block *b = *at;
            block_run(b);
            if (b->live > 0) {
                at = &b->next;
                continue;
            }
            *at = b->next;
            b->next = now.spare;
            now.spare = b;
        }
        rounds = now.progress != progress ? 0 : rounds + 1;
        progress = now.progress;
        if (begun < o.count) {
            uint64_t number = (uint64_t)((unsigned __int128)begun++ * o.step % o.count);
            block *b = block_new(g, (number + o.start) % o.count);
            b->next = waiting;
            waiting = b;
        } else if (rounds > 100000) {
            deadlock(waiting);
        }
    }
    /* The next grid may use other sizes of shared memory. */
    while (now.spare) {
        block *b = now.spare;
        now.spare = b->next;
        for (int i = 0; i < b->variables; i++)
            free(b->variable[i].data);
        free(b->variable);
        free(b->shared);
        free(b);
    }
    now.grid = NULL;
    now.block = NULL;
}
