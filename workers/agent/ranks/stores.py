"""The rendezvous stores of a job on one node. The next generation may have one while the present one trains."""

from collections.abc import Callable
from pathlib import Path

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.os import node_facts
from regroup.workers.zygote.client import ZygoteLink
from regroup.workers.zygote.launch import Launch


class Stores:
    """Starts stores and knows their processes."""

    def __init__(self, config: AgentConfig, log_of: Callable[[int], Path]) -> None:
        """Initialize without a store.

        Args:
            config: configuration of the agent.
            log_of: generation → path of its store's output, without suffix.
        """
        self._config, self._log_of = config, log_of
        self._children: dict[int, tuple[ZygoteLink, int]] = {}
        """Generation → the zygote of its store, and the zygote's id of it."""

    def start(self, zygote: ZygoteLink, generation: int) -> tuple[str, int]:
        """Start the store of a generation and return its address, at which it listens already."""
        first, last = self._config.port_first, self._config.port_last
        with node_facts.bind_listener(self._config.address, range(first, last + 1) if last else None) as listener:
            target = "regroup.workers.zygote.rendezvous_store:main"
            launch = Launch("store", target, log=str(self._log_of(generation)), fds=(listener.fileno(),))
            self._children[generation] = zygote, zygote.fork(launch)
            host, port = listener.getsockname()[:2]
        return host, port

    def child_of(self, generation: int) -> int:
        """Return the zygote's id of a store; 0 if there is none."""
        return self._children[generation][1] if generation in self._children else 0

    def pop_exited(self, child: int) -> int | None:
        """Return the generation whose store this child was, and forget it; None if it is not a store."""
        found = next((number for number, (_, store) in self._children.items() if store == child), None)
        if found is not None:
            del self._children[found]
        return found

    async def kill_between(self, generation: int, last: int) -> None:
        """Kill the stores of generations after `generation`, up to `last`."""
        for number in [number for number in self._children if generation < number <= last]:
            zygote, child = self._children.pop(number)
            await zygote.kill([child])

    def forget_until(self, generation: int) -> list[int]:
        """Forget the stores up to a generation, which are killed on purpose. Return the zygote's ids of the others."""
        self._children = {number: store for number, store in self._children.items() if number > generation}
        return [child for zygote, child in self._children.values() if not zygote.dead]
