/* SPDX-License-Identifier: MIT */
/* cmd_tokenize.c - weft tokenize: converts text to ids and back. */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/open.h"
#include "cli/prompt.h"
#include "cli/screen.h"
#include "cli/text_ids.h"
#include "cli/tokenize_train.h"

static struct {
    wf_values prompts, files;
    bool ids, decode, special, no_special, control, no_escape, json;
} options;

/* ---- Text to ids ---- */

/* Prints a token on one line; control characters are escaped. */
static void print_token(const char *token, size_t bytes)
{
    putchar('"');
    char one[WF_TEXT_ESCAPE];
    for (size_t i = 0; i < bytes;) {
        bool quoted = token[i] == '"' || token[i] == '\\';
        i += wf_text_escape(one, token + i, bytes - i);
        printf("%s%s", quoted ? "\\" : "", one);
    }
    puts("\"");
}

/* Prints ids as they arrive. */
typedef struct {
    const wf_tokenizer *t;
    wf_json *j;   /* with --json */
    size_t count; /* ids printed so far */
} printer;

static void put_id(printer *p, int32_t id)
{
    size_t bytes = 0;
    const char *token = wf_tokenizer_token(p->t, id, &bytes);
    if (options.json) {
        wf_json_object_begin(p->j);
        wf_json_key(p->j, "id");
        wf_json_int(p->j, id);
        wf_json_key(p->j, "token");
        wf_json_text(p->j, token ? token : "", token ? bytes : 0);
        wf_json_object_end(p->j);
    } else if (options.ids) {
        printf("%s%d", p->count ? ", " : "[", id);
    } else {
        printf("%7d  ", id);
        print_token(token ? token : "", token ? bytes : 0);
    }
    p->count++;
}

/* Stops when stdout accepts no more bytes. */
static wf_status put_ids(void *user, const int32_t *ids, size_t count, bool *enough)
{
    for (size_t i = 0; i < count; i++)
        put_id(user, ids[i]);
    *enough = ferror(stdout) != 0;
    return WF_OK;
}

/* Prints the ids of a file or, if path is NULL, of a prompt. */
static wf_status encode(wf_ctx *ctx, const wf_tokenizer *t, const char *path, const wf_prompt *text,
                        wf_json *j)
{
    printer p = {.t = t, .j = j};
    wf_text_ids x = {.ctx = ctx,
                     .tokenizer = t,
                     .flags = (options.no_special ? 0 : WF_TEXT_SPECIAL) |
                              (options.control ? WF_TEXT_CONTROL : 0),
                     .fn = put_ids,
                     .user = &p};
    if (options.json)
        wf_json_array_begin(j);
    WF_TRY(path ? wf_text_ids_file(&x, path) : wf_text_ids_memory(&x, text->text, text->bytes));
    if (options.json)
        wf_json_array_end(j);
    else if (options.ids)
        puts(p.count ? "]" : "[]");
    wf_open_say("%zu token%s, %zu byte%s", p.count, WF_PLURAL(p.count), x.bytes,
                WF_PLURAL(x.bytes));
    return WF_OK;
}

/* ---- Ids to text ---- */

/* Parses ids separated by spaces, commas and brackets. The caller frees *out, after a failure as
 * well. */
static wf_status read_ids(wf_ctx *ctx, const wf_tokenizer *t, const char *s, int32_t **out,
                          size_t *count)
{
    /* An id takes a digit and a separator at least. */
    int32_t *ids = *out = wf_mem_array(ctx, strlen(s) / 2 + 1, sizeof *ids);
    *count = 0;
    if (!ids)
        return WF_ERR_MEMORY;
    for (s += strspn(s, " \t\r\n,[]"); *s; s += strspn(s, " \t\r\n,[]")) {
        int64_t id = 0;
        size_t digits = strspn(s, "0123456789"), word = strcspn(s, " \t\r\n,[]");
        /* Stops before id could overflow; such a value is refused below. */
        for (size_t i = 0; i < digits && id <= INT32_MAX; i++)
            id = id * 10 + (s[i] - '0');
        char shown[WF_TEXT_SHOWN];
        if (digits != word || id >= wf_tokenizer_count(t))
            return wf_fail(ctx, WF_ERR_USAGE, "'%s' is not an id; ids are 0 to %d",
                           wf_text_show(shown, s, word), wf_tokenizer_count(t) - 1);
        ids[(*count)++] = (int32_t)id;
        s += word;
    }
    return WF_OK;
}

/* Streams the decoded text to stdout. */
static wf_status print_text(wf_ctx *ctx, const wf_tokenizer *t, const int32_t *ids, size_t count,
                            uint32_t flags, size_t *bytes)
{
    wf_decoder *d;
    const char *text;
    size_t n;
    wf_screen screen;
    bool terminal = isatty(STDOUT_FILENO), heard = true;
    *bytes = 0;
    WF_TRY(wf_decoder_new(t, ctx, flags, &d));
    wf_screen_begin(&screen, false);
    wf_status status = WF_OK;
    for (size_t i = 0; i <= count && status == WF_OK && heard && !ferror(stdout); i++) {
        status = i < count ? wf_decoder_next(d, ids[i], &text, &n) : wf_decoder_end(d, &text, &n);
        if (terminal) /* a pipe does not need the flush of every write */
            heard = wf_screen_write(&screen, text, n);
        else
            fwrite(text, 1, n, stdout);
        *bytes += n;
    }
    if (heard)
        wf_screen_end(&screen);
    if (heard && terminal && !wf_open_set.quiet)
        putchar('\n'); /* puts the count on its own line */
    wf_decoder_free(d);
    return status;
}

static wf_status decode(wf_ctx *ctx, const wf_tokenizer *t, const wf_prompt *p, wf_json *j)
{
    uint32_t flags = options.control || options.special ? WF_TEXT_CONTROL : 0;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t count, bytes;
    wf_status status = read_ids(ctx, t, p->text, &ids, &count);
    if (status == WF_OK && !options.json)
        status = print_text(ctx, t, ids, count, flags, &bytes);
    if (status == WF_OK && options.json) {
        status = wf_tokenizer_decode(t, ctx, ids, count, flags, &text, &bytes);
        if (status == WF_OK)
            wf_json_text(j, text, bytes);
    }
    if (status == WF_OK)
        wf_open_say("%zu token%s, %zu byte%s", count, WF_PLURAL(count), bytes, WF_PLURAL(bytes));
    wf_text_free(ctx, text);
    wf_mem_free(ctx, ids);
    return status;
}

/* ---- The command ---- */

/* Encodes the prompts of -p, then the files; each file is read when its turn comes. */
static wf_status encode_all(wf_ctx *ctx, const wf_tokenizer *t, const wf_prompts *prompts,
                            const wf_values *files, wf_json *j)
{
    for (int i = 0; i < prompts->count; i++)
        WF_TRY(encode(ctx, t, NULL, &prompts->item[i], j));
    for (int i = 0; i < files->count; i++)
        WF_TRY(encode(ctx, t, files->item[i], NULL, j));
    return WF_OK;
}

static wf_status decode_all(wf_ctx *ctx, const wf_tokenizer *t, const wf_prompts *prompts,
                            wf_json *j)
{
    for (int i = 0; i < prompts->count; i++)
        WF_TRY(decode(ctx, t, &prompts->item[i], j));
    return WF_OK;
}

/* JSON output is one document: an array if there are several texts. */
static wf_status each(wf_ctx *ctx, const char *path, const wf_prompts *prompts,
                      const wf_values *files)
{
    wf_tokenizer *t;
    wf_json j;
    bool several = options.json && prompts->count + files->count > 1;
    WF_TRY(wf_tokenizer_open(ctx, path, &t));
    wf_json_begin(&j, stdout);
    if (several)
        wf_json_array_begin(&j);
    wf_status status =
        options.decode ? decode_all(ctx, t, prompts, &j) : encode_all(ctx, t, prompts, files, &j);
    if (several)
        wf_json_array_end(&j);
    if (options.json && status == WF_OK)
        wf_json_end(&j);
    wf_tokenizer_free(t);
    return status;
}

/* Refuses flags that --train or --decode does not use. */
static wf_status check_unused(wf_ctx *ctx, bool train)
{
    const wf_given encoding[] = {
        {"ids", options.ids}, {"no-special", options.no_special}, {"control", options.control}};
    const wf_given both[] = {{"prompt", options.prompts.count > 0},
                             {"decode", options.decode},
                             {"special", options.special},
                             {"no-escape", options.no_escape},
                             {"json", options.json}};
    if (train) {
        WF_TRY(wf_flags_refuse(ctx, both, 5, "has no effect with --train; leave it out"));
        return wf_flags_refuse(ctx, encoding, 3, "has no effect with --train; leave it out");
    }
    if (options.special && options.no_special)
        return wf_fail(ctx, WF_ERR_USAGE, "--special and --no-special contradict each other");
    if (options.decode)
        return wf_flags_refuse(ctx, encoding, 3, "has no effect with --decode; leave it out");
    return WF_OK;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    static wf_prompts prompts;
    static const char *from_stdin[] = {"-"};
    const char *path;
    bool train;
    WF_TRY(wf_tokenize_trains(ctx, &train));
    WF_TRY(check_unused(ctx, train));
    if (train)
        return wf_tokenize_train(ctx, operands, count, &options.files);
    if (count > 1)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "'%s' is one argument too many; only --train takes several", operands[1]);
    WF_TRY(wf_open_path(ctx, operands, count, &path));
    if (options.prompts.count + options.files.count == 0)
        options.files = (wf_values){.item = from_stdin, .count = 1};
    /* --decode reads each input as a whole. */
    const wf_values none = {.count = 0}, *files = options.decode ? &none : &options.files;
    wf_status status =
        wf_prompts_read(ctx, &options.prompts, options.decode ? &options.files : &none,
                        options.no_escape || options.decode ? 0 : WF_PROMPT_ESCAPES, &prompts);
    if (status == WF_OK)
        status = each(ctx, path, &prompts, files);
    wf_prompts_free(&prompts);
    return status;
}

static const wf_flag flags[] = {
    {"model", 'm', "MODEL", "the model, instead of the first argument", .text = &wf_open_set.model,
     .operand = true, .offer = WF_OFFER_FILES},
    {"prompt", 'p', "TEXT", "the text; repeatable", .values = &options.prompts, .empty = true,
     .many = true, .fallback = "stdin"},
    {"file", 'f', "FILE", "read the text from FILE, with its last newline; repeatable",
     .values = &options.files, .many = true, .offer = WF_OFFER_FILES},
    {"ids", 0, NULL, "print only the ids, as a JSON array", .on = &options.ids},
    {"decode", 0, NULL, "convert ids to text", .on = &options.decode},
    {"special", 0, NULL,
     "add the tokenizer's special tokens, which is the default; with --decode: print control "
     "tokens",
     .on = &options.special},
    {"no-special", 0, NULL, "do not add bos and eos", .on = &options.no_special},
    {"control", 0, NULL, "parse control tokens such as <|im_start|> in the text",
     .on = &options.control},
    {"no-escape", 0, NULL, "do not interpret backslash escapes such as \\n in -p",
     .on = &options.no_escape},
    {"quiet", 'q', NULL, "do not print counts on stderr", .on = &wf_open_set.quiet},
    WF_FLAG_JSON(&options.json),
    {.doc = "training a tokenizer", .more = wf_tokenize_train_flags},
    {0},
};

const wf_command wf_cmd_tokenize = {
    .name = "tokenize",
    .doc = "convert text to tokens and back, or train a tokenizer",
    .operands = "MODEL | --train FILE...",
    .max_operands = INT_MAX,
    .offers = {WF_OFFER_FILES},
    .details =
        "MODEL is a GGUF file, a Hugging Face folder or a tokenizer.json. Prints one line for each "
        "token: its id and its spelling in the vocabulary. --decode reads ids, separated by spaces "
        "or commas.\n\n"
        "--train learns a byte-level BPE tokenizer from text files. It writes tokenizer.json and "
        "tokenizer_config.json to a folder, or a GGUF file with only the vocabulary. The result "
        "does not depend on the number of threads. Control tokens in the files are plain text.",
    .examples = {"weft tokenize model.gguf -p \"Hello world\"",
                 "echo 9707 1879 | weft tokenize model.gguf --decode",
                 "weft tokenize --train books/*.txt -o tokenizer --vocab 16384"},
    .flags = flags,
    .run = run,
};
