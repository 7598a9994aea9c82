"""The planner with the API and the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.api.client.connection.errors import ApiError

QUESTION: dict[str, Any] = {
    "model": "llama3-70b", "device": "A100", "gpus": 64, "global_batch": 512, "sequence": 4096,
}  # fmt: skip
COMMAND = ["plan", "llama3-70b", "--device", "A100", "--gpus", "64", "--batch", "512", "--sequence", "4096"]


async def test_a_request_returns_plans(live: Any) -> None:
    report = await live.client(lambda client: client.plan(**QUESTION))
    best = report.plans[0]
    degrees = best.layout.model_dump().values()
    assert best.step_s == min(each.step_s for each in report.plans)
    assert best.peak_bytes < best.capacity_bytes
    product = 1
    for degree in degrees:
        product *= degree
    assert product == 64
    assert report.markdown.startswith("# 70.6B parameters")


@pytest.mark.parametrize(
    ("change", "pointer", "detail"),
    [
        ({"gpus": 0}, "/gpus", "must be at least 1"),
        ({"gpus": 8}, "/gpus", "out of memory"),
        ({"device": "abacus"}, "/device", "not in the hardware table"),
        ({"gpus": "many"}, "/gpus", "must be an integer"),
        ({"colour": "red"}, "/colour", ""),
    ],
)
async def test_an_invalid_request_points_at_the_field(
    live: Any, change: dict[str, Any], pointer: str, detail: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await live.client(lambda client: client.plan(**{**QUESTION, **change}))
    problem = refused.value.problem
    assert problem.status == 422
    assert any(wrong.pointer == pointer and detail in wrong.detail for wrong in problem.errors)


def test_the_command_needs_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*COMMAND, "--markdown", str(tmp_path / "plan.md"), "--picture", str(tmp_path / "plan.png")])
    shown = capsys.readouterr().out
    assert "fastest that fits" in shown
    assert "does not fit" in shown
    assert "## Other kinds of layouts" in (tmp_path / "plan.md").read_text()
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_sizes_are_read_from_a_file_and_the_answer_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("layers: 6\nhidden: 512\nheads: 8\nvocabulary: 32000\n")
    with pytest.raises(SystemExit, match="0"):
        main(["plan", str(path), "--device", "cpu", "--gpus", "2", "--batch", "8", "--precision", "fp32", "--json"])
    assert json.loads(capsys.readouterr().out)["plans"]


def test_an_error_of_the_command_names_the_invalid_value(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*COMMAND[:4], "--gpus", "0", "--batch", "a lot"])
    with pytest.raises(SystemExit):
        main([*COMMAND, "--precision", "fp5"])
    assert "precision" in capsys.readouterr().err
