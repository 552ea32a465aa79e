/* SPDX-License-Identifier: MIT */
/*
 * checksum.h - tells bytes on a disk that are no longer those that were written.
 *
 * XXH64 of seed 0 (Yann Collet's xxHash, whose specification is public and stable), so that files can be checked
 * by other programs, too: `xxhsum -H1` prints the same 16 digits. Four independent sums run beside each other, which makes
 * several GB/s without vectors. It is against accidents, not against people: who wants to can make two files of one
 * checksum.
 */
#ifndef WF_BASE_CHECKSUM_H
#define WF_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t wf_checksum(const void *bytes, size_t count);

/* The same of bytes that come in pieces. */
typedef struct {
    uint64_t lane[4];
    uint64_t total;   /* bytes so far */
    uint8_t held[32]; /* the last total % 32 of them, which make no whole stripe yet */
} wf_checksum_state;

void wf_checksum_begin(wf_checksum_state *s);
void wf_checksum_add(wf_checksum_state *s, const void *bytes, size_t count);
/* Of what was added so far; more may be added after it. */
uint64_t wf_checksum_end(const wf_checksum_state *s);

#endif
