"""The start of a rank that is prepared while the generation before it still trains.

The rank does everything that needs neither state nor device, then waits until that generation is dead.
"""

import time
from dataclasses import replace
from pathlib import Path

from regroup.workers.contract.messages import Join, Phase
from regroup.workers.contract.rank_env import BUILTIN_ENTRY
from regroup.workers.contract.start_messages import LATER, Begin, Prepared
from regroup.workers.os import procfs
from regroup.workers.rank.ports import ChannelPort, ProgressPort


def is_prepared(join: Join) -> bool:
    """Return whether the rank still has to wait for its state."""
    return join.restore.source == LATER


def builds_before(join: Join) -> bool:
    """Return whether the rank builds its model before it waits.

    Only the built-in trainer does, because a user's function may write files or use ports before its first step. On a
    GPU, the ranks that still train need the memory of the device.
    """
    return join.entry == BUILTIN_ENTRY and join.device == "cpu"


def wait_for_begin(join: Join, channel: ChannelPort, progress: ProgressPort) -> Join:
    """Wait until the generation before is dead. Return the `Join` with the state to restore.

    Raises:
        BlockingIOError: another process still has the device.
    """
    progress.set(0, Phase.JOIN)
    reply, _ = channel.request(Prepared(join.rank, join.generation, time.time()))
    assert isinstance(reply, Begin), f"the reply to Prepared is Begin, not {reply!r}"
    procfs.lock_device(Path(reply.lock))
    progress.set(reply.restore.step, Phase.JOIN)
    return replace(join, restore=reply.restore)
