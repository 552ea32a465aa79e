/* SPDX-License-Identifier: MIT */
/*
 * checksum.h - XXH64 with seed 0, to detect corrupted files.
 *
 * Other programs can check the same files: `xxhsum -H1` prints the same 16 digits. Four independent
 * lanes give several GB/s without vector instructions. The checksum is not cryptographic: it
 * detects accidents, not attacks.
 */
#ifndef WF_BASE_CHECKSUM_H
#define WF_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t wf_checksum(const void *bytes, size_t count);

/* Incremental form, for data that arrives in pieces. */
typedef struct {
    uint64_t lane[4];
    uint64_t total;   /* bytes so far */
    uint8_t held[32]; /* the last total % 32 bytes: an incomplete stripe */
} wf_checksum_state;

void wf_checksum_begin(wf_checksum_state *s);
void wf_checksum_add(wf_checksum_state *s, const void *bytes, size_t count);
/* Returns the checksum of all bytes added so far. More may be added afterwards. */
uint64_t wf_checksum_end(const wf_checksum_state *s);

#endif
