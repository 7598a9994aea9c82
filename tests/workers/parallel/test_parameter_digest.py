"""One number of all parameters, those of other stages too, wherever torch runs."""

from typing import Any


def test_it_needs_no_numpy(agent: Any, config: dict[str, Any]) -> None:
    found = agent.run(config, 2, "digest", entry="plain_loop:digests_without_numpy").result
    assert found["names"] == ["first.weight", "shared.weight", "second.weight"], "each once, of all ranks"
    assert found["sizes"] == [6, 4, 6]
