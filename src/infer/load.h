/* SPDX-License-Identifier: MIT */
/* load.h - loads a model's weights into a session: mapped, packed or copied. */
#ifndef WF_INFER_LOAD_H
#define WF_INFER_LOAD_H

#include "model/adapter.h"
#include "model/model.h"

/* Call before the first compilation: maps the weights that are used in place, and declares those
 * that the device packs, because both affect the choice of kernels. `rounds`: matmuls may round
 * activations, which packed weights always do. */
wf_status wf_load_map(wf_session *session, const wf_model *model, bool rounds);
/* Declares the same in a session that is only planned. *mapped: bytes that stay in files. */
wf_status wf_load_plan(wf_session *session, const wf_model *model, bool rounds, size_t *mapped);
/* Call after the first compilation: copies or packs the weights that the session still lacks,
 * adapters and rope frequencies. `context`: the most positions that a sequence may have. */
wf_status wf_load_write(wf_session *session, const wf_model *model, const wf_adapters *adapters,
                        int64_t context);
/* Logs a warning for each weight with NaN or infinite elements. */
wf_status wf_load_check(const wf_model *model);

#endif
