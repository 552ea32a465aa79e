/* SPDX-License-Identifier: MIT */
/* smollm2_fixture.c - see smollm2_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "smollm2_fixture.h"

#define FOLDER "tests/fixtures/smollm2/"
#define VERSION 1
#define HEADER_BYTES 32
#define MAX_TOP 256

/* ---- Bytes --------------------------------------------------------------------------------- */

typedef struct {
    const char *path;
    unsigned char *bytes;
    size_t size;
    size_t at;
} reader;

static reader read_whole(const char *path)
{
    reader r = {.path = path};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    r.size = (size_t)size;
    r.bytes = malloc(r.size + 1);
    assert_non_null(r.bytes);
    assert_int_equal(fread(r.bytes, 1, r.size, file), r.size);
    fclose(file);
    return r;
}

static const unsigned char *take(reader *r, size_t bytes)
{
    if (bytes > r->size - r->at)
        fail_msg("%s ends too early", r->path);
    const unsigned char *p = r->bytes + r->at;
    r->at += bytes;
    return p;
}

static uint32_t take_u16(reader *r)
{
    const unsigned char *p = take(r, 2);
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t take_u32(reader *r)
{
    uint32_t low = take_u16(r);
    return low | take_u16(r) << 16;
}

static uint64_t take_u64(reader *r)
{
    uint64_t low = take_u32(r);
    return low | (uint64_t)take_u32(r) << 32;
}

static float take_f32(reader *r)
{
    uint32_t bits = take_u32(r);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- The recording ------------------------------------------------------------------------- */

/* Reads ids of 16 bits each; an odd count is padded with a zero. */
static int32_t *take_ids(reader *r, const sm_recording *out, int32_t *to, int count)
{
    for (int i = 0; i < count; i++) {
        to[i] = (int32_t)take_u16(r);
        assert_true(to[i] < out->vocab);
    }
    if (count % 2 != 0)
        take_u16(r);
    return to + count;
}

/* Cursor into the arrays of the recording being read. */
typedef struct {
    int32_t *id;
    float *logprob;
    sm_position *position;
} cursor;

static void take_text(reader *r, const sm_recording *out, size_t text_size, sm_text *t, cursor *c)
{
    memcpy(t->name, take(r, sizeof t->name), sizeof t->name);
    assert_int_equal(t->name[sizeof t->name - 1], 0);
    const size_t start = take_u32(r);
    t->bytes = take_u32(r);
    assert_true(start <= text_size && t->bytes <= text_size - start);
    t->text = out->text_bytes + start;
    t->control = take_u32(r) != 0;
    t->prompt = (int)take_u32(r);
    t->count = (int)take_u32(r);
    assert_true(t->prompt >= 1 && t->prompt <= t->count && (size_t)t->count <= r->size);
    t->ids = c->id;
    c->id = take_ids(r, out, c->id, t->count);
    t->at = c->position;
    for (int i = 0; i + 1 < t->count; i++) {
        sm_position *p = c->position++;
        p->next = take_f32(r);
        p->rest = take_f32(r);
        p->logprob = c->logprob;
        for (int k = 0; k < out->top; k++)
            *c->logprob++ = take_f32(r);
        p->id = c->id;
        c->id = take_ids(r, out, c->id, out->top);
    }
}

static void *allocate(size_t count, size_t size)
{
    void *p = calloc(count + 1, size);
    assert_non_null(p);
    return p;
}

sm_recording *sm_open(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s.bin", name);
    reader texts = read_whole(FOLDER "texts.txt");
    reader r = read_whole(path);
    sm_recording *out = allocate(1, sizeof *out);
    out->text_bytes = (char *)texts.bytes;
    assert_memory_equal(take(&r, 4), "WTLP", 4);
    assert_int_equal(take_u32(&r), VERSION);
    out->count = (int)take_u32(&r);
    out->top = (int)take_u32(&r);
    out->vocab = (int)take_u32(&r);
    assert_true(out->count >= 1 && (size_t)out->count <= r.size);
    assert_in_range(out->top, 2, MAX_TOP);
    assert_in_range(out->vocab, out->top + 1, 65536);
    if (take_u32(&r) != texts.size ||
        take_u64(&r) != wf_hash_fnv1a(WF_FNV1A, texts.bytes, texts.size))
        fail_msg("%s was recorded from other texts than those in texts.txt", path);
    assert_int_equal(r.at, HEADER_BYTES);

    /* The file size bounds every array: an id takes two bytes, any other element at least four. */
    out->texts = allocate((size_t)out->count, sizeof *out->texts);
    out->ids = allocate(r.size / 2, sizeof *out->ids);
    out->positions = allocate(r.size / 8, sizeof *out->positions);
    out->logprobs = allocate(r.size / 4, sizeof *out->logprobs);
    cursor c = {out->ids, out->logprobs, out->positions};
    for (int i = 0; i < out->count; i++)
        take_text(&r, out, texts.size, &out->texts[i], &c);
    assert_int_equal(r.at, r.size);
    free(r.bytes);
    return out;
}

void sm_close(sm_recording *r)
{
    if (r == NULL)
        return;
    free(r->texts);
    free(r->text_bytes);
    free(r->ids);
    free(r->positions);
    free(r->logprobs);
    free(r);
}

const sm_text *sm_find(const sm_recording *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->texts[i].name, name) == 0)
            return &r->texts[i];
    fail_msg("there is no recorded text called %s", name);
    return NULL;
}

/* ---- Comparing ----------------------------------------------------------------------------- */

double sm_margin(const sm_position *p)
{
    return (double)p->logprob[0] - (double)p->logprob[1];
}

double sm_divergence(const sm_recording *r, const sm_position *p, const float *logits)
{
    double most = logits[0], sum = 0, listed = 0, kl = 0;
    for (int i = 1; i < r->vocab; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < r->vocab; i++)
        sum += exp(logits[i] - most);
    for (int k = 0; k < r->top; k++) {
        const double q = logits[p->id[k]] - most - log(sum);
        kl += exp(p->logprob[k]) * (p->logprob[k] - q);
        listed += exp(q);
    }
    /* The remaining mass can vanish in rounding; keep the logarithm finite. */
    const double others = fmax(1 - listed, 1e-15);
    return kl + exp(p->rest) * (p->rest - log(others));
}
