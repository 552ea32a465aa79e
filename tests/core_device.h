/* SPDX-License-Identifier: MIT */
/*
 * core_device.h - a device that has kernels for the core ops of ops.def and for no others: the
 * reference kernels of the cpu. It shows that a device needs no more than these.
 */
#ifndef WEFT_TESTS_CORE_DEVICE_H
#define WEFT_TESTS_CORE_DEVICE_H

#include "weft.h"

/* Opens a device by name: "core" is this one, "core:OP" is this one without its kernels for OP, and
 * every other name is for wf_device_open. The table of kernels is shared: "core" and "core:OP" must
 * not be open at the same time. */
wf_status wt_device_open(wf_ctx *ctx, const char *name, wf_device **out);

#endif
