/* SPDX-License-Identifier: MIT */
/*
 * test_prefix_random.c - sequences that compute random texts through the prefix cache, against a
 * naive model: arrays, linear searches, and a stamp for the time when a page was given.
 *
 * The model knows the text in each page. It predicts every match, insertion and eviction, and is
 * compared with the pools and the trie after each operation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "infer/prefix.h"
#include "support.h"

#define PAGE WF_PAGE_TOKENS
#define SEQUENCES 4
#define MOST 10 /* pages of a text */
#define MOST_POOL 32
#define MOST_NODES (MOST_POOL * WF_MOST_CACHES)
#define STEPS 3000

typedef struct {
    int holders;
    int32_t owner;
    uint64_t stamp;      /* when it was given */
    char text[MOST + 2]; /* whose keys it contains: the salt, then a letter per page; "": none */
} model_page;

/* The node with this index. */
typedef struct {
    bool live, ready;
    int32_t parent, page[WF_MOST_CACHES];
    char text[MOST + 2]; /* salt and letters, this page's included */
    int places;
} model_node;

typedef enum { IDLE, READY, RUNS } phase;

typedef struct {
    phase phase;
    char text[MOST + 2]; /* salt and letters */
    int64_t done, end;   /* pages computed; end of the pages of the run */
    int32_t waits[MOST]; /* nodes of the run's first pages */
    int64_t waiting;     /* how many */
    int64_t chained;     /* pages before the place */
    int32_t place;
    wf_page_list list[WF_MOST_CACHES];
    int32_t held[WF_MOST_CACHES][MOST]; /* the model's copy of the lists */
    int64_t first[WF_MOST_CACHES], last[WF_MOST_CACHES];
} sequence;

typedef struct {
    wf_ctx *ctx;
    wf_rng rng;
    wf_caches caches;
    wf_pages pages[WF_MOST_CACHES];
    wf_prefix *prefix;
    sequence seq[SEQUENCES];
    model_page page[WF_MOST_CACHES][MOST_POOL];
    model_node node[MOST_NODES];
    uint64_t now;
} bench;

/* What happened in all runs. */
static struct {
    int hits, pending, evictions, joins, refills, full, abandoned, refused, failed, rewinds,
        cleared;
} seen;

static int below(bench *b, int n)
{
    return (int)wf_rng_below(&b->rng, (uint64_t)n);
}

static int64_t first_read(const bench *b, int cache, int64_t pages)
{
    int64_t window = b->caches.cache[cache].window, first = pages * PAGE - window + 1;
    return window == 0 || first <= 0 ? 0 : first / PAGE;
}

/* ---- The model of the trie ---- */

static int32_t model_find(const bench *b, const char *text, int64_t pages)
{
    for (int32_t i = 0; i < MOST_NODES; i++)
        if (b->node[i].live && (int64_t)strlen(b->node[i].text) == pages + 1 &&
            memcmp(b->node[i].text, text, (size_t)pages + 1) == 0)
            return i;
    return -1;
}

static bool has_child(const bench *b, int32_t node)
{
    for (int i = 0; i < MOST_NODES; i++)
        if (b->node[i].live && b->node[i].parent == node)
            return true;
    return false;
}

static void model_remove(bench *b, int32_t node)
{
    model_node *n = &b->node[node];
    assert_int_equal(n->places, 0);
    for (int c = 0; c < b->caches.count; c++)
        if (n->page[c] >= 0)
            b->page[c][n->page[c]].owner = -1;
    n->live = false;
}

static void model_prune(bench *b, int32_t node)
{
    while (node >= 0 && b->node[node].ready && !has_child(b, node) && b->node[node].places == 0) {
        for (int c = 0; c < b->caches.count; c++)
            if (b->node[node].page[c] >= 0)
                return;
        model_remove(b, node);
        node = b->node[node].parent;
    }
}

static void model_lost(bench *b, int cache, int32_t node)
{
    b->node[node].page[cache] = -1;
    seen.evictions++;
    if (b->caches.cache[cache].window > 0)
        model_prune(b, node);
    else {
        assert_false(has_child(b, node));
        model_remove(b, node);
    }
}

static void model_abandon(bench *b, int32_t node)
{
    char text[MOST + 2];
    strcpy(text, b->node[node].text);
    for (int32_t i = 0; i < MOST_NODES; i++)
        if (b->node[i].live && strncmp(b->node[i].text, text, strlen(text)) == 0) {
            assert_false(b->node[i].ready);
            model_remove(b, i);
        }
    model_prune(b, b->node[node].parent);
}

/* Moves a place, in the trie and in the model. */
static void move(bench *b, sequence *s, int32_t node)
{
    int32_t from = s->place;
    wf_prefix_move(b->prefix, &s->place, node);
    assert_int_equal(s->place, node);
    if (node >= 0)
        b->node[node].places++;
    if (from >= 0) {
        b->node[from].places--;
        model_prune(b, from);
    }
}

/* ---- The model of the pools ---- */

static bool is_free(const model_page *p)
{
    return p->holders == 0 && p->owner < 0;
}

static int64_t model_available(const bench *b, int cache)
{
    int64_t n = 0;
    for (int64_t i = 0; i < b->pages[cache].count; i++)
        n += b->page[cache][i].holders == 0;
    return n;
}

/* The oldest cached page of a pool is lost. Returns false if no page is cached. */
static bool model_evict(bench *b, int cache)
{
    model_page *oldest = NULL;
    for (int64_t i = 0; i < b->pages[cache].count; i++) {
        model_page *p = &b->page[cache][i];
        if (p->holders == 0 && p->owner >= 0 && (!oldest || p->stamp < oldest->stamp))
            oldest = p;
    }
    if (!oldest)
        return false;
    int32_t owner = oldest->owner;
    oldest->owner = -1;
    model_lost(b, cache, owner);
    return true;
}

/* The pool took this page: it must have been free, or without free pages the cached one that was
 * given first. */
static void model_take(bench *b, int cache, int32_t page)
{
    model_page *all = b->page[cache], *p = &all[page];
    assert_int_equal(p->holders, 0);
    for (int64_t i = 0; !is_free(p) && i < b->pages[cache].count; i++) {
        assert_false(is_free(&all[i]));
        assert_true(all[i].holders > 0 || all[i].stamp >= p->stamp);
    }
    int32_t owner = p->owner;
    *p = (model_page){.holders = 1, .owner = -1};
    if (owner >= 0)
        model_lost(b, cache, owner);
}

static void model_give(bench *b, int cache, int32_t page)
{
    b->page[cache][page].holders--;
    b->page[cache][page].stamp = ++b->now;
}

static void model_trim(bench *b, sequence *s, int c, int64_t first, int64_t end)
{
    for (; s->last[c] > end && s->last[c] > s->first[c]; s->last[c]--)
        model_give(b, c, s->held[c][s->last[c] - 1]);
    int64_t to = first < s->last[c] ? first : s->last[c];
    for (int64_t i = to; i > s->first[c]; i--)
        model_give(b, c, s->held[c][i - 1]);
    s->first[c] = s->first[c] > to ? s->first[c] : to;
    if (s->first[c] == s->last[c])
        s->first[c] = s->last[c] = first;
}

/* Whether the pool has enough pages after the list gave those outside [first, end). */
static bool model_enough(const bench *b, const sequence *s, int c, int64_t first, int64_t end)
{
    int64_t kept = 0, given = 0;
    for (int64_t i = s->first[c]; i < s->last[c]; i++)
        if (i >= first && i < end)
            kept++;
        else if (b->page[c][s->held[c][i]].holders == 1)
            given++;
    return end - first - kept <= model_available(b, c) + given;
}

/* ---- The state after each operation ---- */

static void check_pool(const bench *b, int c)
{
    const wf_pages *p = &b->pages[c];
    int holders[MOST_POOL] = {0}, free[MOST_POOL] = {0};
    int64_t cached = 0, used = 0;
    for (int i = 0; i < SEQUENCES; i++)
        for (int64_t k = b->seq[i].first[c]; k < b->seq[i].last[c]; k++)
            holders[b->seq[i].held[c][k]]++;
    for (int64_t i = 0; i < p->free_count; i++)
        free[p->free[i]]++;
    for (int64_t i = 0; i < p->count; i++) {
        const model_page *m = &b->page[c][i];
        assert_int_equal(m->holders, holders[i]);
        assert_int_equal(p->page[i].holders, holders[i]);
        assert_int_equal(p->page[i].owner, m->owner);
        assert_int_equal(free[i], is_free(m));
        used += m->holders > 0;
    }
    uint64_t stamp = 0;
    for (int32_t i = p->oldest; i >= 0; i = p->page[i].newer, cached++) {
        assert_true(b->page[c][i].holders == 0 && b->page[c][i].stamp > stamp);
        stamp = b->page[c][i].stamp;
    }
    assert_int_equal(p->cached_count, cached);
    assert_int_equal(wf_pages_used(p), used);
    assert_int_equal(p->free_count + cached + used, p->count);
}

static void check_list(const bench *b, const sequence *s, int c)
{
    const wf_page_list *l = &s->list[c];
    assert_int_equal(l->end - l->first, s->last[c] - s->first[c]);
    for (int64_t i = s->first[c]; i < s->last[c]; i++) {
        assert_true(i >= l->first && i < l->end);
        assert_int_equal(l->page[i], s->held[c][i]);
        if (i < s->done)
            assert_int_equal(strncmp(b->page[c][l->page[i]].text, s->text, (size_t)i + 2), 0);
    }
}

static void check_nodes(const bench *b)
{
    int64_t live = 0;
    for (int32_t i = 0; i < b->prefix->capacity; i++) {
        const model_node *m = &b->node[i];
        const wf_prefix_node *n = &b->prefix->node[i];
        assert_int_equal(m->live, n->state != WF_NODE_FREE);
        if (!m->live)
            continue;
        live++;
        assert_int_equal(m->ready, n->state == WF_NODE_READY);
        assert_int_equal(m->parent, n->parent);
        assert_int_equal(m->places, n->places);
        assert_int_equal(m->text[0], n->salt);
        assert_int_equal(m->text[strlen(m->text) - 1], n->token[PAGE - 1]);
        assert_int_equal(has_child(b, i), n->child >= 0);
        for (int c = 0; c < b->caches.count; c++) {
            assert_int_equal(m->page[c], n->page[c]);
            assert_true(m->page[c] < 0 || b->page[c][m->page[c]].owner == i);
        }
    }
    assert_int_equal(b->prefix->count, live);
}

static void check(const bench *b)
{
    for (int c = 0; c < b->caches.count; c++) {
        check_pool(b, c);
        for (int i = 0; i < SEQUENCES; i++)
            check_list(b, &b->seq[i], c);
    }
    check_nodes(b);
}

/* ---- Operations ---- */

static int64_t pages_of(const sequence *s)
{
    return (int64_t)strlen(s->text) - 1;
}

/* Writes the tokens of page `at`. Pages differ in their last token only. */
static void spell(const sequence *s, int64_t at, int32_t *tokens)
{
    for (int i = 0; i < PAGE; i++)
        tokens[i] = i + 1 < PAGE ? i : s->text[at + 1];
}

/* Two salts and few letters, so that texts often share a prefix. */
static void choose_text(bench *b, sequence *s)
{
    int count = 1 + below(b, MOST);
    s->text[0] = (char)(1 + (below(b, 8) == 0));
    for (int i = 1; i <= count; i++)
        s->text[i] = below(b, 6) ? 'a' : 'b';
    s->text[count + 1] = '\0';
}

static bool is_readable(const bench *b, const int32_t *nodes, int64_t count)
{
    for (int c = 0; c < b->caches.count; c++)
        for (int64_t i = first_read(b, c, count); i < count; i++)
            if (b->node[nodes[i]].page[c] < 0)
                return false;
    return true;
}

static int64_t model_match(const bench *b, const sequence *s, int32_t *nodes, bool *pending)
{
    int64_t walked = 0;
    *pending = false;
    for (; walked < pages_of(s); walked++) {
        nodes[walked] = model_find(b, s->text, walked + 1);
        *pending = nodes[walked] >= 0 && !b->node[nodes[walked]].ready;
        if (nodes[walked] < 0 || *pending)
            break;
    }
    while (!is_readable(b, nodes, walked))
        walked--;
    return walked;
}

/* The text in each page of a match is the text that was asked for. */
static void check_match(const bench *b, const sequence *s, const int32_t *nodes, int64_t count)
{
    for (int c = 0; c < b->caches.count; c++)
        for (int64_t i = first_read(b, c, count); i < count; i++) {
            const char *text = b->page[c][b->prefix->node[nodes[i]].page[c]].text;
            assert_int_equal(strlen(text), i + 2);
            assert_memory_equal(text, s->text, (size_t)i + 2);
        }
}

static int64_t match(bench *b, const sequence *s, int32_t *nodes)
{
    int32_t tokens[MOST * PAGE], wanted[MOST];
    bool pending, wanted_pending;
    for (int64_t i = 0; i < pages_of(s); i++)
        spell(s, i, tokens + i * PAGE);
    int64_t count =
        wf_prefix_match(b->prefix, (uint64_t)s->text[0], tokens, pages_of(s), nodes, &pending);
    assert_int_equal(count, model_match(b, s, wanted, &wanted_pending));
    assert_int_equal(pending, wanted_pending);
    assert_memory_equal(nodes, wanted, (size_t)count * sizeof *nodes);
    check_match(b, s, nodes, count);
    seen.hits += count > 0;
    seen.pending += pending;
    return count;
}

static void model_drop(bench *b, sequence *s)
{
    for (int c = 0; c < b->caches.count; c++) {
        model_trim(b, s, c, s->last[c], s->last[c]);
        s->first[c] = s->last[c] = 0;
    }
}

/* Shares the pages of a match. Each list allocates once; the nth allocation fails. Returns whether
 * that happened. */
static bool model_share(bench *b, sequence *s, const int32_t *nodes, int64_t count, int nth)
{
    for (int c = 0; c < b->caches.count; c++) {
        int64_t first = first_read(b, c, count);
        if (first < count && --nth == 0)
            return true;
        for (int64_t i = first; i < count; i++) {
            s->held[c][i] = b->node[nodes[i]].page[c];
            b->page[c][s->held[c][i]].holders++;
        }
        s->first[c] = first < count ? first : 0;
        s->last[c] = first < count ? count : 0;
    }
    return false;
}

static void start(bench *b, sequence *s)
{
    int32_t nodes[MOST];
    int nth = below(b, 8);
    choose_text(b, s);
    int64_t count = match(b, s, nodes);
    bool fails = model_share(b, s, nodes, count, nth);
    wf_ctx_fail_allocation(b->ctx, (uint64_t)nth);
    wf_status status = wf_prefix_hold(b->prefix, nodes, count, s->list, &s->place);
    wf_ctx_fail_allocation(b->ctx, 0);
    assert_int_equal(status, fails ? WF_ERR_MEMORY : WF_OK);
    seen.failed += fails;
    if (fails) {
        model_drop(b, s);
        return;
    }
    if (count > 0)
        b->node[nodes[count - 1]].places++;
    s->done = count;
    s->chained = count;
    s->phase = READY;
}

/* Gives all pages. Nodes may be abandoned before or after the sequence leaves its place. */
static void finish(bench *b, sequence *s)
{
    if (below(b, 2))
        move(b, s, -1);
    if (s->waiting > 0) {
        wf_prefix_abandon(b->prefix, s->waits[0]);
        model_abandon(b, s->waits[0]);
        seen.abandoned++;
    }
    s->waiting = 0;
    move(b, s, -1);
    for (int c = 0; c < b->caches.count; c++)
        wf_pages_drop(&b->pages[c], &s->list[c]);
    model_drop(b, s);
    s->done = s->chained = 0;
    s->phase = IDLE;
}

/* Takes the pages of the next run. Returns false if a pool has too few or memory is short. */
static bool reserve(bench *b, sequence *s, int64_t end)
{
    for (int c = 0; c < b->caches.count; c++) {
        bool held = false, wanted = model_enough(b, s, c, first_read(b, c, s->done), end);
        wf_ctx_fail_allocation(b->ctx, below(b, 8) == 0);
        wf_status status =
            wf_pages_hold(&b->pages[c], &s->list[c], first_read(b, c, s->done), end, &held);
        wf_ctx_fail_allocation(b->ctx, 0);
        assert_int_equal(held, wanted);
        seen.refused += !held;
        seen.failed += status != WF_OK;
        if (!held || status != WF_OK)
            return false;
        model_trim(b, s, c, first_read(b, c, s->done), end);
        for (; s->last[c] < end; s->last[c]++) {
            s->held[c][s->last[c]] = s->list[c].page[s->last[c]];
            model_take(b, c, s->held[c][s->last[c]]);
        }
    }
    return true;
}

static int64_t live_nodes(const bench *b)
{
    int64_t n = 0;
    for (int i = 0; i < MOST_NODES; i++)
        n += b->node[i].live;
    return n;
}

/* Makes a node free by evictions, if all are in use. */
static void model_free_node(bench *b)
{
    bool evicted = true;
    while (live_nodes(b) == b->prefix->capacity && evicted) {
        evicted = false;
        for (int c = 0; c < b->caches.count && live_nodes(b) == b->prefix->capacity; c++)
            evicted = model_evict(b, c) || evicted;
        seen.cleared += evicted;
    }
}

/* Inserts page `at` below a node; the model must agree. */
static int32_t insert(bench *b, sequence *s, int32_t parent, int64_t at, bool *exists)
{
    int32_t token[PAGE], page[WF_MOST_CACHES], wanted = model_find(b, s->text, at + 1);
    assert_int_equal(b->prefix->count, live_nodes(b));
    if (wanted < 0)
        model_free_node(b);
    spell(s, at, token);
    for (int c = 0; c < b->caches.count; c++)
        page[c] = at >= s->first[c] ? s->held[c][at] : -1;
    int32_t node = wf_prefix_insert(b->prefix, parent, (uint64_t)s->text[0], token, page, exists);
    assert_int_equal(*exists, wanted >= 0);
    if (*exists)
        assert_int_equal(node, wanted);
    assert_int_equal(node < 0, !*exists && live_nodes(b) == b->prefix->capacity);
    seen.full += node < 0;
    if (*exists || node < 0)
        return node;
    assert_false(b->node[node].live);
    model_node *n = &b->node[node];
    *n = (model_node){.live = true, .parent = parent};
    memcpy(n->text, s->text, (size_t)at + 2);
    for (int c = 0; c < b->caches.count; c++) {
        n->page[c] = page[c];
        if (page[c] >= 0)
            b->page[c][page[c]].owner = node;
    }
    return node;
}

/* Begins a run of some pages, and inserts nodes for them before they are computed. */
static void run(bench *b, sequence *s)
{
    int64_t left = pages_of(s) - s->done;
    if (left == 0) {
        finish(b, s);
        return;
    }
    s->end = s->done + 1 + below(b, (int)left);
    if (!reserve(b, s, s->end)) {
        finish(b, s);
        return;
    }
    s->phase = RUNS;
    bool exists = below(b, 4) == 0; /* sometimes inserts only after the run */
    for (int64_t i = s->chained; !exists && i < s->end; i++) {
        int32_t parent = s->waiting ? s->waits[s->waiting - 1] : s->place;
        int32_t node = insert(b, s, parent, i, &exists);
        exists = exists || node < 0;
        if (!exists)
            s->waits[s->waiting++] = node;
    }
}

static void join(bench *b, sequence *s, int32_t node, int64_t at)
{
    model_node *n = &b->node[node];
    wf_prefix_join(b->prefix, node, s->list, at);
    seen.joins++;
    for (int c = 0; c < b->caches.count; c++) {
        if (at < s->first[c])
            continue;
        if (n->page[c] < 0) {
            n->page[c] = s->held[c][at];
            b->page[c][n->page[c]].owner = node;
            seen.refills++;
        } else {
            model_give(b, c, s->held[c][at]);
            s->held[c][at] = n->page[c];
            b->page[c][n->page[c]].holders++;
        }
    }
}

static void make_ready(bench *b, sequence *s, int32_t node)
{
    wf_prefix_ready(b->prefix, node);
    b->node[node].ready = true;
    move(b, s, node);
    s->chained++;
}

/* Inserts or joins the nodes of computed pages that have none. A full cache, or another sequence
 * that computes the same page, ends the chain; it may continue after a later run, behind the
 * window. */
static void advance(bench *b, sequence *s)
{
    while (s->chained < s->done) {
        bool exists;
        int32_t node = insert(b, s, s->place, s->chained, &exists);
        if (node < 0 || (exists && !b->node[node].ready))
            return;
        if (!exists)
            make_ready(b, s, node);
        else {
            join(b, s, node, s->chained++);
            move(b, s, node);
        }
    }
}

/* Ends a run after all its pages or, as a failure, after some. */
static void end_run(bench *b, sequence *s)
{
    int64_t end = below(b, 6) ? s->end : s->done + below(b, (int)(s->end - s->done));
    for (; s->done < end; s->done++)
        for (int c = 0; c < b->caches.count; c++)
            if (s->done >= s->first[c])
                memcpy(b->page[c][s->held[c][s->done]].text, s->text, (size_t)s->done + 2);
    int64_t ready = 0;
    while (ready < s->waiting && s->chained < s->done)
        make_ready(b, s, s->waits[ready++]);
    s->waiting -= ready;
    memmove(s->waits, s->waits + ready, (size_t)s->waiting * sizeof *s->waits);
    if (end == s->end)
        advance(b, s);
    else
        finish(b, s);
    s->phase = end == s->end ? READY : IDLE;
}

/* Keeps the first pages, if the windows still have what they need. */
static void rewind_to(bench *b, sequence *s, int64_t count)
{
    bool keeps = count > 0;
    for (int c = 0; c < b->caches.count; c++)
        keeps = keeps && first_read(b, c, count) >= s->first[c];
    if (!keeps) {
        finish(b, s);
        return;
    }
    int32_t node = s->place;
    for (; s->chained > count; s->chained--)
        node = b->prefix->node[node].parent;
    s->done = count;
    move(b, s, node);
    for (int c = 0; c < b->caches.count; c++) {
        wf_pages_trim(&b->pages[c], &s->list[c], s->list[c].first, count);
        model_trim(b, s, c, s->first[c], count);
    }
    seen.rewinds++;
}

/* All cached pages are lost, the oldest first. */
static void clear(bench *b)
{
    wf_prefix_clear(b->prefix);
    for (int c = 0; c < b->caches.count; c++)
        while (model_evict(b, c))
            continue;
}

static void step(bench *b)
{
    sequence *s = &b->seq[below(b, SEQUENCES)];
    int choice = below(b, 100);
    if (choice == 0)
        clear(b);
    else if (s->phase == IDLE)
        start(b, s);
    else if (s->phase == RUNS)
        end_run(b, s);
    else if (choice < 10)
        rewind_to(b, s, below(b, (int)s->done + 1));
    else if (choice < 20)
        finish(b, s);
    else
        run(b, s);
}

static void open_bench(bench *b, wf_ctx *ctx, const int64_t *window, int count, uint64_t stream)
{
    memset(b, 0, sizeof *b);
    b->ctx = ctx;
    wf_rng_init(&b->rng, wt_seed(), stream);
    b->caches.count = count;
    int64_t nodes = 0;
    for (int c = 0; c < count; c++) {
        b->caches.cache[c] =
            (wf_cache){.kind = window[c] ? WF_CACHE_WINDOW : WF_CACHE_WHOLE, .window = window[c]};
        wt_ok(ctx, wf_pages_init(&b->pages[c], ctx, 4 + below(b, MOST_POOL - 3)));
        nodes += b->pages[c].count;
        for (int i = 0; i < MOST_POOL; i++)
            b->page[c][i].owner = -1;
    }
    wt_ok(ctx, wf_prefix_new(ctx, &b->caches, b->pages, 0, &b->prefix));
    assert_int_equal(b->prefix->capacity, nodes);
    for (int i = 0; i < SEQUENCES; i++)
        b->seq[i].place = -1;
}

/* Everything is given back; then all pages are available, and after clear free. */
static void close_bench(bench *b)
{
    for (int i = 0; i < SEQUENCES; i++)
        finish(b, &b->seq[i]);
    check(b);
    for (int c = 0; c < b->caches.count; c++)
        assert_int_equal(wf_pages_available(&b->pages[c]), b->pages[c].count);
    clear(b);
    check(b);
    assert_int_equal(b->prefix->count, 0);
    for (int c = 0; c < b->caches.count; c++)
        assert_int_equal(b->pages[c].free_count, b->pages[c].count);
    wf_prefix_free(b->prefix);
    for (int c = 0; c < b->caches.count; c++)
        wf_pages_free(&b->pages[c]);
}

static void check_caches(wf_ctx *ctx, const int64_t *window, int count, uint64_t stream)
{
    static bench b;
    for (uint64_t i = 0; i < 4; i++) {
        open_bench(&b, ctx, window, count, 4 * stream + i);
        for (int k = 0; k < STEPS; k++) {
            step(&b);
            check(&b);
        }
        close_bench(&b);
    }
}

static void test_random(void **state)
{
    check_caches(*state, (int64_t[]){0}, 1, 0);
    check_caches(*state, (int64_t[]){0, 20}, 2, 1);
    check_caches(*state, (int64_t[]){0, 1, 70}, 3, 2);
    check_caches(*state, (int64_t[]){33}, 1, 3);
    check_caches(*state, (int64_t[]){1}, 1, 4);
    check_caches(*state, (int64_t[]){17, 40}, 2, 5);
    /* The random steps reach every case. */
    assert_true(seen.hits > 100 && seen.pending > 100 && seen.evictions > 100 && seen.joins > 100);
    assert_true(seen.refills > 10 && seen.full + seen.cleared > 10 && seen.cleared > 0 &&
                seen.abandoned > 100);
    assert_true(seen.refused > 100 && seen.failed > 100 && seen.rewinds > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
