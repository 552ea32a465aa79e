/* SPDX-License-Identifier: MIT */
/*
 * isa.c - detects instruction sets and selects the one whose kernels run.
 *
 * The choice is made once per process: the best set that processor and operating system support, or
 * the one that WEFT_CPU names. Each set is a table of kernels compiled with its own flags
 * (cpu/simd, cpu/amx), so the rest of the program runs on any processor of the architecture.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/text.h"
#include "device/cpu/cpu.h"
#include "device/cpu/row.h"

#if defined __x86_64__ && WF_CPU_SIMD
#include <cpuid.h>

/* Bits of XCR0: the registers that the operating system saves on a context switch. */
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* State components: SSE and AVX; also AVX-512's three; tile configuration and data. */
enum { YMM = 0x6, ZMM = 0xe6, TILES = 0x60000 };

static bool has_bits(uint32_t reg, uint32_t bits)
{
    return (reg & bits) == bits;
}

/* Whether the operating system saves these registers and the processor has all these feature
 * bits. */
static bool has(uint64_t registers, uint32_t leaf1_c, uint32_t leaf7_b, uint32_t leaf7_c,
                uint32_t leaf7_d)
{
    uint32_t a, b, c, d;
    const uint32_t osxsave = 1u << 27; /* without it, xgetbv is an invalid instruction */
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bits(c, leaf1_c | osxsave) ||
        (saved_registers() & registers) != registers)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && has_bits(b, leaf7_b) &&
           has_bits(c, leaf7_c) && has_bits(d, leaf7_d);
}

enum { /* leaf 1, ecx; leaf 7, ebx, ecx and edx */
       FMA = 1 << 12,
       F16C = 1 << 29,
       AVX2 = 1 << 5,
       AVX512F = 1 << 16,
       AVX512DQ = 1 << 17,
       AVX512BW = 1 << 30,
       VNNI = 1 << 11,
       AMX_BF16 = 1 << 22,
       AMX_TILE = 1 << 24,
       AMX_INT8 = 1 << 25
};
#define AVX512VL (1u << 31)

static bool has_avx2(void)
{
    return has(YMM, FMA | F16C, AVX2, 0, 0);
}

static bool has_avx512(void)
{
    return has_avx2() && has(ZMM, 0, AVX512F | AVX512DQ | AVX512BW | AVX512VL, VNNI, 0);
}

#ifdef WF_CPU_AMX
static bool has_amx(void)
{
    return has_avx512() && has(TILES, 0, 0, 0, AMX_TILE | AMX_INT8 | AMX_BF16) &&
           wf_cores_allow_tiles(); /* Linux grants tiles per process, on request */
}
#endif
#elif defined __aarch64__ && WF_CPU_SIMD
#ifdef __linux__
#include <sys/auxv.h>

/* Also checks what compilers use for armv8.2-a. */
static bool has_dotprod(void)
{
    const unsigned long bits = HWCAP_CRC32 | HWCAP_ATOMICS | HWCAP_ASIMDRDM | HWCAP_ASIMDDP;
    return (getauxval(AT_HWCAP) & bits) == bits;
}

/* Processors with i8mm also have bf16. */
static bool has_i8mm(void)
{
    const unsigned long bits = HWCAP2_I8MM | HWCAP2_BF16;
    return has_dotprod() && (getauxval(AT_HWCAP2) & bits) == bits;
}
#else
static bool has_dotprod(void) /* this system offers no way to ask */
{
    return false;
}

static bool has_i8mm(void)
{
    return false;
}
#endif
#endif

static bool always(void)
{
    return true;
}

extern const wf_cpu_isa wf_cpu_isa_amx, wf_cpu_isa_amx_emulated, wf_cpu_isa_avx512, wf_cpu_isa_avx2,
    wf_cpu_isa_i8mm, wf_cpu_isa_dotprod, wf_cpu_isa_neon;

static const wf_kernel *const reference_kernels[] = {WF_CPU_REFERENCE_KERNELS, NULL};

/* Plain C, for every machine; the reference for the fast kernels. */
static const wf_cpu_isa reference = {
    .kernels = reference_kernels,
    .packed_bytes = wf_cpu_packed_bytes,
    .pack = wf_cpu_pack,
    .unpack = wf_cpu_unpack,
    .loops = &wf_cpu_plain_loops,
};

/* Best first. */
static const struct {
    const char *name, *title;
    bool (*present)(void);
    const wf_cpu_isa *isa;
} sets[] = {
#if defined __x86_64__ && WF_CPU_SIMD
#ifdef WF_CPU_AMX
    {"amx", "AMX kernels", has_amx, &wf_cpu_isa_amx},
#endif
    {"avx512", "AVX-512 kernels", has_avx512, &wf_cpu_isa_avx512},
#ifdef WF_CPU_AVX2
    {"avx2", "AVX2 kernels", has_avx2, &wf_cpu_isa_avx2},
#endif
#ifdef WF_CPU_AMX_EMULATED
    /* For tests; after avx512, which every machine that can run it has. */
    {"amx_emulated", "AMX kernels with emulated tiles", has_avx512, &wf_cpu_isa_amx_emulated},
#endif
#elif defined __aarch64__ && WF_CPU_SIMD
    {"i8mm", "NEON kernels with dot products and bf16", has_i8mm, &wf_cpu_isa_i8mm},
    {"dotprod", "NEON kernels with dot products", has_dotprod, &wf_cpu_isa_dotprod},
    {"neon", "NEON kernels", always, &wf_cpu_isa_neon},
#endif
    {"reference", "reference kernels in C", always, &reference},
};
enum { SETS = sizeof sets / sizeof *sets };

/* Index of WEFT_CPU's set, or of the best one. -1: unknown name; -2: not on this machine. */
static int chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    const char *name = getenv("WEFT_CPU");
    if (!name || !*name) {
        while (!sets[chosen].present()) /* ends: the last set is always present */
            chosen++;
        return;
    }
    for (chosen = 0; chosen < SETS; chosen++)
        if (strcmp(name, sets[chosen].name) == 0) {
            chosen = sets[chosen].present() ? chosen : -2;
            return;
        }
    chosen = -1;
}

wf_status wf_cpu_isa_check(wf_ctx *ctx)
{
    char known[128] = "";
    size_t len = 0;
    pthread_once(&once, choose);
    if (chosen >= 0)
        return WF_OK;
    for (int i = 0; i < SETS; i++)
        if (chosen == -1 || sets[i].present())
            wf_text_append(known, sizeof known, &len, "%s%s", len ? ", " : "", sets[i].name);
    return wf_fail(ctx, WF_ERR_USAGE,
                   chosen == -2 ? "WEFT_CPU=%s is not available on this machine; use one of: %s"
                                : "WEFT_CPU=%s is unknown; use one of: %s",
                   getenv("WEFT_CPU"), known);
}

const wf_cpu_isa *wf_cpu_isa_now(void)
{
    pthread_once(&once, choose);
    /* A wrong WEFT_CPU: wf_cpu_isa_check has reported it. */
    return chosen >= 0 ? sets[chosen].isa : &reference;
}

const char *wf_cpu_isa_title(void)
{
    pthread_once(&once, choose);
    return chosen >= 0 ? sets[chosen].title : "reference kernels in C";
}

/* For tests: set i of those that this machine has; NULL past the last. */
const wf_cpu_isa *wf_cpu_isa_at(int i, const char **name)
{
    for (int s = 0; s < SETS; s++)
        if (sets[s].present() && i-- == 0) {
            *name = sets[s].name;
            return sets[s].isa;
        }
    return NULL;
}

size_t wf_cpu_isa_packed_bytes(const wf_device *device, wf_type type, const wf_dims *shape)
{
    return wf_cpu_isa_now()->packed_bytes(device, type, shape);
}

wf_status wf_cpu_isa_pack(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                          const wf_dims *shape)
{
    return wf_cpu_isa_now()->pack(queue, to, from, type, shape);
}

wf_status wf_cpu_isa_unpack(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                            const wf_dims *shape)
{
    return wf_cpu_isa_now()->unpack(queue, to, from, type, shape);
}

bool wf_cpu_isa_packing_pays(const wf_device *device, wf_type type, const wf_dims *shape)
{
    const wf_cpu_isa *isa = wf_cpu_isa_now();
    /* A layout may exist without being faster. */
    return isa->packs & wf_type_bit(type) && isa->packed_bytes(device, type, shape) > 0;
}
