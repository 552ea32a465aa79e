/* SPDX-License-Identifier: MIT */
/* hopper.c - see hopper.h. */
#include "hopper.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"

#define SHARED_BEGIN \
    1024u /* base address of dynamic memory; the bytes below belong to the system */
#define MOST_FLIGHTS 8

/* Accumulators of asynchronous MMAs, by owning thread. */
typedef struct {
    float *d;
    int count, uses; /* pending MMAs */
    float sum[WF_EMULATED_SUMS];
} flight;

typedef struct {
    wf_emulated_product is;
    unsigned group;
} product;

/* Pending work of a thread. */
typedef struct {
    product *product; /* in issue order */
    int products, cap;
    flight *flight; /* [MOST_FLIGHTS] */
    int flights;
    unsigned group;  /* of MMAs, not committed yet */
    unsigned stores; /* of stores, not committed yet */
} thread;

/* Contents of a CUtensorMap, with its size. */
typedef struct {
    uint32_t magic, element, box[4]; /* bytes, elements */
    CUtensorMapDataType type;
    int swizzled;
    char *data;
    uint64_t dim[4], stride[4]; /* elements, bytes */
} tensor_map;
enum { MAP_MAGIC = 0x774d6170 };
_Static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "");

typedef enum { BOX_LOAD, BYTES_LOAD, BOX_STORE, BYTES_STORE, BYTES_ADD } transfer_kind;

typedef struct {
    transfer_kind kind;
    uint32_t shared, barrier;
    tensor_map map;
    int x[4];
    char *global; /* BYTES_ */
    int bytes;
    char *read;     /* a pending store's copy of shared memory; NULL: not read yet */
    int thread;     /* the issuing thread */
    unsigned group; /* its group of stores */
} transfer;

struct wf_async {
    thread thread[1024];
    transfer *transfer;
    int transfers, cap;
};

static void *must(void *data)
{
    if (!data) {
        fputs("emulator: no memory for pending work\n", stderr);
        abort();
    }
    return data;
}

static wf_async *async(void)
{
    wf_async **a = wf_grid_async();
    if (!*a)
        *a = must(calloc(1, sizeof **a));
    return *a;
}

static thread *self(void)
{
    return &async()->thread[wf_grid_here.thread];
}

/* ---- Addresses ---- */

uint32_t wf_emulated_shared_address(const void *p)
{
    const char *begin = wf_emulated_shared(), *at = p;
    if (at < begin || at > begin + wf_grid_shared())
        wf_grid_stop("takes the address of what is not dynamic shared memory");
    return SHARED_BEGIN + (uint32_t)(at - begin);
}

void *wf_emulated_shared_at(uint32_t address, size_t bytes)
{
    if (address < SHARED_BEGIN || address - SHARED_BEGIN + bytes > wf_grid_shared())
        wf_grid_stop("gives an address that is not in its shared memory");
    return (char *)wf_emulated_shared() + (address - SHARED_BEGIN);
}

/* Address of a byte in the 128-byte swizzle: rows of 128 bytes with permuted 16-byte chunks. */
static inline uint32_t swizzled(uint32_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

/* ---- Barriers in shared memory ---- */

enum { BARRIER_MAGIC = 0x5a7 };

/* The decoded 64 bits of an mbarrier: 11 bits for each count, 30 for bytes, 1 for the phase, and 11
 * for a magic number. */
typedef struct {
    int arrivals, pending; /* arrivals per phase; missing arrivals */
    int bytes;             /* announced and not delivered */
    unsigned phase;        /* phase parity */
} barrier;

static barrier barrier_at(uint32_t address)
{
    uint64_t x;
    if (address % 8)
        wf_grid_stop("has a barrier whose address is not a multiple of 8");
    memcpy(&x, wf_emulated_shared_at(address, sizeof x), sizeof x);
    if (x >> 53 != BARRIER_MAGIC)
        wf_grid_stop("uses a barrier that was not initialised, or was overwritten");
    return (barrier){(int)(x & 0x7ff), (int)(x >> 11 & 0x7ff),
                     (int)(x >> 22 & 0x3fffffff) - (1 << 29), (unsigned)(x >> 52 & 1)};
}

static void barrier_set(uint32_t address, barrier b)
{
    const bool ended = b.pending == 0 && b.bytes == 0;
    if (ended) {
        b.phase ^= 1;
        b.pending = b.arrivals;
    }
    uint64_t x = (uint64_t)b.arrivals | (uint64_t)b.pending << 11 |
                 (uint64_t)(b.bytes + (1 << 29)) << 22 | (uint64_t)b.phase << 52 |
                 (uint64_t)BARRIER_MAGIC << 53;
    void *at = wf_emulated_shared_at(address, sizeof x);
    memcpy(at, &x, sizeof x);
    if (ended)
        wf_grid_wake(at);
}

void wf_emulated_mbarrier_init(uint32_t address, int arrivals)
{
    if (address % 8 || arrivals < 1 || arrivals > 1024)
        wf_grid_stop("initialises a barrier that cannot be");
    barrier_set(address, (barrier){.arrivals = arrivals, .pending = arrivals});
}

static void arrive(uint32_t address, int bytes)
{
    barrier b = barrier_at(address);
    if (b.pending == 0)
        wf_grid_stop("arrives at a barrier for which all have arrived in this phase");
    b.pending--;
    b.bytes += bytes;
    if (abs(b.bytes) >= 1 << 20)
        wf_grid_stop("announces more bytes than a barrier can count");
    barrier_set(address, b);
}

void wf_emulated_mbarrier_arrive(uint32_t address)
{
    arrive(address, 0);
    if (wf_grid_random() % 4 == 0) /* a waiter may run first */
        wf_grid_give_way();
}

void wf_emulated_mbarrier_expect(uint32_t address, int bytes)
{
    arrive(address, bytes);
}

bool wf_emulated_mbarrier_passed(uint32_t address, uint32_t parity)
{
    if (barrier_at(address).phase == parity)
        wf_emulated_yield();
    return barrier_at(address).phase != parity;
}

void wf_emulated_mbarrier_wait(uint32_t address, uint32_t parity)
{
    if (parity > 1)
        wf_grid_stop("waits for a parity that is neither 0 nor 1");
    if (wf_grid_random() % 32 == 0) /* other threads may run first */
        wf_grid_interrupt();
    while (barrier_at(address).phase == parity)
        wf_grid_wait(wf_emulated_shared_at(address, 8));
}

/* ---- TMA ---- */

static CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *data,
                       const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                       const cuuint32_t *step, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill)
{
    (void)promotion;
    const uint32_t element = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    if ((type != CU_TENSOR_MAP_DATA_TYPE_FLOAT32 && type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 &&
         type != CU_TENSOR_MAP_DATA_TYPE_FLOAT16) ||
        rank != 4 || !data || (uintptr_t)data % 16 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && swizzle != CU_TENSOR_MAP_SWIZZLE_128B))
        return CUDA_ERROR_INVALID_VALUE;
    tensor_map m = {.magic = MAP_MAGIC, .element = element, .type = type, .data = data};
    m.swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
    m.stride[0] = element;
    for (int i = 0; i < 4; i++) {
        m.dim[i] = dim[i];
        m.box[i] = box[i];
        if (i > 0)
            m.stride[i] = stride[i - 1];
        if (dim[i] == 0 || dim[i] > (cuuint64_t)1 << 32 || box[i] == 0 || box[i] > 256 ||
            step[i] != 1 || (i > 0 && (m.stride[i] % 16 || m.stride[i] >= (cuuint64_t)1 << 40)))
            return CUDA_ERROR_INVALID_VALUE;
    }
    const uint32_t row = box[0] * element;
    if (row % 16 || (m.swizzled && row > 128))
        return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out, &m, sizeof m);
    return CUDA_SUCCESS;
}

void *wf_hopper_encoder(void)
{
    CUresult (*f)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                  const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                  CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) = encode;
    void *p;
    memcpy(&p, &f, sizeof p);
    return p;
}

static float widened(uint16_t x, bool f16)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    if (f16) {
        const uint32_t sign = (bits & 0x80000000u), exponent = x >> 10 & 31, fraction = x & 1023;
        if (exponent == 0) {
            y = (float)fraction * 0x1p-24f;
            return sign ? -y : y;
        }
        bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* A location in shared memory, or in the copy of it. */
static char *inside(const transfer *t, uint32_t address, size_t bytes)
{
    return t->read ? t->read + (address - t->shared) : wf_emulated_shared_at(address, bytes);
}

/* Transfers one row of a box along the innermost axis. `data` NULL: the row is outside of the
 * tensor. */
static void transfer_row(const transfer *t, uint32_t shared, char *data)
{
    const tensor_map *m = &t->map;
    const uint32_t bytes = m->box[0] * m->element;
    for (uint32_t i = 0; i < bytes; i += m->element) {
        const int64_t x = t->x[0] + (int64_t)(i / m->element);
        const uint32_t at = m->swizzled ? swizzled(shared + i) : shared + i;
        const bool there = data && x >= 0 && (uint64_t)x < m->dim[0];
        char *here = inside(t, at, m->element);
        char *outside = there ? data + x * (int64_t)m->element : NULL;
        if (t->kind == BOX_LOAD && there)
            memcpy(here, outside, m->element);
        else if (t->kind == BOX_LOAD)
            memset(here, 0, m->element);
        else if (there)
            memcpy(outside, here, m->element);
    }
}

static uint32_t box_bytes(const tensor_map *m)
{
    return m->box[0] * m->box[1] * m->box[2] * m->box[3] * m->element;
}

static void perform_box(const transfer *t)
{
    const tensor_map *m = &t->map;
    uint32_t shared = t->shared;
    for (uint32_t i = 0; i < m->box[1] * m->box[2] * m->box[3]; i++) {
        const int64_t x[4] = {0, t->x[1] + (int64_t)(i % m->box[1]),
                              t->x[2] + (int64_t)(i / m->box[1] % m->box[2]),
                              t->x[3] + (int64_t)(i / m->box[1] / m->box[2])};
        char *data = m->data;
        for (int k = 1; k < 4 && data; k++)
            data = x[k] >= 0 && (uint64_t)x[k] < m->dim[k] ? data + x[k] * (int64_t)m->stride[k]
                                                           : NULL;
        transfer_row(t, shared, data);
        shared += m->box[0] * m->element;
    }
}

static void perform_bytes(const transfer *t)
{
    char *here = inside(t, t->shared, (size_t)t->bytes);
    if (t->kind == BYTES_LOAD)
        memcpy(here, t->global, (size_t)t->bytes);
    else if (t->kind == BYTES_STORE)
        memcpy(t->global, here, (size_t)t->bytes);
    else
        for (int i = 0; i < t->bytes; i += 4) {
            float x, y;
            memcpy(&x, t->global + i, 4);
            memcpy(&y, here + i, 4);
            x += y;
            memcpy(t->global + i, &x, 4);
        }
}

static bool is_load(const transfer *t)
{
    return t->kind == BOX_LOAD || t->kind == BYTES_LOAD;
}

static void perform(const transfer *t)
{
    if (t->kind == BOX_LOAD || t->kind == BOX_STORE)
        perform_box(t);
    else
        perform_bytes(t);
    if (is_load(t)) {
        barrier b = barrier_at(t->barrier);
        b.bytes -= t->bytes;
        barrier_set(t->barrier, b);
    }
    free(t->read);
}

/* Performs the first half of a store: reads shared memory. */
static void read_shared(transfer *t)
{
    if (t->read)
        return;
    const char *from = wf_emulated_shared_at(t->shared, (size_t)t->bytes);
    t->read = memcpy(must(malloc((size_t)t->bytes)), from, (size_t)t->bytes);
}

/* Starts a transfer, now or later; for a store possibly only its first half. */
static void begin(transfer *t)
{
    wf_async *a = async();
    const uint64_t how = wf_grid_random() % 4;
    if (how < 2) {
        perform(t);
        return;
    }
    if (how == 2 && !is_load(t))
        read_shared(t);
    if (a->transfers == a->cap) {
        a->cap = a->cap ? 2 * a->cap : 16;
        a->transfer = must(realloc(a->transfer, (size_t)a->cap * sizeof *a->transfer));
    }
    a->transfer[a->transfers++] = *t;
}

static void finish(wf_async *a, int i)
{
    const transfer t = a->transfer[i];
    memmove(&a->transfer[i], &a->transfer[i + 1],
            (size_t)(a->transfers - i - 1) * sizeof *a->transfer);
    a->transfers--;
    perform(&t);
}

static transfer box_transfer(transfer_kind kind, uint32_t shared, const void *map, const int x[4])
{
    transfer t = {.kind = kind,
                  .shared = shared,
                  .x = {x[0], x[1], x[2], x[3]},
                  .thread = wf_grid_here.thread};
    memcpy(&t.map, map, sizeof t.map);
    if (t.map.magic != MAP_MAGIC)
        wf_grid_stop("moves a box by a map that is none");
    if (shared % (t.map.swizzled ? 1024 : 128))
        wf_grid_stop("moves a box from or to shared memory that is not aligned");
    t.bytes = (int)box_bytes(&t.map);
    wf_emulated_shared_at(shared, (size_t)t.bytes);
    return t;
}

static transfer bytes_transfer(transfer_kind kind, uint32_t shared, const void *global, int bytes)
{
    if (shared % 16 || (uintptr_t)global % 16 || bytes <= 0 || bytes % 16)
        wf_grid_stop("moves bytes that are not aligned");
    wf_emulated_shared_at(shared, (size_t)bytes);
    return (transfer){.kind = kind,
                      .shared = shared,
                      .global = (char *)(uintptr_t)global,
                      .bytes = bytes,
                      .thread = wf_grid_here.thread};
}

void wf_emulated_tma_load(uint32_t to, const void *map, uint32_t address, const int x[4])
{
    transfer t = box_transfer(BOX_LOAD, to, map, x);
    t.barrier = address;
    barrier_at(address);
    begin(&t);
}

void wf_emulated_tma_store(const void *map, uint32_t from, const int x[4])
{
    transfer t = box_transfer(BOX_STORE, from, map, x);
    t.group = self()->stores;
    begin(&t);
}

void wf_emulated_bulk_load(uint32_t to, const void *from, int bytes, uint32_t address)
{
    transfer t = bytes_transfer(BYTES_LOAD, to, from, bytes);
    t.barrier = address;
    barrier_at(address);
    begin(&t);
}

void wf_emulated_bulk_store(void *to, uint32_t from, int bytes, bool add)
{
    transfer t = bytes_transfer(add ? BYTES_ADD : BYTES_STORE, from, to, bytes);
    t.group = self()->stores;
    begin(&t);
}

void wf_emulated_tma_commit(void)
{
    self()->stores++;
}

void wf_emulated_tma_wait(int groups, bool read)
{
    wf_async *a = async();
    const unsigned now = self()->stores;
    for (int i = 0; i < a->transfers;) {
        transfer *t = &a->transfer[i];
        const bool mine =
            !is_load(t) && t->thread == wf_grid_here.thread && now - t->group > (unsigned)groups;
        if (mine && !read) {
            finish(a, i);
            continue;
        }
        if (mine)
            read_shared(t);
        i++;
    }
}

bool wf_async_advance(wf_async *a)
{
    int loads = 0;
    for (int i = 0; a && i < a->transfers; i++)
        loads += is_load(&a->transfer[i]);
    if (loads == 0)
        return false;
    int nth = (int)(wf_grid_random() % (unsigned)loads);
    for (int i = 0;; i++)
        if (is_load(&a->transfer[i]) && nth-- == 0) {
            finish(a, i);
            return true;
        }
}

/* ---- MMAs ---- */

static const uint32_t pending_mark = 0x7fc0beef; /* a NaN */

static flight *flight_of(thread *t, const wf_emulated_product *p)
{
    if (!t->flight)
        t->flight = must(malloc(MOST_FLIGHTS * sizeof *t->flight));
    for (int i = 0; i < t->flights; i++) {
        flight *f = &t->flight[i];
        if (f->d < p->d + p->count && p->d < f->d + f->count) {
            if (f->d != p->d || f->count != p->count)
                wf_grid_stop("starts an MMA whose accumulators partly overlap those of another");
            return f;
        }
    }
    if (t->flights == MOST_FLIGHTS)
        wf_grid_stop("has more pending MMAs than the emulator supports");
    flight *f = &t->flight[t->flights++];
    f->d = p->d;
    f->count = p->count;
    f->uses = 0;
    memcpy(f->sum, p->d, (size_t)p->count * sizeof *p->d);
    for (int i = 0; i < p->count; i++)
        memcpy(&p->d[i], &pending_mark, sizeof pending_mark);
    return f;
}

void wf_emulated_wgmma(const wf_emulated_product *p)
{
    thread *t = self();
    if (t->products == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 16;
        t->product = must(realloc(t->product, (size_t)t->cap * sizeof *t->product));
    }
    flight_of(t, p)->uses++;
    t->product[t->products++] = (product){*p, t->group};
}

void wf_emulated_wgmma_commit(void)
{
    self()->group++;
}

/* A decoded matrix descriptor, in bytes, and its shared memory. */
typedef struct {
    uint32_t start, lead, stride;
    const char *shared;
    size_t bytes;
} operand;

static operand operand_of(uint64_t d)
{
    if (d >> 62 != 1 || (d >> 49 & 7))
        wf_grid_stop("has a descriptor that is not emulated");
    return (operand){(uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4,
                     (uint32_t)(d >> 32 & 0x3fff) << 4, wf_emulated_shared(), wf_grid_shared()};
}

/* Returns a pointer to element k of row r, with at least the given bytes behind it. */
static inline const char *element_at(const operand *o, bool columns, unsigned r, unsigned k,
                                     size_t bytes)
{
    uint32_t at =
        o->start + (columns ? r / 64 * o->lead + k / 8 * o->stride + k % 8 * 128 + r % 64 * 2
                            : r / 8 * o->stride + r % 8 * 128 + k * 2);
    at = swizzled(at) - SHARED_BEGIN; /* an address below the start wraps to a large value */
    if (at + bytes > o->bytes)
        wf_grid_stop("has a descriptor of what is not in its shared memory");
    return o->shared + at;
}

static const float *f16_values(void)
{
    static float *values;
    if (!values) {
        values = must(malloc(65536 * sizeof *values));
        for (int i = 0; i < 65536; i++)
            values[i] = widened((uint16_t)i, true);
    }
    return values;
}

static void widen(float *to, const uint16_t *from, int n, bool f16)
{
    if (f16) {
        const float *values = f16_values();
        for (int i = 0; i < n; i++)
            to[i] = values[from[i]];
        return;
    }
    for (int i = 0; i < n; i++)
        to[i] = widened(from[i], false);
}

/* Loads row r of an operand. */
static void load_row(float to[16], const operand *o, bool columns, bool f16, unsigned r)
{
    uint16_t x[16];
    if (columns)
        for (unsigned k = 0; k < 16; k++)
            memcpy(&x[k], element_at(o, true, r, k, 2), 2);
    else
        for (unsigned k = 0; k < 16; k += 8)
            memcpy(&x[k], element_at(o, false, r, k, 16), 16);
    widen(to, x, 16, f16);
}

static void multiply(const wf_emulated_product *p, float *sum)
{
    const unsigned index = (unsigned)wf_grid_here.thread % 128;
    const unsigned row = index / 32 * 16 + index % 32 / 4;
    const operand a = p->registers ? (operand){0} : operand_of(p->a), b = operand_of(p->b);
    float x[2][16], y[16];
    for (unsigned h = 0; h < 2; h++)
        if (p->registers)
            widen(x[h], p->row[h], 16, p->f16);
        else
            load_row(x[h], &a, p->a_columns, p->f16, row + 8 * h);
    for (int i = 0; i < p->count; i += i % 2 ? 3 : 1) { /* 0, 1, 4, 5, ... */
        load_row(y, &b, p->b_columns, p->f16,
                 (unsigned)i / 4 * 8 + index % 4 * 2 + (unsigned)i % 2);
        float s0 = p->add ? sum[i] : 0, s1 = p->add ? sum[i + 2] : 0;
        for (int k = 0; k < 16; k++) {
            s0 += x[0][k] * y[k];
            s1 += x[1][k] * y[k];
        }
        sum[i] = s0;
        sum[i + 2] = s1;
    }
}

/* Writes completed accumulators to their registers. */
static void land(thread *t, flight *f)
{
    for (int i = 0; i < f->count; i++)
        if (memcmp(&f->d[i], &pending_mark, sizeof pending_mark) != 0)
            wf_grid_stop("changes the accumulators of an MMA that is pending");
    memcpy(f->d, f->sum, (size_t)f->count * sizeof *f->d);
    *f = t->flight[--t->flights];
}

void wf_emulated_wgmma_wait(int groups)
{
    thread *t = self();
    int done = 0;
    while (done < t->products && t->group - t->product[done].group > (unsigned)groups) {
        const wf_emulated_product *p = &t->product[done++].is;
        flight *f = flight_of(t, p);
        multiply(p, f->sum);
        if (--f->uses == 0)
            land(t, f);
    }
    t->products -= done;
    memmove(t->product, t->product + done, (size_t)t->products * sizeof *t->product);
    wf_emulated_warp(WF_WARP_SYNC, 0xffffffffu, 0, 0); /* a warp waits as a whole */
}

/* ---- The end of a thread ---- */

void wf_async_thread_ends(const wf_async *a)
{
    if (a && a->thread[wf_grid_here.thread].products > 0)
        wf_grid_stop("ends with pending MMAs");
}

void wf_async_end(wf_async *a)
{
    if (!a)
        return;
    while (a->transfers > 0) {
        if (is_load(&a->transfer[0]))
            wf_grid_stop("ends its block, which has a pending load");
        if (!a->transfer[0].read)
            wf_grid_stop("ends its block, which has a store that has not been read");
        finish(a, 0);
    }
    for (int i = 0; i < 1024; i++) {
        free(a->thread[i].product);
        free(a->thread[i].flight);
    }
    free(a->transfer);
    free(a);
}
