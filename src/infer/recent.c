/* SPDX-License-Identifier: MIT */
/*
 * recent.c - see recent.h.
 *
 * Distinct tokens are in a dense array, so a pick reads them without gaps. A hash table with open
 * addressing and linear probing finds a token's index in that array. At most half of the table is
 * used, so every search ends at an empty slot.
 *
 * A prompt can be written so that its ids collide. Adding a token then takes time proportional to
 * the distinct tokens, which is still less than computing the token. Picks do not search the table.
 */
#include "infer/recent.h"

#include "base/mem.h"

#define FIRST_SLOTS 32  /* doubled when half full */
#define FIRST_TOKENS 64 /* of the ring; doubled when full */

/* Multiplies by 2^32 / golden ratio: neighbouring ids land far apart. */
static size_t home_of(const wf_recent *r, int32_t id)
{
    return (size_t)(((uint64_t)((uint32_t)id * 0x9E3779B9u) * r->slots) >> 32);
}

static size_t slot_after(const wf_recent *r, size_t slot)
{
    return (slot + 1) & (r->slots - 1);
}

/* Returns the slot of a token, or the empty slot where it belongs. */
static size_t find(const wf_recent *r, int32_t id)
{
    size_t slot = home_of(r, id);
    while (r->index[slot] > 0 && r->token[r->index[slot] - 1].id != id)
        slot = slot_after(r, slot);
    return slot;
}

/* ---- Growing ---- */

static wf_status grow_table(wf_ctx *ctx, wf_recent *r)
{
    size_t slots = r->slots ? 2 * r->slots : FIRST_SLOTS;
    wf_recent_token *token = wf_mem_grow(ctx, r->token, slots / 2 * sizeof *token);
    if (!token)
        return WF_ERR_MEMORY;
    r->token = token;
    uint32_t *index = wf_mem_array(ctx, slots, sizeof *index);
    if (!index)
        return WF_ERR_MEMORY;
    wf_mem_free(ctx, r->index);
    r->index = index;
    r->slots = slots;
    for (size_t i = 0; i < r->count; i++)
        index[find(r, token[i].id)] = (uint32_t)i + 1;
    return WF_OK;
}

static wf_status grow_ring(wf_ctx *ctx, wf_recent *r)
{
    size_t last = (size_t)r->last, room = r->room ? 2 * r->room : FIRST_TOKENS;
    room = room < last ? room : last;
    int32_t *ring = wf_mem_grow(ctx, r->ring, room * sizeof *ring);
    if (!ring)
        return WF_ERR_MEMORY;
    r->ring = ring;
    r->room = room;
    return WF_OK;
}

static bool is_full(const wf_recent *r)
{
    return r->last >= 0 && r->filled == (size_t)r->last;
}

/* Makes room for one more token. A full window with a distinct token at every position drops one of
 * them first. */
static wf_status make_room(wf_ctx *ctx, wf_recent *r)
{
    bool drops = is_full(r) && r->count == r->filled;
    if (r->count + !drops > r->slots / 2)
        WF_TRY(grow_table(ctx, r));
    return r->last >= 0 && r->filled == r->room && !is_full(r) ? grow_ring(ctx, r) : WF_OK;
}

/* ---- Adding and dropping ---- */

/* Empties a slot. Later tokens that would no longer be found move back. */
static void erase(wf_recent *r, size_t hole)
{
    size_t mask = r->slots - 1;
    for (size_t i = slot_after(r, hole); r->index[i] > 0; i = slot_after(r, i)) {
        size_t home = home_of(r, r->token[r->index[i] - 1].id);
        if (((i - home) & mask) < ((i - hole) & mask)) /* its home lies after the hole */
            continue;
        r->index[hole] = r->index[i];
        hole = i;
    }
    r->index[hole] = 0;
}

/* Removes one occurrence. A token without any is replaced by the last one of the array. */
static void drop(wf_recent *r, int32_t id)
{
    size_t slot = find(r, id), place = r->index[slot] - 1;
    if (--r->token[place].count > 0)
        return;
    erase(r, slot);
    wf_recent_token moved = r->token[--r->count];
    if (place == r->count)
        return;
    r->index[find(r, moved.id)] = (uint32_t)place + 1;
    r->token[place] = moved;
}

static void push_ring(wf_recent *r, int32_t id)
{
    if (is_full(r))
        drop(r, r->ring[r->at]);
    else
        r->filled++;
    r->ring[r->at] = id;
    r->at = r->at + 1 == (size_t)r->last ? 0 : r->at + 1;
}

wf_status wf_recent_add(wf_ctx *ctx, wf_recent *r, int32_t id)
{
    WF_TRY(make_room(ctx, r));
    if (r->last >= 0)
        push_ring(r, id);
    size_t slot = find(r, id);
    if (r->index[slot] == 0) {
        r->token[r->count++] = (wf_recent_token){.id = id};
        r->index[slot] = (uint32_t)r->count;
    }
    r->token[r->index[slot] - 1].count++;
    return WF_OK;
}

void wf_recent_free(wf_ctx *ctx, wf_recent *r)
{
    wf_mem_free(ctx, r->token);
    wf_mem_free(ctx, r->index);
    wf_mem_free(ctx, r->ring);
}
