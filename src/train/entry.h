/* SPDX-License-Identifier: MIT */
/*
 * entry.h - a record of a data file: a text, a prompt with its completion, or a conversation.
 *
 * A record is an object. Which of its members count is decided here, in one place: those that are used, those that
 * would change what is meant and are refused by name, and all others, which are metadata.
 */
#ifndef WF_TRAIN_ENTRY_H
#define WF_TRAIN_ENTRY_H

#include "base/json_tree.h"

typedef enum {
    WF_ENTRY_TEXT, /* text */
    WF_ENTRY_PAIR, /* text is the prompt, completion follows it; no template is used */
    WF_ENTRY_CHAT  /* messages, each an object with role and content */
} wf_entry_kind;

typedef struct {
    wf_entry_kind kind;
    const wf_json_node *text, *completion; /* strings */
    wf_json_node messages;
    size_t learned_from;           /* answers before this message are not learned */
    const wf_json_node *tools;     /* an array, or NULL */
    const wf_json_node *documents; /* an array, or NULL */
    const wf_json_node *variables; /* an object of further ones, or NULL */
} wf_entry;

/* Reads {"text"}, {"messages"} or ShareGPT's {"conversations"}, Alpaca's {"instruction", "input", "output"}, and
 * {"prompt", "completion"}, of texts or of messages. What it makes lies in the arena, and points into the record.
 * Sentences are about "it", the record. */
wf_status wf_entry_read(wf_arena *a, const wf_json_node *record, wf_entry *out);

/* false: the answer has "weight": 0 and is not learned. */
bool wf_entry_learns(const wf_json_node *message);

#endif
