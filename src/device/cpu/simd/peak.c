/* SPDX-License-Identifier: MIT */
/* peak.c - the loops of ../peak.c for this instruction set. */
#include "device/cpu/simd/simd.h"

/* Enough sums for two fma units with 4 to 5 cycles of latency, few enough for the registers. */
#define SUMS (WF_VREGS > 16 ? 16 : 12)

static float multiply_add(int64_t rounds)
{
    const vf a = vf_set(0.5f), b = vf_set(0.5f);
    vf sum[SUMS], all = vf_zero();
    for (int i = 0; i < SUMS; i++)
        sum[i] = vf_set((float)i);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++)
            sum[i] = vf_fma(sum[i], a, b);
    for (int i = 0; i < SUMS; i++)
        all = vf_add(all, sum[i]);
    return vf_sum(all);
}

static float read_floats(const float *from, int64_t n)
{
    vf sum[8], all = vf_zero();
    for (int k = 0; k < 8; k++)
        sum[k] = vf_zero();
    for (int64_t i = 0; i < n; i += 8 * WF_VL)
        for (int k = 0; k < 8; k++)
            sum[k] = vf_add(sum[k], vf_load(from + i + k * WF_VL));
    for (int k = 0; k < 8; k++)
        all = vf_add(all, sum[k]);
    return vf_sum(all);
}

static float read_rows(const float *from, int64_t n)
{
    const int64_t length = n / 8;
    vf sum[8], all = vf_zero();
    for (int k = 0; k < 8; k++)
        sum[k] = vf_zero();
    for (int64_t i = 0; i < length; i += 2 * WF_VL)
        for (int k = 0; k < 8; k++) {
            const float *at = from + k * length + i;
            sum[k] = vf_add(sum[k], vf_add(vf_load(at), vf_load(at + WF_VL)));
        }
    for (int k = 0; k < 8; k++)
        all = vf_add(all, sum[k]);
    return vf_sum(all);
}

/* Non-temporal stores: the target's lines are not read first. */
static void copy_floats(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += WF_VL)
        vf_stream(to + i, vf_load(from + i));
}

static void triad_floats(float *to, const float *a, const float *b, int64_t n)
{
    const vf factor = vf_set(0.5f);
    for (int64_t i = 0; i < n; i += WF_VL)
        vf_stream(to + i, vf_fma(factor, vf_load(b + i), vf_load(a + i)));
}

const wf_cpu_loops WF_SIMD(wf_cpu_loops) = {
    .flops = 2 * SUMS * WF_VL,
    .multiply_add = multiply_add,
    .read = read_floats,
    .read_rows = read_rows,
    .copy = copy_floats,
    .triad = triad_floats,
};
