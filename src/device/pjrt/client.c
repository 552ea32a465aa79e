/* SPDX-License-Identifier: MIT */
/*
 * client.c - creates a plugin's client from options.
 *
 * The spec is "PLUGIN.so,name=value,...". A value is true or false, an integer, a float, a list of
 * integers in brackets, or text. The plugin defines which names are valid.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/pjrt/pjrt.h"

typedef struct {
    wf_arena arena;
    const char *path;
    pjrt_named_value *values; /* with room for create_client's own option */
    size_t count;
    int64_t *numbers; /* free space for the elements of further lists */
} client_options;

/* ---- Parsing options ---- */

/* Returns the length of the first option: up to a comma outside brackets, or to the end. */
static size_t part_length(const char *text)
{
    size_t n = 0;
    for (int depth = 0; text[n] && (text[n] != ',' || depth > 0); n++)
        depth += text[n] == '[' ? 1 : text[n] == ']' ? -1 : 0;
    return n;
}

/* Parses "[0,1]". Returns false if text is not a list of integers. */
static bool read_list(client_options *o, const char *text, pjrt_named_value *v)
{
    v->kind = PJRT_LIST;
    v->value.list = o->numbers;
    for (const char *at = text; *at == '[' || *at == ',';) {
        char *end;
        /* `numbers` has room for one per byte of the spec. */
        *o->numbers++ = strtoll(at + 1, &end, 10);
        v->count++;
        if (end == at + 1)
            return false;
        at = end;
        if (strcmp(at, "]") == 0)
            return true;
    }
    return false;
}

/* Parses an integer, or else a float. */
static bool read_number(const char *text, pjrt_named_value *v)
{
    const char *at = text;
    char *end;
    double real;
    /* strtoll saturates out of range; such a number is still an integer for the plugin. */
    int64_t integer = strtoll(text, &end, 10);
    v->count = 1;
    if (*text && *end == 0) {
        v->kind = PJRT_INTEGER;
        v->value.integer = integer;
        return true;
    }
    if (!wf_text_to_double(&at, &real) || *at)
        return false;
    v->kind = PJRT_REAL;
    v->value.real = (float)real;
    return true;
}

/* Text that is neither a list, a truth value nor a number is passed on as text. */
static bool read_value(client_options *o, const char *text, pjrt_named_value *v)
{
    if (*text == '[')
        return read_list(o, text, v);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        v->kind = PJRT_TRUTH;
        v->value.truth = *text == 't';
        v->count = 1;
    } else if (!read_number(text, v)) {
        v->kind = PJRT_TEXT;
        v->value.text = text;
        v->count = strlen(text);
    }
    return true;
}

/* Parses one option, "name=value". The result borrows `text`. */
static wf_status read_option(client_options *o, char *text)
{
    char *equals = strchr(text, '=');
    pjrt_named_value *v = &o->values[o->count++];
    if (!equals || equals == text || !equals[1] || !read_value(o, equals + 1, v))
        return wf_fail(
            o->arena.ctx, WF_ERR_USAGE,
            "invalid option '%s' of the pjrt plugin; use name=value with true, 2, 0.5, [0,1] or a "
            "word as the value",
            text);
    v->size = sizeof *v;
    v->name = text;
    v->name_bytes = (size_t)(equals - text);
    return WF_OK;
}

/* Parses the whole spec into o->path and o->values. */
static wf_status read_options(client_options *o, const char *spec)
{
    char *text = wf_arena_strdup(&o->arena, spec);
    size_t most = 2; /* one option per comma, and create_client's own */
    for (const char *at = spec; *at; at++)
        most += *at == ',';
    o->values = wf_arena_alloc(&o->arena, most * sizeof *o->values);
    o->numbers = wf_arena_alloc(&o->arena, strlen(spec) * sizeof *o->numbers);
    if (!text || !o->values || !o->numbers)
        return WF_ERR_MEMORY;
    o->path = text;
    char *at = text + strcspn(text, ",");
    for (bool more = *at; more;) {
        *at++ = 0; /* ends the previous part */
        char *end = at + part_length(at);
        more = *end == ',';
        *end = 0;
        WF_TRY(read_option(o, at));
        at = end;
    }
    if (!*o->path)
        return wf_fail(o->arena.ctx, WF_ERR_USAGE,
                       "pjrt options '%s' do not begin with the path of a plugin", spec);
    return WF_OK;
}

/* ---- Creating a client ---- */

static bool has_option(const client_options *o, const char *name)
{
    for (size_t i = 0; i < o->count; i++)
        if (o->values[i].name_bytes == strlen(name) &&
            memcmp(o->values[i].name, name, strlen(name)) == 0)
            return true;
    return false;
}

static wf_status make_client(wf_pjrt_plugin *p, const client_options *o, size_t count)
{
    pjrt_client_args create = {.options = count ? o->values : NULL, .option_count = count};
    WF_TRY(wf_pjrt_call_sized(p, PJRT_CLIENT_CREATE, &create,
                              wf_pjrt_size(p, WF_PJRT_CLIENT_CREATE), "create a client"));
    p->client = create.client;
    return WF_OK;
}

/* Creates the client with preallocate=false, unless the user set it: GPU plugins would otherwise
 * allocate most of the memory at once. The platform is known only after creation, so every plugin
 * gets the option; a plugin that refuses it gets a second call without it. */
static wf_status create_client(wf_pjrt_plugin *p, const client_options *o)
{
    static const char ours[] = "preallocate";
    if (has_option(o, ours))
        return make_client(p, o, o->count);
    o->values[o->count] = (pjrt_named_value){.size = sizeof *o->values,
                                             .name = ours,
                                             .name_bytes = sizeof ours - 1,
                                             .kind = PJRT_TRUTH,
                                             .value.truth = false,
                                             .count = 1};
    wf_status status = make_client(p, o, o->count + 1);
    /* The two ways in which plugins refuse an unknown option. */
    if (status != WF_OK && (p->code == PJRT_INVALID_ARGUMENT || p->code == PJRT_UNIMPLEMENTED))
        status = make_client(p, o, o->count);
    return status;
}

/* Copies the last line of a text without NUL. Copies "" if it only repeats the platform's name. */
static void copy_line(const wf_pjrt_plugin *p, char *to, size_t cap, const char *text, size_t bytes)
{
    size_t begin = bytes;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    snprintf(to, cap, "%.*s", (int)(bytes - begin < cap ? bytes - begin : cap - 1), text + begin);
    if (strcmp(to, p->platform) == 0)
        to[0] = 0;
}

/* Sets version and kind for the device's description. Both are optional in a plugin. */
static void name_device(wf_pjrt_plugin *p)
{
    pjrt_description_args d = {.device = p->device};
    pjrt_name_args name = {.client = p->client};
    if (wf_pjrt_has(p, PJRT_CLIENT_PLATFORM_VERSION) &&
        wf_pjrt_call(p, PJRT_CLIENT_PLATFORM_VERSION, &name, bytes, "query the platform version") ==
            WF_OK &&
        name.text)
        copy_line(p, p->version, sizeof p->version, name.text, name.bytes);
    if (!wf_pjrt_has(p, PJRT_DEVICE_DESCRIPTION) || !wf_pjrt_has(p, PJRT_DESCRIPTION_KIND) ||
        wf_pjrt_call(p, PJRT_DEVICE_DESCRIPTION, &d, description, "query the device") != WF_OK)
        return;
    name = (pjrt_name_args){.client = d.description};
    if (wf_pjrt_call(p, PJRT_DESCRIPTION_KIND, &name, bytes, "query the kind of the device") ==
            WF_OK &&
        name.text)
        copy_line(p, p->kind, sizeof p->kind, name.text, name.bytes);
}

static wf_status find_device(wf_pjrt_plugin *p)
{
    pjrt_name_args name = {.client = p->client};
    WF_TRY(wf_pjrt_call(p, PJRT_CLIENT_PLATFORM_NAME, &name, bytes, "query the platform"));
    snprintf(p->platform, sizeof p->platform, "%.*s", name.bytes < 31 ? (int)name.bytes : 31,
             name.text ? name.text : "");
    pjrt_devices_args devices = {.client = p->client};
    WF_TRY(wf_pjrt_call(p, PJRT_CLIENT_DEVICES, &devices, count, "list the devices"));
    if (devices.count == 0)
        return wf_fail(p->ctx, WF_ERR_DEVICE, "the %s plugin found no device on this machine",
                       p->platform);
    p->device = devices.devices[0]; /* Weft uses one device per client */
    name_device(p);
    return WF_OK;
}

wf_status wf_pjrt_open(wf_ctx *ctx, const char *spec, wf_pjrt_plugin *p)
{
    client_options o = {0};
    *p = (wf_pjrt_plugin){.ctx = ctx};
    wf_arena_init(&o.arena, ctx);
    wf_status status = read_options(&o, spec);
    if (status == WF_OK)
        status = wf_pjrt_load(p, o.path);
    if (status == WF_OK)
        status = create_client(p, &o);
    if (status == WF_OK)
        status = find_device(p);
    if (status != WF_OK) /* also after a half-way failure: destroy ignores NULL */
        wf_pjrt_close(p);
    wf_arena_free(&o.arena);
    return status;
}

/* The library itself stays loaded: plugins do not support unloading. */
void wf_pjrt_close(wf_pjrt_plugin *p)
{
    wf_pjrt_destroy(p, PJRT_CLIENT_DESTROY, p->client);
    p->client = NULL;
}
