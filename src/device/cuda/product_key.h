/* SPDX-License-Identifier: MIT */
/*
 * product_key.h - the key of a matmul: everything that the choice of a cuBLASLt algorithm depends
 * on, and how a matmul with that key runs. Shared by product.c, product_tune.c, product_choices.c
 * and their test.
 */
#ifndef WF_DEVICE_CUDA_PRODUCT_KEY_H
#define WF_DEVICE_CUDA_PRODUCT_KEY_H

#include "device/cuda/cublaslt.h"
#include "device/cuda/product.h"

/* All that selects an algorithm. cuBLASLt is column-major: its a is our b, and its m is our n. */
enum {
    KEY_M,
    KEY_N,
    KEY_K,
    KEY_BATCH,
    KEY_TRANS_A,
    KEY_TRANS_B,
    KEY_TYPE,   /* wf_type of the operands */
    KEY_TYPE_D, /* wf_type of the result */
    KEY_BIAS,   /* 1: with a bias of the result's type */
    KEY_COMPUTE,
    KEY_EPILOGUE,
    KEY_ADD,
    KEY_LD_A,
    KEY_LD_B,
    KEY_LD_D,
    KEY_LD_AUX,
    KEY_STEP_A, /* stride between the matrices of a batch */
    KEY_STEP_B,
    KEY_STEP_D,
    KEY_ALIGN_A, /* powers of two, up to 256 bytes */
    KEY_ALIGN_B,
    KEY_ALIGN_D,
    KEY_ALIGN_AUX,
    KEY_WORKSPACE, /* bytes of workspace */
    KEY_FAST,      /* --fast: results need not be reproducible */
    KEY_ROWS_SUMS, /* 1: also sum the rows of the result */
    KEY_FIELDS
};

typedef struct {
    int64_t f[KEY_FIELDS];
} wf_product_key;

/* Stored in cache files: append, never renumber. */
typedef enum {
    WF_WAY_LIBRARY, /* cuBLASLt with its own epilogue */
    WF_WAY_APART,   /* cuBLASLt, then our epilogue kernel */
    WF_WAY_PLAIN,   /* our plain kernel */
    WF_WAY_COUNT
} wf_product_way;

typedef struct {
    wf_product_key key;
    wf_product_way way;
    wf_lt_algo algo;
    double us;  /* measured microseconds, our kernels included; 0: not timed */
    bool ready; /* the objects below exist if the way needs them */
    bool used;  /* since wf_cuda_products_begin */
    wf_lt_object desc, a, b, d;
} wf_product_entry;

struct wf_cuda_products {
    wf_ctx *ctx;
    const wf_cuda_device *device;
    const wf_lt *lt; /* NULL: cuBLASLt is missing */
    wf_lt_object handle;
    bool tune;
    wf_product_entry **entries;
    int count, room;
    bool changed; /* there are new timings */
    char *path;   /* path of the cache file, or NULL */
};

/* Finds or adds the entry of a key; a new one has ready == false. NULL: out of memory. */
wf_product_entry *wf_product_find(wf_cuda_products *all, const wf_product_key *key);
/* Creates descriptors and layouts. false: cuBLASLt does not support this GEMM. */
bool wf_product_build(wf_cuda_products *all, wf_product_entry *e);
void wf_product_drop(wf_cuda_products *all, wf_product_entry *e);

/* Addresses of one GEMM, in cuBLASLt's order. */
typedef struct {
    const void *a, *b;
    void *d, *workspace;
    const void *bias;
    void *aux;
} wf_product_memory;

/* Returns cuBLASLt's error, or 0. */
int wf_product_run(const wf_cuda_products *all, const wf_product_entry *e, const wf_lt_algo *algo,
                   const wf_product_memory *at, cudaStream_t stream);

/* Most algorithms to request from cuBLASLt and to time. */
#define WF_PRODUCT_PROPOSED 16
#define WF_PRODUCT_CANDIDATES 64
/* GEMMs with fewer multiplications are not timed: 25 million, or a test's value. */
extern double wf_product_small;

/* cuBLASLt's heuristic candidates, best first. Returns their count. */
int wf_product_propose(const wf_cuda_products *all, const wf_product_entry *e,
                       wf_lt_candidate out[WF_PRODUCT_PROPOSED]);
/* Times these candidates and related ones, if tuning is on, the GEMM is large enough and memory
 * suffices; then sets e->algo and e->us. *ours_us is the time of our epilogue kernel, if one is
 * needed. */
void wf_product_tune(wf_cuda_products *all, wf_product_entry *e, const wf_lt_candidate *proposed,
                     int count, const wf_cuda_product *p, cudaStream_t stream, double *ours_us);

/* The cache file of choices. open reads its entries; save merges new timings with those that other
 * processes wrote meanwhile. A missing or unwritable file is no error. */
void wf_product_choices_open(wf_cuda_products *all);
void wf_product_choices_write(wf_cuda_products *all);

#endif
