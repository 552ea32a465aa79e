/* SPDX-License-Identifier: MIT */
/*
 * thread.c - the thread pool: teams of threads that run loops.
 *
 * A team is a set of workers that serves one caller at a time; concurrent callers use different
 * teams. The caller posts a loop, works on it as member 0, and returns when every range is done. A
 * worker prefers its own ranges, the same in every loop, for the sake of its caches. But it must
 * claim a range before running it, and a member that finishes early claims any that are left. So
 * the caller never waits for a worker that has not started, and no more threads run than there are
 * processors: eight ranges on two processors are run by two threads, four each.
 *
 * Shared variables, and what orders them:
 *
 *   post    loop number << UNIT_BITS | units - 1. The caller writes it after the loop's fields;
 *           workers read it with acquire. A worker that sees a post sees its loop.
 *   state   one per unit (a range, or several when there are very many): twice the number of the
 *           last loop that claimed it, plus 1 when done. It only grows, and a claim is a
 *           compare-and-swap, so a late worker with an old post cannot claim. A successful claim
 *           keeps the loop's fields valid: the caller neither returns nor posts again before it
 *           has read `done` (acquire) of that claim (release).
 *   left    one per unit of a work-stealing loop: the pieces not yet taken. The caller sets it
 *           before the post. Any member that has claimed a unit may use it, because its claim
 *           keeps the loop valid.
 *
 * An idle thread spins for a while, then sleeps. A worker falling asleep stores `asleep`, then
 * loads `post`; the caller stores `post`, then loads `asleep`. Likewise `waiting` and `state` at
 * the end of a loop. These four pairs are sequentially consistent: at least one side sees the
 * other's store, so no wake-up is lost.
 */
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/stack.h"
#include "base/thread_priv.h"

#define THREADS_MAX WF_CORES_MAX
#define UNIT_BITS 10 /* units of a loop: 1 to 1024 */
#define TEAMS 8      /* further concurrent callers run their loops alone */
#define LINE 128     /* bytes; processors prefetch 64-byte lines in pairs */
#define FAN_OUT 8    /* sleeping workers that each member wakes */
#define STOP UINT64_MAX

/* Spin times in ns. Waking a sleeping thread takes 5 to 50 us, in a virtual machine 100.
 *
 * LATE: the loop is not done but nothing is left to claim, so a member was preempted. Spinning as
 * long as a wake-up takes costs at most twice the optimum, and sleeping frees a processor for the
 * late member. BETWEEN: between loops the caller does something short (a norm, sampling), and the
 * worker that wakes last delays the whole team, so a longer spin pays. A team that is not called
 * again wastes this time once. SHARED: other threads compete for the processors; spinning would
 * take time from the threads that the spinner waits for. */
#define SPIN_LATE 50000
#define SPIN_BETWEEN 200000
#define SPIN_SHARED 2000
#define LINGER 2000          /* before an idle worker claims other members' ranges */
#define AWAY 50000           /* gap between two clock reads: this thread did not run */
#define PREEMPTED 250000     /* gap too long for an interrupt */
#define ASK 200000           /* age limit of a preemption count, which costs a system call */
#define SHARED_MIN 100000000 /* how long "shared" is remembered: at first, and at most */
#define SHARED_MAX 1600000000

_Static_assert(THREADS_MAX == 1 << UNIT_BITS, "a post holds the number of units");

typedef struct {
    wf_range_fn *fn;
    void *arg;
    int64_t share, extra; /* items per range; the first `extra` ranges have one more */
    int parts, units;     /* ranges; claimable units of one or more ranges */
    int64_t piece;        /* work stealing: items taken at once, units == parts; 0: static split */
} loop;

typedef struct team team;

/* State of unit i and of worker i, stored together but otherwise unrelated. Worker 0 is the
 * caller. */
typedef struct {
    alignas(LINE) _Atomic uint64_t state;
    _Atomic uint64_t left; /* in the same line: a claimer starts with the unit's own pieces */
    alignas(LINE) atomic_bool asleep; /* cleared under the lock by the waking thread */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t id;
    team *team;
    int index;
    uint64_t idle; /* clock at which it became idle, plus time not running; private to the worker */
} slot;

struct team {
    alignas(LINE) _Atomic uint64_t post;
    loop loop;
    alignas(LINE) atomic_bool held; /* in use by a caller, who owns the next three fields: */
    int workers;                    /* started */
    int wanted;                     /* requested so far; failed starts are not repeated */
    uint64_t number;                /* of the last loop */
    alignas(LINE) atomic_int sleepers;
    atomic_bool waiting; /* the caller sleeps or is about to sleep */
    pthread_mutex_t lock;
    pthread_cond_t done;
    slot slots[THREADS_MAX];
};

static team teams[TEAMS];
/* Set once by look_at_machine, then only read. cpus: one processor of each core first, then the
 * siblings; capacity: threads that can run concurrently. */
static int cpus[WF_CORES_MAX], cores, capacity;
static bool pin;
static pthread_once_t machine_once = PTHREAD_ONCE_INIT, pool_once = PTHREAD_ONCE_INIT;

static alignas(LINE) atomic_int awake;            /* workers of all teams that spin or work */
static _Atomic uint64_t shared_until, shared_for; /* clock; ns of the last such period */
static _Atomic uint64_t preempted_at;             /* clock of the last preemption */

static _Thread_local bool inside;         /* this thread runs a range of a loop */
static _Thread_local int last;            /* the team this thread used last */
static _Thread_local int64_t preemptions; /* this thread's count at asked_at */
static _Thread_local uint64_t asked_at;

static int clamp(int64_t x, int64_t low, int64_t high)
{
    return (int)(x < low ? low : x > high ? high : x);
}

/* ---- Number of threads ---- */

static void look_at_machine(void)
{
    int n = wf_cores_list(cpus), quota = wf_cores_quota("");
    cores = clamp(wf_cores_order("", cpus, n), 1, quota);
    capacity = clamp(n, 1, quota);
}

int wf_threads_available(void)
{
    const char *text = getenv("WEFT_THREADS");
    char *end = NULL;
    long asked = text ? strtol(text, &end, 10) : 0;
    if (asked > 0 && !*end)
        /* The user's number may exceed the processors: capacity still limits how many threads
         * run. */
        return clamp(asked, 1, THREADS_MAX);
    pthread_once(&machine_once, look_at_machine);
    return clamp(cores, 1, THREADS_MAX);
}

/* ---- Waiting ---- */

static void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb"); /* `yield` is a no-op on most ARM cores */
#endif
}

/* Returns `alone`, or a shorter time when the processors are shared with other threads. */
static uint64_t spin_time(uint64_t now, uint64_t alone)
{
    bool shared = now < atomic_load_explicit(&shared_until, memory_order_relaxed) ||
                  atomic_load_explicit(&awake, memory_order_relaxed) >= capacity;
    return shared ? SPIN_SHARED : alone;
}

/* One preemption is chance: some daemon always runs. Two within SHARED_MIN mean that the processors
 * are shared. The period doubles when it recurs soon after the last one ended. Concurrent updates
 * may lose one, which is harmless. */
static void note_preemption(uint64_t now)
{
    uint64_t until = atomic_load_explicit(&shared_until, memory_order_relaxed);
    uint64_t time = atomic_load_explicit(&shared_for, memory_order_relaxed);
    uint64_t before = atomic_load_explicit(&preempted_at, memory_order_relaxed);
    if (now < until)
        return;
    atomic_store_explicit(&preempted_at, now, memory_order_relaxed);
    if (now - before > SHARED_MIN)
        return;
    time = now - until > time ? SHARED_MIN : time < SHARED_MAX ? 2 * time : time;
    atomic_store_explicit(&shared_for, time, memory_order_relaxed);
    atomic_store_explicit(&shared_until, now + time, memory_order_relaxed);
}

/* Returns whether this thread was preempted since its last call; true when the system cannot
 * tell. */
static bool was_preempted(uint64_t now)
{
    int64_t before = preemptions;
    preemptions = wf_cores_preemptions();
    asked_at = now;
    return preemptions < 0 || preemptions != before;
}

/* Spins until *word differs from `from` (returns true) or `time` ns have passed since *since
 * (false). A gap in the clock means that this thread did not run. If it was preempted, the
 * processor is shared: give up, and let all threads spin less for a while. Otherwise the hypervisor
 * took the virtual processor: that time does not count, since sleeping would gain nothing. After 10
 * * time give up in any case. */
static bool spin(_Atomic uint64_t *word, uint64_t from, uint64_t *since, uint64_t time)
{
    uint64_t now = wf_clock_ns(), latest = now + 10 * time, gap;
    if (now - asked_at > ASK)
        was_preempted(now);
    for (;;) {
        for (int i = 0; i < 8; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != from)
                return true;
            relax();
        }
        gap = wf_clock_ns() - now;
        now += gap;
        if (gap > AWAY && !was_preempted(now))
            *since += gap;
        else if (gap > PREEMPTED) {
            note_preemption(now);
            return false;
        }
        if (now - *since >= time || now >= latest)
            return false;
    }
}

/* ---- Ranges ---- */

static int64_t first_item(const loop *l, int part)
{
    return part * l->share + (part < l->extra ? part : l->extra);
}

static int64_t items_of(const loop *l, int part)
{
    return l->share + (part < l->extra);
}

/* Returns the pieces [first, end) of a unit, encoded as end << 32 | first, with first == 0. */
static uint64_t all_pieces(const loop *l, int unit)
{
    return (uint64_t)((items_of(l, unit) - 1) / l->piece + 1) << 32;
}

/* Takes the first or the last of the remaining pieces. Returns its index, or -1 when none is left.
 * Relaxed order suffices: the claim made the loop visible, and `done` publishes the results. */
static int64_t take_piece(_Atomic uint64_t *left, bool first)
{
    uint64_t was = atomic_load_explicit(left, memory_order_relaxed), now;
    do {
        if (was >> 32 == (uint32_t)was)
            return -1;
        now = first ? was + 1 : was - (UINT64_C(1) << 32);
    } while (!atomic_compare_exchange_weak_explicit(left, &was, now, memory_order_relaxed,
                                                    memory_order_relaxed));
    return first ? (uint32_t)was : (int64_t)(now >> 32);
}

/* Runs the unit's own pieces from the front, then steals from the ends of the other units. */
static void run_pieces(team *t, int unit)
{
    const loop *l = &t->loop;
    for (int i = 0; i < l->parts; i++) {
        int part = (unit + i) % l->parts;
        int64_t all = items_of(l, part);
        for (int64_t k; (k = take_piece(&t->slots[part].left, i == 0)) >= 0;) {
            int64_t at = k * l->piece, begin = first_item(l, part) + at;
            int64_t items = all - at < l->piece ? all - at : l->piece;
            l->fn(l->arg, begin, begin + items, unit);
        }
    }
}

/* Runs the ranges unit, unit + units, unit + 2 * units, and so on: one range unless there are more
 * than 1024. */
static void run_ranges(const loop *l, int unit)
{
    for (int i = unit; i < l->parts; i += l->units) {
        int64_t begin = first_item(l, i);
        l->fn(l->arg, begin, begin + items_of(l, i), i);
    }
}

static void run_unit(team *t, int unit)
{
    if (t->loop.piece)
        run_pieces(t, unit);
    else
        run_ranges(&t->loop, unit);
}

static uint64_t claimed(uint64_t number)
{
    return 2 * number;
}

static uint64_t done(uint64_t number)
{
    return 2 * number + 1;
}

static void wake_caller(team *t)
{
    pthread_mutex_lock(&t->lock); /* not between the caller's last check and its wait */
    pthread_mutex_unlock(&t->lock);
    pthread_cond_signal(&t->done);
}

/* Runs the unit unless it is already claimed. Safe with an old post: states only grow, so an old
 * number cannot claim. The final store and the load of `waiting` are one of the four pairs
 * above. */
static void try_unit(team *t, uint64_t number, int unit)
{
    _Atomic uint64_t *state = &t->slots[unit].state;
    uint64_t was = atomic_load_explicit(state, memory_order_relaxed);
    if (was >= claimed(number) ||
        !atomic_compare_exchange_strong_explicit(state, &was, claimed(number), memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    run_unit(t, unit);
    atomic_store(state, done(number));
    if (atomic_load(&t->waiting))
        wake_caller(t);
}

/* Decode a post. Post 0, before the first loop, has the number 0, which try_unit always refuses. */
static uint64_t number_of(uint64_t post)
{
    return post >> UNIT_BITS;
}

static int units_of(uint64_t post)
{
    return (int)(post % THREADS_MAX) + 1;
}

/* Returns whether every unit of this post is done; the post may be an old one. */
static bool all_done(team *t, uint64_t post)
{
    for (int i = 0; i < units_of(post); i++)
        if (atomic_load(&t->slots[i].state) < done(number_of(post)))
            return false;
    return true;
}

/* Member i of a crew owns units first_unit(i) .. first_unit(i + 1). */
static int first_unit(int i, int crew, int units)
{
    return (int)((int64_t)i * units / crew);
}

/* Members that take part: no more than can run at once. */
static int crew_of(int units)
{
    return units < capacity ? units : capacity;
}

/* ---- Workers ---- */

static void wake_worker(slot *w)
{
    pthread_mutex_lock(&w->lock);
    bool asleep = atomic_load_explicit(&w->asleep, memory_order_relaxed);
    atomic_store_explicit(&w->asleep, false, memory_order_relaxed);
    pthread_mutex_unlock(&w->lock);
    if (asleep)
        pthread_cond_signal(&w->wake);
}

/* Wakes FAN_OUT sleeping members. They wake others in turn: a tree is faster than one thread waking
 * all. */
static void wake_some(team *t, int me, int crew)
{
    if (atomic_load(&t->sleepers) == 0)
        return;
    for (int i = FAN_OUT * me + 1; i <= FAN_OUT * (me + 1) && i < crew; i++)
        if (atomic_load(&t->slots[i].asleep))
            wake_worker(&t->slots[i]);
}

/* Sleeps until the post differs from `seen`. */
static void sleep_worker(slot *w, uint64_t seen)
{
    team *t = w->team;
    atomic_fetch_sub_explicit(&awake, 1, memory_order_relaxed);
    pthread_mutex_lock(&w->lock);
    /* This store before the load of `post`, and the caller's store of `post` before its load of
     * `asleep`: see the top of the file. */
    atomic_store(&w->asleep, true);
    atomic_fetch_add(&t->sleepers, 1);
    if (atomic_load(&t->post) != seen)
        atomic_store_explicit(&w->asleep, false, memory_order_relaxed);
    while (atomic_load_explicit(&w->asleep, memory_order_relaxed))
        pthread_cond_wait(&w->wake, &w->lock);
    atomic_fetch_sub(&t->sleepers, 1);
    pthread_mutex_unlock(&w->lock);
    atomic_fetch_add_explicit(&awake, 1, memory_order_relaxed);
}

/* Waits for the post after `seen` and returns it. */
static uint64_t await_post(slot *w, uint64_t seen)
{
    team *t = w->team;
    if (!spin(&t->post, seen, &w->idle, LINGER)) {
        /* The loop is still running, so a member is late: claim what is left. */
        for (int i = 0; i < units_of(seen); i++)
            try_unit(t, number_of(seen), i);
        if (!spin(&t->post, seen, &w->idle, spin_time(wf_clock_ns(), SPIN_LATE)) &&
            !(all_done(t, seen) &&
              spin(&t->post, seen, &w->idle, spin_time(wf_clock_ns(), SPIN_BETWEEN))))
            sleep_worker(w, seen);
    }
    return atomic_load_explicit(&t->post, memory_order_acquire);
}

/* Only the first team is pinned: worker i of every team would get the same processor. */
static void *run_worker(void *arg)
{
    slot *w = arg;
    team *t = w->team;
    inside = true;
    if (pin && t == teams)
        wf_cores_pin(cpus[w->index]);
    w->idle = wf_clock_ns();
    for (uint64_t post = 0; (post = await_post(w, post)) != STOP;) {
        int units = units_of(post), crew = crew_of(units);
        if (w->index >= crew)
            continue; /* w->idle keeps its value */
        wake_some(t, w->index, crew);
        int end = first_unit(w->index + 1, crew, units);
        for (int i = first_unit(w->index, crew, units); i < end; i++)
            try_unit(t, number_of(post), i);
        w->idle = wf_clock_ns();
    }
    atomic_fetch_sub_explicit(&awake, 1, memory_order_relaxed);
    return NULL;
}

static bool start_worker(team *t, int index)
{
    slot *w = &t->slots[index];
    w->team = t;
    w->index = index;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (wf_thread_start(&w->id, run_worker, w) != 0)
        return false;
    atomic_fetch_add_explicit(&awake, 1, memory_order_relaxed);
    return true;
}

/* Starts workers until the team has `workers` of them, or one cannot be started. */
static void start_workers(team *t, int workers)
{
    sigset_t before;
    wf_signals_block(&before);
    t->wanted = workers;
    while (t->workers < workers && start_worker(t, t->workers + 1))
        t->workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- Teams ---- */

/* Runs at exit or when the library is unloaded. A team that is held belongs to a thread that is
 * running a loop during exit (or exit was called inside a loop): its workers end with the process.
 * All other teams are stopped and stay held, so later loops run without threads. */
static void stop_teams(void)
{
    for (team *t = teams; t < teams + TEAMS; t++) {
        if (atomic_exchange_explicit(&t->held, true, memory_order_acquire))
            continue;
        atomic_store(&t->post, STOP);
        for (int i = 1; i <= t->workers; i++) {
            wake_worker(&t->slots[i]);
            pthread_join(t->slots[i].id, NULL);
        }
    }
}

static void init_team(team *t)
{
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->done, NULL);
}

/* Runs in the child after fork, which has none of the threads. Loop numbers continue, so that
 * claimed units stay claimed, and the post is reset, so that a new worker does not mistake it for
 * its own. */
static void forget_teams(void)
{
    for (team *t = teams; t < teams + TEAMS; t++) {
        for (int i = 1; i <= t->workers; i++)
            atomic_store(&t->slots[i].asleep, false);
        t->workers = t->wanted = 0;
        atomic_store(&t->post, 0);
        atomic_store(&t->sleepers, 0);
        atomic_store(&t->waiting, false);
        init_team(t);
        atomic_store(&t->held, false);
    }
    atomic_store(&awake, 0);
}

static void init_teams(void)
{
    const char *text = getenv("WEFT_PIN");
    pin = text && strcmp(text, "1") == 0;
    for (team *t = teams; t < teams + TEAMS; t++)
        init_team(t);
    pthread_once(&machine_once, look_at_machine);
    pthread_atfork(NULL, NULL, forget_teams);
    atexit(stop_teams);
}

/* Prefers the team this thread used last: its workers' caches hold the data. NULL: all are in
 * use. */
static team *take_team(void)
{
    for (int i = 0; i < TEAMS; i++) {
        team *t = &teams[(last + i) % TEAMS];
        if (!atomic_load_explicit(&t->held, memory_order_relaxed) &&
            !atomic_exchange_explicit(&t->held, true, memory_order_acquire)) {
            last = (int)(t - teams);
            return t;
        }
    }
    return NULL;
}

/* Waits until all units are done. Every unit is already claimed. */
static void wait_for_all(team *t, uint64_t post)
{
    uint64_t since = 0, time = 0, number = number_of(post);
    for (int i = 1; i < units_of(post); i++) {
        _Atomic uint64_t *state = &t->slots[i].state;
        if (atomic_load_explicit(state, memory_order_acquire) == done(number))
            continue;
        if (!since) {
            since = wf_clock_ns();
            time = spin_time(since, SPIN_LATE);
        }
        if (spin(state, claimed(number), &since, time))
            continue;
        pthread_mutex_lock(&t->lock);
        atomic_store(&t->waiting, true);
        while (!all_done(t, post))
            pthread_cond_wait(&t->done, &t->lock);
        atomic_store_explicit(&t->waiting, false, memory_order_relaxed);
        pthread_mutex_unlock(&t->lock);
        return;
    }
}

/* Runs the loop and releases the team. */
static void run_loop(team *t, const loop *l)
{
    int units = l->units, crew = crew_of(units), mine = first_unit(1, crew, units);
    if (t->wanted < crew - 1)
        start_workers(t, crew - 1);

    uint64_t number = ++t->number, post = number << UNIT_BITS | (uint64_t)(units - 1);
    t->loop = *l;
    for (int i = 0; l->piece && i < units; i++)
        atomic_store_explicit(&t->slots[i].left, all_pieces(l, i), memory_order_relaxed);
    /* Claimed before the post, so that no worker takes range 0, which the caller runs by
     * contract. */
    atomic_store_explicit(&t->slots[0].state, claimed(number), memory_order_relaxed);
    atomic_store(&t->post, post);
    wake_some(t, 0, crew);

    inside = true;
    run_unit(t, 0);
    atomic_store(&t->slots[0].state, done(number));
    for (int i = 1; i < mine; i++)
        try_unit(t, number, i);
    for (int i = units - 1; i >= mine; i--) /* backwards: the last workers are woken last */
        try_unit(t, number, i);
    inside = false;
    wait_for_all(t, post);
    /* Pairs with take_team's acquire: the next caller sees number, workers and wanted. */
    atomic_store_explicit(&t->held, false, memory_order_release);
}

/* Returns NULL when the calling thread must run its loop alone. */
static team *find_team(void)
{
    pthread_once(&pool_once, init_teams);
    return inside || capacity == 1 ? NULL : take_team();
}

void wf_parallel_for(int threads, int64_t n, int64_t grain, wf_range_fn *fn, void *arg)
{
    if (n <= 0)
        return;
    int parts = clamp(n / (grain > 0 ? grain : 1), 1, threads > 1 ? threads : 1);
    if (parts == 1) {
        fn(arg, 0, n, 0);
        return;
    }
    loop l = {.fn = fn,
              .arg = arg,
              .share = n / parts,
              .extra = n % parts,
              .parts = parts,
              .units = parts < THREADS_MAX ? parts : THREADS_MAX};
    team *t = find_team();
    for (int i = 0; !t && i < l.units; i++)
        run_ranges(&l, i);
    if (t)
        run_loop(t, &l);
}

void wf_parallel_share(int threads, int64_t n, int64_t piece, wf_range_fn *fn, void *arg)
{
    if (n <= 0)
        return;
    piece = piece > 0 ? piece : 1;
    int parts = clamp(n / piece, 1, threads > 1 ? threads : 1);
    team *t = parts > 1 ? find_team() : NULL;
    if (!t) {
        fn(arg, 0, n, 0);
        return;
    }
    parts = crew_of(parts);                    /* more parts than threads gain nothing */
    int64_t least = n / parts / INT32_MAX + 1; /* the index of a piece has 32 bits */
    loop l = {.fn = fn,
              .arg = arg,
              .share = n / parts,
              .extra = n % parts,
              .parts = parts,
              .units = parts,
              .piece = piece > least ? piece : least};
    run_loop(t, &l);
}
