/* SPDX-License-Identifier: MIT */
/* matmul.h - the products that matmul, linear and linear_act ask for, as gemm.h describes them. */
#ifndef WF_DEVICE_CPU_MATMUL_H
#define WF_DEVICE_CPU_MATMUL_H

#include "device/cpu/gemm.h"

/* Sizes alone. */
wf_gemm wf_matmul_sizes(const wf_node *n);
wf_gemm wf_linear_sizes(const wf_node *n);
/* All of it, but for the activation of linear_act. */
wf_gemm wf_matmul_product(const wf_launch *l);
wf_gemm wf_linear_product(const wf_launch *l);

#endif
