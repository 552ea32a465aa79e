/* SPDX-License-Identifier: MIT */
/* safetensors_priv.h - shared by the safetensors reader and writer: types and limits of the
 * format. */
#ifndef WF_FORMAT_SAFETENSORS_PRIV_H
#define WF_FORMAT_SAFETENSORS_PRIV_H

#include "weft.h"

#define WF_SAFETENSORS_HEADER 100000000         /* largest header, bytes, as in the reference */
#define WF_SAFETENSORS_INDEX ((size_t)64 << 20) /* largest index, bytes */

typedef struct {
    const char *name;
    int bits;     /* bits per element */
    wf_type type; /* WF_TYPE_NONE: not supported */
} wf_safetensors_type;

/* Returns NULL for an unknown type. */
const wf_safetensors_type *wf_safetensors_find_type(const char *name);
/* Returns the format's name of a type, or NULL if it has no such type. */
const char *wf_safetensors_type_name(wf_type type);

#endif
