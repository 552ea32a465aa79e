/* SPDX-License-Identifier: MIT */
/*
 * test_prefix.c - page pools and the prefix cache: each rule alone, then random sequences against a
 * naive model of pools and trie with linear searches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "infer/prefix.h"
#include "support.h"

#define PAGE WF_PAGE_TOKENS
#define MOST 16 /* pages of a text, except in the test of long texts */

/* Caches by their windows; 0: the whole context. */
typedef struct {
    wf_ctx *ctx;
    wf_caches caches;
    wf_pages pages[WF_MOST_CACHES];
    wf_prefix *prefix;
} bench;

static wf_caches caches_of(const int64_t *window, int count)
{
    wf_caches k = {.count = count};
    for (int i = 0; i < count; i++)
        k.cache[i] =
            (wf_cache){.kind = window[i] ? WF_CACHE_WINDOW : WF_CACHE_WHOLE, .window = window[i]};
    return k;
}

static void bench_close(bench *b)
{
    wf_prefix_free(b->prefix);
    for (int i = 0; i < b->caches.count; i++)
        wf_pages_free(&b->pages[i]);
}

static wf_status bench_try(bench *b, wf_ctx *ctx, const int64_t *window, int count,
                           const int64_t *pool)
{
    *b = (bench){.ctx = ctx, .caches = caches_of(window, count)};
    wf_status status = WF_OK;
    for (int i = 0; status == WF_OK && i < count; i++)
        status = wf_pages_init(&b->pages[i], ctx, pool[i]);
    for (int i = 0; status != WF_OK && i < count; i++) /* a failure leaves nothing */
        assert_true(b->pages[i].count > 0 || (!b->pages[i].free && !b->pages[i].page));
    if (status == WF_OK)
        status = wf_prefix_new(ctx, &b->caches, b->pages, 0, &b->prefix);
    if (status != WF_OK)
        bench_close(b);
    return status;
}

static void bench_open(bench *b, wf_ctx *ctx, const int64_t *window, int count, const int64_t *pool)
{
    wt_ok(ctx, bench_try(b, ctx, window, count, pool));
}

/* Writes the tokens of a text: letter i becomes page i. Pages differ in their last token only. */
static void spell(const char *text, int32_t *tokens)
{
    for (; *text; text++)
        for (int i = 0; i < PAGE; i++)
            *tokens++ = i + 1 < PAGE ? i : *text;
}

/* ---- One sequence ---- */

typedef struct {
    wf_page_list list[WF_MOST_CACHES];
    int32_t place;
    uint64_t salt;
    char text[MOST + 1];
} seq;

static seq seq_of(uint64_t salt, const char *text)
{
    seq s = {.place = -1, .salt = salt};
    strcpy(s.text, text);
    return s;
}

static int32_t insert(bench *b, seq *s, int32_t parent, int at, bool *exists)
{
    int32_t token[MOST * PAGE], page[WF_MOST_CACHES];
    spell(s->text, token);
    for (int i = 0; i < b->caches.count; i++)
        page[i] = s->list[i].page[at];
    return wf_prefix_insert(b->prefix, parent, s->salt, token + at * PAGE, page, exists);
}

static void hold(bench *b, seq *s, int cache, int64_t first, int64_t end)
{
    bool held;
    wt_ok(b->ctx, wf_pages_hold(&b->pages[cache], &s->list[cache], first, end, &held));
    assert_true(held);
}

/* Computes pages [from, end of the text) of a sequence in one run, as new nodes. */
static void compute(bench *b, seq *s, int from)
{
    int end = (int)strlen(s->text);
    int32_t node[MOST];
    for (int i = 0; i < b->caches.count; i++)
        hold(b, s, i, wf_cache_first_page(&b->caches.cache[i], PAGE, from * PAGE), end);
    for (int i = from; i < end; i++) {
        bool exists;
        node[i] = insert(b, s, i > from ? node[i - 1] : s->place, i, &exists);
        assert_true(node[i] >= 0 && !exists);
    }
    for (int i = from; i < end; i++) {
        wf_prefix_ready(b->prefix, node[i]);
        wf_prefix_move(b->prefix, &s->place, node[i]);
    }
}

static void finish(bench *b, seq *s)
{
    wf_prefix_move(b->prefix, &s->place, -1);
    for (int i = 0; i < b->caches.count; i++)
        wf_pages_drop(&b->pages[i], &s->list[i]);
}

static int64_t match(bench *b, uint64_t salt, const char *text, int32_t *nodes, bool *pending)
{
    int32_t token[MOST * PAGE], other[MOST];
    bool waits;
    spell(text, token);
    return wf_prefix_match(b->prefix, salt, token, (int64_t)strlen(text), nodes ? nodes : other,
                           pending ? pending : &waits);
}

/* Continues a text at its match, which has `count` pages. */
static void enter(bench *b, seq *s, int64_t count)
{
    int32_t nodes[MOST];
    assert_int_equal(match(b, s->salt, s->text, nodes, NULL), count);
    wt_ok(b->ctx, wf_prefix_hold(b->prefix, nodes, count, s->list, &s->place));
}

static void expect_pool(const wf_pages *p, int64_t free, int64_t cached, int64_t used)
{
    assert_int_equal(p->free_count, free);
    assert_int_equal(p->cached_count, cached);
    assert_int_equal(wf_pages_used(p), used);
    assert_int_equal(wf_pages_available(p), free + cached);
}

/* Takes all pages of a pool but `rest` and gives them back: evicts the cached pages among them. */
static void press(bench *b, int cache, int64_t rest)
{
    wf_page_list l = {0};
    bool held;
    wf_pages *p = &b->pages[cache];
    wt_ok(b->ctx, wf_pages_hold(p, &l, 0, wf_pages_available(p) - rest, &held));
    assert_true(held);
    wf_pages_drop(p, &l);
}

/* ---- Pools ---- */

typedef struct {
    int count;
    int32_t node[8];
} losses;

static void note_loss(void *user, int32_t node)
{
    losses *l = user;
    l->node[l->count++] = node;
}

static void test_pool(void **state)
{
    wf_pages p;
    losses lost = {0};
    int32_t page[4], more;
    wt_ok(*state, wf_pages_init(&p, *state, 4));
    wf_pages_on_lost(&p, note_loss, &lost);
    for (int i = 0; i < 4; i++) {
        assert_true(wf_pages_take(&p, &page[i]));
        assert_int_equal(page[i], i);
    }
    assert_false(wf_pages_take(&p, &more));
    expect_pool(&p, 0, 0, 4);
    wf_pages_share(&p, 1);
    wf_pages_set_owner(&p, 1, 10);
    wf_pages_set_owner(&p, 2, 20);
    wf_pages_set_owner(&p, 3, 30);
    wf_pages_give(&p, 2);
    wf_pages_give(&p, 3);
    wf_pages_give(&p, 1);
    expect_pool(&p, 0, 2, 2);
    wf_pages_give(&p, 1); /* the second holder */
    wf_pages_give(&p, 0); /* no owner */
    expect_pool(&p, 1, 3, 0);
    wf_pages_share(&p, 2); /* used again: now the newest */
    expect_pool(&p, 1, 2, 1);
    wf_pages_give(&p, 2);
    assert_true(wf_pages_take(&p, &more) && more == 0 && lost.count == 0);
    assert_true(wf_pages_take(&p, &more) && more == 3 && lost.count == 1 && lost.node[0] == 30);
    wf_pages_set_owner(&p, 1, -1); /* cached, becomes free */
    expect_pool(&p, 1, 1, 2);
    assert_true(wf_pages_take(&p, &more) && more == 1 && lost.count == 1);
    wf_pages_evict_all(&p);
    expect_pool(&p, 1, 0, 3);
    assert_true(lost.count == 2 && lost.node[1] == 20);
    wf_pages_free(&p);
}

static void check_list(const wf_page_list *l, int64_t first, int64_t end)
{
    assert_int_equal(l->first, first);
    assert_int_equal(l->end, end);
    for (int64_t i = 0; i < l->room; i++)
        assert_true((i >= first && i < end) || l->page[i] == 0);
}

static void test_list(void **state)
{
    wf_pages p;
    wf_page_list a = {0}, b = {0};
    bool held;
    wt_ok(*state, wf_pages_init(&p, *state, 8));
    wt_ok(*state, wf_pages_hold(&p, &a, 0, 5, &held));
    wt_ok(*state, wf_pages_hold(&p, &b, 2, 5, &held));
    assert_true(held);
    check_list(&b, 2, 5);
    int32_t before[5];
    memcpy(before, a.page, sizeof before);
    wt_ok(*state, wf_pages_hold(&p, &a, 2, 8, &held)); /* gives 2, takes 3 */
    assert_false(held);
    check_list(&a, 0, 5);
    assert_memory_equal(a.page, before, sizeof before);
    wt_ok(*state, wf_pages_hold(&p, &a, 2, 7, &held)); /* gives 2, takes 2 */
    assert_true(held);
    check_list(&a, 2, 7);
    /* A page that another list holds does not become available. */
    wt_ok(*state, wf_pages_append(&p, &b, 5, a.page[2]));
    wt_ok(*state, wf_pages_hold(&p, &a, 3, 8, &held));
    assert_false(held);
    check_list(&a, 2, 7);
    wf_pages_trim(&p, &a, 4, 6);
    check_list(&a, 4, 6);
    expect_pool(&p, 2, 0, 6);
    wf_pages_replace(&p, &a, 5, b.page[5]);
    assert_int_equal(a.page[5], b.page[5]);
    expect_pool(&p, 3, 0, 5);
    wt_ok(*state, wf_pages_hold(&p, &a, 9, 11, &held)); /* empty in between */
    check_list(&a, 9, 11);
    wt_ok(*state, wf_pages_hold(&p, &a, 9, 13, &held));
    expect_pool(&p, 0, 0, 8);
    wt_ok(*state, wf_pages_hold(&p, &a, 3, 6, &held)); /* and backwards */
    assert_true(held);
    check_list(&a, 3, 6);
    wt_ok(*state, wf_pages_hold(&p, &a, 100, 102, &held)); /* grows */
    check_list(&a, 100, 102);
    wf_pages_drop(&p, &a);
    wf_pages_drop(&p, &a);
    wf_pages_drop(&p, &b);
    expect_pool(&p, 8, 0, 0);
    wf_pages_free(&p);
}

/* Without memory a list and its pool are as before; the pool's shortage is no failure. */
static void test_list_memory(void **state)
{
    wf_pages p;
    wf_page_list a = {0}, b = {0};
    bool held;
    wt_ok(*state, wf_pages_init(&p, *state, 40));
    wt_ok(*state, wf_pages_hold(&p, &a, 0, 16, &held));
    wf_ctx_fail_allocation(*state, 1);
    wt_fails(*state, wf_pages_hold(&p, &a, 3, 17, &held), WF_ERR_MEMORY, "out of memory");
    check_list(&a, 0, 16);
    wf_ctx_fail_allocation(*state, 1);
    wt_fails(*state, wf_pages_append(&p, &b, 0, a.page[0]), WF_ERR_MEMORY, "out of memory");
    check_list(&b, 0, 0);
    expect_pool(&p, 24, 0, 16);
    wf_ctx_fail_allocation(*state, 1); /* too few pages: allocates nothing */
    wt_ok(*state, wf_pages_hold(&p, &a, 0, 41, &held));
    assert_false(held);
    wf_ctx_fail_allocation(*state, 0);
    wf_pages_drop(&p, &a);
    expect_pool(&p, 40, 0, 0);
    wf_pages_free(&p);
}

/* ---- The prefix cache ---- */

static void test_match(void **state)
{
    bench b;
    int32_t nodes[MOST];
    bench_open(&b, *state, (int64_t[]){0}, 1, (int64_t[]){8});
    seq s = seq_of(1, "abcd"), t = seq_of(1, "abxy");
    compute(&b, &s, 0);
    assert_int_equal(match(&b, 1, "abcd", nodes, NULL), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(b.prefix->node[nodes[i]].page[0], s.list[0].page[i]);
    assert_int_equal(match(&b, 1, "abcde", NULL, NULL), 4);
    assert_int_equal(match(&b, 1, "abc", NULL, NULL), 3);
    assert_int_equal(match(&b, 1, "abdc", NULL, NULL), 2);
    assert_int_equal(match(&b, 1, "bcd", NULL, NULL), 0);
    assert_int_equal(match(&b, 1, "", NULL, NULL), 0);
    assert_int_equal(match(&b, 2, "abcd", NULL, NULL), 0);
    enter(&b, &t, 2);
    assert_int_equal(b.pages[0].page[t.list[0].page[1]].holders, 2);
    compute(&b, &t, 2);
    assert_int_equal(match(&b, 1, "abxy", NULL, NULL), 4);
    expect_pool(&b.pages[0], 2, 0, 6);
    finish(&b, &s);
    expect_pool(&b.pages[0], 2, 2, 4);
    finish(&b, &t);
    expect_pool(&b.pages[0], 2, 6, 0);
    /* Evicts d, c, y; x, b and a remain. */
    press(&b, 0, 3);
    assert_int_equal(match(&b, 1, "abcd", NULL, NULL), 2);
    assert_int_equal(match(&b, 1, "abxy", NULL, NULL), 3);
    assert_int_equal(b.prefix->count, 3);
    press(&b, 0, 0);
    assert_int_equal(b.prefix->count, 0);
    expect_pool(&b.pages[0], 8, 0, 0);
    bench_close(&b);
}

/* The same letters under another salt are other nodes. */
static void test_salt(void **state)
{
    bench b;
    int32_t one[MOST], two[MOST];
    bench_open(&b, *state, (int64_t[]){0}, 1, (int64_t[]){8});
    seq s = seq_of(7, "ab"), t = seq_of(UINT64_C(7) << 32, "ab");
    compute(&b, &s, 0);
    compute(&b, &t, 0);
    assert_int_equal(match(&b, s.salt, "ab", one, NULL), 2);
    assert_int_equal(match(&b, t.salt, "ab", two, NULL), 2);
    assert_true(one[0] != two[0] && one[1] != two[1]);
    finish(&b, &s);
    finish(&b, &t);
    bench_close(&b);
}

/* A cache of one page has one bucket: all hashes collide. */
static void test_collision(void **state)
{
    bench b;
    bench_open(&b, *state, (int64_t[]){0}, 1, (int64_t[]){1});
    seq s = seq_of(1, "a");
    compute(&b, &s, 0);
    assert_int_equal(b.prefix->buckets, 1);
    assert_int_equal(match(&b, 1, "a", NULL, NULL), 1);
    assert_int_equal(match(&b, 1, "b", NULL, NULL), 0);
    assert_int_equal(match(&b, 2, "a", NULL, NULL), 0);
    assert_int_equal(match(&b, 1, "aa", NULL, NULL), 1);
    finish(&b, &s);
    bench_close(&b);
}

static void test_waiting(void **state)
{
    bench b;
    bool pending, exists;
    int32_t node[3];
    bench_open(&b, *state, (int64_t[]){0}, 1, (int64_t[]){4});
    seq s = seq_of(0, "abc");
    hold(&b, &s, 0, 0, 3);
    for (int i = 0; i < 3; i++)
        node[i] = insert(&b, &s, i ? node[i - 1] : -1, i, &exists);
    assert_int_equal(match(&b, 0, "abc", NULL, &pending), 0);
    assert_true(pending);
    wf_prefix_ready(b.prefix, node[0]);
    assert_int_equal(match(&b, 0, "abc", NULL, &pending), 1);
    assert_true(pending);
    assert_int_equal(match(&b, 0, "a", NULL, &pending), 1);
    assert_false(pending);
    assert_int_equal(match(&b, 0, "ax", NULL, &pending), 1);
    assert_false(pending);
    /* The same key again changes nothing. */
    assert_int_equal(insert(&b, &s, node[0], 1, &exists), node[1]);
    assert_true(exists);
    wf_prefix_abandon(b.prefix, node[1]);
    assert_int_equal(match(&b, 0, "abc", NULL, &pending), 1);
    assert_false(pending);
    assert_int_equal(b.prefix->count, 1);
    finish(&b, &s); /* pages b and c have no owner any more */
    expect_pool(&b.pages[0], 3, 1, 0);
    bench_close(&b);
}

/* The whole context and a window of 20 tokens: the token after P pages reads pages P - 2 and P - 1
 * of the window. */
static void test_window(void **state)
{
    bench b;
    int32_t nodes[MOST];
    bench_open(&b, *state, (int64_t[]){0, 20}, 2, (int64_t[]){9, 6});
    seq s = seq_of(0, "abcdef"), t = seq_of(0, "abcdxyz"), u = seq_of(0, "abcdef");
    compute(&b, &s, 0);
    assert_int_equal(match(&b, 0, "abcdef", nodes, NULL), 6);
    /* Give pages a to c of the window, and evict b, then c: nodes remain. */
    hold(&b, &s, 1, 3, 6);
    press(&b, 1, 1);
    assert_int_equal(b.prefix->node[nodes[0]].page[1] >= 0, 1);
    assert_int_equal(b.prefix->node[nodes[1]].page[1], -1);
    assert_int_equal(b.prefix->node[nodes[2]].page[1], -1);
    assert_int_equal(match(&b, 0, "abcdef", NULL, NULL), 6);
    assert_int_equal(match(&b, 0, "abcde", NULL, NULL), 5);
    assert_int_equal(match(&b, 0, "abcd", NULL, NULL), 1); /* page c is missing */
    assert_int_equal(match(&b, 0, "ab", NULL, NULL), 1);
    /* A match shares only what later tokens read. */
    enter(&b, &u, 6);
    check_list(&u.list[0], 0, 6);
    check_list(&u.list[1], 4, 6);
    finish(&b, &u);
    enter(&b, &t, 1);
    finish(&b, &t);
    finish(&b, &s);
    /* The whole context decides the life of a node; it takes the window's pages along. */
    press(&b, 0, 6);
    expect_pool(&b.pages[1], 2, 4, 0);
    press(&b, 0, 5);
    expect_pool(&b.pages[1], 3, 3, 0);
    press(&b, 0, 0);
    expect_pool(&b.pages[1], 6, 0, 0);
    assert_int_equal(b.prefix->count, 0);
    bench_close(&b);
}

/* A window of one token: nothing reads a page after its end, so its node needs a place or child. */
static void test_windows_only(void **state)
{
    bench b;
    bench_open(&b, *state, (int64_t[]){1}, 1, (int64_t[]){3});
    seq s = seq_of(0, "a");
    compute(&b, &s, 0);
    for (int i = 1; i < 3; i++) {
        strcpy(s.text, "abc");
        s.text[i + 1] = '\0';
        wf_pages_trim(&b.pages[0], &s.list[0], i, i);
        press(&b, 0, 0); /* the place has no page */
        assert_int_equal(match(&b, 0, s.text, NULL, NULL), i);
        compute(&b, &s, i);
        assert_int_equal(b.prefix->count, i + 1);
    }
    finish(&b, &s);
    press(&b, 0, 0);
    assert_int_equal(b.prefix->count, 0);
    bench_close(&b);
}

/* A node of a page behind the window waits without a page, and without children after a failure. */
static void test_no_page(void **state)
{
    bench b;
    bool exists;
    bench_open(&b, *state, (int64_t[]){1}, 1, (int64_t[]){3});
    seq s = seq_of(0, "ab");
    hold(&b, &s, 0, 1, 2);
    s.list[0].page[0] = -1;
    int32_t first = insert(&b, &s, -1, 0, &exists), second = insert(&b, &s, first, 1, &exists);
    s.list[0].page[0] = 0;
    wf_prefix_abandon(b.prefix, second);
    assert_int_equal(b.prefix->count, 1);
    wf_prefix_ready(b.prefix, first);
    wf_prefix_move(b.prefix, &s.place, first);
    assert_int_equal(match(&b, 0, "ab", NULL, NULL), 1); /* the next token reads no page */
    finish(&b, &s);
    assert_int_equal(b.prefix->count, 0);
    bench_close(&b);
}

static void test_join(void **state)
{
    bench b;
    int32_t nodes[MOST];
    bool exists;
    bench_open(&b, *state, (int64_t[]){0, 20}, 2, (int64_t[]){8, 8});
    seq s = seq_of(0, "ab"), t = seq_of(0, "ab");
    compute(&b, &s, 0);
    assert_int_equal(match(&b, 0, "ab", nodes, NULL), 2);
    wf_pages_trim(&b.pages[1], &s.list[1], 1, 2); /* page a of the window is evicted */
    press(&b, 1, 0);
    assert_int_equal(b.prefix->node[nodes[0]].page[1], -1);
    for (int i = 0; i < 2; i++) {
        hold(&b, &t, i, 0, 2);
        assert_int_equal(b.pages[i].cached_count, 0);
    }
    int32_t own = t.list[1].page[0];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(insert(&b, &t, t.place, i, &exists), nodes[i]);
        assert_true(exists);
        wf_prefix_join(b.prefix, nodes[i], t.list, i);
        wf_prefix_move(b.prefix, &t.place, nodes[i]);
        assert_int_equal(t.list[0].page[i], s.list[0].page[i]);
    }
    assert_int_equal(b.prefix->node[nodes[0]].page[1], own);
    assert_int_equal(t.list[1].page[1], s.list[1].page[1]);
    expect_pool(&b.pages[0], 6, 0, 2);
    expect_pool(&b.pages[1], 6, 0, 2);
    finish(&b, &s);
    finish(&b, &t);
    assert_int_equal(match(&b, 0, "a", NULL, NULL), 1);
    bench_close(&b);
}

/* Nodes without pages fill the cache as well. */
static void test_full(void **state)
{
    bench b;
    bool exists;
    bench_open(&b, *state, (int64_t[]){1}, 1, (int64_t[]){2});
    seq s = seq_of(0, "abc");
    s.text[2] = '\0';
    compute(&b, &s, 0);
    s.text[2] = 'c';
    hold(&b, &s, 0, 2, 3);
    assert_int_equal(b.prefix->count, 2);
    assert_int_equal(insert(&b, &s, s.place, 2, &exists), -1);
    assert_false(exists);
    finish(&b, &s);
    expect_pool(&b.pages[0], 2, 0, 0); /* evicted in vain: the place kept the nodes */
    s = seq_of(0, "ab");
    compute(&b, &s, 0);
    finish(&b, &s);
    assert_int_equal(b.prefix->count, 2);
    s = seq_of(1, "x"); /* evicts a cached page, and so its node */
    compute(&b, &s, 0);
    finish(&b, &s);
    assert_int_equal(match(&b, 1, "x", NULL, NULL), 1);
    bench_close(&b);
}

static void test_clear(void **state)
{
    bench b;
    bench_open(&b, *state, (int64_t[]){0, 20}, 2, (int64_t[]){8, 8});
    seq s = seq_of(0, "abc"), t = seq_of(0, "ab");
    compute(&b, &s, 0);
    enter(&b, &t, 2);
    finish(&b, &s);
    wf_prefix_clear(b.prefix);
    assert_int_equal(match(&b, 0, "abc", NULL, NULL), 2);
    expect_pool(&b.pages[0], 6, 0, 2);
    finish(&b, &t);
    wf_prefix_clear(b.prefix);
    assert_int_equal(b.prefix->count, 0);
    expect_pool(&b.pages[0], 8, 0, 0);
    expect_pool(&b.pages[1], 8, 0, 0);
    /* Pages that are used survive the cache. */
    s = seq_of(0, "abc");
    compute(&b, &s, 0);
    wf_prefix_move(b.prefix, &s.place, -1);
    wf_prefix_free(b.prefix);
    b.prefix = NULL;
    expect_pool(&b.pages[0], 5, 0, 3);
    for (int i = 0; i < 2; i++)
        wf_pages_drop(&b.pages[i], &s.list[i]);
    expect_pool(&b.pages[0], 8, 0, 0);
    wf_prefix_free(NULL);
    bench_close(&b);
}

/* A text of 1.6 million tokens: no recursion, and linear time. */
static void test_long(void **state)
{
    enum { PAGES = 100000 };
    bench b;
    bool exists, pending, held;
    bench_open(&b, *state, (int64_t[]){0}, 1, (int64_t[]){PAGES});
    int32_t *token = calloc((size_t)PAGES * PAGE, sizeof *token);
    int32_t *node = calloc(PAGES, sizeof *node), place = -1;
    wf_page_list l = {0};
    for (int part = 0; part < 2; part++) { /* first abandoned, then ready */
        wt_ok(*state, wf_pages_hold(&b.pages[0], &l, 0, PAGES, &held));
        for (int i = 0; i < PAGES; i++)
            node[i] =
                wf_prefix_insert(b.prefix, i ? node[i - 1] : -1, 0, token, &l.page[i], &exists);
        assert_int_equal(b.prefix->count, PAGES);
        if (part == 0)
            wf_prefix_abandon(b.prefix, node[0]);
        for (int i = 0; part == 1 && i < PAGES; i++)
            wf_prefix_ready(b.prefix, node[i]);
        wf_pages_drop(&b.pages[0], &l);
        assert_int_equal(b.prefix->count, part ? PAGES : 0);
    }
    assert_int_equal(wf_prefix_match(b.prefix, 0, token, PAGES, node, &pending), PAGES);
    wt_ok(*state, wf_prefix_hold(b.prefix, node, PAGES, &l, &place));
    wf_prefix_move(b.prefix, &place, -1);
    wf_pages_drop(&b.pages[0], &l);
    wf_prefix_clear(b.prefix);
    expect_pool(&b.pages[0], PAGES, 0, 0);
    free(token);
    free(node);
    bench_close(&b);
}

/* ---- Failing allocations ---- */

/* Holds pages of a text, then of a match, in lists that must grow. */
static wf_status stage(wf_ctx *ctx)
{
    bench b;
    bool held;
    wf_page_list wide = {0};
    seq s = seq_of(0, "abcdefg"), t = s;
    int32_t nodes[MOST];
    WF_TRY(bench_try(&b, ctx, (int64_t[]){0, 20}, 2, (int64_t[]){30, 30}));
    wf_status status = wf_pages_hold(&b.pages[0], &s.list[0], 0, 7, &held);
    if (status == WF_OK)
        status = wf_pages_hold(&b.pages[1], &s.list[1], 0, 7, &held);
    if (status == WF_OK)
        compute(&b, &s, 0);
    if (status == WF_OK) {
        int64_t count = match(&b, 0, "abcdefg", nodes, NULL);
        status = wf_prefix_hold(b.prefix, nodes, count, t.list, &t.place);
        assert_true(status == WF_OK || (!t.list[0].page && !t.list[1].page && t.place == -1));
    }
    if (status == WF_OK)
        status = wf_pages_hold(&b.pages[0], &wide, 0, 20, &held);
    wf_pages_drop(&b.pages[0], &wide);
    finish(&b, &t);
    finish(&b, &s);
    for (int i = 0; i < 2; i++)
        assert_int_equal(wf_pages_available(&b.pages[i]), 30);
    bench_close(&b);
    return status;
}

static void test_memory(void **state)
{
    int count = 0;
    for (bool reached = true; reached; count++) {
        wf_ctx *ctx = *state;
        uint64_t blocks = wt_live_blocks(ctx);
        wf_ctx_fail_allocation(ctx, (uint64_t)count + 1);
        wf_status status = stage(ctx);
        reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        assert_int_equal(status, reached ? WF_ERR_MEMORY : WF_OK);
        assert_int_equal(wt_live_blocks(ctx), blocks);
    }
    assert_int_equal(count - 1, 4 + 3 + 2 + 2 + 1); /* pools, cache, lists, shared lists, wide */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_pool),      wt_test(test_list),         wt_test(test_list_memory),
        wt_test(test_match),     wt_test(test_salt),         wt_test(test_waiting),
        wt_test(test_collision), wt_test(test_window),       wt_test(test_join),
        wt_test(test_no_page),   wt_test(test_windows_only), wt_test(test_full),
        wt_test(test_clear),     wt_test(test_long),         wt_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
