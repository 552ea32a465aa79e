/* SPDX-License-Identifier: MIT */
/*
 * test_cli_help.c - output generated from the flag tables: help, man pages and shell completions.
 *
 * Bash is required; groff, zsh and fish are used when they are installed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "terminal.h"

enum { COMMANDS = 32, FLAGS = 96, COLUMNS = 80 };

static wt_program p;
static char commands[COMMANDS][24]; /* command names, from `weft help` */
static int command_count;

typedef struct {
    char name[48]; /* with its dashes */
    bool value;    /* takes a value */
} flag;

/* Reads the flags from help lines such as "  -x, --name, --other VALUE  description". */
static int read_flags(const char *help, flag *out)
{
    int n = 0;
    for (const char *line = help; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = line + strspn(line, " ");
        if (at - line < 2 || at - line > 6 || *at != '-')
            continue;
        int first = n;
        for (bool more = true; more;) {
            size_t length = strcspn(at, " ,\n");
            assert_true(n < FLAGS && length < sizeof out->name);
            snprintf(out[n++].name, sizeof out->name, "%.*s", (int)length, at);
            more = at[length] == ',';
            at += length + (more ? 2 : 0);
        }
        for (; first < n; first++)
            out[first].value = at[0] == ' ' && isupper((unsigned char)at[1]);
    }
    return n;
}

static int help_flags(const char *command, flag *out)
{
    char args[64];
    snprintf(args, sizeof args, "help %.23s", command);
    wt_program_ok(&p, args);
    return read_flags(p.out, out);
}

/* ---- Help ---- */

/* Help fits into the terminal's width and has no trailing spaces; every command has examples. */
static void test_width(void **state)
{
    (void)state;
    for (int c = -1; c < command_count; c++) {
        char args[64];
        snprintf(args, sizeof args, "help %.23s", c < 0 ? "" : commands[c]);
        wt_program_ok(&p, args);
        for (const char *line = p.out; *line; line += strcspn(line, "\n") + 1) {
            size_t length = strcspn(line, "\n");
            if (length > COLUMNS || (length > 0 && line[length - 1] == ' '))
                fail_msg("weft %s: %zu columns: '%.*s'", args, length, (int)length, line);
        }
        if (c >= 0)
            wt_program_out(&p, "\nexamples:\n  ");
    }
}

/* ---- Man pages ---- */

/* Removes the roff escapes that the pages use. */
static void plain(const char *roff, char *out)
{
    static const char *const escapes[][2] = {{"\\-", "-"},   {"\\e", "\\"}, {"\\fB", ""},
                                             {"\\fI", ""},   {"\\fR", ""},  {"\\(dq", "\""},
                                             {"\\(aq", "'"}, {"\\&", ""}};
    while (*roff) {
        size_t i = 0;
        while (i < 8 && strncmp(roff, escapes[i][0], strlen(escapes[i][0])) != 0)
            i++;
        if (i < 8) {
            strcpy(out, escapes[i][1]);
            out += strlen(out);
            roff += strlen(escapes[i][0]);
        } else {
            *out++ = *roff++;
        }
    }
    *out = '\0';
}

/* Expects every line that begins with a dot to be a macro that man.c prints. */
static void check_macros(const char *page)
{
    static const char *const macros[] = {".TH ", ".SH ", ".SS ", ".TP",  ".PP", ".RS", ".RE", ".nf",
                                         ".fi",  ".nh",  ".ad ", ".BR ", ".B ", ".I ", ".RI "};
    for (const char *line = page; *line; line += strcspn(line, "\n") + 1) {
        bool known = *line != '.' && *line != '\'';
        for (size_t i = 0; i < sizeof macros / sizeof *macros; i++)
            known = known || strncmp(line, macros[i], strlen(macros[i])) == 0;
        if (!known)
            fail_msg("unescaped: %.60s", line);
    }
}

/* The man page of a command lists every flag of its help. */
static void test_man_has_every_flag(void **state)
{
    (void)state;
    static char text[sizeof p.out];
    flag flags[FLAGS];
    for (int c = 0; c < command_count; c++) {
        char args[64], title[64];
        int n = help_flags(commands[c], flags);
        assert_true(n >= 2); /* at least -h and --help */
        snprintf(args, sizeof args, "help %.23s --man", commands[c]);
        wt_program_ok(&p, args);
        check_macros(p.out);
        snprintf(title, sizeof title, "\nweft\\-%.23s \\- ", commands[c]);
        wt_program_out(&p, title);
        plain(p.out, text);
        for (int i = 0; i < n; i++) {
            char *at = text;
            size_t length = strlen(flags[i].name);
            while ((at = strstr(at, flags[i].name)) && !strchr(" ,\n", at[length]))
                at++;
            if (!at)
                fail_msg("the man page of weft %s lacks %s", commands[c], flags[i].name);
        }
    }
}

/* The page weft(1) refers to every command. */
static void test_man_of_the_program(void **state)
{
    (void)state;
    wt_program_ok(&p, "help --man");
    check_macros(p.out);
    for (int c = 0; c < command_count; c++) {
        char line[64];
        snprintf(line, sizeof line, ".BR weft\\-%.23s (1)\n", commands[c]);
        wt_program_out(&p, line);
    }
    wt_program_out(&p, "WEFT_PJRT_PLUGIN");
    wt_program_out(&p, ".SH \"EXIT STATUS\"");
}

/* A backslash in a description is printed as a backslash. */
static void test_man_escapes(void **state)
{
    (void)state;
    wt_program_ok(&p, "help prepare --man");
    wt_program_out(&p, "\\en: newline");
    wt_program_out(&p, "\\fB\\-\\-split\\-on\\fR \\fITEXT\\fR\n");
    if (wt_program_shell(&p, "command -v groff") != 0)
        skip();
    assert_int_equal(
        wt_program_shell(&p, "\"$W\" help prepare --man | groff -man -Tascii -P-c -P-b -P-u"), 0);
    wt_program_out(&p, "\\n: newline");
    wt_program_out(&p, "--split-on TEXT");
}

static void test_man_renders_without_warnings(void **state)
{
    (void)state;
    if (wt_program_shell(&p, "command -v groff") != 0)
        skip();
    for (int c = -1; c < command_count; c++) {
        char line[128];
        snprintf(line, sizeof line, "\"$W\" help %.23s --man | groff -ww -man -Tutf8 -z",
                 c < 0 ? "" : commands[c]);
        assert_int_equal(wt_program_shell(&p, line), 0);
        if (*p.err)
            fail_msg("%s: %s", line, p.err);
    }
}

/* ---- Completion ---- */

/* Completes the last word with the bash script. Prints one candidate per line. The words are as bash
 * splits them; a word that touches the one before is written with '^' in front. */
static void complete(const char *words)
{
    char line[768];
    snprintf(line, sizeof line,
             "bash -c 'source \"$D/weft.bash\"; COMP_WORDS=(); COMP_LINE=; for word in %s; do "
             "[[ -z $COMP_LINE || $word == ^* ]] || COMP_LINE+=\" \"; word=${word#^}; "
             "COMP_WORDS+=(\"$word\"); COMP_LINE+=$word; done; "
             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _weft; printf \"%%s\\n\" \"${COMPREPLY[@]}\"'",
             words);
    int code = wt_program_shell(&p, line);
    if (code != 0 || *p.err)
        fail_msg("%s: exit status %d, stderr '%s'", line, code, p.err);
}

static void expect(const char *words, const char *offers)
{
    complete(words);
    if (strcmp(p.out, offers) != 0)
        fail_msg("%s offers:\n%s\nnot:\n%s", words, p.out, offers);
}

/* Completes commands, flags, values of flags and file names. */
static void test_bash(void **state)
{
    (void)state;
    expect("weft fine", "finetune\n");
    expect("weft nonsense \"\"", "\n");
    expect("weft devices \"\"", "\n");
    expect("weft run --temperat", "--temperature\n");
    expect("weft run -n \"\"", "\n");
    expect("weft run m.gguf --cache-type-k \"\"", "f16\nbf16\nf32\nq8_0\n");
    expect("weft run --device ^= ^chec", "check\n");
    expect("weft run --device ^=", "auto\ncpu\ncuda\ncheck\npjrt\n");
    expect("weft selftest --device pjrt ^: ^README", "README.md\n");
    expect("weft selftest --device ^= ^pjrt ^: ^README", "README.md\n");
    expect("weft selftest --device=pjrt:README",
           "--device=pjrt:README.md\n"); /* without COMP_WORDBREAKS */
    expect("weft train --optimizer \"\"", "adamw\nmuon\nlion\nsgd\n");
    expect("weft train --preset gpt2-1", "gpt2-124M\ngpt2-1558M\n");
    expect("weft train --out inc", "include\n");
    expect("weft train --data READ", "README.md\n");
    expect("weft quantize READ", "README.md\n");
    expect("weft quantize --pure a b Q4_K_", "Q4_K_M\nQ4_K_S\n");
    /* A value with ':' or '=' is one word, also before an operand. */
    expect("weft bench --output ^= ^md --threads 2 deco", "decode\n");
    expect("weft quantize c ^: ^a d ^: ^/b Q4_K_", "Q4_K_M\nQ4_K_S\n");
    expect("weft ops --device pjrt ^: ^x.so attention_g", "attention_grad\n");
    expect("weft ops --device ^= ^pjrt ^: ^x.so attention_g", "attention_grad\n");
    expect("weft ops --device cpu ^: attention_g", "attention_grad\n");
    expect("weft plot a b c READ", "README.md\n");
    expect("weft ops attention_g", "attention_grad\n");
    expect("weft help de", "devices\n");
    expect("weft completion \"\"", "bash\nzsh\nfish\n");
    expect("weft bench --output \"\"", "text\nmd\njson\n");
}

/* Spaces and wildcards in file names survive the completion. */
static void test_bash_paths_with_spaces(void **state)
{
    (void)state;
    assert_int_equal(wt_program_shell(&p, "touch \"$D/a b*.gguf\" \"$D/a bc.gguf\""), 0);
    complete("weft run \"$D/a b\"");
    wt_program_out(&p, "/a b*.gguf\n");
    wt_program_out(&p, "/a bc.gguf\n");
}

/* An interactive bash, which splits the words itself and quotes file names. It neither reads the
 * user's settings nor writes to the user's history. */
static void test_bash_on_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *line;
    } cases[] = {
        {"weft run --devi\tpj\t", "<run><--device><pjrt>"},
        {"weft run --device=chec\t", "<run><--device=check>"},
        {"weft run --device=pjrt:READM\t", "<run><--device=pjrt:README.md>"},
        {"weft run --device pjrt:READM\t", "<run><--device><pjrt:README.md>"},
        {"weft ops --device pjrt:x.so attention_g\t", "<ops><--device><pjrt:x.so><attention_grad>"},
        {"weft ops --device=cpu:1 attention_g\t", "<ops><--device=cpu:1><attention_grad>"},
        {"weft quantize READM\tb:c Q4_K_M\t", "<quantize><README.md><b:c><Q4_K_M>"},
        {"weft quantize $D/a\\ bc\tb Q4_K_M\t", "/a bc.gguf><b><Q4_K_M>"},
    };
    static wt_terminal t;
    assert_int_equal(wt_program_shell(&p, "touch \"$D/a bc.gguf\""), 0);
    wt_terminal_start(&t, "exec env HOME=\"$D\" INPUTRC=/dev/null HISTFILE= bash --norc "
                          "--noprofile -i");
    wt_terminal_type(&t, "bind 'set enable-bracketed-paste off'; PS1='rea''dy> '; "
                         "weft() { printf '<%s>' \"$@\"; echo; }; source \"$D/weft.bash\"\n");
    wt_terminal_await(&t, "ready> ");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wt_terminal_type(&t, cases[i].keys);
        wt_terminal_type(&t, "\n");
        const char *got = wt_terminal_await(&t, "ready> ");
        if (!strstr(got, cases[i].line))
            fail_msg("%s gives:\n%s\nnot %s", cases[i].keys, got, cases[i].line);
    }
    wt_terminal_type(&t, "exit\n");
    wt_terminal_end(&t);
}

/* Completes every command, and every flag of every command in all spellings. */
static void test_bash_has_every_flag(void **state)
{
    (void)state;
    flag flags[FLAGS];
    complete("weft \"\"");
    for (int c = 0; c < command_count; c++) {
        char word[32];
        snprintf(word, sizeof word, "%.23s\n", commands[c]);
        wt_program_out(&p, word);
    }
    for (int c = 0; c < command_count; c++) {
        char words[64];
        int n = help_flags(commands[c], flags);
        snprintf(words, sizeof words, "weft %.23s -", commands[c]);
        complete(words);
        for (int i = 0; i < n; i++) {
            char line[64];
            snprintf(line, sizeof line, "%.47s\n", flags[i].name);
            wt_program_out(&p, line);
        }
    }
}

/* zsh loads the script without errors. */
static void test_zsh(void **state)
{
    (void)state;
    wt_program_ok(&p, "completion zsh");
    assert_int_equal(strncmp(p.out, "#compdef weft\n", 14), 0);
    if (wt_program_shell(&p, "command -v zsh") != 0)
        skip();
    assert_int_equal(
        wt_program_shell(&p, "\"$W\" completion zsh >\"$D/_weft\" && zsh -n \"$D/_weft\" && "
                             "zsh -f -c 'autoload -Uz compinit; compinit -D; "
                             "source \"$D/_weft\"; print $_comps[weft]'"),
        0);
    assert_string_equal(p.out, "_weft\n");
    assert_string_equal(p.err, "");
}

static void fish_offers(const char *line, const char *offer, bool wanted)
{
    char command[256];
    snprintf(command, sizeof command,
             "HOME=\"$D\" fish -c 'source \"$D/weft.fish\"; complete -C \"%s\"'", line);
    assert_int_equal(wt_program_shell(&p, command), 0);
    if ((strstr(p.out, offer) != NULL) != wanted)
        fail_msg("fish: %s %s '%s':\n%s", line, wanted ? "lacks" : "has", offer, p.out);
}

/* fish loads the script and offers flags of the right command only. */
static void test_fish(void **state)
{
    (void)state;
    wt_program_ok(&p, "completion fish");
    if (wt_program_shell(&p, "command -v fish") != 0)
        skip();
    assert_int_equal(wt_program_shell(&p, "\"$W\" completion fish >\"$D/weft.fish\" && "
                                          "HOME=\"$D\" fish -n \"$D/weft.fish\""),
                     0);
    fish_offers("weft fine", "finetune\t", true);
    fish_offers("weft help fine", "finetune", true);
    fish_offers("weft run --temperat", "--temperature", true);
    fish_offers("weft devices --temperat", "--temperature", false);
    fish_offers("weft train --optimizer ", "muon", true);
    fish_offers("weft quantize a b Q4", "Q4_K_M", true);
    fish_offers("weft quantize Q4", "Q4_K_M", false);
    fish_offers("weft ops --device cpu attention_g", "attention_grad", true);
    fish_offers("weft ops --json --device=cpu attention_g", "attention_grad", true);
    fish_offers("weft ops --device attention_g", "attention_grad", false);
    fish_offers("weft ops abs attention_g", "attention_grad", false);
    fish_offers("weft run READ", "README.md", true);
    fish_offers("weft devices READ", "README.md", false);
    fish_offers("weft train --data READ", "README.md", true);
}

static void test_bad_input(void **state)
{
    (void)state;
    wt_program_fails(&p, 2, "completion", "the shell is missing; give bash, zsh or fish");
    wt_program_fails(&p, 2, "completion fisch", "unknown shell 'fisch'; did you mean 'fish'?");
    wt_program_fails(&p, 2, "completion bash zsh", "'zsh' is one argument too many");
    wt_program_fails(&p, 2, "help nonsense --man", "unknown command 'nonsense'");
}

/* ---- The program ---- */

static int set_up(void **state)
{
    (void)state;
    if (wt_program_make(&p) != 0)
        return -1;
    assert_int_equal(
        wt_program_shell(&p, "\"$W\" completion bash >\"$D/weft.bash\" && \"$W\" help"), 0);
    const char *line = strstr(p.out, "commands:\n");
    assert_non_null(line);
    for (line += 10; *line == ' '; line += strcspn(line, "\n") + 1) {
        assert_true(command_count < COMMANDS);
        snprintf(commands[command_count++], sizeof commands[0], "%.*s", (int)strcspn(line + 2, " "),
                 line + 2);
    }
    assert_true(command_count > 15);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_width),
        cmocka_unit_test(test_man_has_every_flag),
        cmocka_unit_test(test_man_of_the_program),
        cmocka_unit_test(test_man_escapes),
        cmocka_unit_test(test_man_renders_without_warnings),
        cmocka_unit_test(test_bash),
        cmocka_unit_test(test_bash_paths_with_spaces),
        cmocka_unit_test(test_bash_on_a_terminal),
        cmocka_unit_test(test_bash_has_every_flag),
        cmocka_unit_test(test_zsh),
        cmocka_unit_test(test_fish),
        cmocka_unit_test(test_bad_input),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
