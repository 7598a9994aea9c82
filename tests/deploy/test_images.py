"""Static checks of the Dockerfile. A build of the images needs a daemon, which tests do not have."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
STAGES = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM |\Z)", TEXT, re.MULTILINE | re.DOTALL))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def installed_extras(stage: str) -> set[str]:
    (extras,) = re.findall(r"regroup-\*\.whl\)\[([\w,-]+)\]", STAGES[stage])
    return set(extras.split(","))


def test_the_control_plane_has_no_torch_and_the_worker_has() -> None:
    assert installed_extras("control") == {"s3"}
    assert installed_extras("worker") == {"worker", "data", "ray-train", "s3"}
    assert installed_extras("worker") <= set(EXTRAS)
    assert "torch" not in STAGES["control"]


@pytest.mark.parametrize("stage", ["control", "worker"])
def test_an_image_runs_without_root_and_is_pinned(stage: str) -> None:
    last_user = re.findall(r"^USER (\S+)", STAGES[stage], re.MULTILINE)[-1]
    assert last_user == "10001:10001"
    for line in STAGES[stage].splitlines():
        if "pip install" in line:
            assert "constraints.txt" in line


def test_copied_files_exist_and_are_not_ignored() -> None:
    copied = {
        source for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", TEXT, re.MULTILINE) for source in sources.split()
    }
    kept = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert {"api", "service", "workers", "regroup", "constraints.txt"} <= copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in kept, source
