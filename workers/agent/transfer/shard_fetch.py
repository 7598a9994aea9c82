"""One fetch for a recovery: regions of a shard, or the whole, from the agents that have it. Works in threads."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from regroup.workers.agent.transfer import arrival, chunk_format
from regroup.workers.agent.transfer.arrival import MOST_TRIES, fetch_on
from regroup.workers.agent.transfer.chunk_client import Pull, Read, chunks_of
from regroup.workers.agent.transfer.chunk_format import Kind
from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.handshake import name_of, receive_answer, request
from regroup.workers.agent.transfer.priorities import Pace, Priorities
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.agent.transfer.threads import run_all
from regroup.workers.contract.agent_records import TransferAddress

STREAMS = min(4, os.cpu_count() or 1)
"""Connections on which a shard is fetched. One thread serves each of them."""


class ShardFetch:
    """Fetches from the first of several agents, and from the others what it does not deliver."""

    def __init__(self, addresses: Sequence[TransferAddress], key: ShardKey, priorities: Priorities) -> None:
        """Prepare a fetch; open no connection."""
        self.reasons = list[str]()
        """Reason for each further try."""
        self._failed_holders = set[str]()
        self.received_bytes = 0
        """Bytes of the requested regions that arrived, also of damaged chunks."""
        self._addresses, self._key, self._priorities = addresses, key, priorities
        self._request = {"op": "read", "key": asdict(key)}
        self._connections = ConnectionSet()

    def abort(self) -> None:
        """End the fetch, from any thread."""
        self._connections.abort()

    def read(self, reads: Sequence[Read]) -> None:
        """Fetch regions on several connections.

        Raises:
            TransferError: no agent delivered all bytes undamaged.
        """
        with self._priorities.recovery():
            self._read(self._addresses, reads)

    def get(self, allocate: Callable[[int, int], int]) -> tuple[int, int]:
        """Fetch the shard to a memory file that `allocate(rank, bytes)` creates.

        Return its descriptor, which the caller owns, and its `size_bytes`.

        Raises:
            TransferError: no agent delivered the shard undamaged.
        """
        with self._priorities.recovery():
            for number, address in enumerate(self._addresses):
                try:
                    return self._get(self._addresses[number:], allocate)
                except TransferError as error:
                    self._failed_holders |= set(error.failed_holders)
                    is_named = name_of(address) in str(error)
                    self.reasons.append(str(error) if is_named else f"{name_of(address)}: {error}")
        raise self._error()

    def _get(self, addresses: Sequence[TransferAddress], allocate: Callable[[int, int], int]) -> tuple[int, int]:
        """Fetch header and index from the first of these agents, then the data from any of them."""
        with contextlib.ExitStack() as stack:
            with request(addresses[0], self._request, self._connections) as connection:
                head = receive_answer(connection, addresses[0])
                fd = allocate(self._key.rank, int(head["file_bytes"]))
                not_owned = stack.enter_context(contextlib.ExitStack())
                not_owned.callback(os.close, fd)
                shard = stack.enter_context(arrival.opened(fd, self._key))
                note = partial(self._note_damage, addresses[0])
                shard.receive_index(partial(fetch_on, connection, Pace(), on_damage=note))
                chunk_format.send_request_kind(connection, Kind.END)
            shard.receive_data(partial(self._read, addresses))
            not_owned.pop_all()  # the caller closes it
            return fd, int(head["size_bytes"])

    def _read(self, addresses: Sequence[TransferAddress], reads: Sequence[Read]) -> None:
        left, holders, tries = list(chunks_of(reads)), list(addresses), 0
        while left and holders and tries < MOST_TRIES:
            address, tries = holders[0], tries + 1
            pull = Pull(deque(left))
            errors = run_all([partial(self._stream, address, pull)] * min(STREAMS, len(left)))
            self.received_bytes += sum(pull.arrived)
            if errors:
                self.reasons += sorted({str(error) for error in errors})
                holders.remove(address)
                for error in errors:
                    if not isinstance(error, TransferError):
                        raise error
                    self._failed_holders |= set(error.failed_holders)
            elif pull.failed:
                self._note_damage(address, len(pull.failed))
                holders.append(holders.pop(0))
            left = [*pull.failed, *pull.waiting]
        if left:
            raise self._error()

    def _stream(self, address: TransferAddress, pull: Pull) -> None:
        """Fetch chunks on one connection, together with other threads."""
        with request(address, self._request, self._connections) as connection:
            receive_answer(connection, address)
            pull.run(connection, Pace())
            chunk_format.send_request_kind(connection, Kind.END)

    def _note_damage(self, address: TransferAddress, count: int) -> None:
        self.reasons.append(f"{name_of(address)} delivered {count} damaged chunks of {self._key}")

    def _error(self) -> TransferError:
        message = f"cannot fetch the shard of {self._key}: {'; '.join(self.reasons) or 'no agent has it'}"
        return TransferError(message, tuple(sorted(self._failed_holders)))
