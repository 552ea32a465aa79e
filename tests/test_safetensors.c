/* SPDX-License-Identifier: MIT */
/*
 * test_safetensors.c - safetensors. Readers accept valid files, refuse inconsistent headers and
 * indices, and survive files cut or damaged at any byte. Written files read back, appear atomically
 * and conform strictly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/philox.h"
#include "format/safetensors.h"
#include "scratch.h"
#include "support.h"

#define DIMS(...) \
    wf_dims_make((int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})

/* ---- Handmade files ---- */

/* Writes the length, the header, and `data` bytes that count up from 0. */
static size_t build(char *out, const char *header, size_t data)
{
    size_t n = strlen(header);
    for (size_t i = 0; i < 8; i++)
        out[i] = (char)(n >> 8 * i);
    memcpy(out + 8, header, n);
    for (size_t i = 0; i < data; i++)
        out[8 + n + i] = (char)i;
    return 8 + n + data;
}

static const char *put(wt_scratch *s, const char *name, const char *header, size_t data)
{
    char bytes[4096];
    assert_true(strlen(header) + data + 8 <= sizeof bytes);
    return wt_put(s, name, bytes, build(bytes, header, data));
}

static wf_status read_all(wf_ctx *ctx, const char *path, wf_store *store)
{
    wf_store_init(store, ctx);
    wf_status status = wf_path_ends(path, ".json") ? wf_safetensors_read_index(store, path)
                                                   : wf_safetensors_read(store, path);
    return status == WF_OK ? wf_store_seal(store) : status;
}

static void refused(wf_ctx *ctx, const char *path, const char *part)
{
    wf_store store;
    wf_status status = read_all(ctx, path, &store);
    if (status == WF_OK)
        fail_msg("'%s' was read, not refused for: %s", path, part);
    wt_fails(ctx, status, status == WF_ERR_IO ? WF_ERR_IO : WF_ERR_FORMAT, part);
    wf_store_free(&store);
}

/* ---- Reading ---- */

static void reads(void **state)
{
    wt_scratch s;
    wf_store store;
    wt_scratch_make(&s);
    const char *path =
        put(&s, "a.safetensors",
            " {\"__metadata__\":{\"format\":\"pt\",\"x\":\"\"},\n"
            "\"b\":{\"shape\":[2,3],\"dtype\":\"F16\",\"data_offsets\":[8,20]},"
            "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
            "\"none\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
            "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[20,28],\"more\":null},"
            "\"\\u00e9\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[28,31]}} \n\t",
            31);
    wt_ok(*state, read_all(*state, path, &store));
    assert_int_equal(store.count, 5);
    static const char *const order[] = {"a", "none", "b", "scalar",
                                        "\xC3\xA9"}; /* as in the file */
    for (int i = 0; i < 5; i++)
        assert_string_equal(store.tensor[i].name, order[i]);
    const wf_stored *b = wf_store_find(&store, "b"), *i64 = wf_store_find(&store, "scalar");
    assert_int_equal(b->type, WF_F16);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(b->data[0], 8);
    assert_true(b->shape.n == 2 && b->shape.d[0] == 2 && b->shape.d[1] == 3);
    assert_int_equal(i64->type, WF_TYPE_NONE);
    assert_string_equal(i64->type_name, "I64");
    assert_int_equal(i64->shape.n, 0);
    assert_int_equal(i64->data[0], 20);
    assert_string_equal(wf_store_find(&store, "\xC3\xA9")->type_name, "F4");
    assert_int_equal(wf_store_find(&store, "none")->bytes, 0);
    assert_null(wf_store_find(&store, "__metadata__"));
    wf_store_free(&store);

    wt_ok(*state, read_all(*state, put(&s, "a.safetensors", "{}", 0), &store));
    assert_int_equal(store.count, 0);
    wf_store_free(&store);
    wt_scratch_remove(&s);
}

#define ENTRY(name, type, shape, range) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" range "}"
#define ONE(type, shape, range) "{" ENTRY("x", type, shape, range) "}"

static void refuses_headers(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *part;
    } cases[] = {
        {"", 0, "line 1"},
        {"[]", 0, "its header is not a JSON object"},
        {"null", 0, "its header is not a JSON object"},
        {"{\"x\":1}", 0, "tensor 'x' is not a JSON object"},
        {"{\"x\":{}}", 0, "tensor 'x' has no dtype"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
        {"{\"\xFF\":{}}", 0, "UTF-8"},
        {"{\"a\\u0000\":{}}", 0, "NUL"},
        {ONE("F32", "[1]", "[0,4]") "x", 4, "expected the end, found 'x'"},
        {"{" ENTRY("x", "F32", "[1]", "[0,4]") "," ENTRY("x", "F32", "[1]", "[4,8]") "}", 8,
         "duplicate key 'x'"},
        {"{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "duplicate key 'dtype'"},
        /* types and shapes */
        {ONE("F33", "[1]", "[0,4]"), 4, "dtype that safetensors does not define"},
        {ONE("f32", "[1]", "[0,4]"), 4, "dtype"},
        {ONE("F32\\u0000", "[1]", "[0,4]"), 4, "dtype"},
        {"{\"x\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype"},
        {ONE("F32", "[-1]", "[0,4]"), 4,
         "tensor 'x' has a dimension that is not an integer from 0 up"},
        {ONE("F32", "[1.0]", "[0,4]"), 4,
         "tensor 'x' has a dimension that is not an integer from 0 up"},
        {ONE("F32", "[9223372036854775808]", "[0,4]"), 4,
         "tensor 'x' has a dimension that is not an integer from 0 up"},
        {ONE("F32", "[\\\"1\\\"]", "[0,4]"), 4, "line 1"},
        {ONE("F32", "[true]", "[0,4]"), 4,
         "tensor 'x' has a dimension that is not an integer from 0 up"},
        {ONE("F32", "1", "[0,4]"), 4, "no shape"},
        {ONE("F32", "[1,1,1,1,1,1,1]", "[0,4]"), 4, "tensor 'x' has more than 6 dimensions"},
        {ONE("F32", "[4294967296,4294967296]", "[0,4]"), 4,
         "tensor 'x' has too many elements for 64 bits"},
        {ONE("F32", "[4294967296,4294967296,0]", "[0,0]"), 0,
         "tensor 'x' has too many elements for 64 bits"},
        {ONE("F32", "[4611686018427387904]", "[0,0]"), 0,
         "tensor 'x' has too many elements for 64 bits"},
        {ONE("F32", "[9223372036854775807,3]", "[0,4]"), 4,
         "tensor 'x' has too many elements for 64 bits"},
        {ONE("F4", "[3]", "[0,2]"), 2, "whole bytes"},
        /* ranges */
        {ONE("F32", "[1]", "[0]"), 4, "data_offsets"},
        {ONE("F32", "[1]", "[0,4,8]"), 4, "data_offsets"},
        {ONE("F32", "[1]", "[4,0]"), 4, "tensor 'x' has data_offsets that are not a range"},
        {ONE("F32", "[1]", "[-4,0]"), 4, "tensor 'x' has data_offsets that are not a range"},
        {ONE("F32", "[1]", "[0,4.0]"), 4, "tensor 'x' has data_offsets that are not a range"},
        {ONE("F32", "[1]", "[0,\"4\"]"), 4, "tensor 'x' has data_offsets that are not a range"},
        {ONE("F32", "[1]", "[18446744073709551612,0]"), 4,
         "tensor 'x' has data_offsets that are not a range"},
        {ONE("F32", "[2]", "[0,8]"), 7, "tensor 'x' ends past the end of the file"},
        {ONE("F32", "[1]", "[9223372036854775803,9223372036854775807]"), 4,
         "tensor 'x' ends past the end of the file"},
        {ONE("F32", "[1]", "[0,8]"), 8,
         "tensor 'x' has data_offsets that do not match its dtype and shape"},
        {ONE("F32", "[2]", "[0,4]"), 4,
         "tensor 'x' has data_offsets that do not match its dtype and shape"},
        {ONE("F32", "[1]", "[0,4]"), 5, "1 byte at its end belongs to no tensor"},
        {"{}", 3, "3 bytes at its end belong to no tensor"},
        {ONE("F32", "[1]", "[4,8]"), 8, "does not begin where"},
        {"{" ENTRY("x", "U8", "[4]", "[0,4]") "," ENTRY("y", "U8", "[4]", "[5,9]") "}", 9,
         "tensor 'y' does not begin where"},
        {"{" ENTRY("x", "U8", "[4]", "[0,4]") "," ENTRY("y", "U8", "[4]", "[3,7]") "}", 7,
         "tensor 'y' overlaps"},
        {"{" ENTRY("x", "U8", "[4]", "[0,4]") "," ENTRY("y", "U8", "[4]", "[0,4]") "}", 4,
         "overlaps"},
        {"{" ENTRY("x", "U8", "[4]", "[0,4]") "," ENTRY("y", "U8", "[0]", "[2,2]") "}", 4,
         "overlaps"},
    };
    wt_scratch s;
    wt_scratch_make(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(*state, put(&s, "a.safetensors", cases[i].header, cases[i].data), cases[i].part);
    wt_scratch_remove(&s);
}

static void refuses_lengths(void **state)
{
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    wt_scratch s;
    wt_scratch_make(&s);
    refused(*state, wt_path(&s, "a.safetensors"), "cannot open");
    refused(*state, wt_put(&s, "a.safetensors", "", 0), "a file of 0 bytes is too short");
    refused(*state, wt_put(&s, "a.safetensors", "\2\0\0\0\0\0\0", 7),
            "a file of 7 bytes is too short");
    refused(*state, wt_put(&s, "a.safetensors", "\2\0\0\0\0\0\0\0{", 9), "inside its header");
    refused(*state, wt_put(&s, "a.safetensors", "\0\0\0\0\0\0\0\x80{}", 10),
            "its header of 9223372036854775808 bytes exceeds the limit");
    refused(*state, wt_put(&s, "a.safetensors", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10),
            "its header of 18446744073709551615 bytes exceeds the limit");
    refused(*state, wt_put(&s, "a.safetensors", "\x01\xE1\xF5\x05\0\0\0\0{}", 10),
            "its header of 100000001 bytes exceeds the limit");
    refused(*state, wt_put(&s, "a.safetensors", "\x00\xE1\xF5\x05\0\0\0\0{}", 10),
            "inside its header");
    refused(*state, wt_put(&s, "a.safetensors", "\3\0\0\0\0\0\0\0{}\0", 11), "the byte 0x00");
    refused(*state, wt_put(&s, "a.safetensors", lfs, sizeof lfs - 1), "Git LFS");
    wt_scratch_remove(&s);
}

/* ---- Indices ---- */

#define INDEX(map) "{\"metadata\":{\"total_size\":8},\"weight_map\":" map "}"

static void reads_index(void **state)
{
    wt_scratch s;
    wf_store store;
    wt_scratch_make(&s);
    put(&s, "2.safetensors",
        "{" ENTRY("a", "U8", "[4]", "[0,4]") "," ENTRY("z", "U8", "[2]", "[4,6]") "}", 6);
    put(&s, "1.safetensors", ONE("F32", "[1]", "[0,4]"), 4);
    const char *index = wt_put_text(
        &s, "i.json",
        INDEX("{\"z\":\"2.safetensors\",\"x\":\"1.safetensors\",\"a\":\"2.safetensors\"}"));
    wt_ok(*state, read_all(*state, index, &store));
    assert_int_equal(store.files, 2);
    assert_int_equal(store.count, 3);
    assert_int_equal(wf_store_find(&store, "x")->file, 0);
    assert_int_equal(wf_store_find(&store, "z")->data[0], 4);
    wf_store_free(&store);
    wt_scratch_remove(&s);
}

static void refuses_indices(void **state)
{
    static const struct {
        const char *index, *part;
    } cases[] = {
        {"", "i.json', line 1"},
        {"[]", "weight_map"},
        {"{}", "weight_map"},
        {INDEX("[]"), "weight_map"},
        {INDEX("{}"), "weight_map"},
        {INDEX("{\"x\":1}"), "'x' is not mapped to a file name"},
        {INDEX("{\"x\\u0000\":\"1.safetensors\"}"), "NUL"},
        {INDEX("{\"x\":\"../1.safetensors\"}"), "'../1.safetensors' is not a plain file name"},
        {INDEX("{\"x\":\"../../etc/passwd\"}"), "'../../etc/passwd' is not a plain file name"},
        {INDEX("{\"x\":\"/etc/passwd\"}"), "'/etc/passwd' is not a plain file name"},
        {INDEX("{\"x\":\"a/b.safetensors\"}"), "'a/b.safetensors' is not a plain file name"},
        {INDEX("{\"x\":\"a\\\\b.safetensors\"}"), "not a plain file name"},
        {INDEX("{\"x\":\"..\"}"), "'..' is not a plain file name"},
        {INDEX("{\"x\":\".\"}"), "'.' is not a plain file name"},
        {INDEX("{\"x\":\"\"}"), "'' is not a plain file name"},
        {INDEX("{\"x\":\"1.safetensors\\u0000\"}"), "not a plain file name"},
        {INDEX("{\"x\":\"1.safetensors\",\"y\":\"2.safetensors\"}"),
         "2.safetensors': it does not exist, but"},
        {INDEX("{\"x\":\"1.safetensors\",\"w\":\"1.safetensors\"}"),
         "tensor 'w' is missing in '1.safetensors'"},
        {INDEX("{\"x\":\"1.safetensors\",\"y\":\"1.safetensors\"}"),
         "tensor 'y' is missing in '1.safetensors'"},
        {INDEX("{\"a\":\"3.safetensors\"}"),
         "'3.safetensors' has a tensor 'b' that the index does not list"},
        {INDEX("{\"b\":\"3.safetensors\"}"),
         "'3.safetensors' has a tensor 'a' that the index does not list"},
        {INDEX("{\"x\":\"1.safetensors\",\"a\":\"4.safetensors\"}"), "4.safetensors"},
        {INDEX("{\"x\":\"1.safetensors\",\"x\":\"1.safetensors\"}"), "duplicate key 'x'"},
    };
    wt_scratch s;
    wt_scratch_make(&s);
    put(&s, "1.safetensors", ONE("F32", "[1]", "[0,4]"), 4);
    put(&s, "3.safetensors",
        "{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("b", "U8", "[1]", "[1,2]") "}", 2);
    wt_put_text(&s, "4.safetensors", "nothing good");
    refused(*state, wt_path(&s, "none.json"), "cannot open");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(*state, wt_put_text(&s, "i.json", cases[i].index), cases[i].part);
    wt_scratch_remove(&s);
}

/* ---- Writing ---- */

#define MOST 40

typedef struct {
    char name[MOST][24];
    wf_type type[MOST];
    wf_dims shape[MOST];
    size_t bytes[MOST], start[MOST]; /* offsets of its contents in data */
    int count;
    size_t total;
    uint8_t data[1 << 16];
} model;

static void make_model(model *m, wf_rng *rng)
{
    static const wf_type types[] = {WF_F32,  WF_F16, WF_BF16, WF_E4M3,
                                    WF_E5M2, WF_I32, WF_I8,   WF_U8};
    m->total = 0;
    m->count = (int)wf_rng_below(rng, MOST);
    for (int i = 0; i < m->count; i++) {
        snprintf(m->name[i], sizeof m->name[i], "%d.\"\\/\n\xC3\xA9.%d", (int)wf_rng_below(rng, 10),
                 i);
        m->type[i] = types[wf_rng_below(rng, 8)];
        m->shape[i] = (wf_dims){.n = (int64_t)wf_rng_below(rng, WF_MAX_RANK + 1)};
        for (int64_t k = 0; k < m->shape[i].n; k++)
            m->shape[i].d[k] =
                (int64_t)wf_rng_below(rng, 8) + (wf_rng_below(rng, 30) != 0) * (k < 3);
        while (m->shape[i].n > 3) /* keeps the element count small */
            m->shape[i].d[--m->shape[i].n] = 0;
        m->bytes[i] = wf_type_bytes(m->type[i], wf_dims_count(&m->shape[i]));
        m->start[i] = m->total;
        m->total += m->bytes[i];
        assert_true(m->total <= sizeof m->data);
    }
    for (size_t i = 0; i < m->total; i++)
        m->data[i] = (uint8_t)wf_rng_u32(rng);
}

/* Writes in pieces of up to `piece` bytes; 0: all at once. */
static wf_status write_model(wf_ctx *ctx, const char *folder, const model *m, uint64_t shard_bytes,
                             size_t piece)
{
    wf_safetensors_writer *w;
    WF_TRY(wf_safetensors_write_new(ctx, folder, "model", shard_bytes, &w));
    wf_status status = WF_OK;
    for (int i = 0; i < m->count && status == WF_OK; i++)
        status = wf_safetensors_write_tensor(w, m->name[i], m->type[i], &m->shape[i]);
    if (status == WF_OK)
        status = wf_safetensors_write_begin(w);
    for (size_t at = 0, n; at < m->total && status == WF_OK; at += n) {
        n = piece && piece < m->total - at ? piece : m->total - at;
        status = wf_safetensors_write_data(w, m->data + at, n);
    }
    if (status == WF_OK)
        status = wf_safetensors_write_end(w);
    wf_safetensors_write_free(w);
    return status;
}

static void expect_model(const wf_store *store, const model *m)
{
    assert_int_equal(store->count, m->count);
    for (int i = 0; i < m->count; i++) {
        const wf_stored *t = wf_store_find(store, m->name[i]);
        assert_non_null(t);
        assert_ptr_equal(t, &store->tensor[i]); /* the order is kept */
        assert_int_equal(t->type, m->type[i]);
        assert_true(wf_dims_equal(&t->shape, &m->shape[i]));
        assert_int_equal(t->bytes, m->bytes[i]);
        assert_memory_equal(t->data, m->data + m->start[i], t->bytes);
    }
}

/* The strict form: data aligned to 8 bytes, '{' first, padding by spaces. */
static void expect_strict(const wf_store *store)
{
    for (int i = 0; i < store->files; i++) {
        const uint8_t *data = store->file[i].map->data;
        size_t n = (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16;
        assert_int_equal(n % 8, 0);
        assert_int_equal(data[8], '{');
        while (data[8 + n - 1] == ' ')
            n--;
        assert_int_equal(data[8 + n - 1], '}');
    }
}

static void round_trips(void **state)
{
    model *m = malloc(sizeof *m);
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    for (int round = 0; round < 60; round++) {
        wt_scratch s;
        wf_store store;
        wt_scratch_make(&s);
        make_model(m, &rng);
        uint64_t limit = wf_rng_below(&rng, 3) ? wf_rng_below(&rng, 2 * m->total + 2) : 0;
        wt_ok(*state, write_model(*state, s.folder, m, limit, wf_rng_below(&rng, 3) * 37));
        int files = wt_entries(&s);
        const char *path =
            wt_path(&s, files == 1 ? "model.safetensors" : "model.safetensors.index.json");
        wt_ok(*state, read_all(*state, path, &store));
        assert_int_equal(store.files, files == 1 ? 1 : files - 1);
        assert_true(files == 1 || limit > 0);
        expect_model(&store, m);
        expect_strict(&store);
        /* No shard exceeds the requested size, unless it holds a single tensor. */
        uint64_t in_shard = 0;
        for (int i = 0, n = 0; i < store.count; i++) {
            bool first = i == 0 || store.tensor[i].file != store.tensor[i - 1].file;
            n = first ? 1 : n + 1;
            in_shard = (first ? 0 : in_shard) + store.tensor[i].bytes;
            assert_true(limit == 0 || n == 1 || in_shard <= limit);
        }
        wf_store_free(&store);
        wt_scratch_remove(&s);
    }
    free(m);
}

static void small_model(model *m)
{
    static const uint8_t counts[] = {3, 2, 4};
    memset(m, 0, sizeof *m);
    m->count = 3;
    for (int i = 0; i < 3; i++) {
        snprintf(m->name[i], sizeof m->name[i], "layer.%d", i);
        m->type[i] = WF_F32;
        m->shape[i] = DIMS(counts[i]);
        m->start[i] = m->total;
        m->bytes[i] = 4u * counts[i];
        m->total += m->bytes[i];
    }
    for (size_t i = 0; i < m->total; i++)
        m->data[i] = (uint8_t)(i + 1);
}

/* The bytes of a file equal the reference implementation's, except for the order of tensors. */
static void writes_strictly(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"layer.0\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
        "\"layer.1\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]},"
        "\"layer.2\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[20,36]}}";
    model *m = malloc(sizeof *m);
    wt_scratch s;
    wt_scratch_make(&s);
    small_model(m);
    wt_ok(*state, write_model(*state, s.folder, m, 0, 5));
    char *text;
    size_t size, padded = (sizeof header - 1 + 7) / 8 * 8;
    wt_ok(*state, wf_file_read(*state, wt_path(&s, "model.safetensors"), 4096, &text, &size));
    assert_int_equal(size, 8 + padded + 36);
    assert_int_equal((uint8_t)text[0], padded);
    assert_memory_equal(text + 1, "\0\0\0\0\0\0\0", 7);
    assert_memory_equal(text + 8, header, sizeof header - 1);
    assert_memory_equal(text + 8 + padded, m->data, 36);
    wf_mem_free(*state, text);

    wt_ok(*state, write_model(*state, s.folder, m, 20, 0));
    wt_ok(*state,
          wf_file_read(*state, wt_path(&s, "model.safetensors.index.json"), 4096, &text, &size));
    assert_string_equal(text,
                        "{\n  \"metadata\": {\n    \"total_size\": 36\n  },\n  \"weight_map\": {\n"
                        "    \"layer.0\": \"model-00001-of-00002.safetensors\",\n"
                        "    \"layer.1\": \"model-00001-of-00002.safetensors\",\n"
                        "    \"layer.2\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
    wf_mem_free(*state, text);
    wt_scratch_remove(&s);
    free(m);
}

/* Writing one form (single file or shards) removes the other. */
static void forms_replace_each_other(void **state)
{
    model *m = malloc(sizeof *m);
    wt_scratch s;
    wt_scratch_make(&s);
    small_model(m);
    wt_ok(*state, write_model(*state, s.folder, m, 0, 0));
    assert_int_equal(wt_entries(&s), 1);
    wt_ok(*state, write_model(*state, s.folder, m, 12, 0));
    assert_int_equal(wf_path_look(wt_path(&s, "model.safetensors")), WF_PATH_NONE);
    assert_int_equal(wt_entries(&s), 4);
    wt_ok(*state, write_model(*state, s.folder, m, 1000, 0));
    assert_int_equal(wf_path_look(wt_path(&s, "model.safetensors.index.json")), WF_PATH_NONE);
    assert_int_equal(wf_path_look(wt_path(&s, "model.safetensors")), WF_PATH_FILE);
    wt_scratch_remove(&s);
    free(m);
}

/* Files of another stem in the same folder are left alone. */
static void keeps_to_its_stem(void **state)
{
    model *m = malloc(sizeof *m);
    const wf_dims shape = DIMS(2);
    const float numbers[4] = {1, 2, 3, 4};
    wt_scratch s;
    wt_scratch_make(&s);
    small_model(m);
    wt_ok(*state, write_model(*state, s.folder, m, 0, 0));
    for (int files = 1; files <= 2; files++) {
        wf_safetensors_writer *w;
        wt_ok(*state,
              wf_safetensors_write_new(*state, s.folder, "optimizer", files == 2 ? 8 : 0, &w));
        wt_ok(*state, wf_safetensors_write_tensor(w, "a", WF_F32, &shape));
        wt_ok(*state, wf_safetensors_write_tensor(w, "b", WF_F32, &shape));
        wt_ok(*state, wf_safetensors_write_begin(w));
        wt_ok(*state, wf_safetensors_write_data(w, numbers, sizeof numbers));
        wt_ok(*state, wf_safetensors_write_end(w));
        wf_safetensors_write_free(w);
        const char *name =
            files == 2 ? "optimizer-00002-of-00002.safetensors" : "optimizer.safetensors";
        assert_int_equal(wf_path_look(wt_path(&s, name)), WF_PATH_FILE);
        assert_int_equal(wt_entries(&s), files == 2 ? 4 : 2);
        assert_int_equal(wf_path_look(wt_path(&s, "model.safetensors")), WF_PATH_FILE);
    }
    wt_scratch_remove(&s);
    free(m);
}

/* Before the end no new file is visible, and the old file stays. */
static void appears_whole(void **state)
{
    model *m = malloc(sizeof *m);
    wf_store store;
    wt_scratch s;
    wt_scratch_make(&s);
    small_model(m);
    wt_ok(*state, write_model(*state, s.folder, m, 12, 0));
    assert_int_equal(wt_entries(&s), 4);
    wf_safetensors_writer *w;
    for (size_t give = 0; give <= 37; give++) {
        wt_ok(*state, wf_safetensors_write_new(*state, s.folder, "model", 12, &w));
        for (int i = 0; i < 3; i++)
            wt_ok(*state, wf_safetensors_write_tensor(w, m->name[i], WF_F32, &m->shape[i]));
        wt_ok(*state, wf_safetensors_write_begin(w));
        const uint8_t zeros[37] = {0};
        wf_status status = wf_safetensors_write_data(w, zeros, give);
        if (give == 37)
            wt_fails(*state, status, WF_ERR_USAGE, "1 byte too many: all tensors are complete");
        else
            wt_ok(*state, status);
        if (give < 36)
            wt_fails(*state, wf_safetensors_write_end(w), WF_ERR_USAGE,
                     "some tensors have no data");
        wf_safetensors_write_free(w);
        assert_int_equal(wt_entries(&s), 4);
        wt_ok(*state, read_all(*state, wt_path(&s, "model.safetensors.index.json"), &store));
        expect_model(&store, m);
        wf_store_free(&store);
    }
    wt_scratch_remove(&s);
    free(m);
}

static void refuses_to_write(void **state)
{
    wt_scratch s;
    wf_safetensors_writer *w;
    wt_scratch_make(&s);
    wf_dims one = DIMS(1), odd = DIMS(-1), huge = DIMS(INT64_MAX / 4, 4);
    wt_ok(*state, wf_safetensors_write_new(*state, wt_path(&s, "new"), "model", 0, &w));
    wt_fails(*state, wf_safetensors_write_tensor(w, "a", WF_Q4_K, &one), WF_ERR_USAGE,
             "tensor 'a'");
    wt_fails(*state, wf_safetensors_write_tensor(w, "a", WF_TYPE_NONE, &one), WF_ERR_USAGE, "type");
    wt_fails(*state, wf_safetensors_write_tensor(w, "\xFF", WF_F32, &one), WF_ERR_USAGE, "name");
    wt_fails(*state, wf_safetensors_write_tensor(w, "__metadata__", WF_F32, &one), WF_ERR_USAGE,
             "name");
    wt_fails(*state, wf_safetensors_write_tensor(w, "a", WF_F32, &odd), WF_ERR_USAGE, "shape");
    wt_fails(*state, wf_safetensors_write_tensor(w, "a", WF_F32, &huge), WF_ERR_USAGE, "shape");
    wt_ok(*state, wf_safetensors_write_tensor(w, "a", WF_F32, &one));
    wt_ok(*state, wf_safetensors_write_tensor(w, "a", WF_F32, &one));
    wt_fails(*state, wf_safetensors_write_begin(w), WF_ERR_USAGE, "'a' to ");
    wf_safetensors_write_free(w);
    assert_int_equal(wt_entries(&s), 0);

    wt_ok(*state, wf_safetensors_write_new(*state, wt_path(&s, "no/folder"), "model", 0, &w));
    wt_fails(*state, wf_safetensors_write_begin(w), WF_ERR_IO, "cannot create the folder");
    wf_safetensors_write_free(w);
    wt_scratch_remove(&s);
}

/* ---- Damage ---- */

static void cut_anywhere(void **state)
{
    model *m = malloc(sizeof *m);
    wt_scratch s;
    wt_scratch_make(&s);
    small_model(m);
    wt_ok(*state, write_model(*state, s.folder, m, 0, 0));
    char *text;
    size_t size;
    wt_ok(*state, wf_file_read(*state, wt_path(&s, "model.safetensors"), 4096, &text, &size));
    for (size_t n = 0; n < size; n++)
        refused(*state, wt_put(&s, "cut.safetensors", text, n), "cannot read '");
    wf_mem_free(*state, text);
    wt_scratch_remove(&s);
    free(m);
}

static void damaged_anywhere(void **state)
{
    model *m = malloc(sizeof *m);
    wf_rng rng;
    wt_scratch s;
    wt_scratch_make(&s);
    wf_rng_init(&rng, wt_seed(), 2);
    small_model(m);
    wt_ok(*state, write_model(*state, s.folder, m, 0, 0));
    char *text;
    size_t size;
    wt_ok(*state, wf_file_read(*state, wt_path(&s, "model.safetensors"), 4096, &text, &size));
    uint8_t *bad = malloc(size); /* exact size, so that AddressSanitizer sees a read past the end */
    for (int round = 0; round < 20000; round++) {
        memcpy(bad, text, size);
        for (uint64_t flips = 1 + wf_rng_below(&rng, 3); flips > 0; flips--) {
            size_t at = (size_t)wf_rng_below(&rng, size);
            bad[at] = wf_rng_below(&rng, 2) ? (uint8_t)wf_rng_u32(&rng)
                                            : (uint8_t)('0' + wf_rng_below(&rng, 10));
        }
        wf_store store;
        int file;
        wf_store_init(&store, *state);
        wt_ok(*state, wf_store_memory(&store, "a.safetensors", bad, size, &file));
        wf_status status = wf_safetensors_read_file(&store, file);
        if (status != WF_OK)
            wt_fails(*state, status, WF_ERR_FORMAT, "cannot read 'a.safetensors'");
        unsigned sum = 0;
        for (int i = 0; i < store.count; i++)
            for (size_t k = 0; k < store.tensor[i].bytes; k++)
                sum += store.tensor[i].data[k];
        assert_true(sum < 256 * 36);
        wf_store_free(&store);
    }
    free(bad);
    wf_mem_free(*state, text);
    wt_scratch_remove(&s);
    free(m);
}

static void out_of_memory(void **state)
{
    wf_ctx *ctx = *state;
    model *m = malloc(sizeof *m);
    wf_rng rng;
    wf_rng_init(&rng, 1, 1);
    do
        make_model(m, &rng);
    while (m->count < 10);
    for (int form = 0; form < 4; form++) { /* write, read; single file, shards */
        wt_scratch s;
        wt_scratch_make(&s);
        uint64_t limit = form < 2 ? 0 : m->total / 3;
        if (form % 2)
            wt_ok(ctx, write_model(ctx, s.folder, m, limit, 0));
        bool reached = true;
        for (uint64_t nth = 1; reached; nth++) {
            wf_store store;
            wf_store_init(&store, ctx);
            wf_ctx_fail_allocation(ctx, nth);
            wf_status status = form % 2
                                   ? read_all(ctx,
                                              wt_path(&s, limit ? "model.safetensors.index.json"
                                                                : "model.safetensors"),
                                              &store)
                                   : write_model(ctx, s.folder, m, limit, 0);
            reached = ctx->fail_in_calls == 0;
            wf_ctx_fail_allocation(ctx, 0);
            wf_store_free(&store);
            if (reached)
                wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
            else
                wt_ok(ctx, status);
            assert_int_equal(wt_live_blocks(ctx), 0);
            assert_true(reached || nth > 5);
        }
        wt_scratch_remove(&s);
    }
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(reads),
        wt_test(refuses_headers),
        wt_test(refuses_lengths),
        wt_test(reads_index),
        wt_test(refuses_indices),
        wt_test(round_trips),
        wt_test(writes_strictly),
        wt_test(forms_replace_each_other),
        wt_test(keeps_to_its_stem),
        wt_test(appears_whole),
        wt_test(refuses_to_write),
        wt_test(cut_anywhere),
        wt_test(damaged_anywhere),
        wt_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
