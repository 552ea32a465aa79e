/* SPDX-License-Identifier: MIT */
/*
 * schedule.c - which tokens the next run computes.
 *
 * Running sequences are ordered by priority, then by arrival. The next tokens of all sequences that
 * generate come first; prompt chunks fill the rest of the run in order. If a pool is full, a
 * sequence may preempt those after it: the last one goes back to the queue, keeps its tokens, and
 * computes its keys and values again later. The first sequence can preempt all others and fits
 * alone, so every run makes progress.
 *
 * A prompt waits while another sequence computes a page that it shares, and then uses that page. So
 * requests that start together compute a common prefix once.
 */
#include <string.h>

#include "infer/engine.h"

#define LEAST_PROMPT 16       /* tokens of prompts per run, however long they take */
#define UNMEASURED_PROMPT 128 /* the same while the rate is unknown and others wait */

/* ---- Pages ---- */

/* The pages of the tokens that n further tokens and later ones see. */
static int64_t first_page(const wf_sequence *s, int cache)
{
    return wf_cache_first_page(&s->engine->caches.cache[cache], WF_PAGE_TOKENS, s->cached);
}

/* Takes the pages of the next n tokens in all caches. Pages behind a window are returned only here,
 * not after the previous run: until then that run can still be undone. */
static wf_status hold_pages(wf_sequence *s, int64_t n, bool *held)
{
    wf_engine *e = s->engine;
    *held = true;
    for (int i = 0; *held && i < e->caches.count; i++)
        WF_TRY(wf_pages_hold(&e->pages[i], &s->pages[i], first_page(s, i),
                             wf_pages_for(s->cached + n), held));
    return WF_OK;
}

static void drop_pages(wf_sequence *s)
{
    wf_engine *e = s->engine;
    if (e->prefix)
        wf_prefix_move(e->prefix, &s->place, -1);
    for (int i = 0; i < e->caches.count; i++)
        wf_pages_drop(&e->pages[i], &s->pages[i]);
    s->cached = s->chained = 0;
    s->matched = false;
}

/* ---- The chain of nodes in the prefix cache ---- */

/* Inserts nodes of the pages that the run fills. They wait until the run is done; other prompts see
 * them and wait, too. */
static void announce(wf_sequence *s)
{
    wf_engine *e = s->engine;
    int32_t parent = s->place;
    s->fresh = e->fresh_count;
    s->fresh_count = 0;
    if (!e->prefix)
        return;
    for (int64_t k = s->chained; (k + 1) * WF_PAGE_TOKENS <= s->cached + s->take &&
                                 e->fresh_count < e->fresh_room; /* `advance` adds the rest */
         k++) {
        int32_t page[WF_MOST_CACHES];
        bool exists;
        for (int i = 0; i < e->caches.count; i++)
            page[i] = wf_page_at(&s->pages[i], k);
        int32_t node = wf_prefix_insert(e->prefix, parent, s->salt, s->token + k * WF_PAGE_TOKENS,
                                        page, &exists);
        if (node < 0 || exists)
            break;
        e->fresh[e->fresh_count++] = parent = node;
        s->fresh_count++;
    }
}

/* Forgets the nodes of a run that did not happen. */
static void retract(wf_sequence *s)
{
    if (s->fresh_count > 0)
        wf_prefix_abandon(s->engine->prefix, s->engine->fresh[s->fresh]);
    s->fresh_count = 0;
}

/* Makes the nodes of a run ready, for all sequences before any of them advances. */
static void confirm(wf_sequence *s)
{
    const wf_engine *e = s->engine;
    for (int64_t i = 0; i < s->fresh_count; i++) {
        wf_prefix_ready(e->prefix, e->fresh[s->fresh + i]);
        wf_prefix_move(e->prefix, &s->place, e->fresh[s->fresh + i]);
        s->chained++;
    }
    s->fresh_count = 0;
}

/* Chains the full pages that another sequence computed at the same time. */
static void advance(wf_sequence *s)
{
    const wf_engine *e = s->engine;
    while (e->prefix && (s->chained + 1) * WF_PAGE_TOKENS <= s->cached &&
           wf_prefix_extend(e->prefix, &s->place, s->salt, s->token + s->chained * WF_PAGE_TOKENS,
                            s->pages, s->chained))
        s->chained++; /* when the cache is full, this and later pages stay the sequence's own */
}

/* Returns how many tokens of s may come from the prefix cache: at least one is computed, since the
 * cache has no logits, and all whose logits the request wants. */
static int64_t reusable(const wf_sequence *s)
{
    int64_t most = s->count - 1;
    return s->logits && s->logits_from < most ? s->logits_from : most;
}

/* Searches the prefix cache. *waits: another sequence computes the next page at this moment. */
static wf_status match(wf_sequence *s, bool *waits)
{
    wf_engine *e = s->engine;
    *waits = false;
    if (s->matched || !e->prefix)
        return WF_OK;
    int64_t n = wf_prefix_match(e->prefix, s->salt, s->token, reusable(s) / WF_PAGE_TOKENS,
                                e->match, waits);
    if (*waits)
        return WF_OK;
    WF_TRY(wf_prefix_hold(e->prefix, e->match, n, s->pages, &s->place));
    s->matched = true;
    s->cached = n * WF_PAGE_TOKENS;
    s->chained = n;
    if (!s->preempted) /* later it finds pages of its own */
        s->reused = s->cached;
    e->stats.reused_tokens += (uint64_t)s->cached;
    return WF_OK;
}

/* ---- Running and waiting ---- */

static void remove_running(wf_engine *e, const wf_sequence *s)
{
    int64_t i = 0;
    while (e->running[i] != s)
        i++;
    e->running_count--;
    memmove(e->running + i, e->running + i + 1,
            (size_t)(e->running_count - i) * sizeof(wf_sequence *));
}

static void insert_running(wf_engine *e, wf_sequence *s)
{
    int64_t i = e->running_count++;
    for (; i > 0 && wf_ticket_before(&s->ticket, &e->running[i - 1]->ticket); i--)
        e->running[i] = e->running[i - 1];
    e->running[i] = s;
}

void wf_engine_stop(wf_sequence *s)
{
    retract(s);
    drop_pages(s);
    remove_running(s->engine, s);
}

static void preempt(wf_sequence *s)
{
    wf_engine *e = s->engine;
    e->batch_rows -= s->take > 0 ? s->row_count : 0;
    e->batch_tokens -= s->take;
    s->take = 0;
    wf_engine_stop(s);
    s->phase = WF_PHASE_WAITING;
    s->preempted = true;
    wf_waitlist_resume(&e->waitlist, &s->ticket);
    wf_engine_report(e, WF_EVENT_PREEMPT, s);
    e->stats.preemptions++;
    e->stats.last.preempted++;
}

/* Removes the holds of running sequences [from, all) on a cache without giving their pages. Returns
 * how many pages could then be taken. Nothing may change the pool before return_all. */
static int64_t leave_all(wf_engine *e, int cache, int64_t from)
{
    int64_t n = wf_pages_available(&e->pages[cache]);
    for (int64_t k = from; k < e->running_count; k++)
        n += wf_pages_leave(&e->pages[cache], &e->running[k]->pages[cache]);
    return n;
}

static void return_all(wf_engine *e, int cache, int64_t from)
{
    for (int64_t k = from; k < e->running_count; k++)
        wf_pages_return(&e->pages[cache], &e->running[k]->pages[cache]);
}

/* Returns the pages of a cache that can be taken if running sequences [from, all) give theirs.
 * *reused: how many of them the match of `found` pages in e->match would take. */
static int64_t obtainable(wf_engine *e, int cache, int64_t from, int64_t found, int64_t *reused)
{
    const int64_t n = leave_all(e, cache, from);
    *reused = 0;
    for (int64_t k =
             wf_cache_first_page(&e->caches.cache[cache], WF_PAGE_TOKENS, found * WF_PAGE_TOKENS);
         k < found; k++)
        *reused += e->pages[cache].page[e->prefix->node[e->match[k]].page[cache]].holders == 0;
    return_all(e, cache, from);
    return n;
}

/* Returns whether s can hold the pages of its next n tokens in a cache if running sequences [from,
 * all) give theirs. This includes pages behind the window of s that it shares only with them. */
static bool suffices_without(wf_sequence *s, int cache, int64_t n, int64_t from)
{
    wf_engine *e = s->engine;
    const int64_t available = leave_all(e, cache, from);
    const bool enough = wf_pages_suffice(&e->pages[cache], &s->pages[cache], first_page(s, cache),
                                         wf_pages_for(s->cached + n), available);
    return_all(e, cache, from);
    return enough;
}

static bool holds_pages(const wf_sequence *s)
{
    bool any = false;
    for (int i = 0; i < s->engine->caches.count; i++)
        any = any || s->pages[i].end > s->pages[i].first;
    return any;
}

/* Preempts the last running sequence that holds pages and comes after s, which is at index `at`.
 * Returns false if there is none, or if the pages of all after s are too few for its next n
 * tokens. */
static bool preempt_after(wf_sequence *s, int64_t at, int64_t n)
{
    wf_engine *e = s->engine;
    int64_t last = e->running_count - 1;
    while (last > at && !holds_pages(e->running[last]))
        last--;
    if (last == at)
        return false;
    for (int i = 0; i < e->caches.count; i++)
        if (!suffices_without(s, i, n, at + 1))
            return false;
    preempt(e->running[last]);
    return true;
}

/* Returns the index of the first running sequence of a lower priority than s: it and those behind
 * it can be preempted for s. */
static int64_t first_outranked(const wf_sequence *s)
{
    const wf_engine *e = s->engine;
    int64_t i = e->running_count;
    while (i > 0 && e->running[i - 1]->ticket.priority < s->ticket.priority)
        i--;
    return i;
}

/* Returns the pages of a cache that s holds with `more` further tokens, at most to its limit. */
static int64_t pages_with(const wf_sequence *s, int cache, int64_t more)
{
    const wf_engine *e = s->engine;
    const int64_t most = wf_cache_most_pages(&e->caches.cache[cache], WF_PAGE_TOKENS,
                                             e->size[cache].pages, e->longest);
    int64_t tokens = s->count + more;
    if (s->limit > 0 && tokens - s->prompt > s->limit)
        tokens = s->prompt + s->limit;
    const int64_t pages = wf_pages_for(tokens);
    return pages < most ? pages : most;
}

/* Counts the pages of each cache that running sequences [from, all) will soon take: for the rest of
 * their tokens and a page more, so that a new sequence does not preempt them at once. */
static void count_promised(const wf_engine *e, int64_t from, int64_t *promised)
{
    for (int i = 0; i < e->caches.count; i++) {
        promised[i] = 0;
        for (int64_t k = from; k < e->running_count; k++) {
            const wf_page_list *list = &e->running[k]->pages[i];
            const int64_t rest =
                pages_with(e->running[k], i, 1 + WF_PAGE_TOKENS) - (list->end - list->first);
            promised[i] += rest > 0 ? rest : 0;
        }
    }
}

/* Returns whether the pools have room for all tokens of s besides the `promised` pages, if the
 * sequences that it outranks are preempted. If so, its own pages are promised, too. */
static bool has_room(wf_sequence *s, int64_t *promised)
{
    wf_engine *e = s->engine;
    bool pending;
    int64_t found = 0, soon[WF_MOST_CACHES], theirs[WF_MOST_CACHES], reused;
    const int64_t outranked = first_outranked(s);
    count_promised(e, outranked, theirs); /* all of these ran before this step */
    if (e->prefix)
        found = wf_prefix_match(e->prefix, s->salt, s->token, reusable(s) / WF_PAGE_TOKENS,
                                e->match, &pending);
    for (int i = 0; i < e->caches.count; i++) {
        const int64_t whole = wf_pages_for(s->count + 1) - found, most = pages_with(s, i, 1);
        const int64_t need = whole < most ? whole : most;
        const int64_t available = obtainable(e, i, outranked, found, &reused);
        if (outranked > 0 && /* alone it fits */
            need + reused + promised[i] - theirs[i] > available)
            return false;
        soon[i] = need + reused + pages_with(s, i, 1 + WF_PAGE_TOKENS) - most;
    }
    for (int i = 0; i < e->caches.count; i++)
        promised[i] += soon[i];
    return true;
}

/* Moves requests from the queue to the running sequences, also in place of some of lower priority.
 * One that cannot be prepared ends. */
static void admit(wf_engine *e)
{
    int64_t promised[WF_MOST_CACHES];
    wf_ticket *t;
    if (e->waitlist.count == 0)
        return;
    count_promised(e, 0, promised);
    for (int64_t n = 0; n < e->sequences; n++) {
        t = wf_waitlist_first(&e->waitlist);
        wf_sequence *s = (wf_sequence *)t;
        if (!s || (e->running_count == e->sequences && first_outranked(s) == e->running_count) ||
            !has_room(s, promised))
            return;
        if (e->running_count == e->sequences)
            preempt(e->running[e->running_count - 1]);
        wf_waitlist_remove(&e->waitlist, t, true);
        wf_engine_report(e, WF_EVENT_START, s);
        insert_running(e, s);
        s->phase = WF_PHASE_RUNNING;
        s->take = 0;
        wf_status status = wf_sequence_begin(s);
        if (status != WF_OK) {
            wf_sequence_fail(s, status, NULL);
            wf_sequence_end(s);
        }
    }
}

/* ---- The next run ---- */

/* Returns how many tokens of prompts the run may have besides `decoding` others. Only those would
 * notice a longer run: without them it is as long as possible. */
static int64_t prompt_budget(const wf_engine *e, int64_t decoding)
{
    const int64_t most = wf_engine_most_tokens(e) - decoding;
    if (decoding == 0)
        return most;
    double tokens = UNMEASURED_PROMPT;
    if (e->prompt_ns > 0)
        tokens = (e->step_ms * 1e6 - e->decode_ns) / e->prompt_ns;
    int64_t whole = tokens < LEAST_PROMPT ? LEAST_PROMPT : tokens < 1e9 ? (int64_t)tokens : most;
    return whole < most ? whole : most;
}

/* Returns how many tokens of s the run computes, at most `left`, and sets s->row_count. */
static int64_t choose_tokens(wf_sequence *s, int64_t left)
{
    const int64_t want = s->count - s->cached, rows = s->engine->rows - s->engine->batch_rows;
    int64_t n = want < left ? want : left;
    if (!s->logits) {
        s->row_count = n == want && rows > 0;
        return n == want ? want - (rows == 0) : n;
    }
    if (s->cached < s->logits_from) { /* these tokens need no logits */
        s->row_count = 0;
        return n < s->logits_from - s->cached ? n : s->logits_from - s->cached;
    }
    n = n < rows ? n : rows;
    s->row_count = n;
    return n;
}

/* Adds tokens of s, which is at index `at`, to the run, if there is room for some. */
static wf_status add(wf_sequence *s, int64_t at, int64_t left)
{
    wf_engine *e = s->engine;
    bool waits, held = false;
    if (left <= 0) /* a later search finds more */
        return WF_OK;
    WF_TRY(match(s, &waits));
    if (waits)
        return WF_OK;
    const int64_t n = choose_tokens(s, left);
    if (n <= 0)
        return WF_OK;
    do
        WF_TRY(hold_pages(s, n, &held));
    while (!held && preempt_after(s, at, n));
    wf_assert(held || at > 0); /* the first one can preempt all others, and fits alone */
    if (!held)
        return WF_OK;
    s->take = n;
    e->batch_tokens += n;
    e->batch_rows += s->row_count;
    announce(s);
    return WF_OK;
}

/* Sequences that generate: all tokens but the last are cached. */
static bool decodes(const wf_sequence *s)
{
    return s->cached > 0 && s->cached + 1 == s->count && !s->logits;
}

/* Gives the tokens of the run to running sequences: in the first pass to those that decode. The
 * list becomes shorter behind index i when a sequence is preempted. Returns false if one failed. */
static bool choose_all(wf_engine *e, bool decoding, int64_t most)
{
    bool all = true;
    for (int64_t i = 0; i < e->running_count; i++) {
        wf_sequence *s = e->running[i];
        if (decodes(s) != decoding || s->take > 0)
            continue;
        wf_status status = add(s, i, most - e->batch_tokens);
        if (status != WF_OK) { /* of this sequence alone: it found no memory */
            wf_sequence_fail(s, status, NULL);
            wf_sequence_end(s);
            all = false;
            i--;
        }
    }
    return all;
}

/* Writes the inputs of one sequence at index b of the run. */
static void fill(wf_engine *e, wf_sequence *s, int64_t b, int64_t *at, int64_t *row)
{
    for (int64_t i = 0; i < s->take; i++) {
        e->tokens[*at + i] = s->token[s->cached + i];
        e->positions[*at + i] = (int32_t)(s->cached + i);
    }
    s->row = *row;
    for (int64_t i = 0; i < s->row_count; i++) /* the last tokens have logits */
        e->row[(*row)++] = (int32_t)(*at + s->take - s->row_count + i);
    e->batch[b] = s;
    e->lengths[b] = (int32_t)(s->cached + s->take);
    *at += s->take;
    e->seq_start[b + 1] = (int32_t)*at;
    for (int i = 0; i < e->caches.count; i++)
        memcpy(e->table[i] + b * e->size[i].pages, s->pages[i].page,
               (size_t)s->pages[i].end * sizeof(int32_t));
}

void wf_engine_schedule(wf_engine *e)
{
    int64_t at = 0, row = 0;
    e->batch_count = e->batch_tokens = e->batch_rows = e->fresh_count = 0;
    for (int64_t i = 0; i < e->running_count; i++)
        e->running[i]->take = e->running[i]->fresh_count = 0;
    admit(e);
    bool all = choose_all(e, true, wf_engine_most_tokens(e));
    all = choose_all(e, false, e->batch_tokens + prompt_budget(e, e->batch_tokens)) && all;
    /* A sequence can preempt others and then find no memory. Otherwise a run makes progress. */
    wf_assert(e->batch_tokens > 0 || e->running_count == 0 || !all);
    (void)all;
    e->seq_start[0] = 0;
    for (int64_t i = 0; i < e->running_count; i++)
        if (e->running[i]->take > 0)
            fill(e, e->running[i], e->batch_count++, &at, &row);
}

void wf_engine_undo(wf_engine *e)
{
    for (int64_t b = 0; b < e->batch_count; b++)
        retract(e->batch[b]);
}

void wf_engine_done(wf_engine *e)
{
    for (int64_t b = 0; b < e->batch_count; b++) {
        e->batch[b]->cached += e->batch[b]->take;
        confirm(e->batch[b]);
    }
    for (int64_t b = 0; b < e->batch_count; b++)
        advance(e->batch[b]);
}
