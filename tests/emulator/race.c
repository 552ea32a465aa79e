/* SPDX-License-Identifier: MIT */
/*
 * race.c - a race detector for kernels. It finds unordered accesses to shared or device memory by
 * threads of a block without a barrier between them, and by different blocks of a grid. Kernels
 * compiled with -fsanitize=thread call the functions below before every access; the sanitizer's own
 * library is not linked.
 *
 * For each two bytes it remembers the last write and two of the reads since. Barriers and warp
 * functions order accesses; flags and tickets are not understood. A write that changes nothing is
 * not a race: several threads may set one flag. Single bytes and atomics are not checked. Each race
 * is printed once per kernel and instruction, and the program exits with status 66.
 */
#define _GNU_SOURCE
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "grid.h"

enum { PAGE_BITS = 12, MOST_REPORTS = 200, FIRST_PAGES = 1 << 12 };

/* The thread and the time of an access. */
typedef struct {
    uint64_t block; /* serial; 0: no access */
    uint32_t phase; /* barriers that the block had passed */
    uint16_t warp_phase;
    uint16_t thread;
} use;

typedef struct {
    use write, read[2];
} cell;

typedef struct {
    uintptr_t number; /* page number, from 1 */
    cell *cells;      /* one for every two bytes */
} page;

static struct {
    page *pages; /* a hash table, at most half full */
    size_t count, size;
    page *last;
    const void *reported[MOST_REPORTS];
    int reports;
} now;

/* ---- Shadow memory ---- */

static page *slot_of(page *pages, size_t size, uintptr_t number)
{
    size_t i = (size_t)(number * 0x9e3779b97f4a7c15u >> 20) & (size - 1);
    while (pages[i].number && pages[i].number != number)
        i = (i + 1) & (size - 1);
    return &pages[i];
}

static void *must(void *data)
{
    if (!data) {
        fputs("emulator: no memory to look for races\n", stderr);
        abort();
    }
    return data;
}

static void grow(void)
{
    size_t size = now.size ? now.size * 2 : FIRST_PAGES;
    page *pages = must(calloc(size, sizeof *pages));
    for (size_t i = 0; i < now.size; i++)
        if (now.pages[i].number)
            *slot_of(pages, size, now.pages[i].number) = now.pages[i];
    free(now.pages);
    now.pages = pages;
    now.size = size;
    now.last = NULL;
}

static page *page_of(uintptr_t address, bool make)
{
    uintptr_t number = address >> PAGE_BITS;
    if (now.last && now.last->number == number)
        return now.last;
    if (2 * now.count >= now.size)
        grow();
    page *p = slot_of(now.pages, now.size, number);
    if (!p->number) {
        if (!make)
            return NULL;
        p->number = number;
        p->cells = must(calloc((size_t)1 << (PAGE_BITS - 1), sizeof *p->cells));
        now.count++;
    }
    return now.last = p;
}

void wf_race_forget(const void *data, size_t bytes)
{
    if (now.count == 0)
        return;
    uintptr_t from = (uintptr_t)data, to = from + bytes;
    while (from < to) {
        uintptr_t end = ((from >> PAGE_BITS) + 1) << PAGE_BITS;
        size_t n = (end < to ? end : to) - from;
        page *p = page_of(from, false);
        if (p)
            memset(&p->cells[(from & ((1u << PAGE_BITS) - 1)) / 2], 0, (n + 1) / 2 * sizeof(cell));
        from += n;
    }
}

/* ---- Order ---- */

/* Whether nothing orders an earlier access before one by the running thread. */
static bool unordered(const use *a)
{
    const wf_grid_place *w = &wf_grid_here;
    if (a->block < w->first || (a->block == w->block && a->thread == w->thread))
        return false;
    if (a->block != w->block)
        return true;
    if (a->phase != w->phase)
        return false;
    return a->thread / 32 != w->thread / 32 || a->warp_phase == (uint16_t)w->warp_phase;
}

/* A race by the running thread. A write is reported only once it has changed the memory. */
typedef struct {
    use other;
    const char *theirs; /* the other access: read or write */
    const char *address;
    size_t bytes; /* bytes written; 0: a read */
    char before[16];
    const void *where;
} race;

static race pending;
bool wf_race_pending;

static void tell(const race *r)
{
    const wf_grid_place *w = &wf_grid_here;
    for (int i = 0; i < now.reports; i++)
        if (now.reported[i] == r->where)
            return;
    if (now.reports == MOST_REPORTS)
        return;
    now.reported[now.reports++] = r->where;
    fprintf(stderr, "emulator: race in %s, block (%u, %u, %u): thread %d %s at %p what ", w->kernel,
            blockIdx.x, blockIdx.y, blockIdx.z, w->thread, r->bytes ? "writes" : "reads",
            (const void *)r->address);
    if (r->other.block == w->block)
        fprintf(stderr, "thread %d of its block %s since the last barrier, by ", r->other.thread,
                r->theirs);
    else
        fprintf(stderr, "thread %d of another block %s, by ", r->other.thread, r->theirs);
    fflush(stderr);
    void *const frame[] = {(void *)(uintptr_t)r->where};
    backtrace_symbols_fd(frame, 1, STDERR_FILENO);
}

void wf_race_settle(void)
{
    if (wf_race_pending && memcmp(pending.address, pending.before, pending.bytes) != 0)
        tell(&pending);
    wf_race_pending = false;
}

static void found(const use *other, const char *theirs, const void *address, size_t bytes,
                  const void *where)
{
    race r = {.other = *other, .theirs = theirs, .address = address, .where = where};
    r.bytes = bytes < sizeof r.before ? bytes : sizeof r.before;
    if (bytes == 0) {
        tell(&r);
        return;
    }
    memcpy(r.before, address, r.bytes);
    pending = r;
    wf_race_pending = true;
}

static bool on_stack(const void *address)
{
    const char *p = address;
    return p >= wf_grid_here.stack && p < wf_grid_here.stack_end;
}

static void look(const void *address, size_t bytes, bool write, const void *where)
{
    const wf_grid_place *w = &wf_grid_here;
    if (!w->block || on_stack(address))
        return;
    if (wf_race_pending)
        wf_race_settle();
    const use mine = {w->block, w->phase, (uint16_t)w->warp_phase, (uint16_t)w->thread};
    uintptr_t at = (uintptr_t)address;
    for (size_t i = 0; i < bytes; i += 2) {
        page *p = page_of(at + i, true);
        cell *c = &p->cells[((at + i) & ((1u << PAGE_BITS) - 1)) / 2];
        if (unordered(&c->write))
            found(&c->write, "wrote", address, write ? bytes : 0, where);
        if (!write) {
            const use *r = &c->read[0]; /* kept until a barrier orders it */
            bool first =
                r->block < w->first ||
                (r->block == mine.block && (r->phase != mine.phase || r->thread == mine.thread));
            c->read[!first] = mine;
            continue;
        }
        for (int k = 0; k < 2; k++)
            if (unordered(&c->read[k]))
                found(&c->read[k], "read", address, bytes, where);
        c->write = mine;
    }
}

__attribute__((destructor)) static void end(void)
{
    if (now.reports > 0)
        _exit(66);
}

/* ---- Entry points that the compiler calls ---- */

void __tsan_init(void);
void __tsan_init(void) {}

#define HERE __builtin_return_address(0)
#define LOOK(name, bytes, write)           \
    void __tsan_##name(void *address);     \
    void __tsan_##name(void *address)      \
    {                                      \
        look(address, bytes, write, HERE); \
    }

void __tsan_read1(void *address);
void __tsan_write1(void *address);
void __tsan_read1(void *address)
{
    (void)address;
}
void __tsan_write1(void *address)
{
    (void)address;
}
LOOK(read2, 2, false)
LOOK(read4, 4, false)
LOOK(read8, 8, false)
LOOK(read16, 16, false)
LOOK(write2, 2, true)
LOOK(write4, 4, true)
LOOK(write8, 8, true)
LOOK(write16, 16, true)
LOOK(unaligned_read2, 2, false)
LOOK(unaligned_read4, 4, false)
LOOK(unaligned_read8, 8, false)
LOOK(unaligned_read16, 16, false)
LOOK(unaligned_write2, 2, true)
LOOK(unaligned_write4, 4, true)
LOOK(unaligned_write8, 8, true)
LOOK(unaligned_write16, 16, true)

void __tsan_read_range(void *address, unsigned long bytes);
void __tsan_read_range(void *address, unsigned long bytes)
{
    look(address, bytes, false, HERE);
}

void __tsan_write_range(void *address, unsigned long bytes);
void __tsan_write_range(void *address, unsigned long bytes)
{
    look(address, bytes, true, HERE);
}
