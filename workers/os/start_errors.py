"""Why a process of a job does not start: because of what the spec gives it, or because of its node. Pure."""

import errno
import os

_OF_THE_PROGRAM = {
    errno.ENOENT: "it does not exist there",
    errno.EACCES: "it cannot be executed there",
    errno.ENOEXEC: "it is not a program for this machine",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.ELOOP: "its path is a loop of links",
}
"""Error of the operating system about the program that the spec names → what is wrong with it."""
_OF_THE_SPEC = {
    errno.E2BIG: "its environment or command line is too large for the operating system: shorten env, secrets or args",
    errno.ENAMETOOLONG: "a name is too long for the operating system: shorten it",
    errno.EMSGSIZE: "its configuration is too large for a message between processes: shorten args, env or preload",
}
"""Error of the operating system → remedy, where another node would not help."""
_OF_THE_NODE = {
    errno.EAGAIN: "the node's limit of processes is reached",
    errno.ENOMEM: "the node is out of memory",
    errno.EMFILE: "the agent's limit of open files is reached",
    errno.ENFILE: "the node's limit of open files is reached",
    errno.ENOSPC: "the node's disk is full",
    errno.EDQUOT: "the disk quota on the node is used up",
    errno.EROFS: "the node's disk is read-only",
    errno.EIO: "the node's disk fails",
}
"""Error of the operating system → cause, where another node or a later attempt may help."""


class StartError(Exception):
    """A process of the job did not start."""

    def __init__(self, message: str, *, is_of_node: bool) -> None:
        """Initialize. `is_of_node`: another node or a later attempt may help. Otherwise the spec must change."""
        super().__init__(message)
        self.is_of_node = is_of_node


def start_error(process: str, error: OSError | ValueError, program: str = "") -> StartError:
    """Return the classified error of a process that did not start.

    An unknown error of the operating system counts as the node's. Only the spec can cause a wrong value, for example a
    name with `=` in the environment.

    Args:
        process: the process, by a name for people.
        error: the error of the call that starts it.
        program: the program that the spec names; empty if it names none.
    """
    if not isinstance(error, OSError) or error.errno is None:
        return StartError(f"{process} does not start: {error}; correct env, secrets or args", is_of_node=False)
    number, text = error.errno, error.strerror or os.strerror(error.errno)
    if (remedy := _OF_THE_SPEC.get(number)) is not None:
        return StartError(f"{process} does not start: {text}: {remedy}", is_of_node=False)
    if program and (fault := _OF_THE_PROGRAM.get(number)) is not None and error.filename in (None, program):
        message = f"{process} does not start: {program}: {text}: {fault}; set environment.interpreter to a Python there"
        return StartError(message, is_of_node=False)
    cause = _OF_THE_NODE.get(number, "the node's operating system refuses")
    place = f" ({error.filename})" if error.filename else ""
    return StartError(f"{process} does not start: {text}{place}: {cause}", is_of_node=True)
