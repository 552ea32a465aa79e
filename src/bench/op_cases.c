/* SPDX-License-Identifier: MIT */
/* op_cases.c - the shapes: GPT-2 124M (width 768, training on 4 x 512 tokens) and a Llama of 1B
 * parameters (width 2048, 32 heads, 4 KV heads; a prompt of 512 tokens, and decode). */
#include "bench/op_case.h"

/* clang-format off */

#define LINEAR(type, rows, n, k) \
    {"linear", type " " #rows "x" #n "x" #k, 0, "f32[" #rows "," #k "] =" type "[" #n "," #k "]"}
#define WEIGHTS(type) LINEAR(type, 1, 5632, 2048), LINEAR(type, 8, 5632, 2048), LINEAR(type, 512, 5632, 2048)
#define BATCHED(type, form, attrs, a, b) {"matmul", type " " form, attrs, type a " " type b}
/* N tokens in sequences of T */
#define PACKED(n, t, s) " i32[" #s "]*" #t " i32[" #n "]%" #t
/* one token that follows 1023 others, in pages of 16 */
#define DECODE(type) "f32[1,32,64] =" type "[64,16,4,64] =" type "[64,16,4,64] i32[2]*1 i32[1]=1023 i32[1,64]*1 i32[1]=1024"

/* A layer of GPT-2 124M in bf16, forward and backward, over n tokens in sequences of t, of which
 * there are s - 1. */
#define LAYER(n, t, s) \
    {"linear", "bf16 " #n "x2304x768", 0, "bf16[" #n ",768] =bf16[2304,768] =f32[2304]"}, \
    {"linear_act", "bf16 gelu " #n "x3072x768", 0, "bf16[" #n ",768] =bf16[3072,768] =f32[3072]"}, \
    {"matmul", "bf16 nn " #n "x768x3072", 0, "bf16[" #n ",3072] =bf16[3072,768]"}, \
    {"matmul_act_grad", "bf16 gelu " #n "x3072x768", 0, "bf16[" #n ",768] =bf16[768,3072] bf16[" #n ",3072]"}, \
    {"linear_grad_weight", "bf16 3072x768x" #n, 0, "bf16[" #n ",3072] bf16[" #n ",768]"}, \
    {"attention", "bf16 " #n " tokens by " #t, "length=" #t, "bf16[" #n ",12,64] bf16[" #n ",12,64] bf16[" #n ",12,64]" PACKED(n, t, s)}, \
    {"attention_grad", "bf16 " #n " tokens by " #t, "length=" #t, "bf16[" #n ",12,64] bf16[" #n ",12,64] bf16[" #n ",12,64] bf16[" #n ",12,64]" \
     PACKED(n, t, s) " bf16[" #n ",12,64] f32[" #n ",12]=6"}, \
    {"residual_layer_norm", "bf16 " #n "x768", 0, "bf16[" #n ",768] bf16[" #n ",768] f32[768] f32[768]"}, \
    {"residual_layer_norm_grad", "bf16 " #n "x768", 0, "bf16[" #n ",768] bf16[" #n ",768] f32[" #n "]=0 f32[" #n "]=10 bf16[" #n ",768] f32[768]"}, \
    {"rope", "bf16 " #n " tokens, 12 heads", 0, "bf16[" #n ",12,64] i32[" #n "]%" #t " f32[32]=0.1"}, \
    {"glu", "bf16 " #n "x3072", 0, "bf16[" #n ",3072] bf16[" #n ",3072]"}

const wf_bench_case wf_bench_cases[] = {
    WEIGHTS("f32"), WEIGHTS("f16"), WEIGHTS("bf16"),
#define QUANTIZED(A, NAME, name, ...) WEIGHTS(#name),
    WF_QUANT_TABLE(QUANTIZED, 0)
    LINEAR("f32", 256, 2304, 768), LINEAR("f32", 256, 768, 768), LINEAR("f32", 256, 3072, 768),
    LINEAR("f32", 256, 768, 3072), LINEAR("f32", 256, 50257, 768),
    {"linear_act", "f32 gelu 2048x3072x768", 0, "f32[2048,768] =f32[3072,768] =f32[3072]"},

    {"matmul_act_grad", "f32 gelu 2048x3072x768", 0, "f32[2048,768] =f32[768,3072] f32[2048,3072]"},
    {"linear_grad_weight", "f32 3072x768x2048", 0, "f32[2048,3072] f32[2048,768]"},
    {"linear_grad_weight", "bf16 3072x768x2048", 0, "bf16[2048,3072] bf16[2048,768]"},

    BATCHED("f32", "nn 1024x1024x1024", 0, "[1024,1024]", "[1024,1024]"),
    BATCHED("f32", "nt 1024x1024x1024", "transpose_b=1", "[1024,1024]", "[1024,1024]"),
    BATCHED("f32", "tn 1024x1024x1024", "transpose_a=1", "[1024,1024]", "[1024,1024]"),
    BATCHED("f32", "tt 1024x1024x1024", "transpose_a=1 transpose_b=1", "[1024,1024]", "[1024,1024]"),
    BATCHED("bf16", "nn 1024x1024x1024", 0, "[1024,1024]", "[1024,1024]"),
    BATCHED("f16", "nn 1024x1024x1024", 0, "[1024,1024]", "[1024,1024]"),
    BATCHED("f32", "tn 3072x768x2048", "transpose_a=1", "[2048,3072]", "[2048,768]"),
    BATCHED("f32", "nn 2048x768x3072", 0, "[2048,3072]", "[3072,768]"),
    BATCHED("f32", "nn 256x768x2304", 0, "[256,2304]", "[2304,768]"),
    BATCHED("f32", "nn 256x3072x768", 0, "[256,768]", "[768,3072]"),
    BATCHED("f32", "tn 2304x768x256", "transpose_a=1", "[256,2304]", "[256,768]"),
    BATCHED("f32", "tn 768x3072x256", "transpose_a=1", "[256,768]", "[256,3072]"),
    BATCHED("f32", "nt 48 of 512x512x64", "transpose_b=1", "[48,512,64]", "[48,512,64]"),

    {"attention", "f32 prompt 512, 32/4 heads", 0, "f32[512,32,64] f32[512,4,64] f32[512,4,64]" PACKED(512, 512, 2)},
    {"attention", "f32 train 4x512, 12 heads", 0, "f32[2048,12,64] f32[2048,12,64] f32[2048,12,64]" PACKED(2048, 512, 5)},
    {"attention", "bf16 train 4x512, 12 heads", 0, "bf16[2048,12,64] bf16[2048,12,64] bf16[2048,12,64]" PACKED(2048, 512, 5)},
    {"attention", "f32 decode at 1024, 32/4 heads", 0, DECODE("f32")},
    {"attention", "f16 decode at 1024, 32/4 heads", 0, DECODE("f16")},
    {"attention", "q8_0 decode at 1024, 32/4 heads", 0, DECODE("q8_0")},
    {"attention_grad", "f32 train 4x512, 12 heads", 0, "f32[2048,12,64] f32[2048,12,64] f32[2048,12,64] f32[2048,12,64]"
     PACKED(2048, 512, 5) " f32[2048,12,64] f32[2048,12]=6"},
    {"kv_append", "f32 512 tokens, 4 heads", 0, "=f32[32,16,4,64] f32[512,4,64]" PACKED(512, 512, 2) " i32[1,32]*1"},

    {"layer_norm", "f32 2048x768", 0, "f32[2048,768] f32[768] f32[768]"},
    {"layer_norm_grad", "f32 2048x768", 0, "f32[2048,768] f32[2048,768] f32[2048]=0 f32[2048]=10 f32[768]"},
    {"residual_layer_norm", "f32 2048x768", 0, "f32[2048,768] f32[2048,768] f32[768] f32[768]"},
    {"residual_layer_norm_grad", "f32 2048x768", 0, "f32[2048,768] f32[2048,768] f32[2048]=0 f32[2048]=10 f32[2048,768] f32[768]"},
    {"rms_norm", "f32 512x2048", 0, "f32[512,2048] f32[2048]"},
    {"rms_norm", "f32 1x2048", 0, "f32[1,2048] f32[2048]"},
    {"rms_norm_grad", "f32 512x2048", 0, "f32[512,2048] f32[512,2048] f32[512]=10 f32[2048]"},
    {"residual_rms_norm", "f32 512x2048", 0, "f32[512,2048] f32[512,2048] f32[2048]"},
    {"residual_rms_norm_grad", "f32 512x2048", 0, "f32[512,2048] f32[512,2048] f32[512]=10 f32[512,2048] f32[2048]"},
    {"rope", "f32 512 tokens, 32 heads", 0, "f32[512,32,64] i32[512]%512 f32[32]=0.1"},
    {"glu", "f32 512x5632", 0, "f32[512,5632] f32[512,5632]"},
    {"glu_grad", "f32 512x5632", 0, "f32[512,5632] f32[512,5632] f32[512,5632]"},
    {"gelu", "f32 2048x3072", 0, "f32[2048,3072]"},
    {"gelu_grad", "f32 2048x3072", 0, "f32[2048,3072] f32[2048,3072]"},
    {"softmax", "f32 512x2048", 0, "f32[512,2048]"},
    {"softmax_grad", "f32 512x2048", 0, "f32[512,2048] f32[512,2048]"},
    {"cross_entropy", "f32 256x50257", 0, "f32[256,50257] i32[256]<50257"},
    {"cross_entropy_grad", "f32 256x50257", 0, "f32[256]=1 f32[256,50257] i32[256]<50257 f32[256]=11"},
    {"head_loss", "f32 256x50257x768, with gradients", 0, "f32[256,768] =f32[50257,768] i32[256]<50257 f32[256]=1"},
    {"argmax", "f32 1x50257", "axis=1", "f32[1,50257]"},

    {"adamw", "f32 50257x768", 0, "=f32[50257,768] =f32[50257,768] =f32[50257,768] f32[50257,768] "
     "f32[]=0.0001 i32[]=1 f32[]=1 u8[]=1"},
    {"accumulate", "f32 50257x768", 0, "=f32[50257,768] f32[50257,768] u8[]=1"},
    {"global_norm", "f32 50257x768", 0, "f32[50257,768]"},
    {"embed", "f32 512 of 50257x768", 0, "=f32[50257,768] i32[512]<50257"},
    {"embed", "q4_0 512 of 32000x2048", 0, "=q4_0[32000,2048] i32[512]<32000"},
    {"scatter_add_rows", "f32 2048 into 50257x768", 0, "f32[50257,768] i32[2048]<50257 f32[2048,768]"},
    {"add", "f32 2048x768", 0, "f32[2048,768] f32[2048,768]"},
    {"copy", "f32 4096x4096", 0, "f32[4096,4096]"},
    {"cast", "f32 to bf16 4096x4096", "type=bf16", "f32[4096,4096]"},

    LAYER(1024, 128, 9), LAYER(8192, 1024, 9), LAYER(16384, 8192, 3),
    {"head_loss", "bf16 4096x50257x768, with gradients", 0, "bf16[4096,768] =bf16[50257,768] i32[4096]<50257 f32[4096]=1"},
    {0},
};

/* clang-format on */
