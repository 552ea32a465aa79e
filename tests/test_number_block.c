/* SPDX-License-Identifier: MIT */
/*
 * test_number_block.c - the selftest's definitions of quantized types: every type has one, and it
 * agrees with the decoder of the devices on random blocks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/philox.h"
#include "graph/quant/block.h"
#include "selftest/number.h"
#include "support.h"

/* Quantized types without a definition in src/selftest/number_block.c. The selftest compares the
 * decoders of these types with themselves. Prefer a definition to a name here. */
static const char *const undefined[] = {NULL};

static void test_every_type_is_defined(void **state)
{
    (void)state;
    for (int i = 0; i < WF_BLOCK_TYPES; i++) {
        const wf_type type = (wf_type)(WF_BLOCK_FIRST + i);
        bool named = false;
        for (int k = 0; undefined[k]; k++)
            named |= strcmp(undefined[k], wf_type_name(type)) == 0;
        if (wf_number_block_defined(type) == named)
            print_message("%s: %s\n", wf_type_name(type),
                          named ? "has a definition; remove it from the list"
                                : "add a definition to number_block.c");
        assert_int_equal(wf_number_block_defined(type), !named);
    }
}

/* Both compute exact products and round their sum at most once, so the decoder returns the
 * definition rounded to f32. Infinite and NaN scales give elements that are not finite. */
static void test_decoders_agree(void **state)
{
    enum { BLOCKS = 500, MOST = 512 };
    wf_rng rng;
    (void)state;
    wf_rng_init(&rng, wt_seed(), 1);
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        const wf_type type = (wf_type)(WF_BLOCK_FIRST + t);
        const wf_type_info *info = wf_type_get(type);
        uint8_t block[MOST];
        assert_true(info->block_bytes <= MOST);
        for (int n = 0; n < BLOCKS; n++) {
            for (int i = 0; i < info->block_bytes; i++)
                block[i] = (uint8_t)wf_rng_u32(&rng);
            for (int i = 0; i < info->block; i++) {
                const double wanted = wf_number_of_block(type, block, i);
                float got[8];
                wf_block_decode8(type, block, i / 8, got);
                if (isfinite(wanted) ? got[i % 8] == (float)wanted : !isfinite(got[i % 8]))
                    continue;
                print_message("%s: element %d of block %d is %g, not %g\n", wf_type_name(type), i,
                              n, (double)got[i % 8], wanted);
                fail();
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_every_type_is_defined),
        wt_test(test_decoders_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
