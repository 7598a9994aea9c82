"""`--requirements`: a requirements file of pip, read where it is typed and sent as lines of the spec."""

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
        help="Run in a Python of its own with what this requirements file lists. See docs/guides/environments.md.",
    ),
]


def with_requirements(data: Mapping[str, Any], file: Path | None, base: Path) -> dict[str, Any]:
    """The spec with the lines of `file` in it, or of the `environment.requirements_file` that it names itself, relative
    to `base`, the spec file's folder.

    Raises:
        SpecError: the file cannot be read, or has more than requirements in it.
    """
    given = data.get("environment")
    environment = dict(cast(Mapping[str, Any], given)) if isinstance(given, Mapping) else {}
    own = environment.pop(_FILE, None)
    if file is None and own is None:
        return dict(data)
    if file is None and environment.get("requirements"):
        raise SpecError([FieldIssue(f"environment.{_FILE}", "give requirements or requirements_file", own)])
    path = base / str(own) if file is None else file
    return {**data, "environment": {**environment, "requirements": read(path)}}


def read(path: Path) -> list[str]:
    """The requirements in a file: its lines without comments, those that end in a backslash joined.

    Raises:
        SpecError: there is no such file, or a line is an option of pip.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SpecError([FieldIssue("--requirements", f"cannot read it: {why}", str(path))]) from error
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.replace("\\\n", "").splitlines())
    found = [line for line in lines if line]
    for line in found:
        if line.startswith("-") or " --" in line:
            raise SpecError([FieldIssue(f"--requirements {path}", _INSTEAD, line)])
    if not found:
        raise SpecError([FieldIssue("--requirements", "lists nothing", str(path))])
    return found


_INSTEAD = (
    "options of pip are not taken: list what other files list, and say an index in env or secrets of the spec, e.g. "
    "--set env.PIP_EXTRA_INDEX_URL=https://…"
)
