/* SPDX-License-Identifier: MIT */
/*
 * emulated_hopper.cuh - host versions of the functions of src/device/cuda/hopper.cuh, which
 * includes this file and documents them.
 */
#ifndef WF_TESTS_EMULATED_HOPPER_CUH
#define WF_TESTS_EMULATED_HOPPER_CUH

#include "hopper.h"

WF_HOPPER uint32_t wf_shared_address(const void *p)
{
    return wf_emulated_shared_address(p);
}

/* ---- Barriers ---- */

WF_HOPPER void wf_barrier_init(wf_barrier b, int arrivals)
{
    wf_emulated_mbarrier_init(b, arrivals);
}

WF_HOPPER void wf_barrier_init_done() {}

WF_HOPPER void wf_barrier_arrive(wf_barrier b)
{
    wf_emulated_mbarrier_arrive(b);
}

WF_HOPPER void wf_barrier_expect(wf_barrier b, int bytes)
{
    wf_emulated_mbarrier_expect(b, bytes);
}

WF_HOPPER bool wf_barrier_passed(wf_barrier b, uint32_t parity)
{
    return wf_emulated_mbarrier_passed(b, parity);
}

WF_HOPPER void wf_barrier_wait(wf_barrier b, uint32_t parity)
{
    wf_emulated_mbarrier_wait(b, parity);
}

WF_HOPPER void wf_named_sync(int id, int threads)
{
    wf_emulated_barrier(id, threads);
}

WF_HOPPER void wf_named_arrive(int id, int threads)
{
    wf_emulated_barrier_arrive(id, threads);
}

WF_HOPPER void wf_flag_await(const int32_t *from, int32_t x)
{
    while (*(const volatile int32_t *)from != x)
        wf_emulated_yield();
}

WF_HOPPER void wf_flag_release(int32_t *to, int32_t x)
{
    *to = x;
}

/* ---- TMA ---- */

WF_HOPPER void wf_tma_prefetch(const CUtensorMap *) {}

WF_HOPPER void wf_tma_load(uint32_t to, const CUtensorMap *map, wf_barrier b, int x0, int x1,
                           int x2, int x3)
{
    const int x[4] = {x0, x1, x2, x3};
    wf_emulated_tma_load(to, map, b, x);
}

WF_HOPPER void wf_tma_store(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3)
{
    const int x[4] = {x0, x1, x2, x3};
    wf_emulated_tma_store(map, from, x);
}

WF_HOPPER void wf_bulk_load(uint32_t to, const void *from, int bytes, wf_barrier b)
{
    wf_emulated_bulk_load(to, from, bytes, b);
}

WF_HOPPER void wf_bulk_store(void *to, uint32_t from, int bytes)
{
    wf_emulated_bulk_store(to, from, bytes, false);
}

WF_HOPPER void wf_bulk_add(float *to, uint32_t from, int bytes)
{
    wf_emulated_bulk_store(to, from, bytes, true);
}

WF_HOPPER void wf_tma_commit()
{
    wf_emulated_tma_commit();
}

template <int N> WF_HOPPER void wf_tma_wait_read()
{
    wf_emulated_tma_wait(N, true);
}

template <int N> WF_HOPPER void wf_tma_wait()
{
    wf_emulated_tma_wait(N, false);
}

WF_HOPPER void wf_async_fence() {}

/* ---- Registers and memory ---- */

template <int N> WF_HOPPER void wf_registers_give()
{
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "");
}

template <int N> WF_HOPPER void wf_registers_take()
{
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "");
}

WF_HOPPER void wf_store_matrices(uint32_t to, const uint32_t *x)
{
    const int lane = threadIdx.x % 32;
    const char *all = (const char *)wf_emulated_gather(&to, sizeof to);
    for (int i = 0; i < 4; i++) {
        uint32_t row;
        memcpy(&row, all + (i * 8 + lane / 4) * WF_EMULATED_GATHERED, sizeof row);
        memcpy((char *)wf_emulated_shared_at(row, 16) + lane % 4 * 4, &x[i], 4);
    }
}

/* ---- MMAs ---- */

WF_HOPPER void wf_wgmma_begin() {}

WF_HOPPER void wf_wgmma_commit()
{
    wf_emulated_wgmma_commit();
}

template <int N> WF_HOPPER void wf_wgmma_wait()
{
    wf_emulated_wgmma_wait(N);
}

template <int N> WF_HOPPER void wf_wgmma_hold(float (&)[N]) {}

template <typename T, int TA, int TB, int N>
WF_HOPPER void wf_wgmma(float (&d)[N], uint64_t a, uint64_t b, int add)
{
    static_assert(N <= WF_EMULATED_SUMS, "");
    wf_emulated_product p = {.d = d,
                             .count = N,
                             .add = add != 0,
                             .f16 = __is_same(T, wf_f16),
                             .a_columns = TA,
                             .b_columns = TB,
                             .a = a,
                             .b = b};
    wf_emulated_wgmma(&p);
}

template <typename T, int TA, int TB, int N>
WF_HOPPER void wf_wgmma_first(float (&d)[N], uint64_t a, uint64_t b)
{
    wf_wgmma<T, TA, TB>(d, a, b, 0);
}

/* A thread's two rows of a are spread over the four threads of its quad. */
template <typename T, int TB, int N>
WF_HOPPER void wf_wgmma(float (&d)[N], const uint32_t *a, uint64_t b, int add)
{
    static_assert(N <= WF_EMULATED_SUMS, "");
    wf_emulated_product p = {.d = d,
                             .count = N,
                             .add = add != 0,
                             .f16 = __is_same(T, wf_f16),
                             .b_columns = TB,
                             .registers = true,
                             .b = b};
    const char *all = (const char *)wf_emulated_gather(a, 16);
    for (int t = 0; t < 4; t++) {
        const char *theirs = all + (threadIdx.x % 32 / 4 * 4 + t) * WF_EMULATED_GATHERED;
        for (int i = 0; i < 4; i++)
            memcpy(&p.row[i % 2][i / 2 * 8 + 2 * t], theirs + 4 * i, 4);
    }
    wf_emulated_wgmma(&p);
}

#endif
