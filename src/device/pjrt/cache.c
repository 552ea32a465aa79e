/* SPDX-License-Identifier: MIT */
/*
 * cache.c - caches compiled programs on disk.
 *
 * WEFT_CACHE names an existing folder. Its files pjrt-KEY.bin contain a header, the text of the
 * program, and the executable as the plugin serialized it. The key is a hash of the text, the
 * compile options, the build of the plugin and the kind of processor: executables run only with the
 * same four. An invalid file is ignored and written again.
 *
 * Security: executables are code, so only the user should have write access to the folder.
 */
#include <stdio.h>
#include <string.h>

#include "base/cache.h"
#include "base/hash.h"
#include "base/mem.h"
#include "device/pjrt/pjrt.h"

typedef struct {
    char magic[8];
    uint64_t key;
    uint64_t text_bytes, data_bytes; /* of program text and executable, which follow */
    uint64_t check;                  /* FNV-1a of the executable */
} cache_head;

static const char magic[8] = "weftpjr1";

/* ---- Keys ---- */

/* Hashes the processor's feature flags: code compiled for one processor may not run on another. */
static uint64_t hash_processor(wf_ctx *ctx, uint64_t h)
{
    static const char *const fields[] = {"\nflags", "\nFeatures"}; /* x86, arm */
    char *text;
    size_t bytes;
    /* The limit is a safeguard: the file has some KB per processor. */
    if (wf_file_read(ctx, "/proc/cpuinfo", 1 << 24, &text, &bytes) != WF_OK)
        return h;
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(text, fields[i]);
        if (at)
            h = wf_hash_fnv1a(h, at, 1 + strcspn(at + 1, "\n"));
    }
    wf_mem_free(ctx, text);
    return h;
}

static uint64_t key_of(wf_pjrt_plugin *p, const wf_pjrt_program *program)
{
    pjrt_name_args version = {.client = p->client};
    /* Size and time of the plugin's file stand for its build. */
    const uint64_t numbers[] = {program->hash, p->stamp.bytes, (uint64_t)p->stamp.seconds,
                                (uint64_t)p->stamp.nanoseconds, (uint64_t)p->api->version.minor};
    size_t bytes;
    const char *options = wf_pjrt_compile_options(p, &bytes);
    uint64_t h = wf_hash_fnv1a(WF_FNV1A, numbers, sizeof numbers);
    h = wf_hash_fnv1a(h, options, bytes);
    h = wf_hash_fnv1a(h, p->platform, strlen(p->platform));
    if (wf_pjrt_has(p, PJRT_CLIENT_PLATFORM_VERSION) &&
        wf_pjrt_call(p, PJRT_CLIENT_PLATFORM_VERSION, &version, bytes,
                     "query the platform version") == WF_OK)
        h = wf_hash_fnv1a(h, version.text, version.bytes);
    return hash_processor(p->ctx, h);
}

/* Returns the path of the program's file; the caller frees it. NULL: caching is off or
 * unsupported. */
static char *path_of(wf_pjrt_plugin *p, const wf_pjrt_program *program, uint64_t *key)
{
    const char *folder = wf_cache_named();
    /* Without a stamp, a new build of the plugin could not be told apart. */
    if (!folder || p->stamp.bytes == 0 || !wf_pjrt_has(p, PJRT_LOAD) ||
        !wf_pjrt_has(p, PJRT_EXECUTABLE_SERIALIZE))
        return NULL;
    size_t room = strlen(folder) + 40;
    char *path = wf_mem_new(p->ctx, room);
    *key = key_of(p, program);
    if (path)
        snprintf(path, room, "%s/pjrt-%016llx.bin", folder, (unsigned long long)*key);
    return path;
}

/* ---- Loading ---- */

/* Validates the file and reads its header. Returns what is wrong, or NULL. */
static const char *find_fault(const wf_map *map, const wf_pjrt_program *program, uint64_t key,
                              cache_head *head)
{
    if (map->size < sizeof *head)
        return "it is truncated";
    memcpy(head, map->data, sizeof *head);
    if (memcmp(head->magic, magic, sizeof magic) != 0)
        return "it has another format";
    if (head->key != key || head->text_bytes != program->bytes)
        return "it belongs to another program";
    /* The second test rejects the first if it wrapped. */
    if (head->data_bytes != map->size - sizeof *head - program->bytes ||
        map->size - sizeof *head < program->bytes)
        return "it is truncated";
    const uint8_t *text = map->data + sizeof *head, *data = text + program->bytes;
    if (memcmp(text, program->text, program->bytes) != 0)
        return "it belongs to another program";
    if (wf_hash_fnv1a(WF_FNV1A, data, (size_t)head->data_bytes) != head->check)
        return "it is damaged";
    return NULL;
}

/* Returns NULL and sets program->loaded, or returns what is wrong. */
static const char *load_file(wf_pjrt_plugin *p, wf_pjrt_program *program, const char *path,
                             uint64_t key)
{
    wf_map *map;
    cache_head head;
    if (wf_map_open(p->ctx, path, &map) != WF_OK)
        return wf_ctx_message(p->ctx);
    const char *fault = find_fault(map, program, key, &head);
    if (!fault) {
        const uint8_t *data = map->data + sizeof head + program->bytes;
        pjrt_load_args args = {
            .client = p->client, .data = (const char *)data, .bytes = (size_t)head.data_bytes};
        if (wf_pjrt_call_sized(p, PJRT_LOAD, &args, wf_pjrt_size(p, WF_PJRT_LOAD),
                               "load a program") == WF_OK)
            program->loaded = args.loaded;
        else
            fault = wf_ctx_message(p->ctx);
    }
    wf_map_close(map);
    return fault;
}

bool wf_pjrt_cache_load(wf_pjrt_plugin *p, wf_pjrt_program *program)
{
    uint64_t key;
    wf_file_stamp stamp;
    const char *fault = NULL;
    char *path = path_of(p, program, &key);
    if (path && wf_file_look(path, &stamp)) {
        fault = load_file(p, program, path, key);
        if (fault)
            wf_ctx_log(p->ctx, WF_LOG_WARN, "compiling again instead of loading %s: %s", path,
                       fault);
    }
    wf_mem_free(p->ctx, path);
    return program->loaded != NULL;
}

/* ---- Storing ---- */

static wf_status store_file(wf_pjrt_plugin *p, const wf_pjrt_program *program, const char *path,
                            uint64_t key)
{
    pjrt_serialize_args args = {.executable = wf_pjrt_executable(p, program)};
    if (!args.executable)
        return wf_fail(p->ctx, WF_ERR_UNSUPPORTED, "the plugin does not return executables");
    wf_status status = wf_pjrt_call(p, PJRT_EXECUTABLE_SERIALIZE, &args, release, "save a program");
    if (status == WF_OK) {
        cache_head head = {.key = key,
                           .text_bytes = program->bytes,
                           .data_bytes = args.bytes,
                           .check = wf_hash_fnv1a(WF_FNV1A, args.data, args.bytes)};
        memcpy(head.magic, magic, sizeof magic);
        const wf_piece pieces[] = {
            {&head, sizeof head}, {program->text, program->bytes}, {args.data, args.bytes}};
        /* Writes a temporary file and renames it: readers see the old or the new file. */
        status = wf_file_replace(p->ctx, path, pieces, 3);
        if (args.release)
            args.release(args.owner);
    }
    wf_pjrt_destroy(p, PJRT_EXECUTABLE_DESTROY, args.executable);
    return status;
}

void wf_pjrt_cache_store(wf_pjrt_plugin *p, const wf_pjrt_program *program)
{
    uint64_t key;
    char *path = path_of(p, program, &key);
    if (path && store_file(p, program, path, key) != WF_OK)
        wf_ctx_log(p->ctx, WF_LOG_WARN, "a compiled program was not cached: %s",
                   wf_ctx_message(p->ctx));
    wf_mem_free(p->ctx, path);
}
