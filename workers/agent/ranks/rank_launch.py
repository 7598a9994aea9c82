"""Start of the ranks of one generation on a node."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from regroup.workers.agent.ranks.log_files import LogFiles
from regroup.workers.agent.ranks.rank_group import RankGroup, stacks_path
from regroup.workers.agent.ranks.rank_lease import RankLease
from regroup.workers.agent.ranks.state_replies import RankState
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import FaultDue, Join, Message
from regroup.workers.environment.process_env import rank_variables
from regroup.workers.os.start_errors import start_error
from regroup.workers.zygote.client import ZygoteLink

RANK_NICE = 5
"""Niceness of ranks. The agent has priority, so that a recovery does not wait for a busy core."""
RankPlaces: TypeAlias = dict[int, tuple[Join, dict[str, str]]]
"""Rank → its `Join` and its variables at the start."""


@dataclass(frozen=True)
class RankLaunch:
    """Starts ranks with all that the generations on a node have in common."""

    config: AgentConfig
    scratch: Path
    log_files: LogFiles
    lease: RankLease
    on_message: Callable[[Message], None]
    authorize_fault: Callable[[FaultDue], Awaitable[bool]]
    redact: Callable[[Message], Message]

    def new_group(
        self, generation: int, zygote: ZygoteLink, state: RankState | None, earlier_first_s: Mapping[str, float]
    ) -> RankGroup:
        """Return the group of a generation, without ranks."""
        place = generation, zygote, self.lease, self.on_message, state
        return RankGroup(*place, self.authorize_fault, self.redact, earlier_first_s)

    def fork(self, group: RankGroup, joins: Sequence[Join], devices: Sequence[int], *, may_lock: bool) -> RankPlaces:
        """Fork the ranks of a group. `may_lock`: they lock their devices, because no other ranks have them.

        Raises:
            StartError: a rank could not be started.
        """
        places: RankPlaces = {}
        try:
            for join, device in zip(joins, devices, strict=True):
                places[join.rank] = join, rank_variables(self.config, join.rank, device, self.scratch)
                log = self.log_files.base(join.generation, f"rank{join.rank}")
                stacks = stacks_path(self.scratch, join.generation, join.rank)
                lock = self.lock_of(device) if may_lock else None
                group.launch(join, lock, log, stacks, places[join.rank][1], RANK_NICE)
        except OSError as error:
            raise start_error("a rank", error) from error
        return places

    def lock_of(self, device: int) -> Path:
        """Return the lock file of a device."""
        return self.scratch / f"device-{device}.lock"
