/* SPDX-License-Identifier: MIT */
/*
 * program.c - keeps compiled programs, identified by their text, while the device is open.
 * Compiling takes milliseconds to minutes, and successive sessions often compile the same graphs.
 *
 * The list is newest first. Programs are reference-counted by executables; a program without users
 * stays until IDLE_PROGRAMS newer ones have none, either.
 */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "device/pjrt/pjrt.h"

#define IDLE_PROGRAMS 64 /* unused programs to keep */

/* ---- Lifetime ---- */

static void program_free(wf_pjrt_device *d, wf_pjrt_program *program)
{
    wf_pjrt_destroy(&d->plugin, PJRT_LOADED_DESTROY, program->loaded);
    wf_mem_free(d->head.ctx, program->text);
    wf_mem_free(d->head.ctx, program);
}

void wf_pjrt_programs_free(wf_pjrt_device *d)
{
    while (d->programs) {
        wf_pjrt_program *next = d->programs->next;
        program_free(d, d->programs);
        d->programs = next;
    }
}

/* Frees all unused programs but the latest IDLE_PROGRAMS. */
static void drop_old_programs(wf_pjrt_device *d)
{
    int idle = 0;
    for (wf_pjrt_program **at = &d->programs; *at;) {
        wf_pjrt_program *program = *at;
        if (program->users == 0 && ++idle > IDLE_PROGRAMS) {
            *at = program->next;
            program_free(d, program);
        } else {
            at = &program->next;
        }
    }
}

void wf_pjrt_program_release(wf_pjrt_device *d, wf_pjrt_program *program)
{
    if (!program)
        return;
    program->users--;
    drop_old_programs(d);
}

/* ---- Compiling ---- */

/* Serialized CompileOptionsProto: one replica, one partition, and XLA flags with their lengths
 * written out. The compiler must keep roundings to narrow types (no excess precision). Maximum and
 * minimum must return NaN for a NaN operand, as StableHLO specifies. GPU reductions must be
 * deterministic. */
#define PLAIN "\x1A\x04\x20\x01\x28\x01"
#define FLAG(entry, length, name, value) "\x3A" entry "\x0A" length name "\x12\x02\x10" value
#define ROUND FLAG("\x20", "\x1A", "xla_allow_excess_precision", "\x00")

typedef struct {
    const char *platform; /* NULL: all others */
    const char *bytes;
    size_t count;
} compile_options;

#define OPTIONS(platform, text)          \
    {                                    \
        platform, text, sizeof(text) - 1 \
    }
static const compile_options options_by_platform[] = {
    OPTIONS("cpu", PLAIN ROUND FLAG("\x21", "\x1B", "xla_cpu_enable_fast_min_max", "\x00")),
    OPTIONS("cuda", PLAIN ROUND FLAG("\x1F", "\x19", "xla_gpu_deterministic_ops", "\x01")),
    OPTIONS("rocm", PLAIN ROUND FLAG("\x1F", "\x19", "xla_gpu_deterministic_ops", "\x01")),
    OPTIONS(NULL, PLAIN),
};

const char *wf_pjrt_compile_options(const wf_pjrt_plugin *p, size_t *bytes)
{
    const compile_options *o = options_by_platform;
    /* The last row matches every platform. */
    while (o->platform && strcmp(o->platform, p->platform) != 0)
        o++;
    *bytes = o->count;
    return o->bytes;
}

static wf_status compile_text(wf_pjrt_plugin *p, wf_pjrt_program *program)
{
    /* Up to the last field that this version sends. */
    pjrt_program code = {.size = offsetof(pjrt_program, spare),
                         .code = program->text,
                         .bytes = program->bytes,
                         .format = "mlir",
                         .format_bytes = 4};
    pjrt_compile_args args = {.client = p->client, .program = &code};
    args.options = wf_pjrt_compile_options(p, &args.option_bytes);
    WF_TRY(wf_pjrt_call(p, PJRT_CLIENT_COMPILE, &args, executable, "compile a graph"));
    program->loaded = args.executable;
    return WF_OK;
}

/* The caller destroys it. NULL if the plugin lacks the functions. */
void *wf_pjrt_executable(wf_pjrt_plugin *p, const wf_pjrt_program *program)
{
    pjrt_executable_args args = {.loaded = program->loaded};
    if (!wf_pjrt_has(p, PJRT_LOADED_EXECUTABLE) || !wf_pjrt_has(p, PJRT_EXECUTABLE_DESTROY) ||
        wf_pjrt_call(p, PJRT_LOADED_EXECUTABLE, &args, executable, "query a program") != WF_OK)
        return NULL;
    return args.executable;
}

/* Sets the temporary memory of a run. It only affects accounting, so a plugin may lack this
 * function. */
static void measure(wf_pjrt_plugin *p, wf_pjrt_program *program)
{
    pjrt_memory_args args = {0};
    if (!wf_pjrt_has(p, PJRT_EXECUTABLE_MEMORY))
        return;
    args.executable = wf_pjrt_executable(p, program);
    if (args.executable && wf_pjrt_call(p, PJRT_EXECUTABLE_MEMORY, &args, host_temporary,
                                        "query the memory of a program") == WF_OK)
        program->temporary = args.temporary > 0 ? (size_t)args.temporary : 0;
    wf_pjrt_destroy(p, PJRT_EXECUTABLE_DESTROY, args.executable);
}

static wf_status load_or_compile(wf_pjrt_plugin *p, wf_pjrt_program *program)
{
    if (!wf_pjrt_cache_load(p, program)) {
        WF_TRY(compile_text(p, program));
        wf_pjrt_cache_store(p, program);
    }
    measure(p, program);
    return WF_OK;
}

/* Takes ownership of `text` in every case. Release *out when it is no longer used. */
wf_status wf_pjrt_program_get(wf_pjrt_device *d, char *text, size_t bytes, wf_pjrt_program **out)
{
    uint64_t hash = wf_hash_fnv1a(WF_FNV1A, text, bytes);
    for (wf_pjrt_program *p = d->programs; p; p = p->next)
        if (p->hash == hash && p->bytes == bytes && memcmp(p->text, text, bytes) == 0) {
            wf_mem_free(d->head.ctx, text);
            p->users++;
            *out = p;
            return WF_OK;
        }
    wf_pjrt_program *p = wf_mem_new(d->head.ctx, sizeof *p);
    if (!p) {
        wf_mem_free(d->head.ctx, text);
        return WF_ERR_MEMORY;
    }
    *p = (wf_pjrt_program){.text = text, .bytes = bytes, .hash = hash, .users = 1};
    wf_status status = load_or_compile(&d->plugin, p);
    if (status != WF_OK) {
        program_free(d, p);
        return status;
    }
    p->next = d->programs;
    d->programs = p;
    *out = p;
    return WF_OK;
}
