/* SPDX-License-Identifier: MIT */
/*
 * piece.h - texts as pieces of work: cut from files in order, encoded by threads, taken in order again.
 *
 * Where pieces begin and end depends on the texts alone, so that the tokens do not depend on threads.
 */
#ifndef WF_TRAIN_PIECE_H
#define WF_TRAIN_PIECE_H

#include "text/template.h"
#include "text/token.h"
#include "train/conversation.h"
#include "train/data.h"
#include "train/source.h"

#define WF_PIECE_BYTES ((size_t)1 << 17) /* of text, about */
#define WF_LINE_BYTES ((size_t)1 << 26)  /* most of a line of JSON */
#define WF_BY_NUMBER (-1) /* the split is chosen when the document's number is known */

typedef enum {
    WF_PIECE_PART, /* of one document, or all of it */
    WF_PIECE_LINES,
    WF_PIECE_ELEMENTS, /* of an array */
    WF_PIECE_DOCUMENTS /* with what stands between them */
} wf_piece_kind;

/* A document, or what a piece has of it. */
typedef struct {
    size_t ids;   /* how many */
    size_t bytes; /* of text */
    bool begins, ends;
} wf_encoded;

typedef struct {
    wf_piece_kind kind;
    const wf_source *source;
    const char *text;
    size_t bytes;
    bool begins, ends; /* PART: the document */
    int split;         /* a wf_split or WF_BY_NUMBER */

    /* What becomes of it; memory is that of ctx. */
    wf_ctx *ctx;
    int32_t *ids;
    uint8_t *mask; /* NULL: all count */
    size_t count, room, mask_room;
    wf_encoded *document; /* [documents] */
    int documents, document_room;
    bool has_text, has_chat;
    int64_t lines;   /* or elements */
    int64_t dropped; /* documents with nothing to learn */
    int64_t bad;     /* records that cannot be read, where these are skipped */
    int64_t cuts;
    wf_status status;
    int64_t
        line; /* of a failure, or of the first that was skipped, from 1 on, of this piece; 0: none */
    char why[WF_MESSAGE_BYTES];
} wf_piece_work;

/* ---- Cutting files into pieces ---- */

typedef struct {
    wf_ctx *ctx;
    const wf_sources *sources;
    const wf_tokenizer *tokenizer;
    const char *split_on; /* NULL: files are documents */
    double tail;          /* share at the end of each text that is to validate on; 0: none */
    int split;            /* of all else */

    size_t next;     /* source */
    wf_opened open;  /* the one before it; map NULL: none */
    size_t at;       /* its bytes up to here are in pieces */
    size_t end;      /* of the document that is being cut into parts; at: none is */
    size_t document; /* where it began */
    size_t resume;   /* where the next begins */
    size_t cut;      /* where the part that is validated on begins; end: nowhere */
    int64_t cuts;    /* of which it is not known whether they change tokens */
} wf_cutter;

/* false: there is none left, or (*status) it failed. The piece's text lies in the source that is open now, or was when
 * it was cut: *closed is one that no later piece lies in, to be closed when all before are done; map NULL: none. */
bool wf_cutter_next(wf_cutter *c, wf_piece_work *out, wf_opened *closed, wf_status *status);

/* The largest place in [least, most] where a text can be cut, best where it does not change tokens; *proved: so it is. */
size_t wf_cut_text(const wf_tokenizer *t, const char *text, size_t least, size_t most,
                   bool *proved);

/* Counts documents up to `enough`. Opens files, but reads only those that may have several. */
wf_status wf_count_documents(wf_ctx *ctx, const wf_sources *s, const char *split_on, int64_t enough,
                             int64_t *out);

/* ---- Encoding them ---- */

typedef struct {
    wf_conversations
        chat; /* tokenizer and end are those of texts, too; template NULL: there are no conversations */
    const int32_t *before; /* ids that a text begins with */
    size_t befores;
    const char *split_on;
    bool skip_bad; /* records that cannot be read are counted, and left out */
} wf_encoding;

/* Fills in what becomes of a piece, a failure included. The context is the thread's own, as is the encoder, which is of that
 * context. */
void wf_piece_encode(const wf_encoding *e, wf_ctx *ctx, wf_encoder *texts, wf_piece_work *p);
void wf_piece_free(wf_piece_work *p);

/* "line 7 of 'FILE': WHY" of the first record that was skipped, for a log. */
void wf_piece_tell(const wf_piece_work *p, int64_t lines, char *out, size_t size);
/* "line 7 of 'FILE': WHY", where the piece begins behind so many lines. */
wf_status wf_piece_report(wf_ctx *ctx, const wf_piece_work *p, int64_t lines);

#endif
