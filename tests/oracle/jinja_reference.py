# SPDX-License-Identifier: MIT
"""Chat templates as Hugging Face renders them: jinja2 in the sandbox, with its tojson and its
tags."""
import datetime
import functools
import json

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

NOW = 1735689600 + 86400 * 45 + 3600 * 12  # the time of strftime_now


class Refused(Exception):
    pass


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("support"), [], [], body).set_lineno(line)

    def support(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise Refused(message)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW).strftime(form)


def subtract(context, operator, left, right):
    """The difference of dict keys is a set in Python; Weft has no sets, and refuses."""
    if isinstance(left, (type({}.keys()), type({}.items()))) or isinstance(right, (type({}.keys()), type({}.items()))):
        raise TypeError("no sets")
    return left - right


def environment(mutable):
    """mutable: allows appending to lists, which Hugging Face forbids and other engines allow."""
    made = (SandboxedEnvironment if mutable else ImmutableSandboxedEnvironment)(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.intercepted_binops = frozenset(["-"])
    made.call_binop = subtract
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


ENVIRONMENTS = {mutable: environment(mutable) for mutable in (False, True)}


@functools.lru_cache(4096)
def compiled(text, mutable):
    return ENVIRONMENTS[mutable].from_string(text)


def render(text, variables, mutable=False):
    """Returns (text, None) or (None, error)."""
    try:
        out = compiled(text, mutable).render(**json.loads(json.dumps(variables)))
        out.encode()
        return out, None
    except Exception as e:  # any exception means that the template does not render
        return None, f"{type(e).__name__}: {e}"
