"""The command run: the job that torchrun's options make, and the output that they choose."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.commands import watch
from regroup.api.client.client import Client
from regroup.api.live.output import OutputSource
from regroup.api.schemas.jobs import Job


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Job, list[str]]]:
    """Jobs that the command follows, with `RANK STREAM` of the output that it shows. None of them starts."""
    found: list[tuple[Job, list[str]]] = []

    def record(client: Client, job: Job, *, as_json: bool, sources: Sequence[OutputSource] = ()) -> None:
        found.append((job, [f"{each.prefix}{each.rank} {each.stream}" for each in sources]))

    monkeypatch.setattr(watch, "watch_to_the_end", record)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").touch()
    return found


BOTH = ["0 stdout", "0 stderr"]


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("x.py --tee 3", BOTH),
        ("--nproc-per-node 2 x.py", BOTH),
        ("--nproc-per-node 2 --tee 1 x.py", ["[rank0] 0 stdout", "0 stderr", "[rank1] 1 stdout"]),
        ("--nnodes 2 --tee 0:2 x.py", ["0 stdout", "[rank0] 0 stderr", "[rank1] 1 stderr"]),
        ("--nnodes 1:2 --nproc-per-node 2 --local-ranks-filter 1 -r 2 x.py", ["[rank1] 1 stdout", "[rank3] 3 stdout"]),
        ("--redirects 3 x.py", []),
    ],
)
def test_options_choose_the_output(
    cli: Callable[..., Any], shown: list[tuple[Job, list[str]]], line: str, output: list[str]
) -> None:
    assert cli("run", *line.split()).code == 0
    assert shown[0][1] == output


def test_options_about_the_output_apply_to_a_spec_file(
    cli: Callable[..., Any], shown: list[tuple[Job, list[str]]], tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: two\nworkload: {kind: script, entrypoint: /x.py}\nlayout: {dp: {min: 1, target: 1, max: 2}}\n"
    )
    assert cli("run", "job.yaml", "-t", "1:1", "--redirects=0:3").code == 0
    assert shown[0][1] == ["[rank1] 1 stdout"]


def test_a_job_has_what_the_options_and_variables_say(
    cli: Callable[..., Any], shown: list[tuple[Job, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PET_MAX_RESTARTS", "3")
    monkeypatch.setenv("PET_NPROC_PER_NODE", "2")
    done = cli("run", "--nnodes", "2", "--role", "trainer", "--log-dir", "D", "--no-python", "sh", "-c", "date")
    assert done.code == 0 and "--log-dir is ignored: regroup stores the output of every rank" in done.err
    spec = shown[0][0].model_dump(mode="json")["spec"]
    assert spec["workload"]["module"] == "regroup.workers.rank.child_program"
    assert (spec["workload"]["args"], spec["workload"]["role"]) == (["sh", "-c", "date"], "trainer")
    assert (spec["layout"]["dp"]["max"], spec["recovery"]["budgets"]["user_error"]) == (4, 3)
