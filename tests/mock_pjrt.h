/* SPDX-License-Identifier: MIT */
/* mock_pjrt.h - what tests see of the mock plugin, by dlsym. */
#ifndef WEFT_TESTS_MOCK_PJRT_H
#define WEFT_TESTS_MOCK_PJRT_H

#define MOCK_TEMPORARY 1000 /* bytes that programs say they need for themselves */

typedef struct {
    int live;      /* objects that were made and not destroyed */
    int compiles;  /* programs compiled */
    int loads;     /* programs loaded from what was serialized */
    int refusals;  /* structs of a wrong size; of one, versions are found out that way */
    int donations; /* arguments whose memory a result has taken */
} mock_counts;

#endif
