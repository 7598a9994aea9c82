"""The start of a connection: who may request, and what a client learns when it fails."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regroup.workers.agent.transfer import handshake
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.handshake import proof, receive_answer, receive_request, request
from regroup.workers.agent.transfer.shard_store import NoMemoryError, TransferError
from regroup.workers.contract.agent_records import TransferAddress

TOKEN = "a" * 32
CONTENT = {"op": "echo", "number": 1}


class Server:
    """A server that handles each connection with one function, and records what that returned."""

    def __init__(self, handle: Callable[[Connection], Any]) -> None:
        self._handle = handle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = TransferAddress("127.0.0.1", self._listener.getsockname()[1], TOKEN, "node-b")
        self.returned = list[Any]()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = Connection(self._listener.accept()[0])
                try:
                    self.returned.append(self._handle(connection))
                except (OSError, ValueError) as error:
                    self.returned.append(error)
                finally:
                    connection.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Connection], Any]], Server]]:
    with contextlib.ExitStack() as stack:

        def start(handle: Callable[[Connection], Any]) -> Server:
            server = Server(handle)
            stack.callback(server.close)
            return server

        yield start


Serve = Callable[[Callable[[Connection], Any]], Server]


def answering(answer: dict[str, Any]) -> Callable[[Connection], Any]:
    def handle(connection: Connection) -> Any:
        content = receive_request(connection, TOKEN)
        if content is not None:
            connection.send_json(answer)
        return content

    return handle


def request_answer(address: TransferAddress, timeout_s: float = 10.0) -> dict[str, Any]:
    with request(address, CONTENT, ConnectionSet(), timeout_s) as connection:
        return receive_answer(connection, address)


def test_a_server_gets_the_request_of_a_client_that_knows_its_token(serve: Serve) -> None:
    server = serve(answering({"go": True}))
    assert request_answer(server.address) == {"go": True}
    server.close()
    assert server.returned[0] == CONTENT


def test_a_client_with_another_token_gets_no_answer(serve: Serve) -> None:
    server = serve(answering({"go": True}))
    stranger = TransferAddress(server.address.host, server.address.port, "b" * 32)
    with pytest.raises(TransferError, match=r"refused a transfer: invalid proof: the token belongs to another agent"):
        request_answer(stranger)
    server.close()
    assert server.returned[0] is None


def test_a_proof_depends_on_token_nonce_and_request() -> None:
    proofs = {proof(*each) for each in ((TOKEN, "1", CONTENT), ("b", "1", CONTENT), (TOKEN, "2", CONTENT))}
    assert len(proofs | {proof(TOKEN, "1", {**CONTENT, "number": 2})}) == 4
    assert proof(TOKEN, "1", CONTENT) == proof(TOKEN, "1", dict(reversed(CONTENT.items())))


def test_a_refusal_is_an_error_and_little_memory_is_another_one(serve: Serve) -> None:
    server = serve(answering({"error": "no shard here"}))
    with pytest.raises(TransferError, match=f"127.0.0.1:{server.address.port} refused a transfer: no shard here"):
        request_answer(server.address)
    with pytest.raises(NoMemoryError, match="full"):
        request_answer(serve(answering({"error": "full", "no_memory": True})).address)


@pytest.mark.parametrize("line", [b"", b"[]\n", b"{}\n", b"nonsense\n", b'{"nonce": 1'])
def test_a_server_that_sends_no_nonce_is_a_failed_node(serve: Serve, line: bytes) -> None:
    server = serve(lambda connection: connection.send(line))
    with pytest.raises(TransferError, match=f"transfer with 127.0.0.1:{server.address.port} failed") as error:
        request_answer(server.address)
    assert error.value.failed_holders == ("node-b",)


def test_a_node_that_cannot_be_reached_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = TransferAddress("127.0.0.1", listener.getsockname()[1], TOKEN, "node-c")
    with pytest.raises(TransferError, match="ConnectionRefusedError") as error:
        request_answer(gone)
    assert error.value.failed_holders == ("node-c",)


def test_a_server_that_stops_to_answer_is_an_error_with_the_time(serve: Serve) -> None:
    ended = threading.Event()
    server = serve(lambda connection: (receive_request(connection, TOKEN), ended.wait(20)))
    try:
        with pytest.raises(TransferError, match="no progress for 1 s"):
            request_answer(server.address, timeout_s=1)
    finally:
        ended.set()


def test_a_transfer_that_was_cancelled_opens_no_connection(serve: Serve) -> None:
    server, connections = serve(answering({"go": True})), ConnectionSet()
    connections.abort()
    with pytest.raises(TransferError, match="cancelled"), request(server.address, CONTENT, connections):
        pytest.fail("the connection is aborted")


def test_a_client_must_prove_itself_in_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_PROOF_TIMEOUT_S", 0.3)
    server = serve(lambda connection: receive_request(connection, TOKEN))
    with socket.create_connection((server.address.host, server.address.port)) as silent:
        assert silent.recv(4096).startswith(b'{"nonce": ')
        assert silent.recv(1) == b"", "the server ended the connection"
    server.close()
    assert isinstance(server.returned[0], OSError)
