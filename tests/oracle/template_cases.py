# SPDX-License-Identifier: MIT
"""Variables for chat templates, small handwritten templates, and random ones."""
import re

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather — «now» & \"here\"",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "The city"},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": "array", "items|list": {"type": "integer"}},
            "note": {"type": ["string", "number"], "default": None}}},
        "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "noargs", "description": "Nothing",
                                      "parameters": {"type": "object", "properties": {}}}},
]
SYSTEM = {"role": "system", "content": "You are «kind».\n"}
USER = {"role": "user", "content": "  Is 2 < 3 & ünï 🎉? <|im_end|>\n"}
ASSISTANT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFine.\nYes"}
THINKING = {"role": "assistant", "content": "ok", "reasoning_content": "so I think"}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abc123456", "type": "function",
     "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2.5, True, None]}}}]}
CALLS = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abc123456", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Z\"}"}},
    {"id": "abc123457", "type": "function", "function": {"name": "noargs", "arguments": {}}}]}
TOOL = {"role": "tool", "content": "{\"t\": 3.5}", "tool_call_id": "abc123456", "name": "get_weather"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Hi <|im_end|>"}, {"type": "image"},
                                     {"type": "text", "text": " there "}]}
CONVERSATIONS = [
    [], [USER], [SYSTEM, USER], [SYSTEM, USER, ASSISTANT, USER], [USER, ASSISTANT, USER, THINKING], [SYSTEM],
    [ASSISTANT], [SYSTEM, USER, CALL, TOOL, ASSISTANT, USER], [USER, CALLS, TOOL, TOOL], [PARTS],
    [SYSTEM, PARTS, ASSISTANT, PARTS], [{"role": "user"}], [{"role": "developer", "content": "x"}, USER],
    [USER, USER], [{"role": "tool", "content": 3}], [{"content": "who?"}], [USER, CALL, TOOL],
]
EXTRAS = [
    {}, {"tools": TOOLS}, {"tools": TOOLS, "enable_thinking": False, "add_generation_prompt": True},
    {"tools": None, "add_generation_prompt": True}, {"tools": TOOLS, "tools_in_user_message": False},
    {"builtin_tools": ["code_interpreter", "get_weather"], "tools": TOOLS},
]

VARIABLES = {
    "messages": [SYSTEM, USER, ASSISTANT, CALL, TOOL],
    "bos_token": "<s>", "eos_token": "</s>",
    "n": 3, "f": 2.5, "neg": -7, "yes": True, "no": False, "nil": None, "empty": "", "s": "héllo Wörld",
    "nl": "one\ntwo\n\nthree\n", "sp": "  a b  c ", "list": [3, 1, 2], "words": ["b", "A", "c", "a", "B"],
    "nested": [[1, 2], [3, [4, 5]]], "mixed": [1, "1", 1.0, None, True, [1], {"a": 1}],
    "d": {"b": 1, "a": {"x": [1, 2]}, "C": None, "items": "shadow", "é": "ü"},
    "people": [{"name": "Zoë", "age": 30, "tag": {"x": 1}}, {"name": "adam", "age": 25, "tag": {"x": 3}},
               {"name": "Bob", "age": 30}],
    "emoji": "a🎉b", "quote": "it's \"so\" \\ \t\x01", "big": 1e20, "tiny": 1e-7, "whole": 4.0,
}

# One template per line; ⏎ stands for a newline, ␍ for a carriage return.
EXPRESSIONS = r"""
{{ 1 }} {{ -1 }} {{ +1 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 0.1 + 0.2 }}
{{ big }} {{ tiny }} {{ whole }} {{ f }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_0.5 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ true }} {{ True }} {{ false }} {{ none }} {{ None }} {{ true + 1 }} {{ -true }} {{ not none }}
{{ 'a' 'b' "c" }} {{ 'it\'s' }} {{ "tab\there" }} {{ '\x41\u00e9\U0001F389\101\q' }} {{ 'a\nb' }}
{{ 'a' + 'b' }} {{ 'a' * 3 }} {{ 3 * 'ab' }} {{ 'a' * -1 }} {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + (2,) }}
{{ 'a' ~ 1 ~ none ~ 2.0 ~ true ~ [1, 'x'] }} {{ 1 ~ 2 }} {{ missing ~ 'x' }}
{{ [1, 'a', none, true, 2.5, [], {}, (), (1,), (1, 2)] }} {{ {'a': 1, 2: 'b', none: [1]} }} {{ mixed }}
{{ d }} {{ nested }} {{ quote }} {{ [quote] }} {{ ["it's"] }} {{ ['"'] }} {{ ["é🎉\u200b\x7f"] }}
{{ missing }} {{ missing|default('x') }} {{ nil|default('x') }} {{ nil|default('x', true) }} {{ empty|d('y', boolean=true) }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing[0] }}
{{ missing() }}
{{ missing + 1 }}
{{ missing < 1 }}
{{ -missing }}
{{ d.missing.x }}
{{ missing == 1 }} {{ missing == other }} {{ missing != 1 }} {{ missing is defined }} {{ missing|length }} {{ missing|list }}
{{ missing|upper }} {{ missing|trim }} {{ missing|string }} {{ missing|join(',') }} {{ missing|first }} {{ missing and 1 }}
{{ missing|tojson }}
{{ missing|int }}
{{ missing|float }}
{{ missing|abs }}
{{ 1 in missing }} {{ not missing }} {{ missing or 'x' }} {{ missing if missing else 'no' }} {{ [missing] }}
{{ missing is string }} {{ missing is iterable }} {{ missing is sequence }} {{ missing is mapping }} {{ missing is none }} {{ missing is callable }}
{{ d.a }} {{ d['a'] }} {{ d.a.x[1] }} {{ d.a['x'][-1] }} {{ d.nope is defined }} {{ d['nope'] is undefined }} {{ d['items'] }} {{ d.é }}
{{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }}
{{ d.items is callable }} {{ d.keys() }} {{ d.values()|length }} {{ {'a': 1}.items() }} {{ d.keys()[0] is defined }}
{{ nil.x is defined }} {{ n.x is defined }} {{ nil.x }}
{{ nil.x.y }}
{{ list[0] }} {{ list[-1] }} {{ list[5] is defined }} {{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ list[::2] }} {{ list[5:] }} {{ list[-2:] }}
{{ list[1:2:1] }} {{ list[2:0:-1] }} {{ list[:] }} {{ list[100:-100:-1] }} {{ list[true] }} {{ list['0'] is defined }} {{ list.0 }} {{ list[1.0] is defined }}
{{ list[::0] }}
{{ list['a':] is defined }} {{ d[1:] is defined }} {{ n[1:] is defined }} {{ (1, 2, 3)[1:] }} {{ range(10)[2:8:3] }} {{ range(5)[::-1] }}
{{ s[0] }} {{ s[1] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[::2] }} {{ s[:-3] }} {{ s[20:] }} {{ s|length }} {{ emoji[1] }} {{ emoji|length }} {{ emoji[::-1] }} {{ emoji[1:2] }}
{{ s[99] is defined }} {{ s['x'] is defined }} {{ s.nope is defined }} {{ s.upper is callable }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [1] < (2,) }}
{{ {} < {} }}
{{ 1 in [1, 2] }} {{ 'a' in 'cat' }} {{ 'a' not in 'cat' }} {{ 'b' in d }} {{ 'zz' not in d }} {{ 2 in (1, 2) }} {{ not 1 in [2] }} {{ '' in '' }} {{ 1 in range(3) }} {{ 1.0 in [1] }}
{{ 1 in 'cat' }}
{{ 1 in 5 }}
{{ [] in {} }}
{{ none in [none] }} {{ none in 'x' if false else 'ok' }}
{{ 1 if yes else 2 }} {{ 1 if no else 2 }} {{ 1 if no }} {{ 'a' if yes else 'b' if no else 'c' }} {{ (1 if no) is defined }} {{ 1 if yes if no }}
{{ yes and no }} {{ yes or no }} {{ no or nil }} {{ '' or [] or 'x' }} {{ 1 and 'x' }} {{ not yes }} {{ not no and yes }} {{ not (yes and no) }} {{ 0 and missing.x }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 3 }} {{ n is divisibleby(2) }} {{ n is number }} {{ n is integer }} {{ f is float }} {{ yes is integer }} {{ yes is number }} {{ yes is boolean }}
{{ n is string }} {{ s is string }} {{ d is mapping }} {{ list is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ d is iterable }} {{ n is iterable }} {{ nil is none }} {{ nil is not none }}
{{ yes is true }} {{ no is false }} {{ 1 is true }} {{ n is eq 3 }} {{ n is equalto(3) }} {{ n is ne 3 }} {{ n is lt 4 }} {{ n is gt 4 }} {{ n is ge 3 }} {{ n is le 2 }} {{ n is in [3] }} {{ n is sameas 3 }}
{{ 'ABC' is upper }} {{ 'abc' is lower }} {{ 'aBc' is lower }} {{ '1' is lower }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ s is not string }} {{ range is callable }}
{{ n is nope }}
{{ s is odd }}
{{ n is odd is true }}
{{ n is not odd or n is odd }} {{ n is defined and n is odd }} {{ (n is odd) is true }}
{{ s|upper }} {{ s|lower }} {{ s|title }} {{ s|capitalize }} {{ 'straße ǆ ﬁ'|upper }} {{ 'ÀÉ ΣΙΓΜΑ'|lower }} {{ 'ǆx foo-bar (baz)'|title }} {{ 'ǆX'|capitalize }}
{{ sp|trim }}| {{ sp|trim(' a') }}| {{ 'xxaxx'|trim('x') }} {{ '\u3000a\u00a0\x1f'|trim }} {{ n|trim }} {{ 'éaé'|trim('é') }}
{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ s|replace('', '-') }} {{ 'aaa'|replace('aa', 'b') }} {{ 123|replace(2, 'x') }} {{ s|replace('é', '') }} {{ 'ab'|replace('', 'x', 2) }}
{{ list|join }} {{ list|join(', ') }} {{ words|join('é') }} {{ people|join(', ', attribute='name') }} {{ s|join('.') }} {{ d|join(',') }} {{ [none, true, 1.5]|join('/') }} {{ []|join('x') }}
{{ list|length }} {{ d|length }} {{ ''|length }} {{ d|count }} {{ range(5)|length }}
{{ n|length }}
{{ nil|length }}
{{ list|map('string')|length }}
{{ list|first }} {{ list|last }} {{ s|first }} {{ s|last }} {{ d|first }} {{ []|first }} {{ []|last is undefined }} {{ list|map('string')|first }}
{{ list|map('string')|last }}
{{ list|sort }} {{ list|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|join(' ') }} {{ people|sort(attribute='age,name')|map(attribute='name')|join(' ') }} {{ people|sort(true, attribute='name')|map(attribute='name')|list }}
{{ mixed|sort }}
{{ list|reverse|list }} {{ s|reverse }} {{ list|list|reverse|join }} {{ d|reverse|list }}
{{ list|reverse|length }}
{{ words|unique|list }} {{ words|unique(true)|join }} {{ [1, 1.0, true, '1', 2]|unique|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}
{{ [[1]]|unique|list }}
{{ list|sum }} {{ [1.5, 2]|sum }} {{ people|sum(attribute='age') }} {{ list|sum(start=10) }} {{ []|sum }}
{{ words|sum }}
{{ list|min }} {{ list|max }} {{ words|min }} {{ words|max }} {{ words|max(case_sensitive=true) }} {{ []|min is undefined }} {{ people|max(attribute='age') }}
{{ [1, 'a']|min }}
{{ list|map('string')|list }} {{ people|map(attribute='name')|list }} {{ people|map(attribute='tag.x', default=0)|list }} {{ words|map('upper')|join(',') }} {{ nested|map('first')|list }} {{ nested|map(attribute=1)|list }} {{ nested|map(attribute='1')|list }} {{ list|map('replace', '1', 'x')|list }}
{{ people|map(attribute='tag.x')|list }}
{{ list|map('nope')|list }}
{{ list|map|list }}
{{ []|map('nope')|list }} {{ list|select('odd')|list }} {{ list|reject('odd')|list }} {{ mixed|select|list|length }} {{ mixed|reject('string')|list }} {{ list|select('gt', 1)|list }} {{ list|select('>', 1)|list }} {{ list|select('in', [1, 3])|list }}
{{ people|selectattr('tag')|map(attribute='name')|list }} {{ people|selectattr('age', 'eq', 30)|list|length }} {{ people|rejectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ people|selectattr('tag', 'defined')|list|length }} {{ people|rejectattr('tag', 'undefined')|list|length }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }}
{{ people|selectattr('tag.x', 'gt', 1)|list }}
{{ people[:2]|selectattr('tag.x', 'gt', 1)|map(attribute='name')|join }} {{ list|select('nope')|list }}
{{ d|dictsort }} {{ {'B': 1, 'a': 2}|dictsort }} {{ {'B': 1, 'a': 2}|dictsort(true) }} {{ {'B': 2, 'a': 1}|dictsort(by='value') }} {{ {'B': 1, 'a': 2}|dictsort(reverse=true) }}
{{ list|dictsort }}
{{ {1: 1, 'a': 2}|dictsort }}
{{ d|items|list }} {{ missing|items|list }} {{ d|list }} {{ s|list }} {{ range(3)|list }} {{ (1, 2)|list }} {{ d.items()|list }}
{{ list|items|list }}
{{ n|list }}
{{ list|batch(2)|list }} {{ list|batch(2, 'x')|list }} {{ list|batch(5)|list }}
{{ d|tojson }} {{ mixed|tojson }} {{ s|tojson }} {{ quote|tojson }} {{ emoji|tojson }} {{ f|tojson }} {{ big|tojson }} {{ nil|tojson }} {{ yes|tojson }} {{ (1, 2)|tojson }} {{ []|tojson }} {{ {}|tojson }}
{{ d|tojson(indent=2) }} {{ nested|tojson(indent=1) }} {{ {}|tojson(indent=2) }} {{ [[]]|tojson(indent=2) }} {{ list|tojson(indent=0) }} {{ list|tojson(indent='--') }}
{{ s|tojson(ensure_ascii=true) }} {{ emoji|tojson(true) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',', ':')) }} {{ list|tojson(indent=2, separators=(';', '=')) }} {{ '\x7f\u2028'|tojson }} {{ '\x7f'|tojson(ensure_ascii=true) }}
{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ '</script>&\''|tojson }} {{ '1'|float|tojson }} {{ 'nan'|float|tojson }} {{ 'inf'|float|tojson }}
{{ range(3)|tojson }}
{{ d.items()|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}
{{ namespace()|tojson }}
{{ '3'|int }} {{ '3.7'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ 3.9|int }} {{ -3.9|int }} {{ true|int }} {{ none|int }} {{ []|int }} {{ ' 42 '|int }} {{ 'ff'|int(base=16) }} {{ '0x1f'|int(0, 16) }} {{ '1_000'|int }} {{ '-5'|int }} {{ ''|int }}
{{ '3.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ none|float }} {{ '1e3'|float }} {{ ' 2 '|float }} {{ 'inf'|float }} {{ '-inf'|float }} {{ 'nan'|float }}
{{ -3|abs }} {{ 3.5|abs }} {{ true|abs }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 42|round }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(0, 'floor') }} {{ 2.675|round(2) }} {{ 1234|round(-2) }} {{ 0.5|round }} {{ 1e15|round(1) }} {{ -2.5|round }}
{{ 'x'|abs }}
{{ 2.5|round(1, 'up') }}
{{ nl|indent }}| {{ nl|indent(2) }}| {{ nl|indent(2, true) }}| {{ nl|indent(2, blank=true) }}| {{ nl|indent('> ', true, true) }}| {{ ''|indent }}| {{ 'a\r\nb\x0bc'|indent(1) }}| {{ 'a\n'|indent(1, true) }}|
{{ n|indent }}
{{ '<a href="x">\'&'|escape }} {{ '<'|e }} {{ '<b>'|safe }} {{ n|string }} {{ [1, 'a']|string }} {{ n|string|length }}
{{ '%s and %d' % ('a', 3) }} {{ '%s' % 'x' }} {{ '%5d|%-5d|%05d|%+d' % (1, 2, 3, 4) }} {{ '%.2f %e %g' % (1.234, 1234.5, 0.0001) }} {{ '%x %X %o %#x' % (255, 255, 8, 255) }} {{ '%5s|%-5s|%.2s' % ('é', 'b', 'abc') }} {{ '%%' % () }} {{ '%r' % ('a',) }} {{ '%(a)s' % {'a': 1} }} {{ '%s' % [1, 2] }} {{ '%c' % 'x' }} {{ '%s %s'|format(1, 'b') }} {{ '%(x)s'|format(x=2) }} {{ '%d' % 3.9 }} {{ '%5.1f|' % 2.25 }} {{ '% d' % 5 }}
{{ '%s' % () }}
{{ '%d' % 'x' }}
{{ 'x' % 1 }}
{{ '%s %s' % 'a' }}
{{ '%z' % 1 }}
{{ '%' % 1 }}
{{ '%(a)s' % 3 }}
{{ '{} {}'.format(1, 'b') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }} {{ '{{}}'.format() }} {{ '{:>5}|{:<5}|{:^5}|'.format('a', 'b', 'c') }} {{ '{:.2f}'.format(3.14159) }} {{ '{:05d}'.format(42) }} {{ '{:,}'.format(1234567) }} {{ '{!r}'.format('a') }} {{ '{}'.format(none) }} {{ '{:*^7}'.format('mid') }} {{ '{:5}|{:5}|'.format(1, 'a') }} {{ '{:x}'.format(255) }} {{ '{:.1%}'.format(0.255) }} {{ '{:+d}'.format(5) }}
{{ '{}'.format() }}
{{ '{'.format(1) }}
{{ '{x}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ "they're ok"|title }} {{ "they're ok".title() }}
{{ sp.strip() }}| {{ sp.lstrip() }}| {{ sp.rstrip() }}| {{ 'xxa'.lstrip('x') }} {{ 'abcxyz'.strip('abz') }} {{ 'aé'.rstrip('é') }} {{ 'x'.strip('x') }}| {{ sp.strip(none) }}|
{{ sp.split() }} {{ sp.split(' ') }} {{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a--b'.split('--') }} {{ 'abc'.split('x') }} {{ 'a b'.split(maxsplit=0) }} {{ 'a b c'.split(sep=' ') }} {{ ',a,'.split(',') }}
{{ 'a'.split('') }}
{{ nl.splitlines() }} {{ nl.splitlines(true) }} {{ 'a\r\nb\rc'.splitlines() }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{{ s.startswith('hé') }} {{ s.startswith('x') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'h')) }} {{ s.startswith('l', 2) }} {{ s.endswith('l', 0, 3) }} {{ s.startswith('') }} {{ ''.endswith('a') }} {{ s.startswith('h', -50) }}
{{ s.startswith(1) }}
{{ s.find('l') }} {{ s.find('z') }} {{ s.rfind('l') }} {{ s.index('W') }} {{ s.count('l') }} {{ s.count('') }} {{ 'aaa'.count('aa') }} {{ s.find('l', 4) }} {{ s.find('') }} {{ 'ééx'.find('x') }} {{ 'ab'.find('', 5) }} {{ s.find('l', -3) }} {{ s.find('l', 0, 2) }}
{{ s.index('z') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('', '.') }} {{ ', '.join(['a', 'b']) }} {{ ''.join([]) }} {{ 'x'.join('abc') }} {{ ','.join(d) }}
{{ ','.join([1]) }}
{{ s.replace(1, 2) }}
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removeprefix('y') }}
{{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }} {{ 'a'.center(4, '*') }} {{ 'ab'.center(5, '*') }} {{ '5'.zfill(3) }} {{ '-5'.zfill(4) }} {{ ' '.isspace() }} {{ '12'.isdigit() }} {{ 'aB'.islower() }} {{ 'AB'.isupper() }} {{ ''.isdigit() }}
{{ 'a'.ljust(3, 'xx') }}
{{ list.index(1) }} {{ list.count(3) }} {{ (1, 2).index(2) }} {{ d.copy() == d }} {{ list.index(99) }}
{{ s.nope() }}
{{ s() }}
{{ n() }}
{{ s.upper(1) }}
{{ s|nope }}
{{ s|upper(1) }}
{{ s|replace('a') }}
{{ list|join(', ', d='x') }}
{{ range(3) }} {{ range(1, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3)|join }} {{ range(1, 10, 3) }} {{ range(3) == range(0, 3) }} {{ range(3)[1] }} {{ range(true)|list }} {{ range(5)|sum }}
{{ range(1.5) }}
{{ range() }}
{{ range(0, 5, 0) }}
{{ range(1000000) }}
{{ '%\0' % 1 }}
{{ '%5.2\0' % 1.5 }}
{{ '%(a)\0' % {'a': 1} }}
{{ '{!\0}'.format(1) }} {{ '{!\0:05d}'.format(1) }} {{ '{!r}'.format('a') }}
{{ '{!}'.format(1) }}
{{ '{:\0}'.format(1) }}
{{ '{:5\0}'.format('a') }}
{{ '{:,.60f}'.format(1.7976931348623157e308) }} {{ '{:,.60f}'.format(-1.7976931348623157e308) }} {{ '{:,.60%}'.format(1.7976931348623157e306) }} {{ '{:,}'.format(9223372036854775807) }} {{ '{:+,.3f}'.format(1e100) }} {{ '{:,.0f}'.format(999) }}
{{ range(10)[::3] }} {{ range(10)[::100] }} {{ range(10)[5:2] }} {{ range(0)[::-1] }} {{ range(10)[::-3] }} {{ range(10)[8:1:-3] }} {{ range(10)[20:30] }} {{ range(5)[::-100] }}
{{ range(0, -10, -3)[1:] }} {{ range(0, 10, 3)[::-1] }} {{ range(2, 20, 3)[1:-1:2] }} {{ range(2, 20, 3)[-2:1:-2] }} {{ range(3)[::2][::2][::-1] }}
{{ range(-9000000000000000000, 9000000000000000001, 9000000000000000000)|list }} {{ range(9223372036854775806, 9223372036854775807)|list }} {{ range(9007199254740993, 9007199254740994)|list }}
{{ 1234567890123456785|round(-1) }} {{ (-15)|round(-1) }} {{ 25|round(-1) }} {{ 35|round(-1) }} {{ 9223372036854775807|round(-20) }} {{ 5000000000000000000|round(-19) }} {{ 949|round(-2) }} {{ 7|round(-1) }} {{ (-4)|round(-1) }}
{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }} {{ dict() }} {{ namespace(a=1).a }} {{ namespace({'b': 2}).b }} {{ namespace(a=1).zz is defined }}
{{ dict(1) }}
{{ raise_exception('no: ' ~ n) }}
{{ raise_exception() }}
{{ strftime_now('%Y-%m-%d %H:%M %d %b %Y') }} {{ strftime_now('') }} {{ strftime_now is defined }}
{{ strftime_now() }}
{{ (1, 2) }} {{ 1, 2 }} {{ () }} {{ (1,) }} {{ (1) }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ [[], [[]]] }} {{ {'a': {'b': {}}} }}
{{ }}
{{ 1 + }}
{{ (1 }}
{{ [1, }}
{{ 'abc }}
{{ 1 2 }}
{{ a.b. }}
{{ a..b }}
{{ 1abc }}
{{ {'a' 1} }}
{{ {1, 2} }}
{{ a b }}
{{ ! }}
{{ a = 1 }}
{{ not }}
{{ if }}
{{ {[]: 1} }}
{{ {{}: 1} }}
{{ a[ }}
{{ f(a=1, 2) }}
{{ dict(a=1, a=2) }}
{% if %}{% endif %}
{% if 1 %}
{% for %}{% endfor %}
{% for x in %}{% endfor %}
{% for x list %}{% endfor %}
{% for x in list %}
{% endif %}
{% else %}
{% nope %}
{% set %}
{% set x %}
{% set 1 = 2 %}
{% set none = 2 %}
{% set x.y = 2 %}
{% set d.y = 2 %}
{% set x = %}
{% macro %}{% endmacro %}
{% macro m %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(1) %}{% endmacro %}
{% break %}
{% for x in list %}{% endfor %}{% continue %}
{% raw %}
{# open
{{ open
{% open
{% include 'x' %}
{% extends 'x' %}
{% import 'x' as y %}
{% if n == 3 %}three{% elif n == 4 %}four{% else %}other{% endif %} {% if no %}a{% elif nil %}b{% elif yes %}c{% endif %} {% if 1, %}t{% endif %}
{% for x in list %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %} {% for x in [] %}a{% else %}empty{% endfor %} {% for x in missing %}a{% else %}none{% endfor %}
{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}
{% for x in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %} {% for x in list %}{{ loop.nope is defined }}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k, v in d|items %}{{ k }}{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for c in 'éa' %}{{ c }}.{% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in list %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in list if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %} {% for x in list if x > 9 %}{% else %}no{% endfor %} {% for x in list if x is odd and x > 1 %}{{ x }}{{ loop.length }}{% endfor %}
{% set ns = namespace(v=1) %}{% for x in list if ns.v %}{{ x }}{% set ns.v = 0 %}{% endfor %}|{% set ns.v = 1 %}{% for x in list if ns.v %}{{ x }}{{ loop.last }}{% set ns.v = 0 %}{% endfor %}|{% set ns.v = 1 %}{% for x in list if ns.v %}{{ x }}{{ loop.length }}{{ loop.nextitem }}{% set ns.v = 0 %}{% endfor %}|{% set ns.v = 0 %}{% for x in list if ns.v %}{% else %}none{% endfor %}
{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %} {% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %} {% for x in list %}{% for y in list %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}
{% for x in list %}{% set y = x %}{% endfor %}{{ y is defined }} {% set y = 0 %}{% for x in list %}{{ y }}{% set y = y + x %}{{ y }} {% endfor %}{{ y }} {% for x in list %}{% if loop.first %}{% set z = 1 %}{% endif %}{{ z is defined }}{% endfor %}
{% set x = 5 %}{% for x in list %}{{ x }}{% endfor %}{{ x }} {% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }}{% endfor %} {{ loop is defined }}
{% set ns = namespace(c=0) %}{% for x in list %}{% set ns.c = ns.c + x %}{% endfor %}{{ ns.c }} {{ ns.missing is defined }} {% set ns.new = 'v' %}{{ ns.new }} {{ ns['c'] }} {{ ns }}
{% if yes %}{% set a = 1 %}{% endif %}{{ a }} {% if no %}{% set b = 1 %}{% endif %}{{ b is defined }} {% set n = n + 1 %}{{ n }} {% set p, q = 1, 2 %}{{ p }}{{ q }} {% set t = 1, 2 %}{{ t }} {% set (a, b) = [3, 4] %}{{ a }}{{ b }}
{% set p, q = 1 %}
{% set x %}a{{ n }}b{% endset %}{{ x }} {{ x|length }} {% set y | upper %}abc{% endset %}{{ y }} {% set z | replace('a', 'b') | upper %}aaa{% endset %}{{ z }} {% set w %}{% set inner = 1 %}{% endset %}{{ inner is defined }} {% set ns = namespace() %}{% set ns.t %}in{% endset %}{{ ns.t }}
{% macro m(a, b=2) %}[{{ a }}|{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}{{ m(1)|length }}{{ m.name }} {{ m is callable }} {{ m('x') ~ 'y' }} {{ m(1) is string }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }} {% macro o(a) %}{{ a }}{{ varargs|join('-') }}{% endmacro %}{{ o(1, 2, 3) }} {% macro kw(a) %}{{ kwargs|dictsort }}{% endmacro %}{{ kw(1, z=1, y=2) }}
{% macro m(x) %}{{ x }}{{ n }}{{ later is defined }}{% endmacro %}{{ n }}{{ m(1) }}{% set later = 1 %}{{ m(2) }}{% set n = 9 %}{{ m(3) }} {% for q in [1] %}{{ m(q) }}{% endfor %} {% for n in [7] %}{{ m(0) }}{% endfor %}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }} {% macro a(x, y=x) %}{{ y }}{% endmacro %}{{ a(3) }} {% macro s() %}{% set loc = 1 %}{{ loc }}{% endmacro %}{{ s() }}{{ loc is defined }}
{% macro r(d) %}{% for k, v in d|dictsort %}{{ k }}{% if v is mapping %}({{ r(v) }}){% endif %}{% endfor %}{% endmacro %}{{ r({'a': {'b': {'c': 1}}, 'd': 2}) }}
{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ n }}{% endcall %} {% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) each(list) %}[{{ x }}]{% endcall %} {% macro c2() %}{{ caller is defined }}{% endmacro %}{{ c2() }}
{% macro nc() %}x{% endmacro %}{% call nc() %}y{% endcall %}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b')|upper %}aaa{% endfilter %} {% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with %}{% set q = 1 %}{% endwith %}{{ q is defined }} {% generation %}gen {{ n }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}
{% for x in nested recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %} {% for x in list %}{{ loop(x) if false }}{% endfor %}
{% for x in list %}{{ loop(list) }}{% endfor %}
{% raw %}{{ x }} {% if %}{% endraw %} a {%- raw -%}  b  {%- endraw -%}  c {% raw %}⏎ x{% endraw %}⏎ y
a⏎  {% if yes %}⏎  b⏎  {% endif %}⏎  c⏎
a⏎  {%- if yes -%}⏎  b⏎  {%- endif -%}⏎  c⏎
a⏎  {%+ if yes %}⏎  b⏎  {%+ endif +%}⏎  c⏎
{# c #}⏎a{#- c -#}  b {# c #} c⏎  {# c #}⏎  d{#+ c +#}⏎
{{ 'a' }}⏎{{ 'b' }}⏎⏎
  {{- 'a' -}}  ⏎ b {{+ 'c' }} {{ 'x' -}}⏎⏎  y
{% set x = 1 %}⏎{% set y = 2 %}⏎⏎{{ x }}⏎
⏎⏎{% if yes %}⏎⏎{% endif %}⏎⏎
{% if yes %}a⏎{% endif %}⏎{%- for x in list %}⏎ {{ x }}⏎{%- endfor %}⏎⏎
x {% if yes %} y {% endif %} z⏎  w {% if yes %}⏎ v {% endif %}
␍⏎a␍⏎{% if yes %}␍⏎b␍{% endif %}␍⏎
{{ "a⏎b" }}⏎{{ 'multi⏎line' }}
{%- set x = {'a': [1, {'b': 2}]} -%}{{ x['a'][1]['b'] }}{{ x.a[1].b }} {{ {'}}': '%}'} }} {{ '{{ x }}' }} {{ '#}' }} { % {x} }} %} #}
{{ messages|map(attribute='role')|join(',') }} {{ messages[-1].role }} {{ messages[1:]|length }} {{ (messages|last).content }} {{ messages|selectattr('tool_calls', 'defined')|map(attribute='role')|list }}
{{ 'x' if messages[0].role == 'system' and messages[0]['content'] is string else 'y' }} {{ messages[0]['content']|trim + '!' }} {{ (messages[0].content ~ '').strip() }}
{{ -1|abs }} {{ (-1)|abs }} {{ - 1 + 2 }} {{ 2 - -1 }} {{ 10 - 3 - 2 }} {{ 2 * 3 + 4 * 5 }} {{ (2 + 3) * 4 }} {{ 1 + 2 ~ 3 + 4 }} {{ 2 ~ 3 * 2 }} {{ 'a' ~ 'b'|upper }} {{ not n == 3 }} {{ 1 + 1 == 2 and 'ok' }} {{ n|string + 'x' }} {{ [1, 2][0] + {'a': 5}['a'] }} {{ -n|abs }} {{ n is odd and 1 or 2 }}
{{ dict(**{'a': 1}) }} {{ range(*[1, 4])|list }} {{ '%s' % n ~ 'x' }} {{ s.split('l')[0].upper()[::-1] }} {{ d.a.x|map('string')|join('+') }} {{ ((((1)))) }} {{ [[[[1]]]][0][0][0][0] }}
{{ d|attr('b') is defined }} {{ s|attr('upper') is defined }} {{ 3|float|string }} {{ '3' * 2|int }} {{ list|map('float')|sum }} {{ 9007199254740993 }} {{ 1e22 }} {{ 1.0e-4 }} {{ 0.00001 }} {{ 100000000000000000.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ -0.0 }}
"""

# Like the above, but these modify lists and dicts, which Hugging Face's sandbox forbids.
CHANGING = r"""
{% set l = [1] %}{% set _ = l.append(2) %}{{ l }} {{ l.pop() }} {{ l }} {% set _ = l.insert(0, 'x') %}{{ l }} {% set _ = l.extend([7, 8]) %}{{ l }} {{ l.pop(0) }}{{ l }} {% set _ = l.remove(7) %}{{ l }} {% set _ = l.reverse() %}{{ l }}
{% set x = {'a': 1} %}{% set _ = x.update({'b': 2}) %}{{ x }} {{ x.pop('a') }} {{ x }} {{ x.setdefault('c', 3) }}{{ x }} {{ x.pop('zz', 'd') }} {% set _ = x.clear() %}{{ x }} {% set _ = x.update(q=1) %}{{ x }}
{% set l = [] %}{% for m in messages %}{% set _ = l.append(m.role) %}{% endfor %}{{ l|join(',') }}{{ l.append(1) }}
{% set l = [3, 1, 2] %}{{ l.sort() }}{{ l }}{{ l.copy() }}{{ l.clear() }}{{ l }}
{{ [].pop() }}
{{ {}.pop('a') }}
{{ [1].remove(2) }}
"""


def split(text):
    """The templates of a table: its lines, and each expression of a line alone, so that a failing one
    does not hide the others."""
    for line in text.strip("\n").split("\n"):
        line = line.replace("⏎", "\n").replace("␍", "\r")
        yield line
        pieces = re.split(r"(?<=\}\})\|? (?=\{\{)", line)
        if len(pieces) > 1 and line.startswith("{{"):
            yield from pieces


# ---- Random templates ----

ATOMS = ["n", "f", "neg", "yes", "no", "nil", "s", "sp", "empty", "list", "words", "nested", "d", "d.a", "people", "missing",
         "messages", "messages[0]", "emoji", "1", "0", "-2", "2.5", "'a'", "''", "'é b'", "[]", "[1, 'x']", "{}",
         "{'k': n}", "(1, 2)", "true", "none", "loop.index", "x", "y", "ns.v"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
# Filters that return generators are consumed at once: jinja2 fails only during iteration.
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "string", "first", "last", "list", "tojson", "join", "join('-')",
           "default('d')", "default('d', true)", "int", "float", "abs", "round", "sort", "reverse", "unique|list", "sum", "min", "max",
           "items|list", "dictsort", "map('string')|list", "map(attribute='name')|list", "select|list", "reject('none')|list", "select('string')|list",
           "selectattr('age')|list", "replace('a', 'b')", "indent(2)", "tojson(indent=1)", "batch(2)|list", "count"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence",
         "true", "false", "odd", "even", "lower", "upper", "divisibleby 2", "in [1, 'a', none]", "eq 1", "callable"]
# Slices contain a variable: jinja2 folds constant ones, and then slicing an unsliceable value is
# undefined, not an error.
SUFFIXES = ["[0]", "[-1]", "[n - 2:]", "[:n - 4]", "[::neg // 7]", "[:n]", "['a']", ".a", ".name", ".role", ".x", ".items()", ".keys()", ".get('a')",
            ".get('zz', 1)", ".upper()", ".strip()", ".split()", ".split('a')", ".startswith('h')", ".replace('l', 'L')",
            ".count('a')", ".find('l')", ".title()", ".join(words)", "[n]", "[s]"]


def expression(rng, depth):
    if depth == 0:
        return rng.choice(ATOMS)
    kind = rng.randrange(9)
    sub = lambda: expression(rng, depth - 1)
    if kind == 0:
        return f"({sub()} {rng.choice(BINARY)} {sub()})"
    if kind == 1:
        return f"{sub()} {rng.choice(BINARY)} {sub()}"
    if kind in (2, 3):
        return f"{sub()}|{rng.choice(FILTERS)}"
    if kind == 4:
        return f"({sub()} is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if kind in (5, 6):
        return f"({sub()}){rng.choice(SUFFIXES)}"
    if kind == 7:
        return f"({sub()} if {sub()} else {sub()})"
    return rng.choice([f"[{sub()}, {sub()}]", f"{{'k': {sub()}}}", f"not {sub()}", f"-{sub()}", f"m({sub()})"])


def statement(rng, depth):
    space = lambda: rng.choice(["", "", " ", "\n", "  \n", "\n  "])
    sign = lambda: rng.choice(["", "", "", "-"])
    tag = lambda text: f"{{%{sign()} {text} {sign()}%}}"
    value = lambda: expression(rng, rng.randrange(3))
    kind = rng.randrange(7) if depth else rng.randrange(3)
    body = lambda: "".join(statement(rng, depth - 1) for _ in range(rng.randrange(1, 3)))
    if kind == 0:
        return space() + "text" + space()
    if kind == 1:
        return f"{space()}{{{{{sign()} {value()} {sign()}}}}}{space()}"
    if kind == 2:
        return space() + tag(f"set {rng.choice(['x', 'y', 'ns.v'])} = {value()}") + space()
    if kind == 3:
        return space() + tag(f"if {value()}") + body() + tag(f"elif {value()}") + body() + tag("else") + body() + tag("endif")
    if kind == 4:
        test = rng.choice(["", f" if {value()}"])
        return space() + tag(f"for x in {value()}{test}") + body() + space() + tag("endfor") + space()
    if kind == 5:
        return tag("set y") + body() + tag("endset") + space()
    return tag("for x in list") + body() + tag(rng.choice(["break", "continue"])) + tag("endfor") + space()


def random_template(rng):
    if rng.randrange(2):
        return "{% set x, y = 1, 'y' %}{% set ns = namespace(v=1) %}{% macro m(a) %}<{{ a }}>{% endmacro %}{{ " + \
            expression(rng, rng.randrange(1, 4)) + " }}"
    return "{% set ns = namespace(v=1) %}{% macro m(a, b=n) %}<{{ a }}{{ x }}>{% endmacro %}\n" + \
        "".join(statement(rng, 2) for _ in range(rng.randrange(1, 4)))
