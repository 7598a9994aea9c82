"""Strict YAML: a text that versions of YAML read differently is refused by line, column and path."""

import time
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from regroup.service.documents.document import MAX_DEPTH, MAX_VALUES, DocumentError, MalformedDocumentError
from regroup.service.documents.yaml_text import parse_yaml
from tests.support.inputs.fuzz import fuzz_settings

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_BOMB = "a: &a {p: &p [x, x, x, x, x, x, x, x]}\n" + "".join(
    f"{name}: &{name} {{<<: *{before}, {', '.join(f'k{n}: *{before}' for n in range(9))}}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
SEEDS = (
    BOMB,
    MERGE_BOMB,
    "a: &a [*a]",
    "a: &a {b: *a}",
    "<<: 1",
    "<<: [1]",
    "? a\n: b",
    "? [a]\n: b",
    "- - - -",
    "a: !!python/object/apply:os.system [x]",
    "%YAML 1.1\n---\n",
    "a: |\n x\n",
    "a: 'x",
    "\t",
    "a:\n\t- b",
    "{" * 100,
    "a: 0o17",
    "a: .inf",
    "a: 1:30:00",
    "&a a: *a",
    "--- a\n--- b\n",
    "a: \x07",
    "*a",
    "a: *b",
    '"\\ud800"',
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("a: 1\nb: -2\nc: +3", {"a": 1, "b": -2, "c": 3}),
        ("a: 1e-4\nb: 2.5\nc: .5\nd: 1E3", {"a": 1e-4, "b": 2.5, "c": 0.5, "d": 1000.0}),
        ("a: true\nb: False\nc: ~\nd:", {"a": True, "b": False, "c": None, "d": None}),
        ("a: off\nb: y\nc: 1.2.3\nd: 12ab\ne: v1", {"a": "off", "b": "y", "c": "1.2.3", "d": "12ab", "e": "v1"}),
        ("a: 'yes'\nb: \"010\"\nc: '2026-01-01'", {"a": "yes", "b": "010", "c": "2026-01-01"}),
        ("1: a\nyes: b\n2026-01-01: c", {"1": "a", "yes": "b", "2026-01-01": "c"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}", {"a": {"p": 1, "q": 2}, "b": {"q": 3, "p": 1}}),
        ("a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc: {<<: [*x, *y]}",
         {"a": {"p": 1}, "b": {"p": 2, "q": 2}, "c": {"p": 1, "q": 2}}),
        ("'<<': 1", {"<<": 1}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        ("{a: 1, 'b': [yes1]}", {"a": 1, "b": ["yes1"]}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
    ],
)  # fmt: skip
def test_the_values_of_json_are_read(text: str, expected: object) -> None:
    assert parse_yaml(text) == expected


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("a:\n  b: yes", "a.b", "line 2, column 6: yes is ambiguous, because some readers take it for a boolean"),
        ("a: No", "a", "boolean"),
        ("a: ON", "a", "boolean"),
        ("a: 010", "a", "an octal number: write it in decimal, or quote it"),
        ("a: 0o17", "a", "octal"),
        ("a: 0x1F", "a", "hexadecimal"),
        ("a: 0b11", "a", "binary"),
        ("a: 1_000", "a", "remove the underscores"),
        ("a: 089", "a", "remove the leading zeros"),
        ("a: 12:30:45", "a", "base 60"),
        ("a: 2026-11-25", "a", "a date: quote it"),
        ("a: 2026-11-25 10:00:00", "a", "a date"),
        ("a: [.nan]", "a.0", ".nan is not a finite number"),
        ("a: -.Inf", "a", "not a finite number"),
        ("a: Infinity", "a", "not a finite number"),
        ("a: 1e999", "a", "too large"),
        ("args: {x: off}", "args.x", "off is ambiguous"),
        ("a: 1\nb: 2\na: 3", "a", "line 3, column 1: the key appears twice in one mapping; the first is at line 1"),
        ("a: 1\n---\nb: 2", "", "line 2, column 1: a second document begins here"),
        ("a: !!int 3", "a", "tags such as !!int are not supported"),
        ("a: !!python/object/apply:os.getcwd []", "a", "tags such as !!python/object/apply:os.getcwd"),
        ("a: !x 3", "a", "tags such as !x"),
        ('a: "x\\0y"', "a", "NUL character"),
        ("a: &a [*a]", "a.0", "*a is inside the value that it repeats"),
        ("a: *b", "a", "*b repeats a value, but no &b is before it"),
        ("a: {<<: 3}", "a", "<< merges a mapping or a list of mappings"),
        ("? [a]\n: b", "", "a key must be text"),
        ("~: b", "", "a key is missing"),
        ("a: " + "[" * 3000 + "]" * 3000, "a.0.0", f"nested at most {MAX_DEPTH} levels deep"),
        (BOMB, "", f"at most {MAX_VALUES:,} values, with all repetitions"),
        (MERGE_BOMB, "", f"at most {MAX_VALUES:,} values, with all repetitions"),
        ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40, "b.0", "nested more than 64 levels"),
        ("a: [" + "x, " * 30_000 + "]", "a.19", f"at most {MAX_VALUES:,} values"),
    ],
)  # fmt: skip
def test_what_a_person_cannot_have_meant_is_refused_by_place(text: str, path: str, message: str) -> None:
    started_s = time.process_time()
    with pytest.raises(DocumentError) as refused:
        parse_yaml(text, {"args"})
    (issue,) = refused.value.issues
    assert issue.path.startswith(path) and message in issue.message
    assert time.process_time() - started_s < 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\tb: 1", "line 2, column 1: a tab indents this line: indent with spaces"),
        ("a: [1", "line"),
        ("a: 'x", "line"),
        ("a: \x07", "line 1, column 4: the character U+0007 cannot be in a YAML text"),
        ("a: b: c", "line 1, column 5"),
        (b"\xfe\xff\x00a", "UTF-16"),
    ],
)
def test_a_text_that_is_not_yaml_is_refused_by_place(text: str | bytes, message: str) -> None:
    with pytest.raises(MalformedDocumentError) as refused:
        parse_yaml(text)
    assert message in refused.value.issues[0].message


def test_a_repeated_value_is_a_copy() -> None:
    read: Any = parse_yaml("a: &x {p: [1]}\nb: *x\nc: {<<: *x}")
    read["b"]["p"].append(2)
    assert read == {"a": {"p": [1]}, "b": {"p": [1, 2]}, "c": {"p": [1]}}


def _with_seeds(test: Any) -> Any:
    for seed in SEEDS:
        test = example(seed)(test)
    return test


_TOKENS = (
    *("a: ", "b: ", "- ", "? ", ": ", "\n", "  ", "\t", "&x ", "*x", "<<: ", "{", "}", "[", "]", ", ", "'", '"'),
    *("|\n", ">\n", "#", "!!str ", "---\n", "...\n", "%YAML 1.2\n", "010", "yes", "off", "1e3", ".inf", "~"),
    *("\\", "é", "\x00", "2026-01-01", "1:30", "x", "\ufeff", "\ud800"),
)
_PIECES = st.lists(st.sampled_from(_TOKENS), max_size=16).map("".join)


@pytest.mark.fuzz
@fuzz_settings(300)
@given(_PIECES | st.text(max_size=30))
def _fuzz(text: str) -> None:
    started_s = time.process_time()
    try:
        value = parse_yaml(text, {"args"})
    except DocumentError as error:
        assert error.issues[0].message
        return
    finally:
        assert time.process_time() - started_s < 5
    assert _is_plain(value)
    assert yaml.safe_load(yaml.safe_dump(value)) == value


test_any_text_gives_plain_data_or_is_refused = _with_seeds(_fuzz)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)
