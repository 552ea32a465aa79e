/* SPDX-License-Identifier: MIT */
/*
 * smollm2_fixture.h - recorded token probabilities of another engine.
 *
 * tests/fixtures/smollm2/README.md describes the engine, the texts, the recording and the file
 * format. Position i of a text holds the model's distribution after ids[0..i], that is over the
 * next token ids[i + 1].
 *
 * Include after cmocka.h: a missing or malformed file fails the test.
 */
#ifndef SMOLLM2_FIXTURE_H
#define SMOLLM2_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    float next;           /* log-probability of the next token of the text */
    float rest;           /* log-probability of all tokens that `id` does not list */
    const int32_t *id;    /* [top] the likeliest tokens, likeliest first; id[0] is the argmax */
    const float *logprob; /* [top] their log-probabilities */
} sm_position;

typedef struct {
    char name[24];
    const char *text; /* not NUL-terminated; only the prompt when tokens were generated */
    size_t bytes;
    bool control;          /* control-token names in the text encode as control tokens */
    int prompt;            /* ids of the text; later ids were generated greedily */
    int count;             /* number of all ids; equal to `prompt` when nothing was generated */
    const int32_t *ids;    /* [count] */
    const sm_position *at; /* [count - 1] */
} sm_text;

typedef struct {
    int count;      /* number of texts */
    int vocab;      /* ids are below this */
    int top;        /* tokens listed for each position, at least 2 */
    sm_text *texts; /* [count] */
    char *text_bytes;
    int32_t *ids;
    sm_position *positions;
    float *logprobs;
} sm_recording;

/* Reads tests/fixtures/smollm2/NAME.bin and its texts. */
sm_recording *sm_open(const char *name);
void sm_close(sm_recording *r);
/* Returns the text of this name; fails the test when it is missing. */
const sm_text *sm_find(const sm_recording *r, const char *name);

/* Returns the margin in log-probability between the two most likely tokens. */
double sm_margin(const sm_position *p);
/* Returns the Kullback-Leibler divergence KL(P || Q) in nats, where P is the recorded distribution
 * and Q = softmax(logits). Uses top + 1 buckets: the `top` tokens that P lists, and all others
 * together. This is a lower bound of the divergence over the whole vocabulary. logits: [vocab]. */
double sm_divergence(const sm_recording *r, const sm_position *p, const float *logits);

#endif
