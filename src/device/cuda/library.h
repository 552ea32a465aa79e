/* SPDX-License-Identifier: MIT */
/*
 * library.h - loads NVIDIA's libraries on first use. Weft does not link them, so the same program
 * runs on a machine without them.
 */
#ifndef WF_DEVICE_CUDA_LIBRARY_H
#define WF_DEVICE_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function's name, and the offset of its pointer in the caller's table. */
typedef struct {
    const char *name;
    size_t offset;
} wf_cuda_symbol;

typedef struct {
    const char *what;         /* display name */
    const char *variable;     /* environment variable: the file to load instead, or "none" */
    const char *const *names; /* file names, newest first; NULL-terminated */
    const wf_cuda_symbol *symbols;
    int symbol_count;
} wf_cuda_library;

/* Searches the loader's path (LD_LIBRARY_PATH included), then lib64 and lib of CUDA_HOME, CUDA_PATH
 * and /usr/local/cuda, and fills the table. Returns false with the reason in `why`. The library
 * stays loaded until the program ends. */
bool wf_cuda_library_load(const wf_cuda_library *library, void *table, char *why, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
