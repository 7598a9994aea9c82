"""Many short jobs with cancels, failures and server restarts: each ends as it should, and nothing grows with them."""

import json
from pathlib import Path

import pytest

from tests.support.many_jobs.__main__ import main

pytestmark = pytest.mark.slow


def test_a_server_that_is_killed_repeatedly_ends_each_short_job_as_it_should(tmp_path: Path, no_leaks: None) -> None:
    result = tmp_path / "result.json"
    main(["--json", str(result), "--jobs", "60", "--ray-jobs", "0", "--minutes", "5"])
    found = json.loads(result.read_text())
    assert (found["jobs"], found["in_memory"]["restarts"]) == (60, 4)
    of_growth = (" grew ", " are necessary")  # such a short life shows nothing about growth
    assert [each for each in found["problems"] if not any(words in each for words in of_growth)] == []


@pytest.mark.soak
def test_nothing_grows_with_2000_jobs(tmp_path: Path) -> None:
    assert main(["--json", str(tmp_path / "result.json")]) == 0
