/* SPDX-License-Identifier: MIT */
/*
 * eval_choice.c - multiple-choice questions: which ending has the highest log-probability?
 *
 * Follows lm-evaluation-harness: context and ending are tokenized together, and the ending's tokens
 * are those past the length of the context alone. Spaces at the end of the context belong to the
 * ending. The endings of a question run one after the other, so that all but the first find most of
 * the context in the engine's cache.
 */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/mem.h"
#include "base/writer.h"
#include "cli/eval.h"
#include "cli/progress.h"
#include "cli/prompt.h"

#define MAX_ENDINGS 64 /* of one question; the error message states it */

typedef struct {
    const wf_json_node *context, *endings; /* a string, and an array of strings */
    int64_t answer, line;                  /* index of the right ending; line of the file, from 1 */
} question;

typedef struct {
    wf_open *e;
    const wf_eval_options *o;
    wf_prompts prompts; /* owns the text of the file */
    wf_arena arena;     /* owns the questions */
    question *question;
    size_t count, cap;
    int32_t bos; /* put before every context; -1: none */
    /* the current ending */
    int32_t *ids;  /* [ids] bos?, context, ending */
    size_t first;  /* index of the first token of the ending */
    size_t length; /* tokens in ids */
    double score;  /* sum of log probabilities */
    /* results */
    int64_t right, right_by_bytes, endings, tokens;
} quiz;

/* ---- Questions ---- */

static wf_status line_fail(const quiz *q, int64_t line, const char *what)
{
    return wf_fail(q->e->ctx, WF_ERR_FORMAT, "line %lld of '%s': %s", (long long)line, q->o->file,
                   what);
}

/* Returns the value of the first key that the object has, or NULL. */
static const wf_json_node *get_any(const wf_json_node *object, const char *const *keys)
{
    const wf_json_node *found = NULL;
    for (; *keys && !found; keys++)
        found = wf_json_get(object, *keys);
    return found;
}

/* Returns the index: a number, digits in a string, or a letter from A; -1: invalid. */
static int64_t answer_of(const wf_json_node *n)
{
    int64_t value = 0;
    if (n->kind == WF_JSON_NUMBER && n->whole)
        return n->integer;
    if (n->kind != WF_JSON_STRING || n->bytes == 0 || n->bytes > 3)
        return -1;
    if (n->bytes == 1 && n->string[0] >= 'A' && n->string[0] <= 'Z')
        return n->string[0] - 'A';
    for (size_t i = 0; i < n->bytes; i++) {
        if (n->string[i] < '0' || n->string[i] > '9')
            return -1;
        value = 10 * value + n->string[i] - '0';
    }
    return value;
}

static wf_status check_endings(const quiz *q, const question *t)
{
    if (t->endings->kind != WF_JSON_ARRAY || t->endings->count < 2 ||
        t->endings->count > MAX_ENDINGS)
        return line_fail(q, t->line, "\"endings\" must be an array of 2 to 64 texts");
    for (size_t i = 0; i < t->endings->count; i++)
        if (t->endings->child[i].kind != WF_JSON_STRING || t->endings->child[i].bytes == 0)
            return line_fail(q, t->line, "every ending must be a text that is not empty");
    if (t->answer < 0 || t->answer >= (int64_t)t->endings->count)
        return line_fail(q, t->line,
                         "\"label\" must be the index of an ending, from 0, or its letter");
    return WF_OK;
}

static wf_status read_question(quiz *q, const wf_json_node *n, int64_t line)
{
    static const char *const contexts[] = {"ctx", "question", "prompt", NULL};
    static const char *const endings[] = {"endings", "choices", NULL};
    static const char *const answers[] = {"label", "answer", NULL};
    const wf_json_node *answer = get_any(n, answers);
    question t = {get_any(n, contexts), get_any(n, endings), -1, line};
    if (!t.context || !t.endings || !answer)
        return line_fail(q, line,
                         "a question has \"ctx\", \"endings\" and \"label\", or \"question\" (or "
                         "\"prompt\"), \"choices\" and \"answer\"");
    if (t.context->kind != WF_JSON_STRING)
        return line_fail(q, line, "the context must be a text");
    t.answer = answer_of(answer);
    WF_TRY(check_endings(q, &t));
    if (q->count == q->cap) {
        size_t cap = q->cap ? 2 * q->cap : 64;
        question *more = wf_mem_array(q->e->ctx, cap, sizeof *more);
        if (!more)
            return WF_ERR_MEMORY;
        if (q->count)
            memcpy(more, q->question, q->count * sizeof *more);
        wf_mem_free(q->e->ctx, q->question);
        q->question = more;
        q->cap = cap;
    }
    q->question[q->count++] = t;
    return WF_OK;
}

/* Parses one line. The parser reports "line 1: REASON"; replace that by the line of the file. */
static wf_status parse_line(quiz *q, const char *text, size_t bytes, int64_t line)
{
    wf_json_node *n;
    char why[WF_MESSAGE_BYTES];
    if (wf_json_parse(&q->arena, "it", text, bytes, &n) == WF_OK)
        return read_question(q, n, line);
    const char *said = wf_ctx_message(q->e->ctx), *reason = strstr(said, "line 1: ");
    if (wf_ctx_status(q->e->ctx) != WF_ERR_FORMAT)
        return wf_ctx_status(q->e->ctx);
    snprintf(why, sizeof why, "%s", reason ? reason + strlen("line 1: ") : said);
    return line_fail(q, line, why);
}

static bool is_blank(const char *text, size_t bytes)
{
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1]))
        bytes--;
    return bytes == 0;
}

static wf_status read_questions(quiz *q)
{
    const wf_values none = {.count = 0}, files = {.item = (const char *[]){q->o->file}, .count = 1};
    WF_TRY(wf_prompts_read(q->e->ctx, &none, &files, 0, &q->prompts));
    const char *at = q->prompts.item[0].text, *end = at + q->prompts.item[0].bytes;
    for (int64_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((stop ? stop : end) - at);
        if (!is_blank(at, bytes))
            WF_TRY(parse_line(q, at, bytes, line));
        if (q->o->limit > 0 && (int64_t)q->count == q->o->limit)
            break;
        at += bytes + 1;
    }
    if (q->count == 0)
        return wf_fail(q->e->ctx, WF_ERR_USAGE,
                       "'%s' has no questions; give one JSON object per line", q->o->file);
    return WF_OK;
}

/* ---- Tokens ---- */

static bool is_space(char c)
{
    return isspace((unsigned char)c) != 0;
}

static wf_status encode(const quiz *q, const char *text, size_t bytes, int32_t **ids, size_t *count)
{
    return wf_tokenizer_encode(q->e->tokenizer, q->e->ctx, text, bytes, 0, ids, count);
}

/* Joins context and ending. *cut is the offset of the ending, its leading spaces included. */
static void join(wf_writer *w, const wf_json_node *context, const wf_json_node *ending, size_t *cut)
{
    size_t n = context->bytes;
    wf_writer_bytes(w, context->string, n);
    if (n > 0 && !is_space(context->string[n - 1]) && !is_space(ending->string[0]))
        wf_writer_bytes(w, " ", 1);
    wf_writer_bytes(w, ending->string, ending->bytes);
    while (n > 0 && is_space(context->string[n - 1]))
        n--;
    *cut = n;
}

/* Returns the token before an ending whose context is empty when the tokenizer adds no bos. */
static int32_t beginning(const quiz *q)
{
    int32_t bos = wf_tokenizer_special(q->e->tokenizer, WF_SPECIAL_BOS);
    return bos >= 0 ? bos : wf_tokenizer_special(q->e->tokenizer, WF_SPECIAL_EOS);
}

/* Sets q->ids to bos?, context, ending; q->first is the ending's first token. */
static wf_status put_together(quiz *q, const question *t, const int32_t *context, size_t n,
                              const int32_t *whole, size_t all)
{
    size_t same =
        n < all ? n : all - 1; /* an ending that merges with the context keeps one token */
    bool begun = q->bos >= 0 || same == 0;
    int32_t begin = q->bos >= 0 ? q->bos : beginning(q);
    if (begun && begin < 0)
        return line_fail(q, t->line, "the context is empty, and the tokenizer has no bos token");
    q->ids = wf_mem_array(q->e->ctx, all + 1, sizeof *q->ids);
    if (!q->ids)
        return WF_ERR_MEMORY;
    q->length = 0;
    if (begun)
        q->ids[q->length++] = begin;
    if (same > 0)
        memcpy(q->ids + q->length, context, same * sizeof *context);
    q->first = q->length + same;
    memcpy(q->ids + q->first, whole + same, (all - same) * sizeof *whole);
    q->length = q->first + all - same;
    return WF_OK;
}

static wf_status tokenize(quiz *q, const question *t, const wf_json_node *ending)
{
    wf_ctx *ctx = q->e->ctx;
    wf_writer w = {.ctx = ctx};
    int32_t *context = NULL, *whole = NULL;
    size_t cut, n, all;
    join(&w, t->context, ending, &cut);
    wf_status status = w.status;
    if (status == WF_OK)
        status = encode(q, w.text, cut, &context, &n);
    if (status == WF_OK)
        status = encode(q, w.text, w.len, &whole, &all);
    if (status == WF_OK && all == 0)
        status = line_fail(q, t->line, "an ending has no tokens");
    if (status == WF_OK)
        status = put_together(q, t, context, n, whole, all);
    wf_ids_free(ctx, context);
    wf_ids_free(ctx, whole);
    wf_mem_free(ctx, w.text);
    return status;
}

/* ---- Scores ---- */

/* Logits after token i of q->ids predict token i + 1. */
static wf_status add_score(void *user, size_t i, const float *logits, size_t vocab)
{
    quiz *q = user;
    q->score -= wf_eval_nats(logits, vocab, q->ids[i + 1]);
    return WF_OK;
}

/* The last token is only predicted, so context + 1 tokens can be scored. A longer text loses its
 * beginning. */
static wf_status score_ids(quiz *q, const question *t)
{
    size_t room = (size_t)q->e->context, over = q->length > room + 1 ? q->length - room - 1 : 0;
    if (over >= q->first)
        return line_fail(q, t->line,
                         "an ending is longer than the context; give a larger --ctx-size");
    /* Moved back below, so that the caller frees the pointer that it allocated. */
    q->ids += over;
    q->first -= over;
    q->length -= over;
    wf_status status =
        wf_engine_logits(q->e->engine, q->ids, q->length - 1, q->first - 1, add_score, q);
    q->tokens += (int64_t)(q->length - q->first);
    q->ids -= over;
    return status;
}

static wf_status score(quiz *q, const question *t, const wf_json_node *ending)
{
    q->ids = NULL;
    q->score = 0;
    wf_status status = tokenize(q, t, ending);
    if (status == WF_OK)
        status = score_ids(q, t);
    wf_mem_free(q->e->ctx, q->ids);
    if (status == WF_OK && !isfinite(q->score))
        return wf_fail(q->e->ctx, WF_ERR_DEVICE,
                       "the model's logits are NaN; the weights may be damaged");
    return status;
}

/* Scores all endings; counts whether the best one, by sum and by bytes, is the answer. */
static wf_status ask(quiz *q, const question *t)
{
    int64_t best = 0, best_by_bytes = 0;
    double most = -INFINITY, most_by_bytes = -INFINITY;
    for (size_t i = 0; i < t->endings->count; i++) {
        const wf_json_node *ending = &t->endings->child[i];
        WF_TRY(score(q, t, ending));
        double by_bytes = q->score / (double)ending->bytes;
        if (q->score > most) {
            most = q->score;
            best = (int64_t)i;
        }
        if (by_bytes > most_by_bytes) {
            most_by_bytes = by_bytes;
            best_by_bytes = (int64_t)i;
        }
    }
    q->right += best == t->answer;
    q->right_by_bytes += best_by_bytes == t->answer;
    q->endings += (int64_t)t->endings->count;
    return WF_OK;
}

static wf_status ask_all(quiz *q)
{
    wf_progress progress;
    wf_status status = WF_OK;
    wf_progress_begin(&progress, "questions", WF_PROGRESS_ITEMS, (int64_t)q->count);
    for (size_t i = 0; i < q->count && status == WF_OK; i++) {
        status = ask(q, &q->question[i]);
        if (!wf_open_set.quiet)
            wf_progress_update(&progress, (int64_t)i + 1);
    }
    if (!wf_open_set.quiet)
        (status == WF_OK ? wf_progress_end : wf_progress_clear)(&progress);
    return status;
}

/* ---- Results ---- */

static double share(const quiz *q, int64_t right)
{
    return (double)right / (double)q->count;
}

/* Returns the standard error of the accuracy; NAN for a single question. */
static double spread(const quiz *q, int64_t right)
{
    double p = share(q, right);
    return q->count > 1 ? sqrt(p * (1 - p) / (double)(q->count - 1)) : NAN;
}

/* Returns the expected accuracy of random choices. */
static double chance(const quiz *q)
{
    double sum = 0;
    for (size_t i = 0; i < q->count; i++)
        sum += 1 / (double)q->question[i].endings->count;
    return sum / (double)q->count;
}

static void print_share(const quiz *q, const char *label, int64_t right)
{
    printf("%-20s %.4f", label, share(q, right));
    if (q->count > 1)
        printf(" +- %.4f", spread(q, right));
    printf("   %lld of %zu\n", (long long)right, q->count);
}

static void print_results(const quiz *q)
{
    print_share(q, "accuracy", q->right);
    print_share(q, "accuracy by bytes", q->right_by_bytes);
    printf("%-20s %.4f\n", "chance", chance(q));
    printf("%-20s %zu, with %lld ending%s of %lld token%s in all\n", "questions", q->count,
           (long long)q->endings, WF_PLURAL(q->endings), (long long)q->tokens,
           WF_PLURAL(q->tokens));
}

static void print_json(const quiz *q)
{
    const struct {
        const char *key;
        double value;
    } reals[] = {{"accuracy", share(q, q->right)},
                 {"accuracy_stderr", spread(q, q->right)},
                 {"accuracy_by_bytes", share(q, q->right_by_bytes)},
                 {"accuracy_by_bytes_stderr", spread(q, q->right_by_bytes)},
                 {"chance", chance(q)}};
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"questions", (int64_t)q->count},
                  {"right", q->right},
                  {"right_by_bytes", q->right_by_bytes},
                  {"endings", q->endings},
                  {"ending_tokens", q->tokens}};
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        wf_json_key(&j, reals[i].key);
        wf_json_double(&j, reals[i].value);
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        wf_json_key(&j, counts[i].key);
        wf_json_int(&j, counts[i].value);
    }
    wf_json_object_end(&j);
    wf_json_end(&j);
}

wf_status wf_eval_choices(wf_open *e, const wf_eval_options *o)
{
    quiz q = {.e = e, .o = o, .prompts.ctx = e->ctx};
    wf_arena_init(&q.arena, e->ctx);
    wf_status status = read_questions(&q);
    if (status == WF_OK)
        status = wf_eval_bos(e, &q.bos);
    if (status == WF_OK)
        status = wf_open_load(e, 1, WF_EVAL_ROWS);
    if (status == WF_OK)
        status = ask_all(&q);
    if (status == WF_OK)
        (o->json ? print_json : print_results)(&q);
    wf_mem_free(e->ctx, q.question);
    wf_arena_free(&q.arena);
    wf_prompts_free(&q.prompts);
    return status;
}
