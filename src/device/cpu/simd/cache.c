/* SPDX-License-Identifier: MIT */
/* cache.c - kv_append: (pool [P, page, Hk, D], x [N, Hk, D], seq_start, positions, table). */
#include "base/half.h"
#include "base/thread.h"
#include "device/cpu/paged.h"
#include "device/cpu/simd/simd.h"
#include "device/walk.h"
#include "graph/quant/codec.h"
#include "graph/quant/fit.h"

/* Converts n elements between float types. */
static inline __attribute__((always_inline)) void copy_as(wf_type to_type, char *to,
                                                          wf_type from_type, const char *from,
                                                          int64_t n)
{
    int64_t to_size = to_type == WF_F32 ? 4 : 2, from_size = from_type == WF_F32 ? 4 : 2, i = 0;
    for (; i + WF_VL <= n; i += WF_VL)
        vf_store_as(to_type, to + i * to_size, vf_load_as(from_type, from + i * from_size));
    if (i < n)
        vf_store_as_n(to_type, to + i * to_size,
                      vf_load_as_n(from_type, from + i * from_size, (int)(n - i)), (int)(n - i));
}

enum { Q8_BLOCK = 32, VECTORS = Q8_BLOCK / WF_VL };

/* Has the bits of wf_quantize: NaN counts as 0, and values beyond +-65504 count as +-65504. */
static inline __attribute__((always_inline)) void encode_block(wf_type type, const char *from,
                                                               wf_block_q8_0 *to)
{
    const int64_t size = type == WF_F32 ? 4 : 2;
    const vf bound = vf_set(WF_FIT_MOST), last = vf_set(127);
    vf x[VECTORS], most = vf_zero();
    for (int i = 0; i < VECTORS; i++) {
        x[i] = vf_load_as(type, from + i * WF_VL * size);
        x[i] = vf_select(vf_nan(x[i]), vf_zero(), x[i]);
        x[i] = vf_max(vf_min(x[i], bound), vf_neg(bound));
        most = vf_max(most, vf_abs(x[i]));
    }
    to->d = wf_fit_store(vf_most(most) / 127);
    const float d = wf_f16_to_f32(to->d);
    const vf inverse = vf_set(d > 0 ? 1 / d : 0);
    for (int i = 0; i < VECTORS; i++) {
        vf q = vf_max(vf_min(vf_mul(x[i], inverse), last), vf_neg(last));
        vi_store_bytes(to->q + i * WF_VL, vf_to_vi(vf_round(q)));
    }
}

/* The block is encoded outside of the pool, which need not be aligned for its type. */
static inline __attribute__((always_inline)) void encode_row(wf_type type, char *to,
                                                             const char *from, int64_t n)
{
    const int64_t size = type == WF_F32 ? 4 : 2;
    for (int64_t i = 0; i < n; i += Q8_BLOCK, to += sizeof(wf_block_q8_0)) {
        wf_block_q8_0 block;
        encode_block(type, from + i * size, &block);
        memcpy(to, &block, sizeof block);
    }
}

static void quantize_row(char *to, wf_type from_type, const char *from, int64_t n)
{
    if (from_type == WF_F32)
        encode_row(WF_F32, to, from, n);
    else if (from_type == WF_F16)
        encode_row(WF_F16, to, from, n);
    else
        encode_row(WF_BF16, to, from, n);
}

static void copy_row(wf_type to_type, char *to, wf_type from_type, const char *from, int64_t n)
{
    if (to_type == WF_Q8_0)
        quantize_row(to, from_type, from, n);
    else if (to_type == from_type) /* also keeps NaN payloads */
        memcpy(to, from, wf_type_bytes(to_type, n));
    else if (from_type == WF_F32 && to_type == WF_F16)
        copy_as(WF_F16, to, WF_F32, from, n);
    else if (from_type == WF_F32)
        copy_as(WF_BF16, to, WF_F32, from, n);
    else
        copy_as(to_type, to, from_type, from, n);
}

/* Each thread copies some heads of all tokens, in order: of two tokens with one slot the later
 * wins. */
static void append_heads(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_launch *l = arg;
    const wf_view *pool = &l->in[0], *x = &l->in[1];
    const int32_t *start = l->in[2].data;
    int64_t page = pool->dim[1];
    int64_t from_size = wf_type_get(x->type)->block_bytes;
    (void)thread;
    for (int64_t s = 0; s + 1 < l->in[2].dim[0]; s++)
        for (int64_t i = start[s]; i < start[s + 1]; i++) {
            int64_t slot = wf_kv_append_slot(l, s, i);
            int64_t to = slot / page * pool->stride[0] + slot % page * pool->stride[1];
            const char *from = (const char *)x->data + i * x->stride[0] * from_size;
            for (int64_t h = begin; h < end; h++)
                copy_row(pool->type, wf_view_at(pool, to + h * pool->stride[2]), x->type,
                         from + h * x->stride[1] * from_size, x->dim[2]);
        }
}

static wf_status launch_kv_append(const wf_launch *l)
{
    const wf_view *x = &l->in[1];
    WF_TRY(wf_kv_append_check(l));
    wf_parallel_for(l->threads, x->dim[1], wf_grain(x->dim[0] * x->dim[2]), append_heads,
                    (void *)l);
    return WF_OK;
}

/* clang-format off */
const wf_kernel WF_SIMD(wf_cpu_cache)[] = {
    {.op = WF_OP_kv_append, .name = "simd", .types = WF_TYPES_FLOAT | WF_TYPE_BIT(WF_Q8_0), .strided = true,
     .launch = launch_kv_append},
    {0},
};
