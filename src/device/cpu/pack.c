/* SPDX-License-Identifier: MIT */
/*
 * pack.c - packs weights into panels and back. Elements are only moved, so both ways are exact.
 *
 * w [N, K] becomes ceil(N / NR) panels [K][NR]: the NR columns of one k are contiguous, in the
 * weight's own type. The last panel is padded with zeros. gemm.c reads panels where they are.
 */
#include "device/cpu/pack.h"

#include <string.h>

#include "base/check.h"
#include "base/thread.h"
#include "device/cpu/gemm.h"

enum {
    NR = WF_GEMM_COLUMNS,
    GRAIN = 64 * 1024 /* fewest elements per thread */
};

static int64_t panel_count(const wf_dims *shape)
{
    return (shape->d[0] + NR - 1) / NR;
}

size_t wf_cpu_packed_bytes(const wf_device *device, wf_type type, const wf_dims *shape)
{
    (void)device;
    size_t bytes;
    wf_type_set types = wf_type_bit(WF_F32) | wf_type_bit(WF_F16) | wf_type_bit(WF_BF16);
    if (!(types & wf_type_bit(type)) || shape->n != 2 || wf_dims_count(shape) == 0 ||
        !wf_mul_size((size_t)panel_count(shape), wf_type_bytes(type, NR), &bytes) ||
        !wf_mul_size(bytes, (size_t)shape->d[1], &bytes))
        return 0;
    return bytes;
}

/* Arguments of the workers. */
typedef struct {
    char *panels, *rows; /* packed and dense memory */
    size_t size;         /* bytes per element */
    int64_t n, k;
    bool pack; /* true: rows to panels; false: back */
} job;

/* Moves row `row` of the weight to or from column `j` of a panel. */
static inline void move_row(const job *w, int64_t row, char *panel, int j, size_t size)
{
    char *dense = w->rows + (size_t)(row * w->k) * size;
    char *at = panel + (size_t)j * size;
    for (int64_t k = 0; k < w->k; k++, dense += size, at += NR * size) {
        if (row >= w->n)
            memset(at, 0, size);
        else if (w->pack)
            memcpy(at, dense, size);
        else
            memcpy(dense, at, size);
    }
}

static void some_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *w = arg;
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        char *panel = w->panels + (size_t)(p * NR * w->k) * w->size;
        /* Unpacking stops at the last row: padding has no place in the dense matrix. */
        for (int j = 0; j < NR && (w->pack || p * NR + j < w->n); j++) {
            if (w->size == 4) /* constant sizes compile to one instruction per element */
                move_row(w, p * NR + j, panel, j, 4);
            else
                move_row(w, p * NR + j, panel, j, 2);
        }
    }
}

static wf_status move(const wf_device *device, job *w, wf_type type, const wf_dims *shape)
{
    w->size = wf_type_bytes(type, 1);
    w->n = shape->d[0];
    w->k = shape->d[1];
    /* Whole panels per thread. */
    wf_parallel_for(device->threads, panel_count(shape), GRAIN / (NR * w->k) + 1, some_panels, w);
    return WF_OK;
}

wf_status wf_cpu_pack(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                      const wf_dims *shape)
{
    job w = {.panels = to->base, .rows = (char *)from, .pack = true};
    return move(queue->device, &w, type, shape);
}

wf_status wf_cpu_unpack(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                        const wf_dims *shape)
{
    job w = {.panels = from->base, .rows = to};
    return move(queue->device, &w, type, shape);
}
