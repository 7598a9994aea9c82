"""The progress of several nodes as one, and as text."""

import pytest

from regroup.service.supervisor.gang.progress_text import add_up, describe
from regroup.workers.contract.storage_progress import StorageProgress

GIGA = 1_000_000_000


def test_the_rate_is_that_of_the_nodes_that_have_not_ended() -> None:
    found = [StorageProgress(2 * GIGA, 2 * GIGA, 5e8), StorageProgress(GIGA, 2 * GIGA, 1e8), StorageProgress(0, 1, 7.0)]
    assert add_up(found) == StorageProgress(3 * GIGA, 4 * GIGA + 1, 1e8 + 7)
    assert add_up([]) == StorageProgress(0, 0, 0)


@pytest.mark.parametrize(
    ("whole", "reporting", "text"),
    [
        (StorageProgress(1_200_000_000, 4 * GIGA, 3.1e8), 2, "w: 1.2 of 4.0 GB, 310 MB/s"),
        (StorageProgress(0, 4 * GIGA, 0.0), 2, "w: 0.0 of 4.0 GB, 0 B/s"),
        (StorageProgress(0, 4_000_000, 12_345.6), 1, "w: 0.0 of 4.0 MB, 12.3 kB/s (1 of 2 nodes have begun)"),
        (StorageProgress(4 * GIGA, 4 * GIGA, 0.0), 2, "w: 4.0 of 4.0 GB"),
        (StorageProgress(4 * GIGA, 4 * GIGA, 0.0), 1, "w: 4.0 of 4.0 GB (1 of 2 nodes have begun)"),
    ],
)
def test_the_text_has_units_and_no_rate_after_the_end(whole: StorageProgress, reporting: int, text: str) -> None:
    assert describe("w", whole, reporting, 2) == text
