/* SPDX-License-Identifier: MIT */
/* encode.h - functions that encode one block, shared by encode.c, encode_k.c and codec.h. */
#ifndef WF_GRAPH_QUANT_ENCODE_H
#define WF_GRAPH_QUANT_ENCODE_H

#include <stdint.h>

/* Encodes one block. x: its elements, all finite; w: the weight of each element's squared error, or
 * NULL for equal weights. */
typedef void wf_encode_fn(const float *x, const float *w, void *block);

wf_encode_fn wf_encode_q4_k, wf_encode_q6_k, wf_encode_q3_k, wf_encode_q2_k, wf_encode_iq4_xs;

/* 256 elements d s q - dmin m in groups of 32 or 16. */
#define WF_K_GROUPS 16
typedef struct {
    uint16_t d, dmin; /* f16 */
    int s[WF_K_GROUPS], m[WF_K_GROUPS];
    uint8_t scales[12]; /* of 8 groups: s and m as blocks of q4_K store them, wf_q4_k_scales */
    uint8_t q[256];     /* 0 to the `most` of the call */
    float error;
} wf_k_block;
/* Groups of 32, s and m of 6 bits: q4_K and q5_K. */
void wf_encode_k_affine(const float *x, const float *importance, int most, wf_k_block *out);

#endif
