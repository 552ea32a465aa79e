/* SPDX-License-Identifier: MIT */
/* test_line.c - the line reader of `weft chat`: keys on a terminal, and lines from a pipe. */
#define _XOPEN_SOURCE 700 /* posix_openpt */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/keys.c"
#include "cli/line.c"
#include "cli/line_history.c"
#include "cli/term.c"
#include "cli/typed.c"
#include "cli/width.c"

#include "scratch.h"
#include "support.h"

#define PROMPT "you> "

/* A child process that reads lines and sends them back, each followed by '|'. */
typedef struct {
    pid_t child;
    int keys, lines; /* keys: the terminal, or a pipe */
} reader;

static const char *history_file;
static bool color, dumb;

/* Reads lines in the child and writes each to `out`, with '|' after it. */
static void read_lines(int out)
{
    wf_ctx *ctx;
    wf_line *l;
    const char *text;
    const wf_line_options options = {.history = history_file, .color = color};
    setenv("TERM", dumb ? "dumb" : "xterm", 1);
    if (wf_ctx_new(&ctx) != WF_OK || wf_line_new(ctx, &options, &l) != WF_OK)
        _exit(1);
    while (wf_line_read(l, PROMPT, &text) == WF_OK && text)
        if (dprintf(out, "%s%s|", wf_line_quoted(l) ? "quoted:" : "", text) < 0)
            _exit(1);
    wf_line_free(l);
    _exit(wt_live_blocks(ctx) == 0 ? 0 : 2);
}

/* Reads everything up to and including `until`. Fails after 20 seconds. */
static void await(int fd, const char *until, char *got, size_t cap)
{
    size_t len = 0;
    got[0] = '\0';
    while (!strstr(got, until)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        assert_true(len + 1 < cap);
        assert_int_equal(read(fd, got + len, 1), 1);
        got[++len] = '\0';
    }
}

/* Starts a reader on a new pseudo-terminal, or on a pipe. */
static reader start(bool terminal)
{
    reader r;
    int out[2], in[2], slave = -1;
    assert_int_equal(pipe(out), 0);
    if (terminal) {
        r.keys = posix_openpt(O_RDWR | O_NOCTTY);
        assert_true(r.keys >= 0 && grantpt(r.keys) == 0 && unlockpt(r.keys) == 0);
        slave = open(ptsname(r.keys), O_RDWR | O_NOCTTY);
        assert_true(slave >= 0);
    } else {
        assert_int_equal(pipe(in), 0);
        slave = in[0];
        r.keys = in[1];
    }
    fflush(NULL);
    r.child = fork();
    assert_true(r.child >= 0);
    if (r.child == 0) {
        close(out[0]);
        close(r.keys);
        dup2(slave, STDIN_FILENO);
        if (terminal)
            dup2(slave, STDERR_FILENO);
        read_lines(out[1]);
    }
    close(slave);
    close(out[1]);
    r.lines = out[0];
    char got[64];
    if (terminal)
        await(r.keys, color || dumb ? PROMPT : "\r" PROMPT, got, sizeof got);
    return r;
}

static void type_only(reader *r, const char *keys)
{
    assert_int_equal(write(r->keys, keys, strlen(keys)), strlen(keys));
}

/* Types keys, expects a line, and returns at the next prompt: earlier, the terminal itself would
 * act on some keys. */
static void type(reader *r, const char *keys, const char *wanted)
{
    char got[8192];
    type_only(r, keys);
    await(r->lines, "|", got, sizeof got);
    got[strlen(got) - 1] = '\0';
    assert_string_equal(got, wanted);
    await(r->keys, "\n\r" PROMPT, got, sizeof got);
}

static void finish(reader *r)
{
    int status;
    char byte;
    struct pollfd p = {.fd = r->lines, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(read(r->lines, &byte, 1), 0);
    assert_int_equal(waitpid(r->child, &status, 0), r->child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(r->keys);
    close(r->lines);
}

#define UP "\x1b[A"
#define DOWN "\x1b[B"
#define RIGHT "\x1b[C"
#define LEFT "\x1bOD"
#define HOME "\x1b[H"
#define END "\x1b[4~"
#define DEL "\x1b[3~"
#define BACK "\x7f"

/* Editing keys, including multi-byte characters. */
static void test_keys(void **state)
{
    (void)state;
    reader r = start(true);
    type(&r, "hello\r", "hello");
    type(&r, "helo" LEFT "l\r", "hello");
    type(&r, "bc" HOME "a" END "d\r", "abcd");
    type(&r, "abxc" LEFT BACK "\r", "abc");
    type(&r, "xabc" HOME DEL "\r", "abc");
    type(&r, "ac" LEFT LEFT LEFT RIGHT "b\r", "abc");
    type(&r, BACK BACK DEL "x\r", "x");
    type(&r, "one two  \x17three\r", "one three"); /* Ctrl-W */
    type(&r, "one\x15two\r", "two");               /* Ctrl-U */
    type(&r,
         "one two" HOME "\x0b"
         "x\r",
         "x");                                             /* Ctrl-K */
    type(&r, "a\tb\x1b[15~\x1b[1;5C\x01" END "\r", "a b"); /* keys without a function */
    type(&r, "abc\x02\x04\r", "ab"); /* Ctrl-D deletes when the line is not empty */
    /* characters of two, three and four bytes */
    type(&r, "h\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80" BACK LEFT BACK "e\r", "he\xe4\xb8\xad");
    type(&r, "\xc3\xa9\xc3\xa8" LEFT LEFT DEL "\r", "\xc3\xa8");
    type_only(&r, "\x04");
    finish(&r);
}

/* Up and down recall lines; the line being edited is kept. */
static void test_history(void **state)
{
    (void)state;
    reader r = start(true);
    type(&r, UP DOWN "first\r", "first");
    type(&r, "second\r", "second");
    type(&r, "second\r", "second"); /* stored once */
    type(&r, "kept" UP UP "!\r", "first!");
    type(&r, "kept" UP UP DOWN DOWN "!\r", "kept!");
    type(&r, UP UP UP UP UP UP DOWN "\r", "second");
    type(&r, UP DOWN "new\r", "new");
    type(&r, "\r", "");
    type(&r, UP "\r", "new"); /* empty lines are not stored */
    for (int i = 0; i < WF_HISTORY_ENTRIES + 5; i++) {
        char keys[32], wanted[32];
        snprintf(keys, sizeof keys, "line %d\r", i);
        snprintf(wanted, sizeof wanted, "line %d", i);
        type(&r, keys, wanted);
    }
    type(&r, UP UP UP "\r", "line 1002");
    type_only(&r, "\x04");
    finish(&r);
}

/* Ctrl-C discards the line, Ctrl-D ends the input, and so does a closed terminal. */
static void test_ends(void **state)
{
    (void)state;
    reader r = start(true);
    type(&r, "never mind\x03", "");
    type(&r, "a\\\rb\\\rc\r", "a\nb\nc");
    type(&r, "a\\\rb\x03", "");
    type(&r, "\r", "");
    type_only(&r, "\x04");
    finish(&r);

    /* the terminal goes away */
    r = start(true);
    type(&r, "x\r", "x");
    close(r.keys);
    r.keys = dup(r.lines);
    finish(&r);
}

/* Shows part of a line that is wider than the terminal. */
static void test_wide(void **state)
{
    (void)state;
    reader r = start(true);
    struct winsize size = {.ws_row = 5, .ws_col = 16}; /* leaves 10 columns after the prompt */
    assert_int_equal(ioctl(r.keys, TIOCSWINSZ, &size), 0);
    char got[8192];
    type_only(&r, "abcdefghijklm");
    await(r.keys, "\r" PROMPT "defghijklm\x1b[K", got, sizeof got);
    type_only(&r, HOME);
    await(r.keys, "\r" PROMPT "abcdefghij\x1b[K\x1b[10D", got, sizeof got);
    type_only(&r, "\xe4\xb8\xad");
    await(r.keys,
          "\r" PROMPT "\xe4\xb8\xad"
          "abcdefgh\x1b[K\x1b[8D",
          got, sizeof got);
    type_only(&r, "\r");
    await(r.lines, "|", got, sizeof got);
    assert_string_equal(got, "\xe4\xb8\xad"
                             "abcdefghijklm|");
    /* before the prompt, the terminal would take the Ctrl-D */
    await(r.keys, "\n\r" PROMPT, got, sizeof got);
    type_only(&r, "\x04");
    finish(&r);
}

/* From a pipe each line is taken literally. */
static void test_pipe(void **state)
{
    (void)state;
    reader r = start(false);
    char got[512];
    type_only(&r, "one\ntwo\r\n\nthree \\\nfour\nlast");
    close(r.keys);
    await(r.lines, "last|", got, sizeof got);
    assert_string_equal(got, "one|two||three \\|four|last|");
    r.keys = dup(r.lines);
    finish(&r);
}

/* Fails each allocation in turn; nothing leaks. */
static void test_memory(void **state)
{
    wf_ctx *ctx = *state;
    bool whole = false;
    for (uint64_t n = 1; !whole; n++) {
        static const char text[] = "abcdefghijklmnopqrstuvwxyz\n";
        FILE *from = tmpfile();
        assert_non_null(from);
        assert_int_equal(fwrite(text, 1, sizeof text - 1, from), sizeof text - 1);
        rewind(from);
        int saved = dup(STDIN_FILENO);
        assert_int_equal(dup2(fileno(from), STDIN_FILENO), STDIN_FILENO);
        wf_line *l;
        const char *line;
        wf_ctx_fail_allocation(ctx, n);
        wf_status status = wf_line_new(ctx, NULL, &l);
        if (status == WF_OK)
            status = wf_line_read(l, "", &line);
        whole = status == WF_OK;
        wf_ctx_fail_allocation(ctx, 0);
        if (whole)
            assert_string_equal(line, "abcdefghijklmnopqrstuvwxyz");
        else
            assert_int_equal(status, WF_ERR_MEMORY);
        wf_line_free(l);
        assert_int_equal(wt_live_blocks(ctx), 0);
        fflush(stdin); /* discards read-ahead */
        clearerr(stdin);
        dup2(saved, STDIN_FILENO);
        close(saved);
        fclose(from);
    }
}

/* ---- Several lines ---- */

#define PASTED(text) "\x1b[200~" text "\x1b[201~"

/* A bracketed paste is text, whatever it contains. */
static void test_paste(void **state)
{
    (void)state;
    reader r = start(true);
    char got[8192];
    type(&r, PASTED("1\r2\r\n3\n4\r5\r6\r7\r8") "\r", "1\n2\n3\n4\n5\n6\n7\n8");
    type(&r, PASTED("one\rtwo\r") "\r", "one\ntwo"); /* drops the final newline */
    type(&r, "a" PASTED("b") "c\r", "abc");
    type(&r, PASTED("a\tb") "\r", "a\tb"); /* keeps tabs */
    /* In a paste, control bytes are not keys, and escape sequences lose their escape. */
    type(&r, "x" PASTED("a\x03\x04\x1a\x15\x1b[Ab\x1b[20c\x7f") "\r", "xa[Ab[20c");
    type(&r, PASTED("\x1b\x1b[201") "\r", "[201");
    type(&r, PASTED("") "\r", "");
    type(&r, UP UP "\r", "xa[Ab[20c"); /* a paste is one history entry */
    type(&r, PASTED("first\rsecond") UP "!" DOWN "?\r", "first!\nsecond?");
    type(&r, PASTED("first\rsecond") HOME BACK "\r", "firstsecond");
    type(&r, PASTED("\"\"\"not a block\r") "\r", "\"\"\"not a block");
    /* Each line has its own row, and the cursor keeps its place. */
    type_only(&r, PASTED("ab\rcd"));
    await(r.keys, "\r" PROMPT "ab\x1b[K\r\n\r... cd\x1b[K", got, sizeof got);
    type_only(&r, UP LEFT);
    await(r.keys, "\x1b[1A\r\x1b[6C", got, sizeof got);
    type_only(&r, "\x15"); /* Ctrl-U: deletes to the start of the line */
    await(r.keys, "\r" PROMPT "b\x1b[K\r\n\r... cd\x1b[K", got, sizeof got);
    type(&r, DEL DEL "\r", "cd");
    type_only(&r, "\x04");
    finish(&r);
}

/* Bracketed paste is on only while a text is read. */
static void test_paste_mode(void **state)
{
    (void)state;
    reader r = start(true);
    char got[8192];
    await(r.keys, "\x1b[?2004h", got, sizeof got);
    type_only(&r, "x\r");
    await(r.keys, "\x1b[?2004l\r\n", got, sizeof got);
    assert_null(strstr(got, "\x1b[?2004h"));
    await(r.keys, "\x1b[?2004h", got, sizeof got);
    type_only(&r, "\x04");
    await(r.keys, "\x1b[?2004l", got, sizeof got);
    await(r.lines, "|", got, sizeof got);
    finish(&r);
}

/* Triple quotes start a text of several lines. */
static void test_quotes(void **state)
{
    (void)state;
    reader r = start(true);
    type(&r, "\"\"\"\rone\r/two\\\r\"\"\"\r", "quoted:one\n/two\\");
    type(&r, "\"\"\"one\r\rtwo\"\"\" \r", "quoted:one\n\ntwo");
    type(&r, "\"\"\"one\"\"\"\r", "quoted:one");
    type(&r, "\"\"\"\rone\"\"\"\x1b\r \r", "quoted:one");
    type(&r, "\"\"\"\"\"\"\r", "quoted:");
    type(&r, "\"\"\"\rone\x03", "");
    type(&r, "say \"\"\"\r", "say \"\"\""); /* quotes count only at the start */
    type(&r, UP UP UP "\r", "one\n\ntwo");  /* the history has the text without quotes */
    type(&r, "a\x1b\rb\r", "a\nb");         /* Alt-Enter */
    type_only(&r, "\x04");
    finish(&r);
}

/* A dumb terminal receives no escape sequences. */
static void test_dumb(void **state)
{
    (void)state;
    char got[8192];
    dumb = true;
    reader r = start(true);
    dumb = false;
    type_only(&r, "hello\n");
    await(r.lines, "hello|", got, sizeof got);
    type_only(&r, "a\\\nb\n\"\"\"\nc\nd\"\"\"\n");
    await(r.lines, "quoted:c\nd|", got, sizeof got);
    assert_string_equal(got, "a\nb|quoted:c\nd|");
    type_only(&r, "\x04");
    finish(&r);
}

static void test_color(void **state)
{
    (void)state;
    char got[8192];
    color = true;
    reader r = start(true);
    color = false;
    type_only(&r, "hi");
    await(r.keys, "\r" COLOR PROMPT "hi" PLAIN "\x1b[K", got, sizeof got);
    type_only(&r, "\x15\x04");
    finish(&r);
}

/* Control characters from a paste or the history are escaped on the screen. */
static void test_harmless(void **state)
{
    (void)state;
    char got[8192];
    reader r = start(true);
    type_only(&r, PASTED("a\xc2\x9b"
                         "31mb\xff"
                         "c\tz"));
    await(r.keys, "\r" PROMPT "a\\u009b31mb\\xffc    z\x1b[K", got, sizeof got);
    type_only(&r, "\x15\x04");
    finish(&r);
}

static uint64_t chance;

static unsigned draw_number(unsigned below)
{
    chance = chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(chance >> 33) % below;
}

/* Types random keys, and pastes random bytes without escapes. None of them ends the text. */
static void type_at_random(reader *r)
{
    static const char *const keys[] = {
        UP,     DOWN,   LEFT,       RIGHT,          HOME,       END,
        DEL,    BACK,   "\x15",     "\x17",         "a",        "\x0b",
        " ",    "\t",   "\x1b\r",   "word ",        "\x0c",     "\x1b[19~",
        "long", "word", "\xc3\xa9", "\xe4\xb8\xad", "e\xcc\x81"};
    for (unsigned n = 1 + draw_number(40); n > 0; n--) {
        char text[128];
        int len = sprintf(text, "\x1b[200~");
        if (draw_number(8) > 0) {
            type_only(r, keys[draw_number(sizeof keys / sizeof *keys)]);
            continue;
        }
        for (unsigned bytes = draw_number(60); bytes > 0; bytes--) {
            char byte = (char)draw_number(256);
            text[len++] = byte == '\x1b' || byte == '\0' ? '\r' : byte;
        }
        sprintf(text + len, "\x1b[201~");
        type_only(r, text);
    }
}

/* Returns whether the output is UTF-8 with only line ends and drawing sequences as controls. */
static bool is_drawing(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t length = wf_text_utf8(text + i, n - i);
        if (text[i] == '\x1b' && i + 1 < n && text[i + 1] == '[') {
            i += 2 + strspn(text + i + 2, "?0123456789");
            if (!strchr("KJACDHhl", text[i++]))
                return false;
            continue;
        }
        if (length == 0 || (text[i] != '\r' && text[i] != '\n' && text[i] != '\a' &&
                            !wf_text_harmless(text + i, length)))
            return false;
        i += length;
    }
    return true;
}

/* Random keys, pastes and window sizes: the output stays printable and the reader usable. */
static void test_random_keys(void **state)
{
    (void)state;
    chance = wt_seed();
    reader r = start(true);
    for (int round = 0; round < 60; round++) {
        static char got[1 << 20];
        struct winsize size = {.ws_row = (unsigned short)(1 + draw_number(8)),
                               .ws_col = (unsigned short)(2 + draw_number(40))};
        assert_int_equal(ioctl(r.keys, TIOCSWINSZ, &size), 0);
        assert_int_equal(kill(r.child, SIGWINCH), 0);
        type_at_random(&r);
        type_only(&r, "\x03");
        await(r.lines, "|", got, sizeof got);
        assert_string_equal(got, "|");
        await(r.keys, "^C\x1b[?2004l\r\n\r" PROMPT, got, sizeof got);
        assert_true(is_drawing(got, strlen(got)));
        type(&r, "ok\r", "ok");
    }
    type_only(&r, "\x04");
    finish(&r);
}

/* ---- Signals ---- */

static bool is_cooked(int terminal)
{
    struct termios now;
    assert_int_equal(tcgetattr(terminal, &now), 0);
    return (now.c_lflag & ICANON) && (now.c_lflag & ECHO) && (now.c_lflag & ISIG);
}

/* A deadly signal restores the terminal before it ends the process. */
static void test_deadly_signals(void **state)
{
    (void)state;
    static const int deadly[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
        char got[8192];
        int status;
        reader r = start(true);
        await(r.keys, "\x1b[?2004h", got, sizeof got);
        type_only(&r, PASTED("some\rtext"));
        await(r.keys, "... text\x1b[K", got, sizeof got);
        assert_false(is_cooked(r.keys));
        assert_int_equal(kill(r.child, deadly[i]), 0);
        await(r.keys, "\x1b[?2004l", got, sizeof got);
        assert_int_equal(waitpid(r.child, &status, 0), r.child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == deadly[i]);
        assert_true(is_cooked(r.keys));
        close(r.keys);
        close(r.lines);
    }
}

/* After SIGSTOP, which cannot be caught, the reader sets up the terminal and draws the text
 * again. */
static void test_stopped(void **state)
{
    (void)state;
    char got[8192];
    int status;
    reader r = start(true);
    type_only(&r, "text");
    await(r.keys, "text\x1b[K", got, sizeof got);
    assert_int_equal(kill(r.child, SIGSTOP), 0);
    assert_int_equal(waitpid(r.child, &status, WUNTRACED), r.child);
    assert_true(WIFSTOPPED(status));
    struct termios shells; /* the mode that a shell sets meanwhile */
    assert_int_equal(tcgetattr(r.keys, &shells), 0);
    shells.c_lflag |= ICANON | ECHO | ISIG;
    assert_int_equal(tcsetattr(r.keys, TCSANOW, &shells), 0);
    assert_int_equal(kill(r.child, SIGCONT), 0);
    await(r.keys, "\r" PROMPT "text\x1b[K\x1b[?2004h", got, sizeof got);
    assert_false(is_cooked(r.keys));
    type(&r, "!\r", "text!");
    type_only(&r, "\x04");
    finish(&r);
}

static void test_resize(void **state)
{
    (void)state;
    char got[8192];
    reader r = start(true);
    struct winsize size = {.ws_row = 5, .ws_col = 16};
    type_only(&r, "abcdefghijklm");
    await(r.keys, "\r" PROMPT "abcdefghijklm\x1b[K", got, sizeof got);
    assert_int_equal(ioctl(r.keys, TIOCSWINSZ, &size), 0);
    assert_int_equal(kill(r.child, SIGWINCH), 0);
    /* The terminal wrapped the line, so its first row is one row up. */
    await(r.keys, "\x1b[1A\r" PROMPT "defghijklm\x1b[K\x1b[J", got, sizeof got);
    type(&r, "\r", "abcdefghijklm");
    type_only(&r, "\x04");
    finish(&r);
}

/* ---- The history file ---- */

/* Two readers append to one file, with permissions 0600. */
static void test_history_file(void **state)
{
    (void)state;
    wt_scratch scratch;
    char path[512];
    struct stat st;
    wt_scratch_make(&scratch);
    snprintf(path, sizeof path, "%s", wt_path(&scratch, "history"));
    history_file = path;
    reader a = start(true), b = start(true); /* two readers at once */
    type(&a, "from a\r", "from a");
    type(&b, PASTED("from b\rback\\slash\\n") "\r", "from b\nback\\slash\\n");
    type(&a, "again a\r", "again a");
    type(&a, UP UP "\r", "from a"); /* each has its own history until it ends */
    type_only(&a, "\x04");
    finish(&a);
    type_only(&b, "\x04");
    finish(&b);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    a = start(true);
    type(&a, UP UP UP UP UP "\r", "from a");
    type(&a, UP UP UP UP "\r", "from b\nback\\slash\\n");
    type_only(&a, "\x04");
    finish(&a);
    history_file = NULL;
    wt_scratch_remove(&scratch);
}

/* Reads only text from a history file that another program wrote, and trims it to the limits. */
static void test_history_hostile(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch scratch;
    static wf_line_history h;
    wt_scratch_make(&scratch);
    static const char odd[] = "good\n\n\x1b[2Jescape\xc2\x9b\nnul\0inside\n\xff\xfe\nlast";
    wf_line_history_open(ctx, wt_put(&scratch, "odd", odd, sizeof odd - 1), &h);
    assert_int_equal(h.count, 4);
    assert_string_equal(h.entry[1], "[2Jescape");
    assert_string_equal(h.entry[2], "nulinside");
    assert_string_equal(h.entry[3], "last");
    wf_line_history_add(&h, "new");
    wf_line_history_close(&h);
    wf_line_history_open(ctx, wt_path(&scratch, "odd"), &h);
    assert_int_equal(h.count, 5);
    assert_string_equal(h.entry[4], "new");
    wf_line_history_close(&h);

    /* A file that is too large or has too many lines is trimmed to the newest. */
    size_t size = 3 * WF_HISTORY_BYTES;
    char *large = malloc(size);
    assert_non_null(large);
    for (int round = 0; round < 2; round++) {
        struct stat st;
        size_t line = round == 0 ? 5000 : 4, bytes = round == 0 ? size : size / 100;
        memset(large, 'x', bytes);
        for (size_t i = line; i < bytes; i += line)
            large[i] = '\n';
        memcpy(large + bytes - 5, "\nend\n", 5);
        wf_line_history_open(ctx, wt_put(&scratch, "large", large, bytes), &h);
        assert_true(h.count > 1 && h.count <= WF_HISTORY_ENTRIES);
        assert_string_equal(h.entry[h.count - 1], "end");
        assert_int_equal(stat(wt_path(&scratch, "large"), &st), 0);
        assert_true(st.st_size <= (off_t)WF_HISTORY_BYTES / 2);
        wf_line_history_close(&h);
        wf_line_history_open(ctx, wt_path(&scratch, "large"), &h);
        assert_string_equal(h.entry[h.count - 1], "end");
        wf_line_history_close(&h);
    }
    memset(large, 'y', size); /* a single line */
    wf_line_history_open(ctx, wt_put(&scratch, "large", large, size), &h);
    assert_int_equal(h.count, 0);
    wf_line_history_close(&h);
    free(large);

    /* Devices, folders and unwritable paths are not an error. */
    static const char *const bad[] = {"/dev/null", "/dev/zero", "/", "/nowhere/history"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_line_history_open(ctx, bad[i], &h);
        wf_line_history_add(&h, "text");
        assert_int_equal(h.count, 1);
        wf_line_history_close(&h);
    }
    assert_int_equal(mkfifo(wt_path(&scratch, "pipe"), 0600), 0);
    wf_line_history_open(ctx, wt_path(&scratch, "pipe"), &h);
    wf_line_history_add(&h, "text");
    wf_line_history_close(&h);
    wt_scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_keys),        wt_test(test_history),        wt_test(test_ends),
        wt_test(test_wide),        wt_test(test_pipe),           wt_test(test_memory),
        wt_test(test_paste),       wt_test(test_paste_mode),     wt_test(test_quotes),
        wt_test(test_dumb),        wt_test(test_color),          wt_test(test_harmless),
        wt_test(test_random_keys), wt_test(test_deadly_signals), wt_test(test_stopped),
        wt_test(test_resize),      wt_test(test_history_file),   wt_test(test_history_hostile),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("line", tests, NULL, NULL);
}
