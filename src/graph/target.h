/* SPDX-License-Identifier: MIT */
/* target.h - what a device tells the passes about itself. Filled by a device, read by passes. */
#ifndef WF_GRAPH_TARGET_H
#define WF_GRAPH_TARGET_H

#include "graph/graph.h"

typedef struct wf_target {
    const char *name;
    size_t alignment;  /* of every planned offset, in bytes */
    size_t guard;      /* bytes before and after every block that no kernel may touch */
    const void *owner; /* the device */
    /* Whether the device can run this node, with those of its states packed that are marked so
     * (WF_MARK_PACKED). Derived from its kernel table, never a second list. */
    bool (*supports)(const struct wf_target *target, const wf_node *n);
    /* Bytes that the device would use for itself while it runs this node. Optional: none. */
    size_t (*workspace)(const struct wf_target *target, const wf_node *n);
} wf_target;

#endif
