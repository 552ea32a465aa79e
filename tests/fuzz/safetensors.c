/* SPDX-License-Identifier: MIT */
/*
 * safetensors.c - a safetensors file in memory. Input that starts as JSON is also read as an index
 * of shards, over a folder with two files of one tensor each, a and b.
 */
#include "fuzz.h"

#include <unistd.h>

#include "format/safetensors.h"

static char folder[] = "/tmp/weft-fuzz-XXXXXX", index_path[64];
static const char *const shards[] = {"a.safetensors", "b.safetensors"};

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    fuzz_check(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void remove_folder(void)
{
    char path[64];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, shards[i]);
        remove(path);
    }
    remove(index_path);
    rmdir(folder);
}

static void make_folder(void)
{
    char path[64], shard[128];
    fuzz_check(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    snprintf(index_path, sizeof index_path, "%s/index.json", folder);
    for (int i = 0; i < 2; i++) {
        int n =
            snprintf(shard + 8, sizeof shard - 8,
                     "{\"%c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 'a' + i);
        memset(shard, 0, 8);
        shard[0] = (char)n;
        memset(shard + 8 + n, 0, 4);
        snprintf(path, sizeof path, "%s/%s", folder, shards[i]);
        write_file(path, shard, (size_t)n + 12);
    }
}

static void look(wf_store *s)
{
    if (wf_store_seal(s) != WF_OK)
        return;
    for (int i = 0; i < s->count; i++) {
        const wf_stored *t = &s->tensor[i];
        fuzz_check(wf_store_find(s, t->name) == t);
        fuzz_touch(t->data, t->bytes);
    }
}

/* Files are slow: skips input without a map, which would be refused. */
static bool is_index(const uint8_t *data, size_t size)
{
    for (size_t i = 0; size > 0 && data[0] == '{' && i + 10 <= size; i++)
        if (memcmp(data + i, "weight_map", 10) == 0)
            return true;
    return false;
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_store s;
    int file;
    wf_store_init(&s, ctx);
    if (wf_store_memory(&s, "input", data, size, &file) == WF_OK &&
        wf_safetensors_read_file(&s, file) == WF_OK)
        look(&s);
    wf_store_free(&s);

    if (!is_index(data, size))
        return;
    write_file(index_path, data, size);
    wf_store_init(&s, ctx);
    if (wf_safetensors_read_index(&s, index_path) == WF_OK)
        look(&s);
    wf_store_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!index_path[0])
        make_folder();
    return fuzz_run(run, (fuzz_room){1 << 19, 512}, data, size);
}
