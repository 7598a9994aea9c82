"""The pieces of a bundle are joined and installed by a bare Python, in a namespace without network."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.gpu.bundle import write_bundle
from tests.support.packages.tiny_packages import wheel

PIECE_BYTES = 8192


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "program.py").write_text("import carried\nprint('carried', carried.VALUE)\n" + "#" * 3 * PIECE_BYTES)
    wheel(tmp_path / "wheels", "carried", "1.0", {"carried.py": "VALUE = 7\n"})
    pieces = write_bundle(code, tmp_path / "wheels", tmp_path / "bundle", PIECE_BYTES)
    assert len(pieces) > 2 and all(piece.stat().st_size <= PIECE_BYTES for piece in pieces)
    return tmp_path / "bundle"


def bootstrap(bundle: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    command = ["unshare", "--net", "sh", str(bundle / "bootstrap.sh"), str(target)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.namespaces
def test_a_bundle_installs_without_a_network(bundle: Path, tmp_path: Path) -> None:
    installed = bootstrap(bundle, tmp_path / "there")
    assert installed.returncode == 0, installed.stderr
    assert installed.stdout.startswith(f"installed: cd {tmp_path}/there/code && PYTHONPATH=")
    line = installed.stdout.removeprefix("installed: ").replace("-m benchmarks.gpu", "program.py")
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "carried 7\n", ran.stderr


@pytest.mark.namespaces
def test_a_damaged_piece_is_named_and_nothing_is_installed(bundle: Path, tmp_path: Path) -> None:
    piece = bundle / "piece-01"
    piece.write_bytes(piece.read_bytes()[:-1] + b"?")
    failed = bootstrap(bundle, tmp_path / "there")
    assert failed.returncode != 0 and "piece-01: FAILED" in failed.stdout + failed.stderr
    assert not (tmp_path / "there").exists()
