/* SPDX-License-Identifier: MIT */
/*
 * model_fixture.h - the tiny checkpoints of tests/fixtures/models with reference results from
 * transformers (tests/fixtures/make_models.py). Include after cmocka.h.
 */
#ifndef WEFT_TESTS_MODEL_FIXTURE_H
#define WEFT_TESTS_MODEL_FIXTURE_H

#include "weft.h"

#define WT_MODELS_FOLDER "tests/fixtures/models"
/* Names of the checkpoints, ending with NULL. */
extern const char *const wt_models[];
/* Those of the later families, also ending with NULL. They have train.json and gguf.json, too
 * (make_training.py, make_gguf.py). */
extern const char *const *const wt_later_models;
int wt_later_count(void);

typedef struct {
    char path[128]; /* path of the checkpoint */
    int32_t *prompt, *greedy;
    size_t prompt_count, greedy_count;
    float *logits; /* [prompt_count, vocab] */
    int64_t vocab;
} wt_reference;

void wt_reference_read(const char *name, wt_reference *out);
void wt_reference_free(wt_reference *r);

/* Returns the largest difference, relative to the largest magnitude in `want`; a huge value when
 * `got` contains a NaN or infinity. */
double wt_relative(const float *got, const float *want, int64_t n);

/* Returns logits [count, vocab] for all ids. The caller frees them. */
float *wt_logits(wf_ctx *ctx, wf_engine *e, const int32_t *ids, size_t count, int64_t vocab);
/* Writes n greedy tokens after a prompt to ids. */
void wt_greedy(wf_ctx *ctx, wf_engine *e, const int32_t *prompt, size_t count, int32_t *ids,
               size_t n);

/* A model and its engine on a device. wt_talker_close frees them. options NULL: keys and values in
 * f32, as in the references. */
typedef struct {
    wf_ctx *ctx;
    wf_device *device;
    wf_model *model;
    wf_engine *engine;
} wt_talker;
wt_talker wt_talker_open(wf_ctx *ctx, const char *device, const char *path,
                         const wf_engine_options *options);
void wt_talker_close(wt_talker *t);

#endif
