/* SPDX-License-Identifier: MIT */
/*
 * expression.h - the functions that the f32 and i32 columns of graph/ops.def may call, for devices
 * whose compiler has the functions of C's math.h. Another device maps the same names to its own
 * functions.
 *
 * A device that includes it also defines these, since each has its own fast form:
 *
 *     wf_sigmoid_f32(x)          1 / (1 + e^-x)
 *     wf_gelu_gate_f32(x)        (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
 *     wf_gelu_erf_gate_f32(x)    (1 + erf(x / sqrt(2))) / 2
 *     wf_relu_f32(x)             max(x, 0); NaN stays NaN
 */
#ifndef WF_DEVICE_EXPRESSION_H
#define WF_DEVICE_EXPRESSION_H

#include <math.h>
#include <stdint.h>

#define wf_exp_f32(x) expf(x)
#define wf_expm1_f32(x) expm1f(x)
#define wf_log_f32(x) logf(x)
#define wf_sqrt_f32(x) sqrtf(x)
#define wf_sin_f32(x) sinf(x)
#define wf_cos_f32(x) cosf(x)
#define wf_tanh_f32(x) tanhf(x)
#define wf_erf_f32(x) erff(x)

/* i32 arithmetic wraps around; compute it unsigned, because signed overflow is undefined in C. */
#define wf_u32(i) ((uint32_t)(i))

#endif
