"""The restart check on real ranks: repeated steps have equal states unless the function keeps state of its own."""

from dataclasses import replace
from typing import Any

import pytest

from regroup.service.policy.recovery.restart_check import find_difference
from regroup.workers.contract.rank_config import RankConfig, SnapshotConfig, TrainingConfig
from tests.support.inputs.rank_configs import changed

ENTRY = "regroup.workers.rank.user_function:train"
SAVED = {"source": "memory", "step": 2, "generation": 1}


@pytest.fixture
def config() -> RankConfig:
    """Six steps with a snapshot after every fifth one, which the check must not depend on."""
    return RankConfig(
        training=TrainingConfig(global_batch=16, micro_batch=2, steps=6),
        function="function_loops:train",
        args={"wrap": "ddp"},
        seed=7,
        snapshot=SnapshotConfig(every_steps=5),
        verifies_restart=True,
    )


@pytest.fixture
def run(agent: Any) -> Any:
    """Runs a generation of two ranks."""

    def start(config: RankConfig, memory: str, **options: Any) -> Any:
        return agent.run(config, 2, memory, entry=ENTRY, layout={"dp_replicate": 2}, **options)

    return start


def digests(generation: Any) -> dict[int, dict[int, dict[str, str]]]:
    found: dict[int, dict[int, dict[str, str]]] = {}
    for message in generation.of("StateDigest"):
        found.setdefault(message["step"], {})[message["rank"]] = message["parts"]
    return found


def test_repeated_steps_have_equal_states(run: Any, config: RankConfig) -> None:
    whole = run(replace(config, verifies_restart=False), "whole")
    first = run(config, "checked")
    assert first.codes == [0, 0]
    assert [(done["step"], done["stopped"]) for done in first.of("Done")] == [(4, True)] * 2
    second = run(config, "checked", generation=2, restore=SAVED)
    assert [row["step"] for row in second.rows] == [3, 4, 5, 6]
    assert second.result == whole.result
    before, after = digests(first), digests(second)
    assert {step: sorted(ranks) for step, ranks in before.items()} == {3: [0, 1], 4: [0, 1]}
    assert before.keys() == after.keys() and find_difference(before, after) is None
    assert {"0.weight", "optim.0.weight.exp_avg", "stateful schedule", "random"} <= before[3][0].keys()


def test_state_that_a_function_does_not_track_is_found(run: Any, config: RankConfig) -> None:
    config = changed(config, function="function_loops:forgetful")
    before, after = digests(run(config, "forgetful")), digests(run(config, "forgetful", generation=2, restore=SAVED))
    difference = find_difference(before, after)
    assert difference is not None
    assert (difference.step, difference.ranks) == (3, (0, 1))
    assert "0.weight" in difference.names and "samples" not in difference.names


def test_a_later_failure_does_not_start_the_check_again(run: Any, config: RankConfig) -> None:
    run(config, "later")
    run(config, "later", generation=2, restore=SAVED)
    third = run(config, "later", generation=3, restore={"source": "memory", "step": 5, "generation": 2})
    assert third.of("StateDigest") == []
    assert [(done["step"], done["stopped"]) for done in third.of("Done")] == [(6, False)] * 2


def test_too_few_steps_are_an_error(run: Any, config: RankConfig) -> None:
    short = changed(config, training={"steps": 4}, function="function_loops:of_four_steps")
    error = (
        "InputError: recovery.verify needs more than 4 steps, and the function has 4: train longer, or set it to off"
    )
    assert run(short, "short", show_errors=False).errors == [error] * 2
