/* SPDX-License-Identifier: MIT */
/* test_thread.c - base/thread.h and base/cores.h: ranges, concurrent callers, forks, and counting
 * cores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/sanitize.h"
#include "base/thread.h"
#include "scratch.h"

/* ---- Ranges ---- */

enum { THREADS = 9 };

typedef struct {
    int calls[THREADS];
    int64_t begin[THREADS], end[THREADS];
    pthread_t by[THREADS];
    atomic_bool stray; /* a thread index out of range */
} ranges;

static void record_range(void *arg, int64_t begin, int64_t end, int thread)
{
    ranges *r = arg;
    if (thread < 0 || thread >= THREADS) {
        r->stray = true;
        return;
    }
    r->calls[thread]++;
    r->begin[thread] = begin;
    r->end[thread] = end;
    r->by[thread] = pthread_self();
}

static void check_ranges(int threads, int64_t n, int64_t grain)
{
    ranges r = {0};
    wf_parallel_for(threads, n, grain, record_range, &r);
    assert_false(r.stray);

    int64_t least = grain > 1 ? grain : 1, parts = n / least;
    parts = parts > threads ? threads : parts;
    parts = parts < 1 ? 1 : parts;
    parts = n > 0 ? parts : 0;
    int64_t at = 0;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(r.calls[i], i < parts);
        if (i >= parts)
            continue;
        int64_t length = r.end[i] - r.begin[i];
        assert_true(r.begin[i] == at);
        assert_true(length >= least || parts == 1);
        assert_true(length == n / parts || length == n / parts + 1);
        at = r.end[i];
        if (i == 0)
            assert_true(pthread_equal(r.by[i], pthread_self()));
    }
    assert_true(at == (n > 0 ? n : 0));
}

static void test_ranges(void **state)
{
    (void)state;
    for (int threads = 0; threads <= THREADS; threads++) {
        for (int64_t n = -1; n <= 40; n++)
            for (int64_t grain = 0; grain <= 12; grain++)
                check_ranges(threads, n, grain);
        check_ranges(threads, INT64_C(1000000007), 1);
        check_ranges(threads, INT64_MAX, 1);
        check_ranges(threads, INT64_MAX, INT64_MAX / 3);
        check_ranges(threads, INT64_MAX, INT64_MAX);
    }
}

static void add_squares(void *arg, int64_t begin, int64_t end, int thread)
{
    int64_t *sum = arg;
    for (int64_t i = begin; i < end; i++)
        sum[thread * 8] += i * i;
}

/* Each range adds only to the cell of its thread index; a duplicate index would corrupt the sum. */
static bool sum_is_right(int threads)
{
    int64_t sum[8 * 8] = {0}, total = 0;
    wf_parallel_for(threads, 100000, 100, add_squares, sum);
    for (int i = 0; i < 8; i++)
        total += sum[8 * i];
    return total == INT64_C(333328333350000);
}

static void test_sum(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 8; threads++)
        assert_true(sum_is_right(threads));
}

static void count_items(void *arg, int64_t begin, int64_t end, int thread)
{
    atomic_int *calls = arg;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&calls[i], thread + 1);
}

/* Far more ranges than cores, and more than a loop has units. */
static void test_many_ranges(void **state)
{
    enum { MOST = 5000 };
    (void)state;
    static atomic_int calls[MOST];
    static const int counts[] = {100, 1023, 1024, 1025, 2049, MOST};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int i = 0; i < MOST; i++)
            calls[i] = 0;
        wf_parallel_for(counts[c], counts[c], 1, count_items, calls);
        for (int i = 0; i < MOST; i++)
            assert_int_equal(calls[i], i < counts[c] ? i + 1 : 0);
    }
}

typedef struct {
    int *to;
    const int *from;
} turn;

static void turn_and_add(void *arg, int64_t begin, int64_t end, int thread)
{
    const turn *t = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        t->to[i] = t->from[(i + 1) % 8] + 1;
}

/* A loop sees the writes of all ranges of the previous loop, whichever threads ran them. */

static void test_tiny_loops(void **state)
{
    enum { LOOPS = 20000 };
    (void)state;
    for (int threads = 2; threads <= 8; threads += 3) {
        int x[2][8] = {{0}};
        for (int i = 0; i < LOOPS; i++)
            wf_parallel_for(threads, 8, 1, turn_and_add, &(turn){x[(i + 1) % 2], x[i % 2]});
        for (int i = 0; i < 8; i++)
            assert_int_equal(x[LOOPS % 2][i], LOOPS);
    }
}

static void add_one(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        ((int *)arg)[i]++;
}

/* Workers that fell asleep are woken. */
static void test_after_idle(void **state)
{
    (void)state;
    int x[8] = {0};
    for (int i = 0; i < 100; i++) {
        struct timespec pause = {.tv_nsec = i % 4 * 200000};
        nanosleep(&pause, NULL);
        wf_parallel_for(8, 8, 1, add_one, x);
        for (int j = 0; j < 8; j++)
            assert_int_equal(x[j], i + 1);
    }
}

/* ---- Shared loops ---- */

enum { ITEMS = 3000 };

typedef struct {
    int threads;
    int64_t n;
    atomic_int calls[ITEMS];
    atomic_bool busy[THREADS];
    atomic_int wrong; /* calls out of range, empty, or concurrent with the same thread index */
} shared;

static void record_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    shared *s = arg;
    if (thread < 0 || thread >= s->threads || begin < 0 || begin >= end || end > s->n ||
        atomic_exchange(&s->busy[thread], true)) {
        s->wrong++;
        return;
    }
    for (int64_t i = begin; i < end; i++)
        s->calls[i]++;
    s->busy[thread] = false;
}

static void check_shared(int threads, int64_t n, int64_t piece)
{
    shared s = {.threads = threads > 1 ? threads : 1, .n = n};
    wf_parallel_share(threads, n, piece, record_piece, &s);
    assert_int_equal(s.wrong, 0);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(s.calls[i], 1);
}

static void test_shared(void **state)
{
    (void)state;
    for (int threads = 0; threads <= THREADS; threads++) {
        for (int64_t n = -1; n <= 40; n++)
            for (int64_t piece = 0; piece <= 12; piece++)
                check_shared(threads, n, piece);
        for (int64_t piece = 1; piece < 2 * ITEMS; piece *= 3)
            check_shared(threads, ITEMS, piece);
    }
}

static void add_lengths(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    atomic_fetch_add((_Atomic int64_t *)arg, end - begin);
}

static void test_shared_huge(void **state)
{
    (void)state;
    static const int64_t pieces[] = {INT64_MAX, INT64_MAX / 2, INT64_MAX / 3, INT64_MAX / 1000};
    for (int threads = 1; threads <= THREADS; threads++)
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            _Atomic int64_t sum = 0;
            wf_parallel_share(threads, INT64_MAX, pieces[i], add_lengths, &sum);
            assert_true(sum == INT64_MAX);
        }
}

static void share_nested(void *arg, int64_t begin, int64_t end, int thread)
{
    shared *s = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        wf_parallel_share(3, s[i].n, 7, record_piece, &s[i]);
}

static void test_shared_nested(void **state)
{
    (void)state;
    enum { LOOPS = 20 };
    static shared s[LOOPS];
    for (int round = 0; round < 50; round++) {
        memset(s, 0, sizeof s);
        for (int i = 0; i < LOOPS; i++) {
            s[i].threads = 3;
            s[i].n = 50 * i;
        }
        wf_parallel_share(4, LOOPS, 1, share_nested, s);
        for (int i = 0; i < LOOPS; i++) {
            assert_int_equal(s[i].wrong, 0);
            for (int j = 0; j < s[i].n; j++)
                assert_int_equal(s[i].calls[j], 1);
        }
    }
}

/* A loop sees the writes of all pieces of the previous loop, whichever threads took them. */
static void test_shared_order(void **state)
{
    enum { LOOPS = 20000 };
    (void)state;
    for (int threads = 2; threads <= 8; threads += 3) {
        int x[2][8] = {{0}};
        for (int i = 0; i < LOOPS; i++)
            wf_parallel_share(threads, 8, 1, turn_and_add, &(turn){x[(i + 1) % 2], x[i % 2]});
        for (int i = 0; i < 8; i++)
            assert_int_equal(x[LOOPS % 2][i], LOOPS);
    }
}

/* ---- Workers ---- */

static bool has_workers(void)
{
    int cpu[WF_CORES_MAX];
    return wf_cores_list(cpu) > 1 && wf_cores_quota("") > 1;
}

typedef struct {
    atomic_bool begun;
    int cpus, cpu; /* the worker's number of allowed CPUs, and the first of them */
} meeting;

/* Range 0 waits for range 1, at most ten seconds. */
static void meet(void *arg, int64_t begin, int64_t end, int thread)
{
    meeting *m = arg;
    (void)begin;
    (void)end;
    if (thread == 1) {
        int cpu[WF_CORES_MAX];
        m->cpus = wf_cores_list(cpu);
        m->cpu = cpu[0];
        m->begun = true;
    }
    for (int i = 0; i < 10000 && !m->begun; i++) {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
}

static void test_at_the_same_time(void **state)
{
    (void)state;
    if (!has_workers())
        skip();
    for (int i = 0; i < 5; i++) {
        meeting m = {0};
        wf_parallel_for(2, 2, 1, meet, &m);
        assert_true(m.begun);
        assert_true(m.cpus > 1);
    }
}

/* The first piece waits for all others, at most ten seconds. */
static void wait_for_others(void *arg, int64_t begin, int64_t end, int thread)
{
    atomic_int *items = arg;
    (void)thread;
    for (int i = 0; i < 10000 && begin == 0 && *items < 100 - end; i++) {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
    *items += (int)(begin == 0 && *items < 100 - end ? 0 : end - begin);
}

/* Other threads steal the pieces that a slow thread has not started. */
static void test_shared_slow(void **state)
{
    (void)state;
    if (!has_workers())
        skip();
    for (int threads = 2; threads <= 8; threads += 3) {
        atomic_int items = 0;
        wf_parallel_share(threads, 100, 3, wait_for_others, &items);
        assert_int_equal(items, 100);
    }
}

static int wait_for(pid_t child);

/* Runs in a child before its first loop, because the first loop reads the variable. */
static void test_pinned(void **state)
{
    (void)state;
#ifndef __linux__
    skip();
#endif
    if (!has_workers())
        skip();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int cpu[WF_CORES_MAX], n = wf_cores_list(cpu);
        wf_cores_order("", cpu, n);
        meeting m = {0};
        setenv("WEFT_PIN", "1", 1);
        wf_parallel_for(2, 2, 1, meet, &m);
        _exit(m.begun && m.cpus == 1 && m.cpu == cpu[1] && wf_cores_list(cpu) == n ? 0 : 1);
    }
    assert_int_equal(wait_for(child), 0);
}

/* ---- Callers ---- */

typedef struct {
    ranges inner[4];
    pthread_t outer[4];
} nest;

static void run_nested(void *arg, int64_t begin, int64_t end, int thread)
{
    nest *n = arg;
    (void)begin;
    (void)end;
    n->outer[thread] = pthread_self();
    wf_parallel_for(5, 50, 1, record_range, &n->inner[thread]);
}

static void test_nested(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        nest n = {0};
        wf_parallel_for(4, 4, 1, run_nested, &n);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 5; j++) {
                assert_int_equal(n.inner[i].calls[j], 1);
                assert_int_equal(n.inner[i].begin[j], 10 * j);
                assert_int_equal(n.inner[i].end[j], 10 * (j + 1));
                assert_true(pthread_equal(n.inner[i].by[j], n.outer[i]));
            }
    }
}

static void *call_often(void *arg)
{
    int threads = *(const int *)arg;
    for (int i = 0; i < 300; i++)
        if (!sum_is_right(1 + (threads + i) % 8))
            return arg;
    return NULL;
}

/* More callers than thread teams. */
static void test_concurrent_callers(void **state)
{
    enum { CALLERS = 12 };
    (void)state;
    pthread_t id[CALLERS];
    int threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        threads[i] = i;
        assert_int_equal(pthread_create(&id[i], NULL, call_often, &threads[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        void *wrong;
        assert_int_equal(pthread_join(id[i], &wrong), 0);
        assert_null(wrong);
    }
}

/* ---- Processes ---- */

static int child_status = -1; /* -1: not in a child */

/* Registered before the pool's exit handler, so it runs after it. It exits before the leak check,
 * which would misreport the threads lost by fork. */
static void end_child(void)
{
    if (child_status >= 0)
        _exit(child_status);
}

static void exit_child(int status)
{
    child_status = status;
    exit(status);
}

/* Returns the child's exit status; its alarm ends a child that hangs. */
static int wait_for(pid_t child)
{
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void run_child(void)
{
    alarm(60);
    bool ok = true;
    for (int i = 0; i < 100; i++)
        ok = ok && sum_is_right(1 + i % 8);
    pid_t grandchild = fork();
    if (grandchild == 0)
        _exit(sum_is_right(4) ? 0 : 1);
    int status;
    ok = ok && waitpid(grandchild, &status, 0) == grandchild && status == 0;
    exit_child(ok ? 0 : 1); /* joins only the child's own threads */
}

static void test_fork(void **state)
{
    (void)state;
    if (WF_THREAD_SANITIZER)
        skip(); /* ThreadSanitizer cannot follow threads that a forked child starts */
    for (int i = 0; i < 5; i++) {
        assert_true(sum_is_right(4));
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            run_child();
        assert_true(sum_is_right(4));
        assert_int_equal(wait_for(child), 0);
    }
}

/* Forks while other threads run loops. */
static void test_fork_during_loops(void **state)
{
    (void)state;
    if (WF_THREAD_SANITIZER)
        skip(); /* ThreadSanitizer cannot follow threads that a forked child starts */
    pthread_t id[3];
    int threads[3] = {2, 3, 4};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&id[i], NULL, call_often, &threads[i]), 0);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(sum_is_right(4) && sum_is_right(7) ? 0 : 1);
        }
        assert_int_equal(wait_for(child), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(id[i], NULL), 0);
}

static void end_program(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)begin;
    (void)end;
    if (thread == *(int *)arg)
        exit_child(7);
}

static void at_exit_loop(void)
{
    if (!sum_is_right(4))
        _exit(1);
}

/* Exits from inside a loop, and with loops in exit handlers. */
static void test_exit(void **state)
{
    (void)state;
    if (WF_THREAD_SANITIZER)
        skip(); /* ThreadSanitizer cannot follow threads that a forked child starts */
    for (int who = 0; who < 3; who++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            atexit(at_exit_loop);
            wf_parallel_for(4, 4, 1, record_range, &(ranges){0});
            wf_parallel_for(2, 2, 1, end_program, &who);
            exit_child(who == 2 ? 7 : 1);
        }
        assert_int_equal(wait_for(child), 7);
    }
}

/* ---- Counting cores ---- */

static void test_threads_available(void **state)
{
    (void)state;
    const char *set = getenv("WEFT_THREADS");
    char *before = set ? strdup(set) : NULL;
    unsetenv("WEFT_THREADS");
    int cores = wf_threads_available();
    assert_in_range(cores, 1, sysconf(_SC_NPROCESSORS_CONF));

    static const struct {
        const char *text;
        int threads; /* 0: not set */
    } cases[] = {
        {"3", 3},       {"1", 1},          {" 12", 12}, {"1024", 1024},
        {"1025", 1024}, {"", 0},           {"0", 0},    {"99999999999999999999", 1024},
        {"-3", 0},      {"5,2", 0},        {"4x", 0},   {"nonsense", 0},
        {"2.5", 0},     {"1000000", 1024},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("WEFT_THREADS", cases[i].text, 1);
        assert_int_equal(wf_threads_available(), cases[i].threads ? cases[i].threads : cores);
    }
    if (before)
        setenv("WEFT_THREADS", before, 1);
    else
        unsetenv("WEFT_THREADS");
    free(before);
}

static void put_file(wt_scratch *s, const char *name, const char *text)
{
    char path[256];
    for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
        snprintf(path, sizeof path, "%s/%.*s", s->folder, (int)(slash - name), name);
        mkdir(path, 0777);
    }
    wt_put_text(s, name, text);
}

static void test_cores(void **state)
{
    (void)state;
    int cpu[WF_CORES_MAX], n = wf_cores_list(cpu);
    assert_in_range(n, 1, WF_CORES_MAX);
    for (int i = 1; i < n; i++)
        assert_true(cpu[i] > cpu[i - 1]);
    assert_in_range(wf_cores_order("", cpu, n), 1, n);

    wt_scratch s;
    wt_scratch_make(&s);
    static const char *const siblings[] = {"0,4", "1,5", "2-3", "2-3", "0,4", "1,5", "nonsense"};
    for (int i = 0; i < 7; i++) {
        char name[128];
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 i);
        put_file(&s, name, siblings[i]);
    }
    int all[] = {0, 1, 2, 3, 4, 5, 6, 7}, ordered[] = {0, 1, 2, 6, 7, 3, 4, 5};
    assert_int_equal(wf_cores_order(s.folder, all, 8), 5);
    assert_memory_equal(all, ordered, sizeof all);
    int some[] = {3, 4, 5}; /* their SMT siblings are not in the set */
    assert_int_equal(wf_cores_order(s.folder, some, 3), 3);
    int one[] = {1, 5};
    assert_int_equal(wf_cores_order(s.folder, one, 2), 1);
    wt_scratch_remove(&s);
}

static atomic_int not_preempted; /* threads not preempted yet, of two pinned to one CPU */

/* Spins until another thread ran on its CPU, at most ten seconds. */
static void *count_preemptions(void *arg)
{
    time_t begin = time(NULL);
    wf_cores_pin(*(int *)arg);
    int64_t before = wf_cores_preemptions();
    for (bool was = false; atomic_load(&not_preempted) > 0 && time(NULL) - begin <= 10;)
        if (!was && wf_cores_preemptions() > before) {
            was = true;
            atomic_fetch_sub(&not_preempted, 1);
        }
    return NULL;
}

static void test_preemptions(void **state)
{
    (void)state;
    int cpu[WF_CORES_MAX];
    wf_cores_list(cpu);
    if (wf_cores_preemptions() < 0)
        skip();
    pthread_t id[2];
    atomic_store(&not_preempted, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&id[i], NULL, count_preemptions, cpu), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(id[i], NULL), 0);
    if (atomic_load(&not_preempted) == 2)
        skip(); /* the system does not count preemptions, or cannot pin */
    assert_int_equal(atomic_load(&not_preempted), 0);
}

static void test_quota(void **state)
{
    (void)state;
    assert_true(wf_cores_quota("") >= 1);
    wt_scratch s;
    wt_scratch_make(&s);
    assert_int_equal(wf_cores_quota(s.folder), INT_MAX);

    put_file(&s, "proc/self/cgroup", "3:cpuset:/\n0::/a/b\n");
    assert_int_equal(wf_cores_quota(s.folder), INT_MAX);
    put_file(&s, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(wf_cores_quota(s.folder), INT_MAX);
    put_file(&s, "sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    assert_int_equal(wf_cores_quota(s.folder), 2);
    put_file(&s, "sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_int_equal(wf_cores_quota(s.folder), 1);
    put_file(&s, "sys/fs/cgroup/a/b/cpu.max", "300000 100000\n");
    assert_int_equal(wf_cores_quota(s.folder), 2);
    put_file(&s, "proc/self/cgroup", "0::/not/there\n"); /* as in a container */
    put_file(&s, "sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(wf_cores_quota(s.folder), 4);
    static const char *const strange[] = {"", "\n", "nonsense", "-5 100000", "100000", "100000 0"};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        put_file(&s, "sys/fs/cgroup/cpu.max", strange[i]);
        assert_int_equal(wf_cores_quota(s.folder), INT_MAX);
    }

    put_file(&s, "proc/self/cgroup", "4:cpuacct,cpu:/x\n1:name=systemd:/\nnonsense\n");
    put_file(&s, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    put_file(&s, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(wf_cores_quota(s.folder), INT_MAX);
    put_file(&s, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(wf_cores_quota(s.folder), 3);
    wt_scratch_remove(&s);
}

int main(void)
{
    atexit(end_child);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned), /* first, before any loop */
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_shared_huge),
        cmocka_unit_test(test_shared_nested),
        cmocka_unit_test(test_shared_order),
        cmocka_unit_test(test_shared_slow),
        cmocka_unit_test(test_many_ranges),
        cmocka_unit_test(test_tiny_loops),
        cmocka_unit_test(test_after_idle),
        cmocka_unit_test(test_at_the_same_time),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_concurrent_callers),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_during_loops),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_threads_available),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_preemptions),
        cmocka_unit_test(test_quota),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
