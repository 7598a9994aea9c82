"""The command budget, and the budgets of projects on the command line."""

from collections.abc import Callable
from typing import Any

from tests.support.servers.app_server import AppServer

Cli = Callable[..., Any]


def test_the_budget_of_a_job_is_set(cli: Cli, job: str) -> None:
    done = cli("budget", job, "--device-hours", "12.5")
    assert done.code == 0 and "(QUEUED) has a budget of 12.5 device-hours" in done.out, done.err
    assert cli("budget", job, "--device-hours", "20", "--json").json["intents"]["budget"] == {"device_hours": 20.0}
    refused = cli("budget", job)
    assert refused.code != 0 and "needs either device_hours or cost" in refused.err
    refused = cli("budget", job, "--cost", "5")
    assert refused.code != 0 and "this server has no price table" in refused.err


def test_a_suspended_job_may_queue_again(cli: Cli, server: AppServer, job: str) -> None:
    cli("suspend", job)
    assert "it queues again if this is enough" in cli("budget", job, "--device-hours", "1").out


def test_the_budget_of_a_project_is_set_and_removed(cli: Cli) -> None:
    assert cli("projects", "set", "vision", "budget.device_hours=1000", "budget.since=2026-11-01T00:00Z").code == 0
    shown = cli("projects", "get", "vision", "--json").json
    assert shown["budget"] == {"device_hours": 1000.0, "cost": None, "since": 1793491200.0}
    assert shown["budget_used"] == 0.0
    assert cli("projects", "set", "vision", "budget=null").code == 0
    assert cli("projects", "get", "vision", "--json").json["budget"] is None
