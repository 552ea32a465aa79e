/* SPDX-License-Identifier: MIT */
/*
 * main.c - the program weft: finds the command, parses its flags, runs it and prints its error.
 *
 * Exit status: 0 success, 1 failure, 2 invalid usage, or what a command sets in wf_exit_code. A
 * failing write to stdout is a failure too, except when the reader closed the pipe.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/stack.h"
#include "cli/cli.h"
#include "cli/environment.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

const wf_command *const wf_commands[] = {
    &wf_cmd_run,      &wf_cmd_chat,    &wf_cmd_info,
    &wf_cmd_tokenize, &wf_cmd_convert, &wf_cmd_quantize,
    &wf_cmd_imatrix,  &wf_cmd_prepare, &wf_cmd_train,
    &wf_cmd_finetune, &wf_cmd_eval,    &wf_cmd_bench,
    &wf_cmd_devices,  &wf_cmd_ops,     &wf_cmd_selftest,
    &wf_cmd_plan,     &wf_cmd_plot,    &wf_cmd_completion,
    &wf_cmd_version,  &wf_cmd_help,    NULL,
};

int wf_exit_code = EXIT_OK;

#define COMMAND_COUNT ((int)(sizeof wf_commands / sizeof wf_commands[0]) - 1)

/* Flags that are accepted in place of a command. */
static const struct {
    const char *flag;
    const wf_command *command;
} aliases[] = {{"--help", &wf_cmd_help}, {"-h", &wf_cmd_help}, {"--version", &wf_cmd_version}};

wf_status wf_no_such(wf_ctx *ctx, const char *what, const char *word, const char *const *names,
                     int n, const char *lister)
{
    const char *near = wf_text_nearest(word, names, n);
    if (near)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown %s '%s'; did you mean '%s'?", what, word, near);
    return wf_fail(ctx, WF_ERR_USAGE, "unknown %s '%s'; see '%s'", what, word, lister);
}

wf_status wf_command_find(wf_ctx *ctx, const char *name, const wf_command **out)
{
    const char *names[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++) {
        *out = wf_commands[i];
        if (strcmp((*out)->name, name) == 0)
            return WF_OK;
        names[i] = (*out)->name;
    }
    *out = NULL;
    return wf_no_such(ctx, "command", name, names, COMMAND_COUNT, "weft help");
}

/* Names that other programs use. */
static const struct {
    const char *word, *command;
} synonyms[] = {{"generate", "run"},
                {"complete", "run"},
                {"cli", "run"},
                {"perplexity", "eval"},
                {"evaluate", "eval"},
                {"tune", "finetune"},
                {"lora", "finetune"},
                {"benchmark", "bench"},
                {"show", "info"},
                {"inspect", "info"},
                {"export", "convert"},
                {"encode", "tokenize"},
                {"decode", "tokenize --decode"},
                {"test", "selftest"},
                {"completions", "completion"},
                {"man", "help --man"}};

/* Finds the command that the first argument names. */
static wf_status choose(wf_ctx *ctx, const char *word, const wf_command **out)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(word, aliases[i].flag) == 0) {
            *out = aliases[i].command;
            return WF_OK;
        }
    if (word[0] == '-')
        return wf_fail(ctx, WF_ERR_USAGE,
                       "'%s' is not a command; give a command first; see 'weft help'", word);
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
        if (strcmp(word, synonyms[i].word) == 0)
            return wf_fail(ctx, WF_ERR_USAGE, "unknown command '%s'; did you mean 'weft %s'?", word,
                           synonyms[i].command);
    return wf_command_find(ctx, word, out);
}

/* Runs a command: --help first, then the environment, then the flags. */
static wf_status run(wf_ctx *ctx, const wf_command *command, int argc, char **argv)
{
    int operands;
    if (wf_flags_ask_help(argc, argv)) {
        wf_help_command(command, stdout);
        return WF_OK;
    }
    /* These must work even if the environment is wrong. */
    if (command != &wf_cmd_help && command != &wf_cmd_version && command != &wf_cmd_completion)
        WF_TRY(wf_environment_check(ctx));
    WF_TRY(wf_flags_elsewhere(ctx, command, argc, argv));
    WF_TRY(wf_flags_parse(ctx, command->flags, argc, argv, &operands));
    if (operands > command->max_operands)
        return wf_fail(ctx, WF_ERR_USAGE, "'%s' is one argument too many; usage: weft %s%s%s",
                       argv[command->max_operands], command->name, *command->operands ? " " : "",
                       command->operands);
    return command->run(ctx, argv, operands);
}

static char command_line[1024] = "weft";

const char *wf_command_line(void)
{
    return command_line;
}

/* Called before wf_flags_parse, which reorders argv. */
static void keep_command_line(int argc, char **argv)
{
    size_t len = strlen(command_line);
    for (int i = 1; i < argc; i++)
        wf_text_append(command_line, sizeof command_line, &len, " %s", argv[i]);
}

/* Prints "weft COMMAND: sentence" on stderr. */
static void complain(const wf_command *command, const char *sentence)
{
    fprintf(stderr, "weft%s%s: %s\n", command ? " " : "", command ? command->name : "", sentence);
}

static void log_message(void *user, wf_log_level level, const char *message)
{
    (void)user;
    if (level >= WF_LOG_WARN)
        complain(NULL, message);
}

static int put_error; /* errno of the first write that failed */

bool wf_put(const char *bytes, size_t count)
{
    errno = 0;
    fwrite(bytes, 1, count, stdout);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    put_error = put_error ? put_error : errno;
    return false;
}

/* Returns whether the reader has closed the pipe. When stdio itself flushed, errno is lost, so
 * poll. */
static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return put_error == EPIPE ||
           (put_error == 0 && poll(&out, 1, 0) == 1 && (out.revents & POLLERR));
}

/* Flushes stdout. Output that cannot be written, for example on a full disk, is a failure; a reader
 * that closed the pipe (head) is not. */
static bool flush_results(const wf_command *command)
{
    if (wf_put("", 0) || reader_left())
        return true;
    char sentence[256];
    size_t len = 0;
    wf_text_append(sentence, sizeof sentence, &len, "cannot write the result to stdout%s%s",
                   put_error ? ": " : "", put_error ? strerror(put_error) : "");
    complain(command, sentence);
    return false;
}

/* A closed pipe and a file size limit become write errors, so that commands can clean up. */
static int run_program(int argc, char **argv)
{
    if (argc < 2) {
        wf_help_program(stderr);
        return EXIT_USAGE;
    }
    wf_ctx *ctx;
    const wf_command *command = NULL;
    if (wf_ctx_new(&ctx) != WF_OK) {
        complain(NULL, wf_status_string(WF_ERR_MEMORY));
        return EXIT_FAILED;
    }
    keep_command_line(argc, argv);
    wf_ctx_set_log(ctx, log_message, NULL);
    wf_guard_mapped_files(true);
    signal(SIGPIPE, SIG_IGN); /* write fails with EPIPE instead */
    signal(SIGXFSZ, SIG_IGN); /* the same for files above the size limit (EFBIG) */

    wf_status status = choose(ctx, argv[1], &command);
    if (status == WF_OK)
        status = run(ctx, command, argc - 2, argv + 2);
    int code = status == WF_OK ? wf_exit_code : status == WF_ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    bool written = flush_results(command);
    if (status != WF_OK)
        complain(command, wf_ctx_message(ctx));
    else if (!written)
        code = EXIT_FAILED;
    wf_ctx_free(ctx);
    return code;
}

typedef struct {
    int argc, code;
    char **argv;
} program;

static void *run_thread(void *arg)
{
    program *p = arg;
    p->code = run_program(p->argc, p->argv);
    return NULL;
}

/* With a small stack limit (ulimit -s 64) the program runs on a thread with a stack of its own.
 * That thread receives all signals. */
int main(int argc, char **argv)
{
    program p = {.argc = argc, .argv = argv};
    pthread_t thread;
    sigset_t all;
    if (!wf_stack_is_small())
        return run_program(argc, argv);
    if (wf_thread_start(&thread, run_thread, &p) != 0) {
        complain(NULL, "the stack limit is too small, and memory for a larger stack is missing; "
                       "raise the limit with 'ulimit -s 8192'");
        return EXIT_FAILED;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_join(thread, NULL);
    return p.code;
}
