/* SPDX-License-Identifier: MIT */
/* guard.c - the SIGBUS handler, and the list of mappings that it searches.
 *
 * A signal handler cannot lock or allocate, so the list is a fixed array of atomics. An entry is
 * written before its state becomes LIVE, and reused only after it becomes FREE. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "base/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "weft.h"

/* Mappings guarded at once. Further ones work, but a truncation under them ends the program. */
#define SLOTS 1024

enum { FREE, TAKEN, LIVE };

static struct {
    /* FREE -> TAKEN (being filled, invisible to the handler) -> LIVE -> FREE. */
    atomic_int state;
    atomic_bool broken;
    /* Addresses of the mapping; valid while LIVE. */
    _Atomic uintptr_t begin, end;
} slots[SLOTS];

/* The program's handler before ours; written before ours is installed, and restored when the guard
 * is turned off. */
static struct sigaction previous;
static atomic_bool installed;
static uintptr_t page; /* bytes; set before the handler is installed */

int wf_guard_add(const void *data, size_t bytes)
{
    for (int i = 0; i < SLOTS; i++) {
        int state = FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &state, TAKEN))
            continue;
        atomic_store(&slots[i].broken, false);
        atomic_store(&slots[i].begin, (uintptr_t)data);
        atomic_store(&slots[i].end, (uintptr_t)data + bytes);
        atomic_store(&slots[i].state, LIVE);
        return i;
    }
    return -1;
}

void wf_guard_remove(int slot)
{
    if (slot >= 0)
        atomic_store(&slots[slot].state, FREE);
}

bool wf_guard_broken(int slot)
{
    return slot >= 0 && atomic_load(&slots[slot].broken);
}

/* A truncated file lost everything from the address on, so replace all of it: one fault instead of
 * one per page. */
static bool replace_pages(uintptr_t address)
{
    for (int i = 0; i < SLOTS; i++) {
        if (atomic_load(&slots[i].state) != LIVE)
            continue;
        uintptr_t begin = atomic_load(&slots[i].begin), end = atomic_load(&slots[i].end);
        if (address < begin || address >= end)
            continue;
        uintptr_t from = address & ~(page - 1);
        atomic_store(&slots[i].broken, true);
        /* mmap is not on POSIX's list of functions that a handler may call, but it is a plain
         * system call on the systems we support. MAP_FIXED replaces the pages in place, so the
         * faulting load is repeated and reads zeros. */
        return mmap((void *)from, end - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                    -1, 0) != MAP_FAILED;
    }
    return false;
}

static void pass_on(int signal_number, siginfo_t *info, void *context)
{
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal_number, info, context);
    } else if (previous.sa_handler == SIG_DFL ||
               (previous.sa_handler == SIG_IGN && info->si_code > 0)) {
        /* The signal is raised again when this handler returns, and terminates the program as
         * usual. */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    } else if (previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal_number);
    }
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    int error = errno;
    /* si_code <= 0: a process sent the signal; it has no fault address. */
    if (info->si_code <= 0 || !replace_pages((uintptr_t)info->si_addr))
        pass_on(signal_number, info, context);
    errno = error;
}

void wf_guard_mapped_files(bool on)
{
    struct sigaction now;
    if (atomic_exchange(&installed, on) == on)
        return;
    if (on) {
        struct sigaction mine = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&mine.sa_mask);
        page = (uintptr_t)sysconf(_SC_PAGESIZE);
        sigaction(SIGBUS, NULL, &previous); /* must be set before our handler can run */
        sigaction(SIGBUS, &mine, NULL);
    } else if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
               now.sa_sigaction == on_bus_error) { /* otherwise another handler replaced ours */
        sigaction(SIGBUS, &previous, NULL);
    }
}
