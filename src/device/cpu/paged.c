/* SPDX-License-Identifier: MIT */
/*
 * paged.c - checks that page tables, lengths and positions stay within the pools.
 *
 * Kernels then access pages without checks. Only pages that the queries see, and pages between
 * these, are checked: other entries of the table may hold anything. These are entries behind a
 * sequence's keys, and entries of pages that the window has passed.
 */
#include "device/cpu/paged.h"

#include "device/cpu/packed.h"

/* The keys [low, high] of `length` keys that a query at this position sees; empty if high < low. */
static void seen_keys(const wf_attr_attention *a, int64_t position, int64_t length, int64_t *low,
                      int64_t *high)
{
    *low = a->window > 0 && position >= a->window ? position - a->window + 1 : 0;
    *high = a->causal && position < length ? position : length - 1;
}

/* Checks the pages from the first to the last that the queries of a sequence see. */
static wf_status check_sequence(const wf_launch *l, int64_t s)
{
    const wf_view *k = &l->in[1], *table = &l->in[5];
    const int32_t *start = l->in[3].data, *positions = l->in[4].data, *lengths = l->in[6].data;
    const int32_t *pages = wf_view_at(table, wf_view_row(table, s));
    int64_t page = k->dim[1], length = lengths[s], most = table->dim[1] * page;
    if (length < 0 || length > most)
        return wf_fail(l->ctx, WF_ERR_DEVICE,
                       "attention: lengths[%lld] is %lld, but the table has room for %lld keys",
                       (long long)s, (long long)length, (long long)most);
    int64_t first = most, last = -1; /* keys */
    for (int64_t i = start[s]; i < start[s + 1]; i++) {
        int64_t low, high;
        seen_keys(l->attr, positions[i], length, &low, &high);
        first = low <= high && low < first ? low : first;
        last = low <= high && high > last ? high : last;
    }
    for (int64_t p = first / page; p <= last / page && first <= last; p++)
        if (pages[p] < 0 || pages[p] >= k->dim[0])
            return wf_fail(l->ctx, WF_ERR_DEVICE,
                           "attention: table[%lld][%lld] is page %d, but the pool has %lld",
                           (long long)s, (long long)p, pages[p], (long long)k->dim[0]);
    return WF_OK;
}

wf_status wf_attention_check(const wf_launch *l)
{
    WF_TRY(wf_packed_check(l, &l->in[3], l->in[0].dim[0]));
    for (int64_t s = 0; l->nin > 5 && s + 1 < l->in[3].dim[0]; s++)
        WF_TRY(check_sequence(l, s));
    return WF_OK;
}

/* Slots count tokens of the pool. -1: the position has no page. */
int64_t wf_kv_append_slot(const wf_launch *l, int64_t s, int64_t i)
{
    const wf_view *pool = &l->in[0], *table = &l->in[4];
    int64_t page = pool->dim[1], position = ((const int32_t *)l->in[3].data)[i];
    if (position < 0 || position >= table->dim[1] * page)
        return -1;
    int32_t id = *(const int32_t *)wf_view_at(table, wf_view_row(table, s) + position / page);
    return id < 0 || id >= pool->dim[0] ? -1 : id * page + position % page;
}

wf_status wf_kv_append_check(const wf_launch *l)
{
    const int32_t *start = l->in[2].data, *positions = l->in[3].data;
    WF_TRY(wf_packed_check(l, &l->in[2], l->in[1].dim[0]));
    for (int64_t s = 0; s + 1 < l->in[2].dim[0]; s++)
        for (int64_t i = start[s]; i < start[s + 1]; i++)
            if (wf_kv_append_slot(l, s, i) < 0)
                return wf_fail(l->ctx, WF_ERR_DEVICE,
                               "kv_append: no page for row %lld, position %d of sequence %lld",
                               (long long)i, positions[i], (long long)s);
    return WF_OK;
}
