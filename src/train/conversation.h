/* SPDX-License-Identifier: MIT */
/*
 * conversation.h - a conversation as tokens, and which of them the assistant says.
 *
 * A template with {% generation %} says where an answer begins and ends. Others do not, so it is found out: the
 * conversation up to an answer,
 * rendered as if it were to be given now, must be how the conversation with the answer begins, and this how the
 * whole begins. What is added is the answer. Templates that go back and change what was said are refused.
 */
#ifndef WF_TRAIN_CONVERSATION_H
#define WF_TRAIN_CONVERSATION_H

#include "base/json_tree.h"
#include "text/template.h"
#include "train/entry.h"

typedef struct {
    const wf_tokenizer *tokenizer;
    const wf_template *template;
    const wf_template *tool_template; /* for conversations with tools; NULL: the same */
    int32_t end; /* the token behind every conversation that does not end with it */
} wf_conversations;

typedef struct {
    int32_t *ids;  /* [count] */
    uint8_t *mask; /* [count] 1: of an answer, or the token that ends it */
    size_t count, counted;
    size_t bytes; /* of the text */
} wf_conversation;

/* A conversation or a pair. One without answers has counted 0. Sentences are about "the conversation"; who knows
 * where it stands puts that before them. Everything lies in the arena. */
wf_status wf_conversation_encode(const wf_conversations *c, wf_arena *arena, const wf_entry *entry,
                                 wf_conversation *out);

#endif
