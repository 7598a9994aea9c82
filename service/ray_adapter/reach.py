"""Check that a Ray cluster answers, before this process joins it. `python -m …` checks one from a process of its own.

Ray's own client waits for a day for a cluster that does not answer, in a thread that cannot be ended. So another
process asks first, and this one waits for it with a bound.
"""

import asyncio
import contextlib
import importlib
import os
import sys
import time
from typing import Any

import structlog

from regroup.service.domain.errors import SettingError, UnavailableError

WAIT_S = 30.0
"""Time within which the cluster must accept connections."""
ANSWER_S = 20.0
"""Time within which it must then answer as Ray, including the import of Ray."""
_CONNECT_S = 5.0
_POLL_S = 0.5
_log = structlog.get_logger(__name__)


async def check_reachable(address: str, *, wait_s: float = WAIT_S, answer_s: float = ANSWER_S) -> None:
    """Wait until the Ray cluster at `address` answers.

    Args:
        address: `host:port` of the cluster's head.
        wait_s: Time within which the cluster must accept connections.
        answer_s: Time within which it must then answer as Ray.

    Raises:
        SettingError: `address` is not `host:port`.
        UnavailableError: nothing accepts connections there, or it does not answer as Ray.
    """
    host, port = _host_and_port(address)
    refused = await _wait_for_port(host, port, address, wait_s)
    if refused is not None:
        raise UnavailableError(
            f"no Ray cluster answers at {address} within {wait_s:.0f} s ({refused}); correct --ray-address, or "
            "start the head of the cluster"
        )
    failure = await _query(address, answer_s)
    if failure is not None:
        raise UnavailableError(
            f"the process at {address} does not answer as a Ray cluster ({failure}); correct --ray-address, or "
            "the token of the cluster"
        )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingError(f"--ray-address {address!r} is not HOST:PORT, for example 10.0.0.1:6379")
    return host.strip("[]"), int(port)


async def _wait_for_port(host: str, port: int, address: str, wait_s: float) -> str | None:
    """Return None as soon as the port accepts a connection, else the reason of the last refusal."""
    deadline_s, is_reported = time.monotonic() + wait_s, False
    while True:
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(host, port)
        except OSError as error:  # includes TimeoutError
            reason = os.strerror(error.errno) if error.errno else str(error) or "no answer"
        else:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return None
        if time.monotonic() + _POLL_S > deadline_s:
            return reason
        if not is_reported:
            is_reported = True
            _log.warning("the Ray cluster does not answer yet", address=address, reason=reason, waits_s=wait_s)
        await asyncio.sleep(_POLL_S)


async def _query(address: str, answer_s: float) -> str | None:
    """Ask the cluster from another process. Return None if it answers as Ray, else the reason."""
    environment = {**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, address, env=environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(answer_s):
            _, errors = await process.communicate()
    except TimeoutError:
        return f"no answer within {answer_s:.0f} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return None
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the check ended with code {process.returncode}"


def main(address: str) -> None:
    """Ask the cluster for its id. The process ends with code 0 if it answers."""
    raylet: Any = importlib.import_module("ray._raylet")  # a compiled module without types
    raylet.GcsClient(address=address).internal_kv_get(b"regroup", None, timeout=10)


if __name__ == "__main__":
    main(sys.argv[1])
