"""Random ids and secrets: their forms, and digests that only their own secret has."""

import re
from collections.abc import Callable

import pytest

from regroup.service.domain.credentials.api_tokens import generate_token, parse_token
from regroup.service.domain.credentials.random_secrets import (
    ID_PATTERN,
    SECRET_PATTERN,
    digest_of,
    generate_id,
    generate_secret,
    has_digest,
)
from regroup.service.domain.credentials.session_secrets import generate_cookie, parse_cookie


def test_ids_and_secrets_are_random_and_have_their_form() -> None:
    ids, secrets = {generate_id() for _ in range(50)}, {generate_secret() for _ in range(50)}
    assert len(ids) == len(secrets) == 50
    assert all(re.fullmatch(ID_PATTERN, each) for each in ids)
    assert all(re.fullmatch(SECRET_PATTERN, each) for each in secrets)


def test_a_digest_is_the_sha_256_and_belongs_to_one_secret() -> None:
    digest = digest_of("abc")  # the example of FIPS 180-2, appendix B.1
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert has_digest("abc", digest) and not has_digest("abcd", digest) and not has_digest("\ud800", digest)


def test_tokens_and_cookies_are_read_as_they_are_written() -> None:
    token, cookie = generate_token(), generate_cookie()
    assert parse_token(token.value) == token and parse_cookie(cookie.value) == cookie
    assert token.secret not in repr(token) and cookie.secret not in repr(cookie)


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text + "x", lambda text: text[:-1], lambda text: " " + text]
)
def test_other_texts_are_neither_tokens_nor_cookies(change: Callable[[str], str]) -> None:
    assert parse_token(change(generate_token().value)) is None
    assert parse_cookie(change(generate_cookie().value)) is None
