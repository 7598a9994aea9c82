"""Entity tags: equal facts have equal tags, and `If-Match` is read as RFC 9110 defines it."""

import re

import pytest

from regroup.service.domain.errors import PreconditionError
from regroup.service.domain.versions import etag_of, is_match, job_versions_in


def test_a_tag_depends_on_the_facts_and_not_on_their_order() -> None:
    assert etag_of({"a": 1, "b": [True, None]}) == etag_of({"b": [True, None], "a": 1})
    assert etag_of({"a": 1}) != etag_of({"a": 2}) != etag_of(None)
    assert re.fullmatch(r'"[0-9a-f]{20}"', etag_of({"a": "ü"}))


def test_a_list_matches_one_of_its_tags_and_a_star_whatever_exists() -> None:
    tag = etag_of({"a": 1})
    assert is_match(tag, tag) and is_match(f'"x" , {tag}', tag) and is_match(" * ", tag)
    assert not is_match('"x"', tag) and not is_match("*", None) and not is_match(tag, None)


@pytest.mark.parametrize("wrong", ["", "abc", 'W/"abc"', '"a" "b"', '"a",', '"a\nb"'])
def test_other_texts_than_tags_are_refused(wrong: str) -> None:
    with pytest.raises(PreconditionError, match="is not an ETag; send the value of `etag`"):
        is_match(wrong, etag_of(None))


def test_only_the_version_of_a_job_counts() -> None:
    assert job_versions_in('"12.7", "13.0"') == {12, 13}
    assert job_versions_in("*") is None
    with pytest.raises(PreconditionError, match="is not an ETag of a job"):
        job_versions_in('"12"')
