"""Failures of starts are the spec's or the node's."""

import errno

import pytest

from regroup.workers.os.start_errors import start_error


@pytest.mark.parametrize(
    ("error", "is_of_node", "words"),
    [
        (OSError(errno.E2BIG, "Argument list too long"), False, "shorten env, secrets or args"),
        (OSError(errno.EMSGSIZE, "a request of 200000 bytes"), False, "shorten args, env or preload"),
        (OSError(errno.ENOENT, "No such file or directory", "/job/python"), False, "it does not exist there"),
        (OSError(errno.EACCES, "Permission denied", "/job/python"), False, "it cannot be executed there"),
        (OSError(errno.ENOEXEC, "Exec format error", "/job/python"), False, "not a program for this machine"),
        (ValueError("illegal environment variable name"), False, "correct env, secrets or args"),
        (ValueError("embedded null byte"), False, "embedded null byte"),
        (OSError(errno.ENOENT, "No such file or directory", "/scratch"), True, "(/scratch)"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), True, "limit of processes"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True, "out of memory"),
        (OSError(errno.ENOSPC, "No space left on device", "/logs/x"), True, "disk is full"),
        (OSError(errno.EMFILE, "Too many open files"), True, "limit of open files"),
        (OSError(errno.EPERM, "Operation not permitted"), True, "operating system refuses"),
    ],
)
def test_an_error_is_that_of_the_spec_or_of_the_node(error: OSError | ValueError, is_of_node: bool, words: str) -> None:
    found = start_error("the rank", error, "/job/python")
    assert found.is_of_node == is_of_node
    assert str(found).startswith("the rank does not start: ") and words in str(found)


def test_a_missing_program_that_the_spec_does_not_name_is_an_error_of_the_node() -> None:
    assert start_error("the rank", FileNotFoundError(errno.ENOENT, "No such file", "/usr/bin/python")).is_of_node
