/* SPDX-License-Identifier: MIT */
/*
 * session.c - sessions: their states, the memory that executables share, and compiling graphs.
 *
 * A session owns its states, one activation region that its executables share, on request one
 * memory for their inputs and outputs, and the mappings of files with mapped states. Executables
 * borrow the session and must be freed first.
 *
 * A state comes into being in one of four ways (wf_storage): bound by a compiled graph (owned,
 * zeroed), mapped from a file, copied from a file where the device cannot map, or packed. Its name
 * is unique in the session; type and shape never change afterwards.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/device.h"

/* ---- States ---- */

wf_status wf_session_new(wf_device *device, wf_session **out)
{
    *out = NULL;
    wf_session *s = wf_mem_new(device->ctx, sizeof *s);
    if (!s)
        return WF_ERR_MEMORY;
    s->ctx = device->ctx;
    s->device = device;
    wf_status status = device->ops->queue_new(device, &s->queue);
    if (status != WF_OK) {
        wf_mem_free(s->ctx, s);
        return status;
    }
    device->session_count++;
    *out = s;
    return WF_OK;
}

/* Copies are gone by then: their executables release them before the session is freed. */
static void state_free(wf_session *s, wf_stored_state *state)
{
    if (!state)
        return;
    s->waiting -= state->source != NULL;
    wf_buffer_free(state->buffer);
    wf_mem_free(s->ctx, state->name);
    wf_mem_free(s->ctx, state);
}

/* Closes the file at the head of the list: the one opened last. */
static void close_file(wf_session *s)
{
    wf_session_file *f = s->files;
    s->files = f->next;
    wf_map_close(f->map);
    wf_mem_free(s->ctx, f->path);
    wf_mem_free(s->ctx, f);
}

/* Refuses while executables are open: they point into the session. */
void wf_session_free(wf_session *s)
{
    if (!s)
        return;
    if (s->exec_count > 0) {
        wf_ctx_log(s->ctx, WF_LOG_ERROR, "a session was not freed: it still has %d executable%s",
                   s->exec_count, WF_PLURAL(s->exec_count));
        return;
    }
    s->device->session_count--;
    for (int i = 0; i < s->state_count; i++)
        state_free(s, s->states[i]);
    wf_buffer_free(s->region);
    wf_buffer_free(s->ports);
    while (s->files)
        close_file(s);
    s->device->ops->queue_free(s->queue);
    wf_mem_free(s->ctx, s->states);
    wf_mem_free(s->ctx, s);
}

/* A linear search: compiling and host transfers call it, runs do not. */
wf_stored_state *wf_session_find(const wf_session *s, const char *name)
{
    for (int i = 0; i < s->state_count; i++)
        if (strcmp(s->states[i]->name, name) == 0)
            return s->states[i];
    return NULL;
}

/* The caller frees the copy with wf_mem_free. Returns NULL without memory. */
static char *copy_text(wf_ctx *ctx, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = wf_mem_new(ctx, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* Adds a state without storage. Doubles the list when it is full; states themselves never move,
 * because executables keep pointers to them. */
static wf_status state_add(wf_session *s, const char *name, wf_type type, const wf_dims *shape,
                           wf_stored_state **out)
{
    *out = NULL;
    if (s->state_count == s->state_cap) {
        int cap = s->state_cap ? 2 * s->state_cap : 16;
        void *grown = wf_mem_grow(s->ctx, s->states, (size_t)cap * sizeof *s->states);
        if (!grown)
            return WF_ERR_MEMORY;
        s->states = grown;
        s->state_cap = cap;
    }
    wf_stored_state *state = wf_mem_new(s->ctx, sizeof *state);
    if (!state)
        return WF_ERR_MEMORY;
    state->type = type;
    state->shape = *shape;
    /* Cannot overflow: wf_node_add has checked the shape. */
    state->bytes = wf_type_bytes(type, wf_dims_count(shape));
    state->name = copy_text(s->ctx, name);
    if (!state->name) {
        state_free(s, state);
        return WF_ERR_MEMORY;
    }
    s->states[s->state_count++] = *out = state;
    return WF_OK;
}

/* Gives the state a dense, zeroed buffer in the device's storage type. */
static wf_status state_allocate(wf_session *s, wf_stored_state *state)
{
    WF_TRY(wf_buffer_new(s->device, wf_device_value_bytes(s->device, state->type, &state->shape),
                         &state->buffer));
    if (s->device->ops->buffer_describe)
        s->device->ops->buffer_describe(state->buffer, state->type, &state->shape);
    return WF_OK;
}

/* Removes the state added last if `status` is a failure. Returns `status`. */
static wf_status state_undo(wf_session *s, wf_status status)
{
    if (status != WF_OK)
        state_free(s, s->states[--s->state_count]);
    return status;
}

/* Fails if the graph's node disagrees with the state that earlier graphs or the caller fixed. */
static wf_status check_state(wf_session *s, const wf_stored_state *state, const wf_value *v)
{
    if (state->type == v->type && wf_dims_equal(&state->shape, &v->shape))
        return WF_OK;
    char text[2][192];
    size_t len[2] = {0, 0};
    const wf_value have = {.type = state->type, .shape = state->shape};
    wf_value_print(&have, text[0], sizeof text[0], &len[0]);
    wf_value_print(v, text[1], sizeof text[1], &len[1]);
    return wf_fail(s->ctx, WF_ERR_USAGE, "state '%s' is %s in this session, but %s in the graph",
                   state->name, text[0], text[1]);
}

wf_status wf_session_bind(wf_session *s, const wf_node *node, wf_stored_state **out)
{
    const wf_value *v = &node->out[0];
    wf_stored_state *state = wf_session_find(s, node->name);
    if (!state) {
        WF_TRY(state_add(s, node->name, v->type, &v->shape, &state));
        WF_TRY(state_undo(s, state_allocate(s, state)));
    }
    *out = state;
    return check_state(s, state, v);
}

/* Waits first: a run of an executable that is freed by now may still use the buffer. A failed run
 * cannot be reported here; the next one fails as well. */
void wf_session_remove(wf_session *s, int index)
{
    s->device->ops->queue_wait(s->queue);
    state_free(s, s->states[index]);
    s->state_count--;
    memmove(s->states + index, s->states + index + 1,
            (size_t)(s->state_count - index) * sizeof *s->states);
}

/* ---- Mapped and packed states ---- */

/* Adds a state of the caller's type and shape, still without storage. Fails if the name is
 * taken. */
static wf_status declare(wf_session *s, const char *name, wf_type type, int rank,
                         const int64_t *dims, wf_stored_state **out)
{
    wf_graph *g;
    WF_TRY(wf_graph_new(s->ctx, &g)); /* validates name, type and shape */
    const wf_value *v = wf_state(g, name, type, rank, dims);
    wf_status status = wf_graph_status(g);
    if (status == WF_OK && wf_session_find(s, name))
        status = wf_fail(s->ctx, WF_ERR_USAGE, "the session already has a state '%s'", name);
    if (status == WF_OK)
        status = state_add(s, name, v->type, &v->shape, out);
    wf_graph_free(g);
    return status;
}

/* Finds or opens the mapping of a file, which the states of a session share. A new mapping has 0
 * states. */
static wf_status open_file(wf_session *s, const char *path, wf_session_file **out)
{
    for (*out = s->files; *out; *out = (*out)->next)
        if (strcmp((*out)->path, path) == 0)
            return WF_OK;
    wf_session_file *f = wf_mem_new(s->ctx, sizeof *f);
    if (!f)
        return WF_ERR_MEMORY;
    f->next = s->files;
    s->files = f;
    f->path = copy_text(s->ctx, path);
    wf_status status = f->path ? wf_map_open(s->ctx, path, &f->map) : WF_ERR_MEMORY;
    if (status == WF_OK)
        *out = f;
    else
        close_file(s);
    return status;
}

/* Maps or copies the contents of a state from `offset` of the file. Quantized blocks contain
 * f16 scales: they need 2-byte alignment. */
static wf_status load_from_file(wf_session *s, wf_stored_state *state, const wf_session_file *file,
                                uint64_t offset)
{
    const char *path = file->path;
    const wf_map *map = file->map;
    const wf_type_info *type = wf_type_get(state->type);
    unsigned align = type->block == 1 ? (unsigned)type->block_bytes : 2;
    /* In this order, the sum of both cannot overflow. */
    if (offset > map->size || state->bytes > map->size - offset)
        return wf_fail(
            s->ctx, WF_ERR_FORMAT,
            "state '%s' needs %zu bytes at byte %llu of '%s', but the file has only %zu bytes",
            state->name, state->bytes, (unsigned long long)offset, path, map->size);
    if (offset % align != 0)
        return wf_fail(s->ctx, WF_ERR_FORMAT,
                       "state '%s' begins at byte %llu of '%s', which is not a multiple of %u",
                       state->name, (unsigned long long)offset, path, align);
    const wf_device_ops *ops = s->device->ops;
    if (ops->buffer_map) {
        state->storage = WF_STATE_MAPPED;
        return ops->buffer_map(s->device, map->data + offset, state->bytes, &state->buffer);
    }
    state->storage = WF_STATE_COPIED;
    WF_TRY(state_allocate(s, state));
    return ops->copy_in(s->queue, state->buffer, 0, map->data + offset, state->bytes);
}

/* Closes the mapping again unless a state refers to it. open_file puts a new mapping at the head of
 * the list, where close_file removes it; a mapping with states is never closed here. */
static wf_status map_state(wf_session *s, wf_stored_state *state, const char *path, uint64_t offset)
{
    wf_session_file *file;
    WF_TRY(open_file(s, path, &file));
    wf_status status = load_from_file(s, state, file, offset);
    if (status == WF_OK && state->storage == WF_STATE_MAPPED)
        file->states++;
    /* Copied or refused: do not reuse the mapping, as the file may be replaced. */
    if (file->states == 0)
        close_file(s);
    return status;
}

wf_status wf_session_map(wf_session *s, const char *name, wf_type type, int rank,
                         const int64_t *dims, const char *path, uint64_t offset)
{
    wf_stored_state *state;
    WF_TRY(declare(s, name, type, rank, dims, &state));
    return state_undo(s, map_state(s, state, path, offset));
}

void wf_session_round(wf_session *s, const char *name)
{
    wf_stored_state *state = wf_session_find(s, name);
    wf_assert(state);
    state->rounded = true;
}

wf_status wf_session_declare_rounded(wf_session *s, const char *name, wf_type type, int rank,
                                     const int64_t *dims)
{
    wf_stored_state *state;
    WF_TRY(declare(s, name, type, rank, dims, &state));
    state->storage = WF_STATE_MAPPED;
    state->rounded = true;
    return WF_OK;
}

/* Marks the state as packed and sets *out to its packed size in bytes. Fails if the device has no
 * packed layout for this type and shape. */
static wf_status mark_packed(wf_session *s, wf_stored_state *state, size_t *out)
{
    const wf_device_ops *ops = s->device->ops;
    size_t bytes = ops->pack ? ops->packed_bytes(s->device, state->type, &state->shape) : 0;
    if (bytes == 0) {
        char text[192];
        size_t len = 0;
        const wf_value v = {.type = state->type, .shape = state->shape};
        wf_value_print(&v, text, sizeof text, &len);
        return wf_fail(s->ctx, WF_ERR_UNSUPPORTED, "device %s cannot pack state '%s', which is %s",
                       s->device->target.name, state->name, text);
    }
    state->storage = WF_STATE_PACKED;
    *out = bytes;
    return WF_OK;
}

static wf_status pack_state(wf_session *s, wf_stored_state *state)
{
    size_t bytes = 0;
    WF_TRY(mark_packed(s, state, &bytes));
    return wf_buffer_new(s->device, bytes, &state->buffer);
}

wf_status wf_session_pack(wf_session *s, const char *name, wf_type type, int rank,
                          const int64_t *dims)
{
    wf_stored_state *state;
    WF_TRY(declare(s, name, type, rank, dims, &state));
    return state_undo(s, pack_state(s, state));
}

wf_status wf_session_declare_packed(wf_session *s, const char *name, wf_type type, int rank,
                                    const int64_t *dims)
{
    wf_stored_state *state;
    size_t bytes;
    WF_TRY(declare(s, name, type, rank, dims, &state));
    return state_undo(s, mark_packed(s, state, &bytes));
}

/* Fails if the graph updates a mapped, copied or packed state: those are read-only. */
static wf_status check_writes(wf_session *s, const wf_graph *g)
{
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        for (int k = 0; wf_node_is(n, WF_FLAG_UPDATE) && k < n->nout; k++) {
            const wf_node *written = n->out[k].state;
            const wf_stored_state *state = written ? wf_session_find(s, written->name) : NULL;
            if (state && state->storage != WF_STATE_OWNED)
                return wf_fail(s->ctx, WF_ERR_USAGE,
                               "%s cannot write state '%s', which is %s in this session",
                               wf_node_def(n)->name, state->name,
                               state->storage == WF_STATE_PACKED ? "packed" : "mapped from a file");
        }
    }
    return WF_OK;
}

/* ---- Memory that executables share ---- */

/* Returns the size of shared memory after reserving `bytes`. Without executables `least`, which the
 * old ones needed, does not count. Memory never shrinks. */
static size_t size_after(const wf_session *s, const wf_buffer *memory, size_t least, size_t bytes)
{
    least = s->exec_count > 0 ? least : 0;
    bytes = bytes > least ? bytes : least;
    return memory && memory->bytes > bytes ? memory->bytes : bytes;
}

/* Grows *memory to at least `bytes`. Sets *moved if its contents are lost, also on failure. */
static wf_status reserve(wf_session *s, wf_buffer **memory, size_t *least, size_t bytes,
                         bool *moved)
{
    bytes = size_after(s, *memory, *least, bytes);
    *moved = false;
    if (*memory && bytes == (*memory)->bytes)
        return WF_OK;
    /* Free the old memory first: holding both would exceed the planned memory. */
    WF_TRY(s->device->ops->queue_wait(s->queue));
    wf_buffer_free(*memory);
    *memory = NULL;
    /* Every bound address is void from here on, also if the allocation below fails. */
    *moved = true;
    s->generation++;
    wf_status status = wf_buffer_new(s->device, bytes, memory);
    if (status == WF_OK)
        *least = bytes;
    /* For the other executables. If this fails, too, their runs fail until a later call
     * succeeds. */
    else if (s->exec_count > 0)
        wf_buffer_new(s->device, *least, memory);
    return status;
}

wf_status wf_session_reserve(wf_session *s, size_t bytes)
{
    bool moved;
    return reserve(s, &s->region, &s->region_bytes, bytes, &moved);
}

wf_status wf_session_reserve_ports(wf_session *s, size_t bytes)
{
    bool moved;
    wf_status status = reserve(s, &s->ports, &s->ports_bytes, bytes, &moved);
    /* No executable has inputs or outputs there now. */
    s->ports_turn += moved;
    return status;
}

size_t wf_session_ports_bytes(const wf_session *s, size_t bytes)
{
    return size_after(s, s->ports, s->ports_bytes, bytes);
}

void wf_session_share_ports(wf_session *s)
{
    s->share_ports = true;
}

/* ---- Contents ---- */

wf_status wf_range_check(wf_ctx *ctx, const char *what, const char *name, size_t size,
                         size_t offset, size_t bytes)
{
    /* In this order, nothing can overflow. */
    if (offset <= size && bytes <= size - offset)
        return WF_OK;
    return wf_fail(ctx, WF_ERR_USAGE,
                   "%zu bytes at byte %zu are outside %s '%s', which has %zu bytes", bytes, offset,
                   what, name, size);
}

static wf_status find_state(wf_session *s, const char *name, wf_stored_state **out)
{
    *out = wf_session_find(s, name);
    return *out ? WF_OK : wf_fail(s->ctx, WF_ERR_USAGE, "the session has no state '%s'", name);
}

/* Checks name and size before a transfer. */
static wf_status get_state(wf_session *s, const char *name, size_t bytes, wf_stored_state **out)
{
    WF_TRY(find_state(s, name, out));
    if ((*out)->bytes != bytes)
        return wf_fail(s->ctx, WF_ERR_USAGE, "state '%s' has %zu bytes, not %zu", name,
                       (*out)->bytes, bytes);
    return WF_OK;
}

wf_status wf_session_write(wf_session *s, const char *name, const void *from, size_t bytes)
{
    wf_stored_state *state;
    WF_TRY(get_state(s, name, bytes, &state));
    if (state->storage == WF_STATE_MAPPED || state->storage == WF_STATE_COPIED)
        return wf_fail(s->ctx, WF_ERR_USAGE,
                       "state '%s' is mapped from a file and cannot be written", name);
    state->changes++;
    if (state->storage == WF_STATE_PACKED) {
        /* New contents replace deferred ones. */
        s->waiting -= state->source != NULL;
        state->source = NULL;
        return s->device->ops->pack(s->queue, state->buffer, from, state->type, &state->shape);
    }
    return s->device->ops->copy_in(s->queue, state->buffer, 0, from, bytes);
}

void wf_session_write_later(wf_session *s, const char *name, const wf_map *map, size_t offset)
{
    wf_stored_state *state = wf_session_find(s, name);
    wf_assert(state && state->storage == WF_STATE_PACKED && state->buffer);
    wf_assert(offset <= map->size && state->bytes <= map->size - offset);
    s->waiting += state->source == NULL;
    state->source = map;
    state->source_at = offset;
}

/* Packs rows [begin, begin + count) and releases their pages of the file. `begin` is a multiple of
 * pack_rows, where pieces of the packed layout start. */
static wf_status settle_rows(wf_session *s, wf_stored_state *state, int64_t begin, int64_t count)
{
    const wf_device_ops *ops = s->device->ops;
    wf_dims before = state->shape, part = state->shape;
    before.d[0] = begin;
    part.d[0] = count;
    const size_t row = state->bytes / (size_t)state->shape.d[0];
    const size_t from = state->source_at + (size_t)begin * row;
    /* Only `base` of this copy is used (wf_device_ops.pack_rows). */
    wf_buffer to = *state->buffer;
    if (begin > 0)
        to.base = (char *)to.base + ops->packed_bytes(s->device, state->type, &before);
    WF_TRY(ops->pack(s->queue, &to, state->source->data + from, state->type, &part));
    /* The pages were read for the last time: without this they would count as resident memory of
     * the process until the kernel needs them. */
    wf_map_forget(state->source, from, (size_t)count * row);
    return WF_OK;
}

/* Packs the deferred contents piece by piece, so that at most one piece is in memory twice. */
static wf_status settle(wf_session *s, wf_stored_state *state)
{
    enum { PIECE = 8 << 20 }; /* approximate bytes of a piece */
    const wf_map *map = state->source;
    const int64_t rows = state->shape.d[0], unit = s->device->ops->pack_rows;
    /* Wide rows: at least one unit. */
    const int64_t units = unit > 0 ? PIECE / ((int64_t)state->bytes / rows * unit) : 0;
    const int64_t step = unit == 0 ? rows : (units > 0 ? units : 1) * unit;
    for (int64_t r = 0; r < rows; r += step)
        WF_TRY(settle_rows(s, state, r, rows - r < step ? rows - r : step));
    /* Check after reading: a truncated file reads as zeros (wf_guard_mapped_files). */
    if (wf_map_broken(map))
        return wf_fail(
            s->ctx, WF_ERR_IO,
            "the file of state '%s' was truncated or became unreadable before the first use",
            state->name);
    state->source = NULL;
    s->waiting--;
    return WF_OK;
}

wf_status wf_session_settle(wf_session *s, wf_stored_state *state)
{
    if (s->waiting == 0 || (state && !state->source))
        return WF_OK;
    uint64_t begin = wf_clock_ns();
    wf_status status = state ? settle(s, state) : WF_OK;
    for (int i = 0; !state && status == WF_OK && i < s->state_count; i++)
        if (s->states[i]->source)
            status = settle(s, s->states[i]);
    s->packing_ns += wf_clock_ns() - begin;
    return status;
}

wf_status wf_session_read(wf_session *s, const char *name, void *to, size_t bytes)
{
    wf_stored_state *state;
    WF_TRY(get_state(s, name, bytes, &state));
    WF_TRY(wf_session_settle(s, state));
    /* States may still be written by an asynchronous run. */
    WF_TRY(s->device->ops->queue_wait(s->queue));
    if (state->storage == WF_STATE_PACKED)
        return s->device->ops->unpack(s->queue, to, state->buffer, state->type, &state->shape);
    return s->device->ops->copy_out(s->queue, to, state->buffer, 0, bytes);
}

/* Checks name, storage and range before a transfer of a part. Only an owned state has its elements
 * in host order, and in memory that may be written. */
static wf_status get_range(wf_session *s, const char *name, size_t offset, size_t bytes,
                           wf_stored_state **out)
{
    WF_TRY(find_state(s, name, out));
    if ((*out)->storage != WF_STATE_OWNED)
        return wf_fail(s->ctx, WF_ERR_USAGE,
                       "state '%s' is %s in this session, so a part of it can be neither read nor "
                       "written; read the whole state",
                       name, (*out)->storage == WF_STATE_PACKED ? "packed" : "mapped from a file");
    return wf_range_check(s->ctx, "state", name, (*out)->bytes, offset, bytes);
}

wf_status wf_session_write_at(wf_session *s, const char *name, size_t offset, const void *from,
                              size_t bytes)
{
    wf_stored_state *state;
    WF_TRY(get_range(s, name, offset, bytes, &state));
    if (bytes == 0)
        return WF_OK;
    state->changes++;
    return s->device->ops->copy_in(s->queue, state->buffer, offset, from, bytes);
}

wf_status wf_session_read_at(wf_session *s, const char *name, size_t offset, void *to, size_t bytes)
{
    wf_stored_state *state;
    WF_TRY(get_range(s, name, offset, bytes, &state));
    if (bytes == 0)
        return WF_OK;
    /* As in wf_session_read. */
    WF_TRY(s->device->ops->queue_wait(s->queue));
    return s->device->ops->copy_out(s->queue, to, state->buffer, offset, bytes);
}

/* ---- Executables ---- */

wf_status wf_compile(wf_session *s, wf_graph *graph, wf_exec **out)
{
    return wf_compile_with(s, graph, NULL, out);
}

wf_status wf_compile_with(wf_session *s, wf_graph *graph, const wf_compile_options *options,
                          wf_exec **out)
{
    static const wf_compile_options defaults = {0};
    *out = NULL;
    WF_TRY(wf_device_check_ctx(s->device, graph->ctx, "the graph"));
    WF_TRY(wf_options_check(s->ctx, options));
    /* States are only ever appended, so a failed compile can cut the list back. */
    int states = s->state_count;
    wf_status status = check_writes(s, graph);
    if (status == WF_OK)
        status = s->device->ops->compile(s, graph, options ? options : &defaults, out);
    if (status == WF_OK)
        s->exec_count++;
    /* Remove the states it added: they would fix types and shapes for later graphs. */
    else
        while (s->state_count > states)
            state_free(s, s->states[--s->state_count]);
    return status;
}

/* ---- Inspection ---- */

void wf_info_fill(wf_info *out, const char *name, wf_type type, const wf_dims *shape, size_t bytes)
{
    *out = (wf_info){.name = name, .type = type, .rank = (int)shape->n, .bytes = bytes};
    memcpy(out->dim, shape->d, sizeof out->dim);
}

bool wf_session_state(const wf_session *s, int index, wf_info *out)
{
    if (index < 0 || index >= s->state_count)
        return false;
    const wf_stored_state *state = s->states[index];
    wf_info_fill(out, state->name, state->type, &state->shape, state->bytes);
    return true;
}

wf_status wf_session_check_files(const wf_session *s)
{
    for (const wf_session_file *f = s->files; f; f = f->next)
        if (wf_map_broken(f->map))
            return wf_fail(s->ctx, WF_ERR_IO,
                           "%s was truncated or became unreadable while its states were in use",
                           f->path);
    return WF_OK;
}
