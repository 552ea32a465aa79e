/* SPDX-License-Identifier: MIT */
/* json.h - writes one JSON document as it goes: to a stream, indented by two spaces, or to memory,
 * without white space.
 *
 * The calls follow the document's structure; the writer adds commas, colons and newlines. A call
 * out of place (a value without a key in an object, an end that matches no begin) fails an
 * assertion. Write errors stay in the stream or the wf_writer; wf_json_end reports them.
 *
 * Every JSON string in the program, here and in wf_writer, is escaped by wf_json_escape. */
#ifndef WF_BASE_JSON_H
#define WF_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* How control characters below U+0020 are written. Every style is valid JSON; a file format keeps
 * its style, so that its bytes stay the same. */
typedef enum {
    WF_JSON_NUMERIC, /* \u000a: safetensors, config.json, checkpoints */
    WF_JSON_NEWLINE, /* \n, the others as \u0009: the training log */
    WF_JSON_LETTERS, /* \b \f \n \r \t where they exist: tokenizer.json */
    WF_JSON_TERMINAL /* as LETTERS; terminal controls as \u202e, too: wf_json */
} wf_json_style;

/* Writes the first character of s[0..n), n > 0, as it stands in a JSON string, NUL-terminated. A
 * byte that is not UTF-8 becomes U+FFFD. Returns the bytes consumed; *bytes is the length of
 * out. */
#define WF_JSON_ESCAPE 8
size_t wf_json_escape(char out[WF_JSON_ESCAPE], const char *s, size_t n, wf_json_style style,
                      size_t *bytes);

typedef struct wf_writer wf_writer; /* base/writer.h */

/* Most open objects and arrays; one more fails an assertion. */
#define WF_JSON_DEPTH 32

typedef struct {
    /* One of them is set. Not owned. */
    FILE *out;
    wf_writer *text;
    int depth;
    bool keyed; /* a key has been written, its value has not */
    struct {
        char close;             /* '}' or ']' */
        bool filled;            /* the next item needs a comma */
    } level[WF_JSON_DEPTH + 1]; /* level[0] is the document itself */
} wf_json;

void wf_json_begin(wf_json *j, FILE *out);
/* Appends the document to `text`, on one line: "[1,2]". */
void wf_json_begin_text(wf_json *j, wf_writer *text);
/* Returns false if any write failed. A stream gets a final newline and is flushed. */
bool wf_json_end(wf_json *j);

void wf_json_object_begin(wf_json *j);
void wf_json_object_end(wf_json *j);
void wf_json_array_begin(wf_json *j);
void wf_json_array_end(wf_json *j);

void wf_json_key(wf_json *j, const char *key);
void wf_json_string(wf_json *j, const char *s); /* a byte that is not UTF-8 becomes U+FFFD */
/* As wf_json_string, for text that may contain a NUL. */
void wf_json_text(wf_json *j, const char *s, size_t bytes);
void wf_json_int(wf_json *j, int64_t value);
/* Writes the shortest text that reads back exactly; NaN and infinity as null. */
void wf_json_double(wf_json *j, double value);
void wf_json_bool(wf_json *j, bool value);
void wf_json_null(wf_json *j);
/* A key and its value. */
void wf_json_put_int(wf_json *j, const char *key, int64_t value);
void wf_json_put_text(wf_json *j, const char *key, const char *text); /* NULL is written as null */

#endif
