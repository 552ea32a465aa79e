/* SPDX-License-Identifier: MIT */
/*
 * states.h - states of a session as a safetensors file and back: moments, averages, scales, what is to go on as it was.
 *
 * One state at a time, so that no more memory is needed than the largest takes.
 */
#ifndef WF_TRAIN_STATES_H
#define WF_TRAIN_STATES_H

#include "weft.h"

/* Which states are meant, by their names: the first row that is saved, 0 for the whole state, -1 for none of
 * it. A part has the name "rows.STATE" in the file. */
typedef int64_t wf_states_want(void *user, const char *state);

/* Writes FOLDER/FILE, whose name ends in .safetensors, with the wanted states under their own names; NULL wants all. Only
 * plain types can be written. The same states give the same bytes. */
wf_status wf_states_save(wf_session *s, const char *folder, const char *file, wf_states_want *want,
                         void *user);
/* Reads such a file into the session. It must hold all wanted states, of the session's types and shapes, and no
 * others; nothing is written to the session before all of that is known. */
wf_status wf_states_load(wf_session *s, const char *path, wf_states_want *want, void *user);

#endif
