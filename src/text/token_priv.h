/* SPDX-License-Identifier: MIT */
/* token_priv.h - what a tokenizer is made of. */
#ifndef WF_TEXT_TOKEN_PRIV_H
#define WF_TEXT_TOKEN_PRIV_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/decode.h"
#include "text/normal.h"
#include "text/token.h"
#include "text/words.h"

#define WF_TOKEN_STEPS 32 /* most steps of a normalizer, pre-tokenizer or decoder */
#define WF_TOKEN_FRAME 16 /* most tokens put before or behind a text */
#define WF_TOKEN_ENDS 64
#define WF_TOKEN_NAMES 64 /* most tokens with a name */

typedef struct {
    const char *name; /* "bos_token" */
    const char *text;
    size_t bytes;
} wf_named_token;

typedef enum {
    WF_CUT_NEVER,
    WF_CUT_WORDS, /* before a space or line end that begins a word of byte-level BPE */
    WF_CUT_SPACES /* before a space of SentencePiece, whose pieces are told from whole texts */
} wf_cut_kind;

struct wf_tokenizer {
    wf_ctx *ctx;
    wf_arena arena; /* holds all that pointers below point to, but for patterns */
    wf_vocab vocab;
    wf_bpe bpe;
    wf_added_token *added; /* [adds] in order of ids */
    int adds;
    wf_added raw, normal; /* those looked for before and after normalizing */

    wf_normal_step normals[WF_TOKEN_STEPS];
    wf_words_step words[WF_TOKEN_STEPS];
    wf_decode_step decodes[WF_TOKEN_STEPS];
    int normal_count, word_count, decode_count;

    int32_t before[WF_TOKEN_FRAME], after[WF_TOKEN_FRAME]; /* ids around a text: bos, eos */
    int before_count, after_count;
    int32_t special[4]; /* by wf_special, -1: none */
    /* Special tokens by the names that chat templates have for them. A tokenizer_config.json has all of
     * them; else wf_tokenizer_finish adds those of `special`. */
    wf_named_token *named;
    int nameds;
    bool configured;
    int32_t ends[WF_TOKEN_ENDS]; /* ids after which a text ends */
    int end_count;
    int known_ends; /* of them, that follow from eos and the vocabulary; the others were told */
    wf_cut_kind cuts[2]; /* of texts, and of texts with control tokens */
};

/* How texts are encoded: several pieces of one text, one after the other. */
enum { WF_PART_FIRST = 1, WF_PART_LAST = 2 };
/* As wf_encoder_run, of a piece: tokens are put before the first and behind the last one alone. */
wf_status wf_encoder_part(wf_encoder *e, const char *text, size_t bytes, uint32_t flags,
                          uint32_t part, const int32_t **ids, size_t *count);
/* As wf_tokenizer_cut, of texts whose pieces go to wf_encoder_part. */
size_t wf_tokenizer_cut_part(const wf_tokenizer *t, bool control, const char *text, size_t least,
                             size_t most);
/* Finds out where texts may be cut; when all else is there. */
void wf_tokenizer_index_cuts(wf_tokenizer *t);

/* Of the four in `special`: "bos_token", ... */
extern const char *const wf_special_names[4];

/* Further special tokens that GGUF files have keys for. "seperator" is the format's spelling. */
static const struct {
    const char *name, *key;
} wf_gguf_names[] = {{"sep_token", "tokenizer.ggml.seperator_token_id"},
                     {"cls_token", "tokenizer.ggml.cls_token_id"},
                     {"mask_token", "tokenizer.ggml.mask_token_id"}};

/* Empty, for a context. */
wf_status wf_tokenizer_new(wf_ctx *ctx, wf_tokenizer **out);
/* When vocabulary, kinds, added tokens and steps are there: makes what is found quickly, and the well-known
 * ends. */
wf_status wf_tokenizer_finish(wf_tokenizer *t);
/* Copies name and text. A second one of a name is left out. */
wf_status wf_tokenizer_name(wf_tokenizer *t, const char *name, const char *text, size_t bytes);
/* The same by an id; -1 is left out. */
wf_status wf_tokenizer_name_id(wf_tokenizer *t, const char *name, int32_t id);
/* Adds an id before or behind texts, or takes it from there. */
wf_status wf_tokenizer_frame(wf_tokenizer *t, bool behind, int32_t id, bool add);
/* Does it match and decode as control token? */
static inline bool wf_kind_is_control(wf_token_kind kind)
{
    return kind == WF_TOKEN_CONTROL || kind == WF_TOKEN_UNKNOWN;
}

/* Steps. what/text and content are copied into the arena. Failures: too many, patterns that cannot be. */
wf_status wf_tokenizer_add_normal(wf_tokenizer *t, wf_normal_step step, bool regex);
wf_status wf_tokenizer_add_words(wf_tokenizer *t, wf_words_step step, bool regex);
wf_status wf_tokenizer_add_decode(wf_tokenizer *t, wf_decode_step step);

/* The steps of SentencePiece: U+2581 for spaces, and one before a text if `prefix`. */
wf_status wf_tokenizer_set_spaces(wf_tokenizer *t, bool prefix);

#endif
