"""An OpenID Connect issuer as a process of its own: discovery, keys, rotation, and tokens with any claims.

    python -m tests.support.servers.oidc_issuer

It prints its URL, and ends with its standard input.
"""

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

AUDIENCE = "regroup"


class _Keys:
    """Keys of the issuer. The last one signs."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._numbers = itertools.count()
        self.is_broken = False
        self.reads = 0
        self.add("rsa")

    def add(self, kind: str) -> None:
        name = {"kid": f"key-{next(self._numbers)}", "use": "sig"}
        key = RSAKey.generate_key(2048, name) if kind == "rsa" else ECKey.generate_key("P-256", name)
        self.all.append(key)

    def sign(self, claims: dict[str, Any]) -> str:
        key = self.all[-1]
        algorithm = "RS256" if isinstance(key, RSAKey) else "ES256"
        return jwt.encode({"alg": algorithm, "kid": key.kid}, claims, key, algorithms=[algorithm])


_KEYS = _Keys()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        match self.path:
            case _ if _KEYS.is_broken:
                self._answer(503, {})
            case "/.well-known/openid-configuration":
                self._answer(200, {"issuer": url, "jwks_uri": f"{url}/jwks"})
            case "/jwks":
                _KEYS.reads += 1
                self._answer(200, KeySet(_KEYS.all).as_dict(private=False))
            case _:
                self._answer(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        match self.path:
            case "/sign":
                self._answer(200, {"token": _KEYS.sign(body)})
            case "/rotate":
                _KEYS.all.clear() if body.get("forget") else None
                _KEYS.add(body.get("kind", "rsa"))
                self._answer(200, {})
            case "/break":
                _KEYS.is_broken = bool(body["is_broken"])
                self._answer(200, {})
            case "/reads":
                self._answer(200, {"reads": _KEYS.reads})
            case _:
                self._answer(404, {})

    def _answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass(frozen=True)
class Issuer:
    """A running issuer."""

    url: str

    def token(self, **claims: Any) -> str:
        """Return a signed token that is valid for an hour, with further or other claims; None removes one."""
        usual = {"iss": self.url, "aud": AUDIENCE, "exp": time.time() + 3600, "email": "ana@example.com"}
        kept = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return str(self._post("/sign", kept)["token"])

    def rotate(self, kind: str = "rsa", *, forget: bool = False) -> None:
        """Sign with a new key; with `forget`, the old ones are no longer published."""
        self._post("/rotate", {"kind": kind, "forget": forget})

    def set_broken(self, is_broken: bool) -> None:
        """Refuse all reads, or answer them again."""
        self._post("/break", {"is_broken": is_broken})

    def count_reads(self) -> int:
        """Return how often the keys were read."""
        return int(self._post("/reads", {})["reads"])

    def _post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read())


@contextlib.contextmanager
def running_issuer() -> Iterator[Issuer]:
    """Start an issuer; end it when the block ends."""
    command = [sys.executable, "-m", "tests.support.servers.oidc_issuer"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    try:
        yield Issuer(process.stdout.readline().strip())
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def main() -> None:
    """Serve until standard input is closed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
