/* SPDX-License-Identifier: MIT */
/*
 * engine.h - private state of engines and sequences.
 *
 * One step computes tokens of several sequences (continuous batching). A chunk of a prompt and the
 * next token of a running sequence are treated alike: both are tokens that extend a sequence.
 *
 * Shapes are static, so the engine compiles executables for a few sizes (buckets) when they are
 * first needed. A run uses the smallest bucket that holds its tokens and pads the rest. Keys and
 * values live in fixed-size pages. Each cache of the model (cache.h) has its own pool and page
 * table.
 *
 *     engine.c    options, creation, planned memory, statistics
 *     bucket.c    graphs and executables of runs
 *     waitlist.c  which request starts next
 *     schedule.c  which tokens the next run computes, and their pages
 *     step.c      runs, samples, and reports
 *     sequence.c  a request, its tokens and its text
 *     prefix.c    finds pages that already hold a prefix of a prompt
 *     cache_file.c, identity.c   save pages to a file, and for which engines they are valid
 */
#ifndef WF_INFER_ENGINE_H
#define WF_INFER_ENGINE_H

#include "base/writer.h"
#include "infer/pages.h"
#include "infer/prefix.h"
#include "infer/sample.h"
#include "infer/sample_rows.h"
#include "infer/stop.h"
#include "infer/waitlist.h"
#include "model/adapter.h"
#include "model/model.h"

/* Most tokens that pools can hold. */
#define WF_MOST_CACHE_TOKENS (INT32_MAX / WF_PAGE_TOKENS * WF_PAGE_TOKENS)

/* Most executables of an engine. Decode of 32 sequences with prompts between uses about 40. */
#define WF_MOST_BUCKETS 128

/* What an engine runs: the weights of a model's files, or those of a trainer. */
typedef struct {
    wf_ctx *ctx;
    const wf_config *config;       /* borrowed, as all pointers are */
    const wf_tokenizer *tokenizer; /* NULL: sequences have no text */
    wf_build_options build;        /* how weights are named, typed and adapted */
    /* Compute type of matmuls and activations, as in wf_precision, for a model with f32 weights.
     * WF_TYPE_NONE: the types of the graph as built. */
    wf_type compute;
} wf_engine_source;

/* An executable and its sizes, padding included. */
typedef struct {
    int64_t tokens, sequences, rows;
    wf_exec *exec;
    uint64_t turn; /* when it was last used: e->turn at that time */
    bool avoided;  /* a run found no memory */
} wf_bucket;

struct wf_engine {
    wf_engine_source source;
    wf_ctx *ctx;           /* of the source */
    const wf_model *model; /* NULL: the session and its weights belong to a trainer */
    wf_adapters adapters;
    wf_session *session;
    /* Options, defaults filled in. */
    int64_t context, sequences, chunk, rows;
    int64_t limit; /* most tokens of a sequence: the context or the pool size */
    double step_ms;
    bool reuse;
    wf_type kv;
    bool rounds; /* matmuls may round activations */
    int64_t vocab;
    wf_mask mask; /* ids that are never generated */
    wf_caches caches;
    wf_cache_size size[WF_MOST_CACHES]; /* of each cache */
    int64_t longest;                    /* most tokens of a sequence in one run */
    wf_pages pages[WF_MOST_CACHES];
    wf_prefix *prefix; /* NULL: nothing is reused */
    wf_bucket *bucket; /* [buckets], the largest first */
    int buckets, bucket_room;
    uint64_t turn; /* counts uses of buckets */
    wf_waitlist waitlist;
    wf_sequence **running; /* [running_count] by priority, then arrival */
    int64_t running_count;
    /* The next run. */
    wf_sequence **batch; /* [batch_count] sequences of the run, in its order */
    int64_t batch_count, batch_tokens, batch_rows;
    int32_t *tokens, *positions;    /* [most tokens]; those of a sequence are contiguous */
    int32_t *seq_start;             /* [sequences + 1] */
    int32_t *table[WF_MOST_CACHES]; /* [sequences, size.pages]: page table of each cache */
    int32_t *lengths;               /* [sequences]: tokens in the cache after the run */
    int32_t *row;                   /* [rows]: the tokens whose logits are computed */
    int32_t *fresh; /* [fresh_count] nodes of pages that the run fills, by sequence */
    int64_t fresh_count, fresh_room;
    int32_t *match; /* [pages of a context] scratch: nodes of a prompt */
    /* Outputs of a run. */
    int32_t *best;      /* [rows]: argmax */
    float *top;         /* [rows]: the largest logit, NaN when any logit is NaN */
    float *logits;      /* [rows, vocab] */
    wf_sample_job *job; /* [rows] */
    wf_sample_rows *sampling;
    uint64_t compiling_ns; /* in all steps so far */
    /* Measured rates, for step_ms; 0: unknown. */
    double decode_ns;       /* of a step without prompts */
    double prompt_ns;       /* per prompt token */
    wf_engine_event *event; /* [events] of the last step */
    int64_t events;
    wf_engine_stats stats;
};

typedef enum { WF_PHASE_WAITING, WF_PHASE_RUNNING, WF_PHASE_ENDED } wf_phase;

struct wf_sequence {
    wf_ticket ticket; /* first: the queue returns it */
    wf_engine *engine;
    wf_phase phase;
    wf_stop stop;
    wf_status status; /* after WF_STOP_ERROR */
    char *error;      /* its sentence, owned; NULL: the status says enough */
    /* The request. */
    int64_t limit; /* tokens to generate; 0: no limit */
    bool ignore_end, control;
    uint64_t salt;
    wf_logits_fn *logits;
    int64_t logits_from; /* index of the next token whose logits are passed */
    void *user;
    int32_t *stop_token; /* [stop_tokens], owned */
    int stop_tokens;
    wf_sampler *sampler; /* owned, like stopper and decoder */
    wf_stopper *stopper; /* NULL: no stop strings */
    wf_decoder *decoder; /* made when the sequence starts; NULL: no text */
    /* Tokens. */
    int32_t *token; /* [room]: the prompt, then the generated tokens */
    int64_t room, count, prompt;
    int64_t cached; /* tokens whose keys and values are in pages; cached <= count */
    int64_t reused; /* tokens of the prompt that were found in pages */
    wf_page_list pages[WF_MOST_CACHES]; /* of each cache; hold what token `cached` sees */
    /* Its place in the prefix cache: the node of its page `chained` - 1; -1: none. */
    int32_t place;
    int64_t chained;
    bool begun;     /* left the queue at least once */
    bool preempted; /* at least once */
    bool matched;   /* the prefix cache was searched since it left the queue */
    /* In the current run. */
    int64_t take;               /* tokens; 0: takes no part */
    int64_t row, row_count;     /* rows of logits; row_count 0: none */
    int64_t fresh, fresh_count; /* its nodes in engine->fresh */
    wf_writer text;             /* generated since the last wf_sequence_text */
    char *given;                /* the result of the last wf_sequence_text */
};

/* ---- engine.c ---- */

/* Creates an engine that runs `source` in a session which has all its weights. The session must
 * outlive the engine and have no other. Executables that the session compiles from then on share
 * the engine's ports. wf_engine_free frees the page pools, too. */
wf_status wf_engine_attach(wf_session *session, const wf_engine_source *source,
                           const wf_engine_options *options, wf_engine **out);
/* Builds the graph of this engine's largest run, for planning: its other runs share that one's
 * memory. */
wf_status wf_engine_attach_graph(const wf_engine_source *source, const wf_engine_options *options,
                                 wf_graph **out);
/* Returns the most tokens that a sequence of an engine with these options can have, and the bytes
 * of its page pools, which are part of the states that wf_engine_plan reports. */
wf_status wf_engine_limits(const wf_model *model, const wf_engine_options *options, int64_t *tokens,
                           size_t *kv_bytes);
/* Returns the tokens of pools that hold so many whole contexts. Sequences
 * with different tokens share no page: each needs whole ones. */
int64_t wf_engine_whole_cache(int64_t sequences, int64_t context);
/* Adds an event of the current step. */
void wf_engine_report(wf_engine *e, wf_engine_event_kind kind, wf_sequence *s);
/* Returns false if kv is no type of keys and values. */
bool wf_kv_type(wf_kv kv, wf_type *out);
/* Returns the most tokens of a run. */
int64_t wf_engine_most_tokens(const wf_engine *e);

/* ---- identity.c ---- */

/* Returns a number that is equal for engines which compute the same keys and values from the same
 * tokens. The engine must run a model from files. */
wf_status wf_engine_identity(const wf_engine *e, uint64_t *out);

/* ---- cache_file.c ---- */

/* Does the same as wf_engine_restore from an opened file, usually of the engine's context; `path`
 * names it in errors. The engine must have a prefix cache. */
wf_status wf_engine_restore_file(wf_engine *e, wf_gguf *file, const char *path, size_t *tokens);

/* ---- bucket.c ---- */

/* Builds the graph of a run. */
wf_status wf_bucket_graph(const wf_engine *e, const wf_bucket *size, wf_graph **out);
/* Finds or compiles the executable for a run of these sizes. *out is valid until the next call. */
wf_status wf_bucket_find(wf_engine *e, int64_t tokens, int64_t sequences, int64_t rows,
                         const wf_bucket **out);
/* Call when a run found no memory: later runs use a larger executable. Returns false if it was the
 * largest. */
bool wf_bucket_avoid(wf_engine *e, const wf_bucket *b);
/* The executable of the largest run. */
wf_bucket wf_bucket_largest(const wf_engine *e);

/* ---- schedule.c ---- */

/* Chooses the tokens of the next run, takes their pages, and fills the run's inputs. A run without
 * tokens has batch_count 0. A sequence without memory ends with WF_STOP_ERROR. */
void wf_engine_schedule(wf_engine *e);
/* After a failed run: undoes what wf_engine_schedule recorded as computed. */
void wf_engine_undo(wf_engine *e);
/* Records that the run's tokens are in the cache. */
void wf_engine_done(wf_engine *e);
/* Takes a sequence out of the running ones; its pages return to the pools. */
void wf_engine_stop(wf_sequence *s);

/* ---- sequence.c ---- */

/* Prepares a sequence that leaves the queue: makes what it needs only while it runs. */
wf_status wf_sequence_begin(wf_sequence *s);
/* Appends the token `id`, decodes its text, and sets `stop` when it ends the sequence. */
wf_status wf_sequence_take(wf_sequence *s, int32_t id);
/* Sets the reason of a running sequence's end to a failure; `message` may be NULL. */
void wf_sequence_fail(wf_sequence *s, wf_status status, const char *message);
/* Ends a sequence whose `stop` is set: frees its sampler, decoder and pages. */
void wf_sequence_end(wf_sequence *s);

#endif
