/* SPDX-License-Identifier: MIT */
/*
 * test_resume_kill.c - weft train survives `kill -9` at random moments, half of them during a
 * checkpoint, and resumes with --resume. Every loss it ever logged and the last checkpoint are
 * bitwise equal to those of an undisturbed run.
 *
 * WEFT_KILLS sets the number of kills, default 10; `make test-long` uses 240.
 */
#define _DEFAULT_SOURCE /* usleep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "data_fixture.h"
#include "program.h"
#include "support.h"

#define VOCAB 256
#define STEPS 24
#define STEPS_TEXT "24"
#define LAST "step-00000024"

typedef struct {
    wf_ctx *ctx;
    wt_scratch scratch;
    char data[256];
} place;

/* The setups trained. The last one starts from the model of the first. */
static const struct {
    const char *name, *command, *model; /* model: relative to the scratch folder */
    const char *flags;
} setups[] = {
    {"adamw", "train", NULL, "--depth 1 --dropout 0.1 --ema 0.9 --accumulate 2 --keep 1"},
    {"muon", "train", NULL, "--depth 1 --optimizer muon --compute f16 --documents --outlier 20"},
    {"lion", "train", NULL, "--depth 1 --optimizer lion --compute bf16 --recompute 1 --keep 0"},
    {"lora", "finetune", "adamw/model.gguf", "--lora 4 --lora-dropout 0.1 --keep-every 6"},
};

#define SETUPS (int)(sizeof setups / sizeof *setups)

/* ---- The program ---- */

static pid_t start(place *p, int setup, const char *run)
{
    char flags[256], model[512] = "", out[512], log[512], *arg[48];
    int n = 0;
    snprintf(flags, sizeof flags, "%s", setups[setup].flags);
    snprintf(out, sizeof out, "%s", wt_path(&p->scratch, run));
    snprintf(log, sizeof log, "%s", wt_path(&p->scratch, "said"));
    if (setups[setup].model)
        snprintf(model, sizeof model, "%s", wt_path(&p->scratch, setups[setup].model));
    const char *const fixed[] = {"weft",     setups[setup].command,
                                 "--resume", "--data",
                                 p->data,    "--out",
                                 out,        "--steps",
                                 STEPS_TEXT, "--save-every",
                                 "2",        "--batch",
                                 "2",        "--length",
                                 "32",       "--valid-every",
                                 "5",        "--seed",
                                 "7",        "--sample-every",
                                 "9",        "--sample-tokens",
                                 "4",        "--quiet"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        arg[n++] = (char *)(uintptr_t)fixed[i];
    if (*model)
        arg[n++] = model;
    for (char *f = strtok(flags, " "); f; f = strtok(NULL, " "))
        arg[n++] = f;
    arg[n] = NULL;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fd >= 0 && dup2(fd, STDERR_FILENO) >= 0 && dup2(fd, STDOUT_FILENO) >= 0)
            execv(getenv("WEFT_PROGRAM"), arg);
        _exit(127);
    }
    return child;
}

/* Returns false when the program was killed, true when it exited. An exit status other than 0 fails
 * the test. */
static bool has_ended(place *p, pid_t child, const char *run)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    char *said;
    size_t bytes;
    wt_ok(p->ctx, wf_file_read(p->ctx, wt_path(&p->scratch, "said"), 1 << 20, &said, &bytes));
    print_error("%s: status %d, and said: %s\n", run, status, said);
    wf_mem_free(p->ctx, said);
    fail();
    return false;
}

/* ---- When to kill ---- */

/* Whether the folder has an entry whose name ends so. */
static bool has_entry(const char *folder, const char *end)
{
    bool found = false;
    DIR *dir = opendir(folder);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e && !found; e = readdir(dir))
        found = wf_path_ends(e->d_name, end);
    if (dir)
        closedir(dir);
    return found;
}

/* Waits until a checkpoint is being written, the program has ended, or this time has passed. */
static void wait_for_writing(const char *folder, pid_t child, uint64_t microseconds)
{
    uint64_t end = wf_clock_ns() + microseconds * 1000;
    siginfo_t info = {0};
    while (!has_entry(folder, ".part") && wf_clock_ns() < end) {
        usleep(100);
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            return;
    }
}

/* ---- Comparing results ---- */

/* The "loss" and "norm" values of every step and of validations, as logged. */
typedef struct {
    char step[STEPS + 1][64], valid[STEPS + 1][64];
} losses;

/* Takes the part of a line from its loss up to the learning rate or, for a validation, the time. */
static void take_line(const char *line, losses *to, const losses *wanted, int number)
{
    const char *loss = strstr(line, "\"loss\":"), *end = loss ? strstr(loss, ",\"rate\":") : NULL;
    bool step = strncmp(line, "{\"event\":\"step\",\"step\":", 23) == 0;
    bool valid = strncmp(line, "{\"event\":\"valid\",\"step\":", 24) == 0;
    if (!step && !valid)
        return;
    if (valid && loss)
        end = strstr(loss, ",\"time\":");
    int at = atoi(line + (step ? 23 : 24));
    if (!end || !strstr(end, "}")) /* a line that a kill truncated */
        return;
    assert_true(at >= 1 && at <= STEPS && end - loss < 64);
    char *value = (step ? to->step : to->valid)[at];
    memset(value, 0, 64);
    memcpy(value, loss, (size_t)(end - loss));
    if (wanted && strcmp(value, (step ? wanted->step : wanted->valid)[at]) != 0)
        fail_msg("line %d: step %d has %s, without kills it has %s", number, at, value,
                 (step ? wanted->step : wanted->valid)[at]);
}

/* Compares every line with `wanted`, not only the last one of its step. */
static void read_log(place *p, const char *run, losses *out, const losses *wanted)
{
    char name[64], *text;
    size_t bytes;
    snprintf(name, sizeof name, "%s/log.jsonl", run);
    *out = (losses){0};
    wt_ok(p->ctx, wf_file_read(p->ctx, wt_path(&p->scratch, name), 1 << 24, &text, &bytes));
    int number = 1;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, number++) {
        *end = '\0';
        take_line(line, out, wanted, number);
    }
    wf_mem_free(p->ctx, text);
    for (int i = 1; i <= STEPS; i++)
        assert_true(out->step[i][0]);
    assert_true(out->valid[5][0] && out->valid[STEPS][0]);
}

/* Removes the run's id and the manifest's checksum of itself, which differ between two runs. */
static size_t cut_id(char *text, size_t bytes)
{
    char *run = strstr(text, "  \"run\": "), *own = strstr(text, "  ],\n  \"checksum\": ");
    assert_true(run && own && run < own);
    *own = '\0';
    char *next = strchr(run, '\n') + 1;
    memmove(run, next, strlen(next) + 1);
    assert_true(strlen(text) < bytes);
    return strlen(text);
}

/* The manifest has the checksum of every file, so equal manifests mean equal checkpoints. */
static void compare_files(place *p, const char *a, const char *b, const char *file)
{
    const char *run[2] = {a, b};
    char name[96], *text[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/%s", run[i], file);
        wt_ok(p->ctx,
              wf_file_read(p->ctx, wt_path(&p->scratch, name), 1 << 24, &text[i], &bytes[i]));
        if (wf_path_ends(file, "/manifest.json"))
            bytes[i] = cut_id(text[i], bytes[i]);
    }
    if (bytes[0] != bytes[1] || memcmp(text[0], text[1], bytes[0]) != 0)
        fail_msg("%s of %s is not that of %s", file, b, a);
    wf_mem_free(p->ctx, text[0]);
    wf_mem_free(p->ctx, text[1]);
}

/* ---- Kills ---- */

typedef struct {
    uint64_t random;
    int kills, writing, runs;
} tally;

static uint64_t next_random(tally *t, uint64_t below)
{
    uint64_t z = t->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (z ^ z >> 31) % below;
}

/* Trains one run and kills it at most `kills` times until it exits by itself. microseconds:
 * duration of an undisturbed run. */
static void run_disturbed(place *p, int setup, const char *run, uint64_t microseconds, int kills,
                          tally *t)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s", wt_path(&p->scratch, run));
    for (int i = 0;; i++) {
        pid_t child = start(p, setup, run);
        if (i < kills) {
            if (i % 2 == 0) {
                usleep((useconds_t)next_random(t, microseconds * 7 / 10));
            } else {
                /* Waits for the first checkpoint or a later one, then kills within it. */
                usleep((useconds_t)next_random(t, microseconds / 2));
                wait_for_writing(folder, child, microseconds);
                usleep((useconds_t)next_random(t, microseconds / STEPS));
            }
            kill(child, SIGKILL);
        }
        if (has_ended(p, child, run))
            break;
        t->kills++;
        t->writing += has_entry(folder, ".part");
    }
    t->runs++;
}

static void disturb_setup(place *p, int setup, int kills, tally *t)
{
    const char *name = setups[setup].name;
    losses wanted, got;
    uint64_t began = wf_clock_ns();
    assert_true(has_ended(p, start(p, setup, name), name));
    uint64_t microseconds = (wf_clock_ns() - began) / 1000;
    read_log(p, name, &wanted, NULL);
    for (int until = t->kills + kills, i = 0; t->kills < until; i++) {
        char run[64];
        snprintf(run, sizeof run, "%s-%d", name, i);
        run_disturbed(p, setup, run, microseconds, until - t->kills < 6 ? until - t->kills : 6, t);
        read_log(p, run, &got, &wanted);
        compare_files(p, name, run, LAST "/manifest.json");
        if (setups[setup].model)
            compare_files(p, name, run, "adapter/adapter_model.safetensors");
        else
            compare_files(p, name, run, "model.gguf");
        assert_false(has_entry(wt_path(&p->scratch, run), ".part"));
    }
}

static void test_killed_and_resumed(void **state)
{
    place p = {.ctx = *state};
    const char *asked = getenv("WEFT_KILLS");
    int kills = asked ? atoi(asked) : 10, done = 0;
    tally t = {.random = wt_seed()};
    if (!getenv("WEFT_PROGRAM"))
        fail_msg("WEFT_PROGRAM must hold the path of the program; ctest sets it");
    wt_texts train = wt_texts_random(5, 60, 90, VOCAB, VOCAB - 1, false);
    wt_texts valid = wt_texts_random(6, 8, 90, VOCAB, VOCAB - 1, false);
    wt_scratch_make(&p.scratch);
    snprintf(p.data, sizeof p.data, "%s",
             wt_data_write(p.ctx, &p.scratch, "data", VOCAB, &train, &valid, 20));
    wt_texts_free(&train);
    wt_texts_free(&valid);
    for (int i = 0; i < SETUPS; i++) {
        int share = (kills - done) / (SETUPS - i);
        if (share > 0 || i == 0)
            disturb_setup(&p, i, share, &t);
        done += share;
    }
    print_message("%d kills, %d of them while a checkpoint was written, in %d runs\n", t.kills,
                  t.writing, t.runs);
    assert_int_equal(t.kills, kills);
    /* With few kills, chance may miss every checkpoint. */
    assert_true(t.writing > 0 || kills < 100);
    wt_scratch_remove(&p.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_killed_and_resumed)};
    return cmocka_run_group_tests_name("resume after kills", tests, NULL, NULL);
}
