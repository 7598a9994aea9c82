"""A check that the network between two agents carries more than small packets."""

import asyncio
import os

from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.handshake import name_of, receive_answer, request
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.agent.transfer.threads import run_in_thread
from regroup.workers.contract.agent_records import TransferAddress

ECHO_BYTES = 256 * 1024
"""Size of the echo. It exceeds any packet and most socket buffers, so a link that loses large packets does not return
it."""
_ECHO_TIMEOUT_S = 3.0


async def echo(address: TransferAddress) -> None:
    """Send bytes to an agent and check that it returns them.

    Raises:
        TransferError: the agent is unreachable, or returns other bytes.
    """
    connections = ConnectionSet()
    sent = os.urandom(ECHO_BYTES)

    def exchange() -> bytes:
        with request(address, {"op": "echo"}, connections, _ECHO_TIMEOUT_S + 1) as connection:
            receive_answer(connection, address)
            connection.send(sent)
            return connection.receive(ECHO_BYTES)

    try:
        async with asyncio.timeout(_ECHO_TIMEOUT_S):
            returned = await run_in_thread(exchange, connections.abort)
    except TimeoutError as error:
        raise TransferError(f"no echo from {name_of(address)} within {_ECHO_TIMEOUT_S:.0f} s") from error
    if returned != sent:
        raise TransferError(f"{name_of(address)} returned other bytes than it was sent")
