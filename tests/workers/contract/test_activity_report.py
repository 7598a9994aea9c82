"""Packed activity of ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.workers.contract.activity_report import PHASES, RankRecord, pack, unpack
from regroup.workers.contract.messages import Phase
from regroup.workers.contract.rank_activity import RankActivity

SECONDS = st.floats(0, 1e6)
COUNTS = st.integers(0, 2**32 - 1)
ACTIVITIES = st.builds(
    RankActivity, st.integers(0, 2**63 - 1), st.sampled_from(PHASES), SECONDS, SECONDS, COUNTS, SECONDS, COUNTS,
    SECONDS, SECONDS, SECONDS,
)  # fmt: skip


def test_each_phase_of_a_rank_has_a_number() -> None:
    assert list(PHASES) == [phase.value for phase in Phase]


@given(st.lists(st.builds(RankRecord, COUNTS, st.booleans(), ACTIVITIES), max_size=9))
def test_records_are_read_as_they_were_packed(records: list[RankRecord]) -> None:
    assert list(unpack(pack(records))) == records


@pytest.mark.parametrize(("data", "why"), [(b"short", "not a multiple"), (b"\xff" * 82, "phase number 255")])
def test_damaged_records_are_refused(data: bytes, why: str) -> None:
    size = len(pack([RankRecord(0, True, RankActivity(1, "boot", 0.0, 0.0, 0, 0.0))]))
    with pytest.raises(ValueError, match=why):
        list(unpack(data if why == "not a multiple" else b"\xff" * size))
