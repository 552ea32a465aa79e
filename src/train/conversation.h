/* SPDX-License-Identifier: MIT */
/*
 * conversation.h - encodes a conversation, and finds the tokens that the assistant writes.
 *
 * A template with {% generation %} marks the answers itself. For others they are inferred: the
 * conversation up to an answer, rendered with add_generation_prompt, must be a prefix of the
 * conversation with the answer, which must be a prefix of the whole. The difference is the answer.
 * Templates that change earlier text are rejected.
 */
#ifndef WF_TRAIN_CONVERSATION_H
#define WF_TRAIN_CONVERSATION_H

#include "base/json_tree.h"
#include "text/template.h"
#include "train/entry.h"

typedef struct {
    const wf_tokenizer *tokenizer;
    const wf_template *template;
    const wf_template *tool_template; /* for conversations with tools; NULL: use the template */
    int32_t end;                      /* appended to every conversation that does not end with it */
} wf_conversations;

typedef struct {
    int32_t *ids;  /* [count] */
    uint8_t *mask; /* [count], 1: part of an answer, or the token that ends it */
    size_t count, counted;
    size_t bytes; /* of the text */
} wf_conversation;

/* Encodes a conversation or a pair. Without answers, counted is 0. Errors start with "the
 * conversation"; the caller adds where it is. The arena owns the result. */
wf_status wf_conversation_encode(const wf_conversations *c, wf_arena *arena, const wf_entry *entry,
                                 wf_conversation *out);

#endif
