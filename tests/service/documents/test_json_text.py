"""Strict JSON: it agrees with the standard library where that is right, and refuses the rest by its place."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regroup.service.documents.document import MAX_DEPTH, MAX_VALUES, DocumentError, MalformedDocumentError
from regroup.service.documents.json_text import _UNSURE, _Parser, _read_plain, parse_json
from tests.support.inputs.fuzz import fuzz_settings

SEEDS = (
    '{"a": [1, -2.5e3, true, null, "\\u00e9\\ud83d\\ude00"], "b": {"": {}}}',
    '{"a": 1, "a": 2}',
    '{"a": NaN}',
    '{"a": [[[]]]}',
    '{"a": 1e400}',
    '{"a": "\\ud800"}',
    '{"a": "\\u0000"}',
    '{"a": 00}',
    "\ufeff[1,]",
    '["\t"]',
    '{"a" 1}',
    "[1 2]",
    '"',
    "-",
    "{",
    "]",
    "1e",
    "[" * 100,
)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ('{"a": 1,\n "b": [1, NaN]}', "b.1", "line 2, column 11: NaN is not a finite number"),
        ('{"a": -Infinity}', "a", "line 1, column 7: -Infinity is not a finite number"),
        ('{"a": 1e400}', "a", "line 1, column 7: the number 1e400 is too large"),
        ('{"a": 1e-400}', "a", "would be read as 0"),
        (f'{{"resources": {{"cpus": 1{"0" * 309}}}}}', "resources.cpus", "at most 64 characters, not 310"),
        ('{"a": 9223372036854775808}', "a", "must be between -9223372036854775807 and 9223372036854775807"),
        (
            '{"a": 1,\n\n  "a": 2}',
            "a",
            "line 3, column 3: the key appears twice in one mapping; the first is at line 1",
        ),
        ('{"env": {"A": "x\\u0000y"}}', "env.A", "line 1, column 15: text must not contain the NUL character"),
        ('{"a\\u0000b": 1}', "", "NUL"),
        ('{"a": "\\udc00"}', "a", "lone surrogate"),
        ('{"x.y": {"": NaN}}', '["x.y"][""]', "not a finite number"),
        ('{"a": ' + "[" * 3000, "a.0.0", f"nested at most {MAX_DEPTH} levels deep"),
        ("[" + "0," * MAX_VALUES + "0]", str(MAX_VALUES - 1), f"at most {MAX_VALUES:,} values"),
        ('"' + "x" * 2**20 + '"', "", "at most 1,048,576 bytes"),
    ],
)
def test_what_a_person_cannot_have_meant_is_refused_by_place(text: str, path: str, message: str) -> None:
    started_s = time.process_time()
    with pytest.raises(DocumentError) as refused:
        parse_json(text)
    (issue,) = refused.value.issues
    assert issue.path.startswith(path) and message in issue.message
    assert not isinstance(refused.value, MalformedDocumentError)
    assert time.process_time() - started_s < 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: the text ends, but a value is missing"),
        ('{"a": 1', "line 1, column 8: the text ends, but a comma or } is missing"),
        ('{"a": 1,\n}', "line 2, column 1: expected a key in double quotes, but found }"),
        ("{'a': 1}", "line 1, column 2: texts of JSON need double quotes"),
        ("[1]\n[2]", "line 2, column 1: expected the end of the document, but found ["),
        ("[01]", "not a number of JSON: no leading zeros"),
        ("[+1]", "not a number of JSON"),
        ("[0x10]", "not a number of JSON"),
        ("[1] // text", "JSON has no comments"),
        ('["a\nb"]', "no closing quote, or contains a line break or tab"),
        ('["\\x"]', "backslash that starts no escape sequence"),
        ("name: gpt", "unexpected 'n'"),
        ("[1}", "expected a comma or ], but found }"),
        ('{1: "a"}', "expected a key in double quotes or }, but found 1"),
        (b"\xff\xfe[\x00]\x00", "UTF-16 or UTF-32: save it as UTF-8"),
        (b'{"a":\n "\xe9"}', "line 2, column 3: the byte 0xe9 is not UTF-8"),
    ],
)
def test_a_text_that_is_not_json_is_refused_by_place(text: str | bytes, message: str) -> None:
    with pytest.raises(MalformedDocumentError) as refused:
        parse_json(text)
    assert message in refused.value.issues[0].message


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def _with_seeds(test: Any) -> Any:
    for seed in SEEDS:
        test = example(seed)(test)
    return test


_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\"\\é", max_size=3), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=300, derandomize=True)
@given(_TEXTS, st.sampled_from([None, 1]), st.booleans())
def test_every_finite_value_is_read_as_it_was_written(value: object, indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    assert repr(parse_json(text)) == repr(json.loads(text))


@pytest.mark.fuzz
@fuzz_settings(300)
@given(st.one_of(st.text('{}[]:,"\\ \n\t-+.0123456789eEnulltrfasN\x00u\ufeff', max_size=40), st.binary(max_size=40)))
def _fuzz(source: str | bytes) -> None:
    started_s = time.process_time()
    try:
        value = parse_json(source)
    except DocumentError as error:
        assert error.issues[0].message
        return
    finally:
        assert time.process_time() - started_s < 5
    plain = source.removeprefix("\ufeff") if isinstance(source, str) else source  # the library accepts it only in bytes
    assert repr(json.loads(plain)) == repr(value), "other readers read the same value"


test_any_text_is_read_like_the_standard_library_or_refused = _with_seeds(_fuzz)


_TEXTS = st.one_of(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
        max_leaves=20,
    ).map(lambda value: json.dumps(value, ensure_ascii=False)),
    st.sampled_from(SEEDS),
    st.text(alphabet='{}[]",:\\u0d8eE+-.1290 \t\ntrufalsn\ufeff\x00', max_size=20),
)


@fuzz_settings(300)
@given(text=_TEXTS)
def test_the_fast_way_reads_only_what_the_strict_way_reads_alike(text: str) -> None:
    if (found := _read_plain(text)) is not _UNSURE:
        strict = _Parser(text, None).parse()
        assert found == strict and repr(found) == repr(strict)


def test_the_fast_way_reads_a_usual_document() -> None:
    text = json.dumps({"name": "gpt", "steps": 10, "rate": 1e-3, "labels": {"a": "é"}, "data": [True, None, -1]})
    text = text.replace("\\u00e9", "é")
    assert _read_plain(text) == json.loads(text)
