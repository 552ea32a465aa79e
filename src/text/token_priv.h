/* SPDX-License-Identifier: MIT */
/* token_priv.h - the tokenizer's structure and its construction. */
#ifndef WF_TEXT_TOKEN_PRIV_H
#define WF_TEXT_TOKEN_PRIV_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/decode.h"
#include "text/normal.h"
#include "text/token.h"
#include "text/unigram.h"
#include "text/wordpiece.h"
#include "text/words.h"

#define WF_TOKEN_STEPS 32 /* most steps of a normalizer, pre-tokenizer or decoder */
#define WF_TOKEN_FRAME 16 /* most tokens added before, or after, a text */
#define WF_TOKEN_ENDS 64  /* most tokens that end a text */
#define WF_TOKEN_NAMES 64 /* most tokens with a name */

typedef struct {
    const char *name; /* "bos_token" */
    const char *text;
    size_t bytes;
} wf_named_token;

typedef enum { WF_MODEL_BPE, WF_MODEL_WORDPIECE, WF_MODEL_UNIGRAM } wf_model_kind;

typedef enum {
    WF_CUT_NEVER,
    WF_CUT_WORDS, /* byte-level BPE, BERT: before a space or line break that begins a word */
    WF_CUT_SPACES /* SentencePiece: before a space; pieces must be encoded by wf_encoder_part */
} wf_cut_kind;

struct wf_tokenizer {
    wf_ctx *ctx;
    wf_arena arena; /* owns everything below except the patterns */
    wf_vocab vocab;
    wf_model_kind model; /* which of the next three is used */
    wf_bpe bpe;
    wf_wordpiece wordpiece;
    wf_unigram unigram;
    wf_added_token *added; /* [adds] in order of ids */
    int adds;
    wf_added raw, normal; /* matched before, and after, normalizing */

    wf_normal_step normals[WF_TOKEN_STEPS];
    wf_words_step words[WF_TOKEN_STEPS];
    wf_decode_step decodes[WF_TOKEN_STEPS];
    int normal_count, word_count, decode_count;

    int32_t before[WF_TOKEN_FRAME], after[WF_TOKEN_FRAME]; /* ids around a text: bos, eos */
    int before_count, after_count;
    int32_t special[4]; /* by wf_special; -1: missing */
    /* [nameds] special tokens by the names that chat templates use. They come from
     * tokenizer_config.json; without one, wf_tokenizer_finish adds those of `special`. */
    wf_named_token *named;
    int nameds;
    bool configured;
    int32_t ends[WF_TOKEN_ENDS]; /* ids after which a text ends */
    int end_count;
    int known_ends;      /* the first ones, which follow from eos and the vocabulary */
    wf_cut_kind cuts[2]; /* without, and with, control tokens */
};

/* Position of a piece in its text. */
enum { WF_PART_FIRST = 1, WF_PART_LAST = 2 };
/* As wf_encoder_run, for one piece of a text: bos is added only before the first piece, eos after
 * the last. */
wf_status wf_encoder_part(wf_encoder *e, const char *text, size_t bytes, uint32_t flags,
                          uint32_t part, const int32_t **ids, size_t *count);
/* As wf_tokenizer_cut, for texts whose pieces are encoded by wf_encoder_part. */
size_t wf_tokenizer_cut_part(const wf_tokenizer *t, bool control, const char *text, size_t least,
                             size_t most);
/* Determines where texts may be cut. Call last, when the tokenizer is complete. */
void wf_tokenizer_index_cuts(wf_tokenizer *t);

/* Names of the tokens in `special`: "bos_token", ... */
extern const char *const wf_special_names[4];

/* Further special tokens that GGUF files have keys for. "seperator" is the format's spelling. */
static const struct {
    const char *name, *key;
} wf_gguf_names[] = {{"sep_token", "tokenizer.ggml.seperator_token_id"},
                     {"cls_token", "tokenizer.ggml.cls_token_id"},
                     {"mask_token", "tokenizer.ggml.mask_token_id"}};

/* Creates an empty tokenizer. */
wf_status wf_tokenizer_new(wf_ctx *ctx, wf_tokenizer **out);
/* Call when vocabulary, kinds, added tokens and steps are set: builds the indices and adds
 * well-known ends. */
wf_status wf_tokenizer_finish(wf_tokenizer *t);
/* Names a special token; copies both strings. A second token of the same name is ignored. */
wf_status wf_tokenizer_name(wf_tokenizer *t, const char *name, const char *text, size_t bytes);
/* The same by id; -1 is ignored. */
wf_status wf_tokenizer_name_id(wf_tokenizer *t, const char *name, int32_t id);
/* Adds an id to, or removes it from, those before or (behind) after texts. */
wf_status wf_tokenizer_frame(wf_tokenizer *t, bool behind, int32_t id, bool add);
/* Returns whether tokens of this kind match and decode as control tokens. */
static inline bool wf_kind_is_control(wf_token_kind kind)
{
    return kind == WF_TOKEN_CONTROL || kind == WF_TOKEN_UNKNOWN;
}

/* Add a step. Its strings are copied into the arena. Fail when there are too many, or a pattern is
 * invalid. */
wf_status wf_tokenizer_add_normal(wf_tokenizer *t, wf_normal_step step, bool regex);
wf_status wf_tokenizer_add_words(wf_tokenizer *t, wf_words_step step, bool regex);
wf_status wf_tokenizer_add_decode(wf_tokenizer *t, wf_decode_step step);

#define WF_SPACE_MARK "\xE2\x96\x81" /* U+2581, which represents a space in SentencePiece */

/* Adds the steps of SentencePiece: U+2581 replaces spaces; prefix: one is put before a text; merge:
 * spaces at the ends are removed, and one mark replaces a run of them. */
wf_status wf_tokenizer_set_spaces(wf_tokenizer *t, bool prefix, bool merge);
/* Returns whether the steps from `first` on are those of wf_tokenizer_set_spaces. */
bool wf_tokenizer_is_spaced(const wf_tokenizer *t, int first, bool *prefix, bool *merge);

#endif
