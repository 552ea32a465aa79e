/* SPDX-License-Identifier: MIT */
/*
 * product_key.h - the key of a matmul: everything that the choice of a cuBLASLt algorithm depends on, and how a
 * matmul with that key runs. Shared by product.c, product_tune.c, product_choices.c and their test.
 */
#ifndef WF_DEVICE_CUDA_PRODUCT_KEY_H
#define WF_DEVICE_CUDA_PRODUCT_KEY_H

#include "device/cuda/cublaslt.h"
#include "device/cuda/product.h"

/* Everything that algorithms depend on. Column-major: what is a in cuBLASLt's names is b here, and m is n. */
enum {
    KEY_M,
    KEY_N,
    KEY_K,
    KEY_BATCH,
    KEY_TRANS_A,
    KEY_TRANS_B,
    KEY_TYPE,   /* of the operands, wf_type */
    KEY_TYPE_D, /* of the result */
    KEY_BIAS,   /* 1: there is one, of the result's type */
    KEY_COMPUTE,
    KEY_EPILOGUE,
    KEY_ADD,
    KEY_LD_A,
    KEY_LD_B,
    KEY_LD_D,
    KEY_LD_AUX,
    KEY_STEP_A, /* from matrix to matrix of a batch */
    KEY_STEP_B,
    KEY_STEP_D,
    KEY_ALIGN_A, /* powers of two, up to 256 bytes */
    KEY_ALIGN_B,
    KEY_ALIGN_D,
    KEY_ALIGN_AUX,
    KEY_WORKSPACE, /* bytes that algorithms may use */
    KEY_FAST,      /* results may differ from run to run, and from those of separate nodes */
    KEY_ROWS_SUMS, /* 1: rows of the result are added up */
    KEY_FIELDS
};

typedef struct {
    int64_t f[KEY_FIELDS];
} wf_product_key;

/* Numbers of files: to be added to, not changed. */
typedef enum {
    WF_WAY_LIBRARY, /* cuBLASLt does all of it */
    WF_WAY_APART,   /* what follows the product is done by a kernel of ours */
    WF_WAY_PLAIN,   /* all of it is ours */
    WF_WAY_COUNT
} wf_product_way;

typedef struct {
    wf_product_key key;
    wf_product_way way;
    wf_lt_algo algo;
    double us;  /* that it took when it was timed, kernels of ours included; 0: it was not */
    bool ready; /* the objects below are there, where the way needs them */
    bool used;  /* since wf_cuda_products_begin */
    wf_lt_object desc, a, b, d;
} wf_product_entry;

struct wf_cuda_products {
    wf_ctx *ctx;
    const wf_cuda_device *device;
    const wf_lt *lt; /* NULL: no cuBLASLt */
    wf_lt_object handle;
    bool tune;
    wf_product_entry **entries;
    int count, room;
    bool changed; /* something was timed */
    char *path;   /* of the file of choices; NULL: none */
};

/* The entry of a key, or a new one without a way (ready is false); NULL: no memory. */
wf_product_entry *wf_product_find(wf_cuda_products *all, const wf_product_key *key);
/* Descriptors and layouts. false: cuBLASLt does not know such products. */
bool wf_product_build(wf_cuda_products *all, wf_product_entry *e);
void wf_product_drop(wf_cuda_products *all, wf_product_entry *e);

/* Addresses of one product, cuBLASLt's way round. */
typedef struct {
    const void *a, *b;
    void *d, *workspace;
    const void *bias;
    void *aux;
} wf_product_memory;

/* The error of cuBLASLt, 0 for none. */
int wf_product_run(const wf_cuda_products *all, const wf_product_entry *e, const wf_lt_algo *algo,
                   const wf_product_memory *at, cudaStream_t stream);

/* Algorithms that cuBLASLt is asked to propose, and that are timed at most. */
#define WF_PRODUCT_PROPOSED 16
#define WF_PRODUCT_CANDIDATES 64
/* Products of fewer multiplications are not worth timing: 25 million, or what a test says. */
extern double wf_product_small;

/* The library's proposals, the most promising first. Returns how many. */
int wf_product_propose(const wf_cuda_products *all, const wf_product_entry *e,
                       wf_lt_candidate out[WF_PRODUCT_PROPOSED]);
/* Times these and others, if that is wanted and worth it and there is memory for it: sets e->algo and e->us then. *ours_us is
 * what our kernels take for the ending of the product, if it has one. */
void wf_product_tune(wf_cuda_products *all, wf_product_entry *e, const wf_lt_candidate *proposed,
                     int count, const wf_cuda_product *p, cudaStream_t stream, double *ours_us);

/* The file of choices: what it says is entered; what was timed goes into it, beside what others wrote meanwhile. That
 * there is none, and that it cannot be written, is fine. */
void wf_product_choices_open(wf_cuda_products *all);
void wf_product_choices_write(wf_cuda_products *all);

#endif
