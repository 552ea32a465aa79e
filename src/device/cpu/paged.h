/* SPDX-License-Identifier: MIT */
/*
 * paged.h - page tables. table [S, pages] maps the keys of sequence s to pages of a pool [P, page,
 * Hk, D]: key j is row j % page of page table[s][j / page]. Tables, lengths and positions are user
 * input; unused entries may hold anything.
 */
#ifndef WF_DEVICE_CPU_PAGED_H
#define WF_DEVICE_CPU_PAGED_H

#include "device/kernel.h"

/* For attention, packed or paged: fails unless sequences are within the rows and every visible key
 * is on a page of the pool. */
wf_status wf_attention_check(const wf_launch *l);

/* For kv_append: fails unless every row of a sequence has a slot in the pool. */
wf_status wf_kv_append_check(const wf_launch *l);
/* The slot in the pool of token i of sequence s, counted in rows [Hk, D], or -1 if its position or
 * page is out of range. */
int64_t wf_kv_append_slot(const wf_launch *l, int64_t s, int64_t i);

#endif
