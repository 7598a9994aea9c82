"""`--requirements`: a pip requirements file, read on this machine and sent as lines of the spec."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from regroup.service.domain.errors import FieldIssue, SpecError

_FILE = "requirements_file"

Requirements = Annotated[
    Path | None,
    typer.Option(
        "--requirements",
        metavar="FILE",
        help="Run in a separate Python environment with these requirements. See docs/guides/environments.md.",
    ),
]


def with_requirements(data: Mapping[str, Any], file: Path | None, base: Path) -> dict[str, Any]:
    """Return the spec with the lines of `file`, or of its own `environment.requirements_file`.

    Args:
        data: The spec.
        file: Requirements file from the command line.
        base: Folder of the spec file; `environment.requirements_file` is relative to it.

    Raises:
        SpecError: the file cannot be read, or contains options of pip.
    """
    given = data.get("environment")
    environment = dict(cast(Mapping[str, Any], given)) if isinstance(given, Mapping) else {}
    own = environment.pop(_FILE, None)
    if file is None and own is None:
        return dict(data)
    if file is None and environment.get("requirements"):
        raise SpecError([FieldIssue(f"environment.{_FILE}", "conflicts with requirements: remove one of them", own)])
    path = base / str(own) if file is None else file
    return {**data, "environment": {**environment, "requirements": read(path)}}


def read(path: Path) -> list[str]:
    """Read the requirements in a file: its lines without comments, with continuation lines joined.

    Raises:
        SpecError: the file cannot be read or is empty, or a line is an option of pip.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SpecError([FieldIssue("--requirements", f"cannot read the file: {why}", str(path))]) from error
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.replace("\\\n", "").splitlines())
    found = [line for line in lines if line]
    for line in found:
        if line.startswith("-") or " --" in line:
            raise SpecError([FieldIssue(f"--requirements {path}", _OPTION_MESSAGE, line)])
    if not found:
        raise SpecError([FieldIssue("--requirements", "the file lists no requirements", str(path))])
    return found


_OPTION_MESSAGE = (
    "options of pip are not supported: copy the lines of included files, and set an index in env or secrets of the "
    "spec, e.g. --set env.PIP_EXTRA_INDEX_URL=https://…"
)
