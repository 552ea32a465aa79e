/* SPDX-License-Identifier: MIT */
/*
 * core_device.h - a device with the cpu's reference kernels for the core ops of ops.def, and no
 * other kernels. It shows that a device needs only these.
 */
#ifndef WEFT_TESTS_CORE_DEVICE_H
#define WEFT_TESTS_CORE_DEVICE_H

#include "weft.h"

/* Opens a device by name: "core" is this device, "core:OP" is this device without its kernels for
 * OP. Passes other names to wf_device_open. "core" and "core:OP" share one table of kernels and
 * must not be open at the same time. */
wf_status wt_device_open(wf_ctx *ctx, const char *name, wf_device **out);

#endif
