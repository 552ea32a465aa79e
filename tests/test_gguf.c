/* SPDX-License-Identifier: MIT */
/*
 * test_gguf.c - writes and reads GGUF files: values, tensors, parts, and errors of the caller and
 * of the disk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/philox.h"
#include "format/gguf.h"
#include "support.h"

static char folder[64];

/* Removes the files of the folder and returns how many there were. */
static int empty_folder(void)
{
    int n = 0;
    char path[512];
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            unlink(path);
            n++;
        }
    closedir(d);
    return n;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weft-gguf-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[4][160];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void read_all(wf_ctx *ctx, const char *path, char **text, size_t *size)
{
    wt_ok(ctx, wf_file_read(ctx, path, 64 << 20, text, size));
}

/* ---- Byte layout ---- */

/* Compares every field with the bytes that the format specifies. */
static void test_bytes(void **state)
{
    wf_ctx *ctx = *state;
    static const char wanted[] = "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0"
                                 "\1\0\0\0\0\0\0\0i\3\0\0\0\xfe\xff"
                                 "\1\0\0\0\0\0\0\0f\6\0\0\0\0\0\xc0\x3f"
                                 "\1\0\0\0\0\0\0\0t\11\0\0\0\10\0\0\0\1\0\0\0\0\0\0\0"
                                 "\2\0\0\0\0\0\0\0hi"
                                 "\21\0\0\0\0\0\0\0general.alignment\4\0\0\0\20\0\0\0"
                                 "\1\0\0\0\0\0\0\0w\2\0\0\0\3\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
                                 "\30\0\0\0\0\0\0\0\0\0\0\0"
                                 "\0\0\0\0\0\0\0\0\0\0\0"
                                 "abcdef\0\0\0\0\0\0\0\0\0\0";
    const wf_gguf_text text = {"hi", 2};
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_write_new(ctx, in_folder("a.gguf"),
                                 &(wf_gguf_write_options){.alignment = 16}, &w));
    wt_ok(ctx, wf_gguf_write_int(w, "i", WF_GGUF_I16, -2));
    wt_ok(ctx, wf_gguf_write_float(w, "f", 1.5));
    wt_ok(ctx, wf_gguf_write_texts(w, "t", &text, 1));
    wt_ok(ctx, wf_gguf_write_tensor(w, "w", WF_I8, &(wf_dims){.n = 2, .d = {2, 3}}));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_data(w, "abcdef", 6));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    char *got;
    size_t size;
    read_all(ctx, in_folder("a.gguf"), &got, &size);
    assert_memory_equal(got, wanted, sizeof wanted - 1 < size ? sizeof wanted - 1 : size);
    assert_int_equal(size, sizeof wanted - 1);
    wf_mem_free(ctx, got);
    assert_int_equal(empty_folder(), 1);
}

/* ---- Random files ---- */

#define MAX_TENSORS 40

typedef struct {
    wf_rng rng;
    int tensors;
    wf_type type[MAX_TENSORS];
    wf_dims shape[MAX_TENSORS];
    size_t bytes[MAX_TENSORS];
    char name[MAX_TENSORS][64];
} plan;

static int64_t draw(plan *p, int64_t n)
{
    return (int64_t)wf_rng_below(&p->rng, (uint64_t)n);
}

static uint8_t byte_of(int tensor, size_t at)
{
    return (uint8_t)((unsigned)tensor * 37 + at * 2654435761u / 4096);
}

/* Writes pairs of all kinds. It depends on the seed only, so two writers with one seed write the
 * same. */
static wf_status write_pairs(wf_gguf_writer *w, plan *p)
{
    static const wf_gguf_kind ints[] = {WF_GGUF_U8,  WF_GGUF_I8,  WF_GGUF_U16, WF_GGUF_I16,
                                        WF_GGUF_U32, WF_GGUF_I32, WF_GGUF_U64, WF_GGUF_I64};
    static const wf_gguf_kind all[] = {WF_GGUF_U8,  WF_GGUF_I16, WF_GGUF_U32,
                                       WF_GGUF_F32, WF_GGUF_F64, WF_GGUF_I64};
    char bytes[512], key[64];
    for (int i = 0, n = (int)draw(p, 30); i < n; i++) {
        wf_gguf_text texts[20];
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (char)draw(p, 256);
        size_t count = (size_t)draw(p, 20), len = (size_t)draw(p, 20);
        for (size_t k = 0; k < count; k++)
            texts[k] = (wf_gguf_text){bytes + k, (size_t)draw(p, 100)};
        snprintf(key, sizeof key, "key.%d.%lld", i, (long long)draw(p, 1000));
        switch (draw(p, 6)) {
        case 0: WF_TRY(wf_gguf_write_int(w, key, ints[draw(p, 8)], draw(p, 128))); break;
        case 1: WF_TRY(wf_gguf_write_float(w, key, (double)draw(p, 1000) / 8)); break;
        case 2: WF_TRY(wf_gguf_write_bool(w, key, draw(p, 2))); break;
        case 3: WF_TRY(wf_gguf_write_text(w, key, bytes, len)); break;
        case 4: WF_TRY(wf_gguf_write_texts(w, key, texts, count)); break;
        default: WF_TRY(wf_gguf_write_array(w, key, all[draw(p, 6)], bytes, count)); break;
        }
    }
    return WF_OK;
}

static void plan_tensors(plan *p)
{
#define QUANTIZED(A, NAME, ...) WF_##NAME,
    static const wf_type types[] = {WF_F32, WF_F16, WF_BF16,
                                    WF_I8,  WF_I32, WF_QUANT_TABLE(QUANTIZED, 0)};
    p->tensors = (int)draw(p, MAX_TENSORS);
    for (int i = 0; i < p->tensors; i++) {
        wf_dims *s = &p->shape[i];
        p->type[i] = types[draw(p, sizeof types / sizeof *types)];
        *s = (wf_dims){.n = draw(p, 5)};
        int64_t count = 1, block = wf_type_get(p->type[i])->block;
        if (block > 1 && s->n == 0)
            s->n = 1;
        for (int64_t k = 0; k < s->n; k++)
            count *= s->d[k] = (1 + draw(p, 5)) * (k == s->n - 1 ? block : 1);
        p->bytes[i] = wf_type_bytes(p->type[i], count);
        snprintf(p->name[i], sizeof p->name[i], "blk.%d.%lld.weight", i, (long long)draw(p, 99));
    }
}

/* Writes the data in pieces of random size that cross tensors. */
static wf_status write_data(wf_gguf_writer *w, plan *p)
{
    uint8_t piece[4000];
    size_t n = 0, limit = 1 + (size_t)draw(p, sizeof piece);
    for (int i = 0; i < p->tensors; i++)
        for (size_t k = 0; k < p->bytes[i]; k++) {
            piece[n++] = byte_of(i, k);
            if (n == limit) {
                WF_TRY(wf_gguf_write_data(w, piece, n));
                n = 0;
                limit = 1 + (size_t)draw(p, sizeof piece);
            }
        }
    return wf_gguf_write_data(w, piece, n);
}

/* Writes a file that the seed determines. `split`: bytes per part, 0: one file. */
static wf_status write_random(wf_ctx *ctx, const char *path, uint64_t seed, uint64_t split, plan *p)
{
    wf_gguf_writer *w;
    wf_rng_init(&p->rng, seed, 0);
    wf_gguf_write_options options = {.alignment = 8u << draw(p, 6), .split_bytes = split};
    WF_TRY(wf_gguf_write_new(ctx, path, &options, &w));
    wf_status status = write_pairs(w, p);
    plan_tensors(p);
    for (int i = 0; status == WF_OK && i < p->tensors; i++)
        status = wf_gguf_write_tensor(w, p->name[i], p->type[i], &p->shape[i]);
    if (status == WF_OK)
        status = wf_gguf_write_begin(w);
    if (status == WF_OK)
        status = write_data(w, p);
    if (status == WF_OK)
        status = wf_gguf_write_end(w);
    wf_gguf_write_free(w);
    return status;
}

static void expect_tensors(const wf_gguf *f, const plan *p)
{
    assert_int_equal(f->store.count, p->tensors);
    for (int i = 0; i < p->tensors; i++) {
        const wf_stored *t = wf_store_find(&f->store, p->name[i]);
        assert_ptr_equal(t, &f->store.tensor[i]); /* in file order */
        assert_int_equal(t->type, p->type[i]);
        assert_true(wf_dims_equal(&t->shape, &p->shape[i]));
        assert_int_equal(t->bytes, p->bytes[i]);
        for (size_t k = 0; k < t->bytes; k++)
            assert_int_equal(t->data[k], byte_of(i, k));
    }
}

/* Copies the file pair by pair and tensor by tensor, as convert does. */
static void write_again(wf_ctx *ctx, const wf_gguf *f, const char *path, uint32_t alignment)
{
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_write_new(ctx, path, &(wf_gguf_write_options){.alignment = alignment}, &w));
    for (int i = 0; i < f->pairs; i++)
        wt_ok(ctx, wf_gguf_write_pair(w, &f->pair[i]));
    for (int i = 0; i < f->store.count; i++)
        wt_ok(ctx, wf_gguf_write_tensor(w, f->store.tensor[i].name, f->store.tensor[i].type,
                                        &f->store.tensor[i].shape));
    wt_ok(ctx, wf_gguf_write_begin(w));
    for (int i = 0; i < f->store.count; i++)
        wt_ok(ctx, wf_gguf_write_data(w, f->store.tensor[i].data, f->store.tensor[i].bytes));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

static void expect_same(wf_ctx *ctx, const char *a, const char *b)
{
    char *text[2];
    size_t size[2];
    read_all(ctx, a, &text[0], &size[0]);
    read_all(ctx, b, &text[1], &size[1]);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(text[0], text[1], size[0]);
    wf_mem_free(ctx, text[0]);
    wf_mem_free(ctx, text[1]);
}

/* Random files survive writing, reading and writing again, whole and in parts. */
static void test_round_trips(void **state)
{
    wf_ctx *ctx = *state;
    static plan p;
    for (uint64_t i = 0; i < 30; i++) {
        uint64_t seed = wt_seed() + i;
        int64_t alignment = 32;
        wf_gguf *f;
        wt_ok(ctx, write_random(ctx, in_folder("a.gguf"), seed, 0, &p));
        wt_ok(ctx, write_random(ctx, in_folder("b.gguf"), seed, 0, &p));
        expect_same(ctx, in_folder("a.gguf"), in_folder("b.gguf"));
        wt_ok(ctx, wf_gguf_open(ctx, in_folder("a.gguf"), &f));
        expect_tensors(f, &p);
        wt_ok(ctx, wf_gguf_get_int(f, "general.alignment", 8, 1 << 16, &alignment));
        write_again(ctx, f, in_folder("b.gguf"), (uint32_t)alignment);
        expect_same(ctx, in_folder("a.gguf"), in_folder("b.gguf"));

        /* Splits the file into parts, opens the last part and writes one file again. */
        char path[200];
        int most = 0;
        wf_gguf *g;
        empty_folder();
        wt_ok(ctx, write_random(ctx, in_folder("s.gguf"), seed, 3000, &p));
        for (int k = 1; k <= 40; k++) {
            snprintf(path, sizeof path, "%s/s-%05d-of-%05d.gguf", folder, k, k);
            most = access(path, F_OK) == 0 ? k : most;
        }
        snprintf(path, sizeof path, "%s/s-%05d-of-%05d.gguf", folder, most, most);
        wt_ok(ctx, wf_gguf_open(ctx, most ? path : in_folder("s.gguf"), &g));
        assert_int_equal(g->store.files, most ? most : 1);
        assert_int_equal(g->pairs, f->pairs + (most ? 3 : 0));
        expect_tensors(g, &p);
        write_again(ctx, g, in_folder("c.gguf"), (uint32_t)alignment);
        write_again(ctx, f, in_folder("d.gguf"), (uint32_t)alignment);
        expect_same(ctx, in_folder("c.gguf"), in_folder("d.gguf"));
        wf_gguf_close(g);
        wf_gguf_close(f);
        assert_int_equal(empty_folder(), (most ? most : 1) + 2);
    }
}

/* ---- Values ---- */

static void write_values(wf_ctx *ctx, const char *path)
{
    wf_gguf_writer *w;
    const uint64_t large[] = {1, UINT64_MAX};
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    wt_ok(ctx, wf_gguf_write_int(w, "small", WF_GGUF_I8, -128));
    wt_ok(ctx, wf_gguf_write_int(w, "large", WF_GGUF_U64, INT64_MAX));
    wt_ok(ctx, wf_gguf_write_float(w, "float", 0.5));
    wt_ok(ctx, wf_gguf_write_bool(w, "bool", true));
    wt_ok(ctx, wf_gguf_write_text(w, "text", "a\0b", 3));
    wt_ok(ctx, wf_gguf_write_texts(w, "texts", (wf_gguf_text[]){{"x", 1}, {"", 0}}, 2));
    wt_ok(ctx, wf_gguf_write_texts(w, "no texts", NULL, 0));
    wt_ok(ctx, wf_gguf_write_array(w, "shorts", WF_GGUF_I16, (int16_t[]){-1, 300, -32768}, 3));
    wt_ok(ctx, wf_gguf_write_array(w, "doubles", WF_GGUF_F64, (double[]){0.25, -8}, 2));
    wt_ok(ctx, wf_gguf_write_array(w, "too large", WF_GGUF_U64, large, 2));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

/* Reads values of every kind; a missing key keeps the default. */
static void test_values(void **state)
{
    wf_ctx *ctx = *state;
    wf_gguf *f;
    int64_t i = 5;
    double d = 5;
    bool b = false;
    size_t n;
    wf_gguf_text text;
    const wf_gguf_text *texts;
    const int64_t *ints;
    const float *floats;
    write_values(ctx, in_folder("v.gguf"));
    wt_ok(ctx, wf_gguf_open(ctx, in_folder("v.gguf"), &f));

    wt_ok(ctx, wf_gguf_get_int(f, "none", 0, 1, &i));
    wt_ok(ctx, wf_gguf_get_float(f, "none", &d));
    assert_true(i == 5 && d == 5);
    wt_ok(ctx, wf_gguf_get_text(f, "none", &text));
    assert_null(text.bytes);
    wt_ok(ctx, wf_gguf_get_texts(f, "none", &texts, &n));
    assert_true(!texts && n == 0);

    wt_ok(ctx, wf_gguf_get_int(f, "small", -128, 0, &i));
    assert_int_equal(i, -128);
    wt_ok(ctx, wf_gguf_get_int(f, "large", 0, INT64_MAX, &i));
    assert_true(i == INT64_MAX);
    wt_ok(ctx, wf_gguf_get_float(f, "float", &d));
    assert_true(d == 0.5);
    wt_ok(ctx, wf_gguf_get_float(f, "small", &d));
    assert_true(d == -128);
    wt_ok(ctx, wf_gguf_get_bool(f, "bool", &b));
    assert_true(b);
    wt_ok(ctx, wf_gguf_get_text(f, "text", &text));
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.bytes, "a\0b", 3);
    wt_ok(ctx, wf_gguf_get_texts(f, "texts", &texts, &n));
    assert_true(n == 2 && texts[0].len == 1 && texts[0].bytes[0] == 'x' && texts[1].len == 0);
    wt_ok(ctx, wf_gguf_get_texts(f, "no texts", &texts, &n));
    assert_true(texts && n == 0);
    wt_ok(ctx, wf_gguf_get_ints(f, "shorts", &ints, &n));
    assert_true(n == 3 && ints[0] == -1 && ints[1] == 300 && ints[2] == -32768);
    wt_ok(ctx, wf_gguf_get_floats(f, "doubles", &floats, &n));
    assert_true(n == 2 && floats[0] == 0.25f && floats[1] == -8);
    wt_ok(ctx, wf_gguf_get_floats(f, "shorts", &floats, &n));
    assert_true(n == 3 && floats[1] == 300);
    wf_gguf_close(f);
}

/* A value of another kind or out of range is refused with its key. */
static void test_wrong_kinds(void **state)
{
    wf_ctx *ctx = *state;
    wf_gguf *f;
    int64_t i;
    double d;
    bool b;
    size_t n;
    wf_gguf_text text;
    const wf_gguf_text *texts;
    const int64_t *ints;
    const float *floats;
    write_values(ctx, in_folder("v.gguf"));
    wt_ok(ctx, wf_gguf_open(ctx, in_folder("v.gguf"), &f));
#define wrong(expr, part) wt_fails(ctx, expr, WF_ERR_FORMAT, "cannot read 'v.gguf': " part)
    wrong(wf_gguf_get_int(f, "small", 0, 10, &i), "key 'small' is -128; expected 0 to 10");
    wrong(wf_gguf_get_int(f, "large", 0, 10, &i),
          "key 'large' is 9223372036854775807; expected 0 to 10");
    wrong(wf_gguf_get_int(f, "float", 0, 10, &i),
          "key 'float' is of kind f32; expected an integer");
    wrong(wf_gguf_get_int(f, "bool", 0, 10, &i), "key 'bool' is of kind bool; expected an integer");
    wrong(wf_gguf_get_int(f, "shorts", 0, 10, &i),
          "key 'shorts' is an array of kind i16; expected an integer");
    wrong(wf_gguf_get_float(f, "text", &d), "key 'text' is of kind string; expected a number");
    wrong(wf_gguf_get_bool(f, "small", &b), "key 'small' is of kind i8; expected a bool");
    wrong(wf_gguf_get_text(f, "texts", &text),
          "key 'texts' is an array of kind string; expected a string");
    wrong(wf_gguf_get_texts(f, "text", &texts, &n),
          "key 'text' is of kind string; expected an array of strings");
    wrong(wf_gguf_get_texts(f, "shorts", &texts, &n),
          "key 'shorts' is an array of kind i16; expected an array of strings");
    wrong(wf_gguf_get_ints(f, "doubles", &ints, &n),
          "key 'doubles' is an array of kind f64; expected an array of integers");
    wrong(wf_gguf_get_ints(f, "small", &ints, &n),
          "key 'small' is of kind i8; expected an array of integers");
    wrong(wf_gguf_get_ints(f, "too large", &ints, &n),
          "element 1 of key 'too large' is larger than 9223372036854775807");
    wrong(wf_gguf_get_floats(f, "texts", &floats, &n), "key 'texts' is an array of kind string");
    wf_gguf_close(f);
    assert_int_equal(empty_folder(), 1);
}

/* ---- Parts ---- */

/* Writes three parts of one tensor each. */
static void write_parts(wf_ctx *ctx)
{
    wf_gguf_writer *w;
    const float x[16] = {0};
    const wf_dims shape = {.n = 1, .d = {16}};
    wt_ok(ctx, wf_gguf_write_new(ctx, in_folder("m.gguf"),
                                 &(wf_gguf_write_options){.split_bytes = 64}, &w));
    wt_ok(ctx, wf_gguf_write_text(w, "general.name", "parts", 5));
    wt_ok(ctx, wf_gguf_write_tensor(w, "a", WF_F32, &shape));
    wt_ok(ctx, wf_gguf_write_tensor(w, "b", WF_F32, &shape));
    wt_ok(ctx, wf_gguf_write_tensor(w, "c", WF_F32, &shape));
    wt_ok(ctx, wf_gguf_write_begin(w));
    for (int i = 0; i < 3; i++)
        wt_ok(ctx, wf_gguf_write_data(w, x, sizeof x));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

/* Changes the byte `after` bytes past the end of this text in a file. */
static void patch(wf_ctx *ctx, const char *path, const char *text, size_t after, char value)
{
    char *bytes;
    size_t size;
    read_all(ctx, path, &bytes, &size);
    for (size_t i = 0; i + strlen(text) + after < size; i++)
        if (memcmp(bytes + i, text, strlen(text)) == 0)
            bytes[i + strlen(text) + after] = value;
    wt_ok(ctx, wf_file_write(ctx, path, bytes, size));
    wf_mem_free(ctx, bytes);
}

/* Opens a split model by any part; missing, renamed and inconsistent parts are refused. */
static void test_parts(void **state)
{
    wf_ctx *ctx = *state;
    wf_gguf *f;
    char path[3][160];
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/m-%05d-of-00003.gguf", folder, i + 1);
    write_parts(ctx);
    for (int i = 0; i < 3; i++) {
        wf_gguf_text name;
        wt_ok(ctx, wf_gguf_open(ctx, path[i], &f));
        assert_int_equal(f->store.files, 3);
        assert_int_equal(f->store.count, 3);
        assert_int_equal(wf_store_find(&f->store, "c")->file, 2);
        wt_ok(ctx, wf_gguf_get_text(f, "general.name", &name));
        assert_int_equal(name.len, 5);
        wf_gguf_close(f);
    }
#define broken(expected, part)                                     \
    wt_fails(ctx, wf_gguf_open(ctx, path[0], &f), expected, part); \
    assert_null(f);                                                \
    empty_folder();                                                \
    write_parts(ctx)
    patch(ctx, path[1], "split.no", 4, 2);
    broken(WF_ERR_FORMAT,
           "'m-00002-of-00003.gguf': key 'split.no' is 2; its name and the other parts require 1");
    patch(ctx, path[2], "split.count", 4, 2);
    broken(
        WF_ERR_FORMAT,
        "'m-00003-of-00003.gguf': key 'split.count' is 2; its name and the other parts require 3");
    patch(ctx, path[1], "split.tensors.count", 4, 9);
    broken(WF_ERR_FORMAT,
           "'m-00002-of-00003.gguf': key 'split.tensors.count' is 9; its name and the "
           "other parts require 3");
    for (int i = 0; i < 3; i++)
        patch(ctx, path[i], "split.tensors.count", 4, 4);
    broken(WF_ERR_FORMAT, "its parts have 3 tensors, but key 'split.tensors.count' is 4");
    unlink(path[1]);
    broken(WF_ERR_IO, "part 2 of 3 is missing: cannot open");
    assert_int_equal(rename(path[0], in_folder("other.gguf")), 0);
    wt_fails(ctx, wf_gguf_open(ctx, in_folder("other.gguf"), &f), WF_ERR_FORMAT,
             "'other.gguf': its keys say part 1 of 3, but its name does not end in "
             "'-00001-of-00003.gguf'");
    empty_folder();
    write_parts(ctx);
    patch(ctx, path[1], "split.n", 0, 'p');
    broken(WF_ERR_FORMAT,
           "'m-00002-of-00003.gguf': it is part of a split file, but key 'split.no' is missing");
    patch(ctx, path[1], "split.no", 0, WF_GGUF_BOOL);
    broken(WF_ERR_FORMAT, "'m-00002-of-00003.gguf'");

    /* A tensor name that occurs in two parts. */
    char *bytes;
    size_t size;
    read_all(ctx, path[1], &bytes, &size);
    for (size_t i = 0; i + 9 < size; i++)
        if (memcmp(bytes + i, "\1\0\0\0\0\0\0\0b", 9) == 0)
            bytes[i + 8] = 'a';
    wt_ok(ctx, wf_file_write(ctx, path[1], bytes, size));
    wf_mem_free(ctx, bytes);
    broken(WF_ERR_FORMAT, "tensor 'a' is also in 'm-00002-of-00003.gguf'");
    assert_int_equal(empty_folder(), 3);
}

/* ---- Misuse and disk errors ---- */

/* The writer refuses invalid keys, tensors and data, and then writes no file. */
static void test_write_mistakes(void **state)
{
    wf_ctx *ctx = *state;
    wf_gguf_writer *w;
    const wf_dims eight = {.n = 1, .d = {8}};
    const wf_gguf_write_options three = {.alignment = 3};
#define mistake(expr, part) wt_fails(ctx, expr, WF_ERR_USAGE, "cannot write 'e.gguf': " part)
    mistake(wf_gguf_write_new(ctx, in_folder("e.gguf"), &three, &w),
            "alignment 3 is not a power of two from 8 to 65536");
    wt_ok(ctx, wf_gguf_write_new(ctx, in_folder("e.gguf"), NULL, &w));
    mistake(wf_gguf_write_int(w, "split.no", WF_GGUF_U16, 0),
            "key 'split.no' is reserved for the writer");
    mistake(wf_gguf_write_int(w, "k", WF_GGUF_U8, 256), "key 'k': 256 does not fit kind u8");
    mistake(wf_gguf_write_int(w, "k", WF_GGUF_U64, -1), "key 'k': -1 does not fit kind u64");
    mistake(wf_gguf_write_int(w, "k", WF_GGUF_F32, 1), "key 'k': 1 does not fit kind f32");
    mistake(wf_gguf_write_array(w, "k", WF_GGUF_STRING, "", 0), "key 'k'");
    mistake(wf_gguf_write_tensor(w, "t", WF_E4M3, &eight),
            "tensor 't' has type e4m3, which GGUF does not have");
    mistake(wf_gguf_write_tensor(w, "t", WF_Q8_0, &eight),
            "tensor 't' has rows of 8, which is not a multiple of 32");
    mistake(wf_gguf_write_tensor(w, "t", WF_F32, &(wf_dims){.n = 1}),
            "tensor 't' has dimensions that are out of range");
    mistake(wf_gguf_write_tensor(w, "t", WF_F32, &(wf_dims){.n = 5, .d = {1, 1, 1, 1, 1}}),
            "tensor 't' has 5 dimensions; the maximum is 4");
    mistake(wf_gguf_write_data(w, "x", 1), "data is written before wf_gguf_write_begin");
    mistake(wf_gguf_write_end(w), "wf_gguf_write_begin was not called");
    wt_ok(ctx, wf_gguf_write_int(w, "k", WF_GGUF_U8, 1));
    wt_ok(ctx, wf_gguf_write_tensor(w, "t", WF_I8, &eight));
    wt_ok(ctx, wf_gguf_write_begin(w));
    mistake(wf_gguf_write_begin(w), "wf_gguf_write_begin was already called");
    mistake(wf_gguf_write_bool(w, "z", true), "key 'z' is declared after wf_gguf_write_begin");
    wt_ok(ctx, wf_gguf_write_data(w, "1234567", 7));
    mistake(wf_gguf_write_end(w), "tensor 't' has 7 of its 8 bytes");
    mistake(wf_gguf_write_data(w, "89", 2), "1 byte too many: all tensors are complete");
    wf_gguf_write_free(w);
    assert_int_equal(empty_folder(), 0);

    wt_ok(ctx, wf_gguf_write_new(ctx, in_folder("e.gguf"), NULL, &w));
    for (int i = 0; i < 2; i++) {
        wt_ok(ctx, wf_gguf_write_int(w, "k", WF_GGUF_U8, 1));
        wt_ok(ctx, wf_gguf_write_tensor(w, "t", WF_I8, &eight));
    }
    mistake(wf_gguf_write_begin(w), "key 'k' is declared twice");
    wf_gguf_write_free(w);
    wt_ok(ctx, wf_gguf_write_new(ctx, in_folder("none/e.gguf"), NULL, &w));
    wt_fails(ctx, wf_gguf_write_begin(w), WF_ERR_IO, "none/e.gguf");
    wf_gguf_write_free(w);
    assert_int_equal(empty_folder(), 0);
}

/* Fails each allocation in turn; no file and no memory is left. */
static void test_out_of_memory(void **state)
{
    wf_ctx *ctx = *state;
    static plan p;
    uint64_t seed = wt_seed();
    for (uint64_t split = 0; split <= 2000; split += 2000) {
        wf_status status;
        uint64_t n = 0;
        do {
            wf_ctx_fail_allocation(ctx, ++n);
            status = write_random(ctx, in_folder("a.gguf"), seed, split, &p);
            assert_true(status == WF_OK || status == WF_ERR_MEMORY);
            assert_int_equal(wt_live_blocks(ctx), 0);
            if (status != WF_OK)
                assert_int_equal(empty_folder(), 0);
        } while (status != WF_OK);
        wf_ctx_fail_allocation(ctx, 0);
        empty_folder();
    }
    write_parts(ctx);
    uint64_t n = 0;
    wf_gguf *f;
    do {
        wf_ctx_fail_allocation(ctx, ++n);
        if (wf_gguf_open(ctx, in_folder("m-00002-of-00003.gguf"), &f) != WF_OK)
            assert_int_equal(wf_ctx_status(ctx), WF_ERR_MEMORY);
        wf_gguf_close(f);
        assert_int_equal(wt_live_blocks(ctx), 0);
    } while (!f);
    wf_ctx_fail_allocation(ctx, 0);
    empty_folder();
}

/* Truncating a file while it is open gives an error, not a signal. */
static int cut_while_open(void)
{
    wf_ctx *ctx;
    wf_gguf *f;
    volatile unsigned sum = 0;
    if (wf_ctx_new(&ctx) != WF_OK || wf_gguf_open(ctx, in_folder("big.gguf"), &f) != WF_OK)
        return 1;
    wf_guard_mapped_files(true);
    if (wf_store_check(&f->store) != WF_OK || truncate(in_folder("big.gguf"), 5000) != 0)
        return 2;
    for (size_t i = 0; i < f->store.tensor[0].bytes; i++)
        sum += f->store.tensor[0].data[i];
    if (wf_store_check(&f->store) != WF_ERR_IO || !strstr(wf_ctx_message(ctx), "big.gguf") ||
        !wt_is_sentence(wf_ctx_message(ctx)))
        return 3;
    wf_gguf_close(f);
    wf_ctx_free(ctx);
    return 0;
}

static void test_cut_while_open(void **state)
{
    wf_ctx *ctx = *state;
    wf_gguf_writer *w;
    static const char ones[100000] = {1, 1, 1};
    wt_ok(ctx, wf_gguf_write_new(ctx, in_folder("big.gguf"), NULL, &w));
    wt_ok(ctx, wf_gguf_write_tensor(w, "t", WF_I8, &(wf_dims){.n = 1, .d = {sizeof ones}}));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_data(w, ones, sizeof ones));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(cut_while_open());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(empty_folder(), 1);
}

/* ---- Files of other programs ---- */

/* Reads vocabularies of published models where they are available. */
static void test_vocabularies(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        const char *path;
        size_t tokens;
    } files[] = {{"../shared/data/tokenizers/gpt-2.gguf", 50257},
                 {"../shared/data/tokenizers/llama-spm.gguf", 32000},
                 {"../shared/data/tokenizers/starcoder.gguf", 49152},
                 {"../shared/data/tokenizers/deepseek-coder.gguf", 32256}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        wf_gguf *f;
        const wf_gguf_text *tokens;
        const int64_t *kinds;
        size_t n, m;
        if (access(files[i].path, R_OK) != 0) {
            print_message("%s is not there\n", files[i].path);
            skip();
        }
        wt_ok(ctx, wf_gguf_open(ctx, files[i].path, &f));
        wt_ok(ctx, wf_gguf_get_texts(f, "tokenizer.ggml.tokens", &tokens, &n));
        wt_ok(ctx, wf_gguf_get_ints(f, "tokenizer.ggml.token_type", &kinds, &m));
        assert_int_equal(n, files[i].tokens);
        assert_int_equal(m, n);
        write_again(ctx, f, in_folder("copy.gguf"), 0);
        expect_same(ctx, in_folder("copy.gguf"), files[i].path);
        wf_gguf_close(f);
        assert_int_equal(empty_folder(), 1);
    }
}

/* Reading takes linear time: 16x the tokens must take less than 64x as long; quadratic would be
 * 256x. */
static void test_is_quick(void **state)
{
    wf_ctx *ctx = *state;
    static wf_gguf_text tokens[160000];
    static const char text[] = "a token of the usual size";
    uint64_t ns[2] = {UINT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < 160000; i++)
        tokens[i] = (wf_gguf_text){text, 1 + i % 20};
    for (int k = 0; k < 2; k++) {
        wf_gguf_writer *w;
        wt_ok(ctx, wf_gguf_write_new(ctx, in_folder("q.gguf"), NULL, &w));
        wt_ok(ctx, wf_gguf_write_texts(w, "tokens", tokens, k ? 160000 : 10000));
        wt_ok(ctx, wf_gguf_write_begin(w));
        wt_ok(ctx, wf_gguf_write_end(w));
        wf_gguf_write_free(w);
        for (int repeat = 0; repeat < 3; repeat++) {
            wf_gguf *f;
            uint64_t start = wf_clock_ns();
            wt_ok(ctx, wf_gguf_open(ctx, in_folder("q.gguf"), &f));
            uint64_t took = wf_clock_ns() - start;
            ns[k] = took < ns[k] ? took : ns[k];
            wf_gguf_close(f);
        }
    }
    print_message("160000 tokens: %.2f ms\n", (double)ns[1] * 1e-6);
    assert_true(ns[1] < 64 * ns[0]);
    assert_int_equal(empty_folder(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_bytes),         wt_test(test_round_trips),    wt_test(test_values),
        wt_test(test_wrong_kinds),   wt_test(test_parts),          wt_test(test_write_mistakes),
        wt_test(test_out_of_memory), wt_test(test_cut_while_open), wt_test(test_vocabularies),
        wt_test(test_is_quick),
    };
    return cmocka_run_group_tests_name("gguf", tests, make_folder, remove_folder);
}
