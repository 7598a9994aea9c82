"""Pack this tree and the wheels that `make gpu` needs, for a machine without a network that has Python and torch.

`python -m benchmarks.gpu.bundle --python 3.12` writes pieces below 60 MiB with their checksums, and `bootstrap.sh`,
which joins and installs them into one folder. `--ray` adds Ray, which only the stage `service` needs.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIECE_BYTES = 59 * 2**20
"""Size of all pieces but the last one. One of them fits in a transfer of 64 MiB."""
_LATER = ("ray", "torch", "uvicorn", "uv")
"""Packages that are not packed: torch is on the machine, the others serve only the stage `service`."""
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_TESTS = ("pytest>=9,<10", "pytest-asyncio>=1.5,<2", "hypothesis>=6.170,<7")
_BOOTSTRAP = """#!/bin/sh
# Join the pieces in the folder of this file, and install them: sh bootstrap.sh [FOLDER].
# Needs python3 with pip and torch.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-/tmp/regroup-gpu}
(cd "$here" && sha256sum --quiet --check SHA256SUMS)
rm -rf "$folder" && mkdir -p "$folder"
cat "$here"/piece-* | tar -x -C "$folder"
python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \\
  --target "$folder/site" "$folder"/wheels/*.whl
echo "installed: cd $folder/code && PYTHONPATH=$folder/code:$folder/site python3 -m benchmarks.gpu"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pieces; print the size of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.12", help="version of the machine's Python, default 3.12")
    parser.add_argument("--ray", action="store_true", help="also pack Ray and the server")
    parser.add_argument("--directory", type=Path, default=ROOT / "build/gpu-bundle", help="folder; emptied first")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="regroup-bundle-") as scratch:
        wheels = Path(scratch, "wheels")
        _download(_requirements(with_ray=given.ray), given.python, wheels)
        pieces = write_bundle(_code(Path(scratch)), wheels, given.directory)
    for piece in pieces:
        print(f"gpu-bundle: {piece}, {piece.stat().st_size / 2**20:.1f} MiB")
    return 0


def write_bundle(code: Path, wheels: Path, directory: Path, piece_bytes: int = PIECE_BYTES) -> list[Path]:
    """Write the pieces of two folders, their checksums and `bootstrap.sh`; return the pieces in order.

    Args:
        code: folder of the code.
        wheels: folder of the wheels.
        directory: folder of the bundle. It is emptied first.
        piece_bytes: size of all pieces but the last one.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with tempfile.NamedTemporaryFile(prefix="regroup-bundle-") as whole:
        with tarfile.open(fileobj=whole, mode="w") as archive:
            archive.add(code, "code")
            archive.add(wheels, "wheels")
        whole.flush()
        pieces = _split(Path(whole.name), directory, piece_bytes)
    (directory / "bootstrap.sh").write_text(_BOOTSTRAP)
    sums = [f"{hashlib.sha256(piece.read_bytes()).hexdigest()}  {piece.name}\n" for piece in pieces]
    (directory / "SHA256SUMS").write_text("".join(sums))
    return pieces


def _split(whole: Path, folder: Path, piece_bytes: int) -> list[Path]:
    pieces: list[Path] = []
    with whole.open("rb") as file:
        while part := file.read(piece_bytes):
            pieces.append(folder / f"piece-{len(pieces):02d}")
            pieces[-1].write_bytes(part)
    return pieces


def _requirements(*, with_ray: bool) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["worker"], *_TESTS]
    return [line for line in lines if (with_ray and not line.startswith("torch")) or not line.startswith(_LATER)]


def _download(requirements: Sequence[str], python: str, wheels: Path) -> None:
    """Download wheels for another Python of the constraints' versions, with all that they need but torch."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = wheels.with_name("constraints.txt")
    constraints.write_text("\n".join(line for line in lines if not line.startswith(("torch==", "--"))))
    platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version", python,
        "--implementation", "cp", *platforms, "--constraint", str(constraints), "--dest", str(wheels), *requirements,
    ]  # fmt: skip
    subprocess.run(command, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})


def _code(scratch: Path) -> Path:
    """Copy the files of the last commit; return the folder."""
    code = scratch / "code"
    code.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(code)], input=archive.stdout, check=True)
    shutil.rmtree(code / "benchmarks/results", ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
