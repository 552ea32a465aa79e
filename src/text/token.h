/* SPDX-License-Identifier: MIT */
/*
 * token.h - tokenizers: convert text to ids and back.
 *
 * tokenizer.json and GGUF files are read into the same structure: a vocabulary, added tokens that
 * are matched first, a normalizer, a pre-tokenizer, a model (BPE with merge ranks or SentencePiece's
 * scores, WordPiece, or Unigram), and a decoder. A tokenizer is immutable once loaded: threads may
 * share it, each with its own context.
 */
#ifndef WF_TEXT_TOKEN_H
#define WF_TEXT_TOKEN_H

#include "base/json_tree.h"
#include "format/gguf.h"

/* Reads the tokenizer.ggml.* keys. The tokenizer does not refer to the file afterwards. */
wf_status wf_tokenizer_from_gguf(const wf_gguf *f, wf_tokenizer **out);
/* Reads tokenizer.json in a folder, and tokenizer_config.json if it exists (bos, eos,
 * add_bos_token, added tokens). */
wf_status wf_tokenizer_from_folder(wf_ctx *ctx, const char *folder, wf_tokenizer **out);
/* Reads the text of a tokenizer.json, and of a tokenizer_config.json or NULL. what: the name in
 * messages. */
wf_status wf_tokenizer_from_json(wf_ctx *ctx, const char *what, const char *json, size_t bytes,
                                 const char *config, size_t config_bytes, wf_tokenizer **out);
/* Writes the keys from which wf_tokenizer_from_gguf reads the same tokenizer. WF_ERR_UNSUPPORTED,
 * with the reason, if GGUF cannot express it. rows: of the embedding; if there are more rows than
 * tokens, unused tokens fill the rest, because readers expect one per row. */
wf_status wf_tokenizer_to_gguf(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w, int64_t rows);
/* Write tokenizer.json and tokenizer_config.json. chat_template may be NULL. The caller frees *json
 * with wf_mem_free. */
wf_status wf_tokenizer_to_json(const wf_tokenizer *t, wf_ctx *ctx, char **json, size_t *bytes);
wf_status wf_tokenizer_to_config(const wf_tokenizer *t, wf_ctx *ctx, const char *chat_template,
                                 char **json, size_t *bytes);
/* Returns the last offset `at` in [least, most] where the text can be cut: the ids of text[0 .. at)
 * followed by those of the rest equal the ids of the whole (without WF_TEXT_SPECIAL and
 * WF_TEXT_CONTROL). text[most] must exist. 0: no cut is known to be safe. */
size_t wf_tokenizer_cut(const wf_tokenizer *t, const char *text, size_t least, size_t most);
/* Encodes many texts in turn, as wf_tokenizer_encode does, with a cache of words. For one thread;
 * several threads use one encoder each. */
typedef struct wf_encoder wf_encoder;
wf_status wf_encoder_new(const wf_tokenizer *t, wf_ctx *ctx, wf_encoder **out);
void wf_encoder_free(wf_encoder *e); /* e may be NULL */
/* The ids are borrowed until the next call. */
wf_status wf_encoder_run(wf_encoder *e, const char *text, size_t bytes, uint32_t flags,
                         const int32_t **ids, size_t *count);
/* Writes to[0 .. count): the bytes that each token adds in the middle of a text; 0 for control
 * tokens. */
wf_status wf_tokenizer_lengths(const wf_tokenizer *t, wf_ctx *ctx, uint32_t *to);
/* Adds an id that ends a text, as generation_config.json or a model's keys declare. Ignores an id
 * outside the vocabulary. */
void wf_tokenizer_add_end(wf_tokenizer *t, int32_t id);
/* Returns by index the special tokens that chat templates see; name is "bos_token", for example.
 * false: index is past the last. */
bool wf_tokenizer_named(const wf_tokenizer *t, int index, const char **name, const char **text,
                        size_t *bytes);
/* Returns the number of ids that WF_TEXT_SPECIAL puts before a text (bos). *ids is borrowed. */
size_t wf_tokenizer_before(const wf_tokenizer *t, const int32_t **ids);
/* Returns whether the text is "[PAD<id>]", the name of an embedding row without a token. */
bool wf_token_is_padding(const char *text, size_t bytes, int32_t id);
/* Returns whether tokenizer.json can represent the token: it is UTF-8, and no other token has its
 * text. */
bool wf_token_fits_json(const wf_tokenizer *t, int32_t id);
/* The public functions (weft.h): wf_tokenizer_free, _count, _encode, _decode, ... */

#endif
