/* SPDX-License-Identifier: MIT */
/*
 * test_gguf_bad.c - malformed GGUF files are refused with one message that names the file and the
 * error, without allocating much memory. The test builds the files byte by byte, without the
 * writer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "format/gguf.h"
#include "support.h"

#define MAX_BYTES 4096

typedef struct {
    uint8_t bytes[MAX_BYTES];
    size_t n;
} blob;

static void put(blob *b, const void *from, size_t n)
{
    assert_true(b->n + n <= MAX_BYTES);
    memcpy(b->bytes + b->n, from, n);
    b->n += n;
}

static void put_u8(blob *b, uint8_t x)
{
    put(b, &x, 1);
}

static void put_u32(blob *b, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        put_u8(b, (uint8_t)(x >> 8 * i));
}

static void put_u64(blob *b, uint64_t x)
{
    put_u32(b, (uint32_t)x);
    put_u32(b, (uint32_t)(x >> 32));
}

static void put_text(blob *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static blob begin(uint32_t version, uint64_t tensors, uint64_t pairs)
{
    blob b = {.n = 0};
    put(&b, "GGUF", 4);
    put_u32(&b, version);
    put_u64(&b, tensors);
    put_u64(&b, pairs);
    return b;
}

static void put_pair(blob *b, const char *key, uint32_t kind)
{
    put_text(b, key);
    put_u32(b, kind);
}

static void put_array(blob *b, const char *key, uint32_t element, uint64_t count)
{
    put_pair(b, key, WF_GGUF_ARRAY);
    put_u32(b, element);
    put_u64(b, count);
}

static void put_tensor(blob *b, const char *name, uint32_t rank, const uint64_t *dims,
                       uint32_t type, uint64_t offset)
{
    put_text(b, name);
    put_u32(b, rank);
    for (uint32_t i = 0; i < rank; i++)
        put_u64(b, dims[i]);
    put_u32(b, type);
    put_u64(b, offset);
}

static void put_data(blob *b, size_t bytes)
{
    while (b->n % 32)
        put_u8(b, 0);
    for (size_t i = 0; i < bytes; i++)
        put_u8(b, (uint8_t)i);
}

/* Builds a file with one of everything. */
static blob healthy(void)
{
    blob b = begin(3, 2, 5);
    put_pair(&b, "a.number", WF_GGUF_U32);
    put_u32(&b, 7);
    put_pair(&b, "a.text", WF_GGUF_STRING);
    put_text(&b, "hello");
    put_pair(&b, "a.bool", WF_GGUF_BOOL);
    put_u8(&b, 1);
    put_array(&b, "some.texts", WF_GGUF_STRING, 2);
    put_text(&b, "x");
    put_text(&b, "");
    put_array(&b, "some.numbers", WF_GGUF_I16, 3);
    put(&b, "\1\0\2\0\3\0", 6);
    put_tensor(&b, "t.one", 2, (uint64_t[]){4, 2}, 0, 0);
    put_tensor(&b, "t.two", 1, (uint64_t[]){32}, 8, 32);
    put_data(&b, 32 + 34);
    return b;
}

/* Reads from a block of exactly this size, so that AddressSanitizer detects an overrun. */
static wf_status read_exactly(wf_ctx *ctx, const uint8_t *bytes, size_t n, wf_gguf **out)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    wf_status status = wf_gguf_read(ctx, "folder/bad.gguf", copy, n, out);
    if (status == WF_OK) { /* touch all data that the file claims to have */
        unsigned sum = 0;
        for (int i = 0; i < (*out)->store.count; i++)
            for (size_t k = 0; k < (*out)->store.tensor[i].bytes; k++)
                sum += (*out)->store.tensor[i].data[k];
        for (int i = 0; i < (*out)->pairs; i++) {
            const wf_gguf_pair *p = &(*out)->pair[i];
            for (uint64_t k = 0; p->text && k < p->count; k++)
                for (size_t j = 0; j < p->text[k].len; j++)
                    sum += (unsigned char)p->text[k].bytes[j];
            sum += (unsigned)strlen(p->key);
        }
        assert_true(sum < UINT32_MAX);
        wf_gguf_close(*out);
    }
    free(copy);
    return status;
}

/* Expects a message with the part and the file name, no leak, and a peak below 256 KiB. */
static void refused_at(wf_ctx *ctx, const blob *b, wf_status wanted, const char *part, int line)
{
    wf_mem_stats before, after;
    wf_gguf *f;
    wf_ctx_mem_stats(ctx, &before);
    wf_status status = read_exactly(ctx, b->bytes, b->n, &f);
    wt_fails_at(ctx, status, wanted, part, __FILE__, line);
    wt_fails_at(ctx, status, wanted, "'bad.gguf'", __FILE__, line);
    assert_null(f);
    wf_ctx_mem_stats(ctx, &after);
    assert_int_equal(after.live_blocks, before.live_blocks);
    assert_true(after.peak_bytes < 256 * 1024);
}
#define refused(b, part) refused_at(ctx, b, WF_ERR_FORMAT, part, __LINE__)

static void test_healthy_is_read(void **state)
{
    wf_ctx *ctx = *state;
    blob b = healthy();
    wf_gguf *f;
    wt_ok(ctx, wf_gguf_read(ctx, "x", b.bytes, b.n, &f));
    assert_int_equal(f->pairs, 5);
    assert_int_equal(f->version, 3);
    const wf_stored *t = wf_store_find(&f->store, "t.one");
    assert_non_null(t);
    assert_int_equal(t->shape.n, 2);
    assert_int_equal(t->shape.d[0], 2); /* outermost axis first */
    assert_int_equal(t->shape.d[1], 4);
    assert_int_equal(t->data[5], 5);
    assert_string_equal(wf_store_find(&f->store, "t.two")->type_name, "Q8_0");
    assert_null(wf_store_find(&f->store, "t.three"));
    wf_gguf_close(f);

    b.bytes[4] = 2; /* version 2 has the same layout */
    wt_ok(ctx, wf_gguf_read(ctx, "x", b.bytes, b.n, &f));
    assert_int_equal(f->version, 2);
    wf_gguf_close(f);
}

/* A file truncated at any byte is refused. */
static void test_cut_anywhere(void **state)
{
    wf_ctx *ctx = *state;
    blob b = healthy();
    size_t whole = b.n;
    for (b.n = 0; b.n < whole; b.n++)
        refused(&b, "");
    b.n = 0;
    refused(&b, "truncated");
}

static void test_magic_and_version(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        uint32_t version;
        const char *part;
    } cases[] = {{0, "version 0"},   {1, "version 1"},           {4, "version 4"},
                 {99, "version 99"}, {0x03000000, "big-endian"}, {0x02000000, "big-endian"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        blob b = begin(cases[i].version, 0, 0);
        refused(&b, cases[i].part);
    }
    blob b = healthy();
    b.bytes[0] = 'g';
    refused(&b, "does not begin with GGUF");
}

/* Counts that exceed the file's size are refused before anything is allocated. */
static void test_counts(void **state)
{
    wf_ctx *ctx = *state;
    static const uint64_t counts[] = {
        1, 3, 1000, UINT32_MAX, 1u << 31, 1ull << 63, UINT64_MAX / 13, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        blob b = begin(3, 0, counts[i]);
        refused(&b, "keys");
        b = begin(3, counts[i], 0);
        refused(&b, "tensors");
    }
    blob b = begin(3, 0, 200); /* the file's size allows this count, but its contents do not */
    for (int i = 0; i < 3000; i++)
        put_u8(&b, 0xff);
    refused(&b, "a key of");
}

/* Lengths of keys, texts and arrays that exceed the file are refused, also near 2^64. */
static void test_lengths(void **state)
{
    wf_ctx *ctx = *state;
    static const uint64_t lengths[] = {100, 1ull << 32, 1ull << 63, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        blob b = begin(3, 0, 1);
        put_u64(&b, lengths[i]);
        put(&b, "0123456789abcdef", 16);
        refused(&b, "a key of");

        b = begin(3, 0, 1);
        put_pair(&b, "my.text", WF_GGUF_STRING);
        put_u64(&b, lengths[i]);
        refused(&b, "key 'my.text'");

        b = begin(3, 0, 1);
        put_array(&b, "my.texts", WF_GGUF_STRING, lengths[i]);
        put_text(&b, "one");
        refused(&b, "key 'my.texts'");

        b = begin(3, 0, 1);
        put_array(&b, "my.numbers", WF_GGUF_F64, lengths[i]);
        put_u64(&b, 0);
        refused(&b, "key 'my.numbers'");

        b = begin(3, 1, 0);
        put_u64(&b, lengths[i]);
        put(&b, "0123456789abcdef", 16);
        refused(&b, "the name of a tensor of");
    }
}

static void test_keys(void **state)
{
    wf_ctx *ctx = *state;
    blob b = begin(3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_pair(&b, "same", WF_GGUF_U8);
        put_u8(&b, 1);
    }
    refused(&b, "key 'same' occurs twice");

    b = begin(3, 0, 1);
    put_u64(&b, 3);
    put(&b, "a\0b", 3);
    put_u32(&b, WF_GGUF_U8);
    put_u8(&b, 1);
    refused(&b, "NUL");

    b = begin(3, 0, 1); /* the message stays one line */
    put_pair(&b, "new\nline\x1b[31m", 77);
    put_u8(&b, 1);
    refused(&b, "key 'new\\nline\\x1b[31m' has a value of kind 77");

    b = begin(3, 0, 1);
    put_array(&b, "nested", WF_GGUF_ARRAY, 1);
    put_u32(&b, WF_GGUF_U8);
    put_u64(&b, 0);
    refused(&b, "key 'nested' is an array of arrays");

    b = begin(3, 0, 1);
    put_array(&b, "odd", 13, 1);
    refused(&b, "key 'odd' has a value of kind 13");

    b = begin(3, 0, 1);
    put_pair(&b, "truth", WF_GGUF_BOOL);
    put_u8(&b, 2);
    refused(&b, "key 'truth'");

    b = begin(3, 0, 1);
    put_array(&b, "truths", WF_GGUF_BOOL, 3);
    put(&b, "\0\1\xff", 3);
    refused(&b, "key 'truths' has the bool 255, which is neither 0 nor 1");
}

static void test_alignment(void **state)
{
    wf_ctx *ctx = *state;
    static const uint32_t wrong[] = {0, 1, 3, 4, 33, 1u << 17, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        blob b = begin(3, 0, 1);
        put_pair(&b, "general.alignment", WF_GGUF_U32);
        put_u32(&b, wrong[i]);
        char part[128];
        snprintf(part, sizeof part,
                 "key 'general.alignment' is %u; it must be a power of two from 8 to 65536",
                 (unsigned)wrong[i]);
        refused(&b, part);
    }
    blob b = begin(3, 0, 1);
    put_pair(&b, "general.alignment", WF_GGUF_U64);
    put_u64(&b, 32);
    refused(&b, "key 'general.alignment' has kind u64; it must be u32");
    b = begin(3, 0, 1);
    put_pair(&b, "general.alignment", WF_GGUF_STRING);
    put_text(&b, "32");
    refused(&b, "key 'general.alignment' has kind string; it must be u32");
}

/* Builds a file with one tensor. */
static blob one_tensor(uint32_t rank, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    blob b = begin(3, 1, 0);
    put_tensor(&b, "my.tensor", rank, dims, type, offset);
    put_data(&b, 256);
    return b;
}

/* Too many dimensions, dimensions of 0 and sizes that overflow are refused. */
static void test_shapes(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        uint32_t rank, type;
        uint64_t dims[6];
        const char *part;
    } cases[] = {
        {5, 0, {1, 1, 1, 1, 1}, "tensor 'my.tensor' has 5 dimensions; the maximum is 4"},
        {UINT32_MAX, 0, {0}, "tensor 'my.tensor' has 4294967295 dimensions; the maximum is 4"},
        {1, 0, {0}, "tensor 'my.tensor' has a dimension of 0; the minimum is 1"},
        {2, 0, {4, 0}, "tensor 'my.tensor' has a dimension of 0; the minimum is 1"},
        {2, 0, {UINT64_MAX, 4}, "tensor 'my.tensor' has a dimension of -1; the minimum is 1"},
        {1,
         0,
         {1ull << 63},
         "tensor 'my.tensor' has a dimension of -9223372036854775808; the minimum is 1"},
        {2, 0, {1ull << 32, 1ull << 32}, "tensor 'my.tensor' has too many elements for 64 bits"},
        {4,
         0,
         {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16},
         "tensor 'my.tensor' has too many elements for 64 bits"},
        {3, 0, {1ull << 62, 2, 2}, "tensor 'my.tensor' has too many elements for 64 bits"},
        {1, 0, {INT64_MAX}, "tensor 'my.tensor' has too many bytes for 64 bits"},
        {1,
         0,
         {1ull << 61},
         "tensor 'my.tensor' has 9223372036854775808 bytes at offset 96, but "
         "the file has only 352"},
        {1,
         8,
         {INT64_MAX - 31},
         "tensor 'my.tensor' has 9799832789158199262 bytes at offset 96, but "
         "the file has only 352"},
        {1, 0, {65}, "tensor 'my.tensor' has 260 bytes at offset 96, but the file has only 352"},
        {1,
         8,
         {33},
         "tensor 'my.tensor' has type Q8_0 and rows of 33, which is not a multiple of 32"},
        {2,
         12,
         {128, 2},
         "tensor 'my.tensor' has type Q4_K and rows of 128, which is not a multiple of 256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        blob b = begin(3, 1, 0);
        put_text(&b, "my.tensor");
        put_u32(&b, cases[i].rank);
        for (uint32_t k = 0; k < cases[i].rank && k < 6; k++)
            put_u64(&b, cases[i].dims[k]);
        put_u32(&b, cases[i].type);
        put_u64(&b, 0);
        put_data(&b, 256);
        refused(&b, cases[i].part);
    }
    blob b = one_tensor(0, NULL, 0, 0); /* a scalar */
    wf_gguf *f;
    wt_ok(ctx, wf_gguf_read(ctx, "x", b.bytes, b.n, &f));
    assert_int_equal(f->store.tensor[0].bytes, 4);
    wf_gguf_close(f);
}

/* Unknown and unsupported tensor types are refused by name or number. */
static void test_types(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        uint32_t id;
        const char *part;
    } cases[] = {{16, "tensor 'my.tensor' has type IQ2_XXS; Weft supports F32"},
                 {21, "tensor 'my.tensor' has type IQ3_S; Weft supports F32"},
                 {39, "tensor 'my.tensor' has type MXFP4; Weft supports F32"},
                 {4, "tensor 'my.tensor' has unknown type 4; Weft supports F32"},
                 {31, "tensor 'my.tensor' has unknown type 31; Weft supports F32"},
                 {1000, "tensor 'my.tensor' has unknown type 1000; Weft supports F32"},
                 {UINT32_MAX, "tensor 'my.tensor' has unknown type 4294967295; Weft supports F32"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        blob b = one_tensor(1, (uint64_t[]){32}, cases[i].id, 0);
        refused_at(ctx, &b, WF_ERR_UNSUPPORTED, cases[i].part, __LINE__);
        refused_at(ctx, &b, WF_ERR_UNSUPPORTED, "Q6_K", __LINE__);
    }
}

/* Offsets that are out of the file, misaligned or overlapping are refused. */
static void test_offsets(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        uint64_t offset;
        const char *part;
    } cases[] = {
        {256, "tensor 'my.tensor' has 32 bytes at offset 352, but the file has only 352"},
        {1 << 20, "32 bytes at offset 1048672, but the file has only 352 bytes: it is truncated"},
        {1ull << 63, "32 bytes at offset 9223372036854775904, but the file has only 352 bytes: "
                     "it is truncated"},
        {UINT64_MAX - 31, "tensor 'my.tensor' has offset 18446744073709551584"},
        {1, "tensor 'my.tensor' has offset 1, which is not a multiple of 32"},
        {48, "tensor 'my.tensor' has offset 48, which is not a multiple of 32"},
        {UINT64_MAX,
         "tensor 'my.tensor' has offset 18446744073709551615, which is not a multiple of 32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        blob b = one_tensor(1, (uint64_t[]){8}, 0, cases[i].offset);
        refused(&b, cases[i].part);
    }
    /* Overlapping tensors in both orders, and two at the same place. */
    static const uint64_t pairs[][2] = {{0, 32}, {32, 0}, {64, 64}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        blob b = begin(3, 2, 0);
        put_tensor(&b, "left", 1, (uint64_t[]){16}, 0, pairs[i][0]);
        put_tensor(&b, "right", 1, (uint64_t[]){16}, 0, pairs[i][1]);
        put_data(&b, 256);
        refused(&b, "overlaps tensor");
    }
}

static void test_names(void **state)
{
    wf_ctx *ctx = *state;
    blob b = begin(3, 2, 0);
    put_tensor(&b, "same", 1, (uint64_t[]){8}, 0, 0);
    put_tensor(&b, "same", 1, (uint64_t[]){8}, 0, 32);
    put_data(&b, 64);
    refused(&b, "tensor 'same' occurs twice");

    char longest[300];
    memset(longest, 'n', sizeof longest);
    longest[256] = '\0';
    b = begin(3, 1, 0);
    put_tensor(&b, longest, 1, (uint64_t[]){8}, 0, 0);
    put_data(&b, 64);
    refused(&b, "has a name of 256 bytes");

    b = begin(3, 1, 0);
    put_u64(&b, 2);
    put(&b, "a\0", 2);
    put_u32(&b, 0);
    put_u32(&b, 0);
    put_u64(&b, 0);
    put_data(&b, 64);
    refused(&b, "NUL");
}

/* A part of a split file cannot be read from memory. */
static void test_split_in_memory(void **state)
{
    wf_ctx *ctx = *state;
    blob b = begin(3, 0, 3);
    put_pair(&b, "split.no", WF_GGUF_U16);
    put(&b, "\0\0", 2);
    put_pair(&b, "split.count", WF_GGUF_U16);
    put(&b, "\3\0", 2);
    put_pair(&b, "split.tensors.count", WF_GGUF_I32);
    put_u32(&b, 0);
    refused(&b, "one of 3 parts");
    b = begin(3, 0, 1);
    put_pair(&b, "split.count", WF_GGUF_U16);
    put(&b, "\3\0", 2);
    refused(&b, "key 'split.no' is missing");
    b = begin(3, 0, 1);
    put_pair(&b, "split.count", WF_GGUF_STRING);
    put_text(&b, "3");
    refused(&b, "key 'split.count' is of kind string");
}

/* With random bytes changed, a file is refused or read, without a crash or a leak. */
static void test_random_damage(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 0);
    int read = 0;
    for (int round = 0; round < 20000; round++) {
        blob b = healthy();
        size_t header = b.n - 66;
        for (uint64_t k = 1 + wf_rng_below(&rng, 3); k > 0; k--) {
            static const uint8_t favourites[] = {0, 1, 2, 8, 9, 0x7f, 0x80, 0xff};
            b.bytes[wf_rng_below(&rng, header)] =
                wf_rng_below(&rng, 2) ? favourites[wf_rng_below(&rng, sizeof favourites)]
                                      : (uint8_t)wf_rng_u32(&rng);
        }
        wf_gguf *f;
        wf_status status = read_exactly(ctx, b.bytes, b.n, &f);
        if (status == WF_OK)
            read++;
        else
            assert_true(wt_is_sentence(wf_ctx_message(ctx)));
    }
    assert_true(read > 100 && read < 19000);
}

/* Fails each allocation in turn; nothing leaks. */
static void test_out_of_memory(void **state)
{
    wf_ctx *ctx = *state;
    blob b = healthy();
    wf_status status;
    uint64_t n = 0;
    do {
        wf_gguf *f;
        wf_ctx_fail_allocation(ctx, ++n);
        status = read_exactly(ctx, b.bytes, b.n, &f);
        assert_true(status == WF_OK || status == WF_ERR_MEMORY);
        assert_int_equal(wt_live_blocks(ctx), 0);
    } while (status != WF_OK);
    wf_ctx_fail_allocation(ctx, 0);
    assert_true(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_healthy_is_read), wt_test(test_cut_anywhere),  wt_test(test_magic_and_version),
        wt_test(test_counts),          wt_test(test_lengths),       wt_test(test_keys),
        wt_test(test_alignment),       wt_test(test_shapes),        wt_test(test_types),
        wt_test(test_offsets),         wt_test(test_names),         wt_test(test_split_in_memory),
        wt_test(test_random_damage),   wt_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("gguf_bad", tests, NULL, NULL);
}
