/* SPDX-License-Identifier: MIT */
/*
 * plugin.c - loads a PJRT plugin, calls its functions, and converts its errors to Weft's.
 *
 * Structs of the API grow with minor versions. `sizes` has their sizes in known versions; for a
 * newer plugin a call is repeated with the size that its error message names.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/pjrt/pjrt.h"

#define MAJOR 0

/* ---- Struct sizes by version ---- */

typedef struct {
    int minor; /* since this minor version */
    size_t size;
} version_size;

/* Each row ends with a size of 0. */
static const version_size sizes[][9] = {
    [WF_PJRT_CLIENT_CREATE] = {{0, 72}, {61, 88}},
    [WF_PJRT_LOAD] = {{0, 48}, {71, 64}, {111, 72}},
    [WF_PJRT_EXECUTE_OPTIONS] =
        {{0, 52}, {46, 72}, {64, 80}, {76, 88}, {78, 112}, {97, 120}, {108, 121}, {112, 144}},
};

size_t wf_pjrt_size(const wf_pjrt_plugin *p, wf_pjrt_struct which)
{
    const version_size *row = sizes[which];
    while (row[1].size && row[1].minor <= p->api->version.minor)
        row++;
    return row->size;
}

/* ---- Calls and errors ---- */

/* Returns NULL if the plugin's table is too short or the slot is empty. */
static void *slot_of(const pjrt_api *api, int slot)
{
    size_t end = offsetof(pjrt_api, slot) + ((size_t)slot + 1) * sizeof(void *);
    return end <= api->size ? api->slot[slot] : NULL;
}

/* Calls a slot. All functions have the same signature; POSIX allows converting object pointers to
 * function pointers. */
static void *call(const pjrt_api *api, int slot, void *args)
{
    void *(*fn)(void *);
    void *address = slot_of(api, slot);
    memcpy(&fn, &address, sizeof fn);
    return fn ? fn(args) : NULL;
}

bool wf_pjrt_has(const wf_pjrt_plugin *p, int slot)
{
    return slot_of(p->api, slot) != NULL;
}

void wf_pjrt_destroy(wf_pjrt_plugin *p, int slot, void *handle)
{
    pjrt_handle_args args = {.size = 24, .handle = handle};
    if (handle)
        call(p->api, slot, &args);
}

/* Copies the error message as one line without a full stop, to embed it in our message. */
static void copy_message(wf_pjrt_plugin *p, const void *error, char *text, size_t cap)
{
    pjrt_message_args args = {.size = offsetof(pjrt_message_args, spare), .error = error};
    size_t len = 0;
    call(p->api, PJRT_ERROR_MESSAGE, &args);
    size_t n = args.text ? args.bytes : 0;
    for (size_t i = 0; i < n && len + 1 < cap; i++) {
        char c = args.text[i];
        bool space = c == '\n' || c == '\r' || c == '\t' || c == ' ';
        if (space && (len == 0 || text[len - 1] == ' '))
            continue;
        text[len++] = space || (unsigned char)c < 32 ? ' ' : c;
    }
    while (len > 0 && strchr(" .;:", text[len - 1]))
        len--;
    text[len] = 0;
    if (len == 0)
        snprintf(text, cap, "the plugin returned no message");
}

/* Maps the error's code to a status, and stores the code in p->code. */
static wf_status status_of(wf_pjrt_plugin *p, const void *error)
{
    pjrt_code_args args = {.size = 28, .error = error};
    call(p->api, PJRT_ERROR_CODE, &args);
    p->code = args.code;
    return args.code == PJRT_RESOURCE_EXHAUSTED ? WF_ERR_MEMORY
           : args.code == PJRT_UNIMPLEMENTED    ? WF_ERR_UNSUPPORTED
                                                : WF_ERR_DEVICE;
}

/* Parses "Unexpected PJRT_Client_Create_Args size: expected 96, got 88. ...". Returns the expected
 * size, or 0. */
static size_t expected_size(const char *message)
{
    const char *at = strstr(message, " size: expected ");
    unsigned long long size = 0;
    if (strncmp(message, "Unexpected ", 11) != 0 || !at ||
        sscanf(at, " size: expected %llu", &size) != 1)
        return 0;
    return size <= SIZE_MAX ? (size_t)size : 0;
}

/* Sets the size that the plugin expected, if the struct has grown and still fits into `room`.
 * Returns whether to repeat the call. */
static bool adapt(wf_pjrt_plugin *p, int slot, void *args, size_t room, const char *message)
{
    size_t wanted = expected_size(message), *size = args; /* the first field */
    if (slot == PJRT_EXECUTE && strstr(message, "ExecuteOptions")) {
        pjrt_execute_options *options = ((pjrt_execute_args *)args)->options;
        size = &options->size;
        room = sizeof *options;
    }
    if (wanted <= *size || wanted > room)
        return false;
    *size = wanted;
    if (size != args)
        p->execute_options = wanted; /* used by all later runs */
    return true;
}

wf_status wf_pjrt_call_sized(wf_pjrt_plugin *p, int slot, void *args, size_t size, const char *what)
{
    char message[400];
    if (!slot_of(p->api, slot))
        return wf_fail(p->ctx, WF_ERR_UNSUPPORTED,
                       "pjrt could not %s: the plugin lacks function %d", what, slot);
    *(size_t *)args = size;
    for (int attempt = 0;; attempt++) {
        void *error = call(p->api, slot, args);
        if (!error)
            return WF_OK;
        copy_message(p, error, message, sizeof message);
        wf_status status = status_of(p, error);
        wf_pjrt_destroy(p, PJRT_ERROR_DESTROY, error);
        if (attempt == 2 || !adapt(p, slot, args, size + PJRT_SPARE, message))
            return wf_fail(p->ctx, status, "pjrt could not %s: %s", what, message);
    }
}

wf_status wf_pjrt_await(wf_pjrt_plugin *p, void *event, const char *what)
{
    if (!event)
        return WF_OK;
    pjrt_handle_args args = {.handle = event};
    wf_status status = wf_pjrt_call(p, PJRT_EVENT_AWAIT, &args, handle, what);
    wf_pjrt_destroy(p, PJRT_EVENT_DESTROY, event);
    return status;
}

/* ---- Loading ---- */

#if WF_STATIC
static wf_status find_entry(wf_pjrt_plugin *p, const char *path, void **entry)
{
    *entry = NULL;
    return wf_fail(p->ctx, WF_ERR_UNSUPPORTED,
                   "pjrt cannot load the plugin %s: this is a static build, without the pjrt and "
                   "cuda devices; use a build made by 'make'",
                   path);
}
#else
/* Returns the reason why dlopen failed, without the path, which the caller's message names. */
static const char *load_error(const char *path)
{
    const char *why = dlerror();
    size_t n = strlen(path);
    if (!why)
        return "the cause is unknown";
    if (strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0)
        why += n + 2;
    return why;
}

/* Loads the library, which stays loaded, and finds its one exported function. */
static wf_status find_entry(wf_pjrt_plugin *p, const char *path, void **entry)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    *entry = library ? dlsym(library, "GetPjrtApi") : NULL;
    if (!library)
        return wf_fail(p->ctx, WF_ERR_IO, "pjrt could not load the plugin %s: %s", path,
                       load_error(path));
    if (!*entry)
        return wf_fail(p->ctx, WF_ERR_FORMAT,
                       "the library %s is not a PJRT plugin: it has no GetPjrtApi", path);
    return WF_OK;
}
#endif

/* Required slots: running and cleaning up need them. */
static const int needed[] = {
    PJRT_ERROR_DESTROY,        PJRT_ERROR_MESSAGE,  PJRT_ERROR_CODE,     PJRT_PLUGIN_INITIALIZE,
    PJRT_EVENT_DESTROY,        PJRT_EVENT_AWAIT,    PJRT_CLIENT_CREATE,  PJRT_CLIENT_DESTROY,
    PJRT_CLIENT_PLATFORM_NAME, PJRT_CLIENT_DEVICES, PJRT_CLIENT_COMPILE, PJRT_CLIENT_FROM_HOST,
    PJRT_LOADED_DESTROY,       PJRT_EXECUTE,        PJRT_BUFFER_DESTROY, PJRT_BUFFER_TO_HOST,
};

static wf_status find_table(wf_pjrt_plugin *p, const char *path)
{
    const pjrt_api *(*get)(void);
    setenv("TF_CPP_MIN_LOG_LEVEL", "2", 0); /* keeps XLA from logging to stderr */
    void *address;
    WF_TRY(find_entry(p, path, &address));
    memcpy(&get, &address, sizeof get);
    p->api = get();
    if (!p->api || p->api->size < offsetof(pjrt_api, slot))
        return wf_fail(p->ctx, WF_ERR_FORMAT,
                       "the library %s is not a PJRT plugin: its table is empty", path);
    if (p->api->version.major != MAJOR)
        return wf_fail(p->ctx, WF_ERR_UNSUPPORTED,
                       "the plugin %s implements PJRT %d.%d, but this build supports %d.x", path,
                       p->api->version.major, p->api->version.minor, MAJOR);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!slot_of(p->api, needed[i]))
            return wf_fail(p->ctx, WF_ERR_UNSUPPORTED,
                           "the plugin %s lacks function %d of PJRT, which Weft requires", path,
                           needed[i]);
    return WF_OK;
}

wf_status wf_pjrt_load(wf_pjrt_plugin *p, const char *path)
{
    pjrt_handle_args nothing = {0};
    WF_TRY(find_table(p, path));
    p->execute_options = wf_pjrt_size(p, WF_PJRT_EXECUTE_OPTIONS);
    wf_file_look(path, &p->stamp);
    return wf_pjrt_call(p, PJRT_PLUGIN_INITIALIZE, &nothing, extensions, "initialize the plugin");
}
