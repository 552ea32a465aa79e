/* SPDX-License-Identifier: MIT */
/* source.c - values computed from attributes: fill, iota, uniform. Inputs and states need no
 * kernel: the executor assigns their memory. */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/random.h"
#include "device/cpu/row.h"
#include "device/walk.h"

/* ---- fill ---- */

/* Encodes `value` as one element. Floats round. Integers truncate and saturate; NaN becomes 0. */
static void encode(wf_type type, double value, wf_chunk *to)
{
    double whole = isnan(value) ? 0 : trunc(value);
    switch (type) {
    case WF_I32: to->i32[0] = (int32_t)fmin(fmax(whole, INT32_MIN), INT32_MAX); break;
    case WF_I8: ((int8_t *)to)[0] = (int8_t)fmin(fmax(whole, INT8_MIN), INT8_MAX); break;
    case WF_U8: to->u8[0] = (uint8_t)fmin(fmax(whole, 0), UINT8_MAX); break;
    default: wf_convert_from_f32(type, &(float){(float)value}, to, 1);
    }
}

typedef struct {
    const wf_view *out;
    wf_chunk element;
} fill_job;

static void fill_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const fill_job *j = arg;
    wf_copy_strided(wf_view_at(j->out, begin), 1, &j->element, 0, end - begin,
                    wf_type_get(j->out->type)->block_bytes);
}

static wf_status launch_fill(const wf_launch *l)
{
    const wf_attr_fill *attr = l->attr;
    fill_job j = {.out = &l->out[0]};
    if (!j.out->data)
        return WF_OK;
    encode(j.out->type, attr->value, &j.element);
    wf_parallel_for(l->threads, wf_view_count(j.out), wf_grain(1), fill_range, &j);
    return WF_OK;
}

/* ---- iota ---- */

typedef struct {
    int32_t *out;
    int64_t length, inner; /* length of the axis; elements between consecutive indices */
} iota_job;

static void iota_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const iota_job *j = arg;
    for (int64_t e = begin; e < end; e++)
        j->out[e] = (int32_t)(e / j->inner % j->length);
}

static wf_status launch_iota(const wf_launch *l)
{
    const wf_attr_iota *attr = l->attr;
    const wf_view *out = &l->out[0];
    if (!out->data)
        return WF_OK;
    iota_job j = {.out = out->data, .length = out->dim[attr->axis], .inner = 1};
    for (int i = (int)attr->axis + 1; i < out->rank; i++)
        j.inner *= out->dim[i];
    wf_parallel_for(l->threads, wf_view_count(out), wf_grain(1), iota_range, &j);
    return WF_OK;
}

/* ---- uniform ---- */

static void uniform_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const wf_launch *l = arg;
    const wf_attr_uniform *attr = l->attr;
    float *out = l->out[0].data;
    wf_random_units(l->in[0].data, attr->stream, begin, end - begin, out + begin);
}

static wf_status launch_uniform(const wf_launch *l)
{
    if (l->out[0].data)
        wf_parallel_for(l->threads, wf_view_count(&l->out[0]), wf_grain(1), uniform_range,
                        (void *)l);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_, types_, launch_)                                                                \
    {.op = WF_OP_##name_, .name = "reference", .types = types_, .strided = true, .launch = launch_}
const wf_kernel wf_cpu_source[] = {
    ROW(fill, WF_TYPES_PLAIN, launch_fill),
    ROW(iota, WF_TYPE_BIT(WF_I32), launch_iota),
    ROW(uniform, WF_TYPE_BIT(WF_I32), launch_uniform), /* the type of its key */
    {0},
};
