# SPDX-License-Identifier: MIT
# shared.awk - rewrites the __shared__ variables of preprocessed CUDA C, which cuda_runtime.h
# renames to wf_emulated_shared_variable. Each becomes a reference to memory of the running block,
# returned by wf_emulated_static. Declarations not of the form `type name[sizes], name[sizes];`
# become static.

# Returns the position of the first `what` in s outside of all brackets, or 0.
function outside(s, what,    i, c, depth)
{
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (depth == 0 && c == what)
            return i
        if (c ~ /[<(\[{]/)
            depth++
        else if (c ~ /[>)\]}]/)
            depth--
    }
    return 0
}

# Returns the replacement of one declarator, `name[sizes]`, of the type.
function variable(type, align, text,    name, sizes, at)
{
    gsub(/^[ \t]+|[ \t]+$/, "", text)
    at = index(text, "[")
    name = at ? substr(text, 1, at - 1) : text
    sizes = at ? substr(text, at) : ""
    sub(/[ \t]+$/, "", name)
    return "static wf_emulated_slot " name "_wf_slot; typedef " type " " name "_wf_type" sizes "; " \
        name "_wf_type &" name " = *(" name "_wf_type *)wf_emulated_static(&" name "_wf_slot, sizeof(" \
        name "_wf_type), " (align ? align : "alignof(" name "_wf_type)") "); "
}

function declaration(text,    align, at, first, type, out)
{
    align = ""
    while (match(text, /^[ \t]*__attribute__ *\(\(aligned\([^()]*(\([^()]*\))?[^()]*\)\)\)/)) {
        align = substr(text, RSTART, RLENGTH)
        sub(/^[^(]*\(\(aligned\(/, "", align)
        sub(/\)\)\)$/, "", align)
        text = substr(text, RSTART + RLENGTH)
    }
    at = outside(text, ",")
    first = at ? substr(text, 1, at - 1) : text
    if (!match(first, /[A-Za-z_][A-Za-z_0-9]*[ \t]*(\[.*\])?[ \t]*$/) || text ~ /[{}=;]/)
        return "static " text ";"
    type = substr(first, 1, RSTART - 1)
    first = substr(first, RSTART)
    out = variable(type, align, first)
    while (at) {
        text = substr(text, at + 1)
        at = outside(text, ",")
        out = out variable(type, align, at ? substr(text, 1, at - 1) : text)
    }
    return out
}

{
    line = $0
    while (match(line, /wf_emulated_shared_variable/)) {
        before = substr(line, 1, RSTART - 1)
        rest = substr(line, RSTART + RLENGTH)
        while (!(end = outside(rest, ";"))) {
            if ((getline more) <= 0)
                break
            if (more !~ /^#/)
                rest = rest " " more
        }
        line = before declaration(substr(rest, 1, end - 1)) substr(rest, end + 1)
    }
    print line
}
