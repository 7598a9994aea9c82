"""Delivery over HTTP. The name of the receiver is resolved once, and the connection goes to the checked address.

A second resolution could give another, private address (DNS rebinding). Redirects are not followed, the content of the
answer is not read, and no proxy is used.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import Executor
from ipaddress import ip_address
from urllib.parse import SplitResult

import httpx2

from regroup import __version__
from regroup.service.domain.credentials.keyring import KeyringError, Keys, no_keys, read_stored
from regroup.service.domain.credentials.webhook_signature import signature_headers
from regroup.service.policy.hooks.body import render_body
from regroup.service.policy.hooks.destinations import DestinationRules, split_url
from regroup.service.policy.hooks.retries import Attempt, attempt_of_status
from regroup.service.store.rows.hook_rows import ClaimedDelivery

CONNECT_TIMEOUT_S = 5.0
ATTEMPT_TIMEOUT_S = 15.0
"""Longest duration of an attempt, with the resolution of the name."""
_MAX_ADDRESSES = 3
_MAX_ERROR = 300
_PORTS = {"https": 443, "http": 80}


class RefusedDestinationError(Exception):
    """The receiver has no address to which notifications may go."""


class HttpSender:
    """Sends notifications to URLs.

    Args:
        rules: destinations that the operator allows.
        threads: executor that resolves names.
        keys: returns the keys that decrypt the secrets of hooks.
    """

    def __init__(self, rules: DestinationRules, threads: Executor, keys: Keys = no_keys) -> None:
        self._rules, self._threads, self._keys = rules, threads, keys
        self._http: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    async def send(self, claimed: ClaimedDelivery, now: float) -> Attempt:
        """Send a notification, and return the result. `now` is the time of the signature, Unix seconds."""
        hook, event = claimed.hook, claimed.delivery.event
        url = split_url(hook.url or "")
        body = render_body(hook.kind, event)
        try:
            secrets = [read_stored(self._keys, stored, hook.owner) for stored in hook.secrets_at(now)]
        except KeyringError as error:
            return Attempt(error=f"the notification cannot be signed: {error}"[:_MAX_ERROR])
        signature = signature_headers(secrets, event.message_id, int(now), body.content)
        headers = {
            "Host": url.netloc,
            "Content-Type": body.content_type,
            "User-Agent": f"regroup/{__version__}",
            **(signature if hook.secret is not None else {}),
        }
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                return await self._post(url, headers, body.content)
        except RefusedDestinationError as error:
            return Attempt(error=str(error), is_final=True)
        except TimeoutError:
            return Attempt(error=f"the receiver did not answer within {ATTEMPT_TIMEOUT_S:g} s")
        except (httpx2.HTTPError, OSError) as error:
            return Attempt(error=_describe(error))
        except (httpx2.InvalidURL, UnicodeError):
            return Attempt(error="the URL is not valid, or the name of its host is too long", is_final=True)

    async def _post(self, url: SplitResult, headers: Mapping[str, str], content: bytes) -> Attempt:
        """Post to the first allowed address that accepts a connection."""
        http = await self._client()
        addresses = await self._resolve(url)
        for remaining, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
            # The name stays in `Host`, and TLS verifies the certificate for it.
            request = http.build_request(
                "POST", httpx2.URL(url.geturl()).copy_with(host=address), content=content, headers=dict(headers),
                extensions={"sni_hostname": url.hostname},
            )  # fmt: skip
            try:
                response = await http.send(request, stream=True, follow_redirects=False)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if not remaining:
                    raise
                continue
            try:
                return attempt_of_status(response.status_code, _retry_after_s(response))
            finally:
                await response.aclose()
        raise AssertionError("there is an address")

    async def _resolve(self, url: SplitResult) -> list[str]:
        """Return the allowed addresses of the receiver.

        Raises:
            RefusedDestinationError: it has addresses, but none is allowed.
            OSError: the name cannot be resolved.
        """
        host, port = url.hostname or "", url.port or _PORTS[url.scheme]
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, lambda: socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
        allowed, refusals = list[str](), list[str]()
        for each in dict.fromkeys(str(entry[4][0]) for entry in found):
            refusal = self._rules.refuse_address(ip_address(each), is_encrypted=url.scheme == "https")
            if refusal:
                refusals.append(refusal)
            else:
                allowed.append(each)
        if not allowed:
            raise RefusedDestinationError(refusals[0] if refusals else f"{host} has no address")
        return allowed[:_MAX_ADDRESSES]

    async def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            trust = await asyncio.to_thread(ssl.create_default_context)  # reads the files of all authorities
            if self._http is None:
                self._http = httpx2.AsyncClient(
                    verify=trust,
                    timeout=httpx2.Timeout(ATTEMPT_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
                    # A kept connection belongs to an address. Another name could have the same one.
                    limits=httpx2.Limits(max_keepalive_connections=0),
                    trust_env=False,
                )
        return self._http


def _retry_after_s(response: httpx2.Response) -> float:
    """Return the delay that a receiver requests in seconds; 0 for none, or a date."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0.0


def _describe(error: Exception) -> str:
    """Return an error as one line, without the URL, which may contain a secret."""
    text = " ".join(str(error).split()) or "no details"
    return f"the receiver cannot be reached: {type(error).__name__}: {text}"[:_MAX_ERROR]
