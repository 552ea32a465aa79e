/* SPDX-License-Identifier: MIT */
/*
 * cublaslt.c - loads cuBLASLt once per process.
 *
 * Its functions and constants are declared in cublaslt.h, so the build needs no header of the
 * library. Newer versions are tried first. Without it, matmuls use the plain kernel
 * (product_plain.cu).
 */
#include "device/cuda/cublaslt.h"

#include <pthread.h>
#include <stdio.h>

#include "device/cuda/library.h"

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                    NULL};

#define SYMBOL(field, name)                     \
    {                                           \
        "cublasLt" name, offsetof(wf_lt, field) \
    }
static const wf_cuda_symbol symbols[] = {
    SYMBOL(create, "Create"),
    SYMBOL(destroy, "Destroy"),
    SYMBOL(version, "GetVersion"),
    SYMBOL(status_name, "GetStatusName"),
    SYMBOL(matmul, "Matmul"),
    SYMBOL(layout_create, "MatrixLayoutCreate"),
    SYMBOL(layout_destroy, "MatrixLayoutDestroy"),
    SYMBOL(layout_set, "MatrixLayoutSetAttribute"),
    SYMBOL(desc_create, "MatmulDescCreate"),
    SYMBOL(desc_destroy, "MatmulDescDestroy"),
    SYMBOL(desc_set, "MatmulDescSetAttribute"),
    SYMBOL(pref_create, "MatmulPreferenceCreate"),
    SYMBOL(pref_destroy, "MatmulPreferenceDestroy"),
    SYMBOL(pref_set, "MatmulPreferenceSetAttribute"),
    SYMBOL(heuristic, "MatmulAlgoGetHeuristic"),
    SYMBOL(check, "MatmulAlgoCheck"),
    SYMBOL(config_get, "MatmulAlgoConfigGetAttribute"),
};

static const wf_cuda_library library = {
    .what = "cuBLASLt",
    .variable = "WEFT_CUBLASLT",
    .names = names,
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof *symbols,
};

/* Set once by load and only read afterwards. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static wf_lt table;
static bool loaded;
static char fault[512];

static void load(void)
{
    loaded = wf_cuda_library_load(&library, &table, fault, sizeof fault);
}

const wf_lt *wf_lt_get(void)
{
    pthread_once(&once, load);
    return loaded ? &table : NULL;
}

const char *wf_lt_fault(void)
{
    pthread_once(&once, load);
    return fault;
}
