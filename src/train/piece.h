/* SPDX-License-Identifier: MIT */
/*
 * piece.h - text as units of work: cut from files in order, encoded by threads, consumed in order.
 *
 * The boundaries of pieces depend only on the text, so the tokens do not depend on the number of
 * threads.
 */
#ifndef WF_TRAIN_PIECE_H
#define WF_TRAIN_PIECE_H

#include "text/template.h"
#include "text/token.h"
#include "train/conversation.h"
#include "train/data.h"
#include "train/source.h"

#define WF_PIECE_BYTES ((size_t)1 << 17) /* of text, approximately */
#define WF_LINE_BYTES ((size_t)1 << 26)  /* longest line of JSON */
#define WF_BY_NUMBER (-1)                /* the document's number decides the split, later */

typedef enum {
    WF_PIECE_PART, /* a part of one document, or all of it */
    WF_PIECE_LINES,
    WF_PIECE_ELEMENTS, /* elements of a JSON array */
    WF_PIECE_DOCUMENTS /* documents and their separators */
} wf_piece_kind;

/* A document, or the part of it in a piece. */
typedef struct {
    size_t ids;   /* how many */
    size_t bytes; /* of text */
    bool begins, ends;
} wf_encoded;

typedef struct {
    wf_piece_kind kind;
    const wf_source *source; /* borrowed */
    const char *text;        /* in the mapped source */
    size_t bytes;
    bool begins, ends; /* of its document (PART) */
    int split;         /* a wf_split or WF_BY_NUMBER */

    /* Results, allocated in ctx. */
    wf_ctx *ctx;
    int32_t *ids;
    uint8_t *mask; /* NULL: all tokens have loss */
    size_t count, room, mask_room;
    wf_encoded *document; /* [documents] */
    int documents, document_room;
    bool has_text, has_chat; /* kinds of records seen */
    int64_t lines;           /* or array elements */
    int64_t dropped;         /* documents without anything to train on */
    int64_t bad;             /* malformed records that were skipped */
    int64_t cuts;            /* inside documents, that may change tokens */
    wf_status status;
    /* Line of the error, or of the first skipped record, in this piece; from 1; 0: none. */
    int64_t line;
    char why[WF_MESSAGE_BYTES];
} wf_piece_work;

/* ---- Cutting files into pieces ---- */

typedef struct {
    wf_ctx *ctx;
    const wf_sources *sources;
    const wf_tokenizer *tokenizer;
    const char *split_on; /* separator; NULL: one document per file */
    double tail;          /* share at the end of each text for validation; 0: none */
    int split;            /* for everything else */

    size_t next;     /* next source to open */
    wf_opened open;  /* the open source; map NULL: none */
    size_t at;       /* bytes before this are in pieces */
    size_t end;      /* of the document being cut; equals `at` if none */
    size_t document; /* its start */
    size_t resume;   /* start of the next document */
    size_t cut;      /* start of the validation part; equals `end` if none */
    int64_t cuts;    /* cuts that may change tokens */
} wf_cutter;

/* Returns the next piece. false: no more pieces, or an error (*status). The piece points into the
 * open source, or into the one that was open when it was cut. *closed is a source that no later
 * piece uses; close it when all earlier pieces are done. map NULL: none. */
bool wf_cutter_next(wf_cutter *c, wf_piece_work *out, wf_opened *closed, wf_status *status);

/* Returns the largest position in [least, most] where the text can be cut, preferably without
 * changing tokens; *proved: it does not change them. */
size_t wf_cut_text(const wf_tokenizer *t, const char *text, size_t least, size_t most,
                   bool *proved);

/* Counts documents up to `enough`. Opens all files, but reads only those that may contain
 * several. */
wf_status wf_count_documents(wf_ctx *ctx, const wf_sources *s, const char *split_on, int64_t enough,
                             int64_t *out);

/* ---- Encoding them ---- */

typedef struct {
    /* Its tokenizer and end token also apply to texts; template NULL: no conversations. */
    wf_conversations chat;
    const int32_t *before; /* ids that start a text */
    size_t befores;        /* their number */
    const char *split_on;
    bool skip_bad; /* count and skip malformed records */
} wf_encoding;

/* Fills in the results of a piece, also on failure. Each thread has its own context and an encoder
 * made from it. */
void wf_piece_encode(const wf_encoding *e, wf_ctx *ctx, wf_encoder *texts, wf_piece_work *p);
void wf_piece_free(wf_piece_work *p);

/* Formats "line 7 of 'FILE': WHY" for the first skipped record. */
void wf_piece_tell(const wf_piece_work *p, int64_t lines, char *out, size_t size);
/* Fails with "line 7 of 'FILE': WHY"; `lines` is the number of lines before the piece. */
wf_status wf_piece_report(wf_ctx *ctx, const wf_piece_work *p, int64_t lines);

#endif
