import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.cli.demo.report import Run, judge, matching, summary, unigram_entropy, write
from regroup.api.cli.demo.runner import EXAMPLE, plan
from regroup.service.spec.job import parse_spec

DIGEST = {"parameters": "ab", "samples": "cd"}


@pytest.fixture
def runs(story) -> Callable[..., tuple[Run, Run]]:
    def both(control_digest: dict[str, str] | None = None, **incident: Any) -> tuple[Run, Run]:
        whole = [*story.until_the_kill, story.generation(2), story.incident(story.back_at, steps_lost=0, **incident)]
        whole += [story.step(s, generation=2) for s in range(150, 301)]
        disturbed = Run({"digest": DIGEST}, story.view([*whole, story.state("SUCCEEDED", "completed")]), 40.0)
        calm = [*[story.step(s) for s in range(1, 301)], story.state("SUCCEEDED", "completed")]
        return disturbed, Run({"digest": control_digest or DIGEST}, story.view(calm), 38.0)

    return both


def test_the_entropy_counts_single_bytes_without_held_out_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"abab")
    (tmp_path / "held.py").write_bytes(b"z" * 100)
    both = [str(tmp_path / "*.py")]
    assert unigram_entropy(both, [str(tmp_path / "held.py")]) == pytest.approx(math.log(2))
    assert unigram_entropy(both, []) != pytest.approx(math.log(2))


def test_the_demo_is_confirmed_if_all_claims_hold(runs) -> None:
    disturbed, control = runs()
    assert judge(disturbed, control, entropy=3.07).is_confirmed


def test_each_claim_can_fail_separately(runs, story) -> None:
    disturbed, control = runs()
    assert not judge(disturbed, runs({"parameters": "ac", "samples": "cd"})[1], 3.07).bitwise_equal
    assert not judge(disturbed, control, entropy=2.1).below_entropy
    assert not judge(control, control, entropy=3.07).recovered
    nothing = Run({"digest": None}, story.view([]), 1.0)
    assert not judge(nothing, nothing, 3.07).bitwise_equal, "missing digests do not count as equal"
    assert not judge(nothing, nothing, 3.07).succeeded
    flat = Run(disturbed.job, story.view([story.step(50), story.step(50, generation=2)]), 1.0)
    assert not judge(flat, control, 3.07).held_out_falls


def test_picture_and_summary_are_written(runs, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    disturbed, control = runs()
    figures = summary(disturbed, control, 3.07, {"until_served": 9.0})
    write(tmp_path / "demo", figures, disturbed, control)
    assert (tmp_path / "demo/loss.png").read_bytes().startswith(b"\x89PNG")
    read = json.loads((tmp_path / "demo/summary.json").read_text())
    assert read["is_confirmed"] and read["bitwise_equal"] and read["steps_lost"] == 0
    assert read["recovery_seconds"] == pytest.approx(0.8)
    assert read["final_loss"] < read["unigram_entropy"] == 3.07
    assert read["seconds"] == {"until_served": 9.0, "run": 40.0, "control": 38.0}


def test_the_example_is_valid_and_its_control_run_differs_only_in_faults() -> None:
    specs = plan(None)
    disturbed, control = parse_spec(dict(specs.disturbed)), parse_spec(dict(specs.control))
    assert disturbed.faults[0].at.step == disturbed.training.steps // 2
    assert control.model_copy(update={"faults": disturbed.faults, "name": disturbed.name}) == disturbed
    assert disturbed.layout.dp.target == 4
    assert "$" not in json.dumps(specs.disturbed)


def test_the_fault_stays_half_way_for_other_numbers_of_steps() -> None:
    specs = plan(60)
    assert (specs.disturbed["training"]["steps"], specs.disturbed["faults"][0]["at"]["step"]) == (60, 30)
    parse_spec(dict(specs.disturbed))


def test_all_texts_of_the_example_exist_and_are_train_or_held_out() -> None:
    data = plan(None).disturbed["workload"]["data"]
    train = [set(matching(pattern)) for pattern in data["train"]]
    held_out = {path for pattern in data["validation"] for path in matching(pattern)}
    assert all(train) and len(held_out) == len(data["validation"])
    assert not set().union(*train) & held_out
    assert EXAMPLE.is_file()
