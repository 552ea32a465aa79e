/* SPDX-License-Identifier: MIT */
/* safetensors_priv.h - what reading and writing share: the types of the format, and its limits. */
#ifndef WF_FORMAT_SAFETENSORS_PRIV_H
#define WF_FORMAT_SAFETENSORS_PRIV_H

#include "weft.h"

#define WF_SAFETENSORS_HEADER 100000000 /* bytes a header may have, as in the reference */
#define WF_SAFETENSORS_INDEX ((size_t)64 << 20)

typedef struct {
    const char *name;
    int bits;     /* of an element */
    wf_type type; /* WF_TYPE_NONE: Weft does not compute with it */
} wf_safetensors_type;

/* NULL when there is no such type. */
const wf_safetensors_type *wf_safetensors_find_type(const char *name);
/* As the format spells it; NULL for a type that it does not have. */
const char *wf_safetensors_type_name(wf_type type);

#endif
