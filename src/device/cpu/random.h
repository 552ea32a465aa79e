/* SPDX-License-Identifier: MIT */
/* random.h - the random numbers of a graph. Each is a function of its position, so every device and
 * any number of threads draw the same. */
#ifndef WF_DEVICE_CPU_RANDOM_H
#define WF_DEVICE_CPU_RANDOM_H

#include "base/philox.h"

/* Values [first, first + n) of a stream, uniform in [0, 1). key: low word of the seed, high word,
 * step. Four consecutive values share a Philox block. */
static inline void wf_random_units(const int32_t *key, int64_t stream, int64_t first, int64_t n,
                                   float *to)
{
    const uint32_t seed[2] = {(uint32_t)key[0], (uint32_t)key[1]};
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < n; i++) {
        uint64_t e = (uint64_t)(first + i);
        if (i == 0 || e % 4 == 0) {
            uint64_t block = e / 4;
            const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)key[2],
                                         (uint32_t)stream};
            wf_philox4x32(counter, seed, word);
        }
        to[i] = wf_u32_to_unit(word[e % 4]);
    }
}

#endif
