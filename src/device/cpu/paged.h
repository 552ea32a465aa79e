/* SPDX-License-Identifier: MIT */
/*
 * paged.h - page tables: table [S, pages] says which pages of a pool [P, page, Hk, D] hold the keys of
 * sequence s, key j in row j % page of page table[s][j / page]. Tables, lengths and positions come from
 * outside; entries that nobody needs may hold anything.
 */
#ifndef WF_DEVICE_CPU_PAGED_H
#define WF_DEVICE_CPU_PAGED_H

#include "device/kernel.h"

/* attention, packed or over pools: fails unless sequences are within the rows and every key that some
 * query sees is on a page of the pool. */
wf_status wf_attention_check(const wf_launch *l);

/* kv_append: fails unless every row of a sequence has a place in the pool. */
wf_status wf_kv_append_check(const wf_launch *l);
/* Where in the pool token i of sequence s goes, counted in rows [Hk, D]; -1 when its position or its
 * page is out of range. */
int64_t wf_kv_append_slot(const wf_launch *l, int64_t s, int64_t i);

#endif
