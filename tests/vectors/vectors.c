/* SPDX-License-Identifier: MIT */
/*
 * vectors.c - tests every vector operation of simd.h against plain C, so that kernels compute the
 * same with every instruction set. Compiled once per set, and run when the machine supports it.
 * Lanes are special values, random bits and ordinary values from a fixed seed.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/half.h"
#include "device/cpu/simd/simd.h"

enum { ROUNDS = 20000 };

static int failures;

static void wrong(const char *name, int lane, double got, double want)
{
    if (failures++ < 20)
        printf("%s, lane %d: %a, wanted %a\n", name, lane, got, want);
}

/* ---- Values ---- */

static uint64_t state = 1;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static float draw_float(void)
{
    static const float odd[] = {
        0,     -0.0f,    1,       -1,       0.5f,      1.5f,       2.5f,       -0.5f,     -2.5f,
        NAN,   INFINITY, 3.4e38f, -3.4e38f, -INFINITY, 0x1p-149f,  0x1p-126f,  65504,     65519,
        65520, 0x1p-24f, -65520,  8388609,  0x1p-25f,  0x1.8p-25f, 8388607.5f, 0x1.01p0f, 0x1.03p0f,
    };
    uint32_t bits = draw();
    switch (draw() % 4) {
    case 0: return odd[bits % (sizeof odd / sizeof *odd)];
    case 1: return wf_bits_f32(bits);
    case 2: return (float)(int32_t)bits * 0x1p-16f;
    default: return (float)(int32_t)bits * 0x1p-31f;
    }
}

/* The operands of a round, by lane. */
static float fa[WF_VL], fb[WF_VL], fc[WF_VL];
static int32_t ia[WF_VL], ib[WF_VL], ic[WF_VL];

static void draw_all(void)
{
    for (int i = 0; i < WF_VL; i++) {
        fa[i] = draw_float();
        fb[i] = draw_float();
        fc[i] = draw_float();
        ia[i] = (int32_t)draw();
        ib[i] = draw() % 8 ? (int32_t)draw() : INT32_MIN;
        ic[i] = (int32_t)draw();
    }
}

/* ---- Comparison ---- */

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || wf_f32_bits(a) == wf_f32_bits(b);
}

static void expect_f(const char *name, vf got, const float *want)
{
    float lanes[WF_VL];
    vf_store(lanes, got);
    for (int i = 0; i < WF_VL; i++)
        if (!same(lanes[i], want[i]))
            wrong(name, i, lanes[i], want[i]);
}

static void expect_i(const char *name, vi got, const int32_t *want)
{
    int32_t lanes[WF_VL];
    vi_store(lanes, got);
    for (int i = 0; i < WF_VL; i++)
        if (lanes[i] != want[i])
            wrong(name, i, lanes[i], want[i]);
}

/* Compares each lane of a vector with an expression in x, y and z, the operands' lanes. */
#define LANES(kind, type, p, q, r, got, lane)        \
    do {                                             \
        type want[WF_VL];                            \
        for (int i = 0; i < WF_VL; i++) {            \
            const type x = p[i], y = q[i], z = r[i]; \
            want[i] = (lane);                        \
            (void)x, (void)y, (void)z;               \
        }                                            \
        expect_##kind(#got, got, want);              \
    } while (0)
#define EACH_F(got, lane) LANES(f, float, fa, fb, fc, got, lane)
#define EACH_I(got, lane) LANES(i, int32_t, ia, ib, ic, got, lane)

/* ---- f32 ---- */

static void check_floats(void)
{
    vf a = vf_load(fa), b = vf_load(fb), c = vf_load(fc);
    _Alignas(64) float streamed[WF_VL];
    vf_stream(streamed, a);
    expect_f("vf_stream", vf_load(streamed), fa);
    EACH_F(vf_zero(), 0);
    EACH_F(vf_set(fa[0]), fa[0]);
    EACH_F(vf_add(a, b), x + y);
    EACH_F(vf_sub(a, b), x - y);
    EACH_F(vf_mul(a, b), x * y);
    EACH_F(vf_div(a, b), x / y);
    EACH_F(vf_sqrt(a), sqrtf(x));
    EACH_F(vf_fma(a, b, c), fmaf(x, y, z));
    EACH_F(vf_fnma(a, b, c), fmaf(-x, y, z));
    EACH_F(vf_max(a, b), x > y ? x : y);
    EACH_F(vf_min(a, b), x < y ? x : y);
    EACH_F(vf_abs(a), fabsf(x));
    EACH_F(vf_neg(a), -x);
    EACH_F(vf_round(a), rintf(x));
    EACH_F(vf_swap(a), fa[i ^ 1]);
}

static void check_masks(void)
{
    vf a = vf_load(fa), b = vf_load(fb), c = vf_load(fc);
    int n = (int)(draw() % (WF_VL + 1));
    EACH_F(vf_select(vf_lt(a, b), b, c), x < y ? y : z);
    EACH_F(vf_select(vf_le(a, b), b, c), x <= y ? y : z);
    EACH_F(vf_select(vf_eq(a, b), b, c), x == y ? y : z);
    EACH_F(vf_select(vf_nan(a), b, c), isnan(x) ? y : z);
    EACH_F(vf_select(vm_first(n), a, b), i < n ? x : y);
    EACH_F(vf_select(vi_lt(vi_load(ia), vi_load(ib)), a, b), ia[i] < ib[i] ? x : y);
    bool any = false;
    for (int i = 0; i < WF_VL; i++)
        any |= isnan(fa[i]);
    if (vm_any(vf_nan(a)) != any)
        wrong("vm_any", 0, !any, any);
}

/* Folds halves onto each other until one lane is left. */
static void check_folds(void)
{
    float sum[WF_VL], most[WF_VL];
    memcpy(sum, fa, sizeof sum);
    memcpy(most, fa, sizeof most);
    for (int half = WF_VL / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) {
            sum[i] += sum[i + half];
            most[i] = most[i] > most[i + half] ? most[i] : most[i + half];
        }
    float got_sum = vf_sum(vf_load(fa)), got_most = vf_most(vf_load(fa));
    if (!same(got_sum, *sum))
        wrong("vf_sum", 0, got_sum, *sum);
    if (!same(got_most, *most))
        wrong("vf_most", 0, got_most, *most);
}

static void check_transpose(void)
{
    float all[WF_VL][WF_VL];
    vf rows[WF_VL];
    for (int i = 0; i < WF_VL; i++) {
        for (int j = 0; j < WF_VL; j++)
            all[i][j] = (float)(i * WF_VL + j);
        rows[i] = vf_load(all[i]);
    }
    vf_transpose(rows);
    for (int i = 0; i < WF_VL; i++) {
        float column[WF_VL];
        for (int j = 0; j < WF_VL; j++)
            column[j] = all[j][i];
        expect_f("vf_transpose", rows[i], column);
    }
}

static void check_transpose_halves(void)
{
    enum { STRIDE = 2 * WF_VL + 3 };
    uint16_t from[WF_VL * STRIDE];
    _Alignas(64) uint16_t to[2 * WF_VL][WF_VL];
    for (int i = 0; i < WF_VL * STRIDE; i++)
        from[i] = (uint16_t)(40503 * i);
    v_transpose_halves((const char *)from, STRIDE * sizeof *from, to);
    for (int k = 0; k < 2 * WF_VL; k++)
        for (int i = 0; i < WF_VL; i++)
            if (to[v_half_slot(k)][i] != from[i * STRIDE + k])
                wrong("v_transpose_halves", i, to[v_half_slot(k)][i], from[i * STRIDE + k]);
}

static void check_transpose_fours(void)
{
    vf rows[4];
    float from[4][WF_VL], to[WF_VL];
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < WF_VL; j++)
            from[i][j] = (float)(100 * i + j);
        rows[i] = vf_load(from[i]);
    }
    vf_transpose_fours(rows);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < WF_VL; j++)
            to[j] = from[j % 4][j / 4 * 4 + i];
        expect_f("vf_transpose_fours", rows[i], to);
    }
}

/* Uses whole numbers, because each instruction set adds in its own order. */
static void check_sums(void)
{
    vf rows[WF_VL];
    float want[WF_VL] = {0};
    for (int i = 0; i < WF_VL; i++) {
        float row[WF_VL];
        for (int j = 0; j < WF_VL; j++) {
            row[j] = (float)(draw() % 2000) - 1000;
            want[i] += row[j];
        }
        rows[i] = vf_load(row);
    }
    expect_f("vf_sums", vf_sums(rows), want);
}

/* ---- f64: results converted to f32 must equal the f64 result rounded once ---- */

static void check_doubles(void)
{
    vf a = vf_load(fa), b = vf_load(fb), c = vf_load(fc);
    vd a0 = vd_low(a), a1 = vd_high(a), b0 = vd_low(b), b1 = vd_high(b), c0 = vd_low(c),
       c1 = vd_high(c);
    EACH_F(vd_to_vf(vd_zero(), vd_set(fa[0])), i < WF_VL / 2 ? 0 : fa[0]);
    EACH_F(vd_to_vf(a1, b0), i < WF_VL / 2 ? fa[i + WF_VL / 2] : fb[i - WF_VL / 2]);
    EACH_F(vd_to_vf(vd_add(a0, b0), vd_add(a1, b1)), (float)((double)x + y));
    EACH_F(vd_to_vf(vd_sub(a0, b0), vd_sub(a1, b1)), (float)((double)x - y));
    EACH_F(vd_to_vf(vd_mul(a0, b0), vd_mul(a1, b1)), (float)((double)x * y));
    EACH_F(vd_to_vf(vd_fma(a0, b0, c0), vd_fma(a1, b1, c1)), (float)fma(x, y, z));
    EACH_F(vd_to_vf(vd_fnma(a0, b0, c0), vd_fnma(a1, b1, c1)), (float)fma(-(double)x, y, z));
    EACH_F(vd_to_vf(vd_round(a0), vd_round(a1)), (float)rint(x));

    double sum[WF_VL / 2];
    vd_store(sum, a0);
    for (int i = 0; i < WF_VL / 2; i++)
        if (!same((float)sum[i], fa[i]))
            wrong("vd_store", i, sum[i], fa[i]);
    EACH_F(vd_to_vf(vd_load(sum), a1), x);
    for (int half = WF_VL / 4; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    double got = vd_sum(a0);
    if (got != *sum && !(isnan(got) && isnan(*sum)))
        wrong("vd_sum", 0, got, *sum);
}

/* ---- i32, and pairs of i16 ---- */

static int32_t wrap(int64_t x)
{
    return (int32_t)(uint64_t)x;
}

static int32_t low(int32_t x)
{
    return (int16_t)x;
}

static int32_t high(int32_t x)
{
    return x >> 16;
}

static int32_t pair(int32_t first, int32_t second)
{
    return (int32_t)((uint32_t)second << 16 | (uint16_t)first);
}

static void check_integers(void)
{
    vi a = vi_load(ia), b = vi_load(ib);
    EACH_I(vi_zero(), 0);
    EACH_I(vi_set(ia[0]), ia[0]);
    EACH_I(vi_keep(a), x);
    EACH_I(vi_add(a, b), wrap((int64_t)x + y));
    EACH_I(vi_sub(a, b), wrap((int64_t)x - y));
    EACH_I(vi_mul(a, b), wrap((int64_t)x * y));
    EACH_I(vi_and(a, b), x & y);
    EACH_I(vi_or(a, b), x | y);
    EACH_I(vi_xor(a, b), x ^ y);
    EACH_I(vi_max(a, b), x > y ? x : y);
    EACH_I(vi_min(a, b), x < y ? x : y);
    EACH_I(vi_from_u8((const uint8_t *)ib), ((const uint8_t *)ib)[i]);
    EACH_I(vi_from_i8((const int8_t *)ib), ((const int8_t *)ib)[i]);
    int n = (int)(draw() % 32);
    EACH_I(vi_shl(a, n), (int32_t)((uint32_t)x << n));
    EACH_I(vi_shr(a, n), (int32_t)((uint32_t)x >> n));
    EACH_I(vi_sra(a, n), x >> n);
}

static void check_pairs(void)
{
    vi a = vi_load(ia), b = vi_load(ib), c = vi_load(ic);
    EACH_I(vp_sub(a, b), pair(low(x) - low(y), high(x) - high(y)));
    EACH_I(vp_mul(a, b), pair(low(x) * low(y), high(x) * high(y)));
    EACH_I(vp_dot(c, a, b), wrap(z + (int64_t)low(x) * low(y) + (int64_t)high(x) * high(y)));
    EACH_I(vp_join(a, b), pair(low((i % 4 < 2 ? ia : ib)[i / 4 * 4 + i % 2]),
                               low((i % 4 < 2 ? ia : ib)[i / 4 * 4 + i % 2 + 2])));
    vi least = vi_set(pair(INT16_MIN, INT16_MIN));
    EACH_I(vp_dot(c, least, least), wrap(z + ((int64_t)1 << 31)));
    int n = (int)(draw() % 16);
    EACH_I(vp_shl(a, n), pair((int32_t)((uint32_t)x << n), (int32_t)((uint32_t)high(x) << n)));
    EACH_I(vp_shr(a, n), pair((uint16_t)x >> n, (uint16_t)high(x) >> n));
    EACH_I(vp_sra(a, n), pair(low(x) >> n, high(x) >> n));
}

/* Stores the lowest byte of each lane and nothing after them; loads groups of four lanes at any
 * offset; looks up bytes in a table of 16. */
static void check_bytes(void)
{
    uint8_t bytes[WF_VL + 1], all[4 * 4 * WF_VL];
    int64_t at[WF_VL / 4];
    bytes[WF_VL] = 0x55;
    vi_store_bytes(bytes, vi_load(ia));
    for (int i = 0; i < WF_VL; i++)
        if (bytes[i] != (uint8_t)ia[i])
            wrong("vi_store_bytes", i, bytes[i], (uint8_t)ia[i]);
    if (bytes[WF_VL] != 0x55)
        wrong("vi_store_bytes, the next byte", WF_VL, bytes[WF_VL], 0x55);

    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)draw();
    for (int i = 0; i < WF_VL / 4; i++)
        at[i] = draw() % (sizeof all - 15);
    int32_t want[WF_VL];
    for (int i = 0; i < WF_VL; i++)
        memcpy(&want[i], all + at[i / 4] + i % 4 * 4, sizeof *want);
    expect_i("vi_load_fours", vi_load_fours(all, at), want);

    uint8_t index[4 * WF_VL], found[4 * WF_VL];
    for (int i = 0; i < 4 * WF_VL; i++) {
        index[i] = (uint8_t)(draw() % 16);
        found[i] = all[index[i]];
    }
    memcpy(want, found, sizeof want);
    expect_i("vi_lookup", vi_lookup(all, vi_load(index)), want);
}

/* Returns one end of the range (`end` 0 or 1), or a value within it. */
static int draw_between(int least, int most, uint32_t end)
{
    int any = least + (int)(draw() % (uint32_t)(most - least + 1));
    return end == 0 ? least : end == 1 ? most : any;
}

/* `count` consecutive products of bytes from `least` to `most`: the worst case of the
 * accumulators. */
static void check_fours(int count, int least, int most)
{
    vq sum = vq_zero();
    int32_t want[WF_VL] = {0};
    const int shift = (int)(draw() % 2 * 8);
    const uint32_t end = draw() % 4, a_end = draw() % 4;
    for (int k = 0; k < count; k++) {
        int8_t a[4];
        uint8_t bytes[4 * WF_VL];
        for (int i = 0; i < 4; i++)
            a[i] = (int8_t)draw_between(-128, 127, a_end);
        for (int i = 0; i < 4 * WF_VL; i++) {
            int byte = draw_between(least, most, end);
            bytes[i] = (uint8_t)byte;
            want[i / 4] += byte * a[i % 4] * (1 << shift);
        }
        int32_t four;
        memcpy(&four, a, sizeof four);
        sum = vq_dot(sum, vi_load(bytes), &four);
    }
    expect_i("vq_dot, vq_sum", vq_sum(sum, shift), want);
}

static void check_all_fours(void)
{
    check_fours(8, 0, 15);
    check_fours(2, 0, 63);
    check_fours(1, 0, 127);
    if (WF_VQ_WIDE)
        check_fours(8, WF_VQ_SIGNED ? -128 : 0, WF_VQ_SIGNED ? 127 : 255);
}

/* ---- Between types ---- */

/* Values that do not fit an i32 may convert to anything. */
static void check_conversions(void)
{
    vf a = vf_load(fa);
    vi n = vi_load(ia);
    EACH_F(vi_as_vf(vf_as_vi(a)), x);
    EACH_I(vf_as_vi(vi_as_vf(n)), x);
    LANES(f, float, ia, ib, ic, vi_to_vf(n), (float)ia[i]);
    for (int i = 0; i < WF_VL; i++)
        fa[i] = fabsf(fa[i]) < 0x1p31f ? fa[i] : -0x1p31f;
    LANES(i, int32_t, fa, fb, fc, vf_to_vi(vf_load(fa)), (int32_t)rintf(fa[i]));
}

/* A store rounds to nearest, keeps NaN, and touches nothing else. */
static void check_halves(void)
{
    uint16_t code[WF_VL], got[WF_VL + 1];
    for (int i = 0; i < WF_VL; i++)
        code[i] = (uint16_t)draw();
    EACH_F(vf_load_f16(code), wf_f16_to_f32(code[i]));
    EACH_F(vf_load_bf16(code), wf_bf16_to_f32(code[i]));
    for (int k = 0; k < 2; k++) {
        got[WF_VL] = 12345;
        (k ? vf_store_bf16 : vf_store_f16)(got, vf_load(fa));
        for (int i = 0; i < WF_VL; i++) {
            float is = k ? wf_bf16_to_f32(got[i]) : wf_f16_to_f32(got[i]);
            float want =
                k ? wf_bf16_to_f32(wf_f32_to_bf16(fa[i])) : wf_f16_to_f32(wf_f32_to_f16(fa[i]));
            if (!same(is, want))
                wrong(k ? "vf_store_bf16" : "vf_store_f16", i, is, want);
        }
        if (got[WF_VL] != 12345)
            wrong("a store of halves, the next number", WF_VL, got[WF_VL], 12345);
    }
}

/* ---- Partial loads and stores: no access at or past `end` ---- */

static void check_first_lanes(char *end)
{
    static const wf_type types[] = {WF_F32, WF_F16, WF_BF16};
    for (int t = 0; t < 3; t++)
        for (int n = 0; n <= WF_VL; n++) {
            size_t size = (size_t)n * (types[t] == WF_F32 ? 4 : 2);
            char whole[WF_VL * 4];
            vf_store_as(types[t], whole, vf_load(fa));
            memcpy(end - size, whole, size);
            vf first = vf_load_as_n(types[t], end - size, n);
            vf want = vf_select(vm_first(n), vf_load_as(types[t], whole), vf_zero());
            float lanes[WF_VL];
            vf_store(lanes, want);
            expect_f("vf_load_as_n", first, lanes);

            memset(end - sizeof whole, 0x55, sizeof whole);
            vf_store_as_n(types[t], end - size, vf_load(fa), n);
            if (memcmp(end - size, whole, size) != 0)
                wrong("vf_store_as_n", n, 0, 1);
            for (char *p = end - sizeof whole; p < end - size; p++)
                if (*p != 0x55)
                    wrong("vf_store_as_n, before its first", n, *p, 0x55);
        }
}

/* Maps an accessible page followed by an inaccessible one. Returns NULL when mmap fails. */
static char *two_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int zero = open("/dev/zero", O_RDWR);
    char *both = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    if (zero < 0 || both == MAP_FAILED || mprotect(both + page, page, PROT_NONE) != 0)
        return NULL;
    return both + page;
}

int main(void)
{
    char *end = two_pages();
    if (!end) {
        puts("vectors: no memory to test with");
        return 1;
    }
    for (int round = 0; round < ROUNDS; round++) {
        draw_all();
        check_floats();
        check_masks();
        check_folds();
        check_sums();
        check_doubles();
        check_integers();
        check_pairs();
        check_bytes();
        check_all_fours();
        check_halves();
        check_first_lanes(end);
        check_conversions();
    }
    check_transpose();
    check_transpose_halves();
    check_transpose_fours();
    printf("vectors: %d lanes, %d rounds, %d failures\n", WF_VL, (int)ROUNDS, failures);
    return failures > 0;
}
