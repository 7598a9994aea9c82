"""A supervisor for tests of the Ray adapter, with the calls of the real one but without a job."""

import asyncio
import os
from typing import Any

from regroup.service.ports.sync import Intents, SupervisorEvent, SyncReply, SyncRequest


class EchoSupervisor:
    """A supervisor that emits one event and stores intents."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self._payload = payload
        self._intents = Intents()

    async def sync(self, request: dict[str, Any]) -> dict[str, Any]:
        decoded = SyncRequest.from_json(request)
        self._intents = self._intents.merge(decoded.intents)
        if decoded.acked_seq:
            await asyncio.sleep(decoded.wait_s)
            return SyncReply(str(os.getpid())).to_json()
        event = SupervisorEvent(1, "hello", "note", 0, 0.0, {"payload": self._payload, "cancel": self._intents.cancel})
        return SyncReply(str(os.getpid()), (event,)).to_json()

    async def read_log(self, generation: int, rank: int, stream: str, offset: int, limit: int) -> dict[str, Any]:
        data = f"{generation}/{rank}/{stream}"[offset : offset + limit]
        return {"data": data, "offset": offset, "next_offset": offset + len(data), "complete": True}

    async def shutdown(self) -> None:
        pass
