/* SPDX-License-Identifier: MIT */
/*
 * events.c - encodes TensorBoard events.
 *
 * A record is: length u64, masked CRC u32 of the length, data, masked CRC u32 of the data; all
 * little-endian. Data is a protocol buffer, written by the few functions below: keys are field << 3
 * | wire type, integers are varints.
 */
#include "train/events.h"

#include <string.h>

#include "base/mem.h"

/* Processes half a byte at a time: records are small, and so is the table. */
uint32_t wf_events_crc32c(const void *bytes, size_t count)
{
    static const uint32_t table[16] = {0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1,
                                       0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
                                       0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9,
                                       0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75};
    const uint8_t *b = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= b[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* ---- Protocol buffers; field numbers as in the .proto files ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_fixed(wf_writer *w, uint64_t bits, int bytes)
{
    for (int i = 0; i < bytes; i++)
        wf_writer_char(w, (char)(uint8_t)(bits >> 8 * i));
}

/* Seven bits per byte, the lowest first; the high bit says that more follow. */
static void put_varint(wf_writer *w, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        wf_writer_char(w, (char)(uint8_t)(value | 0x80));
    wf_writer_char(w, (char)(uint8_t)value);
}

static void put_key(wf_writer *w, int field, int type)
{
    put_varint(w, (uint64_t)field << 3 | (uint64_t)type);
}

static void put_int(wf_writer *w, int field, int64_t value)
{
    put_key(w, field, VARINT);
    put_varint(w, (uint64_t)value);
}

static void put_bytes(wf_writer *w, int field, const char *bytes, size_t count)
{
    put_key(w, field, BYTES);
    put_varint(w, count);
    wf_writer_bytes(w, bytes, count);
}

static void put_string(wf_writer *w, int field, const char *s)
{
    put_bytes(w, field, s, strlen(s));
}

/* Writes a nested message and frees its memory. */
static void put_message(wf_writer *w, int field, wf_writer *message)
{
    put_bytes(w, field, message->text, message->len);
    if (message->status != WF_OK)
        w->status = message->status;
    wf_mem_free(message->ctx, message->text);
    *message = (wf_writer){.ctx = message->ctx};
}

/* ---- Records ---- */

/* Writes wall_time (1) and step (2) of an Event. */
static void begin_event(wf_writer *event, double time, int64_t step)
{
    uint64_t bits;
    memcpy(&bits, &time, sizeof bits);
    put_key(event, 1, FIXED64);
    put_fixed(event, bits, 8);
    put_int(event, 2, step);
}

/* TFRecord's masked CRC: rotated and offset, because a CRC of data that contains its own CRC is
 * weak. */
static uint32_t masked(const void *bytes, size_t count)
{
    uint32_t crc = wf_events_crc32c(bytes, count);
    return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

/* Writes length and data, each with its checksum. */
static void put_record(wf_writer *w, wf_writer *event)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)event->len >> 8 * i);
    wf_writer_bytes(w, length, sizeof length);
    put_fixed(w, masked(length, sizeof length), 4);
    wf_writer_bytes(w, event->text, event->len);
    put_fixed(w, masked(event->text, event->len), 4);
    if (event->status != WF_OK)
        w->status = event->status;
    wf_mem_free(event->ctx, event->text);
}

void wf_events_start(wf_writer *w, double time, int64_t step)
{
    wf_writer version = {.ctx = w->ctx}, start = {.ctx = w->ctx}, session = {.ctx = w->ctx};
    begin_event(&version, time, 0);
    put_string(&version, 3, "brain.Event:2");
    put_record(w, &version);
    begin_event(&start, time, step);
    put_int(&session, 1, 1); /* SessionLog.START */
    put_message(&start, 7, &session);
    put_record(w, &start);
}

void wf_events_scalars(wf_writer *w, double time, int64_t step, const wf_events_scalar *s, int n)
{
    wf_writer event = {.ctx = w->ctx}, summary = {.ctx = w->ctx}, value = {.ctx = w->ctx};
    begin_event(&event, time, step);
    for (int i = 0; i < n; i++) {
        float number = (float)s[i].value;
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        put_string(&value, 1, s[i].tag);
        put_key(&value, 2, FIXED32);
        put_fixed(&value, bits, 4);
        put_message(&summary, 1, &value);
    }
    put_message(&event, 5, &summary);
    put_record(w, &event);
}

/* Writes text as a Markdown code block, which TensorBoard displays verbatim. */
static void put_indented(wf_writer *w, const char *text)
{
    for (const char *line = text;; line++) {
        size_t bytes = strcspn(line, "\n");
        wf_writer_bytes(w, "    ", 4);
        wf_writer_bytes(w, line, bytes);
        line += bytes;
        if (!*line)
            return;
        wf_writer_char(w, '\n');
    }
}

void wf_events_text(wf_writer *w, double time, int64_t step, const char *tag, const char *text)
{
    enum { DT_STRING = 7, DATA_CLASS_TENSOR = 2 };
    wf_writer event = {.ctx = w->ctx}, summary = {.ctx = w->ctx}, value = {.ctx = w->ctx};
    wf_writer part = {.ctx = w->ctx}, inner = {.ctx = w->ctx};
    begin_event(&event, time, step);
    put_string(&value, 1, tag);

    put_int(&part, 1, DT_STRING);
    put_message(&part, 2, &inner); /* a scalar shape */
    put_indented(&inner, text);
    put_message(&part, 8, &inner);
    put_message(&value, 8, &part);

    put_string(&inner, 1, "text"); /* the plugin that displays it */
    put_message(&part, 1, &inner);
    put_int(&part, 4, DATA_CLASS_TENSOR);
    put_message(&value, 9, &part);

    put_message(&summary, 1, &value);
    put_message(&event, 5, &summary);
    put_record(w, &event);
}
