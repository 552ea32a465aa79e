/* SPDX-License-Identifier: MIT */
/* normal.h - normalizers: transform a text before it is split. */
#ifndef WF_TEXT_NORMAL_H
#define WF_TEXT_NORMAL_H

#include "base/writer.h"
#include "text/charsmap.h"
#include "text/pattern.h"

typedef enum {
    WF_NORMAL_NFC,
    WF_NORMAL_NFD,
    WF_NORMAL_NFKC,
    WF_NORMAL_NFKD,
    WF_NORMAL_PREPEND, /* puts `content` before a text that is not empty */
    WF_NORMAL_REPLACE, /* replaces each match of `pattern`, or of the string `what`, by `content` */
    WF_NORMAL_STRIP,   /* removes white space at the start (left) and the end (right) */
    WF_NORMAL_LOWERCASE,
    WF_NORMAL_STRIP_ACCENTS, /* removes combining marks */
    WF_NORMAL_NMT,           /* removes control characters, makes rare spaces ordinary */
    WF_NORMAL_PRECOMPILED,   /* the rules of `map` */
    WF_NORMAL_BERT,          /* the next three, NFD and LOWERCASE, as its flags say */
    WF_NORMAL_CLEAN,         /* removes control characters, makes all white space a space */
    WF_NORMAL_CHINESE,       /* puts spaces around CJK ideographs */
    WF_NORMAL_NONSPACING     /* removes nonspacing marks */
} wf_normal_kind;

/* The types in tokenizer.json of kinds that have no members; NULL: the kind has some. */
extern const char *const wf_normal_names[WF_NORMAL_NONSPACING + 1];

/* Patterns of REPLACE that need no engine: runs of spaces. */
typedef enum {
    WF_RUNS_NONE,
    WF_RUNS_ANY,  /* " +" */
    WF_RUNS_LONG, /* " {2,}" */
    WF_RUNS_OUTER /* "\\A +| +\\z": at the start and the end of the text */
} wf_runs;

typedef struct {
    wf_normal_kind kind;
    wf_pattern *pattern;        /* of REPLACE, owned by the tokenizer, or NULL */
    wf_runs runs;               /* of REPLACE; NONE, and pattern NULL: `what` is a string */
    const char *what, *content; /* in the tokenizer's arena */
    size_t what_bytes, content_bytes;
    bool left, right;                    /* of STRIP */
    bool clean, chinese, accents, lower; /* of BERT; accents: remove them */
    const wf_charsmap *map;              /* of PRECOMPILED, in the tokenizer's arena */
    /* Of PRECOMPILED. SentencePiece applies the longest rule at each character. Otherwise as in the
     * package tokenizers: the shortest, which replaces a whole grapheme cluster of less than six
     * bytes, or else single characters. */
    bool longest;
} wf_normal_step;

/* A text with a mark for each byte; plain == NULL: no marks. */
typedef struct {
    const char *text;
    const uint8_t *plain;
    size_t bytes;
} wf_marked;

/* Runs the steps on valid UTF-8. out->text is NULL when nothing changes; otherwise the caller frees
 * out->text and out->plain with wf_mem_free. A character is marked if any character that it was
 * made from was marked. A text that would grow too much is WF_ERR_UNSUPPORTED. */
wf_status wf_normal_run(wf_ctx *ctx, const wf_normal_step *steps, int count, wf_marked from,
                        wf_marked *out);

/* Returns the runs that a pattern matches; NONE: it needs an engine. */
wf_runs wf_runs_known(const char *pattern, size_t bytes);
extern const char *const wf_runs_patterns[]; /* by wf_runs */

/* Unicode normalization forms, in linear time: D, or with these bits C, KD and KC. */
enum { WF_FORM_COMPOSED = 1, WF_FORM_COMPAT = 2 };
wf_status wf_form_run(wf_ctx *ctx, unsigned form, wf_marked from, wf_marked *out);

/* Moves the text, and the marks unless NULL, from the writers to out. If status is a failure, frees
 * them and returns it. */
wf_status wf_normal_take(wf_writer *w, wf_writer *marks, wf_status status, wf_marked *out);

#endif
