"""The driver of CUDA in a process, with a double of its library."""

import subprocess
import sys
from pathlib import Path

import pytest

LOADS = "import ctypes, sys\ndriver = ctypes.CDLL(sys.argv[1])\n"


@pytest.mark.parametrize(("before", "expected"), [("", False), (LOADS, False), (f"{LOADS}driver.cuInit(0)\n", True)])
def test_only_an_initialized_driver_is_found(cuda_driver: Path, before: str, expected: bool) -> None:
    code = f"{before}from regroup.workers.os.cuda_driver import is_initialized\nprint(is_initialized())"
    command = [sys.executable, "-c", code, str(cuda_driver)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(expected)
