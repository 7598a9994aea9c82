"""The user of a process: change it permanently, check that this process may, and hide the memory of a process.

This file is also a program that starts another one without new privileges: `python -I -S process_user.py PROGRAM …`.
So it imports only the standard library.
"""

import ctypes
import os
import sys
from pathlib import Path

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_libc = ctypes.CDLL(None, use_errno=True)
RIGHTS = {0: "CHOWN", 1: "DAC_OVERRIDE", 5: "KILL", 6: "SETGID", 7: "SETUID"}
"""Number of each capability that an agent needs to run ranks as other users → its name (capabilities(7))."""


def hide_memory() -> None:
    """Keep other processes of this user from this process's memory, environment and descriptors.

    Only a process with CAP_SYS_PTRACE can still read them or attach a debugger, and a crash leaves no core file.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def become(user: int) -> None:
    """Make this process that of a user without other groups, permanently. It needs the rights of root.

    The kernel removes all capabilities, and programs with the set-user-id bit have no effect. The process becomes
    readable to processes of its new user: the memory that it had as root must contain no secret of the platform.

    Raises:
        OSError: The operating system refuses it.
    """
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    forbid_new_privileges()
    _prctl(_PR_SET_DUMPABLE, 1)


def forbid_new_privileges() -> None:
    """Let this process and all below it gain no privilege through a program, for example sudo."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def without_new_privileges(command: list[str]) -> list[str]:
    """Return the command line that runs `command` without new privileges."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), *command]


def find_obstacle(first: int, last: int, proc: Path = Path("/proc/self")) -> str:
    """Return why this process cannot run others as the users `first` to `last`; empty if it can."""
    words = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
    if (user := int(words["Uid"].split()[1])) != 0:
        return f"the agent runs as user {user}, and only root may switch users"
    effective = int(words["CapEff"], 16)
    if missing := [name for number, name in RIGHTS.items() if not effective >> number & 1]:
        return f"the agent is root without the capabilities {', '.join(missing)}"
    for kind in ("uid_map", "gid_map"):
        if not _is_mapped(first, last, (proc / kind).read_text()):
            return f"the ids {first} to {last} do not exist in this container: /proc/self/{kind} does not map them"
    return ""


def find_closed(path: Path, below: Path = Path("/")) -> Path | None:
    """Return the outermost part of a path that not every user can open; None if all can. Links are followed.

    Args:
        path: file to read, or folder to enter.
        below: folder above which nothing is checked.
    """
    real = path.resolve()
    for whole in (path.absolute().parent, real):
        for part in (*reversed(whole.parents), whole):
            is_outside = part == below or not part.is_relative_to(below)
            needed = 0o001 if part.is_dir() else 0o004
            if not is_outside and not part.stat().st_mode & needed:
                return part
    return None


def real_user(pid: int) -> int | None:
    """Return the real user id of a process, also of one that hides its memory; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(status.partition("\nUid:")[2].split(maxsplit=1)[0])


def _is_mapped(first: int, last: int, mapping: str) -> bool:
    """Return True if one line of a user namespace's map contains all ids: first id inside, first outside, count."""
    lines = (tuple(map(int, line.split())) for line in mapping.splitlines())
    return any(inside <= first and last < inside + count for inside, _, count in lines)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


if __name__ == "__main__":
    forbid_new_privileges()
    os.execv(sys.argv[1], sys.argv[1:])
