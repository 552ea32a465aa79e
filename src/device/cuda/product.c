/* SPDX-License-Identifier: MIT */
/*
 * product.c - GEMM by cuBLASLt.
 *
 * Each distinct GEMM has an entry: descriptors and layouts, created once, and the chosen way to run
 * it. A launch finds the entry, sets addresses and calls the library. Launches happen during CUDA
 * graph capture, so replayed steps pay nothing for it.
 *
 * Row-major y = a b is column-major y^T = b^T a^T: the operands swap places, and nothing is
 * transposed. Fields of a key use cuBLASLt's names: its m is our n, its A is our b.
 *
 * The order of summation is that of the chosen algorithm. Split-k is allowed only with schemes that
 * add partial sums in a fixed order, so a choice is bitwise reproducible; wf_cuda_products_choices
 * hashes the choices.
 */
#include "device/cuda/product.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "device/cuda/product_key.h"

/* Multiplications of a small GEMM: it may be settled in f32 and is not timed. Tests change it. */
double wf_product_small = 25e6;

/* ---- Scratch: cuBLASLt's workspace, a converted bias, partial sums, a small result in f32 ---- */

/* Bytes for large and for small GEMMs. */
static const size_t workspace_large = (size_t)32 << 20, workspace_small = (size_t)4 << 20;
static const double large = 0.5e9; /* multiplications */
/* Elements of the largest result that is settled. */
static const int64_t settled_most = (int64_t)4 << 20;

bool wf_cuda_products_library(const wf_device *device)
{
    const wf_cuda_products *all = ((const wf_cuda_device *)device)->products;
    return all && all->lt;
}

static double multiplications(const wf_cuda_product *p)
{
    return (double)p->batch * (double)p->m * (double)p->n * (double)p->k;
}

/* Depends on the sizes only: the planner and the launch must agree. */
static size_t library_bytes(const wf_cuda_product *p)
{
    if (!wf_lt_get())
        return 0;
    return multiplications(p) >= large ? workspace_large : workspace_small;
}

/* A multiple of 256 keeps what follows aligned. */
static size_t bias_bytes(const wf_cuda_product *p)
{
    return ((size_t)p->n * sizeof(float) + 255) / 256 * 256;
}

/* Small narrow GEMMs with a bias or epilogue are computed in f32 and rounded once by
 * wf_cuda_settle: cuBLASLt's kernels for them round before they add the bias, which exceeds the
 * op's error bound. */
static bool may_settle(const wf_cuda_product *p)
{
    return p->batch == 1 && p->y.type != WF_F32 && multiplications(p) < wf_product_small &&
           p->m * p->n <= settled_most;
}

/* Upper bound of the elements that wf_cuda_settle needs, for p itself or for any split of p into
 * GEMMs of fewer rows. */
static int64_t settled_elements(const wf_cuda_product *p)
{
    const double small = wf_product_small / (double)(p->k > 0 ? p->k : 1);
    int64_t most = p->m * p->n < settled_most ? p->m * p->n : settled_most;
    if (p->batch != 1 || p->y.type == WF_F32)
        return 0;
    return small < (double)most ? (int64_t)small : most;
}

size_t wf_cuda_product_scratch(const wf_cuda_product *p, bool bias, int64_t sums)
{
    return library_bytes(p) + (bias ? bias_bytes(p) : 0) + wf_cuda_sums_bytes(sums) +
           (size_t)settled_elements(p) * sizeof(float);
}

/* Scratch is laid out as: cuBLASLt's workspace, the converted bias, f32 values. */
static void *bias_scratch(const wf_cuda_work *w, const wf_cuda_product *p)
{
    return (char *)w->scratch + library_bytes(p);
}

/* Scratch for partial sums, or for the whole f32 result. */
static float *float_scratch(const wf_cuda_work *w, const wf_cuda_product *p)
{
    return (float *)(void *)((char *)bias_scratch(w, p) + (p->bias ? bias_bytes(p) : 0));
}

/* ---- Keys ---- */

static int64_t alignment(const void *p)
{
    uintptr_t bits = (uintptr_t)p;
    /* The lowest set bit; capped, as no kernel asks for more. */
    return bits % 256 == 0 ? 256 : (int64_t)(bits & (~bits + 1));
}

static int epilogue_of(const wf_cuda_product *p)
{
    bool bias = p->bias != NULL;
    if (p->ending == WF_CUDA_ACT)
        return bias ? WF_LT_EPILOGUE_GELU_AUX_BIAS : WF_LT_EPILOGUE_GELU_AUX;
    if (p->ending == WF_CUDA_ACT_GRAD)
        return WF_LT_EPILOGUE_DGELU;
    return bias ? WF_LT_EPILOGUE_BIAS : WF_LT_EPILOGUE_DEFAULT;
}

/* Whether an activation or its gradient follows. */
static bool has_ending(const wf_cuda_product *p)
{
    return p->ending != WF_CUDA_PLAIN;
}

/* The leading dimension in elements. A single row's stride is arbitrary, so use its length. */
static int64_t leading(const wf_cuda_matrix *x, int64_t rows, int64_t columns)
{
    return rows > 1 ? x->row : columns;
}

static wf_product_key key_of(const wf_cuda_products *all, const wf_cuda_product *p)
{
    wf_product_key key = {0}; /* zeroed padding: keys are compared and hashed as bytes */
    const bool aux = has_ending(p);
    int64_t *f = key.f;
    /* Operands swap places: see the top of the file. */
    f[KEY_M] = p->n;
    f[KEY_N] = p->m;
    f[KEY_K] = p->k;
    f[KEY_BATCH] = p->batch;
    f[KEY_TRANS_A] = p->transpose_b;
    f[KEY_TRANS_B] = p->transpose_a;
    f[KEY_TYPE] = p->a.type;
    f[KEY_TYPE_D] = p->y.type;
    f[KEY_BIAS] = p->bias != NULL;
    f[KEY_COMPUTE] =
        p->a.type == WF_F32 && all->device->tf32 ? WF_LT_COMPUTE_32F_FAST_TF32 : WF_LT_COMPUTE_32F;
    f[KEY_EPILOGUE] = epilogue_of(p);
    f[KEY_ADD] = p->add;
    f[KEY_LD_A] = p->transpose_b ? leading(&p->b, p->n, p->k) : leading(&p->b, p->k, p->n);
    f[KEY_LD_B] = p->transpose_a ? leading(&p->a, p->k, p->m) : leading(&p->a, p->m, p->k);
    f[KEY_LD_D] = leading(&p->y, p->m, p->n);
    f[KEY_LD_AUX] = aux ? leading(&p->pre, p->m, p->n) : 0;
    if (p->batch > 1) {
        f[KEY_STEP_A] = p->b.batch;
        f[KEY_STEP_B] = p->a.batch;
        f[KEY_STEP_D] = p->y.batch;
    }
    f[KEY_ALIGN_A] = alignment(p->b.data);
    f[KEY_ALIGN_B] = alignment(p->a.data);
    f[KEY_ALIGN_D] = alignment(p->y.data);
    f[KEY_ALIGN_AUX] = aux ? alignment(p->pre.data) : 0;
    f[KEY_WORKSPACE] = (int64_t)library_bytes(p);
    f[KEY_FAST] = all->device->head.fast &&
                  (aux || p->y.type == WF_F32); /* elsewhere --fast changes nothing */
    f[KEY_ROWS_SUMS] = p->rows_sums != NULL;
    return key;
}

/* ---- What cuBLASLt supports ---- */

static bool is_matrix(const wf_cuda_matrix *x, int64_t rows, int64_t columns)
{
    return (rows <= 1 || x->row >= columns) && x->batch >= 0;
}

/* cuBLASLt takes one type for both operands, and results of that type or f32. */
static bool suits_library(const wf_cuda_products *all, const wf_cuda_product *p)
{
    if (!all->lt || p->k == 0 || p->a.type != p->b.type)
        return false;
    if (p->y.type != p->a.type && p->y.type != WF_F32)
        return false;
    if (p->batch > 1 && (p->bias || has_ending(p) || p->y.batch == 0))
        return false;
    return (p->transpose_a ? is_matrix(&p->a, p->k, p->m) : is_matrix(&p->a, p->m, p->k)) &&
           (p->transpose_b ? is_matrix(&p->b, p->n, p->k) : is_matrix(&p->b, p->k, p->n)) &&
           is_matrix(&p->y, p->m, p->n) && p->m <= INT32_MAX && p->n <= INT32_MAX &&
           p->k <= INT32_MAX && p->batch <= INT32_MAX;
}

/* Whether a bias or aux pointer is 16-byte aligned: cuBLASLt's candidates assume that it is. */
static bool lies_evenly(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* Whether cuBLASLt's epilogue may be used. It approximates tanh, which is invisible in narrow
 * types. Its forward activation differs from the op's in the last bits, and recompute relies on
 * equal bits, so only --fast allows that one. Row strides of aux must be multiples of 8
 * elements. */
static bool ending_suits(const wf_cuda_products *all, const wf_cuda_product *p)
{
    if (p->act != WF_ACT_GELU || !p->pre.data || p->y.type == WF_F32)
        return false;
    if (!lies_evenly(p->pre.data) || leading(&p->pre, p->m, p->n) % 8 != 0)
        return false;
    return p->ending == WF_CUDA_ACT_GRAD || all->device->head.fast;
}

static int library_type(int64_t type)
{
    return type == WF_F32 ? WF_LT_R_32F : type == WF_BF16 ? WF_LT_R_16BF : WF_LT_R_16F;
}

/* ---- Entries ---- */

wf_product_entry *wf_product_find(wf_cuda_products *all, const wf_product_key *key)
{
    for (int i = 0; i < all->count; i++)
        if (memcmp(&all->entries[i]->key, key, sizeof *key) == 0)
            return all->entries[i];
    wf_product_entry **list =
        wf_mem_room(all->ctx, all->entries, all->count, &all->room, sizeof *list);
    if (!list)
        return NULL;
    all->entries = list;
    wf_product_entry *e = wf_mem_new(all->ctx, sizeof *e);
    if (!e)
        return NULL;
    e->key = *key;
    e->way = WF_WAY_COUNT; /* undecided */
    return all->entries[all->count++] = e;
}

static bool build_layout(const wf_cuda_products *all, wf_lt_object *out, int64_t type, int64_t rows,
                         int64_t columns, int64_t ld, int64_t batch, int64_t step)
{
    const wf_lt *lt = all->lt;
    const int32_t count = (int32_t)batch;
    if (lt->layout_create(out, library_type(type), (uint64_t)rows, (uint64_t)columns, ld) != 0)
        return false;
    return batch == 1 ||
           (lt->layout_set(*out, WF_LT_LAYOUT_BATCH_COUNT, &count, sizeof count) == 0 &&
            lt->layout_set(*out, WF_LT_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step) == 0);
}

static bool build_desc(const wf_cuda_products *all, wf_product_entry *e)
{
    const wf_lt *lt = all->lt;
    const int64_t *f = e->key.f;
    const int32_t ta = f[KEY_TRANS_A] != 0, tb = f[KEY_TRANS_B] != 0;
    const uint32_t epilogue = (uint32_t)f[KEY_EPILOGUE];
    const int32_t bias = library_type(f[KEY_TYPE_D]);
    if (lt->desc_create(&e->desc, (int)f[KEY_COMPUTE], WF_LT_R_32F) != 0 ||
        lt->desc_set(e->desc, WF_LT_DESC_TRANSA, &ta, sizeof ta) != 0 ||
        lt->desc_set(e->desc, WF_LT_DESC_TRANSB, &tb, sizeof tb) != 0 ||
        lt->desc_set(e->desc, WF_LT_DESC_EPILOGUE, &epilogue, sizeof epilogue) != 0)
        return false;
    if (f[KEY_BIAS] && lt->desc_set(e->desc, WF_LT_DESC_BIAS_DATA_TYPE, &bias, sizeof bias) != 0)
        return false;
    return f[KEY_LD_AUX] == 0 ||
           lt->desc_set(e->desc, WF_LT_DESC_AUX_LD, &f[KEY_LD_AUX], sizeof(int64_t)) == 0;
}

bool wf_product_build(wf_cuda_products *all, wf_product_entry *e)
{
    const int64_t *f = e->key.f, batch = f[KEY_BATCH];
    const bool ta = f[KEY_TRANS_A] != 0, tb = f[KEY_TRANS_B] != 0;
    wf_product_drop(all, e); /* what an earlier failure left */
    e->ready = build_desc(all, e) &&
               build_layout(all, &e->a, f[KEY_TYPE], ta ? f[KEY_K] : f[KEY_M],
                            ta ? f[KEY_M] : f[KEY_K], f[KEY_LD_A], batch, f[KEY_STEP_A]) &&
               build_layout(all, &e->b, f[KEY_TYPE], tb ? f[KEY_N] : f[KEY_K],
                            tb ? f[KEY_K] : f[KEY_N], f[KEY_LD_B], batch, f[KEY_STEP_B]) &&
               build_layout(all, &e->d, f[KEY_TYPE_D], f[KEY_M], f[KEY_N], f[KEY_LD_D], batch,
                            f[KEY_STEP_D]);
    if (!e->ready)
        wf_product_drop(all, e);
    return e->ready;
}

void wf_product_drop(wf_cuda_products *all, wf_product_entry *e)
{
    wf_lt_object *layouts[] = {&e->a, &e->b, &e->d};
    for (int i = 0; i < 3; i++) {
        if (*layouts[i])
            all->lt->layout_destroy(*layouts[i]);
        *layouts[i] = NULL;
    }
    if (e->desc)
        all->lt->desc_destroy(e->desc);
    e->desc = NULL;
    e->ready = false;
}

/* desc holds the bias and aux pointers, so an entry must not be used by two threads at once. */
int wf_product_run(const wf_cuda_products *all, const wf_product_entry *e, const wf_lt_algo *algo,
                   const wf_product_memory *at, cudaStream_t stream)
{
    const wf_lt *lt = all->lt;
    const float one = 1, beta = e->key.f[KEY_ADD] ? 1 : 0; /* beta 1 adds to y in place */
    int error = 0;
    if (at->bias)
        error = lt->desc_set(e->desc, WF_LT_DESC_BIAS_POINTER, &at->bias, sizeof at->bias);
    if (error == 0 && e->key.f[KEY_LD_AUX] != 0)
        error = lt->desc_set(e->desc, WF_LT_DESC_AUX_POINTER, &at->aux, sizeof at->aux);
    if (error != 0)
        return error;
    return lt->matmul(all->handle, e->desc, &one, at->a, e->a, at->b, e->b, &beta, at->d, e->d,
                      at->d, e->d, algo, at->workspace, (size_t)e->key.f[KEY_WORKSPACE], stream);
}

/* ---- Choosing a way ---- */

/* Split-k schemes that add partial sums in f32 in a fixed order. */
static uint32_t reductions_of(const wf_product_key *key)
{
    uint32_t ways = WF_LT_REDUCE_COMPUTE_TYPE;
    if (key->f[KEY_TYPE_D] == WF_F32)
        ways |= WF_LT_REDUCE_OUTPUT_TYPE | (key->f[KEY_FAST] ? WF_LT_REDUCE_IN_PLACE : 0);
    return ways;
}

int wf_product_propose(const wf_cuda_products *all, const wf_product_entry *e,
                       wf_lt_candidate out[WF_PRODUCT_PROPOSED])
{
    const wf_lt *lt = all->lt;
    const int64_t *f = e->key.f;
    const uint64_t workspace = (uint64_t)f[KEY_WORKSPACE];
    /* C and d are the same matrix. */
    const int64_t places[] = {f[KEY_ALIGN_A], f[KEY_ALIGN_B], f[KEY_ALIGN_D], f[KEY_ALIGN_D]};
    const uint32_t reduce = reductions_of(&e->key);
    wf_lt_object pref = NULL;
    int count = 0;
    if (lt->pref_create(&pref) != 0)
        return 0;
    bool ok =
        lt->pref_set(pref, WF_LT_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace) == 0 &&
        lt->pref_set(pref, WF_LT_PREF_REDUCTION_SCHEME_MASK, &reduce, sizeof reduce) == 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t bytes = (uint32_t)places[i];
        ok = ok &&
             lt->pref_set(pref, WF_LT_PREF_MIN_ALIGNMENT_A_BYTES + i, &bytes, sizeof bytes) == 0;
    }
    if (!ok || lt->heuristic(all->handle, e->desc, e->a, e->b, e->d, e->d, pref,
                             WF_PRODUCT_PROPOSED, out, &count) != 0)
        count = 0;
    lt->pref_destroy(pref);
    int good = 0; /* keep the library's order: its best guess comes first */
    for (int i = 0; i < count; i++)
        if (out[i].state == 0 && out[i].workspace <= workspace)
            out[good++] = out[i];
    return good;
}

/* The GEMM that remains when our kernel applies the epilogue. */
static wf_cuda_product without_ending(const wf_cuda_product *p)
{
    wf_cuda_product q = *p;
    if (p->ending == WF_CUDA_ACT && p->pre.data)
        q.y = p->pre;
    q.ending = WF_CUDA_PLAIN;
    q.pre = (wf_cuda_matrix){0};
    q.rows_sums = NULL;
    return q;
}

static wf_product_entry *decided_entry_of(const wf_cuda_work *w, wf_cuda_products *all,
                                          const wf_cuda_product *p);

/* Picks the faster of cuBLASLt's epilogue and ours, sums included, if both were timed. The entry
 * that is only compared does not count as used, so timed and cached choices hash equally. */
static void choose_ending(const wf_cuda_work *w, wf_cuda_products *all, wf_product_entry *e,
                          const wf_cuda_product *p, double ours_us)
{
    const wf_cuda_product q = without_ending(p);
    const wf_product_entry *apart = e->us > 0 ? decided_entry_of(w, all, &q) : NULL;
    if (!apart || apart->us == 0 || ours_us == 0)
        return;
    if (apart->us + ours_us < e->us) {
        e->way = WF_WAY_APART;
        e->us = apart->us + ours_us;
    }
}

/* Tries the library, and times its candidates while a step is prepared. Without a candidate our
 * plain kernel remains. */
static void decide(const wf_cuda_work *w, wf_cuda_products *all, wf_product_entry *e,
                   const wf_cuda_product *p)
{
    wf_lt_candidate candidates[WF_PRODUCT_PROPOSED];
    const bool ending = has_ending(p);
    double ours_us = 0;
    int count = 0;
    if (wf_product_build(all, e))
        count = wf_product_propose(all, e, candidates);
    e->way = count > 0 ? WF_WAY_LIBRARY : ending ? WF_WAY_APART : WF_WAY_PLAIN;
    if (count == 0)
        return;
    e->algo = candidates[0].algo;
    if (w->prepare)
        wf_product_tune(all, e, candidates, count, p, wf_cuda_stream(w->l), &ours_us);
    if (ending)
        choose_ending(w, all, e, p, ours_us);
}

/* Whether the algorithm adds split-k partial sums by an allowed scheme. */
static bool adds_as_allowed(const wf_cuda_products *all, const wf_product_entry *e)
{
    const wf_lt *lt = all->lt;
    int32_t parts = 0;
    uint32_t reduce = 0;
    size_t n;
    if (lt->config_get(&e->algo, WF_LT_CONFIG_SPLITK_NUM, &parts, sizeof parts, &n) != 0 ||
        lt->config_get(&e->algo, WF_LT_CONFIG_REDUCTION_SCHEME, &reduce, sizeof reduce, &n) != 0)
        return false;
    return parts == 1 || (reduce & ~reductions_of(&e->key)) == 0;
}

/* Whether a cached choice is valid: the library accepts it and this build would request it. */
static bool is_good(wf_cuda_products *all, wf_product_entry *e)
{
    wf_lt_candidate result = {0};
    if (e->way == WF_WAY_COUNT)
        return false;
    if (e->ready || e->way != WF_WAY_LIBRARY) /* a way without the library needs no check */
        return true;
    return wf_product_build(all, e) &&
           all->lt->check(all->handle, e->desc, e->a, e->b, e->d, e->d, &e->algo, &result) == 0 &&
           result.workspace <= (size_t)e->key.f[KEY_WORKSPACE] && adds_as_allowed(all, e);
}

/* Finds the entry and decides its way. NULL: out of memory. */
static wf_product_entry *decided_entry_of(const wf_cuda_work *w, wf_cuda_products *all,
                                          const wf_cuda_product *p)
{
    const wf_product_key key = key_of(all, p);
    wf_product_entry *e = wf_product_find(all, &key);
    if (e && !is_good(all, e)) {
        e->us = 0; /* the cached time was of another way */
        decide(w, all, e, p);
    }
    return e;
}

/* The same, and marks the entry as used. */
static wf_product_entry *entry_of(const wf_cuda_work *w, wf_cuda_products *all,
                                  const wf_cuda_product *p)
{
    wf_product_entry *e = decided_entry_of(w, all, p);
    if (e)
        e->used = true;
    return e;
}

/* ---- Running ---- */

/* Computes rows_sums when no earlier kernel did. */
static wf_status add_rows(const wf_cuda_work *w, const wf_cuda_product *p)
{
    if (p->rows_sums && !w->prepare)
        wf_cuda_add_rows(wf_cuda_stream(w->l), &p->y, p->m, p->n, p->rows_sums,
                         float_scratch(w, p));
    return WF_OK;
}

/* Our own kernel: any types, layouts and sizes. */
static wf_status run_plain(const wf_cuda_work *w, const wf_cuda_product *p)
{
    if (!w->prepare)
        wf_cuda_plain_product(wf_cuda_stream(w->l), p);
    return add_rows(w, p);
}

/* The GEMM first, the epilogue in a second kernel. */
static wf_status run_apart(const wf_cuda_work *w, const wf_cuda_product *p)
{
    const wf_cuda_product q = without_ending(p);
    WF_TRY(wf_cuda_multiply(w, &q));
    if (!w->prepare)
        wf_cuda_finish(wf_cuda_stream(w->l), p, float_scratch(w, p));
    return WF_OK;
}

/* Our kernel computes the sums: cuBLASLt's epilogue for them is slower than a separate pass. */
static wf_status run_with_sums(const wf_cuda_work *w, const wf_cuda_product *p)
{
    wf_cuda_product q = *p;
    q.sums = NULL;
    WF_TRY(wf_cuda_multiply(w, &q));
    if (!w->prepare)
        wf_cuda_add_rows(wf_cuda_stream(w->l), &p->a, p->k, p->m, p->sums, float_scratch(w, p));
    return WF_OK;
}

static wf_status run_settled(const wf_cuda_work *w, const wf_cuda_product *p)
{
    wf_cuda_product q = without_ending(p);
    float *product = float_scratch(w, p);
    q.bias = NULL;
    q.y = (wf_cuda_matrix){.data = product, .type = WF_F32, .row = p->n};
    WF_TRY(wf_cuda_multiply(w, &q));
    if (!w->prepare)
        wf_cuda_settle(wf_cuda_stream(w->l), p, product);
    return add_rows(w, p);
}

/* Copies the bias first: cuBLASLt needs the result's type and 16-byte alignment. */
static wf_status run_copied_bias(const wf_cuda_work *w, const wf_cuda_product *p)
{
    wf_cuda_product q = *p;
    void *to = bias_scratch(w, p);
    const wf_view bias = {.data = (void *)(uintptr_t)p->bias,
                          .type = p->bias_type,
                          .rank = 1,
                          .dim = {p->n},
                          .stride = {1},
                          .dense = true};
    if (!w->prepare)
        wf_cuda_convert(wf_cuda_stream(w->l), &bias, p->y.type, to);
    q.bias = to;
    q.bias_type = p->y.type;
    return wf_cuda_multiply(w, &q);
}

/* A failure here demotes the entry for good: later launches use our kernels. */
static wf_status run_library(const wf_cuda_work *w, wf_cuda_products *all, wf_product_entry *e,
                             const wf_cuda_product *p)
{
    const wf_product_memory at = {.a = p->b.data,
                                  .b = p->a.data,
                                  .d = p->y.data,
                                  .workspace = w->scratch,
                                  .bias = p->bias,
                                  .aux = p->pre.data};
    if (w->prepare)
        return WF_OK;
    int error = wf_product_run(all, e, &e->algo, &at, wf_cuda_stream(w->l));
    if (error == 0)
        return add_rows(w, p);
    wf_ctx_log(all->ctx, WF_LOG_WARN,
               "cuBLASLt failed for %lldx%lld by %lldx%lld (%s); using the plain kernel",
               (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n,
               all->lt->status_name(error));
    e->way = has_ending(p) ? WF_WAY_APART : WF_WAY_PLAIN;
    return wf_cuda_multiply(w, p);
}

/* Tries the special cases first; each calls wf_cuda_multiply again with a simpler GEMM. With
 * w->prepare nothing is launched: only entries are made and decided. */
wf_status wf_cuda_multiply(const wf_cuda_work *w, const wf_cuda_product *p)
{
    wf_cuda_products *all = wf_cuda_device_of(w->l)->products;
    if (p->sums)
        return run_with_sums(w, p);
    if (p->batch * p->m * p->n == 0) /* an empty result: only sums remain */
        return add_rows(w, p);
    if (!all || !suits_library(all, p))
        return run_plain(w, p);
    if ((p->bias || has_ending(p)) && may_settle(p))
        return run_settled(w, p);
    if (has_ending(p) && !ending_suits(all, p)) /* entries know GELU's epilogue only */
        return run_apart(w, p);
    if (p->bias && (p->bias_type != p->y.type || !lies_evenly(p->bias)))
        return run_copied_bias(w, p);
    wf_product_entry *e = entry_of(w, all, p);
    if (!e)
        return WF_ERR_MEMORY;
    switch (e->way) {
    case WF_WAY_LIBRARY: return run_library(w, all, e, p);
    case WF_WAY_APART: return run_apart(w, p);
    default: return run_plain(w, p);
    }
}

/* ---- Life of the device ---- */

wf_status wf_cuda_products_new(wf_cuda_device *d, bool tune)
{
    wf_ctx *ctx = d->head.ctx;
    wf_cuda_products *all = wf_mem_new(ctx, sizeof *all);
    if (!all)
        return WF_ERR_MEMORY;
    *all = (wf_cuda_products){.ctx = ctx, .device = d, .lt = wf_lt_get(), .tune = tune};
    d->products = all;
    if (!all->lt)
        wf_ctx_log(ctx, WF_LOG_WARN, "matmuls use the slow plain kernel: %s", wf_lt_fault());
    int error = all->lt ? all->lt->create(&all->handle) : 0;
    if (error != 0) {
        wf_ctx_log(ctx, WF_LOG_WARN,
                   "cuBLASLt does not start (%s); matmuls use the slow plain kernel",
                   all->lt->status_name(error));
        all->lt = NULL;
    }
    if (all->lt && all->tune)
        wf_product_choices_open(all);
    return WF_OK;
}

void wf_cuda_products_free(wf_cuda_device *d)
{
    wf_cuda_products *all = d->products;
    if (!all)
        return;
    for (int i = 0; i < all->count; i++) {
        wf_product_drop(all, all->entries[i]);
        wf_mem_free(all->ctx, all->entries[i]);
    }
    if (all->lt)
        all->lt->destroy(all->handle);
    wf_mem_free(all->ctx, all->entries);
    wf_mem_free(all->ctx, all->path);
    wf_mem_free(all->ctx, all);
    d->products = NULL;
}

/* Called after a step was prepared, so that one file write covers all its choices. */
void wf_cuda_products_keep(const wf_launch *l)
{
    wf_cuda_products *all = wf_cuda_device_of(l)->products;
    if (all && all->changed)
        wf_product_choices_write(all);
    if (all)
        all->changed = false;
}

void wf_cuda_products_begin(const wf_cuda_device *d)
{
    for (int i = 0; d->products && i < d->products->count; i++)
        d->products->entries[i]->used = false;
}

/* Adds the entries' hashes, so their order does not matter. */
uint64_t wf_cuda_products_choices(const wf_cuda_device *d)
{
    const wf_cuda_products *all = d->products;
    const size_t version = all && all->lt ? all->lt->version() : 0;
    uint64_t sum = 0;
    for (int i = 0; all && i < all->count; i++) {
        const wf_product_entry *e = all->entries[i];
        const int64_t way = e->way;
        if (!e->used)
            continue;
        uint64_t h = wf_hash_fnv1a(WF_FNV1A, &e->key, sizeof e->key);
        h = wf_hash_fnv1a(h, &way, sizeof way);
        h = wf_hash_fnv1a(h, &version, sizeof version);
        sum += e->way == WF_WAY_LIBRARY ? wf_hash_fnv1a(h, &e->algo, sizeof e->algo) : h;
    }
    return sum;
}
