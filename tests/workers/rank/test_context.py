"""The contract that training code sees: where it is, what it keeps, what all ranks decide alike."""

import re
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from tests.support.inputs.rank_configs import changed, fault

LOOP = "plain_loop:train"


def pinned_steps(run: Any) -> list[int]:
    return sorted({pin["step"] for pin in run.of("Pinned")})


def test_a_plain_loop_is_restored_bitwise_with_its_random_numbers(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"steps": 400})
    whole = agent.run(config, 2, "plain-whole", entry=LOOP, layout={"dp_replicate": 2})
    before = agent.run(config, 2, "plain-cut", entry=LOOP, layout={"dp_replicate": 2}, stop_at=2)
    # The request may arrive a step or more later, and only the two newest snapshots exist.
    stopped = before.rows[-1]["step"]
    assert stopped < 400
    after = agent.run(
        config,
        2,
        "plain-cut",
        entry=LOOP,
        layout={"dp_replicate": 2},
        generation=2,
        restore={"source": "memory", "step": stopped, "generation": 1},
    )
    assert after.result == whole.result
    assert [*before.losses, *after.losses] == whole.losses


def test_every_rank_reports_its_state_and_the_leading_one_reports_steps(agent: Any, config: RankConfig) -> None:
    run = agent.run(config, 2, "said", entry=LOOP)
    assert [restored["rank"] for restored in sorted(run.of("Restored"), key=lambda m: m["rank"])] == [0, 1]
    assert {request["size_bytes"] > 0 for request in run.of("BuffersRequest")} == {True}
    assert [row["step"] for row in run.rows] == [1, 2, 3, 4]
    assert all(row["duration_s"] > 0 and row["tokens"] == 8 for row in run.rows)
    assert [(done["step"], done["stopped"]) for done in run.of("Done")] == [(4, False)] * 2


def test_a_stop_ends_all_ranks_at_one_step_with_a_snapshot_of_it(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"steps": 400})
    config = changed(config, snapshot={"every_steps": 1000})
    run = agent.run(config, 3, "stopped", entry=LOOP, stop_at=5)
    ends = {(done["step"], done["stopped"]) for done in run.of("Done")}
    assert len(ends) == 1
    step, stopped = ends.pop()
    assert stopped
    assert 5 <= step < 400
    after = agent.run(
        changed(config, training={"steps": step + 1}),
        3,
        "stopped",
        entry=LOOP,
        generation=2,
        restore={"source": "memory", "step": step, "generation": 1},
    )
    assert [row["step"] for row in after.rows] == [step + 1]


def test_where_snapshots_are_slow_all_ranks_take_fewer(agent: Any, config: RankConfig) -> None:
    """Check that slow copies of one rank lengthen the interval of all ranks alike."""
    config = changed(config, training={"steps": 40, "global_batch": 4})
    whole = agent.run(config, 2, "auto-whole")
    slow = [fault(1, step, "sleep", "snapshot", duration_s=0.1) for step in range(1, 9)]
    config = changed(config, snapshot={"every_steps": "auto"}, faults=slow)
    run = agent.run(config, 2, "auto", stop_at=22)
    notes = run.of("Note")
    assert notes and {note["kind"] for note in notes} == {"snapshot_interval"}
    assert all(note["data"]["every_steps"] > 1 for note in notes), "a step without one does not make them cheap"
    stopped = run.rows[-1]["step"]
    assert stopped < config.training.steps
    at = {"source": "memory", "step": stopped, "generation": 1}
    after = agent.run(config, 2, "auto", generation=2, restore=at, faults_fired=list(range(len(slow))))
    assert after.result == whole.result


def test_a_stop_may_ask_for_its_step_to_be_saved(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"steps": 50})
    config = changed(config, checkpoint={"every_steps": 1000})
    run = agent.run(config, 3, "stopped-saved", entry=LOOP, stop_at=3, save=True)
    step = run.rows[-1]["step"]
    assert step < 50 and {(done["step"], done["stopped"]) for done in run.of("Done")} == {(step, True)}
    assert sorted((pin["rank"], pin["step"]) for pin in run.of("Pinned")) == [(rank, step) for rank in range(3)]


def test_checkpoints_are_pinned_when_due_and_the_last_step_always(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"steps": 8})
    config = changed(config, checkpoint={"every_steps": 3})
    run = agent.run(config, 2, "due", entry=LOOP)
    assert pinned_steps(run) == [3, 6, 8]
    assert sorted((pin["rank"], pin["step"]) for pin in run.of("Pinned")) == [
        (rank, step) for rank in (0, 1) for step in (3, 6, 8)
    ]


def test_checkpoints_by_time_are_decided_by_one_clock(agent: Any, config: RankConfig) -> None:
    config = changed(config, checkpoint={"every_s": 1e-6})
    run = agent.run(config, 2, "timed", entry=LOOP)
    # Each step is due; which ones find the pins of the one before released is up to the agent, but never to one rank.
    by_rank = [{pin["step"] for pin in run.of("Pinned") if pin["rank"] == rank} for rank in (0, 1)]
    assert by_rank[0] == by_rank[1] >= {1, 4}


def test_a_checkpoint_waits_for_the_one_that_is_being_saved(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"steps": 9})
    config = changed(config, checkpoint={"every_steps": 2})
    # The double releases the pins of step 2 only when step 5 was reported.
    run = agent.run(config, 2, "busy", entry=LOOP, release_after={"2": 5})
    steps = pinned_steps(run)
    assert steps[0] == 2
    assert 4 not in steps
    assert 5 < steps[1] < 9
    assert steps[-1] == 9
    assert run.codes == [0, 0]


def test_ranks_that_died_after_the_last_step_pin_it_again(agent: Any, config: RankConfig) -> None:
    config = changed(config, faults=[fault(0, 4, "sigkill", "checkpoint")])
    faulty = agent.run(config, 2, "last", show_errors=False)
    assert faulty.codes[0] == -9
    after = agent.run(
        config, 2, "last", generation=2, restore={"source": "memory", "step": 4, "generation": 1}, faults_fired=[0]
    )
    assert after.codes == [0, 0]
    assert pinned_steps(after) == [4]
    assert after.rows == []
    assert after.result["parameters"]


def test_numbers_that_are_not_finite_are_counted_by_all(agent: Any, config: RankConfig) -> None:
    run = agent.run(config, 3, "nan", entry="plain_loop:disagrees")
    assert run.result["ranks"] == 3.0
    assert run.result["non_finite_ranks"] == 1.0


@pytest.mark.parametrize(
    ("entry", "error"),
    [("commits_out_of_order", r"commit\(2\) after step 0"), ("forgets_to_track", r"call context\.track")],
)
def test_misuse_is_explained(agent: Any, config: RankConfig, entry: str, error: str) -> None:
    run = agent.run(config, 1, entry, entry=f"plain_loop:{entry}", show_errors=False)
    assert run.codes == [1]
    assert re.search(error, run.errors[0])


def test_sets_for_mirrors_are_held_by_all_ranks_alike_and_no_more_than_two(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"steps": 300})
    config = changed(config, snapshot={"every_steps": 1000})
    run = agent.run(config, 3, "mirrored", entry=LOOP, mirrors=3, buffers=5)
    assert run.codes == [0, 0, 0]
    pins = [pin for pin in run.of("Pinned") if pin["purpose"] == "mirror"]
    steps = sorted({pin["step"] for pin in pins})
    assert len(steps) == 2, "the third would leave too few buffers: it waits until one of them is released"
    assert steps[1] < 200, "there was time for a third"
    assert sorted((pin["rank"], pin["step"]) for pin in pins) == [(rank, step) for rank in range(3) for step in steps]


def test_a_set_is_held_for_a_mirror_and_a_checkpoint_at_once(agent: Any, config: RankConfig) -> None:
    config = changed(config, training={"steps": 200})
    config = changed(config, checkpoint={"every_steps": 1})
    run = agent.run(config, 2, "both", entry="plain_loop:saves_every_step", mirrors=1, buffers=5)
    assert run.codes == [0, 0]
    both = {pin["step"] for pin in run.of("Pinned") if pin["purpose"] == "mirror"}
    assert both <= {pin["step"] for pin in run.of("Pinned") if pin["purpose"] == "checkpoint"} and both
