"""Read the operator's topology file, and those that it includes, again when one of them changes."""

import errno
import stat
from pathlib import Path

from regroup.service.policy.topology.hostlist import TopologyError
from regroup.service.policy.topology.slurm_conf import MAX_BYTES
from regroup.service.policy.topology.slurm_file import SlurmTopology, parse_topology

_Mark = tuple[int, int, int] | None
"""Inode, time of change and size of a file; None if it cannot be read."""
REMEDY = "correct the file, or unset REGROUP_TOPOLOGY_FILE"


class TopologyFile:
    """A topology file. If it becomes unreadable, its last valid content stays in use."""

    def __init__(self, path: Path) -> None:
        self.content = SlurmTopology({})
        self.problem = ""
        """Problem of the present file: file, line and accepted form; empty if it is valid."""
        self._path = path
        self._marks: dict[str, _Mark] = {}
        """Files of the last attempt to read, before they were read."""

    def refresh(self) -> bool:
        """Read the file if it changed. Return whether its problem is another one."""
        if self._marks and all(_mark(path) == mark for path, mark in self._marks.items()):
            return False
        before, self._marks = self.problem, {}
        try:
            file = str(self._path)
            self.content = parse_topology(file, self._read(file), self._read)
            self.problem = ""
        except TopologyError as error:
            self.problem = str(error)
        except OSError as error:
            self.problem = f"{self._path} cannot be read: {error.strerror or error}"
        return self.problem != before

    def _read(self, path: str) -> bytes:
        self._marks[path] = _mark(path)
        if not stat.S_ISREG(Path(path).stat().st_mode):  # reading a pipe or a device may never end
            raise OSError(errno.EINVAL, "it is not a regular file")
        with Path(path).open("rb") as file:
            if len(content := file.read(MAX_BYTES + 1)) > MAX_BYTES:
                raise TopologyError(f"{path}: the file has more than {MAX_BYTES // 2**20} MiB, the limit")
        return content


def _mark(path: str) -> _Mark:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
