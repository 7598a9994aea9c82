"""Masks of new files of the platform and of user code, in real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from regroup.workers.os import umask
folder = Path(sys.argv[1])
umask.make_private()
umask.make_private()
(folder / "private").touch()
child = "import pathlib, sys; from regroup.workers.os import umask; umask.restore(); pathlib.Path(sys.argv[1]).touch()"
import subprocess
subprocess.run([sys.executable, "-c", child, str(folder / "users")], check=True)
"""


@pytest.mark.parametrize(
    ("mask", "given", "expected"), [(0o022, None, 0o644), (0o002, None, 0o664), (0o077, "007", 0o660)]
)
def test_files_of_the_platform_are_private_and_those_of_user_code_are_not(
    tmp_path: Path, mask: int, given: str | None, expected: int
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "REGROUP_UMASK"}
    if given is not None:
        environment["REGROUP_UMASK"] = given
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], env=environment, umask=mask, check=True)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"private": 0o600, "users": expected}
