/* SPDX-License-Identifier: MIT */
/*
 * library.h - NVIDIA's libraries, loaded when they are first needed: nothing here is linked with them, so that
 * a machine without them runs the same program.
 */
#ifndef WF_DEVICE_CUDA_LIBRARY_H
#define WF_DEVICE_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function of the library and where its pointer goes in a table of such. */
typedef struct {
    const char *name;
    size_t offset;
} wf_cuda_symbol;

typedef struct {
    const char *what;         /* as people call it */
    const char *variable;     /* of the environment: the file to load in its stead, or "none" */
    const char *const *names; /* of the file, the newest first; NULL after the last */
    const wf_cuda_symbol *symbols;
    int symbol_count;
} wf_cuda_library;

/* Looks where the system's loader does (which includes LD_LIBRARY_PATH), then in lib64 and lib of CUDA_HOME,
 * CUDA_PATH and /usr/local/cuda, and fills the table. false: `why` is the sentence that says why not. What was
 * loaded stays until the program ends. */
bool wf_cuda_library_load(const wf_cuda_library *library, void *table, char *why, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
