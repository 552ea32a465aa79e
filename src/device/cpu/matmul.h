/* SPDX-License-Identifier: MIT */
/* matmul.h - the products that matmul, linear and their fused forms ask for, as gemm.h describes them. */
#ifndef WF_DEVICE_CPU_MATMUL_H
#define WF_DEVICE_CPU_MATMUL_H

#include "device/cpu/gemm.h"

/* Sizes alone. */
wf_gemm wf_matmul_sizes(const wf_node *n);
wf_gemm wf_linear_sizes(const wf_node *n);
wf_gemm wf_matmul_act_grad_sizes(const wf_node *n);
wf_gemm wf_linear_grad_weight_sizes(const wf_node *n);
/* All of it, but for the activation of linear_act and the slope of matmul_act_grad. */
wf_gemm wf_matmul_product(const wf_launch *l);
wf_gemm wf_linear_product(const wf_launch *l);
wf_gemm wf_matmul_act_grad_product(const wf_launch *l);
/* Of the two results of linear_grad_weight the weight's. */
wf_gemm wf_linear_grad_weight_product(const wf_launch *l);

#endif
