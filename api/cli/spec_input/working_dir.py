"""`--working-dir`: a folder of code that is uploaded with a spec."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.output import print_message
from regroup.service.domain.errors import FieldIssue, SpecError

if TYPE_CHECKING:
    from regroup.api.client.client import Client

_QUIET_S = 1.0
"""Uploads shorter than this print no progress."""
_LINE_S = 5.0
"""Interval between two lines of progress if standard error is not a terminal."""

WorkingDir = Annotated[
    Path | None,
    typer.Option(
        "--working-dir",
        metavar="DIR",
        help="Upload this folder. It becomes the ranks' working directory and the first entry of their sys.path. "
        "See docs/guides/code.md.",
    ),
]


def with_working_dir(data: Mapping[str, Any], working_dir: Path | None, base: Path) -> dict[str, Any]:
    """Return the spec with `--working-dir`, or with its own working directory.

    Args:
        data: The spec.
        working_dir: Folder from the command line.
        base: Folder of the spec file; the spec's own working directory is relative to it.
    """
    from regroup.api.client.operations.uploads import working_dir_of

    if working_dir is None and (own := working_dir_of(data)) is not None:
        working_dir = base / own
    return dict(data) if working_dir is None else {**data, "code": {"working_dir": str(working_dir)}}


def for_program(spec: Mapping[str, Any], working_dir: Path | None, cwd: Path) -> dict[str, Any]:
    """Return the spec of a program with its path relative to the uploaded folder, if there is one.

    Args:
        spec: The spec of the program.
        working_dir: Folder to upload, relative to `cwd`.
        cwd: Folder in which the command was typed.

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
    """Upload the spec's folder and return the spec with the archive's address instead. Long uploads print progress.

    Raises:
        ArchiveError: the folder cannot be archived, or is larger than the server accepts.
    """
    from regroup.api.client.operations.uploads import with_code_uploaded

    return with_code_uploaded(
        data,
        lambda folder, storage: client.upload_working_dir(
            folder, on_progress=_progress_printer(), data_folders=storage, on_left_out=_print_left_out
        ),
    )


def with_code_address(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with the address of the folder's archive, without an upload, so that it can be validated.

    Raises:
        ArchiveError: the folder cannot be archived.
    """
    from regroup.api.client.operations.code_archive import pack
    from regroup.api.client.operations.uploads import with_code_uploaded

    with tempfile.TemporaryDirectory(prefix="regroup-code-") as scratch:
        file = Path(scratch) / "code.tar"
        return with_code_uploaded(data, lambda folder, storage: pack(folder, file, data_folders=storage).address)


def _print_left_out(folders: Sequence[str]) -> None:
    print_message(f"code: left out {', '.join(folders)}: regroup's own data (state directory, storage or archives)")


def _progress_printer() -> Callable[[int, int], None]:
    """Return a function that prints progress on standard error: one changing line on a terminal, else a few lines."""
    from regroup.api.client.operations.code_archive import format_mebibytes

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
