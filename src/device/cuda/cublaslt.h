/* SPDX-License-Identifier: MIT */
/*
 * cublaslt.h - our declarations of the parts of cuBLASLt 12 and 13 that we call, so that building
 * needs no cuBLAS headers. Names, values and layouts are the library's. Its matrices are
 * column-major.
 */
#ifndef WF_DEVICE_CUDA_CUBLASLT_H
#define WF_DEVICE_CUDA_CUBLASLT_H

#include <cuda_runtime_api.h>
#include <stdint.h>

typedef void *wf_lt_object; /* a handle, a descriptor, a layout or a preference */

/* An algorithm. Valid only for the library version that made it, also when stored on disk. */
typedef struct {
    uint64_t data[8];
} wf_lt_algo;

typedef struct {
    wf_lt_algo algo;
    size_t workspace; /* bytes required */
    int state;        /* 0: the other fields are valid */
    float waves;
    int reserved[4];
} wf_lt_candidate;

enum { WF_LT_SUCCESS = 0 };
enum { WF_LT_R_32F = 0, WF_LT_R_16F = 2, WF_LT_R_16BF = 14 };
enum { WF_LT_COMPUTE_32F = 68, WF_LT_COMPUTE_32F_FAST_TF32 = 77 };

enum {
    WF_LT_DESC_TRANSA = 3,
    WF_LT_DESC_TRANSB = 4,
    WF_LT_DESC_EPILOGUE = 7,
    WF_LT_DESC_BIAS_POINTER = 8,
    WF_LT_DESC_AUX_POINTER = 11,
    WF_LT_DESC_AUX_LD = 12,
    WF_LT_DESC_AUX_BATCH_STRIDE = 13,
    WF_LT_DESC_BIAS_DATA_TYPE = 26
};

enum { WF_LT_LAYOUT_BATCH_COUNT = 5, WF_LT_LAYOUT_STRIDED_BATCH_OFFSET = 6 };

enum {
    WF_LT_PREF_MAX_WORKSPACE_BYTES = 1,
    WF_LT_PREF_REDUCTION_SCHEME_MASK = 3,
    WF_LT_PREF_MIN_ALIGNMENT_A_BYTES = 5, /* then of B, C and D */
};

enum { WF_LT_CONFIG_SPLITK_NUM = 2, WF_LT_CONFIG_REDUCTION_SCHEME = 3 };

/* How split-k partial sums are combined: in place behind counters, or from the workspace in a
 * second kernel. */
enum { WF_LT_REDUCE_IN_PLACE = 1, WF_LT_REDUCE_COMPUTE_TYPE = 2, WF_LT_REDUCE_OUTPUT_TYPE = 4 };

enum {
    WF_LT_EPILOGUE_DEFAULT = 1,
    WF_LT_EPILOGUE_BIAS = 4,
    WF_LT_EPILOGUE_GELU_AUX = 32 | 128,
    WF_LT_EPILOGUE_GELU_AUX_BIAS = 32 | 128 | 4,
    WF_LT_EPILOGUE_DGELU = 64 | 128
};

/* Every function returns 0 (WF_LT_SUCCESS) or an error number. */
typedef struct {
    int (*create)(wf_lt_object *handle);
    int (*destroy)(wf_lt_object handle);
    size_t (*version)(void);
    const char *(*status_name)(int status);
    int (*matmul)(wf_lt_object handle, wf_lt_object desc, const void *alpha, const void *a,
                  wf_lt_object a_layout, const void *b, wf_lt_object b_layout, const void *beta,
                  const void *c, wf_lt_object c_layout, void *d, wf_lt_object d_layout,
                  const wf_lt_algo *algo, void *workspace, size_t workspace_bytes,
                  cudaStream_t stream);
    int (*layout_create)(wf_lt_object *layout, int type, uint64_t rows, uint64_t columns,
                         int64_t ld);
    int (*layout_destroy)(wf_lt_object layout);
    int (*layout_set)(wf_lt_object layout, int attribute, const void *value, size_t bytes);
    int (*desc_create)(wf_lt_object *desc, int compute, int scale_type);
    int (*desc_destroy)(wf_lt_object desc);
    int (*desc_set)(wf_lt_object desc, int attribute, const void *value, size_t bytes);
    int (*pref_create)(wf_lt_object *pref);
    int (*pref_destroy)(wf_lt_object pref);
    int (*pref_set)(wf_lt_object pref, int attribute, const void *value, size_t bytes);
    int (*heuristic)(wf_lt_object handle, wf_lt_object desc, wf_lt_object a, wf_lt_object b,
                     wf_lt_object c, wf_lt_object d, wf_lt_object pref, int wanted,
                     wf_lt_candidate *out, int *count);
    int (*check)(wf_lt_object handle, wf_lt_object desc, wf_lt_object a, wf_lt_object b,
                 wf_lt_object c, wf_lt_object d, const wf_lt_algo *algo, wf_lt_candidate *out);
    int (*config_get)(const wf_lt_algo *algo, int attribute, void *value, size_t bytes,
                      size_t *written);
} wf_lt;

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the library, loaded on the first call, or NULL; then wf_lt_fault() returns the reason. */
const wf_lt *wf_lt_get(void);
const char *wf_lt_fault(void);

#ifdef __cplusplus
}
#endif
#endif
