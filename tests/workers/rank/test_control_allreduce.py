"""The numbers that every step sums over its ranks."""

from typing import Any

import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_rank_has_the_same_bits_whatever_is_summed(agent: Any, config: dict[str, Any], ranks: int) -> None:
    found = agent.run(config, ranks, "sums", entry="plain_loop:sums_of_all_ranks").result
    assert len(found["everywhere"]) == ranks and len(set(found["everywhere"])) == 1
    large, small, nothing, endless = (float(value) for value in found["total"])
    assert large == pytest.approx(1e16 + ranks - 1) and small == pytest.approx(0.1 * sum(range(ranks)))
    assert nothing != nothing and endless == -float("inf")
