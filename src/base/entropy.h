/* SPDX-License-Identifier: MIT */
/* entropy.h - random ids that differ between processes and machines. Not for cryptography. */
#ifndef WF_BASE_ENTROPY_H
#define WF_BASE_ENTROPY_H

#include <stdint.h>

/* Returns a random number that is not 0. */
uint64_t wf_entropy_id(void);

#endif
