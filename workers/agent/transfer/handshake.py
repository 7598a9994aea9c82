"""Start of a connection between agents: nonce, request, and the proof that the client knows the server's token."""

import contextlib
import hmac
import json
import secrets
import socket
from collections.abc import Generator, Mapping
from typing import Any

from regroup.workers.agent.transfer.connection import IDLE_TIMEOUT_S, Connection
from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.shard_store import NoMemoryError, TransferError
from regroup.workers.contract.agent_records import TransferAddress

_CONNECT_TIMEOUT_S = 10.0
_PROOF_TIMEOUT_S = 10.0
"""Time in which a client must send its request."""


@contextlib.contextmanager
def request(
    address: TransferAddress,
    content: Mapping[str, Any],
    connections: ConnectionSet,
    timeout_s: float = IDLE_TIMEOUT_S,
) -> Generator[Connection]:
    """Connect to an agent and send it a request.

    Args:
        address: address and token of the agent.
        content: the request.
        connections: set to which the connection belongs, so that another thread can abort it.
        timeout_s: time without progress after which the agent counts as gone.

    Raises:
        TransferError: the agent cannot be reached, or the connection ends.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    connection = Connection(socket.socket(family, socket.SOCK_STREAM))
    try:
        connections.add(connection)
        connection.connect(address.host, address.port, min(timeout_s, _CONNECT_TIMEOUT_S))
        connection.start(min(timeout_s, _CONNECT_TIMEOUT_S))
        nonce = str(connection.receive_json()["nonce"])
        connection.start(timeout_s)
        connection.send_json({**content, "proof": proof(address.token, nonce, content)})
        yield connection
    except BlockingIOError as error:
        raise _failure(address, f"no progress for {timeout_s:.0f} s") from error
    except (OSError, ValueError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise _failure(address, reason) from error
    finally:
        connections.remove(connection)
        connection.close()


def receive_request(connection: Connection, token: str) -> dict[str, Any] | None:
    """Receive the request of a client; return None if its proof is invalid.

    Raises:
        OSError: the connection ended, or the client sent no request in time.
        ValueError: the request is not a JSON object.
    """
    connection.start(_PROOF_TIMEOUT_S)
    nonce = secrets.token_hex(16)
    connection.send_json({"nonce": nonce})
    content = connection.receive_json(_PROOF_TIMEOUT_S)
    given = str(content.pop("proof", ""))
    if not hmac.compare_digest(given.encode(), proof(token, nonce, content).encode()):
        connection.send_json(
            {"error": "invalid proof: the token belongs to another agent, or to an earlier run of this one"}
        )
        return None
    connection.start()
    return content


def receive_answer(connection: Connection, address: TransferAddress) -> dict[str, Any]:
    """Receive one answer of a server.

    Raises:
        NoMemoryError: the other node has too little memory.
        TransferError: the server refused the request.
    """
    answer = connection.receive_json()
    if "error" in answer:
        error_class = NoMemoryError if answer.get("no_memory") else TransferError
        raise error_class(f"{name_of(address)} refused a transfer: {answer['error']}")
    return answer


def name_of(address: TransferAddress) -> str:
    """Return host and port, for messages."""
    return f"{address.host}:{address.port}"


def proof(token: str, nonce: str, content: Mapping[str, Any]) -> str:
    """Return the proof for one request on the connection with this nonce."""
    text = nonce + json.dumps(dict(content), sort_keys=True)
    return hmac.new(token.encode(), text.encode(), "sha256").hexdigest()


def _failure(address: TransferAddress, reason: str) -> TransferError:
    nodes = (address.node_id,) if address.node_id else ()
    return TransferError(f"transfer with {name_of(address)} failed: {reason}", nodes)
