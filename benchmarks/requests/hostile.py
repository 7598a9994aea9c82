"""Hostile bodies: deep, wide, long and damaged ones, from a fixed seed."""

import json
import random
from collections.abc import Iterator
from typing import Any

SEED = 20261126
DAMAGED = 400
"""Number of specs with random changes of their bytes."""
_EDITS = 8
_MIB = 2**20


def hostile_bodies(spec: dict[str, Any]) -> list[bytes]:
    """Return bodies that a server must refuse fast, and some that it accepts."""
    return [*_extremes(spec), *_damaged(json.dumps(spec).encode())]


def _extremes(spec: dict[str, Any]) -> Iterator[bytes]:
    for depth in (100, 3000, 400_000):
        yield b"[" * depth + b"]" * depth
        yield b'{"a":' * depth + b"1" + b"}" * depth
    for length in (10, 309, 5000, 900_000):
        yield _with(spec, "training", b'{"steps": 1' + b"0" * length + b"}")
        yield _with(spec, "name", b'"' + b"x" * length + b'"')
        yield _with(spec, "labels", json.dumps({f"k{number}": "v" for number in range(length // 12)}).encode())
        yield _with(spec, "depends_on", json.dumps(["job"] * (length // 8)).encode())
        yield b"[" + b"1," * (length // 2) + b"1]"
    for value in (b"NaN", b"Infinity", b"-1e400", b"1e-400", b'"\\u0000"', b'"\\ud800"', b"null", b"true", b"{}"):
        yield _with(spec, "training", value)
        yield value
    yield b"{" + b",".join(b'"name": "gpt"' for _ in range(50_000)) + b"}"
    for dp in (1_000_000, 2_000_000, 10**15):
        layout = json.dumps({"dp": {"min": 1, "target": 1, "max": dp}}).encode()
        yield _with(spec, "layout", layout)
    yield b"\xff\xfe" + json.dumps(spec).encode("utf-16-le")
    yield b" " * _MIB


def _damaged(text: bytes) -> Iterator[bytes]:
    rng = random.Random(SEED)
    for _ in range(DAMAGED):
        body = bytearray(text)
        for _ in range(rng.randint(1, _EDITS)):
            at = rng.randrange(len(body))
            match rng.randrange(3):
                case 0:
                    body[at] = rng.randrange(256)
                case 1:
                    del body[at : at + rng.randint(1, 20)]
                case _:
                    body[at:at] = body[at : at + rng.randint(1, 200)] * rng.randint(1, 5)
            if not body:
                body = bytearray(b"{}")
        yield bytes(body)


def _with(spec: dict[str, Any], name: str, value: bytes) -> bytes:
    """Return the spec with one field replaced by raw text."""
    rest = json.dumps({key: each for key, each in spec.items() if key != name}).encode()
    return rest[:-1] + b', "' + name.encode() + b'": ' + value + b"}"
