/* SPDX-License-Identifier: MIT */
/* test_record.c - the records of a run: the log, the event file (read by a second decoder here),
 * and the drawing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "scratch.h"
#include "support.h"
#include "train/events.h"
#include "train/history.h"

static wt_scratch scratch;

static wf_train_step point(int64_t step)
{
    return (wf_train_step){.step = step,
                           .steps = 100,
                           .loss = 2.0 + 1.0 / (double)step,
                           .norm = 0.5,
                           .rate = 0.25,
                           .seconds = 0.5,
                           .tokens_per_second = 4096,
                           .tokens = 2048 * step,
                           .memory = 1 << 20,
                           .applied = true};
}

static char *contents(wf_ctx *ctx, const char *path, size_t *bytes)
{
    char *text;
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, bytes));
    return text;
}

/* The test vectors of RFC 3720, B.4. */
static void test_crc32c(void **state)
{
    (void)state;
    uint8_t bytes[32];
    assert_int_equal(wf_events_crc32c("", 0), 0);
    assert_int_equal(wf_events_crc32c("123456789", 9), 0xE3069283);
    memset(bytes, 0, 32);
    assert_int_equal(wf_events_crc32c(bytes, 32), 0x8A9136AA);
    memset(bytes, 0xFF, 32);
    assert_int_equal(wf_events_crc32c(bytes, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(wf_events_crc32c(bytes, 32), 0x46DD794E);
}

/* ---- A decoder of event files ---- */

typedef struct {
    const uint8_t *at, *end;
} slice;

static uint64_t fixed(slice *s, int bytes)
{
    uint64_t value = 0;
    assert_true(s->end - s->at >= bytes);
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)*s->at++ << 8 * i;
    return value;
}

static uint64_t varint(slice *s)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(s->at < s->end && shift < 64);
        value |= (uint64_t)(*s->at & 0x7F) << shift;
        if (!(*s->at++ & 0x80))
            return value;
    }
}

static slice cut(slice *s, uint64_t bytes)
{
    assert_true((uint64_t)(s->end - s->at) >= bytes);
    slice inner = {s->at, s->at + bytes};
    s->at = inner.end;
    return inner;
}

/* Reads the next field into `bits` or `inner`. Returns its number, or 0 at the end. */
static int next_field(slice *s, uint64_t *bits, slice *inner)
{
    if (s->at == s->end)
        return 0;
    uint64_t key = varint(s);
    switch (key & 7) {
    case 0: *bits = varint(s); break;
    case 1: *bits = fixed(s, 8); break;
    case 2: *inner = cut(s, varint(s)); break;
    case 5: *bits = fixed(s, 4); break;
    default: fail_msg("a field of kind %d", (int)(key & 7));
    }
    return (int)(key >> 3);
}

static bool is_text(slice s, const char *text)
{
    return (size_t)(s.end - s.at) == strlen(text) && memcmp(s.at, text, strlen(text)) == 0;
}

/* Prints each value as "STEP TAG VALUE;". */
static void print_value(slice s, uint64_t step, char *out)
{
    slice inner = {0}, tag = {0}, tensor = {0}, data = {0};
    uint64_t bits = 0, number = 0;
    bool scalar = false;
    for (int field; (field = next_field(&s, &bits, &inner)) != 0;) {
        tag = field == 1 ? inner : tag;
        tensor = field == 8 ? inner : tensor;
        if (field == 2) {
            scalar = true;
            number = bits;
        }
        if (field == 9) { /* metadata, plugin_data, plugin_name */
            assert_int_equal(next_field(&inner, &bits, &data), 1);
            assert_int_equal(next_field(&data, &bits, &data), 1);
            assert_true(is_text(data, "text"));
        }
    }
    for (int field; !scalar && (field = next_field(&tensor, &bits, &inner)) != 0;)
        data = field == 8 ? inner : data;
    float value;
    uint32_t narrow = (uint32_t)number;
    memcpy(&value, &narrow, 4);
    out += strlen(out);
    int n = sprintf(out, "%d %.*s ", (int)step, (int)(tag.end - tag.at), (const char *)tag.at);
    if (scalar)
        sprintf(out + n, "%g;", (double)value);
    else
        sprintf(out + n, "%.*s;", (int)(data.end - data.at), (const char *)data.at);
}

static void print_event(slice s, char *out)
{
    slice inner = {0}, value = {0};
    uint64_t bits = 0, step = 0;
    double time = 0;
    for (int field; (field = next_field(&s, &bits, &inner)) != 0;) {
        if (field == 1)
            memcpy(&time, &bits, 8);
        else if (field == 2)
            step = bits;
        else if (field == 3)
            sprintf(out + strlen(out), "%.*s;", (int)(inner.end - inner.at),
                    (const char *)inner.at);
        else if (field == 7)
            sprintf(out + strlen(out), "start %d;", (int)step);
        else if (field == 5)
            while (next_field(&inner, &bits, &value) == 1)
                print_value(value, step, out);
    }
    assert_true(time > 1e9);
}

static uint32_t unmask(uint64_t masked)
{
    uint32_t rotated = (uint32_t)masked - 0xA282EAD8;
    return rotated >> 17 | rotated << 15;
}

static void decode(wf_ctx *ctx, const char *path, char *out)
{
    size_t bytes;
    char *file = contents(ctx, path, &bytes);
    slice s = {(uint8_t *)file, (uint8_t *)file + bytes};
    out[0] = '\0';
    while (s.at < s.end) {
        const uint8_t *length = s.at;
        uint64_t n = fixed(&s, 8);
        assert_int_equal(unmask(fixed(&s, 4)), wf_events_crc32c(length, 8));
        slice event = cut(&s, n);
        assert_int_equal(unmask(fixed(&s, 4)), wf_events_crc32c(event.at, n));
        print_event(event, out);
    }
    wf_mem_free(ctx, file);
}

/* Returns the path of the nth event file in the folder. */
static const char *event_file(wf_ctx *ctx, int nth)
{
    wf_arena arena;
    const char *const *names, *path = NULL;
    size_t count;
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_path_list(&arena, scratch.folder, 100, &names, &count));
    for (size_t i = 0; i < count; i++)
        if (strncmp(names[i], "events.out.tfevents.", 20) == 0 && nth-- == 0)
            path = wt_path(&scratch, names[i]);
    wf_arena_free(&arena);
    assert_non_null(path);
    return path;
}

/* ---- Runs ---- */

static void test_run(void **state)
{
    wf_ctx *ctx = *state;
    wf_record *r;
    char events[4096];
    size_t bytes;
    wt_scratch_make(&scratch);
    wt_ok(ctx, wf_record_open(ctx, scratch.folder, 0, &r));
    wf_train_step p = point(1);
    p.share = 0.5;
    wt_ok(ctx, wf_record_step(r, &p));
    wt_ok(ctx, wf_record_valid(r, 1, 2.5, 1.25));
    wt_ok(ctx, wf_record_sample(r, 1, "a \"b\"\n\tc\xFF\x01"));
    p = point(2);
    p.loss = NAN;
    p.applied = false;
    p.skipped = 1;
    wt_ok(ctx, wf_record_step(r, &p));
    wt_ok(ctx, wf_record_valid(r, 2, 2.25, NAN));
    wf_record_close(r);

    char *log = contents(ctx, wt_path(&scratch, WF_RECORD_LOG), &bytes);
    static const char *const lines[] = {
        "{\"event\":\"start\",\"step\":0,\"time\":",
        "{\"event\":\"step\",\"step\":1,\"steps\":100,\"loss\":3,\"norm\":0.5,\"rate\":0.25,"
        "\"seconds\":0.5,\"tokens_per_second\":4096,\"share\":0.5,\"tokens\":2048,\"skipped\":0,"
        "\"memory\":1048576,\"applied\":true,\"time\":",
        "{\"event\":\"valid\",\"step\":1,\"loss\":2.5,\"bits_per_byte\":1.25,\"time\":",
        "{\"event\":\"sample\",\"step\":1,\"text\":\"a "
        "\\\"b\\\"\\n\\u0009c\xEF\xBF\xBD\\u0001\",\"time\":",
        "{\"event\":\"step\",\"step\":2,\"steps\":100,\"loss\":null,",
        "{\"event\":\"valid\",\"step\":2,\"loss\":2.25,\"time\":"};
    const char *line = log;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_memory_equal(line, lines[i], strlen(lines[i]));
        line = strchr(line, '\n') + 1;
    }
    assert_int_equal(*line, '\0');
    wf_mem_free(ctx, log);

    decode(ctx, event_file(ctx, 0), events);
    assert_string_equal(events,
                        "brain.Event:2;start 1;1 loss 3;1 norm 0.5;1 rate 0.25;"
                        "1 tokens_per_second 4096;1 valid/loss 2.5;1 valid/bits_per_byte 1.25;"
                        "1 sample     a \"b\"\n    \tc\xEF\xBF\xBD\x01;2 loss nan;2 norm 0.5;"
                        "2 rate 0.25;2 tokens_per_second 4096;2 valid/loss 2.25;");
    assert_int_equal(wf_path_look(wt_path(&scratch, "loss.svg")), WF_PATH_FILE);
    assert_int_equal(wt_entries(&scratch), 3);
    wt_scratch_remove(&scratch);
}

static void write_steps(wf_ctx *ctx, int64_t from, int64_t to)
{
    wf_record *r;
    wt_ok(ctx, wf_record_open(ctx, scratch.folder, from, &r));
    for (int64_t i = from + 1; i <= to; i++) {
        wf_train_step p = point(i);
        p.loss += (double)from;
        wt_ok(ctx, wf_record_step(r, &p));
    }
    wf_record_close(r);
}

/* Resuming removes log lines after the checkpoint, closes a line that a crash truncated, and starts
 * a new event file. */
static void test_resume(void **state)
{
    wf_ctx *ctx = *state;
    wf_history h = {.ctx = ctx};
    char events[8192];
    wt_scratch_make(&scratch);
    write_steps(ctx, 0, 10);
    FILE *f = fopen(wt_path(&scratch, WF_RECORD_LOG), "ab");
    assert_non_null(f);
    fputs("{\"event\":\"step\",\"step\":11,\"lo", f);
    fclose(f);
    write_steps(ctx, 4, 8);
    wt_ok(ctx, wf_history_read(&h, wt_path(&scratch, WF_RECORD_LOG)));
    assert_int_equal(h.count, 8);
    assert_int_equal(h.ignored, 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(h.steps[i].step, i + 1);
        assert_true(h.steps[i].loss == 2 + 1.0 / (i + 1) + (i < 4 ? 0 : 4));
        assert_true(h.steps[i].seconds == 0.5 * (i + 1));
    }
    wf_history_free(&h);
    decode(ctx, event_file(ctx, 1), events);
    assert_memory_equal(events, "brain.Event:2;start 5;5 loss ", 29);

    /* Validations after the checkpoint are removed too, whether or not later ones were recorded. */
    wf_record *r;
    wt_ok(ctx, wf_record_open(ctx, scratch.folder, 8, &r));
    for (int64_t step = 2; step <= 8; step += 2)
        wt_ok(ctx, wf_record_valid(r, step, 3.0, NAN));
    wf_record_close(r);
    write_steps(ctx, 5, 7);
    wt_ok(ctx, wf_history_read(&h, wt_path(&scratch, WF_RECORD_LOG)));
    assert_int_equal(h.count, 7);
    assert_int_equal(h.valid_count, 2);
    assert_int_equal(h.valids[1].step, 4);
    wf_history_free(&h);

    write_steps(ctx, 0, 2); /* from the start again */
    wt_ok(ctx, wf_history_read(&h, wt_path(&scratch, WF_RECORD_LOG)));
    assert_int_equal(h.count, 2);
    wf_history_free(&h);
    wt_scratch_remove(&scratch);
}

/* When files cannot grow, the first failure is reported, the log keeps whole lines, and logging
 * continues once there is room. */
static void test_full_disk(void **state)
{
    wf_ctx *ctx = *state;
    wf_record *r;
    wf_file_stamp before, after;
    struct rlimit old, small;
    wf_train_step p = point(1);
    wt_scratch_make(&scratch);
    signal(SIGXFSZ, SIG_IGN);
    wt_ok(ctx, wf_record_open(ctx, scratch.folder, 0, &r));
    for (int i = 0; i < 10; i++) /* of the same step: the log is now by far the largest file */
        wt_ok(ctx, wf_record_step(r, &p));
    assert_true(wf_file_look(wt_path(&scratch, WF_RECORD_LOG), &before));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (int round = 0; round < 2; round++) {
        small = (struct rlimit){(rlim_t)before.bytes + 50, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        wf_status first = wf_record_step(r, &(wf_train_step){.step = 2});
        char why[256];
        snprintf(why, sizeof why, "%s", wf_ctx_message(ctx));
        wf_status second = wf_record_step(r, &(wf_train_step){.step = 3});
        assert_true(wf_file_look(wt_path(&scratch, WF_RECORD_LOG), &after));
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(first, WF_ERR_IO);
        assert_non_null(strstr(why, "cannot write '"));
        assert_non_null(strstr(why, WF_RECORD_LOG));
        assert_int_equal(second, WF_OK);
        assert_int_equal(after.bytes, before.bytes);
        p = point(4 + round);
        wt_ok(ctx, wf_record_step(r, &p));
        assert_true(wf_file_look(wt_path(&scratch, WF_RECORD_LOG), &before));
        assert_true(before.bytes > after.bytes);
    }
    wf_record_close(r);
    wf_history h = {.ctx = ctx};
    wt_ok(ctx, wf_history_read(&h, wt_path(&scratch, WF_RECORD_LOG)));
    assert_int_equal(h.count, 3);
    assert_int_equal(h.ignored, 0);
    assert_int_equal(h.steps[2].step, 5);
    wf_history_free(&h);
    wt_scratch_remove(&scratch);
}

static void test_mistakes(void **state)
{
    wf_ctx *ctx = *state;
    wf_record *r;
    wt_fails(ctx, wf_record_open(ctx, "tests/there-is-none", 0, &r), WF_ERR_IO, "log.jsonl");
    assert_null(r);
}

/* Every allocation fails in turn: nothing leaks, and the failure is reported. */
static void test_memory(void **state)
{
    wf_ctx *ctx = *state;
    bool reached = true;
    uint64_t blocks = wt_live_blocks(ctx);
    for (uint64_t nth = 1; reached; nth++) {
        /* A new folder each time: existing files change the number of allocations. */
        wt_scratch_make(&scratch);
        write_steps(ctx, 0, 3);
        wf_record *r = NULL;
        wf_mem_stats stats;
        wf_train_step p = point(4);
        wf_ctx_mem_stats(ctx, &stats);
        uint64_t calls = stats.calls;
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_record_open(ctx, scratch.folder, 3, &r);
        if (status == WF_OK)
            status = wf_record_step(r, &p);
        if (status == WF_OK)
            status = wf_record_valid(r, 4, 1, 1);
        if (status == WF_OK)
            status = wf_record_sample(r, 4, "text");
        wf_ctx_mem_stats(ctx, &stats);
        reached = stats.calls - calls >= nth;
        wf_ctx_fail_allocation(ctx, 0);
        wf_record_close(r);
        assert_int_equal(wt_live_blocks(ctx), blocks);
        assert_int_equal(status, reached ? WF_ERR_MEMORY : WF_OK);
        wt_scratch_remove(&scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crc32c), wt_test(test_run),
                                       wt_test(test_resume),          wt_test(test_full_disk),
                                       wt_test(test_mistakes),        wt_test(test_memory)};
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
