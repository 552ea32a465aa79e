/* SPDX-License-Identifier: MIT */
/* lora.h - what --lora FOLDER[:SCALE] says, in every command that has it. */
#ifndef WF_CLI_LORA_H
#define WF_CLI_LORA_H

#include "base/arena.h"
#include "cli/flags.h"

#define WF_FLAG_LORA(target)                                                            \
    {                                                                                   \
        .name = "lora", .value = "FOLDER[:SCALE]", .values = (target),                  \
        .doc = "an adapter, as PEFT and weft finetune write it; may come several times" \
    }

/* The adapters in the order of the flags, into out[WF_MAX_VALUES]; paths lie in the arena. */
wf_status wf_lora_parse(wf_arena *arena, const wf_values *values, wf_lora *out);

#endif
