"""An OpenID Connect issuer as a process of its own: discovery, keys, rotation, and tokens with any claims.

    python -m tests.support.servers.oidc_issuer

It prints its URL, and ends with its standard input.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import secrets
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

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


class _SignIns:
    """Codes and refresh tokens that were given out. Each is accepted once."""

    def __init__(self) -> None:
        self.behavior: dict[str, Any] = {}
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()
        self._polls = 0

    def new_code(self, given: dict[str, str]) -> str:
        code = secrets.token_urlsafe(8)
        self._codes[code] = given
        return code

    def begin_device(self, url: str) -> tuple[int, Any]:
        self._polls = 0
        place = {"verification_uri": f"{url}/enter", "user_code": "ABCD-EFGH", "device_code": "d1"}
        return 200, {**place, "interval": 1, "expires_in": 60}

    def tokens(self, url: str, form: dict[str, str]) -> tuple[int, Any]:
        match form["grant_type"]:
            case "authorization_code":
                given = self._codes.pop(form["code"], {})
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                is_right = given.get("code_challenge") == challenge and given["redirect_uri"] == form["redirect_uri"]
            case "refresh_token":
                is_right = form["refresh_token"] in self._refresh_tokens
                self._refresh_tokens.discard(form["refresh_token"])
            case _:
                self._polls += 1
                if self._polls < 3:
                    return 400, {"error": "authorization_pending" if self._polls == 1 else "slow_down"}
                is_right = form["device_code"] == "d1" and not self.behavior.get("refuse")
        if not is_right:
            return 400, {"error": "invalid_grant", "error_description": "it was used or is wrong"}
        lives_s = float(self.behavior.get("lives_s", 3600))
        person = {"email": self.behavior.get("email", "ana@example.com"), "groups": self.behavior.get("groups", [])}
        claims = {"iss": url, "aud": AUDIENCE, "exp": time.time() + lives_s, **person}
        refresh_token = secrets.token_urlsafe(8)
        self._refresh_tokens.add(refresh_token)
        issued = {"access_token": "opaque", "token_type": "Bearer", "expires_in": lives_s}
        return 200, {**issued, "id_token": _KEYS.sign(claims), "refresh_token": refresh_token}


_SIGN_INS = _SignIns()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        match self.path:
            case _ if _KEYS.is_broken:
                self._answer(503, {})
            case "/.well-known/openid-configuration":
                places = {"authorization": "authorize", "token": "token", "device_authorization": "device"}
                endpoints = {f"{name}_endpoint": f"{url}/{place}" for name, place in places.items()}
                self._answer(200, {"issuer": url, "jwks_uri": f"{url}/jwks", **endpoints})
            case _ if self.path.startswith("/authorize?"):
                self._send_back(url)
            case "/jwks":
                _KEYS.reads += 1
                self._answer(200, KeySet(_KEYS.all).as_dict(private=False))
            case _:
                self._answer(404, {})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path in ("/token", "/device"):
            form = {name: values[0] for name, values in parse_qs(content.decode()).items()}
            url = f"http://127.0.0.1:{self.server.server_address[1]}"
            self._answer(*(_SIGN_INS.begin_device(url) if self.path == "/device" else _SIGN_INS.tokens(url, form)))
            return
        body = json.loads(content or b"{}")
        match self.path:
            case "/behave":
                _SIGN_INS.behavior = body
                self._answer(200, {})
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

    def _send_back(self, url: str) -> None:
        """Send the browser back with a code, as if a person had signed in; or with the error of `/behave`."""
        given = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        error = _SIGN_INS.behavior.get("refuse")
        answer = {"error": error} if error else {"code": _SIGN_INS.new_code(given)}
        answer |= {"state": _SIGN_INS.behavior.get("state", given["state"])}
        answer |= {"iss": _SIGN_INS.behavior.get("iss", url)}
        self.send_response(302)
        self.send_header("Location", f"{given['redirect_uri']}?{urlencode(answer)}")
        self.send_header("Content-Length", "0")
        self.end_headers()

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

    def behave(self, **behavior: Any) -> None:
        """Change how sign-ins end.

        Args:
            behavior: `refuse` with an error, another `state` or `iss`, the `email` and the `groups` of the person who
                signs in, and the life of tokens, `lives_s`.
        """
        self._post("/behave", behavior)

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
