"""Saved ranks, whose memory is released at the end of the test."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.doubles.saved_ranks import SavedRanks

RanksOf = Callable[..., SavedRanks]
"""Creates saved ranks, with the arguments of `SavedRanks`."""


@pytest.fixture
def ranks_of() -> Iterator[RanksOf]:
    created: list[SavedRanks] = []

    def create(*args: int, **options: object) -> SavedRanks:
        created.append(SavedRanks(*args, **options))  # pyright: ignore[reportArgumentType]
        return created[-1]

    yield create
    for ranks in created:
        ranks.close()
