/* SPDX-License-Identifier: MIT */
/* target.h - a device as the passes see it: name, alignment, supported nodes. */
#ifndef WF_GRAPH_TARGET_H
#define WF_GRAPH_TARGET_H

#include "graph/graph.h"

typedef struct wf_target {
    const char *name;
    size_t alignment;  /* of every planned offset, in bytes */
    size_t guard;      /* unused bytes before and after every block, to detect overruns */
    const void *owner; /* the device */
    /* Whether the device runs this node as it is, without expanding it. WF_MARK_PACKED marks the
     * states that are packed. Derived from the device's table, never from a second list. */
    bool (*supports)(const struct wf_target *target, const wf_node *n);
    /* Bytes of workspace while the device runs this node. Optional: 0. */
    size_t (*workspace)(const struct wf_target *target, const wf_node *n);
} wf_target;

#endif
