"""`--working-dir`: a folder of code that goes along with a spec."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.output import print_message
from regroup.service.domain.errors import FieldIssue, SpecError

if TYPE_CHECKING:
    from regroup.api.client.client import Client

_QUIET_S = 1.0
"""A shorter upload is not worth a word."""
_LINE_S = 5.0
"""Between two lines of progress where nobody sees a line change."""

WorkingDir = Annotated[
    Path | None,
    typer.Option(
        "--working-dir",
        metavar="DIR",
        help="Send this folder along: the ranks' working directory, first on their sys.path. See docs/guides/code.md.",
    ),
]


def with_working_dir(data: Mapping[str, Any], working_dir: Path | None, base: Path) -> dict[str, Any]:
    """The spec with `--working-dir` in it, and what the spec itself says relative to `base`, the spec file's folder."""
    from regroup.api.client.uploads import working_dir_of

    if working_dir is None and (own := working_dir_of(data)) is not None:
        working_dir = base / own
    return dict(data) if working_dir is None else {**data, "code": {"working_dir": str(working_dir)}}


def for_program(spec: Mapping[str, Any], working_dir: Path | None, cwd: Path) -> dict[str, Any]:
    """The spec of a program that was typed in `cwd`, moved into the folder that is sent along, if one is.

    Raises:
        SpecError: the program is not in that folder.
    """
    if working_dir is None:
        return dict(spec)
    workload = {name: value for name, value in spec["workload"].items() if name != "cwd"}
    if "entrypoint" in workload:
        program, folder = os.path.realpath(cwd / workload["entrypoint"]), os.path.realpath(cwd / working_dir)
        if not Path(program).is_relative_to(folder):
            raise SpecError([FieldIssue("--working-dir", f"the program {program} is not in this folder", folder)])
        workload["entrypoint"] = os.path.relpath(program, folder)
    return with_working_dir({**spec, "workload": workload}, working_dir, cwd)


def upload_code(client: "Client", data: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with its folder uploaded and the archive's address in its place; long uploads show how far they are.

    Raises:
        ArchiveError: the folder cannot travel, or is larger than the server takes.
    """
    from regroup.api.client.uploads import with_code_uploaded

    return with_code_uploaded(data, lambda folder: client.upload_working_dir(folder, on_progress=_progress_printer()))


def with_code_address(data: Mapping[str, Any]) -> dict[str, Any]:
    """The spec as `uploaded` would make it, with nothing sent: to be checked.

    Raises:
        ArchiveError: the folder cannot travel.
    """
    from regroup.api.client.code_archive import pack
    from regroup.api.client.uploads import with_code_uploaded

    with tempfile.TemporaryDirectory(prefix="regroup-code-") as scratch:
        return with_code_uploaded(data, lambda folder: pack(folder, Path(scratch) / "code.tar").address)


def _progress_printer() -> Callable[[int, int], None]:
    """Progress on standard error: one line that changes on a terminal, few lines elsewhere."""
    from regroup.api.client.code_archive import format_mebibytes

    started_s = printed_s = time.monotonic()

    def show(there: int, whole: int) -> None:
        nonlocal printed_s
        now_s, terminal, done = time.monotonic(), sys.stderr.isatty(), there == whole
        if now_s - started_s < _QUIET_S or (not terminal and not done and now_s - printed_s < _LINE_S):
            return
        printed_s = now_s
        text = f"code: {format_mebibytes(there)} of {format_mebibytes(whole)}"
        if terminal:
            print(f"\r{text}", end="\n" if done else "", file=sys.stderr, flush=True)
        else:
            print_message(text)

    return show
