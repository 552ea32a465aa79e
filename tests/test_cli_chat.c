/* SPDX-License-Identifier: MIT */
/*
 * test_cli_chat.c - runs weft chat on a pseudo-terminal, as a user types, and with a pipe as its
 * input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_tree.h"
#include "program.h"
#include "support.h"
#include "terminal.h"

#define LLAMA "tests/fixtures/models/llama"
#define CHAT "\"$W\" chat " LLAMA " -q -n 4 -s 3 "
#define PROMPT "\r" COLOR "> "
#define COLOR "\x1b[1;32m"
#define END "\x04" /* Ctrl-D */

static wt_program p;
static wt_terminal t;

static const char *file_text(const char *name)
{
    char command[256];
    snprintf(command, sizeof command, "cat \"$D/%s\"", name);
    assert_int_equal(wt_program_shell(&p, command), 0);
    return p.out;
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(wt_path(&p.scratch, name), &st) == 0;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is missing in: %s", part, text);
}

/* Types a line and returns the output up to the next prompt. */
static const char *say(const char *line)
{
    wt_terminal_type(&t, line);
    wt_terminal_type(&t, "\r");
    /* end of the input line, however often it was redrawn */
    wt_terminal_await(&t, "\x1b[?2004l\r\n");
    return wt_terminal_await(&t, PROMPT);
}

static void start(const char *commands)
{
    wt_terminal_start(&t, commands);
    wt_terminal_await(&t, PROMPT);
}

static void finish(void)
{
    wt_terminal_type(&t, END);
    assert_int_equal(wt_terminal_end(&t), 0);
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Sets the shell variable to the id of a text that must be one token. */
static void find_token(const char *text, const char *variable)
{
    char command[256];
    snprintf(command, sizeof command,
             "printf '%s' | \"$W\" tokenize " LLAMA " --no-special --ids -q | tr -d '[]\\n'", text);
    assert_int_equal(wt_program_shell(&p, command), 0);
    assert_true(*p.out && !strchr(p.out, ','));
    setenv(variable, p.out, 1);
}

/* Makes the model answer with letters only, so each answer is one line. */
#define LETTERS " --logit-bias $LETTER+1000 "

/* ---- Commands ---- */

/* Input from a pipe is never a command: every line is a question. */
static void test_pipe_has_no_commands(void **state)
{
    (void)state;
    find_token("a", "LETTER");
    assert_int_equal(wt_program_shell(&p, "printf '/save %s\\n/exit\\nhi\\n' "
                                          "\"$D/piped\" | " CHAT LETTERS),
                     0);
    assert_string_equal(p.err, "");
    assert_int_equal(count_lines(p.out), 3);
    assert_false(exists("piped"));
    /* No line continues on the next one. */
    assert_int_equal(wt_program_shell(&p, "printf 'a\\\\\\nb\\n\"\"\"\\nc\\n' | " CHAT LETTERS), 0);
    assert_int_equal(count_lines(p.out), 4);
    /* With a terminal on stderr the input is still a pipe. */
    wt_terminal_start(&t, "echo \"/save $D/piped\" | " CHAT);
    assert_int_equal(wt_terminal_end(&t), 0);
    assert_false(exists("piped"));
}

/* A wrong command prints a message, and the conversation continues. */
static void test_wrong_commands(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } wrong[] = {
        {"/sav x", "unknown command '/sav'; did you mean '/save'?"},
        {"/etc/passwd", "unknown command '/etc/passwd'; see /help"},
        {"/temp", "/temp needs an argument: /temp T"},
        {"/temp hot", "/temp must be a number of at least 0, not 'hot'"},
        {"/reset all", "/reset takes no argument, but 'all' was given"},
        {"/regen", "there is no answer yet"},
        {"/save /nowhere/x", "cannot create '/nowhere/x'"},
    };
    start(CHAT);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        has(say(wrong[i].line), wrong[i].sentence);
    has(say("/help"), "/retry");
    finish();
}

/* /save writes all messages with their roles; /reset keeps only the system prompt. */
static void test_commands(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const roles[] = {"system", "user", "assistant", "user", "assistant"};
    wf_arena arena;
    wf_json_node *j;
    char line[512];
    start(CHAT);
    say("/system be kind");
    say("hello");
    has(say("/tokens"), "3 messages, ");
    say(" /again"); /* a leading space makes it text */
    snprintf(line, sizeof line, "/save %s", wt_path(&p.scratch, "saved"));
    say(line);
    say("/reset");
    has(say("/tokens"), "1 message, ");
    has(say("/regen"), "there is no answer yet");
    wt_terminal_type(&t, "/exit\r");
    assert_int_equal(wt_terminal_end(&t), 0);
    file_text("saved");
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_json_parse(&arena, "saved", p.out, strlen(p.out), &j));
    assert_int_equal(j->count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(wf_json_get_string(&j->child[i], "role", ""), roles[i]);
    assert_string_equal(wf_json_get_string(&j->child[0], "content", ""), "be kind");
    assert_string_equal(wf_json_get_string(&j->child[3], "content", ""), " /again");
    wf_arena_free(&arena);
}

/* At temperature 0, /regen gives the same answer. */
static void test_regen(void **state)
{
    (void)state;
    char first[1024];
    start(CHAT " --temp 0");
    snprintf(first, sizeof first, "%s", say("hi"));
    assert_string_equal(say("/regen"), first);
    assert_string_equal(say("/retry"), first);
    finish();
}

/* /save replaces a file only after confirmation. */
static void test_save_asks(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        bool replaced;
    } cases[] = {{"\r", false}, {"n\r", false}, {"\x03", false}, {"\x04", false}, {"y\r", true}};
    char line[512];
    snprintf(line, sizeof line, "/save %s\r", wt_path(&p.scratch, "precious"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wt_put_text(&p.scratch, "precious", "precious\n");
        start(CHAT);
        say("hello");
        wt_terminal_type(&t, line);
        wt_terminal_await(&t, "precious' exists\r\n");
        wt_terminal_await(&t, "replace it? [y/N] ");
        wt_terminal_type(&t, cases[i].answer);
        wt_terminal_await(&t, "\x1b[?2004l");
        wt_terminal_await(&t, PROMPT);
        finish();
        if (cases[i].replaced)
            has(file_text("precious"), "\"hello\"");
        else
            assert_string_equal(file_text("precious"), "precious\n");
    }
    /* Without a terminal to ask on, it is refused. */
    wt_put_text(&p.scratch, "precious", "precious\n");
    wt_terminal_start(&t, CHAT " 2>\"$D/err\"");
    wt_terminal_type(&t, line);
    wt_terminal_type(&t, "/exit\r");
    wt_terminal_end(&t);
    has(file_text("err"), "precious' exists already; choose another name");
    assert_string_equal(file_text("precious"), "precious\n");
    /* A dangling link is not followed. */
    assert_int_equal(wt_program_shell(&p, "ln -s \"$D/target\" \"$D/link\""), 0);
    snprintf(line, sizeof line, "/save %s", wt_path(&p.scratch, "link"));
    start(CHAT);
    has(say(line), "link' already exists");
    finish();
    assert_false(exists("target"));
}

/* ---- Generated text ---- */

/* Generated control characters reach a pipe unchanged and are escaped on a terminal. */
static void test_control_characters(void **state)
{
    (void)state;
    find_token("\\033", "ESCAPE");
#define BIASED " -q -n 3 --logit-bias $ESCAPE+1000 -p hi "
    assert_int_equal(wt_program_shell(&p, "\"$W\" chat " LLAMA BIASED " -st"), 0);
    assert_string_equal(p.out, "\x1b\x1b\x1b\n");
    wt_terminal_start(&t, "\"$W\" chat " LLAMA BIASED " -st");
    assert_int_equal(wt_terminal_end(&t), 0);
    assert_string_equal(t.seen, "\\x1b\\x1b\\x1b\r\n");

    assert_int_equal(wt_program_shell(&p, "\"$W\" run " LLAMA BIASED), 0);
    assert_string_equal(p.out, "\x1b\x1b\x1b");
    wt_terminal_start(&t, "\"$W\" run " LLAMA BIASED);
    assert_int_equal(wt_terminal_end(&t), 0);
    assert_string_equal(t.seen, "\\x1b\\x1b\\x1b\r\n");

    assert_int_equal(wt_program_shell(&p, "\"$W\" tokenize " LLAMA " --decode -q -p $ESCAPE"), 0);
    assert_string_equal(p.out, "\x1b");
    wt_terminal_start(&t, "\"$W\" tokenize " LLAMA " --decode -q -p $ESCAPE");
    assert_int_equal(wt_terminal_end(&t), 0);
    assert_string_equal(t.seen, "\\x1b");
    wt_terminal_start(&t, "\"$W\" tokenize " LLAMA " --decode -p $ESCAPE");
    assert_int_equal(wt_terminal_end(&t), 0);
    assert_string_equal(t.seen, "\\x1b\r\n1 token, 1 byte\r\n");

    /* JSON escapes every control character, including C1. */
    assert_int_equal(
        wt_program_shell(&p, "\"$W\" run " LLAMA " -q -n 1 --json -p '\\x1b[\\xc2\\x9b\\x7f'"), 0);
    wt_program_out(&p, "\"\\u001b[\\u009b\\u007f\"");
}

/* ---- On a terminal ---- */

#define PASTED(text) "\x1b[200~" text "\x1b[201~"

/* Without -q: prints confirmations. */
#define TALKATIVE "\"$W\" chat " LLAMA " -n 4 -s 3 "

static void test_confirmations(void **state)
{
    (void)state;
    start(TALKATIVE);
    has(say("/system be kind"), "system prompt set\r\n");
    has(say("/temp 0.25"), "temperature 0.25\r\n");
    has(say("/reset"), "conversation cleared; the system prompt stays\r\n");
    has(say("/system"), "system prompt removed\r\n");
    has(say("/clear"), "conversation cleared\r\n");
    finish();
    /* Confirmations go to stderr; stdout has only the answers. */
    wt_terminal_start(&t, TALKATIVE ">\"$D/out\"");
    wt_terminal_await(&t, PROMPT);
    say("/temp 0");
    say("/reset");
    finish();
    assert_string_equal(file_text("out"), "");
}

/* A paste is one question, even when it has several lines that look like commands. */
static void test_paste(void **state)
{
    (void)state;
    start(CHAT);
    say(PASTED("1\r2\r3\r4\r5\r6\r7\r8"));
    has(say("/tokens"), "2 messages, ");
    say(PASTED("/save a\r/exit\r"));
    has(say("/tokens"), "4 messages, ");
    say("\"\"\"/exit\"\"\"");
    has(say("/tokens"), "6 messages, ");
    say("/system one\\\rtwo");
    has(say("/tokens"), "7 messages, ");
    finish();
    assert_false(exists("a"));
}

/* /load refuses files that are not a conversation, and keeps the current one. */
static void test_load(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {"", "cannot read "},
        {"{}", "is not a conversation"},
        {"[1]", "message 1 of "},
        {"[{\"role\": \"tool\", \"content\": \"x\"}]", "message 1 of "},
        {"[{\"role\": \"user\", \"content\": 3}]", "message 1 of "},
        {"[{\"role\": \"user\", \"content\": \"x\"}]", "ends with a question"},
        {"[{\"role\": \"assistant\", \"content\": \"\"}, {\"role\": \"system\", \"content\": \"\"}]",
         "message 2 of "},
        {"[[[[[[\x1b[2J", "cannot read "},
    };
    char line[512];
    start(TALKATIVE " -sys 'be kind'");
    say("hello");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "/load %s", wt_put_text(&p.scratch, "bad", bad[i].text));
        const char *said = say(line);
        has(said, bad[i].sentence);
        assert_null(strstr(said, "\x1b[2J"));
    }
    has(say("/load /nowhere/x"), "cannot open '/nowhere/x'");
    has(say("/load /dev/zero"), "'/dev/zero' is not a regular file");
    snprintf(line, sizeof line, "/load %s", wt_path(&p.scratch, "large"));
    assert_int_equal(wt_program_shell(&p, "truncate -s 1G \"$D/large\""), 0);
    has(say(line), "is larger than 16777216 bytes");
    has(say("/tokens"), "3 messages, "); /* the conversation did not change */
    snprintf(line, sizeof line, "/save %s", wt_path(&p.scratch, "good"));
    has(say(line), "saved 3 messages to ");
    say("/reset");
    memcpy(line, "/load", 5);
    has(say(line), "loaded 3 messages from ");
    has(say("/tokens"), "3 messages, ");
    assert_null(strstr(say("/regen"), "no answer yet"));
    snprintf(line, sizeof line, "/load %s",
             wt_put_text(&p.scratch, "object",
                         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                         "{\"role\": \"assistant\", \"content\": \"b\"}]}"));
    has(say(line), "loaded 2 messages from ");
    finish();
}

/* Ctrl-Z returns the terminal to the shell in cooked mode; fg draws the text again. */
static void test_suspend(void **state)
{
    (void)state;
    wt_terminal_start(&t, "set -m; " CHAT "; echo \"stopped $?\"; stty -a | grep -q -e -icanon "
                          "-e -isig -e '-echo ' || echo cooked; fg; echo \"ended $?\"");
    wt_terminal_await(&t, PROMPT);
    wt_terminal_type(&t, "not yet\x1a");
    const char *before = wt_terminal_await(&t, "stopped 148\r\n");
    has(before, "\x1b[?2004l");
    wt_terminal_await(&t, "cooked\r\n");
    wt_terminal_await(&t, PROMPT "not yet");
    wt_terminal_await(&t, "\x1b[?2004h");
    wt_terminal_type(&t, "\x15/exit\r");
    wt_terminal_await(&t, "ended 0\r\n");
    assert_int_equal(wt_terminal_end(&t), 0);
}

/* The history is written to the state folder and recalled with the up key. */
static void test_history(void **state)
{
    (void)state;
    start(CHAT);
    say("a question to remember");
    finish();
    has(file_text("weft/chat_history"), "a question to remember\n");
    start(CHAT);
    wt_terminal_type(&t, "\x1b[A");
    wt_terminal_await(&t, "> a question to remember");
    wt_terminal_type(&t, "\x15");
    finish();
    /* None of these saves the question: two ways to turn the history off, an unwritable folder, a
     * pipe. */
    start(CHAT "--no-history");
    say("a secret");
    finish();
    start("export WEFT_ARG_NO_HISTORY=1; " CHAT);
    say("a secret");
    finish();
    start("export XDG_STATE_HOME=/dev/null; " CHAT);
    say("a secret");
    finish();
    wt_program_shell(&p, "echo a secret | " CHAT);
    assert_null(strstr(file_text("weft/chat_history"), "secret"));
    /* Without XDG_STATE_HOME the history is in the home folder. */
    start("unset XDG_STATE_HOME; export HOME=\"$D\"; " CHAT);
    say("at home");
    finish();
    assert_string_equal(file_text(".local/state/weft/chat_history"), "at home\n");
}

/* Colour is on for a terminal, unless the environment or the flag turns it off. */
static void test_color(void **state)
{
    (void)state;
    static const struct {
        const char *before, *flags;
        bool color;
    } cases[] = {
        {"", "", true},
        {"NO_COLOR=1", "", false},
        {"NO_COLOR=", "", true},
        {"NO_COLOR=1", "--color always", true},
        {"", "--color never", false},
        {"", "--color auto", true},
        {"TERM=dumb", "", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[256];
        snprintf(command, sizeof command, "%s " CHAT "%s", cases[i].before, cases[i].flags);
        wt_terminal_start(&t, command);
        const char *got = wt_terminal_await(&t, "> ");
        assert_int_equal(strstr(got, COLOR) != NULL, cases[i].color);
        if (strstr(cases[i].before, "dumb"))
            assert_null(strchr(got, '\x1b'));
        wt_terminal_type(&t, END);
        assert_int_equal(wt_terminal_end(&t), 0);
    }
    wt_program_fails(&p, 2, "chat " LLAMA " --color blue", "--color must be auto, always or never");
}

/* A long answer wraps on a terminal and is one line in a file. */
static void test_wrapped_answer(void **state)
{
    (void)state;
    find_token(" the", "WORD");
#define WORDS "\"$W\" chat " LLAMA " -q -n 12 --logit-bias $WORD+1000 -p hi -st"
    assert_int_equal(wt_program_shell(&p, WORDS), 0);
    assert_string_equal(p.out, " the the the the the the the the the the the the\n");
    wt_terminal_start(&t, "stty columns 20; " WORDS);
    assert_int_equal(wt_terminal_end(&t), 0);
    assert_string_equal(t.seen, " the the the the the\r\nthe the the the the\r\nthe the\r\n");
}

/* ---- A full context ---- */

/* A full context drops the oldest messages instead of failing. */
static void test_context_shift(void **state)
{
    (void)state;
    char questions[1024] = "", command[1400];
    find_token("a", "LETTER");
    for (int i = 0; i < 12; i++)
        strcat(questions, "a question\\n");
    snprintf(command, sizeof command,
             "printf '%s' | \"$W\" chat " LLAMA " -n 8 -s 1 -sys 'be kind' " LETTERS, questions);
    assert_int_equal(wt_program_shell(&p, command), 0);
    assert_int_equal(count_lines(p.out), 12);
    wt_program_err(&p, "note: the context of 128 tokens is full; the model no longer sees the "
                       "oldest ");
    /* A shift frees half of the context, so not every question needs one. */
    int notes = 0;
    for (const char *at = p.err; (at = strstr(at, "note: ")) != NULL; at++)
        notes += strncmp(at, "note: the context", 17) == 0;
    assert_in_range(notes, 1, 6);
    /* --no-context-shift fails instead. */
    strcat(command, " --no-context-shift");
    assert_int_equal(wt_program_shell(&p, command), 2);
    wt_program_err(&p, "tokens, but the context has only 128; /reset starts a new one");

    /* /save also writes messages that the model no longer sees. */
    char line[512];
    start(TALKATIVE " -sys 'be kind'");
    for (int i = 0; i < 12; i++)
        say("a question");
    has(say("/tokens"), "25 messages, ");
    has(say("/tokens"), "; the model no longer sees ");
    snprintf(line, sizeof line, "/save %s", wt_path(&p.scratch, "whole"));
    has(say(line), "saved 25 messages");
    say("/reset");
    assert_null(strstr(say("/tokens"), "no longer"));
    memcpy(line, "/load", 5);
    has(say(line), "loaded 25 messages");
    has(say("one more"), "the model no longer sees the oldest ");
    finish();
}

static int make(void **state)
{
    (void)state;
    if (wt_program_make(&p) != 0)
        return -1;
    setenv("XDG_STATE_HOME", p.scratch.folder, 1);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_pipe_has_no_commands),
        wt_test(test_wrong_commands),
        wt_test(test_commands),
        wt_test(test_regen),
        wt_test(test_save_asks),
        wt_test(test_control_characters),
        wt_test(test_confirmations),
        wt_test(test_paste),
        wt_test(test_load),
        wt_test(test_suspend),
        wt_test(test_history),
        wt_test(test_color),
        wt_test(test_wrapped_answer),
        wt_test(test_context_shift),
    };
    return cmocka_run_group_tests_name("chat", tests, make, clean);
}
