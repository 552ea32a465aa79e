/* SPDX-License-Identifier: MIT */
/*
 * hopper_wide.cuh - Hopper instructions that no kernel of the library uses, in addition to
 * device/cuda/hopper.cuh: thread block clusters, and wgmma with 8, 192 and 256 columns.
 */
#ifndef WF_BENCH_HOPPER_WIDE_CUH
#define WF_BENCH_HOPPER_WIDE_CUH

#include "device/cuda/hopper.cuh"

#if WF_HOPPER_CODE

/* ---- Clusters: their blocks see each other's shared memory at the same addresses ---- */

/* Rank of this block in its cluster. */
WF_HOPPER uint32_t wf_cluster_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Synchronizes all threads of the cluster; also publishes initialized barriers to the other
 * blocks. */
WF_HOPPER void wf_cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* Arrives at the barrier at this address in the block of that rank. */
WF_HOPPER void wf_barrier_arrive_at(wf_barrier b, uint32_t rank)
{
    asm volatile("{\n .reg .b32 there;\n"
                 " mapa.shared::cluster.u32 there, %0, %1;\n"
                 " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(b),
                 "r"(rank)
                 : "memory");
}

/* wf_tma_load to every block of the cluster whose bit is set: to the same address in each,
 * completing on each block's barrier at the same address. */
WF_HOPPER void wf_tma_load_to(uint32_t to, const CUtensorMap *map, wf_barrier b, uint16_t blocks,
                              int x0, int x1, int x2, int x3)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to),
                 "l"(map), "r"(b), "h"(blocks), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
}

/* ---- MMAs of bf16, as in hopper.cuh ---- */

#define WF_LIST(...) __VA_ARGS__
#define WF_O96(c, d, i) WF_O64(c, d, i), WF_O32(c, d, i + 64)
#define WF_O128(c, d, i) WF_O64(c, d, i), WF_O64(c, d, i + 64)
#define WF_R96                                                                                  \
    WF_R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
           "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WF_R128                                                                                   \
    WF_R96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "   \
           "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
           "%124, %125, %126, %127"

template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma_first(float (&d)[96], uint64_t a, uint64_t b)
{
    const int add = 0;
    static_assert(__is_same(T, wf_bf16), "f16 is not measured here");
    WF_WGMMA_SS(192, "bf16", WF_R96, WF_O96("=f", d, 0), 96, 97, 98, 99, 100);
}

template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma_first(float (&d)[128], uint64_t a, uint64_t b)
{
    const int add = 0;
    static_assert(__is_same(T, wf_bf16), "f16 is not measured here");
    WF_WGMMA_SS(256, "bf16", WF_R128, WF_O128("=f", d, 0), 128, 129, 130, 131, 132);
}

template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma(float (&d)[4], uint64_t a, uint64_t b, int add)
{
    static_assert(__is_same(T, wf_bf16), "f16 is not measured here");
    WF_WGMMA_SS(8, "bf16", "%0, %1, %2, %3",
                WF_LIST("+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])), 4, 5, 6, 7, 8);
}

template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma(float (&d)[96], uint64_t a, uint64_t b, int add)
{
    static_assert(__is_same(T, wf_bf16), "f16 is not measured here");
    WF_WGMMA_SS(192, "bf16", WF_R96, WF_O96("+f", d, 0), 96, 97, 98, 99, 100);
}

template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma(float (&d)[128], uint64_t a, uint64_t b, int add)
{
    static_assert(__is_same(T, wf_bf16), "f16 is not measured here");
    WF_WGMMA_SS(256, "bf16", WF_R128, WF_O128("+f", d, 0), 128, 129, 130, 131, 132);
}

#endif
#endif
