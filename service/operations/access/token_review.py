"""Tokens of Kubernetes service accounts, which the cluster's API server reviews.

Everyone who reaches the server can send tokens that are not valid. So that they do not become load on the API server,
refusals are remembered, too, and the number of reviews is limited.
"""

import asyncio
import hashlib
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from regroup.service.domain.errors import UnauthorizedError, UnavailableError
from regroup.service.domain.identity import IdentityKind
from regroup.service.policy.access.external import ExternalSubject
from regroup.service.policy.access.rate import Bucket, RateLimit, acquire_request

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder in which Kubernetes mounts the account of this pod."""
_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_CACHED_S = 60.0
_REFUSED_S = 10.0
"""Time for which a refusal is valid. A token that was just issued may be unknown for a moment."""
_RATE = RateLimit(per_s=20.0, burst=100)
"""Reviews of all tokens together."""
_CONCURRENT = 8
_MAX_CACHED = 10_000
_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class _Reviewed:
    subject: ExternalSubject | None
    """None: refused."""
    why: str
    """Why the token was refused."""
    until_s: float
    """Monotonic seconds."""


class TokenReview:
    """Reviews tokens with the API server (`authentication.k8s.io/v1`, TokenReview).

    The account of this pod needs the role `system:auth-delegator`.

    Args:
        url: URL of the API server.
        audience: audience for which tokens must be issued.
        operator_groups: groups whose members are operators of the cluster.
        account: folder with the token and the authority of this pod.
    """

    def __init__(
        self, url: str, audience: str, operator_groups: frozenset[str] = frozenset(), account: Path = ACCOUNT
    ) -> None:
        self._url, self._audience = url.rstrip("/"), audience
        self._operator_groups, self._account = operator_groups, account
        self._reviewed: dict[str, _Reviewed] = {}
        self._bucket: Bucket | None = None
        self._slots = asyncio.Semaphore(_CONCURRENT)

    async def identify(self, value: str) -> ExternalSubject:
        """Return the service account of a token. An answer is valid for a minute, and a refusal for ten seconds.

        Raises:
            UnauthorizedError: the token is not valid, or for another audience.
            UnavailableError: the API server does not answer, or refuses the review; or there are too many reviews.
        """
        key = hashlib.sha256(value.encode()).hexdigest()
        if (found := self._find(key)) is None:
            async with self._slots:
                # Another request with this token may have waited for a slot before.
                found = self._find(key) or self._remember(key, await self._reviewed_now(value))
        if found.subject is None:
            raise UnauthorizedError(found.why)
        return found.subject

    def _find(self, key: str) -> _Reviewed | None:
        found = self._reviewed.get(key)
        return found if found is not None and found.until_s > time.monotonic() else None

    def _remember(self, key: str, reviewed: _Reviewed) -> _Reviewed:
        if len(self._reviewed) >= _MAX_CACHED:
            self._reviewed.clear()
        self._reviewed[key] = reviewed
        return reviewed

    async def _reviewed_now(self, value: str) -> _Reviewed:
        self._bucket, wait_s = acquire_request(self._bucket, _RATE, time.monotonic())
        if wait_s > 0:
            raise UnavailableError("too many tokens of Kubernetes wait for their review; send the request again")
        status = await self._review(value)
        try:
            return _Reviewed(self._read(status), "", time.monotonic() + _CACHED_S)
        except UnauthorizedError as error:
            return _Reviewed(None, str(error), time.monotonic() + _REFUSED_S)

    async def _review(self, value: str) -> dict[str, Any]:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": value, "audiences": [self._audience]},
        }
        try:
            own = (self._account / "token").read_text().strip()
            trusted = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
            async with httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False, verify=trusted) as http:
                headers = {"Authorization": f"Bearer {own}"}
                answer = await http.post(f"{self._url}{_PATH}", json=body, headers=headers)
                answer.raise_for_status()
                return answer.json()["status"]
        except (httpx2.HTTPError, OSError, ssl.SSLError, ValueError, KeyError, TypeError) as error:
            raise UnavailableError(f"the Kubernetes API server cannot review the token: {error}") from error

    def _read(self, status: dict[str, Any]) -> ExternalSubject:
        user = status.get("user") or {}
        name = user.get("username")
        if status.get("authenticated") is not True or not isinstance(name, str):
            raise UnauthorizedError("Kubernetes does not accept the token")
        if self._audience not in (status.get("audiences") or ()):
            raise UnauthorizedError(f"the token is not for the audience {self._audience!r}")
        groups = frozenset(each for each in user.get("groups") or () if isinstance(each, str))
        is_operator = bool(groups & self._operator_groups)
        return ExternalSubject(name, groups, is_operator, IdentityKind.SERVICE_ACCOUNT)
