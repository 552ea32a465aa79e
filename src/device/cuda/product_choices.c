/* SPDX-License-Identifier: MIT */
/*
 * product_choices.c - the cache of tuned matmuls: products-GPU-DRIVER-LIBRARY.txt in the cache
 * folder.
 *
 * A line holds a key's fields, the way, nanoseconds, cuBLASLt's algorithm in hexadecimal, and a
 * checksum of all before it. Other lines are skipped. The algorithm is valid for one version of the
 * library, which the file name holds.
 *
 * The file is only a hint: is_good in product.c checks every choice before it is used, so a damaged
 * or foreign file costs time, not correctness.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "device/cuda/product_key.h"

enum { LINE = 1024, MOST = 4 << 20 /* bytes of a file */ };

/* ---- Reading ---- */

static bool read_number(const char **at, int64_t *out)
{
    char *end;
    *out = strtoll(*at, &end, 10);
    bool found = end > *at && *end == ' ';
    *at = end + found; /* skips the space */
    return found;
}

static bool read_algo(const char **at, wf_lt_algo *out)
{
    for (int i = 0; i < 8; i++) {
        char word[17] = {0}, *end;
        if (strlen(*at) < 16)
            return false;
        memcpy(word, *at, 16);
        out->data[i] = strtoull(word, &end, 16);
        if (end != word + 16)
            return false;
        *at += 16;
    }
    return *(*at)++ == ' ';
}

/* Returns false for any line that this version did not write completely. */
static bool read_line(const char *line, wf_product_entry *out)
{
    const char *at = line;
    int64_t way, ns;
    for (int i = 0; i < KEY_FIELDS; i++)
        if (!read_number(&at, &out->key.f[i]))
            return false;
    if (!read_number(&at, &way) || !read_number(&at, &ns) || !read_algo(&at, &out->algo))
        return false;
    out->way = (wf_product_way)way;
    out->us = (double)ns / 1000;
    /* WF_WAY_APART needs an epilogue. */
    return way >= 0 && way < WF_WAY_COUNT && ns > 0 &&
           !(way == WF_WAY_APART && out->key.f[KEY_LD_AUX] == 0) &&
           strtoull(at, NULL, 16) == wf_hash_fnv1a(WF_FNV1A, line, (size_t)(at - line));
}

/* A choice that this process has made already wins over the file's. */
static void enter_line(wf_cuda_products *all, const char *line)
{
    wf_product_entry read = {.way = WF_WAY_COUNT};
    if (!read_line(line, &read))
        return;
    wf_product_entry *e = wf_product_find(all, &read.key);
    if (!e || e->way != WF_WAY_COUNT)
        return;
    e->way = read.way;
    e->us = read.us;
    e->algo = read.algo;
}

static void read_file(wf_cuda_products *all)
{
    wf_file_stamp stamp;
    char *text;
    size_t bytes;
    if (!wf_file_look(all->path, &stamp) ||
        wf_file_read(all->ctx, all->path, MOST, &text, &bytes) != WF_OK)
        return;
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n"), *next = *end ? end + 1 : end;
        *end = 0;
        enter_line(all, line);
        line = next;
    }
    wf_mem_free(all->ctx, text);
}

/* Replaces characters that a file name cannot hold by '_'. */
static void clean(char *name)
{
    for (; *name; name++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", *name))
            *name = '_';
}

void wf_product_choices_open(wf_cuda_products *all)
{
    char folder[WF_CACHE_PATH], name[256];
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || !wf_cache_folder(all->ctx, folder))
        return;
    snprintf(name, sizeof name, "products-%s-%d-%zu.txt", all->device->name, driver,
             all->lt->version());
    clean(name);
    size_t room = strlen(folder) + strlen(name) + 2;
    all->path = wf_mem_new(all->ctx, room);
    if (!all->path)
        return;
    snprintf(all->path, room, "%s/%s", folder, name);
    read_file(all);
}

/* ---- Writing ---- */

static size_t write_line(char line[LINE], const wf_product_entry *e)
{
    size_t n = 0;
    for (int i = 0; i < KEY_FIELDS; i++)
        n += (size_t)snprintf(line + n, LINE - n, "%" PRId64 " ", e->key.f[i]);
    n += (size_t)snprintf(line + n, LINE - n, "%d %" PRId64 " ", (int)e->way,
                          (int64_t)(e->us * 1000) + 1); /* + 1: never 0, which would mean untimed */
    for (int i = 0; i < 8; i++)
        n += (size_t)snprintf(line + n, LINE - n, "%016" PRIx64, e->algo.data[i]);
    n += (size_t)snprintf(line + n, LINE - n, " ");
    return n + (size_t)snprintf(line + n, LINE - n, "%016" PRIx64 "\n",
                                wf_hash_fnv1a(WF_FNV1A, line, n));
}

/* Reads the file again first: other processes may have added lines meanwhile. */
void wf_product_choices_write(wf_cuda_products *all)
{
    if (!all->path)
        return;
    read_file(all);
    /* LINE bytes per entry, more than a line needs. */
    char *text = wf_mem_array(all->ctx, (size_t)all->count, LINE);
    size_t bytes = 0;
    for (int i = 0; text && i < all->count; i++)
        if (all->entries[i]->us > 0)
            bytes += write_line(text + bytes, all->entries[i]);
    const wf_piece piece = {text, bytes};
    if (text && wf_file_replace(all->ctx, all->path, &piece, 1) != WF_OK)
        wf_ctx_log(all->ctx, WF_LOG_WARN, "cannot save matmul timings: %s",
                   wf_ctx_message(all->ctx));
    wf_mem_free(all->ctx, text);
}
