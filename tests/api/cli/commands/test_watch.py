"""The command logs with the output of all ranks, typed against a server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.inputs.job_story import Story
from tests.support.servers.app_server import AppServer

Cli = Callable[..., Any]
TEXTS = {(0, "stdout"): "step 1\nstep 2\n", (1, "stdout"): "one", (1, "stderr"): "warning: slow\n"}


@pytest.fixture
def job(server: AppServer, cli: Cli, spec: Path) -> str:
    """A job that has ended, with output of two of its four ranks."""
    found = cli("submit", spec, "--json").json["id"]
    server.start_job(found)
    for (rank, stream), text in TEXTS.items():
        server.cluster.logs[found, 1, rank, stream] = text
    ended = Story.state("SUCCEEDED", "completed")
    server.report(found, [Story.generation(1), Story.state("RUNNING", "first_step"), ended])
    return found


def test_the_output_of_all_ranks_has_their_numbers(cli: Cli, job: str) -> None:
    done = cli("logs", job, "--all-ranks")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert sorted(lines) == sorted(["   0   step 1", "   0   step 2", "   1   one", "   1 E warning: slow"])
    assert lines.index("   0   step 1") < lines.index("   0   step 2"), "lines of one rank keep their order"


def test_one_stream_of_all_ranks(cli: Cli, job: str) -> None:
    assert cli("logs", job, "--all-ranks", "--stream", "stderr").out == "   1 E warning: slow\n"


def test_the_pieces_are_json_lines(cli: Cli, job: str) -> None:
    pieces = [json.loads(line) for line in cli("logs", job, "--all-ranks", "--json").out.splitlines()]
    found: dict[tuple[int, str], str] = {}
    for piece in pieces:
        key = (piece["rank"], piece["stream"])
        found[key] = found.get(key, "") + piece["text"]
    assert found == TEXTS


def test_a_job_that_does_not_exist_is_an_error(cli: Cli) -> None:
    done = cli("logs", "job_unknown", "--all-ranks")
    assert done.code == 4 and "job_unknown" in done.err
