"""Tokens of Kubernetes service accounts, reviewed by an API server over TLS."""

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.errors import UnauthorizedError, UnavailableError
from regroup.service.domain.identity import IdentityKind
from regroup.service.operations.access.token_review import TokenReview
from regroup.service.policy.access.rate import RateLimit
from tests.support.inputs.certificates import write_certificate

ACCOUNT = "system:serviceaccount:ml:trainer"
GROUPS = ["system:serviceaccounts", "system:serviceaccounts:ml"]


class Api(BaseHTTPRequestHandler):
    """An API server that knows one token."""

    reviews: list[Any] = []
    status = 201

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Api.reviews.append((self.path, self.headers["Authorization"], body))
        spec = body["spec"]
        is_accepted = spec["token"] == "a.b.c"
        user = {"username": ACCOUNT, "groups": GROUPS} if is_accepted else {}
        status = {"authenticated": is_accepted, "user": user, "audiences": spec["audiences"] if is_accepted else []}
        text = json.dumps({**body, "status": status}).encode()
        self.send_response(Api.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A folder as Kubernetes mounts it for a service account."""
    (tmp_path / "token").write_text("own token\n")
    return tmp_path


@pytest.fixture
def api(account: Path) -> Iterator[str]:
    Api.reviews, Api.status = [], 201
    context, files = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), write_certificate(account)
    context.load_cert_chain(files.certificate, files.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def test_a_service_account_is_reviewed_once_a_minute(api: str, account: Path) -> None:
    review = TokenReview(api, "regroup", frozenset({"system:serviceaccounts:ml"}), account)
    for _ in range(3):
        subject = await review.identify("a.b.c")
    assert (subject.name, subject.kind, subject.is_operator) == (ACCOUNT, IdentityKind.SERVICE_ACCOUNT, True)
    assert subject.members == [ACCOUNT, *(f"group:{group}" for group in GROUPS)]
    ((path, authorization, body),) = Api.reviews
    assert path == "/apis/authentication.k8s.io/v1/tokenreviews" and authorization == "Bearer own token"
    assert body["spec"] == {"token": "a.b.c", "audiences": ["regroup"]}


async def test_another_token_is_refused(api: str, account: Path) -> None:
    with pytest.raises(UnauthorizedError, match="does not accept"):
        await TokenReview(api, "regroup", account=account).identify("x.y.z")


async def test_an_answer_for_another_audience_is_refused(
    api: str, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    review = TokenReview(api, "regroup", account=account)
    status = {"authenticated": True, "user": {"username": ACCOUNT}, "audiences": ["kubernetes"]}

    async def answer(value: str) -> Any:
        return status

    monkeypatch.setattr(review, "_review", answer)
    with pytest.raises(UnauthorizedError, match="not for the audience"):
        await review.identify("a.b.c")


@pytest.mark.parametrize("fault", ["refused", "no account", "another authority", "no server"])
async def test_a_review_that_fails_states_the_reason(api: str, account: Path, tmp_path: Path, fault: str) -> None:
    url = api
    match fault:
        case "refused":
            Api.status = 403
        case "no account":
            (account / "token").unlink()
        case "another authority":
            (tmp_path / "other").mkdir()
            write_certificate(tmp_path / "other").certificate.replace(account / "ca.crt")
        case _:
            url = "https://127.0.0.1:1"
    with pytest.raises(UnavailableError, match="cannot review the token"):
        await TokenReview(url, "regroup", account=account).identify("a.b.c")


async def test_a_refused_token_is_not_reviewed_again_at_once(api: str, account: Path) -> None:
    review = TokenReview(api, "regroup", account=account)
    for _ in range(3):
        with pytest.raises(UnauthorizedError, match="does not accept"):
            await review.identify("x.y.z")
    assert len(Api.reviews) == 1


async def test_concurrent_requests_with_one_token_need_one_review(
    api: str, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regroup.service.operations.access.token_review._CONCURRENT", 1)
    review = TokenReview(api, "regroup", account=account)
    subjects = await asyncio.gather(*(review.identify("a.b.c") for _ in range(20)))
    assert len({subject.name for subject in subjects}) == 1 and len(Api.reviews) == 1


async def test_a_flood_of_tokens_is_not_passed_on(api: str, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.operations.access.token_review._RATE", RateLimit(per_s=0.001, burst=5))
    review = TokenReview(api, "regroup", account=account)
    answers = await asyncio.gather(*(review.identify(f"x.y.{n}") for n in range(50)), return_exceptions=True)
    assert len(Api.reviews) == 5
    assert [type(answer) for answer in answers].count(UnauthorizedError) == 5
    (refused,) = {str(answer) for answer in answers if isinstance(answer, UnavailableError)}
    assert "send the request again" in refused
    with pytest.raises(UnauthorizedError):
        await review.identify("x.y.0")
