"""Reports of ranks as plain data: readable for a small job, compressed for a large one."""

import json
from typing import Any

import pytest

from regroup.service.domain.rank_reports import decode_rank_reports, encode_rank_reports


@pytest.mark.parametrize("size", [0, 3, 512, 513, 2000])
def test_reports_are_read_as_they_were_encoded(size: int) -> None:
    reports: dict[int, Any] = {
        rank: (7, "forward", rank / 1000, 0.0, 0.5) if rank % 3 else (6, "done") for rank in range(size)
    }
    stored = json.loads(json.dumps(encode_rank_reports(reports)))
    assert decode_rank_reports(stored) == {str(rank): list(report) for rank, report in reports.items()}


def test_a_small_job_has_an_entry_for_each_rank_and_a_large_one_is_small() -> None:
    assert encode_rank_reports({4: (1, "boot")}) == {"4": [1, "boot"]}
    large = encode_rank_reports(dict.fromkeys(range(16384), (100, "backward", 0.25, 0.001, 0.3)))
    assert len(json.dumps(large)) < 100_000


@pytest.mark.parametrize("damaged", ["", "AAAA", 7, "not base64", "eJyLBQAAiACD"])
def test_damaged_data_has_no_reports(damaged: Any) -> None:
    assert decode_rank_reports({"packed": damaged}) == {}
