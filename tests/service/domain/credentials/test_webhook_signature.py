"""Signatures: the reference vector of Standard Webhooks, and headers during a rotation."""

import base64
import re
import time
from typing import Any

import pytest

from regroup.api.schemas.hooks import NewHook
from regroup.service.domain.credentials.webhook_signature import generate_secret, is_secret, sign, signature_headers
from tests.support.jobs.shell_commands import blocks

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, TIME_S, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_signature_is_that_of_the_reference_libraries() -> None:
    assert sign(SECRET, ID, TIME_S, BODY) == SIGNATURE


def test_the_signature_covers_id_time_and_body() -> None:
    assert len({sign(SECRET, *each) for each in ((ID, TIME_S, BODY), (f"{ID}x", TIME_S, BODY),
                                                 (ID, TIME_S + 1, BODY), (ID, TIME_S, BODY + b" "))}) == 4  # fmt: skip


def test_two_secrets_give_two_signatures_in_one_header() -> None:
    other = generate_secret()
    headers = signature_headers([other, SECRET], ID, TIME_S, BODY)
    assert headers["webhook-signature"].split() == [sign(other, ID, TIME_S, BODY), SIGNATURE]
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (ID, str(TIME_S))


def test_secrets_are_random_and_have_256_bits() -> None:
    secrets = {generate_secret() for _ in range(20)}
    assert len(secrets) == 20
    assert {len(base64.b64decode(each.removeprefix("whsec_"))) for each in secrets} == {32}


@pytest.mark.parametrize(("size_bytes", "is_accepted"), [(23, False), (24, True), (32, True), (64, True), (65, False)])
def test_a_secret_has_24_to_64_bytes(size_bytes: int, is_accepted: bool) -> None:
    secret = f"whsec_{base64.b64encode(b'k' * size_bytes).decode()}"
    assert is_secret(secret) is is_accepted
    assert bool(re.fullmatch(NewHook.model_json_schema()["properties"]["secret"]["anyOf"][0]["pattern"], secret)) is (
        is_accepted
    ), "the schema of the API says the same"


@pytest.mark.parametrize("text", ["", "whsec_", SECRET[6:], SECRET + "=", SECRET + "\n", f"{SECRET}AB==", SECRET[:-1]])
def test_other_spellings_of_a_secret_are_refused(text: str) -> None:
    assert not is_secret(text)


def test_the_function_of_the_page_verifies_signatures() -> None:
    (block,) = blocks("docs/operations/hooks.md", "python")
    page: dict[str, Any] = {}
    exec(block.text, page)
    verify, now_s, other = page["verify"], int(time.time()), generate_secret()
    headers = signature_headers([other, SECRET], ID, now_s, BODY)
    assert verify(SECRET, headers, BODY) and verify(other, headers, BODY)
    assert not verify(generate_secret(), headers, BODY)
    assert not verify(SECRET, headers, BODY + b" ")
    assert not verify(SECRET, {**headers, "webhook-id": "another"}, BODY)
    old = signature_headers([SECRET], ID, now_s - 301, BODY)
    assert not verify(SECRET, old, BODY), "an old request is refused"
