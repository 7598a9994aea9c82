"""Paths of a job's output on a node."""

from dataclasses import dataclass
from pathlib import Path

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.os import node_facts

_SUFFIXES = {"stdout": "out", "stderr": "err"}


@dataclass(frozen=True)
class LogFiles:
    """Files of the processes of one job on one node."""

    folder: Path
    prefix: str
    """Beginning of their names."""

    @classmethod
    def of(cls, config: AgentConfig, scratch: Path) -> "LogFiles":
        """Return the files of a job: in the configured folder, else in that of Ray's session, else in `scratch`."""
        folder = Path(config.log_dir) if config.log_dir else node_facts.session_log_dir() or scratch
        return cls(folder, f"regroup-{config.job_name}-{config.job_id}-")

    def base(self, generation: int, process: str) -> Path:
        """Return the path of a process's output without its suffix: `.out` or `.err`."""
        return self.folder / f"{self.prefix}g{generation}-{process}"

    def rank(self, generation: int, rank: int, stream: str) -> Path:
        """Return the path of a rank's `stdout` or `stderr`."""
        return Path(f"{self.base(generation, f'rank{rank}')}.{_SUFFIXES[stream]}")
