/* SPDX-License-Identifier: MIT */
/*
 * test_contexts.c - objects from two contexts. Every public function that takes a device (or a
 * session) and a graph or a model of another context fails. The message names both objects, and
 * both contexts report it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "model_fixture.h"
#include "support.h"

static const char graph_sentence[] =
    "the graph and device cpu come from different contexts; make both from one context";
static const char model_sentence[] =
    "the model and device cpu come from different contexts; make both from one context";

static wf_ctx *other_context(void)
{
    wf_ctx *other;
    assert_int_equal(wf_ctx_new(&other), WF_OK);
    return other;
}

/* Expects the failure and exactly this message in both contexts. */
static void fails_in_both(wf_ctx *a, wf_ctx *b, wf_status status, const char *sentence)
{
    wt_fails(a, status, WF_ERR_USAGE, sentence);
    assert_string_equal(wf_ctx_message(b), sentence);
    assert_string_equal(wf_ctx_message(a), sentence);
}

static void test_graphs(void **state)
{
    wf_ctx *ctx = *state, *other = other_context();
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(other);
    wf_exec *exec;
    wf_memory memory;
    float y;
    const wf_array out = {"y", &y, sizeof y};
    wf_output(g, "y", wf_fill(g, WF_F32, 0, NULL, 1));
    fails_in_both(ctx, other, wf_compile(r.session, g, &exec), graph_sentence);
    assert_null(exec);
    fails_in_both(ctx, other, wf_compile_with(r.session, g, NULL, &exec), graph_sentence);
    assert_null(exec);
    fails_in_both(ctx, other, wf_plan_memory(r.device, g, NULL, &memory), graph_sentence);
    fails_in_both(ctx, other, wf_call(r.device, g, NULL, 0, &out, 1), graph_sentence);
    wf_graph_free(g);
    wt_close(&r);
    wf_ctx_free(other);
}

static void test_models(void **state)
{
    wf_ctx *ctx = *state, *other = other_context();
    wf_device *device;
    wf_model *model;
    wf_engine *engine;
    wf_memory memory;
    char path[256];
    snprintf(path, sizeof path, "%s/%s", WT_MODELS_FOLDER, wt_models[0]);
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &device));
    wt_ok(other, wf_model_open(other, path, &model));
    fails_in_both(ctx, other, wf_engine_new(device, model, NULL, &engine), model_sentence);
    assert_null(engine);
    fails_in_both(ctx, other, wf_engine_plan(device, model, NULL, &memory), model_sentence);
    wf_model_close(model);
    wf_device_close(device);
    wf_ctx_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_graphs), wt_test(test_models)};
    return cmocka_run_group_tests_name("contexts", tests, NULL, NULL);
}
