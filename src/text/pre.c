/* SPDX-License-Identifier: MIT */
/*
 * pre.c - see pre.h: the table of pre-tokenizers, and its lookups.
 *
 * A GGUF file names its pre-tokenizer (tokenizer.ggml.pre) instead of describing it, so the table
 * has the patterns of each name. The patterns of one row run in turn, each on the pieces of the one
 * before.
 */
#include "text/pre.h"

#include <string.h>

/* The patterns come from the models' tokenizer.json files, where available. GPT2 and RICH must
 * equal the texts in split.c byte for byte, so that the hand-written matchers are used. */
#define NUMBER "\\p{N}"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define RICH(digits) \
    SHORT "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)                                                                             \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" end
#define SLASHED "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL
#define DEEPSEEK3                                                                                       \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*" TAIL
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{0964}\\x{06D4}\\x{060C})]+"

#define YOUTU                                                                                              \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}"    \
    "\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" \
    "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define AFMOE                                                                                 \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-" \
    "\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{0E40}-\\x{0E7F}\\x{0E80}-\\x{0EFF}"   \
    "\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-"  \
    "\\x{D7AF}\\x{1100}-\\x{11FF}]+"

/* Letters with case, in the Unicode version of these models. */
#define CASED_LETTERS                                                                      \
    "A-Za-z\\x{00B5}\\x{00C0}-\\x{00D6}\\x{00D8}-\\x{00F6}\\x{00F8}-\\x{01BA}\\x{01BC}-"   \
    "\\x{01BF}\\x{01C4}-\\x{0293}\\x{0295}-\\x{02AF}\\x{0370}-\\x{0373}\\x{0376}\\x{0377}" \
    "\\x{037B}-\\x{037D}\\x{037F}\\x{0386}\\x{0388}-\\x{038A}\\x{038C}\\x{038E}-\\x{03A1}" \
    "\\x{03A3}-\\x{03F5}\\x{03F7}-\\x{0481}\\x{048A}-\\x{052F}\\x{0531}-\\x{0556}"         \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"         \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"         \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"         \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}" \
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-"         \
    "\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-"         \
    "\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"  \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}" \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}" \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}"          \
    "\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"         \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"         \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}" \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

/* A name may occur in one row only. Each row is a family of names with equal splitting; the order
 * matters only for wf_pre_of, which returns the first row that fits. */
const wf_pre wf_pres[] = {
    {"gpt-2,phi-2,jina-es,jina-de,gigachat,jina-v2-es,jina-v2-de,a.x-4.0,mellum,modern-bert,mpt,olmo,"
     "jais,trillion,granite-docling,exaone4,jina-v1-en,jina-v2-code,roberta-bpe",
     0,
     {GPT2}},
    {"llama-bpe,llama3,llama-v3,falcon3,falcon-h1,pixtral,midm-2.0,lfm2,jina-v5-nano",
     WF_PRE_WHOLE | WF_PRE_BOS,
     {RICH("\\p{N}{1,3}")}},
    {"dbrx,smaug-bpe,glm4,chatglm-bpe", 0, {RICH("\\p{N}{1,3}")}},
    {"qwen2", WF_PRE_NFC, {RICH(NUMBER)}},
    {"deepseek-r1-qwen,stablelm2,megrez,hunyuan,solar-open,grok-2,kormo,f2llmv2",
     0,
     {RICH(NUMBER)}},
    {"qwen35",
     WF_PRE_NFC,
     {SHORT
      "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL}},
    {"smollm,starcoder,refact,command-r,codeshell,exaone,minerva-7b,mellum2", 0, {NUMBER, GPT2}},
    {"deepseek-llm",
     0,
     {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
      "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
      "\\s+$", CJK, "\\p{N}+"}},
    {"deepseek-coder", 0, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, NUMBER}},
    {"deepseek-v3,hunyuan-dense,joyai-llm",
     0,
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3}},
    {"falcon", 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"default", 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"tekken", WF_PRE_WHOLE | WF_PRE_BOS, {CASED("") "|\\p{N}" SLASHED}},
    {"gpt-4o,llama4,kanana2,talkie,minimax-m2", 0, {CASED(SHORT "?") "|\\p{N}{1,3}" SLASHED}},
    {"minicpm5", WF_PRE_WHOLE, {"\\p{N}{1,3}", RICH("\\p{N}+")}},
    {"seed-coder",
     0,
     {SHORT "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" TAIL}},
    {"bailingmoe,bailingmoe2,llada-moe",
     0,
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"granite-embed-multi-97m", WF_PRE_WHOLE, {CASED(SHORT "?") "|\\p{N}{1,3}" SLASHED}},
    {"tiny_aya,cohere2moe",
     0,
     {"\\d{1,3}(?=(?:\\d{3})*\\b)", CASED(SHORT "?") "|\\p{N}{1,3}" SLASHED}},
    {"youtu", 0, {YOUTU, CASED(SHORT "?") "|\\p{N}" SLASHED}},
    {"jais-2",
     0,
     {SHORT
      "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
      "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)"
      "|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
    {"superbpe", 0, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {"laguna", 0, {"[^\\n]+|[\\n]+", RICH(NUMBER)}},
    {"exaone-moe",
     0,
     {SHORT "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
            "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"chameleon",
     WF_PRE_BOS,
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", NUMBER,
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    /* Groups of three digits, counted from the right. */
    {"afmoe", 0, {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", AFMOE, DEEPSEEK3}},
    {"poro-chat,bloom,gpt3-finnish", 0, {BLOOM}},
    {"viking", 0, {BLOOM, NUMBER}},
    {NULL, 0, {NULL}},
};

/* Returns whether `name` is one of the names separated by commas. */
static bool has_name(const char *names, const char *name, size_t bytes)
{
    while (names) {
        size_t length = strcspn(names, ",");
        if (length == bytes && memcmp(names, name, bytes) == 0)
            return true;
        names = names[length] ? names + length + 1 : NULL;
    }
    return false;
}

const wf_pre *wf_pre_find(const char *name, size_t bytes)
{
    for (const wf_pre *p = wf_pres; p->names; p++)
        if (has_name(p->names, name, bytes))
            return p;
    return NULL;
}

/* Splitting single digits needs no pattern: the DIGITS step does it. */
static bool is_digits(const char *pattern)
{
    return strcmp(pattern, NUMBER) == 0;
}

/* Adds the steps of a row to an empty tokenizer. Byte-level spelling comes last, and its decoder
 * undoes it. */
wf_status wf_pre_apply(const wf_pre *pre, wf_tokenizer *t)
{
    if (pre->is & WF_PRE_NFC)
        WF_TRY(wf_tokenizer_add_normal(t, (wf_normal_step){.kind = WF_NORMAL_NFC}, false));
    for (size_t i = 0; i < WF_PRE_PATTERNS && pre->pattern[i]; i++) {
        wf_words_step step = {
            .kind = WF_WORDS_SPLIT, .text = pre->pattern[i], .bytes = strlen(pre->pattern[i])};
        bool digits = is_digits(pre->pattern[i]);
        if (digits)
            step = (wf_words_step){.kind = WF_WORDS_DIGITS};
        WF_TRY(wf_tokenizer_add_words(t, step, !digits));
    }
    WF_TRY(wf_tokenizer_add_words(t, (wf_words_step){.kind = WF_WORDS_BYTES}, false));
    return wf_tokenizer_add_decode(t, (wf_decode_step){.kind = WF_DECODE_BYTES});
}

/* Returns whether the tokenizer's steps equal the row's patterns. The last step (BYTES) may add
 * GPT-2's pattern. */
static bool splits_as(const wf_tokenizer *t, const wf_pre *pre)
{
    const wf_words_step *last = &t->words[t->word_count - 1];
    size_t n = 0;
    for (int i = 0; i < t->word_count - 1; i++, n++) {
        const wf_words_step *step = &t->words[i];
        if (n == WF_PRE_PATTERNS || !pre->pattern[n] || step->invert ||
            step->behavior != WF_SPLIT_ISOLATED)
            return false;
        bool same = is_digits(pre->pattern[n]) && step->kind == WF_WORDS_DIGITS;
        if (step->kind == WF_WORDS_SPLIT && (step->style || step->pattern))
            same = strlen(pre->pattern[n]) == step->bytes &&
                   memcmp(pre->pattern[n], step->text, step->bytes) == 0;
        if (!same)
            return false;
    }
    if (last->split &&
        (n == WF_PRE_PATTERNS || !pre->pattern[n] || strcmp(pre->pattern[n++], GPT2) != 0))
        return false;
    return n == WF_PRE_PATTERNS || !pre->pattern[n];
}

/* The inverse of wf_pre_apply: finds a name for a tokenizer's steps, or NULL. Compares whatever
 * changes ids: normalizer, patterns, leading space, whole words. */
const wf_pre *wf_pre_of(const wf_tokenizer *t)
{
    if (t->word_count == 0 || t->words[t->word_count - 1].kind != WF_WORDS_BYTES ||
        t->words[t->word_count - 1].prefix)
        return NULL;
    bool nfc = t->normal_count == 1 && t->normals[0].kind == WF_NORMAL_NFC;
    if (t->normal_count > 0 && !nfc)
        return NULL;
    for (const wf_pre *p = wf_pres; p->names; p++)
        if (!(p->is & WF_PRE_NFC) == !nfc && !(p->is & WF_PRE_WHOLE) == !t->bpe.whole_words &&
            splits_as(t, p))
            return p;
    return NULL;
}
