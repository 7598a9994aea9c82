"""Input of secret values: a file, standard input or a prompt, never an argument, which other users could read."""

import sys
from pathlib import Path

import typer

from regroup.service.domain.errors import FieldIssue, SpecError


def read_secret(file: Path | None, option: str) -> str:
    """Read a value from a file, a prompt, or standard input, without the line ends at its end.

    Args:
        file: the file; None for a prompt, or for standard input if it is not a terminal.
        option: name of the option of the file, for messages.

    Raises:
        SpecError: the file cannot be read.
    """
    if file is None and sys.stdin.isatty():
        return str(typer.prompt("value", hide_input=True))
    try:
        data = sys.stdin.buffer.read() if file is None else file.read_bytes()
        return data.decode().rstrip("\r\n")
    except OSError as error:
        raise SpecError([FieldIssue(option, f"cannot be read: {error.strerror}", str(file))]) from error
    except UnicodeDecodeError:
        pass  # the text of this error shows the value
    raise SpecError([FieldIssue(option if file else "value", "must be UTF-8 text; encode bytes, e.g. as Base64")])
