/* SPDX-License-Identifier: MIT */
/* lora.h - the flag --lora FOLDER[:SCALE] of commands that run or convert a model. */
#ifndef WF_CLI_LORA_H
#define WF_CLI_LORA_H

#include "base/arena.h"
#include "cli/flags.h"

#define WF_FLAG_LORA(target)                                                          \
    {                                                                                 \
        .name = "lora", .value = "FOLDER[:SCALE]", .values = (target),                \
        .doc = "apply the adapter in FOLDER, from weft finetune or PEFT; repeatable", \
        .offer = WF_OFFER_FOLDERS                                                     \
    }

/* Parses the values into out[WF_MAX_VALUES], in the order of the flags. The arena owns the
 * paths. */
wf_status wf_lora_parse(wf_arena *arena, const wf_values *values, wf_lora *out);

#endif
