/* SPDX-License-Identifier: MIT */
/*
 * test_checksum.c - compares checksums with the reference implementation of XXH64, in one call and
 * in pieces.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/hash.h"
#include "base/philox.h"
#include "support.h"

#define BYTES 1000

static uint8_t bytes[BYTES];

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * i * 7 + i / 3 + 5);
    return 0;
}

/* Computed by xxhash.xxh64(bytes[:n]).intdigest() of Python's xxhash 3. */
static void test_known(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        uint64_t sum;
    } known[] = {
        {0, UINT64_C(0xEF46DB3751D8E999)},    {1, UINT64_C(0x50FF15A81340970F)},
        {3, UINT64_C(0xE260BDB9CE476F45)},    {4, UINT64_C(0x8221578A8DD81A36)},
        {7, UINT64_C(0xE129EDBD1D07C0DF)},    {8, UINT64_C(0xB742000724813D58)},
        {31, UINT64_C(0xB6860B4DA14EE120)},   {32, UINT64_C(0x6B6D6CE37DA4C355)},
        {33, UINT64_C(0xDC8954CD8C324ABA)},   {63, UINT64_C(0x78FAC4E03756E20B)},
        {64, UINT64_C(0xAB8379ABF5A22C92)},   {100, UINT64_C(0x6D82F410143EF506)},
        {1000, UINT64_C(0x7D06B1F64342EBCA)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(wf_checksum(bytes, known[i].count) == known[i].sum);
}

/* Vectors from the test program of FNV's authors. */
static void test_fnv1a(void **state)
{
    (void)state;
    assert_true(wf_hash_fnv1a_string(WF_FNV1A, "") == UINT64_C(0xcbf29ce484222325));
    assert_true(wf_hash_fnv1a_string(WF_FNV1A, "a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(wf_hash_fnv1a_string(WF_FNV1A, "foobar") == UINT64_C(0x85944171f73967e8));
    uint64_t h = wf_hash_fnv1a(WF_FNV1A, "foo", 3);
    assert_true(wf_hash_fnv1a(h, "bar", 3) == UINT64_C(0x85944171f73967e8));
}

/* Adding the bytes in pieces of any size gives the checksum of the whole. */
static void test_pieces(void **state)
{
    (void)state;
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 0);
    for (int trial = 0; trial < 2000; trial++) {
        size_t total = wf_rng_below(&rng, BYTES + 1), most = 1 + wf_rng_below(&rng, 100), at = 0;
        wf_checksum_state s;
        wf_checksum_begin(&s);
        while (at < total) {
            size_t n = wf_rng_below(&rng, most + 1);
            n = n < total - at ? n : total - at;
            wf_checksum_add(&s, bytes + at, n);
            at += n;
        }
        assert_true(wf_checksum_end(&s) == wf_checksum(bytes, total));
        /* wf_checksum_end does not change the state */
        assert_true(wf_checksum_end(&s) == wf_checksum(bytes, total));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_fnv1a),
                                       cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests_name("checksum", tests, fill, NULL);
}
