/* SPDX-License-Identifier: MIT */
/* test_recent.c - the recent tokens of a sequence, against counting: windows of any size, ids that
 * collide in the hash table, failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/philox.h"
#include "infer/recent.h"
#include "support.h"

enum { TOKENS = 600, IDS = 100000 };

/* Expects each distinct token of past[from .. n) once, with its count. seen: [IDS] zeros. */
static void check(const wf_recent *r, const int32_t *past, int64_t n, int *seen)
{
    int64_t from = r->last < 0 || n < r->last ? 0 : n - r->last;
    size_t distinct = 0;
    for (int64_t i = from; i < n; i++)
        distinct += seen[past[i]]++ == 0;
    assert_int_equal(r->count, distinct);
    for (size_t i = 0; i < r->count; i++) {
        assert_int_equal(r->token[i].count, seen[r->token[i].id]);
        seen[r->token[i].id] = 0; /* a second entry would not match */
    }
    assert_true(2 * r->count <= r->slots);
}

/* The forms of a text: few or many distinct ids, neighbours, and ids with neighbouring hashes. */
static int32_t random_id(wf_rng *rng, int form)
{
    static const uint32_t range[] = {3, 40, 700, IDS};
    if (form < 4)
        return (int32_t)wf_rng_below(rng, range[form]);
    for (
        ;
        ;) { /* the hash starts with ten ones: home is the last slot, and the search wraps around */
        uint32_t id = (uint32_t)wf_rng_below(rng, IDS);
        if (id * 0x9E3779B9u >> 22 == 0x3FF)
            return (int32_t)id;
    }
}

static void test_windows(void **state)
{
    static const int64_t windows[] = {-1, 1, 2, 3, 17, 63, 64, 65, 150, TOKENS, 1 << 20};
    static int seen[IDS];
    int32_t past[TOKENS];
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int form = 0; form < 5; form++) {
            wf_recent r = {.last = windows[w]};
            for (int64_t n = 0; n < TOKENS; n++) {
                past[n] = random_id(&rng, form);
                wt_ok(*state, wf_recent_add(*state, &r, past[n]));
                check(&r, past, n + 1, seen);
            }
            wf_recent_free(*state, &r);
        }
}

/* Every allocation fails once; the tokens are the same before and after. */
static void test_failing_memory(void **state)
{
    static int seen[IDS];
    int32_t past[TOKENS];
    for (int64_t last = -1; last < TOKENS; last += TOKENS / 2) {
        wf_recent r = {.last = last};
        int failures = 0;
        for (int64_t n = 0; n < TOKENS; n++) {
            wf_status status = WF_ERR_MEMORY;
            past[n] = (int32_t)n % 500;
            for (uint64_t nth = 1; status != WF_OK; nth++) {
                wf_ctx_fail_allocation(*state, nth);
                status = wf_recent_add(*state, &r, past[n]);
                wf_ctx_fail_allocation(*state, 0);
                failures += status != WF_OK;
                if (n > 0 || status == WF_OK)
                    check(&r, past, n + (status == WF_OK), seen);
            }
        }
        assert_true(failures > 8);
        wf_recent_free(*state, &r);
    }
}

/* A full window of distinct tokens does not grow the table further. */
static void test_bounded(void **state)
{
    wf_mem_stats before, after;
    wf_recent r = {.last = 64};
    for (int32_t i = 0; i < 64; i++)
        wt_ok(*state, wf_recent_add(*state, &r, i));
    assert_int_equal(r.slots, 128);
    assert_int_equal(r.room, 64);
    wf_ctx_mem_stats(*state, &before);
    for (int32_t i = 0; i < IDS; i++)
        wt_ok(*state, wf_recent_add(*state, &r, i * 31 % IDS));
    wf_ctx_mem_stats(*state, &after);
    assert_int_equal(after.calls, before.calls);
    wf_recent_free(*state, &r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_windows),
        wt_test(test_failing_memory),
        wt_test(test_bounded),
    };
    return cmocka_run_group_tests_name("recent", tests, NULL, NULL);
}
