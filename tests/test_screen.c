/* SPDX-License-Identifier: MIT */
/* test_screen.c - generated text on a terminal: control characters, column counts, word wrap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "cli/screen.c"
#include "cli/width.c"

#include "support.h"

static char got[1 << 16];
static size_t got_len;
static bool works = true;

bool wf_put(const char *bytes, size_t count)
{
    assert_true(got_len + count < sizeof got);
    memcpy(got + got_len, bytes, count);
    got_len += count;
    got[got_len] = '\0';
    return works;
}

#define WIDTH 80

int wf_term_columns(int fd)
{
    (void)fd;
    return WIDTH - 1;
}

static const char *write_in_pieces(const char *text, size_t piece, bool wrap)
{
    wf_screen s;
    size_t len = strlen(text);
    wf_screen_begin(&s, wrap);
    s.terminal = true;
    got_len = 0;
    got[0] = '\0';
    for (size_t at = 0, n; at < len; at += n) {
        n = len - at < piece ? len - at : piece;
        while (at + n < len && ((unsigned char)text[at + n] & 0xC0) == 0x80)
            n++; /* never splits a character */
        assert_true(wf_screen_write(&s, text + at, n));
    }
    assert_true(wf_screen_end(&s));
    return got;
}

/* Expects the same output when the text arrives in pieces of any size. */
static void expect(const char *text, bool wrap, const char *wanted)
{
    for (size_t piece = 1; piece <= strlen(text); piece += 1 + piece / 4)
        assert_string_equal(write_in_pieces(text, piece, wrap), wanted);
}

#define TEN "123456789 "
#define SEVENTY TEN TEN TEN TEN TEN TEN TEN
#define WIDE_TEN "\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad" /* columns */

static void test_control(void **state)
{
    (void)state;
    for (int wrap = 0; wrap < 2; wrap++) {
        expect("\x1b[31mred\x1b]0;title\x07", wrap, "\\x1b[31mred\\x1b]0;title\\x07");
        expect("a\xc2\x9b"
               "2Jb\x7f\x08",
               wrap, "a\\u009b2Jb\\x7f\\x08");
        expect("one\r\ntwo\rthree\r", wrap, "one\ntwo\\rthree\\r");
        expect("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", wrap,
               "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    }
    expect("a\tb\n\tc", false, "a\tb\n\tc");
    expect("a\tb\n\tc", true, "a       b\n        c");
}

static void test_wrap(void **state)
{
    (void)state;
    expect(SEVENTY "1234567890", true, SEVENTY "1234567890"); /* uses all columns */
    expect(SEVENTY "12345678901", true,
           "123456789 123456789 123456789 123456789 123456789 123456789 123456789\n12345678901");
    expect(SEVENTY "1234567890 next", true, SEVENTY "1234567890\nnext");
    expect(SEVENTY "1234567890\nnext", true, SEVENTY "1234567890\nnext");
    expect("a  b\n\n    code\n", true, "a  b\n\n    code\n"); /* keeps indentation */
    /* Combining marks take no column. */
    expect(SEVENTY "12345678e\xcc\x81\xcc\x82"
                   "0",
           true,
           SEVENTY "12345678e\xcc\x81\xcc\x82"
                   "0");
    /* Wide characters take two columns, and a line may break between them. */
    expect(SEVENTY WIDE_TEN "\xe4\xb8\xad", true, SEVENTY WIDE_TEN "\n\xe4\xb8\xad");
    expect("x" SEVENTY WIDE_TEN, true,
           "x" SEVENTY "\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\n\xe4\xb8\xad");
}

/* A word longer than a line is left to the terminal's own wrapping. */
static void test_long_word(void **state)
{
    (void)state;
    char text[1024];
    memset(text, 'w', 700);
    strcpy(text + 700, " next");
    expect(text, true, text); /* 700 = 8 x 80 + 60 */
    char begun[1100], wanted[1100];
    snprintf(begun, sizeof begun, "a %s", text);
    snprintf(wanted, sizeof wanted, "a\n%s", text);
    expect(begun, true, wanted);
}

/* No line is wider than the terminal, unless a word is, and no word is lost. */
static void test_random(void **state)
{
    (void)state;
    static const char *const words[] = {
        "a",         "the",         "of ",          "\n",
        "longer",    "caf\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80",
        "e\xcc\x81", "    "};
    uint64_t x = wt_seed() | 1;
    for (int round = 0; round < 200; round++) {
        char text[4096], bare[2][4096];
        size_t len = 0;
        for (int i = 0; i < 300; i++) {
            x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            len += (size_t)snprintf(text + len, sizeof text - len, "%s ",
                                    words[(x >> 33) % (sizeof words / sizeof *words)]);
        }
        write_in_pieces(text, 1 + (x >> 40) % 50, true);
        const char *both[] = {text, got};
        for (int k = 0; k < 2; k++) {
            size_t n = 0;
            for (const char *c = both[k]; *c; c++)
                if (*c != ' ' && *c != '\n')
                    bare[k][n++] = *c;
            bare[k][n] = '\0';
        }
        assert_string_equal(bare[0], bare[1]);
        int columns = 0;
        for (size_t i = 0; i < got_len;) {
            wf_shown c = wf_width_show(got + i, got_len - i);
            columns = got[i] == '\n' ? 0 : columns + c.columns;
            assert_true(columns <= WIDTH);
            i += c.taken;
        }
    }
}

/* A file or a pipe gets the bytes unchanged. */
static void test_raw(void **state)
{
    (void)state;
    wf_screen s;
    static const char text[] = "\x1b[31m " SEVENTY SEVENTY "\r\n\xff";
    wf_screen_begin(&s, true);
    s.terminal = false;
    got_len = 0;
    assert_true(wf_screen_write(&s, text, sizeof text - 1));
    assert_true(wf_screen_end(&s));
    assert_string_equal(got, text);
    works = false;
    assert_false(wf_screen_write(&s, text, sizeof text - 1));
    s.terminal = true;
    assert_false(wf_screen_write(&s, text, sizeof text - 1));
    works = true;
}

static void test_width(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        int columns;
    } known[] = {{'a', 1},    {0xE9, 1},   {0xAD, 1},    {0x301, 0},   {0x200D, 0},   {0x4E2D, 2},
                 {0xAC00, 2}, {0xFF21, 2}, {0x1F600, 2}, {0x20000, 2}, {0x10FFFF, 1}, {0x2502, 1},
                 {0x0E31, 0}, {0x3042, 2}, {0xE000, 1},  {0xFE0F, 0},  {0x1F468, 2}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (wf_width(known[i].code) != known[i].columns)
            fail_msg("U+%04X is %d columns", (unsigned)known[i].code, wf_width(known[i].code));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control),   cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_long_word), cmocka_unit_test(test_random),
        cmocka_unit_test(test_raw),       cmocka_unit_test(test_width),
    };
    return cmocka_run_group_tests_name("screen", tests, NULL, NULL);
}
