/* SPDX-License-Identifier: MIT */
/* matmul.h - the GEMMs of matmul, linear and their fused forms, in terms of gemm.h. */
#ifndef WF_DEVICE_CPU_MATMUL_H
#define WF_DEVICE_CPU_MATMUL_H

#include "device/cpu/gemm.h"

/* Sets sizes only. */
wf_gemm wf_matmul_sizes(const wf_node *n);
wf_gemm wf_linear_sizes(const wf_node *n);
wf_gemm wf_matmul_act_grad_sizes(const wf_node *n);
wf_gemm wf_linear_grad_weight_sizes(const wf_node *n);
/* Sets all but the activation of linear_act and the slope of matmul_act_grad. */
wf_gemm wf_matmul_product(const wf_launch *l);
wf_gemm wf_linear_product(const wf_launch *l);
wf_gemm wf_matmul_act_grad_product(const wf_launch *l);
/* The GEMM of linear_grad_weight's first result, dw. */
wf_gemm wf_linear_grad_weight_product(const wf_launch *l);

#endif
