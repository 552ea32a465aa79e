/* SPDX-License-Identifier: MIT */
/*
 * history.c - the curve of a run, and reading it from log.jsonl.
 *
 * The log is append-only, and a resumed run repeats steps. Each record therefore replaces those of
 * later steps, so steps are always in order and the last attempt wins. The log may come from
 * elsewhere: lines that are not records are counted and skipped, and the number of records is
 * limited.
 */
#include "train/history.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json_tree.h"
#include "base/mem.h"

/* Longer lines are not records: a sample is a few kilobytes. */
#define LONGEST_LINE ((size_t)1 << 20)
/* Several lines share an arena, until it holds this many bytes. */
#define ARENA_BYTES 8192

static wf_status check_room(wf_history *h, int count)
{
    if (count < WF_HISTORY_RECORDS)
        return WF_OK;
    return wf_fail(h->ctx, WF_ERR_FORMAT,
                   "the curve of the run has more than %d records, the limit", WF_HISTORY_RECORDS);
}

/* Returns 0 for a negative, huge or NaN number of a foreign log. */
static double or_zero(double x)
{
    return x >= 0 && x <= 1e18 ? x : 0;
}

/* A step that exists already rewinds: the run was resumed before it. */
wf_status wf_history_add_step(wf_history *h, const wf_train_step *p)
{
    wf_history_rewind(h, p->step - 1);
    WF_TRY(check_room(h, h->count));
    wf_history_step *grown = wf_mem_room(h->ctx, h->steps, h->count, &h->room, sizeof *h->steps);
    if (!grown)
        return WF_ERR_MEMORY;
    h->steps = grown;
    double before = h->count ? h->steps[h->count - 1].seconds : 0;
    h->steps[h->count++] = (wf_history_step){
        .step = p->step,
        .tokens = p->tokens,
        .seconds = before + or_zero(p->seconds),
        .loss = p->loss,
        .norm = (float)p->norm,
        .rate = (float)p->rate,
        .tokens_per_second = (float)p->tokens_per_second,
        .skipped = p->skipped < INT32_MAX ? (int32_t)p->skipped : INT32_MAX,
    };
    h->wanted = p->steps;
    return WF_OK;
}

/* A validation is placed at the tokens and the time of the last step before it. */
wf_status wf_history_add_valid(wf_history *h, int64_t step, double loss, double bits_per_byte)
{
    while (h->valid_count > 0 && h->valids[h->valid_count - 1].step >= step)
        h->valid_count--;
    WF_TRY(check_room(h, h->valid_count));
    wf_history_valid *grown =
        wf_mem_room(h->ctx, h->valids, h->valid_count, &h->valid_room, sizeof *h->valids);
    if (!grown)
        return WF_ERR_MEMORY;
    h->valids = grown;
    const wf_history_step *last = h->count ? &h->steps[h->count - 1] : NULL;
    h->valids[h->valid_count++] = (wf_history_valid){
        .step = step,
        .tokens = last ? last->tokens : 0,
        .seconds = last ? last->seconds : 0,
        .loss = loss,
        .bits_per_byte = bits_per_byte,
    };
    return WF_OK;
}

void wf_history_rewind(wf_history *h, int64_t step)
{
    while (h->count > 0 && h->steps[h->count - 1].step > step)
        h->count--;
    while (h->valid_count > 0 && h->valids[h->valid_count - 1].step > step)
        h->valid_count--;
}

void wf_history_free(wf_history *h)
{
    wf_mem_free(h->ctx, h->steps);
    wf_mem_free(h->ctx, h->valids);
    *h = (wf_history){.ctx = h->ctx};
}

/* The first of equal losses wins; NULL without a finite one. */
const wf_history_valid *wf_history_best(const wf_history *h)
{
    const wf_history_valid *best = NULL;
    for (int i = 0; i < h->valid_count; i++)
        if (isfinite(h->valids[i].loss) && (!best || h->valids[i].loss < best->loss))
            best = &h->valids[i];
    return best;
}

/* Weighted by time, so that short steps do not count more. */
double wf_history_speed(const wf_history *h)
{
    double tokens = 0, seconds = 0, before = 0;
    for (int i = 0; i < h->count; before = h->steps[i++].seconds) {
        const wf_history_step *s = &h->steps[i];
        if (!(s->tokens_per_second > 0) || !isfinite(s->tokens_per_second))
            continue;
        tokens += (double)s->tokens_per_second * (s->seconds - before);
        seconds += s->seconds - before;
    }
    return seconds > 0 ? tokens / seconds : 0;
}

/* ---- Reading ---- */

static bool is_count(const wf_json_node *node, int64_t *out)
{
    bool fine = node && node->kind == WF_JSON_NUMBER && node->whole && node->integer >= 0;
    if (fine)
        *out = node->integer;
    return fine;
}

/* Returns 0 if the key is missing. */
static int64_t count_of(const wf_json_node *record, const char *key)
{
    int64_t n = 0;
    is_count(wf_json_get(record, key), &n);
    return n;
}

static wf_status read_step(wf_history *h, const wf_json_node *record, int64_t step)
{
    return wf_history_add_step(
        h, &(wf_train_step){
               .step = step,
               .steps = count_of(record, "steps"),
               .tokens = count_of(record, "tokens"),
               .skipped = count_of(record, "skipped"),
               .loss = wf_json_get_number(record, "loss", NAN),
               .norm = wf_json_get_number(record, "norm", NAN),
               .rate = wf_json_get_number(record, "rate", NAN),
               .seconds = wf_json_get_number(record, "seconds", 0),
               .tokens_per_second = wf_json_get_number(record, "tokens_per_second", 0),
           });
}

/* "start" begins the run anew, "resume" continues at a step. Both drop what follows that step. */
static wf_status read_record(wf_history *h, const wf_json_node *record)
{
    const wf_json_node *event = wf_json_get(record, "event");
    int64_t step = 0;
    if (wf_json_is(event, "start")) {
        wf_history_rewind(h, -1);
        return WF_OK;
    }
    if (!event || event->kind != WF_JSON_STRING || !is_count(wf_json_get(record, "step"), &step)) {
        h->ignored++;
        return WF_OK;
    }
    if (wf_json_is(event, "resume"))
        wf_history_rewind(h, step);
    else if (wf_json_is(event, "step"))
        return read_step(h, record, step);
    else if (wf_json_is(event, "valid"))
        return wf_history_add_valid(h, step, wf_json_get_number(record, "loss", NAN),
                                    wf_json_get_number(record, "bits_per_byte", NAN));
    return WF_OK; /* an event of a later version */
}

/* Counts a line that is not JSON as ignored. Fails only with WF_ERR_MEMORY. */
static wf_status read_line(wf_history *h, wf_arena *arena, const char *path, const char *line,
                           size_t bytes)
{
    wf_json_node *record;
    if (bytes > LONGEST_LINE) {
        h->ignored++;
        return WF_OK;
    }
    wf_status status = wf_json_parse(arena, path, line, bytes, &record);
    if (status == WF_OK)
        return read_record(h, record);
    if (status == WF_ERR_MEMORY)
        return status;
    wf_ctx_clear(h->ctx);
    h->ignored++;
    return WF_OK;
}

wf_status wf_history_parse(wf_history *h, const char *what, const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes, *newline, *held = text;
    wf_status status = WF_OK;
    wf_arena arena;
    wf_arena_init(&arena, h->ctx);
    /* An incomplete last line is being written, or was when the process ended. */
    for (; status == WF_OK && at < end; at = newline + 1) {
        newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            break;
        if (newline > at)
            status = read_line(h, &arena, what, at, (size_t)(newline - at));
        if (newline - held > ARENA_BYTES) {
            wf_arena_free(&arena);
            held = newline;
        }
    }
    wf_arena_free(&arena);
    return status;
}

wf_status wf_history_read(wf_history *h, const char *path)
{
    wf_map *map;
    WF_TRY(wf_map_open(h->ctx, path, &map));
    wf_status status = wf_history_parse(h, path, (const char *)map->data, map->size);
    if (status == WF_OK && wf_map_broken(map))
        status = wf_fail(h->ctx, WF_ERR_IO, "cannot read '%s': it was truncated while it was read",
                         path);
    wf_map_close(map);
    return status;
}
