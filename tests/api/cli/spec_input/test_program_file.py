"""A command that is not Python is checked before it is submitted, as far as this machine can tell."""

from pathlib import Path

import pytest
import typer

from regroup.api.cli.spec_input.program_file import check_command


def test_a_path_must_be_an_executable_file(tmp_path: Path) -> None:
    program = tmp_path / "run.sh"
    with pytest.raises(typer.BadParameter, match=f"no file {program} on this machine"):
        check_command("./run.sh", tmp_path)
    program.write_text("#!/bin/sh\n")
    with pytest.raises(typer.BadParameter, match="is not executable; use chmod \\+x, or name the program that runs it"):
        check_command("./run.sh", tmp_path)
    program.chmod(0o755)
    check_command("./run.sh", tmp_path)
    check_command(str(program), tmp_path / "elsewhere")
    with pytest.raises(typer.BadParameter, match="no file"):
        check_command("./", tmp_path)


def test_nodes_find_a_name_in_their_own_path(tmp_path: Path) -> None:
    check_command("no-such-program-here", tmp_path)
