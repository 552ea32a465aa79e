/* SPDX-License-Identifier: MIT */
/*
 * mock_pjrt.c - a PJRT plugin that computes nothing, for tests of those who call plugins.
 *
 * Result i of every program is a copy of argument i (of the last one when there are not so many), so
 * programs that hand their arguments through work. It takes structs of exactly the sizes of the
 * version that it plays, written down here once more. The environment says what it plays, each
 * time that the table is asked for:
 *
 *     MOCK_MAJOR, MOCK_MINOR   the version (0.81)
 *     MOCK_GROWN               all structs are this many bytes longer than any we know
 *     MOCK_MISSING             the slot with this number is NULL
 *     MOCK_SHORT               the table ends before the slot with this number
 *     MOCK_FAIL                the function in this slot fails
 *     MOCK_NO_DEVICE           there is no device
 *
 * mock_pjrt_live counts the objects that were made and not destroyed.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/pjrt/pjrt_api.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT const pjrt_api *GetPjrtApi(void);
EXPORT extern int mock_pjrt_live;
int mock_pjrt_live;

static struct {
    int minor, fail;
    size_t grown;
    int devices;
} plays;

typedef struct {
    char text[200];
    int code;
} mock_error;

typedef struct {
    size_t bytes;
    char data[];
} mock_buffer;

typedef struct {
    size_t results;
} mock_program;

/* ---- Objects ---- */

static void *make(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        abort();
    mock_pjrt_live++;
    return p;
}

static void destroy(void *p)
{
    mock_pjrt_live -= p != NULL;
    free(p);
}

__attribute__((format(printf, 2, 3))) static mock_error *fail(int code, const char *what, ...)
{
    mock_error *e = make(sizeof *e);
    e->code = code;
    va_list args;
    va_start(args, what);
    vsnprintf(e->text, sizeof e->text, what, args);
    va_end(args);
    return e;
}

/* Refuses a struct of the wrong size, and what is to fail. */
static void *check(int slot, size_t got, size_t wanted)
{
    wanted += plays.grown;
    if (got != wanted)
        return fail(3, "Unexpected PJRT_%s size: expected %zu, got %zu. Check installed software.",
                    slot == PJRT_SLOTS ? "ExecuteOptions" : "Some_Args", wanted, got);
    if (slot == plays.fail)
        return fail(13, "Function %d was told to fail.\n  It did.\n", slot);
    return NULL;
}

#define CHECK(slot, wanted)                          \
    do {                                             \
        void *error_ = check(slot, a->size, wanted); \
        if (error_)                                  \
            return error_;                           \
    } while (0)

/* ---- Errors and events: these are never asked to fail, for nobody could hear of it ---- */

static void *error_destroy(pjrt_handle_args *a)
{
    destroy(a->handle);
    return NULL;
}

static void *error_message(pjrt_message_args *a)
{
    const mock_error *e = a->error;
    a->text = e->text;
    a->bytes = strlen(e->text);
    return NULL;
}

static void *error_code(pjrt_code_args *a)
{
    a->code = ((const mock_error *)a->error)->code;
    return NULL;
}

static void *event_destroy(pjrt_handle_args *a)
{
    destroy(a->handle);
    return NULL;
}

static void *event_await(pjrt_handle_args *a)
{
    CHECK(PJRT_EVENT_AWAIT, 24);
    return NULL;
}

/* ---- Client ---- */

static void *initialize(pjrt_handle_args *a)
{
    CHECK(PJRT_PLUGIN_INITIALIZE, 16);
    return NULL;
}

static void *client_create(pjrt_client_args *a)
{
    CHECK(PJRT_CLIENT_CREATE, plays.minor < 61 ? 72 : 88);
    a->client = make(1);
    return NULL;
}

static void *client_destroy(pjrt_handle_args *a)
{
    destroy(a->handle);
    return NULL;
}

static void *platform_name(pjrt_name_args *a)
{
    CHECK(PJRT_CLIENT_PLATFORM_NAME, 40);
    a->text = "mock, and more";
    a->bytes = 4;
    return NULL;
}

static void *devices(pjrt_devices_args *a)
{
    static void *list[] = {&plays};
    CHECK(PJRT_CLIENT_DEVICES, 40);
    a->devices = list;
    a->count = (size_t)plays.devices;
    return NULL;
}

/* ---- Arrays ---- */

static void *from_host(pjrt_from_host_args *a)
{
    size_t bytes = a->type == PJRT_F32 || a->type == PJRT_S32    ? 4
                   : a->type == PJRT_F16 || a->type == PJRT_BF16 ? 2
                                                                 : 1;
    CHECK(PJRT_CLIENT_FROM_HOST, 120);
    for (size_t i = 0; i < a->rank; i++)
        bytes *= (size_t)a->dims[i];
    if (a->stride_count > 0) /* as some plugins do */
        return fail(12, "Strides are not supported");
    mock_buffer *b = make(sizeof *b + bytes);
    b->bytes = bytes;
    memcpy(b->data, a->data, bytes);
    a->buffer = b;
    a->done = make(1);
    return NULL;
}

static void *to_host(pjrt_to_host_args *a)
{
    const mock_buffer *b = a->buffer;
    CHECK(PJRT_BUFFER_TO_HOST, 56);
    if (a->bytes != b->bytes)
        return fail(3, "The array has %zu bytes, not %zu", b->bytes, a->bytes);
    memcpy(a->to, b->data, b->bytes);
    a->event = make(1);
    return NULL;
}

static void *buffer_destroy(pjrt_handle_args *a)
{
    destroy(a->handle);
    return NULL;
}

/* ---- Programs ---- */

static void *compile(pjrt_compile_args *a)
{
    CHECK(PJRT_CLIENT_COMPILE, 56);
    if (a->program->size < 48 || a->option_bytes < 6)
        return fail(3, "Bad program or options: %zu and %zu bytes", a->program->size,
                    a->option_bytes);
    const char *at = strstr(a->program->code, "\"func.return\"(");
    if (!at)
        return fail(3, "There is no return in %zu bytes of program", a->program->bytes);
    mock_program *p = make(sizeof *p);
    for (; *at && *at != ':'; at++)
        p->results += *at == '%';
    a->executable = p;
    return NULL;
}

static void *program_destroy(pjrt_handle_args *a)
{
    destroy(a->handle);
    return NULL;
}

static size_t execute_options_bytes(void)
{
    static const struct {
        int minor;
        size_t bytes;
    } table[] = {{46, 52}, {64, 72}, {76, 80}, {78, 88}, {97, 112}, {108, 120}, {112, 121}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (plays.minor < table[i].minor)
            return table[i].bytes;
    return 144;
}

static void *execute(pjrt_execute_args *a)
{
    const mock_program *p = a->executable;
    CHECK(PJRT_EXECUTE, 80);
    void *error = check(PJRT_SLOTS, a->options->size, execute_options_bytes());
    if (error)
        return error;
    if (p->results > 0 && a->arg_count == 0)
        return fail(3, "%zu results of %zu arguments", p->results, a->arg_count);
    for (size_t i = 0; i < p->results; i++) {
        const mock_buffer *arg = a->args[0][i < a->arg_count ? i : a->arg_count - 1];
        mock_buffer *b = make(sizeof *b + arg->bytes);
        memcpy(b, arg, sizeof *b + arg->bytes);
        a->results[0][i] = b;
    }
    a->events[0] = make(1);
    return NULL;
}

/* ---- The table ---- */

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

const pjrt_api *GetPjrtApi(void)
{
    static union {
        pjrt_api api;
        char bytes[offsetof(pjrt_api, slot) + PJRT_SLOTS * sizeof(void *)];
    } table;
    static const struct {
        int slot;
        void *function;
    } functions[] = {
#define SLOT(slot, function) {slot, (void *)(uintptr_t)(function)}
        SLOT(PJRT_ERROR_DESTROY, error_destroy),
        SLOT(PJRT_ERROR_MESSAGE, error_message),
        SLOT(PJRT_ERROR_CODE, error_code),
        SLOT(PJRT_PLUGIN_INITIALIZE, initialize),
        SLOT(PJRT_EVENT_DESTROY, event_destroy),
        SLOT(PJRT_EVENT_AWAIT, event_await),
        SLOT(PJRT_CLIENT_CREATE, client_create),
        SLOT(PJRT_CLIENT_DESTROY, client_destroy),
        SLOT(PJRT_CLIENT_PLATFORM_NAME, platform_name),
        SLOT(PJRT_CLIENT_DEVICES, devices),
        SLOT(PJRT_CLIENT_COMPILE, compile),
        SLOT(PJRT_CLIENT_FROM_HOST, from_host),
        SLOT(PJRT_EXECUTABLE_DESTROY, program_destroy),
        SLOT(PJRT_EXECUTE, execute),
        SLOT(PJRT_BUFFER_DESTROY, buffer_destroy),
        SLOT(PJRT_BUFFER_TO_HOST, to_host),
    };
    memset(&table, 0, sizeof table);
    plays.minor = number("MOCK_MINOR", 81);
    plays.grown = (size_t)number("MOCK_GROWN", 0);
    plays.fail = number("MOCK_FAIL", -1);
    plays.devices = !getenv("MOCK_NO_DEVICE");
    int slots = number("MOCK_SHORT", PJRT_SLOTS), missing = number("MOCK_MISSING", -1);
    table.api.size = offsetof(pjrt_api, slot) + (size_t)slots * sizeof(void *);
    table.api.version.size = 24;
    table.api.version.major = number("MOCK_MAJOR", 0);
    table.api.version.minor = plays.minor;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].slot != missing)
            table.api.slot[functions[i].slot] = functions[i].function;
    return &table.api;
}
