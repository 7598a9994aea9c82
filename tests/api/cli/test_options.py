"""Options that all commands share, completion, and exit codes, with the real app."""

import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
import yaml

from regroup.api.cli.common import completion, exit_codes
from regroup.api.cli.main import app
from regroup.service.ports.cluster import Node


@pytest.fixture
def elsewhere(cli: Callable[..., Any], spec: Path) -> tuple[str, str]:
    """Id and name of a job in another project."""
    job = cli("submit", spec, "--set", "project=vision", "--json").json
    return job["id"], job["name"]


IN_A_PROJECT = [
    "get",
    "why",
    "watch",
    "logs",
    "curves",
    "steps",
    "events",
    "checkpoints",
    "evidence",
    "story",
    "stacks",
    "cancel",
]


@pytest.mark.parametrize("verb", IN_A_PROJECT)
def test_a_name_is_found_in_its_project(cli, elsewhere, verb: str) -> None:
    job_id, name = elsewhere
    assert cli("cancel", job_id).code == 0  # so that `watch` and `logs` end
    assert cli(verb, name).code == 4 and f"project 'default', name '{name}'" in cli(verb, name).err
    found = cli(verb, name, "--project", "vision")
    assert "no job with id" not in found.err, found.err


def test_every_command_with_a_job_has_the_option() -> None:
    commands: Any = typer.main.get_command(app)
    for verb, command in commands.commands.items():
        parameters = {parameter.name: parameter for parameter in command.params}
        if "job" in parameters:
            assert "project" in parameters, verb
            assert parameters["job"]._custom_shell_complete, verb


def test_states_are_accepted_in_lower_case(cli, job) -> None:
    assert job in cli("jobs", "--state", "queued").out
    assert "no stderr of rank 0" in cli("logs", job, "--stream", "STDERR").err


def test_the_address_of_the_server_needs_no_scheme(cli, server, job) -> None:
    assert cli("get", job, "--server", server.url.removeprefix("http://")).code == 0


def test_the_log_of_a_silent_rank_is_explained(cli, server, story, job, spec) -> None:
    server.start_job(job)
    server.report(job, [*story.until_the_kill[1:5], story.state("SUCCEEDED", "completed")])
    server.cluster.logs[job, 1, 0, "stdout"] = ""
    done = cli("logs", job)
    assert (done.code, done.out) == (0, "")
    assert "rank 0 of gpt-" in done.err and "printed nothing to stdout (SUCCEEDED)" in done.err
    assert f"The built-in trainer prints nothing: `regroup watch {job}` shows its progress" in done.err
    followed = cli("logs", "-f", job)
    assert followed.out == "" and followed.err == done.err
    assert cli("logs", job, "--json").err == done.err


def test_names_of_jobs_nodes_and_projects_are_completed(cli, server, job, spec) -> None:
    name = yaml.safe_load(spec.read_text())["name"]
    server.cluster.add_node(Node("2" * 40, "local-complete", "10.0.0.2", cpus=4, free_cpus=4))
    context: Any = SimpleNamespace(params={"server": server.url})
    assert (name, "QUEUED") in completion.complete_job(context, name[:4])
    assert completion.complete_job(context, job) == [(job, "QUEUED")]
    assert completion.complete_job(context, "no-such") == []
    assert ("local-complete", "open") in completion.complete_node(context, "local-c")
    assert any(found == "default" for found, _ in completion.complete_project(context, "def"))
    nowhere: Any = SimpleNamespace(params={"server": "http://127.0.0.1:1"})
    assert completion.complete_job(nowhere, "") == completion.complete_node(nowhere, "") == []


CODES: list[tuple[int, list[str]]] = [
    (0, ["jobs"]),
    (1, ["watch", "CANCELLED"]),
    (2, ["jobs", "--bogus"]),
    (2, ["jobs", "--state", "runing"]),
    (2, ["jobs", "--server", "ftp://x"]),
    (2, ["run", "/no/such/file.py"]),
    (3, ["validate", "SPEC", "--set", "training.stepz=1"]),
    (3, ["submit", "SPEC", "--set", "layout.dp=9"]),
    (4, ["get", "nothing"]),
    (4, ["evidence", "QUEUED"]),
    (4, ["cordon", "no-such-node"]),
    (5, ["get", "x", "--server", "127.0.0.1:1"]),
    (6, ["release", "QUEUED"]),
    (6, ["submit", "TWICE"]),
    (7, ["submit", "SPEC", "--set", "faults=[{at: {rank: 0, step: 1}}]"]),
]
"""Exit code → commands that must end with it. Words in capitals stand for a job or a spec of the test."""


@pytest.mark.parametrize(("code", "command"), CODES, ids=str)
def test_each_exit_code_means_what_the_table_states(cli, spec, tmp_path, code: int, command: list[str]) -> None:
    def submitted(name: str) -> tuple[Path, str]:
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(spec.read_text()), "name": f"{name}-{uuid.uuid4().hex}"}))
        return path, cli("submit", path).out.strip()

    meant: dict[str, object] = {"SPEC": spec}
    if "QUEUED" in command:
        meant["QUEUED"] = submitted("queued")[1]
    if "TWICE" in command:
        meant["TWICE"] = submitted("twice")[0]
    if "CANCELLED" in command:
        meant["CANCELLED"] = submitted("cancelled")[1]
        cli("cancel", meant["CANCELLED"])
    assert cli(*[meant.get(word, word) for word in command]).code == code
    assert code in exit_codes.MEANINGS
