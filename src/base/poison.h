/* SPDX-License-Identifier: MIT */
/* poison.h - marks allocated memory as inaccessible, so that AddressSanitizer reports accesses. */
#ifndef WF_BASE_POISON_H
#define WF_BASE_POISON_H

#include "base/sanitize.h"

#if WF_ADDRESS_SANITIZER
#define wf_poison(p, bytes) ASAN_POISON_MEMORY_REGION(p, bytes)
#define wf_unpoison(p, bytes) ASAN_UNPOISON_MEMORY_REGION(p, bytes)
#else
#define wf_poison(p, bytes) ((void)(p), (void)(bytes))
#define wf_unpoison(p, bytes) ((void)(p), (void)(bytes))
#endif

#endif
