"""The recent collectives of a rank."""

from typing import Any


def test_groups_without_this_rank_do_not_break_the_recorder(agent: Any, config: dict[str, Any]) -> None:
    run = agent.run(config, 2, "groups-apart", entry="groups_apart:train")
    first_ranks = {done["rank"]: done["result"]["first_ranks"] for done in run.of("Done")}
    assert first_ranks == {0: [0], 1: [0, 1]}, "the group of all, and its own"
