"""Positions of several outputs as one text."""

import pytest

from regroup.service.operations.inspection.merged_log import Positions, format_positions, parse_positions
from regroup.service.operations.logs import LogPosition

POSITIONS: Positions = {
    (10, "stdout"): LogPosition(2, 4096), (2, "stderr"): LogPosition(1, 0), (2, "stdout"): LogPosition(3, 7),
}  # fmt: skip


def test_positions_survive_their_text() -> None:
    text = format_positions(POSITIONS)
    assert text == "2e1.0,2o3.7,10o2.4096"
    assert parse_positions(text, list(POSITIONS)) == POSITIONS


@pytest.mark.parametrize("text", ["", "x", "2o3", "2o3.7,", "2x3.7", "2o-3.7", f"2o3.{'9' * 20}", "oe"])
def test_an_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id of this stream"):
        parse_positions(text, [(2, "stdout")])


def test_positions_of_other_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="other ranks"):
        parse_positions("2o3.7", [(3, "stdout")])
