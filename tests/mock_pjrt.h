/* SPDX-License-Identifier: MIT */
/* mock_pjrt.h - counters and constants of the mock plugin, which tests look up with dlsym. */
#ifndef WEFT_TESTS_MOCK_PJRT_H
#define WEFT_TESTS_MOCK_PJRT_H

#define MOCK_TEMPORARY 1000 /* bytes of scratch that every mock program reports */

typedef struct {
    int live;      /* objects created and not destroyed */
    int compiles;  /* programs compiled */
    int loads;     /* programs loaded from serialized form */
    int refusals;  /* structs refused for their size; one of them is the version probe */
    int donations; /* arguments whose memory a result took over */
} mock_counts;

#endif
