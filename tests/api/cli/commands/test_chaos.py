"""`regroup chaos` lists its scenarios, and rejects invalid requests before it starts anything."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.service.chaos.scenarios import ELSEWHERE, SCENARIOS
from regroup.service.store.rows.verdicts import Verdict
from tests.support.inputs.verdicts import verdict
from tests.support.servers.app_server import AppServer


def test_the_list_has_all_scenarios_and_the_reasons_for_missing_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["chaos", "list"])
    shown = capsys.readouterr().out
    assert done.value.code == 0
    assert all(f"  {each.name}  " in shown and each.what in shown for each in SCENARIOS)
    assert all(each.why in shown for each in ELSEWHERE)


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["chaos", "list", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["scenarios"]] == [each.name for each in SCENARIOS]
    assert {each["number"] for each in found["elsewhere"]} == {each.number for each in ELSEWHERE}


def test_an_unknown_detector_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["chaos", "detectors", "smell"])
    assert done.value.code != 0
    shown = capsys.readouterr().err
    assert "smell" in shown and "heartbeat" in shown


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["run", "meteor"], "no scenario has this name"),
        (["run", "rank-killed", "meteor"], "meteor"),
        (["run"], "needs at least one name, or --all"),
        (["soak", "--mix", "meteor=1"], "unknown cause of a soak 'meteor'"),
        (["soak", "--mix", "hang"], "CAUSE=NUMBER"),
    ],
)
def test_invalid_requests_are_rejected(capsys: pytest.CaptureFixture[str], typed: list[str], text: str) -> None:
    with pytest.raises(SystemExit) as done:
        main(["chaos", *typed])
    assert done.value.code == 3
    assert text in capsys.readouterr().err


def test_recorded_verdicts_are_a_table_and_json(cli: Callable[..., Any], server: AppServer) -> None:
    async def record() -> None:
        await server.store.verdicts.record(Verdict(**verdict("hang", number="4")), now=1.0)
        failed = verdict(passed=False, invariants={"I1": True, "I5": False}, disabled_detectors=["hang"], detect_s=None)
        await server.store.verdicts.record(Verdict(**failed), now=2.0)

    server.do(record())
    heads, *rows = [line.split() for line in cli("chaos", "results").out.splitlines()]
    assert heads[-3:] == ["LOST", "VERSION", "BY"]
    assert [row[-11:] for row in rows] == [
        ["rank-killed", "FAILED", "I5,", "without", "hang", "-", "3.10", "s", "1", "0.1.0", "controller"],
        rows[1][-11:],
    ]
    assert rows[1][-9:] == ["hang", "passed", "0.20", "s", "3.10", "s", "1", "0.1.0", "controller"]
    (found,) = cli("chaos", "results", "--scenario", "hang", "--json").json
    assert (found["verdict"]["number"], found["recorded_by"]) == ("4", "controller")
    assert len(cli("chaos", "results", "--limit", "1").out.splitlines()) == 2
