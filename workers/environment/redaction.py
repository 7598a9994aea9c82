"""Removal of secrets from everything that leaves a node: messages, tracebacks, logs, evidence, output of commands.

Text gets `***` in place of a secret. Bytes keep their length, so that positions in a log stay valid. A secret is also
found line by line, in the URLs that contain it, and as Python, JSON, URLs and base64 write it.
"""

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, quote_plus, unquote, urlsplit

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import Done, Exited, Failed, Message, Note, Report, StateDigest, StepRow
from regroup.workers.os import node_facts

MASK = "***"
MIN_CHARACTERS = 4
"""Length below which a value is not removed: it would also be found in words that have nothing to do with it."""
_CUT_CHARACTERS = 8
"""Length from which the rest of a cut value is removed at the start or the end of a text."""
MAX_CHARACTERS = 16 * 1024
"""Length above which a value is only found line by line."""
_CREDENTIAL = re.compile(r"(AWS|AZURE|GOOGLE|RAY|REGROUP|PG).*(SECRET|TOKEN|PASSWORD|KEY|DATABASE_URL)")
"""Names of the platform's variables that contain credentials."""
_IN_URL = re.compile(r"://[^/\s@]+@")
_M = TypeVar("_M", bound=Message)


class Redactor:
    """Removes the secrets that it has learned."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._texts: list[str] = []
        self._bytes: list[bytes] = []
        """All forms of all secrets. The longest come first: others may be parts of them."""
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Remove these secrets from now on, in addition to those before."""
        forms = {form for secret in secrets for form in _forms(secret) if _is_usable(form)}
        self._texts = sorted(forms | set(self._texts), key=lambda form: (-len(form), form))
        self._bytes = [form.encode(errors="surrogateescape") for form in self._texts]

    def hide(self, text: str) -> str:
        """Return a text without secrets, and without the user and password in URLs.

        A traceback or the end of an output may have been cut inside a secret: the part at its start or end goes, too.
        """
        for form in self._texts:
            text = text.replace(form, MASK)
        for form in self._texts:
            if cut := _cut_at_start(form, text):
                text = MASK + text[cut:]
            if cut := _cut_at_end(form, text):
                text = text[: len(text) - cut] + MASK
        return _IN_URL.sub(f"://{MASK}@", text)

    def hide_all(self, value: Any) -> Any:
        """Return plain data without secrets in its texts. Keys are texts, too."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            items = cast(Mapping[Any, Any], value).items()
            return {self.hide_all(key): self.hide_all(item) for key, item in items}
        if isinstance(value, list | tuple):
            return [self.hide_all(item) for item in cast(list[Any], value)]
        return value

    def hide_message(self, message: _M) -> _M:
        """Return a message without secrets in what user code or an error wrote."""
        changed: Message = message
        match message:
            case Failed(error=error):
                facts = {"kind": self.hide(error.kind), "details": self.hide_all(error.details)}
                texts = {"message": self.hide(error.message), "traceback": self.hide(error.traceback)}
                collectives = self.hide_all(message.collectives)
                changed = replace(message, error=replace(error, **facts, **texts), collectives=collectives)
            case Exited():
                changed = replace(message, last_output=self.hide(message.last_output))
            case Note():
                changed = replace(message, data=self.hide_all(message.data))
            case Done():
                changed = replace(message, result=self.hide_all(message.result))
            case StepRow() if message.extra:
                changed = replace(message, extra=self.hide_all(message.extra))
            case StateDigest():
                changed = replace(message, parts=self.hide_all(message.parts))
            case Report():
                changed = replace(message, metrics=self.hide_all(message.metrics))
            case _:
                pass
        return cast(_M, changed)

    @property
    def context_bytes(self) -> int:
        """Bytes before and after a piece that must be known to find every secret in it."""
        return max((len(form) - 1 for form in self._bytes), default=0)

    def hide_bytes(self, data: bytes, *, is_at_end: bool = False) -> bytes:
        """Return bytes with `*` in place of each byte of a secret.

        With `is_at_end`, hide also the beginning of a secret at the end of `data`: the rest may follow.
        """
        for form in self._bytes:
            if form in data:
                data = data.replace(form, b"*" * len(form))
        if is_at_end:
            begun = max((_begun_bytes(form, data) for form in self._bytes), default=0)
            data = data[: len(data) - begun] + b"*" * begun
        return data


class StreamRedactor:
    """Removes secrets from a stream of bytes that arrives in pieces. It holds nothing back."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = b""

    def feed(self, data: bytes) -> bytes:
        """Return the next piece without secrets, also without the parts of those that began before it."""
        whole = self._before + data
        shown = self._redactor.hide_bytes(whole, is_at_end=True)[len(self._before) :]
        self._before = whole[max(0, len(whole) - self._redactor.context_bytes) :]
        return shown


def secrets_on_node(config: AgentConfig, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the values that must not leave this node: the job's secrets, and the platform's credentials.

    A secret that this node does not have is skipped: it cannot appear anywhere.

    Args:
        config: configuration of the job's agent.
        environment: variables of the agent. Default: of this process.
    """
    environment = os.environ if environment is None else environment
    values = [value for name, value in environment.items() if _CREDENTIAL.fullmatch(name)]
    if path := environment.get("RAY_AUTH_TOKEN_PATH"):
        values += _existing(lambda: Path(path).read_text().strip())
    for name, source in config.secrets.items():
        values += _existing(lambda name=name, source=source: node_facts.secret(name, source, config.project_secrets))
    return values


def _existing(read: Callable[[], str]) -> list[str]:
    try:
        return [read()]
    except (node_facts.SecretMissing, OSError, UnicodeDecodeError):
        return []


def _is_usable(form: str) -> bool:
    return MIN_CHARACTERS <= len(form) <= MAX_CHARACTERS


def _forms(secret: str) -> set[str]:
    """Return the texts by which a secret can be recognized."""
    parts = {secret, secret.strip(), *(line.strip() for line in secret.splitlines())}
    for word in secret.split():
        if "://" in word:
            try:
                url = urlsplit(word)
                parts |= {part for part in (url.username, url.password) if part}
            except ValueError:
                continue
    forms = {*parts, *(unquote(part) for part in parts)}
    for part in list(forms):
        encoded = base64.b64encode(part.encode(errors="surrogateescape")).decode()
        forms |= {repr(part)[1:-1], json.dumps(part)[1:-1], quote(part, safe=""), quote_plus(part), quote(part)}
        forms |= {encoded, encoded.rstrip("="), encoded.replace("+", "-").replace("/", "_").rstrip("=")}
    return forms


def _cut_at_start(form: str, text: str) -> int:
    """Return the length of the end of `form` with which `text` starts, or 0."""
    at = form.find(text[:_CUT_CHARACTERS], 1) if len(text) >= _CUT_CHARACTERS else -1
    while at > 0:
        if text.startswith(form[at:]):
            return len(form) - at
        at = form.find(text[:_CUT_CHARACTERS], at + 1)
    return 0


def _cut_at_end(form: str, text: str) -> int:
    """Return the length of the beginning of `form` with which `text` ends, or 0."""
    at = form.rfind(text[-_CUT_CHARACTERS:], 0, len(form) - 1) if len(text) >= _CUT_CHARACTERS else -1
    while at >= 0:
        if text.endswith(form[: at + _CUT_CHARACTERS]):
            return at + _CUT_CHARACTERS
        at = form.rfind(text[-_CUT_CHARACTERS:], 0, at + _CUT_CHARACTERS - 1)
    return 0


def _begun_bytes(form: bytes, data: bytes) -> int:
    """Return the length of the beginning of `form` with which `data` ends, if it is long enough to tell something."""
    lengths = range(min(len(form) - 1, len(data)), MIN_CHARACTERS - 1, -1)
    return next((length for length in lengths if data.endswith(form[:length])), 0)
