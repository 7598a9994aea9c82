"""What a rank tells of its collectives."""

from typing import Any


def test_groups_that_it_is_not_in_do_not_keep_it_from_telling(agent: Any, config: dict[str, Any]) -> None:
    run = agent.run(config, 2, "groups-apart", entry="groups_apart:train")
    told = {done["rank"]: done["result"]["first_ranks"] for done in run.of("Done")}
    assert told == {0: [0], 1: [0, 1]}, "the group of all, and its own"
