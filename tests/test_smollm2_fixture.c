/* SPDX-License-Identifier: MIT */
/*
 * test_smollm2_fixture.c - the recordings of real models are well-formed, and the comparison
 * returns zero for equal distributions and the exact value for others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "smollm2_fixture.h"

#define TEXTS 20 /* without the greedily continued ones */

static bool is_listed(const sm_recording *r, const sm_position *p, int32_t id)
{
    for (int k = 0; k < r->top; k++)
        if (p->id[k] == id)
            return true;
    return false;
}

/* Checks that probabilities fall and sum to one, and that the next token is consistent with the
 * list. */
static void check_position(const sm_recording *r, const sm_position *p, int32_t next)
{
    double sum = exp(p->rest);
    int equal = 0;
    for (int k = 0; k < r->top; k++) {
        sum += exp(p->logprob[k]);
        assert_true(k == 0 || p->logprob[k] <= p->logprob[k - 1]);
        if (p->id[k] == next) {
            assert_true(p->logprob[k] == p->next);
            equal++;
        }
    }
    assert_true(fabs(sum - 1) < 1e-6);
    assert_true(equal == 1 || (equal == 0 && p->next <= p->logprob[r->top - 1]));
    assert_true(sm_margin(p) >= 0);
}

static void check_recording(const char *name, int texts, int top)
{
    sm_recording *r = sm_open(name);
    assert_int_equal(r->count, texts);
    assert_int_equal(r->top, top);
    assert_int_equal(r->vocab, 49152);
    for (int i = 0; i < r->count; i++) {
        const sm_text *t = &r->texts[i];
        assert_true(i >= TEXTS ? t->prompt < t->count : t->prompt == t->count);
        for (int k = 0; k + 1 < t->count; k++) {
            check_position(r, &t->at[k], t->ids[k + 1]);
            if (k + 1 >= t->prompt)
                assert_int_equal(t->at[k].id[0], t->ids[k + 1]);
        }
    }
    assert_true(sm_find(r, "chat")->control);
    assert_false(sm_find(r, "control_as_text")->control);
    sm_close(r);
}

static void test_recordings(void **state)
{
    (void)state;
    check_recording("f32", TEXTS + 2, 32);
    check_recording("q4_1", TEXTS, 8);
}

static void test_texts_are_the_same(void **state)
{
    (void)state;
    sm_recording *a = sm_open("f32"), *b = sm_open("q4_1");
    for (int i = 0; i < TEXTS; i++) {
        const sm_text *x = &a->texts[i], *y = &b->texts[i];
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->count, y->count);
        assert_memory_equal(x->ids, y->ids, (size_t)x->count * sizeof *x->ids);
    }
    const sm_text *story = sm_find(a, "greedy_story");
    assert_int_equal(story->bytes, strlen("Once upon a time"));
    assert_memory_equal(story->text, "Once upon a time", story->bytes);
    assert_int_equal(story->count - story->prompt, 64);
    sm_close(a);
    sm_close(b);
}

/* Makes logits whose softmax is the recorded distribution, with the unlisted mass spread evenly. */
static void restore(const sm_recording *r, const sm_position *p, float *logits)
{
    const float others = (float)(p->rest - log(r->vocab - r->top));
    for (int32_t i = 0; i < r->vocab; i++)
        logits[i] = 3 + others;
    for (int k = 0; k < r->top; k++)
        logits[p->id[k]] = 3 + p->logprob[k];
}

static void test_divergence(void **state)
{
    (void)state;
    sm_recording *r = sm_open("f32");
    float *logits = malloc((size_t)r->vocab * sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < r->count; i += 5) {
        const sm_position *p = &r->texts[i].at[7];
        restore(r, p, logits);
        assert_true(fabs(sm_divergence(r, p, logits)) < 1e-6);

        /* Raising one logit by d: log(1 + q (e^d - 1)) - q d, where q is its probability. */
        const double q = exp(p->logprob[1]), d = 0.5;
        logits[p->id[1]] += (float)d;
        const double wanted = log1p(q * expm1(d)) - q * d;
        assert_true(fabs(sm_divergence(r, p, logits) - wanted) < 1e-6);

        /* Unlisted tokens count as one bucket. */
        restore(r, p, logits);
        const double rest = exp(p->rest);
        for (int32_t k = 0; k < r->vocab; k++)
            if (!is_listed(r, p, k))
                logits[k] += (float)d;
        const double of_rest = log1p(rest * expm1(d)) - rest * d;
        assert_true(fabs(sm_divergence(r, p, logits) - of_rest) < 1e-6);
    }
    free(logits);
    sm_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recordings),
        cmocka_unit_test(test_texts_are_the_same),
        cmocka_unit_test(test_divergence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
