/* SPDX-License-Identifier: MIT */
/* upload.h - writes to a session the states that inference and training fill the same way. */
#ifndef WF_INFER_UPLOAD_H
#define WF_INFER_UPLOAD_H

#include "model/adapter.h"
#include "model/build.h"

/* Writes the inverse frequencies of all rotary positions to their states (wf_rope_state). `context`:
 * the most positions that a sequence may have. */
wf_status wf_upload_frequencies(wf_session *session, const wf_config *config, int64_t context);
/* Reads every A and B of an adapter from its folder and writes it to the state of the same name.
 * The adapter must come from wf_adapter_open. */
wf_status wf_upload_adapter(wf_session *session, const wf_adapter *adapter);

#endif
