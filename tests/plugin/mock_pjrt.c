/* SPDX-License-Identifier: MIT */
/*
 * mock_pjrt.c - a PJRT plugin that computes nothing, for tests of the pjrt device.
 *
 * Result i of every program is a copy of argument i, or of the last argument when there are fewer.
 * Programs that pass their arguments through therefore work. A result that aliases a donated
 * argument is that argument. The mock accepts only structs with the exact sizes of the version that
 * it imitates; the sizes are written here independently. Each call of GetPjrtApi reads the controls
 * from the environment:
 *
 *     MOCK_MAJOR, MOCK_MINOR   the version (0.81)
 *     MOCK_GROWN               all structs are this many bytes longer than any known version's
 *     MOCK_AT_LEAST            longer structs are accepted too
 *     MOCK_MISSING             the slot with this number is NULL
 *     MOCK_SHORT               the table ends before the slot with this number
 *     MOCK_FAIL                the function in this slot fails
 *     MOCK_NO_DEVICE           the client has no device
 *     MOCK_MEMORY              limit of all buffers together, bytes
 *     MOCK_EATS                runs consume donated arguments and then fail
 *     MOCK_REFUSES             the client rejects the option preallocate
 *
 * Tests read the counters in mock_pjrt_count, and the options of the last client, as text, in
 * mock_pjrt_options.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/pjrt/pjrt_api.h"
#include "mock_pjrt.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT const pjrt_api *GetPjrtApi(void);
EXPORT extern mock_counts mock_pjrt_count;
EXPORT extern char mock_pjrt_options[256];
mock_counts mock_pjrt_count;
char mock_pjrt_options[256];

static struct {
    int minor, fail;
    size_t grown, memory;
    int devices;
    bool at_least, eats, refuses;
} plays;

static size_t held; /* bytes in buffers */

typedef struct {
    char text[200];
    int code;
} mock_error;

typedef struct {
    size_t bytes;
    char *data; /* NULL: deleted */
} mock_buffer;

/* A program; its serialized form has the same bytes. */
typedef struct {
    size_t results, args;
    int alias[16]; /* by argument: the result that takes over its memory, or -1 */
} mock_program;

/* ---- Objects ---- */

static void *make(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        abort();
    mock_pjrt_count.live++;
    return p;
}

static void destroy(void *p)
{
    mock_pjrt_count.live -= p != NULL;
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

/* Refuses a struct of the wrong size; fails when MOCK_FAIL names the slot. */
static void *check(int slot, size_t got, size_t wanted)
{
    wanted += plays.grown;
    if (plays.at_least ? got < wanted : got != wanted) {
        mock_pjrt_count.refusals += slot != PJRT_EXECUTABLE_MEMORY;
        return fail(3, "Unexpected PJRT_%s size: expected %zu, got %zu. Check installed software.",
                    slot == PJRT_SLOTS ? "ExecuteOptions" : "Some_Args", wanted, got);
    }
    if (slot == plays.fail)
        return fail(13, "Function %d fails by request.\n  It did.\n", slot);
    return NULL;
}

#define CHECK(slot, wanted)                          \
    do {                                             \
        void *error_ = check(slot, a->size, wanted); \
        if (error_)                                  \
            return error_;                           \
    } while (0)

/* ---- Errors and events: these never fail, because their failure could not be reported ---- */

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

static void print_option(const pjrt_named_value *v, char *to, size_t room)
{
    int n = snprintf(to, room, "%.*s=", (int)v->name_bytes, v->name);
    to += n;
    room -= (size_t)n;
    if (v->kind == PJRT_TEXT)
        snprintf(to, room, "%.*s;", (int)v->count, v->value.text);
    else if (v->kind == PJRT_INTEGER)
        snprintf(to, room, "%lld;", (long long)v->value.integer);
    else if (v->kind == PJRT_REAL)
        snprintf(to, room, "%.3f;", (double)v->value.real);
    else if (v->kind == PJRT_TRUTH)
        snprintf(to, room, "%s;", v->value.truth ? "yes" : "no");
    else
        snprintf(to, room, "%zu from %lld on;", v->count, (long long)v->value.list[0]);
}

static bool is(const pjrt_named_value *v, const char *name)
{
    return v->name_bytes == strlen(name) && memcmp(v->name, name, v->name_bytes) == 0;
}

static void *client_create(pjrt_client_args *a)
{
    CHECK(PJRT_CLIENT_CREATE, plays.minor < 61 ? 72 : 88);
    mock_pjrt_options[0] = 0;
    for (size_t i = 0; i < a->option_count; i++) {
        const pjrt_named_value *v = &a->options[i];
        size_t used = strlen(mock_pjrt_options);
        if (v->size != 56)
            return fail(3, "Unexpected PJRT_NamedValue size: expected 56, got %zu", v->size);
        if ((plays.refuses && is(v, "preallocate")) || is(v, "xyzzy"))
            return fail(3, "Unexpected option name passed to PJRT_Client_Create: %.*s",
                        (int)v->name_bytes, v->name);
        print_option(v, mock_pjrt_options + used, sizeof mock_pjrt_options - used);
    }
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

static void *platform_version(pjrt_name_args *a)
{
    CHECK(PJRT_CLIENT_PLATFORM_VERSION, 40);
    a->text = "1.2";
    a->bytes = 3;
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

static void *description(pjrt_description_args *a)
{
    CHECK(PJRT_DEVICE_DESCRIPTION, 32);
    a->description = a->device;
    return NULL;
}

static void *kind(pjrt_name_args *a)
{
    CHECK(PJRT_DESCRIPTION_KIND, 40);
    a->text = "an abacus?";
    a->bytes = 9;
    return NULL;
}

/* ---- Buffers ---- */

/* Returns NULL when the memory limit is reached. */
static mock_buffer *new_buffer(size_t bytes)
{
    if (plays.memory && held + bytes > plays.memory)
        return NULL;
    mock_buffer *b = make(sizeof *b);
    b->bytes = bytes;
    b->data = calloc(1, bytes);
    if (!b->data)
        abort();
    held += bytes;
    return b;
}

static void delete_data(mock_buffer *b)
{
    held -= b->data ? b->bytes : 0;
    free(b->data);
    b->data = NULL;
}

static void *from_host(pjrt_from_host_args *a)
{
    size_t bytes = a->type == PJRT_F32 || a->type == PJRT_S32    ? 4
                   : a->type == PJRT_F16 || a->type == PJRT_BF16 ? 2
                                                                 : 1;
    CHECK(PJRT_CLIENT_FROM_HOST, 120);
    for (size_t i = 0; i < a->rank; i++)
        bytes *= (size_t)a->dims[i];
    if (a->stride_count > 0) /* like some plugins */
        return fail(12, "Strides are not supported");
    mock_buffer *b = new_buffer(bytes);
    if (!b)
        return fail(8, "Out of memory allocating %zu bytes.", bytes);
    memcpy(b->data, a->data, bytes);
    a->buffer = b;
    a->done = make(1);
    return NULL;
}

static void *to_host(pjrt_to_host_args *a)
{
    const mock_buffer *b = a->buffer;
    CHECK(PJRT_BUFFER_TO_HOST, 56);
    if (!b->data)
        return fail(3, "Array has been deleted or donated");
    if (a->bytes != b->bytes)
        return fail(3, "The array has %zu bytes, not %zu", b->bytes, a->bytes);
    memcpy(a->to, b->data, b->bytes);
    a->event = make(1);
    return NULL;
}

static void *is_deleted(pjrt_deleted_args *a)
{
    CHECK(PJRT_BUFFER_IS_DELETED, 25);
    a->deleted = !((const mock_buffer *)a->buffer)->data;
    return NULL;
}

static void *buffer_destroy(pjrt_handle_args *a)
{
    delete_data(a->handle);
    destroy(a->handle);
    return NULL;
}

/* ---- Programs ---- */

/* Counts the arguments of @main and finds those whose memory a result takes over. */
static void read_args(mock_program *p, const char *text)
{
    const char *at = strstr(text, "@main("), *end = at ? strstr(at, ") -> (") : NULL;
    while (end && (at = strchr(at, '%')) && at < end && p->args < 16) {
        const char *next = strchr(at + 1, '%'), *mark = strstr(at, "tf.aliasing_output = ");
        bool marked = mark && mark < end && (!next || mark < next);
        p->alias[p->args++] = marked ? atoi(mark + strlen("tf.aliasing_output = ")) : -1;
        at++;
    }
}

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
    read_args(p, a->program->code);
    mock_pjrt_count.compiles++;
    a->executable = p;
    return NULL;
}

static void *get_executable(pjrt_executable_args *a)
{
    CHECK(PJRT_LOADED_EXECUTABLE, 32);
    a->executable = memcpy(make(sizeof(mock_program)), a->loaded, sizeof(mock_program));
    return NULL;
}

static void *program_memory(pjrt_memory_args *a)
{
    CHECK(PJRT_EXECUTABLE_MEMORY, plays.minor < 81 ? 104 : 112);
    a->temporary = MOCK_TEMPORARY;
    return NULL;
}

static void *serialize(pjrt_serialize_args *a)
{
    CHECK(PJRT_EXECUTABLE_SERIALIZE, 56);
    a->owner = memcpy(make(sizeof(mock_program)), a->executable, sizeof(mock_program));
    a->data = a->owner;
    a->bytes = sizeof(mock_program);
    a->release = destroy;
    return NULL;
}

static void *load(pjrt_load_args *a)
{
    CHECK(PJRT_LOAD, plays.minor < 71 ? 48 : plays.minor < 111 ? 64 : 72);
    if (a->bytes != sizeof(mock_program))
        return fail(3, "There is no program in %zu bytes", a->bytes);
    a->loaded = memcpy(make(sizeof(mock_program)), a->data, sizeof(mock_program));
    mock_pjrt_count.loads++;
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

/* Returns the argument whose memory result i takes over, or NULL. */
static mock_buffer *donated(const mock_program *p, const pjrt_execute_args *a, size_t i)
{
    for (size_t k = 0; k < a->arg_count && k < p->args; k++)
        if (p->alias[k] == (int)i)
            return a->args[0][k];
    return NULL;
}

static mock_buffer *result(const mock_program *p, const pjrt_execute_args *a, size_t i)
{
    mock_buffer *from = donated(p, a, i);
    const mock_buffer *arg = a->args[0][i < a->arg_count ? i : a->arg_count - 1];
    mock_buffer *b = make(sizeof *b);
    if (from) {
        *b = *from;
        from->data = NULL;
        mock_pjrt_count.donations++;
    } else {
        b->bytes = arg->bytes;
        b->data = calloc(1, b->bytes);
        if (!b->data)
            abort();
        memcpy(b->data, arg->data, b->bytes);
        held += b->bytes;
    }
    return b;
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
    for (size_t i = 0; i < a->arg_count; i++)
        if (!((const mock_buffer *)a->args[0][i])->data)
            return fail(3, "Argument %zu has been deleted or donated", i);
    for (size_t i = 0; plays.eats && i < p->args; i++)
        if (p->alias[i] >= 0)
            delete_data(a->args[0][i]);
    if (plays.eats)
        return fail(13, "The run fails by request.");
    for (size_t i = p->results; i-- > 0;) /* makes copies before arguments are taken over */
        if (!donated(p, a, i))
            a->results[0][i] = result(p, a, i);
    for (size_t i = 0; i < p->results; i++)
        if (donated(p, a, i))
            a->results[0][i] = result(p, a, i);
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
        SLOT(PJRT_CLIENT_PLATFORM_VERSION, platform_version),
        SLOT(PJRT_DEVICE_DESCRIPTION, description),
        SLOT(PJRT_DESCRIPTION_KIND, kind),
        SLOT(PJRT_EXECUTABLE_DESTROY, program_destroy),
        SLOT(PJRT_EXECUTABLE_SERIALIZE, serialize),
        SLOT(PJRT_LOADED_DESTROY, program_destroy),
        SLOT(PJRT_LOADED_EXECUTABLE, get_executable),
        SLOT(PJRT_LOAD, load),
        SLOT(PJRT_EXECUTABLE_MEMORY, program_memory),
        SLOT(PJRT_BUFFER_IS_DELETED, is_deleted),
        SLOT(PJRT_EXECUTE, execute),
        SLOT(PJRT_BUFFER_DESTROY, buffer_destroy),
        SLOT(PJRT_BUFFER_TO_HOST, to_host),
    };
    memset(&table, 0, sizeof table);
    plays.minor = number("MOCK_MINOR", 81);
    plays.grown = (size_t)number("MOCK_GROWN", 0);
    plays.fail = number("MOCK_FAIL", -1);
    plays.devices = !getenv("MOCK_NO_DEVICE");
    plays.at_least = getenv("MOCK_AT_LEAST");
    plays.eats = getenv("MOCK_EATS");
    plays.refuses = getenv("MOCK_REFUSES");
    plays.memory = (size_t)number("MOCK_MEMORY", 0);
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
