/* SPDX-License-Identifier: MIT */
/*
 * smollm2_fixture.h - what another engine found likely, token by token.
 *
 * tests/fixtures/smollm2/README.md says which engine, which texts and how they were recorded, and
 * describes the files. Position i of a text is what the model says after ids[0..i]: a distribution
 * over the token that follows, ids[i + 1].
 *
 * To be included after cmocka.h: a file that is missing or malformed fails the test.
 */
#ifndef SMOLLM2_FIXTURE_H
#define SMOLLM2_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    float next;           /* log-probability of the token that follows in the text */
    float rest;           /* log-probability of all tokens that are not in `id` together */
    const int32_t *id;    /* [top] the likeliest tokens, likeliest first; id[0] is the argmax */
    const float *logprob; /* [top] their log-probabilities */
} sm_position;

typedef struct {
    char name[24];
    const char *text; /* not terminated; the prompt alone where tokens were generated */
    size_t bytes;
    bool control;          /* whether names of control tokens in the text stand for these tokens */
    int prompt;            /* ids of the text; those after them were generated greedily */
    int count;             /* of all ids; equal to prompt where nothing was generated */
    const int32_t *ids;    /* [count] */
    const sm_position *at; /* [count - 1] */
} sm_text;

typedef struct {
    int count;      /* of texts */
    int vocab;      /* ids are below */
    int top;        /* how many tokens each position lists, at least 2 */
    sm_text *texts; /* [count] */
    char *text_bytes;
    int32_t *ids;
    sm_position *positions;
    float *logprobs;
} sm_recording;

/* Reads tests/fixtures/smollm2/NAME.bin and its texts. */
sm_recording *sm_open(const char *name);
void sm_close(sm_recording *r);
/* The text of that name, which must be there. */
const sm_text *sm_find(const sm_recording *r, const char *name);

/* By how much the likeliest token leads, in log-probability. */
double sm_margin(const sm_position *p);
/* The Kullback-Leibler divergence of the recorded distribution P from softmax(logits) = Q, in nats,
 * over top + 1 buckets: the `top` tokens that P lists, and all others as one. It is never above the
 * divergence over the whole vocabulary. logits: [vocab]. */
double sm_divergence(const sm_recording *r, const sm_position *p, const float *logits);

#endif
