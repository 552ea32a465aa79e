/* SPDX-License-Identifier: MIT */
/* target.h - a device as the passes see it: name, alignment, supported nodes. */
#ifndef WF_GRAPH_TARGET_H
#define WF_GRAPH_TARGET_H

#include "graph/graph.h"

/* Filled in once when the device is opened; passes borrow it and never change it. */
typedef struct wf_target {
    const char *name;
    size_t alignment;  /* of every planned offset, in bytes */
    size_t guard;      /* unused bytes before and after every block, to detect overruns */
    const void *owner; /* the device */
    /* Whether the device has a kernel for this node; if not, the node is expanded. Reads
     * WF_MARK_PACKED of the operands. Derived from the device's kernel table, not a second list. */
    bool (*supports)(const struct wf_target *target, const wf_node *n);
    /* Bytes of workspace that the device needs while it runs this node. NULL: always 0. */
    size_t (*workspace)(const struct wf_target *target, const wf_node *n);
} wf_target;

#endif
