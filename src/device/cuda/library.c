/* SPDX-License-Identifier: MIT */
/*
 * library.c - finds a shared library and its functions.
 *
 * Libraries are loaded at run time, so one program runs with and without them. The search order is:
 * the environment variable, the dynamic loader's path, then the toolkit's folders.
 */
#include "device/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const folders[] = {"lib64", "lib"};

static void *open_in(const char *root, const char *name)
{
    char path[4096];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int n = snprintf(path, sizeof path, "%s/%s/%s", root, folders[i], name);
        void *handle =
            n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (handle)
            return handle;
    }
    return NULL;
}

static void *open_by_name(const char *name)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    for (size_t i = 0; !handle && i < sizeof roots / sizeof *roots; i++)
        if (roots[i] && *roots[i])
            handle = open_in(roots[i], name);
    return handle;
}

/* Sets *name to the file that was found. */
static void *open_library(const wf_cuda_library *library, const char **name)
{
    void *handle = NULL;
    for (int i = 0; !handle && library->names[i]; i++) {
        *name = library->names[i];
        handle = open_by_name(*name);
    }
    return handle;
}

/* A table with a missing function is not used at all. */
static bool fill(const wf_cuda_library *library, void *handle, const char *name, void *table,
                 char *why, size_t bytes)
{
    for (int i = 0; i < library->symbol_count; i++) {
        void *address = dlsym(handle, library->symbols[i].name);
        if (!address) {
            snprintf(why, bytes, "%s (%s) lacks the function %s", library->what, name,
                     library->symbols[i].name);
            return false;
        }
        /* POSIX allows converting dlsym's result to a function pointer; C does not, so copy the
         * bits. */
        memcpy((char *)table + library->symbols[i].offset, &address, sizeof address);
    }
    return true;
}

bool wf_cuda_library_load(const wf_cuda_library *library, void *table, char *why, size_t bytes)
{
    const char *name = getenv(library->variable);
    void *handle;
    if (name && strcmp(name, "none") == 0) {
        snprintf(why, bytes, "%s is switched off by %s", library->what, library->variable);
        return false;
    }
    if (name && *name)
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    else
        handle = open_library(library, &name);
    if (!handle) {
        const char *reason = dlerror(); /* of the last attempt */
        snprintf(why, bytes, "cannot load %s: %s; add its folder to LD_LIBRARY_PATH", library->what,
                 reason ? reason : name);
        return false;
    }
    if (fill(library, handle, name, table, why, bytes))
        return true;
    dlclose(handle);
    return false;
}
