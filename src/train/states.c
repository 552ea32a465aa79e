/* SPDX-License-Identifier: MIT */
/*
 * states.c - saves and loads states of a session as safetensors.
 *
 * Each state is copied through one host buffer of the largest state's size. Loading checks names,
 * types and shapes of all states before it writes the first, so a file that does not fit leaves the
 * session unchanged.
 */
#include "train/states.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "device/device.h"
#include "format/safetensors.h"

#define SUFFIX ".safetensors"
#define PART "rows." /* prefix of a state that is saved in part */

/* ---- Selection ---- */

typedef struct {
    const char *name; /* in the file */
    wf_type type;
    wf_dims shape;
    size_t bytes;
    wf_info state; /* in the session */
    size_t skip;   /* bytes of the state before the saved rows */
} part;

typedef struct {
    wf_arena arena; /* owns names */
    part *part;     /* [count] */
    int count;
    size_t largest; /* bytes of the largest state */
} wanted;

/* Sorts wide types first, for alignment, then by name, so that the bytes do not depend on the order
 * of compilation. */
static int compare_states(const void *a, const void *b)
{
    const part *x = a, *y = b;
    int wx = wf_type_get(x->type)->block_bytes, wy = wf_type_get(y->type)->block_bytes;
    return wx != wy ? (wx < wy) - (wx > wy) : strcmp(x->name, y->name);
}

/* Appends a state; from > 0: only its rows from there on, under the name rows.STATE. */
static wf_status add_part(wanted *w, const wf_info *state, int64_t from)
{
    part *p = &w->part[w->count++];
    *p = (part){.name = state->name,
                .type = state->type,
                .shape = wf_dims_make(state->rank, state->dim),
                .bytes = state->bytes,
                .state = *state};
    w->largest = state->bytes > w->largest ? state->bytes : w->largest;
    if (from == 0)
        return WF_OK;
    wf_assert(p->shape.n > 0 && from < p->shape.d[0]);
    p->skip = p->bytes / (size_t)p->shape.d[0] * (size_t)from;
    p->bytes -= p->skip;
    p->shape.d[0] -= from;
    size_t room = strlen(state->name) + sizeof PART, len = 0;
    char *name = wf_arena_alloc(&w->arena, room);
    if (!name)
        return WF_ERR_MEMORY;
    wf_text_append(name, room, &len, PART "%s", state->name);
    p->name = name;
    return WF_OK;
}

static void free_wanted(wf_session *s, wanted *w)
{
    wf_mem_free(s->ctx, w->part);
    wf_arena_free(&w->arena);
}

static wf_status list_states(wf_session *s, wf_states_want *want, void *user, wanted *out)
{
    wf_info info;
    int n = 0;
    *out = (wanted){0};
    wf_arena_init(&out->arena, s->ctx);
    while (wf_session_state(s, n, &info))
        n++;
    out->part = wf_mem_array(s->ctx, (size_t)n, sizeof *out->part);
    if (!out->part)
        return WF_ERR_MEMORY;
    for (int i = 0; i < n && wf_session_state(s, i, &info); i++) {
        int64_t from = want ? want(user, info.name) : 0;
        if (from >= 0)
            WF_TRY(add_part(out, &info, from));
    }
    if (out->count > 0)
        qsort(out->part, (size_t)out->count, sizeof *out->part, compare_states);
    return WF_OK;
}

/* ---- Writing ---- */

static wf_status write_states(wf_session *s, const wanted *w, wf_safetensors_writer *writer,
                              void *buffer)
{
    for (int i = 0; i < w->count; i++) {
        const part *p = &w->part[i];
        WF_TRY(wf_safetensors_write_tensor(writer, p->name, p->type, &p->shape));
    }
    WF_TRY(wf_safetensors_write_begin(writer));
    for (int i = 0; i < w->count; i++) {
        const part *p = &w->part[i];
        WF_TRY(wf_session_read(s, p->state.name, buffer, p->state.bytes));
        WF_TRY(wf_safetensors_write_data(writer, (char *)buffer + p->skip, p->bytes));
    }
    return wf_safetensors_write_end(writer);
}

static wf_status save(wf_session *s, const char *folder, const char *stem, const wanted *w)
{
    wf_safetensors_writer *writer;
    WF_TRY(wf_safetensors_write_new(s->ctx, folder, stem, 0, &writer));
    void *buffer = wf_mem_new(s->ctx, w->largest);
    wf_status status = buffer ? write_states(s, w, writer, buffer) : WF_ERR_MEMORY;
    wf_mem_free(s->ctx, buffer);
    wf_safetensors_write_free(writer);
    return status;
}

wf_status wf_states_save(wf_session *s, const char *folder, const char *file, wf_states_want *want,
                         void *user)
{
    wf_assert(wf_path_ends(file, SUFFIX));
    size_t length = strlen(file) - strlen(SUFFIX);
    char *stem = wf_mem_new(s->ctx, length + 1);
    wanted w;
    wf_status status = list_states(s, want, user, &w);
    if (status == WF_OK && !stem)
        status = WF_ERR_MEMORY;
    if (status == WF_OK) {
        memcpy(stem, file, length);
        status = save(s, folder, stem, &w);
    }
    free_wanted(s, &w);
    wf_mem_free(s->ctx, stem);
    return status;
}

/* ---- Reading ---- */

static wf_status check_state(wf_ctx *ctx, const char *path, const wf_stored *t, const part *want)
{
    if (t->type == want->type && wf_dims_equal(&t->shape, &want->shape))
        return WF_OK;
    char text[2][192];
    size_t len[2] = {0, 0};
    const wf_value have = {.type = t->type, .shape = t->shape},
                   needed = {.type = want->type, .shape = want->shape};
    wf_value_print(&have, text[0], sizeof text[0], &len[0]);
    wf_value_print(&needed, text[1], sizeof text[1], &len[1]);
    return wf_fail(ctx, WF_ERR_FORMAT, "cannot load '%s': its state '%s' is %s, not %s", path,
                   want->name, text[0], text[1]);
}

/* All wanted states must be in the file, and all states in the file must be wanted. */
static wf_status check_states(wf_ctx *ctx, const char *path, const wf_store *store, const wanted *w)
{
    for (int i = 0; i < w->count; i++) {
        const wf_stored *t = wf_store_find(store, w->part[i].name);
        if (!t)
            return wf_fail(ctx, WF_ERR_FORMAT, "cannot load '%s': the state '%s' is missing", path,
                           w->part[i].name);
        WF_TRY(check_state(ctx, path, t, &w->part[i]));
    }
    for (int i = 0; store->count > w->count && i < store->count; i++) {
        const char *name = store->tensor[i].name;
        bool known = false;
        for (int k = 0; k < w->count && !known; k++)
            known = strcmp(w->part[k].name, name) == 0;
        char shown[WF_TEXT_SHOWN];
        if (!known)
            return wf_fail(ctx, WF_ERR_FORMAT, "cannot load '%s': this run has no state '%s'", path,
                           wf_text_show(shown, name, strlen(name)));
    }
    return WF_OK;
}

/* Loads the saved rows. The other rows are already in the session. */
static wf_status take_part(wf_session *s, const part *p, const wf_stored *t)
{
    if (p->skip == 0)
        return wf_session_write(s, p->state.name, t->data, t->bytes);
    char *whole = wf_mem_new(s->ctx, p->state.bytes);
    wf_status status =
        whole ? wf_session_read(s, p->state.name, whole, p->state.bytes) : WF_ERR_MEMORY;
    if (status == WF_OK) {
        memcpy(whole + p->skip, t->data, p->bytes);
        status = wf_session_write(s, p->state.name, whole, p->state.bytes);
    }
    wf_mem_free(s->ctx, whole);
    return status;
}

/* Each tensor's pages are released after it was written: the file may be larger than memory. */
static wf_status load(wf_session *s, const char *path, wf_store *store, const wanted *w)
{
    WF_TRY(wf_safetensors_read(store, path));
    WF_TRY(wf_store_seal(store));
    WF_TRY(check_states(s->ctx, path, store, w));
    for (int i = 0; i < w->count; i++) {
        const wf_stored *t = wf_store_find(store, w->part[i].name);
        WF_TRY(take_part(s, &w->part[i], t));
        wf_map_forget(store->file[t->file].map, t->offset, t->bytes);
    }
    return wf_store_check(store);
}

wf_status wf_states_load(wf_session *s, const char *path, wf_states_want *want, void *user)
{
    wanted w;
    wf_store store;
    wf_store_init(&store, s->ctx);
    wf_status status = list_states(s, want, user, &w);
    if (status == WF_OK)
        status = load(s, path, &store, &w);
    free_wanted(s, &w);
    wf_store_free(&store);
    return status;
}
