/* SPDX-License-Identifier: MIT */
/*
 * test_parity.c - whole models against PyTorch.
 *
 * For each model of parity_model.c the test compares logits, loss, the gradient of every parameter
 * and ten AdamW steps. make_parity.py computed the references in float64 from the same weights.
 * The error of a tensor is max|a - b| / max|b|, where b is PyTorch's.
 *
 * GPT-2's key bias has absolute bounds instead. It adds the same value to all scores of a query,
 * which softmax cancels. Its true gradient is zero, the computed one is rounding noise, and Adam
 * turns noise into full steps.
 *
 * WEFT_PARITY_DEVICE selects another device, which is also compared with the cpu. The test does
 * nothing when that device cannot be opened. "core" is a device with kernels for core ops only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_device.h"
#include "parity_model.h"
#include "pjrt_support.h"

#define STEPS 10
#define LR 1e-3f

static const char *device_under_test = "cpu";

#define LOGITS_BOUND 1e-5
#define GRAD_BOUND 1e-5
#define LOSS_BOUND 1e-5
#define FINAL_BOUND 1e-4
/* Absolute bounds for the key bias. Other gradients reach 0.1 and more, and an Adam step moves a
 * weight by about lr. */
#define KEY_GRAD_BOUND 1e-6
#define KEY_FINAL_BOUND (2.0 * STEPS * LR)

/* ---- Fixtures: the format is described in make_parity.py ----------------------------------- */

#define MAX_TENSORS 192

typedef struct {
    char name[PM_MAX_NAME + 8];
    char type[4];
    int rank;
    int64_t dims[2];
    int64_t count;
    void *data; /* float or int32_t */
} tensor;

typedef struct {
    tensor tensor[MAX_TENSORS];
    int count;
    char *data; /* contents of all tensors */
} fixture;

static FILE *open_fixture(const char *model)
{
#ifdef WF_TEST_FIXTURES
    const char *folder = WF_TEST_FIXTURES;
#else
    const char *folder = getenv("WEFT_FIXTURES");
    if (folder == NULL)
        folder = "tests/fixtures";
#endif
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.bin", folder, model);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    return file;
}

static void parse_line(const char *line, tensor *t)
{
    int used;
    if (sscanf(line, "%87s %3s %d%n", t->name, t->type, &t->rank, &used) != 3 || t->rank < 0 ||
        t->rank > 2)
        fail_msg("bad line in a fixture: %s", line);
    t->count = 1;
    for (int i = 0; i < t->rank; i++) {
        char *end;
        t->dims[i] = strtoll(line + used, &end, 10);
        used = (int)(end - line);
        t->count *= t->dims[i];
    }
}

static fixture *new_fixture(void)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    return f;
}

static tensor *next_tensor(fixture *f)
{
    assert_true(f->count < MAX_TENSORS);
    return &f->tensor[f->count++];
}

/* Allocates the contents once all tensors have shapes. Returns the number of elements, f32 or
 * i32. */
static size_t allocate_data(fixture *f)
{
    size_t elements = 0, offset = 0;
    for (int i = 0; i < f->count; i++)
        elements += (size_t)f->tensor[i].count;
    f->data = malloc(elements * 4);
    assert_non_null(f->data);
    for (int i = 0; i < f->count; i++) {
        f->tensor[i].data = f->data + offset * 4;
        offset += (size_t)f->tensor[i].count;
    }
    return elements;
}

static fixture *load_fixture(const char *model)
{
    FILE *file = open_fixture(model);
    fixture *f = new_fixture();
    char line[256];
    while (fgets(line, sizeof line, file) != NULL && line[0] != '\n')
        parse_line(line, next_tensor(f));
    const size_t elements = allocate_data(f);
    assert_int_equal(fread(f->data, 4, elements, file), elements);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    return f;
}

static void free_fixture(fixture *f)
{
    free(f->data);
    free(f);
}

/* Returns the tensor PREFIX NAME. */
static const tensor *find(const fixture *f, const char *prefix, const char *name)
{
    const size_t n = strlen(prefix);
    for (int i = 0; i < f->count; i++)
        if (strncmp(f->tensor[i].name, prefix, n) == 0 && strcmp(f->tensor[i].name + n, name) == 0)
            return &f->tensor[i];
    fail_msg("the fixture has no %s%s", prefix, name);
    return NULL;
}

/* ---- Comparison ---------------------------------------------------------------------------- */

/* Returns infinity when a has a NaN. */
static double max_difference(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - b[i]);
        if (!(d <= most))
            most = isnan(d) ? INFINITY : d;
    }
    return most;
}

static double max_abs(const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(b[i]));
    return most;
}

static double ratio(const float *a, const float *b, int64_t n)
{
    return max_difference(a, b, n) / max_abs(b, n);
}

typedef struct {
    double worst;     /* ratio */
    double worst_key; /* difference */
    int mismatches;   /* tensors or key biases that exceed their bound */
} verdict;

/* Compares a with the fixture's tensor PREFIX NAME: relatively, or absolutely for the key bias. */
static void compare(verdict *v, const fixture *f, const char *prefix, const char *name,
                    const float *a, double bound, double key_bound)
{
    const tensor *t = find(f, prefix, name);
    const float *b = t->data;
    double r;
    if (strstr(name, "attn.c_attn.bias") != NULL) { /* of q, k and v */
        const int64_t n = t->count / 3;
        const double key = max_difference(a + n, b + n, n);
        v->worst_key = fmax(v->worst_key, key);
        v->mismatches += !(key <= key_bound);
        r = fmax(ratio(a, b, n), ratio(a + 2 * n, b + 2 * n, n));
    } else {
        r = ratio(a, b, t->count);
    }
    v->worst = fmax(v->worst, r);
    v->mismatches += !(r <= bound);
}

/* ---- A model on a device ------------------------------------------------------------------- */

typedef struct {
    const pm_config *config;
    const fixture *f;
    pm_model model; /* names and shapes; its values went with the graph */
    wf_ctx *ctx;
    wf_device *device;
    wf_session *session;
    wf_exec *check; /* outputs logits, loss_sum, count, grad.P */
    wf_exec *step;  /* a training step; output loss */
} bench;

#define assert_ok(b, status) assert_ok_at(b, status, __FILE__, __LINE__)

static void assert_ok_at(const bench *b, wf_status status, const char *file, int line)
{
    if (status == WF_OK)
        return;
    print_error("%s: %s\n", wf_status_string(status), wf_ctx_message(b->ctx));
    _fail(file, line);
}

/* Allocates the elements of a tensor; caller frees. */
static float *room_for(const tensor *t)
{
    float *room = malloc((size_t)t->count * sizeof *room);
    assert_non_null(room);
    return room;
}

/* Extends the graph of the gradients for one of the two executables. */
static void add_check(wf_graph *g, pm_model *m)
{
    wf_output(g, "logits", m->logits);
    wf_output(g, "loss_sum", m->loss_sum);
    wf_output(g, "count", m->count);
    for (int i = 0; i < m->param_count; i++) {
        char name[PM_MAX_NAME + 8];
        snprintf(name, sizeof name, "grad.%s", m->param[i].name);
        wf_output(g, name, m->param[i].grad);
    }
}

static void add_step(wf_graph *g, pm_model *m)
{
    pm_update(g, m, &pm_adamw);
    wf_output(g, "loss", m->loss);
}

static wf_exec *compile(bench *b, void (*add)(wf_graph *g, pm_model *m))
{
    const int64_t tokens = find(b->f, "", "tokens")->count;
    const int64_t sequences = find(b->f, "", "seq_start")->count - 1;
    wf_graph *g;
    wf_exec *exec;
    assert_ok(b, wf_graph_new(b->ctx, &g));
    pm_forward(g, b->config, tokens, sequences, &b->model);
    pm_gradients(g, &b->model);
    add(g, &b->model);
    assert_ok(b, wf_compile(b->session, g, &exec));
    wf_graph_free(g);
    return exec;
}

/* Checks that the model has exactly the fixture's parameters, with their shapes. */
static void check_parameters(const bench *b)
{
    int in_fixture = 0;
    for (int i = 0; i < b->f->count; i++)
        in_fixture += strncmp(b->f->tensor[i].name, "param.", 6) == 0;
    assert_int_equal(b->model.param_count, in_fixture);
    for (int i = 0; i < b->model.param_count; i++) {
        const pm_param *p = &b->model.param[i];
        const tensor *t = find(b->f, "param.", p->name);
        assert_int_equal(p->rank, t->rank);
        assert_memory_equal(p->dims, t->dims, (size_t)t->rank * sizeof *t->dims);
    }
}

static void write_parameter(bench *b, const char *name, const float *from, int64_t count)
{
    assert_ok(b, wf_session_write(b->session, name, from, (size_t)count * sizeof *from));
}

/* Writes the fixture's tensor to the input of the same name; returns its bytes. */
static size_t write_input(bench *b, wf_exec *exec, const char *name)
{
    const tensor *t = find(b->f, "", name);
    const size_t bytes = (size_t)t->count * 4;
    assert_ok(b, wf_exec_write(exec, name, t->data, bytes));
    return bytes;
}

static size_t write_batch(bench *b, wf_exec *exec)
{
    return write_input(b, exec, "tokens") + write_input(b, exec, "targets") +
           write_input(b, exec, "positions") + write_input(b, exec, "seq_start");
}

static void open_bench(bench *b, const pm_config *config, const fixture *f, const char *device)
{
    *b = (bench){.config = config, .f = f};
    assert_int_equal(wf_ctx_new(&b->ctx), WF_OK);
    assert_ok(b, wt_device_open(b->ctx, device, &b->device));
    assert_ok(b, wf_session_new(b->device, &b->session));
    b->check = compile(b, add_check);
    b->step = compile(b, add_step);
    check_parameters(b);
    for (int i = 0; i < b->model.param_count; i++) {
        const tensor *t = find(b->f, "param.", b->model.param[i].name);
        write_parameter(b, b->model.param[i].name, t->data, t->count);
    }
    write_batch(b, b->check);
    if (config->llama) {
        write_input(b, b->check, "inv_freq");
        write_input(b, b->step, "inv_freq");
    }
}

/* Fails when an object of the context was not freed. */
static void close_bench(bench *b)
{
    wf_mem_stats mem;
    wf_exec_free(b->step);
    wf_exec_free(b->check);
    wf_session_free(b->session);
    wf_device_close(b->device);
    wf_ctx_mem_stats(b->ctx, &mem);
    wf_ctx_free(b->ctx);
    assert_int_equal(mem.live_blocks, 0);
    assert_int_equal(mem.live_bytes, 0);
}

/* Runs one training step, from the batch on the host to the loss on the host. `number` starts at 1.
 * Returns the loss and adds the transferred bytes. */
static float train_step(bench *b, int32_t number, uint64_t *bytes_in, uint64_t *bytes_out)
{
    const float lr = LR;
    float loss;
    *bytes_in += write_batch(b, b->step) + sizeof lr + sizeof number;
    assert_ok(b, wf_exec_write(b->step, "lr", &lr, sizeof lr));
    assert_ok(b, wf_exec_write(b->step, "step", &number, sizeof number));
    assert_ok(b, wf_exec_run(b->step));
    assert_ok(b, wf_exec_read(b->step, "loss", &loss, sizeof loss));
    *bytes_out += sizeof loss;
    return loss;
}

static void train(bench *b, int steps, float *losses)
{
    uint64_t ignored = 0;
    for (int i = 0; i < steps; i++)
        losses[i] = train_step(b, i + 1, &ignored, &ignored);
}

/* Runs `check` and compares all of its outputs. */
static void compare_check(bench *b, verdict *logits, verdict *grads)
{
    const tensor *t = find(b->f, "", "logits");
    float *a = room_for(t), loss_sum, count;
    assert_ok(b, wf_exec_run(b->check));
    assert_ok(b, wf_exec_read(b->check, "logits", a, (size_t)t->count * sizeof *a));
    compare(logits, b->f, "", "logits", a, LOGITS_BOUND, 0);
    free(a);
    assert_ok(b, wf_exec_read(b->check, "loss_sum", &loss_sum, sizeof loss_sum));
    compare(logits, b->f, "", "loss_sum", &loss_sum, LOSS_BOUND, 0);
    assert_ok(b, wf_exec_read(b->check, "count", &count, sizeof count));
    assert_int_equal(count, *(const int32_t *)find(b->f, "", "count")->data);

    for (int i = 0; i < b->model.param_count; i++) {
        t = find(b->f, "grad.", b->model.param[i].name);
        a = room_for(t);
        assert_ok(b, wf_exec_read(b->check, t->name, a, (size_t)t->count * sizeof *a));
        compare(grads, b->f, "grad.", b->model.param[i].name, a, GRAD_BOUND, KEY_GRAD_BOUND);
        free(a);
    }
}

static void compare_parameters(bench *b, verdict *v)
{
    for (int i = 0; i < b->model.param_count; i++) {
        const char *name = b->model.param[i].name;
        const tensor *t = find(b->f, "final.", name);
        float *a = room_for(t);
        assert_ok(b, wf_session_read(b->session, name, a, (size_t)t->count * sizeof *a));
        compare(v, b->f, "final.", name, a, FINAL_BOUND, KEY_FINAL_BOUND);
        free(a);
    }
}

/* A fixture with the cpu's results in place of PyTorch's. Shares the inputs with f. */
static fixture *cpu_results(const pm_config *config, const fixture *f)
{
    bench b;
    fixture *own = new_fixture();
    *own = *f;
    allocate_data(own);
    for (int i = 0; i < f->count; i++)
        memcpy(own->tensor[i].data, f->tensor[i].data, (size_t)f->tensor[i].count * 4);
    open_bench(&b, config, f, "cpu");
    assert_ok(&b, wf_exec_run(b.check));
    /* First the outputs of `check`, then the states after training. */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < own->count; i++) {
            tensor *t = &own->tensor[i];
            const size_t bytes = (size_t)t->count * 4;
            if (pass == 0 && (strncmp(t->name, "grad.", 5) == 0 || strcmp(t->name, "logits") == 0 ||
                              strcmp(t->name, "loss_sum") == 0))
                assert_ok(&b, wf_exec_read(b.check, t->name, t->data, bytes));
            else if (pass == 0 && strcmp(t->name, "losses") == 0)
                train(&b, STEPS, t->data);
            else if (pass == 1 && strncmp(t->name, "final.", 6) == 0)
                assert_ok(&b, wf_session_read(b.session, t->name + 6, t->data, bytes));
        }
    }
    close_bench(&b);
    return own;
}

/* ---- Tests: each for one model, whose pm_config is the state ------------------------------- */

/* Compares the device under test with the fixture. */
static void check_results(const pm_config *config, const fixture *f, const char *of)
{
    bench b;
    verdict logits = {0}, grads = {0}, losses = {0}, finals = {0};
    float loss[STEPS];
    open_bench(&b, config, f, device_under_test);
    const float adamw[] = {LR, (float)pm_adamw.beta1, (float)pm_adamw.beta2, (float)pm_adamw.eps,
                           (float)pm_adamw.weight_decay};
    assert_memory_equal(find(b.f, "", "adamw")->data, adamw, sizeof adamw);

    compare_check(&b, &logits, &grads);
    train(&b, STEPS, loss);
    for (int i = 0; i < STEPS; i++) {
        const double r = ratio(&loss[i], (const float *)find(b.f, "", "losses")->data + i, 1);
        losses.worst = fmax(losses.worst, r);
        losses.mismatches += !(r <= LOSS_BOUND);
    }
    compare_parameters(&b, &finals);
    print_message("%s and %s: worst ratios: logits %.1e, gradients %.1e, losses of %d steps %.1e, "
                  "parameters after them %.1e\n",
                  b.config->name, of, logits.worst, grads.worst, STEPS, losses.worst, finals.worst);
    if (!b.config->llama)
        print_message("%s: key bias, absolute: gradient %.1e, parameter %.1e\n", b.config->name,
                      grads.worst_key, finals.worst_key);
    assert_int_equal(logits.mismatches, 0);
    assert_int_equal(grads.mismatches, 0);
    assert_int_equal(losses.mismatches, 0);
    assert_int_equal(finals.mismatches, 0);
    close_bench(&b);
}

static void test_pytorch(void **state)
{
    fixture *f = load_fixture(((const pm_config *)*state)->name);
    check_results(*state, f, "PyTorch");
    free_fixture(f);
}

/* Compares another device with the cpu, by the same bounds. */
static void test_cpu(void **state)
{
    fixture *f = load_fixture(((const pm_config *)*state)->name);
    fixture *own = cpu_results(*state, f);
    check_results(*state, own, "the cpu");
    free_fixture(own);
    free_fixture(f);
}

/* Trains, and returns losses, parameters and moments in one array; caller frees. */
static float *trained(const pm_config *config, const fixture *f, const char *device, int steps,
                      size_t *bytes)
{
    bench b;
    size_t count = (size_t)steps;
    open_bench(&b, config, f, device);
    for (int i = 0; i < b.model.param_count; i++)
        count += 3 * (size_t)find(f, "param.", b.model.param[i].name)->count;
    float *all = calloc(count, sizeof *all), *to = all + steps;
    assert_non_null(all);
    train(&b, steps, all);
    for (int i = 0; i < b.model.param_count; i++) {
        const char *name = b.model.param[i].name;
        const int64_t n = find(f, "param.", name)->count;
        for (int j = 0; j < 3; j++, to += n) {
            char full[PM_MAX_NAME + 2];
            snprintf(full, sizeof full, "%s%s", (const char *[]){"", "m.", "v."}[j], name);
            assert_ok(&b, wf_session_read(b.session, full, to, (size_t)n * sizeof *to));
        }
    }
    close_bench(&b);
    *bytes = count * sizeof *all;
    return all;
}

/* Trainings on these devices (a NULL ends the list) are bitwise equal. */
static void check_same_bits(const pm_config *config, const fixture *f, const char *const *devices,
                            int steps)
{
    size_t bytes, first_bytes;
    float *first = trained(config, f, devices[0], steps, &first_bytes);
    for (int i = 0; i < steps; i++)
        assert_true(isfinite(first[i]));
    for (int i = 1; devices[i] != NULL; i++) {
        float *again = trained(config, f, devices[i], steps, &bytes);
        assert_int_equal(bytes, first_bytes);
        if (memcmp(first, again, bytes) != 0)
            fail_msg("a training on %s is not that on %s", devices[i], devices[0]);
        free(again);
    }
    free(first);
}

static void test_same_bits(void **state)
{
    static const char *const devices[] = {"cpu:1", "cpu:1", "cpu:2", "cpu:2", NULL};
    const pm_config *config = *state;
    fixture *f = load_fixture(config->name);
    check_same_bits(config, f, devices, STEPS);
    free_fixture(f);
}

static void shape_tensor(fixture *f, const char *prefix, const char *name, const char *type,
                         int rank, const int64_t *dims)
{
    tensor *t = next_tensor(f);
    snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
    snprintf(t->type, sizeof t->type, "%s", type);
    t->rank = rank;
    t->count = 1;
    for (int i = 0; i < rank; i++) {
        t->dims[i] = dims[i];
        t->count *= dims[i];
    }
}

/* A fixture without results: a batch of two sequences, and random weights. */
static fixture *random_fixture(const pm_config *config, int64_t tokens, int64_t first_length)
{
    fixture *f = new_fixture();
    pm_model m;
    wf_ctx *ctx;
    wf_graph *g;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    assert_int_equal(wf_graph_new(ctx, &g), WF_OK);
    pm_forward(g, config, tokens, 2, &m); /* for the names and shapes */
    wf_graph_free(g);
    wf_ctx_free(ctx);

    shape_tensor(f, "", "tokens", "i32", 1, &tokens);
    shape_tensor(f, "", "targets", "i32", 1, &tokens);
    shape_tensor(f, "", "positions", "i32", 1, &tokens);
    shape_tensor(f, "", "seq_start", "i32", 1, &(int64_t){3});
    shape_tensor(f, "", "inv_freq", "f32", 1, &(int64_t){config->head_dim / 2});
    for (int i = 0; i < m.param_count; i++)
        shape_tensor(f, "param.", m.param[i].name, "f32", m.param[i].rank, m.param[i].dims);
    allocate_data(f);

    int32_t *ids = f->tensor[0].data, *targets = f->tensor[1].data, *positions = f->tensor[2].data;
    for (int64_t i = 0; i < tokens; i++) {
        ids[i] = (int32_t)(i * i % config->vocab);
        targets[i] = i % 5 == 0 ? -100 : (int32_t)(i * 7 % config->vocab);
        positions[i] = (int32_t)(i < first_length ? i : i - first_length);
    }
    memcpy(f->tensor[3].data, (int32_t[]){0, (int32_t)first_length, (int32_t)tokens}, 12);
    for (int64_t i = 0; i < config->head_dim / 2; i++)
        ((float *)f->tensor[4].data)[i] = (float)pow(10000, -2.0 * (double)i / config->head_dim);
    for (int i = 0; i < m.param_count; i++) {
        const tensor *t = &f->tensor[5 + i];
        wf_random_normal(1, (uint64_t)i, t->rank == 1, 0.05f, t->data, t->count);
    }
    return f;
}

/* The models of the fixtures are so small that one thread does all work; this model has work for
 * several. One step is enough: the moments after it are the gradients and their squares. */
static void test_same_bits_threads(void **state)
{
    static const char *const devices[] = {"cpu:1", "cpu:2", "cpu:2", "cpu:3", NULL};
    pm_config wide = *(const pm_config *)*state;
    wide.layers = 1;
    wide.vocab = 300;
    wide.context = 256;
    wide.head_dim = 32;
    wide.width = wide.heads * wide.head_dim;
    wide.hidden = 256;
    fixture *f = random_fixture(&wide, 384, 150);
    check_same_bits(&wide, f, devices, 1);
    free_fixture(f);
}

/* From the second step on, a step transfers exactly the bytes that the host writes and reads, and
 * allocates nothing. */
static void test_steady_step(void **state)
{
    bench b;
    uint64_t bytes_in = 0, bytes_out = 0;
    wf_run_stats before, after;
    wf_mem_stats mem_before, mem_after;
    fixture *f = load_fixture(((const pm_config *)*state)->name);
    open_bench(&b, *state, f, device_under_test);
    train_step(&b, 1, &(uint64_t){0}, &(uint64_t){0});
    train_step(&b, 2, &(uint64_t){0}, &(uint64_t){0});

    wf_exec_stats(b.step, &before);
    wf_ctx_mem_stats(b.ctx, &mem_before);
    train_step(&b, 3, &bytes_in, &bytes_out);
    wf_exec_stats(b.step, &after);
    wf_ctx_mem_stats(b.ctx, &mem_after);
    assert_int_equal(after.runs - before.runs, 1);
    assert_int_equal(after.bytes_in - before.bytes_in, bytes_in);
    assert_int_equal(after.bytes_out - before.bytes_out, bytes_out);
    assert_int_equal(after.allocations, 0);
    assert_int_equal(mem_after.calls, mem_before.calls);
    close_bench(&b);
    free_fixture(f);
}

/* The element whose change by 1% changes the loss most, to first order. */
static int64_t telling_element(const float *p, const float *grad, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (fabsf(p[i] * grad[i]) > fabsf(p[best] * grad[best]))
            best = i;
    return best;
}

/* A change of 1% in one element of any one parameter exceeds a bound. */
static void test_notices(void **state)
{
    bench b;
    verdict logits = {0}, grads = {0};
    double least = INFINITY;
    fixture *f = load_fixture(((const pm_config *)*state)->name);
    open_bench(&b, *state, f, "cpu");
    for (int i = 0; i < b.model.param_count; i++) {
        const char *name = b.model.param[i].name;
        const tensor *t = find(b.f, "param.", name);
        float *p = room_for(t);
        memcpy(p, t->data, (size_t)t->count * sizeof *p);
        p[telling_element(p, find(b.f, "grad.", name)->data, t->count)] *= 1.01f;
        write_parameter(&b, name, p, t->count);
        logits = grads = (verdict){0};
        compare_check(&b, &logits, &grads);
        if (logits.mismatches == 0 || grads.mismatches == 0)
            fail_msg("%s changed and nothing was noticed", name);
        least = fmin(least, logits.worst);
        write_parameter(&b, name, t->data, t->count);
        free(p);
    }
    print_message("%s: 1%% of one weight shows in the logits as %.1e at least\n", b.config->name,
                  least);

    logits = grads = (verdict){0}; /* without the change, no bound is exceeded */
    compare_check(&b, &logits, &grads);
    assert_int_equal(logits.mismatches + grads.mismatches, 0);
    close_bench(&b);
    free_fixture(f);
}

/* A NaN matches nothing. */
static void test_compare(void **state)
{
    (void)state;
    const float b[] = {1, -2, 0.5f};
    assert_true(ratio((const float[]){1, -2, 0.5f}, b, 3) == 0);
    assert_true(ratio((const float[]){1, -2, 0.6f}, b, 3) > 0.04);
    assert_true(ratio((const float[]){NAN, -2, 0.5f}, b, 3) > 1);
    assert_true(ratio((const float[]){1, -2, NAN}, b, 3) > 1);
    assert_true(ratio((const float[]){1, NAN, 0.6f}, b, 3) > 1);
    assert_true(ratio((const float[]){1, -INFINITY, 0.5f}, b, 3) > 1);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction function;
        bool cpu, other; /* devices it runs on */
    } cases[] = {
        {"pytorch", test_pytorch, true, true},
        {"cpu", test_cpu, false, true},
        {"same_bits", test_same_bits, true, false},
        {"same_bits_threads", test_same_bits_threads, true, false},
        {"steady_step", test_steady_step, true, true},
        {"notices", test_notices, true, false},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    struct CMUnitTest tests[PM_MODELS * CASES + 1] = {cmocka_unit_test(test_compare)};
    char names[PM_MODELS * CASES][64];
    const char *other = getenv("WEFT_PARITY_DEVICE");
    if (other && !wt_can_open(other))
        return 0;
    device_under_test = other ? other : device_under_test;
    for (int i = 0; i < PM_MODELS * CASES; i++) {
        const pm_config *config = &pm_configs[i / CASES];
        snprintf(names[i], sizeof names[i], "%s_%s", config->name, cases[i % CASES].name);
        if (other ? cases[i % CASES].other : cases[i % CASES].cpu)
            tests[1 + i] = (struct CMUnitTest){.name = names[i],
                                               .test_func = cases[i % CASES].function,
                                               .initial_state = (void *)config};
    }
    return cmocka_run_group_tests_name("parity", tests, other ? wt_cache_setup : NULL,
                                       other ? wt_cache_teardown : NULL);
}
