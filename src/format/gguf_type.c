/* SPDX-License-Identifier: MIT */
/* gguf_type.c - tables of the GGUF format: kinds of metadata values and tensor types. */
#include <string.h>

#include "format/gguf_priv.h"

/* Readers use values of the mapped file without swapping bytes. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF files are little-endian");

const wf_gguf_kind_info wf_gguf_kinds[WF_GGUF_KINDS] = {
    [WF_GGUF_U8] = {"u8", 1, WF_GGUF_UNSIGNED},      [WF_GGUF_I8] = {"i8", 1, WF_GGUF_SIGNED},
    [WF_GGUF_U16] = {"u16", 2, WF_GGUF_UNSIGNED},    [WF_GGUF_I16] = {"i16", 2, WF_GGUF_SIGNED},
    [WF_GGUF_U32] = {"u32", 4, WF_GGUF_UNSIGNED},    [WF_GGUF_I32] = {"i32", 4, WF_GGUF_SIGNED},
    [WF_GGUF_F32] = {"f32", 4, WF_GGUF_FLOAT},       [WF_GGUF_BOOL] = {"bool", 1, WF_GGUF_OTHER},
    [WF_GGUF_STRING] = {"string", 0, WF_GGUF_OTHER}, [WF_GGUF_ARRAY] = {"array", 0, WF_GGUF_OTHER},
    [WF_GGUF_U64] = {"u64", 8, WF_GGUF_UNSIGNED},    [WF_GGUF_I64] = {"i64", 8, WF_GGUF_SIGNED},
    [WF_GGUF_F64] = {"f64", 8, WF_GGUF_FLOAT},
};

/* The first row with a number counts. Types without a wf_type are here for error messages only: a
 * quantized type gets one by its row in weft_quant.def. */
static const wf_gguf_type_info types[] = {
    {0, "F32", WF_F32},
    {1, "F16", WF_F16},
#define ROW(A, NAME, name, word, block, bytes, gguf, ...) {gguf, #NAME, WF_##NAME},
    WF_QUANT_TABLE(ROW, 0)
#undef ROW
        {7, "Q5_1", WF_TYPE_NONE},
    {9, "Q8_1", WF_TYPE_NONE},
    {10, "Q2_K", WF_TYPE_NONE},
    {11, "Q3_K", WF_TYPE_NONE},
    {15, "Q8_K", WF_TYPE_NONE},
    {16, "IQ2_XXS", WF_TYPE_NONE},
    {17, "IQ2_XS", WF_TYPE_NONE},
    {18, "IQ3_XXS", WF_TYPE_NONE},
    {19, "IQ1_S", WF_TYPE_NONE},
    {20, "IQ4_NL", WF_TYPE_NONE},
    {21, "IQ3_S", WF_TYPE_NONE},
    {22, "IQ2_S", WF_TYPE_NONE},
    {23, "IQ4_XS", WF_TYPE_NONE},
    {24, "I8", WF_I8},
    {25, "I16", WF_TYPE_NONE},
    {26, "I32", WF_I32},
    {27, "I64", WF_TYPE_NONE},
    {28, "F64", WF_TYPE_NONE},
    {29, "IQ1_M", WF_TYPE_NONE},
    {30, "BF16", WF_BF16},
    {34, "TQ1_0", WF_TYPE_NONE},
    {35, "TQ2_0", WF_TYPE_NONE},
    {39, "MXFP4", WF_TYPE_NONE},
};
#define TYPES (sizeof types / sizeof types[0])

const wf_gguf_type_info *wf_gguf_type_by_id(uint32_t id)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].id == id)
            return &types[i];
    return NULL;
}

const wf_gguf_type_info *wf_gguf_type_of(wf_type type)
{
    for (size_t i = 0; i < TYPES && type != WF_TYPE_NONE; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

const char *wf_gguf_type_list(char out[WF_GGUF_TYPE_LIST])
{
    size_t len = 0;
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type != WF_TYPE_NONE)
            wf_text_append(out, WF_GGUF_TYPE_LIST, &len, "%s%s", len ? ", " : "", types[i].name);
    return out;
}

double wf_gguf_load_float(wf_gguf_kind kind, const uint8_t *at)
{
    float single;
    double number;
    wf_assert(wf_gguf_kinds[kind].sort == WF_GGUF_FLOAT);
    /* Both kinds have at least four bytes. */
    memcpy(&single, at, sizeof single);
    if (kind == WF_GGUF_F32)
        return (double)single;
    memcpy(&number, at, sizeof number);
    return number;
}

/* memcpy: values in the file are not aligned. */
bool wf_gguf_load_int(wf_gguf_kind kind, const uint8_t *at, int64_t *out)
{
    const wf_gguf_kind_info *info = &wf_gguf_kinds[kind];
    uint64_t bits = 0;
    wf_assert(info->sort == WF_GGUF_SIGNED || info->sort == WF_GGUF_UNSIGNED);
    memcpy(&bits, at, info->bytes);
    if (info->sort == WF_GGUF_UNSIGNED && bits > INT64_MAX)
        return false;
    if (info->sort == WF_GGUF_SIGNED && info->bytes < 8) { /* extend the sign */
        uint64_t sign = (uint64_t)1 << (8 * info->bytes - 1);
        bits = (bits ^ sign) - sign;
    }
    memcpy(out, &bits, sizeof *out);
    return true;
}
