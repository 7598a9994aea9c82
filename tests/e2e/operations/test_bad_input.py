"""Wrong input ends with a clear error in the right place, and nothing hangs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.connection.errors import ApiError
from tests.support.servers.regroup_server import Server

Spec = Callable[..., dict[str, Any]]


def test_an_unknown_field_is_refused_with_its_path(served: Server, spec: Spec) -> None:
    with pytest.raises(ApiError) as refused:
        served.client.submit({**spec("x"), "trainig": {}})  # codespell:ignore trainig
    assert refused.value.problem.status == 422
    assert "trainig" in str(refused.value)  # codespell:ignore trainig


def test_an_impossible_layout_is_refused(served: Server, spec: Spec) -> None:
    with pytest.raises(ApiError, match="layout"):
        served.client.submit(spec("x", layout={"dp": {"min": 3, "target": 2, "max": 1}}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": {"train": ["/nowhere/at/all"]}}, "/nowhere/at/all"),
        ({"preload": ["no_such_module"]}, "no_such_module"),
        ({"storage_uri": "file:///proc/regroup"}, "/proc/regroup"),
    ],
)
def test_input_that_the_nodes_do_not_have_fails_and_is_named(
    served: Server, spec: Spec, change: dict[str, Any], words: str
) -> None:
    parts = dict(change)
    base = spec("missing")
    if "data" in parts:
        parts = {"workload": {**base["workload"], "data": parts["data"]}}
    job = served.run({**base, **parts}, within_s=90)
    assert (job.state, job.reason) == ("FAILED", "invalid_input")
    assert words in job.message


def test_text_too_short_for_one_sample_is_named(served: Server, spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("too short")
    base = spec("short")
    workload = {**base["workload"], "data": {"train": [str(tmp_path / "short.txt")]}}
    job = served.run({**base, "workload": workload}, within_s=90)
    assert (job.state, job.reason) == ("FAILED", "invalid_input")
    assert "short.txt" in job.message
