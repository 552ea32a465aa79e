/* SPDX-License-Identifier: MIT */
/*
 * test_host.c - the host level: wf_call and wf_call_op, with arrays in and out. Neither success nor
 * failure leaks memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "support.h"

/* A device and the number of live blocks, which no call may change. */
typedef struct {
    wf_ctx *ctx;
    wf_device *device;
    uint64_t blocks;
} host;

static host host_open(void **state)
{
    host h = {.ctx = *state};
    wt_ok(h.ctx, wf_device_open(h.ctx, "cpu:1", &h.device));
    h.blocks = wt_live_blocks(h.ctx);
    return h;
}

static void host_close(host *h)
{
    assert_int_equal(wt_live_blocks(h->ctx), h->blocks);
    wf_device_close(h->device);
}

/* Initializes a wf_array or a wf_tensor from a C array. */
#define ARRAY(name, data)       \
    {                           \
        name, data, sizeof data \
    }
#define D(...) ((int64_t[]){__VA_ARGS__})

/* ---- wf_call ---- */

/* y = x + s, s += x, count += 1 */
static wf_graph *counter(wf_ctx *ctx)
{
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(3)), *s = wf_state(g, "s", WF_F32, 1, D(3));
    wf_value *count = wf_state(g, "count", WF_I32, 0, NULL);
    wf_output(g, "y", wf_binary(g, "add", x, s));
    wf_accumulate(g, s, x, NULL);
    wf_accumulate(g, count, wf_fill(g, WF_I32, 0, NULL, 1), NULL);
    return g;
}

/* A call reads and writes states as arrays and keeps nothing between calls. */
static void test_call_with_states(void **state)
{
    host h = host_open(state);
    wf_graph *g = counter(h.ctx);
    float x[] = {1, 2, 3}, s[] = {10, 20, 30}, y[3];
    int32_t count[1] = {41};
    wf_array in[] = {ARRAY("x", x), ARRAY("s", s), ARRAY("count", count)};
    wf_array out[] = {ARRAY("y", y), ARRAY("s", s), ARRAY("count", count)};
    wt_ok(h.ctx, wf_call(h.device, g, in, 3, out, 3));
    wt_floats_equal(y, (float[]){11, 22, 33}, 3);
    wt_floats_equal(s, (float[]){11, 22, 33}, 3);
    assert_int_equal(count[0], 42);
    wt_ok(h.ctx, wf_call(h.device, g, in, 3, out, 3)); /* feeds the outputs back as inputs */
    wt_floats_equal(s, (float[]){12, 24, 36}, 3);

    wt_ok(h.ctx, wf_call(h.device, g, in, 1, out, 3)); /* states that are not given are zero */
    wt_floats_equal(y, x, 3);
    wt_floats_equal(s, x, 3);
    assert_int_equal(count[0], 1);
    wt_ok(h.ctx, wf_call(h.device, g, in, 1, NULL, 0));
    wf_graph_free(g);
    host_close(&h);
}

/* One name can be an input, a state and an output. A call prefers the input and the output. */
static void test_call_with_one_name_for_all(void **state)
{
    host h = host_open(state);
    wf_graph *g;
    wt_ok(h.ctx, wf_graph_new(h.ctx, &g));
    wf_value *input = wf_input(g, "v", WF_F32, 0, NULL), *v = wf_state(g, "v", WF_F32, 0, NULL);
    wf_output(g, "v", wf_scale(g, input, 3));
    wf_assign(g, v, wf_scale(g, input, 5), NULL);
    float number[] = {2};
    wf_array array[] = {ARRAY("v", number)};
    wt_ok(h.ctx, wf_call(h.device, g, array, 1, array, 1));
    assert_true(number[0] == 6);
    wf_graph_free(g);
    host_close(&h);
}

static void test_call_errors(void **state)
{
    host h = host_open(state);
    wf_graph *g = counter(h.ctx);
    float x[3] = {0};
    wf_array bad_name[] = {ARRAY("z", x)}, bad_size[] = {{"x", x, 8}}, bad_state[] = {{"s", x, 8}};
    wf_array good[] = {ARRAY("x", x)}, bad_output[] = {{"y", x, 16}};
    wt_fails(h.ctx, wf_call(h.device, g, bad_name, 1, NULL, 0), WF_ERR_USAGE, "no input 'z'");
    wt_fails(h.ctx, wf_call(h.device, g, NULL, 0, NULL, 0), WF_ERR_USAGE, "input 'x' was never");
    wt_fails(h.ctx, wf_call(h.device, g, good, 1, bad_name, 1), WF_ERR_USAGE, "no output 'z'");
    wt_fails(h.ctx, wf_call(h.device, g, bad_size, 1, NULL, 0), WF_ERR_USAGE, "12 bytes, not 8");
    wt_fails(h.ctx, wf_call(h.device, g, bad_state, 1, NULL, 0), WF_ERR_USAGE, "12 bytes, not 8");
    wt_fails(h.ctx, wf_call(h.device, g, good, 1, bad_state, 1), WF_ERR_USAGE, "12 bytes, not 8");
    wt_fails(h.ctx, wf_call(h.device, g, good, 1, bad_output, 1), WF_ERR_USAGE, "12 bytes, not 16");
    wf_unary(g, "nonsense", NULL);
    wt_fails(h.ctx, wf_call(h.device, g, NULL, 0, NULL, 0), WF_ERR_USAGE, "unknown op 'nonsense'");
    wf_graph_free(g);
    host_close(&h);
}

/* ---- wf_call_op ---- */

static wf_tensor tensor(wf_type type, void *data, int rank, int64_t a, int64_t b)
{
    return (wf_tensor){.type = type, .rank = rank, .dim = {a, b}, .data = data};
}

static void test_softmax(void **state)
{
    host h = host_open(state);
    float x[] = {0, 0, logf(3), 1, 1, 1}, y[6];
    wf_tensor in = tensor(WF_F32, x, 2, 2, 3), out = {.data = y};
    wt_ok(h.ctx, wf_call_op(h.device, "softmax", NULL, &in, 1, &out, 1));
    assert_true(out.type == WF_F32 && out.rank == 2 && out.dim[0] == 2 && out.dim[1] == 3);
    const float want[] = {0.2f, 0.2f, 0.6f, 1 / 3.f, 1 / 3.f, 1 / 3.f};
    for (int i = 0; i < 6; i++)
        assert_true(fabsf(y[i] - want[i]) < 1e-6f);
    host_close(&h);
}

/* Attributes are given as text; a first call without data returns the shapes. */
static void test_matmul_with_attributes(void **state)
{
    host h = host_open(state);
    float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, 0, 1, 3}, y[9];
    wf_tensor in[] = {tensor(WF_F32, a, 2, 2, 3), tensor(WF_F32, b, 2, 2, 3)}, out = {.data = NULL};
    /* without data, the call returns shapes; operands need no data either */
    in[0].data = in[1].data = NULL;
    wt_ok(h.ctx, wf_call_op(h.device, "matmul", "transpose_b=1", in, 2, &out, 1));
    assert_true(out.rank == 2 && out.dim[0] == 2 && out.dim[1] == 2);
    wt_ok(h.ctx, wf_call_op(h.device, "matmul", "transpose_a=1", in, 2, &out, 1));
    assert_true(out.rank == 2 && out.dim[0] == 3 && out.dim[1] == 3 && out.data == NULL);
    in[0].data = a, in[1].data = b, out.data = y;
    wt_ok(h.ctx, wf_call_op(h.device, "matmul", "transpose_a=0 transpose_b=1", in, 2, &out, 1));
    wt_floats_equal(y, (float[]){7, 11, 16, 23}, 4);
    host_close(&h);
}

/* Reads both outputs, either one, or only their shapes. */
static void test_cross_entropy(void **state)
{
    host h = host_open(state);
    float logits[] = {0, 0, 0, 5, 1, 1}, loss[2] = {9, 9}, lse[2] = {9, 9};
    int32_t targets[] = {1, -100};
    wf_tensor in[] = {tensor(WF_F32, logits, 2, 2, 3), tensor(WF_I32, targets, 1, 2, 0)}, out[2];
    for (int wanted = 0; wanted < 4; wanted++) {
        memset(loss, 0, sizeof loss);
        memset(lse, 0, sizeof lse);
        out[0] = (wf_tensor){.data = wanted & 1 ? loss : NULL};
        out[1] = (wf_tensor){.data = wanted & 2 ? lse : NULL};
        wt_ok(h.ctx, wf_call_op(h.device, "cross_entropy", "ignore_index=-100", in, 2, out, 2));
        for (int i = 0; i < 2; i++)
            assert_true(out[i].type == WF_F32 && out[i].rank == 1 && out[i].dim[0] == 2);
        assert_true(fabsf(loss[0] - (wanted & 1 ? logf(3) : 0)) < 1e-6f && loss[1] == 0);
        assert_true(fabsf(lse[0] - (wanted & 2 ? logf(3) : 0)) < 1e-6f);
    }
    host_close(&h);
}

/* An update works on copies: the operands do not change. The call reads as many results as
 * requested. */
static void test_adamw(void **state)
{
    host h = host_open(state);
    float p[] = {1, 2}, m[] = {0, 0}, v[] = {0, 0}, grad[] = {3, -4}, lr = 0.5f, scale = 1;
    float p1[2] = {0}, m1[2] = {0}, v1[2] = {0};
    int32_t step = 1;
    uint8_t apply = 1;
    wf_tensor in[] = {tensor(WF_F32, p, 1, 2, 0),      tensor(WF_F32, m, 1, 2, 0),
                      tensor(WF_F32, v, 1, 2, 0),      tensor(WF_F32, grad, 1, 2, 0),
                      tensor(WF_F32, &lr, 0, 0, 0),    tensor(WF_I32, &step, 0, 0, 0),
                      tensor(WF_F32, &scale, 0, 0, 0), tensor(WF_U8, &apply, 0, 0, 0)};
    const char *attrs = "beta1=0.5 beta2=0.75";
    wf_tensor out[] = {{.data = p1}, {.data = m1}, {.data = v1}};
    wt_ok(h.ctx, wf_call_op(h.device, "adamw", attrs, in, 8, out, 3));
    wt_floats_equal(m1, (float[]){1.5f, -2}, 2);   /* half of the gradient */
    wt_floats_equal(v1, (float[]){2.25f, 4}, 2);   /* a quarter of its square */
    wt_floats_equal(p1, (float[]){0.5f, 2.5f}, 2); /* the first step moves by lr against the sign */
    wt_floats_equal(p, (float[]){1, 2}, 2);
    wt_floats_equal(m, (float[]){0, 0}, 2);

    memset(p1, 0, sizeof p1);
    /* reads only the parameter */
    wt_ok(h.ctx, wf_call_op(h.device, "adamw", attrs, in, 8, out, 1));
    wt_floats_equal(p1, (float[]){0.5f, 2.5f}, 2);
    apply = 0;
    wt_ok(h.ctx, wf_call_op(h.device, "adamw", attrs, in, 8, out, 3));
    wt_floats_equal(p1, p, 2);
    wt_floats_equal(m1, m, 2);
    host_close(&h);
}

static void test_other_ops(void **state)
{
    host h = host_open(state);
    float x[] = {3, 1, 2}, y[6], u[4], again[4];
    int32_t index[2], key[] = {1, 2, 3};
    wf_tensor in[] = {tensor(WF_F32, x, 1, 3, 0), tensor(WF_F32, x, 1, 3, 0)};
    wf_tensor out[] = {{.data = y}, {.data = index}};
    wt_ok(h.ctx, wf_call_op(h.device, "concat", "axis=0", in, 2, out, 1));
    wt_floats_equal(y, (float[]){3, 1, 2, 3, 1, 2}, 6);
    wt_ok(h.ctx, wf_call_op(h.device, "reshape", "dims=[1,3,1]", in, 1, out, 1)); /* a view */
    assert_true(out[0].rank == 3 && out[0].dim[1] == 3);
    wt_floats_equal(y, x, 3);
    wt_ok(h.ctx, wf_call_op(h.device, "top_k", "k=2", in, 1, out, 2));
    assert_true(out[1].type == WF_I32 && index[0] == 0 && index[1] == 2);
    wt_ok(h.ctx, wf_call_op(h.device, "fill", "type=f32 dims=[3] value=2.5", NULL, 0, out, 1));
    wt_floats_equal(y, (float[]){2.5f, 2.5f, 2.5f}, 3);
    wt_ok(h.ctx, wf_call_op(h.device, "assign", NULL, in, 2, out, 1));
    wt_floats_equal(y, x, 3);

    wf_tensor k = tensor(WF_I32, key, 1, 3, 0), o = {.data = u};
    wt_ok(h.ctx, wf_call_op(h.device, "uniform", "dims=[4]", &k, 1, &o, 1));
    o.data = again;
    wt_ok(h.ctx, wf_call_op(h.device, "uniform", "dims=[4] stream=0", &k, 1, &o, 1));
    wt_floats_equal(u, again, 4);

    /* empty operands give empty results */
    wf_tensor none = tensor(WF_F32, NULL, 2, 0, 3), result = {.data = y};
    wt_ok(h.ctx, wf_call_op(h.device, "exp", NULL, &none, 1, &result, 1));
    assert_true(result.dim[0] == 0 && result.dim[1] == 3);
    host_close(&h);
}

static void test_op_errors(void **state)
{
    host h = host_open(state);
    float x[] = {1, 2, 3}, y[3];
    int32_t ids[] = {7};
    wf_tensor in[] = {tensor(WF_F32, x, 1, 3, 0), tensor(WF_I32, ids, 1, 1, 0)};
    wf_tensor out[3] = {{.data = y}};
#define BAD(status, part, op, attrs, nin, nout) \
    wt_fails(h.ctx, wf_call_op(h.device, op, attrs, in, nin, out, nout), status, part)
    BAD(WF_ERR_USAGE, "did you mean 'softmax'", "softmaxx", NULL, 1, 1);
    BAD(WF_ERR_USAGE, "takes an op", NULL, NULL, 1, 1);
    BAD(WF_ERR_USAGE, "1 to 96 results", "exp", NULL, 1, 0);
    BAD(WF_ERR_USAGE, "1 to 96 results", "exp", NULL, 1, 97);
    BAD(WF_ERR_USAGE, "up to 64 operands", "concat", "axis=0", 65, 1);
    BAD(WF_ERR_USAGE, "up to 64 operands", "concat", "axis=0", -1, 1);
    BAD(WF_ERR_USAGE, "exp has 1 output, not 2", "exp", NULL, 1, 2);
    BAD(WF_ERR_USAGE, "exp(f32[3], i32[1]): takes 1 operand", "exp", NULL, 2, 1);
    BAD(WF_ERR_USAGE, "scale has no attribute 'size'", "scale", "size=3", 1, 1);
    BAD(WF_ERR_USAGE, "axis 4 is out of range", "argmax", "axis=4", 1, 1);
    BAD(WF_ERR_USAGE, "state needs a name", "state", "type=f32", 0, 1);
    BAD(WF_ERR_DEVICE, "index 7", "gather_rows", NULL, 2, 1);
    in[0].rank = 7;
    BAD(WF_ERR_USAGE, "rank 7", "exp", NULL, 1, 1);
    in[0].rank = -1;
    BAD(WF_ERR_USAGE, "rank -1", "exp", NULL, 1, 1);
    in[0] = tensor((wf_type)99, x, 1, 3, 0);
    BAD(WF_ERR_USAGE, "the type is unknown", "exp", NULL, 1, 1);
    in[0] = tensor(WF_F32, x, 1, -3, 0);
    BAD(WF_ERR_USAGE, "length -3", "exp", NULL, 1, 1);
    in[0] = tensor(WF_F32, NULL, 1, 3, 0);
    BAD(WF_ERR_USAGE, "operand 0 has no data", "exp", NULL, 1, 1);
    in[0] = tensor(WF_I8, x, 1, 3, 0); /* sum does not take i8 */
    BAD(WF_ERR_USAGE, "x must be", "sum", "axes=1", 1, 1);
#undef BAD
    host_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_call_with_states),
        wt_test(test_call_with_one_name_for_all),
        wt_test(test_call_errors),
        wt_test(test_softmax),
        wt_test(test_matmul_with_attributes),
        wt_test(test_cross_entropy),
        wt_test(test_adamw),
        wt_test(test_other_ops),
        wt_test(test_op_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
