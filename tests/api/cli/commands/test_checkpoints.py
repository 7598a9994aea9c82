"""The commands verify, pin and unpin, typed against a server with a checkpoint in a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.common import exit_codes
from tests.support.inputs.job_story import Story
from tests.support.inputs.stored_checkpoints import FILES, folder_of, write_checkpoint
from tests.support.servers.app_server import AppServer

Cli = Callable[..., Any]
LARGEST = max(FILES, key=lambda name: len(FILES[name]))


@pytest.fixture
def saved(server: AppServer, cli: Cli, spec: Path, tmp_path: Path) -> tuple[str, list[Path]]:
    """A job with the checkpoints of steps 4 and 8; their folders."""
    job = cli("submit", spec, "--json").json["id"]
    server.start_job(job)
    found = [write_checkpoint(f"file://{tmp_path}/{job}", step) for step in (4, 8)]
    events = [{"type": "checkpoint", "data": data} for data in found]
    server.report(job, [Story.generation(1), Story.state("RUNNING", "first_step"), *events])
    return job, [folder_of(data["uri"]) for data in found]


def is_pinned(cli: Cli, job: str) -> dict[int, bool]:
    return {each["step"]: each["pinned"] for each in cli("checkpoints", job, "--json").json}


def test_the_newest_checkpoint_is_verified_without_a_step(cli: Cli, saved: tuple[str, list[Path]]) -> None:
    job, (_, newest) = saved
    for reference in (job, f"{job}@latest", f"{job}@8"):
        done = cli("verify", reference)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"intact: contents of {len(FILES)} files, ") and str(newest) in done.out


def test_a_damaged_checkpoint_is_an_error(cli: Cli, saved: tuple[str, list[Path]]) -> None:
    job, (older, _) = saved
    content = bytearray((older / LARGEST).read_bytes())
    content[100] ^= 1
    (older / LARGEST).write_bytes(content)
    done = cli("verify", f"{job}@4")
    assert done.code == exit_codes.JOB_NOT_SUCCEEDED
    first, *faults = done.out.splitlines()
    assert first.startswith("damaged: contents of ") and [fault.split()[0] for fault in faults] == [LARGEST]
    sizes = cli("verify", f"{job}@4", "--sizes")
    assert sizes.code == 0 and sizes.out.startswith("intact: sizes of "), "a changed byte does not change the size"
    (older / LARGEST).unlink()
    found = cli("verify", f"{job}@4", "--sizes", "--json")
    assert (found.code, [each["name"] for each in found.json["faults"]]) == (exit_codes.JOB_NOT_SUCCEEDED, [LARGEST])
    assert cli("verify", job).code == 0, "the newer checkpoint is intact"


def test_a_checkpoint_is_pinned_and_unpinned(cli: Cli, saved: tuple[str, list[Path]]) -> None:
    job, _ = saved
    done = cli("pin", f"{job}@4")
    assert (done.code, done.out) == (0, "step 4 is pinned\n")
    assert is_pinned(cli, job) == {4: True, 8: False}
    assert cli("pin", f"{job}@8", "--json").json["pinned"] is True
    done = cli("unpin", f"{job}@4")
    assert (done.code, done.out) == (0, "step 4 is not pinned any more\n")
    assert is_pinned(cli, job) == {4: False, 8: True}
    assert cli("unpin", f"{job}@8", "--json").json["pinned"] is False


@pytest.mark.parametrize("verb", ["pin", "unpin", "verify"])
def test_a_step_that_does_not_exist_is_named(cli: Cli, saved: tuple[str, list[Path]], verb: str) -> None:
    job, _ = saved
    missing, invalid = cli(verb, f"{job}@5"), cli(verb, f"{job}@first")
    assert missing.code == 4 and "5" in missing.err
    assert invalid.code == exit_codes.USAGE and "'first' is not a step" in invalid.err


def test_a_checkpoint_to_pin_needs_a_step(cli: Cli, saved: tuple[str, list[Path]]) -> None:
    job, _ = saved
    for verb in ("pin", "unpin"):
        done = cli(verb, job)
        assert done.code == exit_codes.USAGE and f"regroup checkpoints {job}" in done.err


def test_a_job_without_a_checkpoint_is_named(cli: Cli, spec: Path) -> None:
    job = cli("submit", spec, "--json").json["id"]
    done = cli("verify", job)
    assert done.code == 4 and f"job {job} has no checkpoint" in done.err
