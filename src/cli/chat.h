/* SPDX-License-Identifier: MIT */
/* chat.h - a conversation with a model, and the /commands that change it. */
#ifndef WF_CLI_CHAT_H
#define WF_CLI_CHAT_H

#include "base/writer.h"
#include "cli/engine.h"
#include "cli/line.h"
#include "cli/sampling.h"
#include "cli/screen.h"

typedef struct {
    wf_engine engine;
    wf_sampled sampled;
    wf_chat_options options;
    wf_message *message; /* their contents are ours */
    int count, room;
    int left_out;  /* messages after the system prompt that the model is not shown any more */
    bool no_shift; /* a full context is a failure and no reason to leave messages out */
    wf_sequence *sequence; /* NULL before the first answer */
    uint64_t answers;      /* so far: each has a seed of its own */
    wf_screen screen;      /* of the answer */
    wf_line *line;         /* NULL before the first line is read */
    bool commands;         /* stdin is a terminal: lines that begin with a slash are commands */
    bool interactive;      /* somebody types: mistakes end nothing, and questions can be asked */
    bool color;            /* of the prompt */
    bool deaf;             /* stdout takes no more */
    bool over;             /* /exit */
} wf_chat;

/* role is borrowed for ever, the content copied. */
wf_status wf_chat_add(wf_chat *c, const char *role, const char *content, size_t bytes);
void wf_chat_drop_last(wf_chat *c);
/* Frees all messages and their list. */
void wf_chat_drop_all(wf_chat *c);
/* Replaces or adds the system's message; "" takes it away. */
wf_status wf_chat_set_system(wf_chat *c, const char *content);
/* Is the last message the role's? */
bool wf_chat_last_is(const wf_chat *c, const char *role);
/* Does the conversation begin with a system prompt? */
bool wf_chat_has_system(const wf_chat *c);
/* Would the template accept a question now? */
wf_status wf_chat_try(wf_chat *c);
/* The ids of the conversation, without the messages that are left out, for wf_ids_free. */
wf_status wf_chat_encode(wf_chat *c, int32_t **ids, size_t *count);
/* Answers the last message: prints the answer as it comes, and adds it. Where the context is full the oldest questions
 * and answers are left out first; WF_ERR_USAGE when that does not help. */
wf_status wf_chat_answer(wf_chat *c);
void wf_chat_free(wf_chat *c);

/* Is this input a command? Never where stdin is not a terminal: there every line is a question. */
bool wf_chat_is_command(const wf_chat *c, const char *text);
/* /save and /load, in chat_file.c. */
wf_status wf_chat_save(wf_chat *c, const char *path);
wf_status wf_chat_load(wf_chat *c, const char *path);
/* Runs a command. A mistake in it is a failure that changed nothing. */
wf_status wf_chat_command(wf_chat *c, const char *line);

#endif
