/* SPDX-License-Identifier: MIT */
/*
 * entry.h - a record of a data file: a text, a prompt with its completion, or a conversation.
 *
 * A record is an object. This file alone decides about its members: some are used, some would
 * change the meaning and are rejected by name, and all others are metadata.
 */
#ifndef WF_TRAIN_ENTRY_H
#define WF_TRAIN_ENTRY_H

#include "base/json_tree.h"

typedef enum {
    WF_ENTRY_TEXT, /* text */
    WF_ENTRY_PAIR, /* text is the prompt, completion follows; no template */
    WF_ENTRY_CHAT  /* messages, each an object with role and content */
} wf_entry_kind;

typedef struct {
    wf_entry_kind kind;
    const wf_json_node *text, *completion; /* strings */
    wf_json_node messages;
    size_t learned_from;           /* answers before this message have no loss */
    const wf_json_node *tools;     /* an array, or NULL */
    const wf_json_node *documents; /* an array, or NULL */
    const wf_json_node *variables; /* an object with more variables, or NULL */
} wf_entry;

/* Reads {"text"}, {"messages"}, ShareGPT's {"conversations"}, Alpaca's {"instruction", "input",
 * "output"} and {"prompt", "completion"} (strings or messages). The result is in the arena and
 * points into the record. Errors refer to the record as "it". */
wf_status wf_entry_read(wf_arena *a, const wf_json_node *record, wf_entry *out);

/* Returns false if the answer has "weight": 0, that is, no loss. */
bool wf_entry_learns(const wf_json_node *message);

#endif
