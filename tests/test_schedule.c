/* SPDX-License-Identifier: MIT */
/* test_schedule.c - learning rates against PyTorch's schedulers, and at the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "optimizer_fixture.h"
#include "support.h"
#include "train/schedule.h"

static wf_schedule_kind kind_of(const char *name)
{
    static const char *const names[] = {"constant", "cosine", "linear", "wsd"};
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0)
            return (wf_schedule_kind)i;
    fail_msg("no schedule %s", name);
    return 0;
}

static void test_as_pytorch(void **state)
{
    wt_optimizers f = wt_optimizers_open(*state);
    const wf_json_node *all = wf_json_get(f.root, "schedules");
    assert_true(all && all->count == 8);
    for (size_t i = 0; i < all->count; i++) {
        const wf_json_node *t = &all->child[i], *rates = wf_json_get(t, "rates");
        const wf_schedule s = {
            .kind = kind_of(wf_json_get_string(t, "kind", "")),
            .peak = wf_json_get_number(t, "peak", 0),
            .floor = wf_json_get_number(t, "floor", 0),
            .warmup = wf_json_get_int(t, "warmup", 0),
            .steps = wf_json_get_int(t, "steps", 0),
            .decay = wf_json_get_int(t, "decay", 0),
        };
        assert_int_equal(rates->count, s.steps);
        for (int64_t k = 0; k < s.steps; k++) {
            double got = wf_schedule_rate(&s, k), wanted = rates->child[k].number;
            if (fabs(got - wanted) > 1e-12 * s.peak)
                fail_msg("schedule %zu, step %lld: %.17g, not %.17g", i, (long long)k, got, wanted);
        }
    }
    wt_optimizers_close(&f);
}

static void expect(wf_schedule s, int64_t step, double wanted)
{
    double got = wf_schedule_rate(&s, step);
    if (!(fabs(got - wanted) <= 1e-15))
        fail_msg("kind %d, step %lld: %.17g, not %.17g", (int)s.kind, (long long)step, got, wanted);
}

static void test_edges(void **state)
{
    (void)state;
    for (wf_schedule_kind kind = WF_SCHEDULE_CONSTANT; kind <= WF_SCHEDULE_WSD; kind++) {
        wf_schedule s = {.kind = kind, .peak = 2, .floor = 0.25, .steps = 1, .decay = 1};
        double end = kind == WF_SCHEDULE_CONSTANT ? 2 : 0.5;
        expect(s, 0, 2);   /* a single step uses the peak, not the floor */
        expect(s, 1, end); /* one past the last, and further */
        expect(s, 100, end);
        expect(s, -5, 2);
        s.warmup = 1;
        expect(s, 0, 2);
        s.warmup = 4; /* longer than the run: ends while rising */
        expect(s, 0, 0.5);
        expect(s, 1, end);
        s.steps = s.warmup = 4; /* warm-up for the whole run */
        for (int64_t k = 0; k < 4; k++)
            expect(s, k, 0.5 * (double)(k + 1));
        expect(s, 4, end);
        s.steps = INT64_MAX;
        s.warmup = s.decay = INT64_MAX / 2;
        assert_true(wf_schedule_rate(&s, INT64_MAX / 4) <= 2);
        assert_true(wf_schedule_rate(&s, INT64_MAX) == end);
    }
}

/* The decay phase of WSD starts after warm-up at the earliest, and is empty without steps. */
static void test_decay(void **state)
{
    (void)state;
    wf_schedule s = {.kind = WF_SCHEDULE_WSD, .peak = 1, .warmup = 2, .steps = 10, .decay = 100};
    const wf_schedule line = {.kind = WF_SCHEDULE_LINEAR, .peak = 1, .warmup = 2, .steps = 10};
    for (int64_t k = 0; k < 12; k++)
        expect(s, k, wf_schedule_rate(&line, k));
    s.decay = 0;
    for (int64_t k = 2; k < 12; k++)
        expect(s, k, 1);
    s.decay = 1;
    expect(s, 9, 1);
    expect(s, 10, 0);
}

/* After warm-up the rate stays in [floor, peak] and never rises. */
static void test_falls(void **state)
{
    (void)state;
    for (wf_schedule_kind kind = WF_SCHEDULE_CONSTANT; kind <= WF_SCHEDULE_WSD; kind++) {
        const wf_schedule s = {kind, 3e-4, 0.1, 7, 1000, 333};
        double last = s.peak;
        for (int64_t k = s.warmup; k < s.steps + 5; k++) {
            double rate = wf_schedule_rate(&s, k);
            assert_true(rate <= last && rate >= 0.1 * s.peak - 1e-18);
            last = rate;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_as_pytorch), cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_decay), cmocka_unit_test(test_falls)};
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
