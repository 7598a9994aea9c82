"""The author of a job in `regroup jobs` and `regroup get`, and the list of changes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.inputs.held_devices import submit
from tests.support.servers.app_server import AppServer

Cli = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def submitted(server: AppServer) -> None:
    async def run() -> None:
        for job_id, user in (("job_one", "ana"), ("job_two", "bob")):
            await submit(server.store, job_id, user, project="vision")

    server.do(run())


def test_jobs_of_one_author_are_listed(cli: Cli) -> None:
    head, *rows = cli("jobs", "--author", "ana").out.splitlines()
    assert "AUTHOR" in head.split() and [(row.split()[0], "ana" in row.split()) for row in rows] == [("job_one", True)]
    assert len(cli("jobs").out.splitlines()) == 3
    assert len(cli("jobs", "--author", "me").out.splitlines()) == 1


def test_jobs_are_listed_by_ids_and_labels(cli: Cli) -> None:
    _, row = cli("jobs", "--id", "job_two", "--id", "job_three").out.splitlines()
    assert row.split()[0] == "job_two"
    assert len(cli("jobs", "--id", "job_two", "--label", "team=nlp").out.splitlines()) == 1
    refused = cli("jobs", "--label", "team")
    assert refused.code != 0 and "must be KEY=VALUE" in refused.err and "'team'" in refused.err


def test_a_job_shows_its_author(cli: Cli) -> None:
    shown = dict(line.split(maxsplit=1) for line in cli("get", "job_two").out.splitlines() if len(line.split()) > 1)
    assert shown["author"] == "bob"


def test_changes_of_all_jobs_are_listed(cli: Cli) -> None:
    found = [line.split() for line in cli("changes").out.splitlines()]
    assert [(row[2], row[3], *row[4:]) for row in found] == [
        ("job", "vision/job_one", "state", "QUEUED"), ("job", "vision/job_two", "state", "QUEUED"),
    ]  # fmt: skip
    last = json.loads(cli("changes", "--after", found[0][0], "--json").out)
    assert (last["job"], last["number"]) == ("job_two", int(found[1][0]))
    assert cli("changes", "--after", found[1][0]).out == ""
