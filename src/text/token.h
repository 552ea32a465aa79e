/* SPDX-License-Identifier: MIT */
/*
 * token.h - tokenizers: text to ids and back.
 *
 * A tokenizer is made from tokenizer.json or from the vocabulary of a GGUF file, and is then the same
 * object: a vocabulary with kinds, added tokens that are cut out of the text first, a normalizer, a way to
 * split, BPE (byte-level by merge ranks, or SentencePiece's by scores), and a decoder.
 */
#ifndef WF_TEXT_TOKEN_H
#define WF_TEXT_TOKEN_H

#include "base/json_tree.h"
#include "format/gguf.h"

/* From a file's tokenizer.ggml.* keys. Nothing of the file is kept. */
wf_status wf_tokenizer_from_gguf(const wf_gguf *f, wf_tokenizer **out);
/* From a folder with tokenizer.json, and tokenizer_config.json where there is one (bos, eos, add_bos_token,
 * added tokens). */
wf_status wf_tokenizer_from_folder(wf_ctx *ctx, const char *folder, wf_tokenizer **out);
/* From the text of a tokenizer.json, and of a tokenizer_config.json or NULL. */
wf_status wf_tokenizer_from_json(wf_ctx *ctx, const char *what, const char *json, size_t bytes,
                                 const char *config, size_t config_bytes, wf_tokenizer **out);
/* Keys of a GGUF file from which wf_tokenizer_from_gguf makes the same tokenizer; WF_ERR_UNSUPPORTED, with
 * what stands in the way, when it cannot be said in GGUF. `rows` of the embedding: where there are more than
 * tokens, the rest is filled with unused ones, since readers want as many. */
wf_status wf_tokenizer_to_gguf(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w, int64_t rows);
/* A tokenizer.json and tokenizer_config.json (chat_template NULL: none) that say the same, for wf_mem_free. */
wf_status wf_tokenizer_to_json(const wf_tokenizer *t, wf_ctx *ctx, char **json, size_t *bytes);
wf_status wf_tokenizer_to_config(const wf_tokenizer *t, wf_ctx *ctx, const char *chat_template,
                                 char **json, size_t *bytes);
/* The last place at in [least, most] where a text can be cut: text[at] is part of it, and the ids of what is before and
 * of what is behind, one after the other, are those of the whole (without WF_TEXT_SPECIAL and WF_TEXT_CONTROL). 0: none is
 * known, as with tokenizers of which it cannot be proved. */
size_t wf_tokenizer_cut(const wf_tokenizer *t, const char *text, size_t least, size_t most);
/* Encodes many texts, one after the other: as wf_tokenizer_encode, but what was learned about words is kept. One thread at a
 * time, each with its own. */
typedef struct wf_encoder wf_encoder;
wf_status wf_encoder_new(const wf_tokenizer *t, wf_ctx *ctx, wf_encoder **out);
void wf_encoder_free(wf_encoder *e); /* NULL is fine */
/* The ids are borrowed until the next call. */
wf_status wf_encoder_run(wf_encoder *e, const char *text, size_t bytes, uint32_t flags,
                         const int32_t **ids, size_t *count);
/* Bytes of text that each token stands for in the middle of a text, 0 for control tokens: to[0 .. count). */
wf_status wf_tokenizer_lengths(const wf_tokenizer *t, wf_ctx *ctx, uint32_t *to);
/* One more id after which a text ends: what generation_config.json or a model's keys say. An id that is no
 * token is left out. */
void wf_tokenizer_add_end(wf_tokenizer *t, int32_t id);
/* The special tokens that chat templates see, by index: name is "bos_token", say. false past the last. */
bool wf_tokenizer_named(const wf_tokenizer *t, int index, const char **name, const char **text,
                        size_t *bytes);
/* The ids that WF_TEXT_SPECIAL puts before a text (bos); borrowed. Returns their number. */
size_t wf_tokenizer_before(const wf_tokenizer *t, const int32_t **ids);
/* Is this "[PAD<id>]", the name of a row of the embedding that no token has? */
bool wf_token_is_padding(const char *text, size_t bytes, int32_t id);
/* Whether tokenizer.json can hold the token: it is UTF-8, and no other token has the same text. */
bool wf_token_fits_json(const wf_tokenizer *t, int32_t id);
/* The public functions (weft.h): wf_tokenizer_free, _count, _encode, _decode, ... */

#endif
