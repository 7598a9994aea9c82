"""A new user's first commands, before a server runs, in terminals of two widths. Real processes, real terminals."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.api.cli.main import VERBS
from tests.support.machines.terminal import Terminal, squeeze

REGROUP = [sys.executable, "-m", "regroup.api.cli"]
WIDTHS = pytest.mark.parametrize("columns", [80, 200])
ENDED_PID = 2**22 + 1  # larger than any pid of Linux


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory without a server."""
    monkeypatch.delenv("REGROUP_SERVER", raising=False)
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def dead_server(state: Path) -> str:
    """Address of a server that has ended, as its state directory still names it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    record = {"url": url, "dashboard_url": None, "pid": ENDED_PID, "started": 1}
    (state / "server.json").write_text(json.dumps(record))
    return url


@pytest.fixture
def silent_server(state: Path) -> Iterator[str]:
    """Address that accepts connections and never answers, like a server that is stopped."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def typed(columns: int, *arguments: str, code: int, **environment: str) -> str:
    """Type a command; return what the terminal shows at its end. Nothing may be cut."""
    with Terminal([*REGROUP, *arguments], columns=columns, environment=environment) as terminal:
        assert terminal.end() == code, terminal.screen.text
        return terminal.screen.text


@WIDTHS
@pytest.mark.parametrize("question", [["--help"], ["help"], []], ids=str)
def test_help_lists_every_command_with_a_whole_sentence(columns: int, question: list[str], state: Path) -> None:
    shown = typed(columns, *question, code=2 if not question else 0)
    assert "..." not in shown.replace("[ARGS]...", "") and "…" not in shown
    groups = [heading for heading, _ in VERBS]
    assert re.findall(r"^([A-Z][a-z ]+):$", shown, re.MULTILINE)[1 : len(groups) + 1] == groups
    for _, verbs in VERBS:
        for verb in verbs:
            name = verb.__name__.replace("_", "-")
            assert re.search(rf"^  {name} +[A-Z]", shown, re.MULTILINE), name
    assert squeeze("and the jobs that run there.") in squeeze(shown), "the end of a long sentence"


@WIDTHS
@pytest.mark.parametrize("group", ["projects", "chaos", "probe"])
def test_help_of_a_group_cuts_nothing(columns: int, group: str, state: Path) -> None:
    shown = typed(columns, group, "--help", code=0)
    assert "..." not in shown.replace("[ARGS]...", "") and "Commands:" in shown


@WIDTHS
def test_without_a_server_one_sentence_states_how_to_start_one(columns: int, state: Path) -> None:
    shown = typed(columns, "jobs", code=5)
    assert "regroup serve" in shown and shown.startswith("error: ") and "Traceback" not in shown


def test_a_server_with_an_invalid_topology_file_prints_one_line(state: Path) -> None:
    (state / "topology.conf").write_text("SwitchName=s0 Nodes=a, b\n")
    environment = {**os.environ, "REGROUP_TOPOLOGY_FILE": str(state / "topology.conf")}
    done = subprocess.run(
        [*REGROUP, "serve", "--port", "0"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: topology file {state}/topology.conf, line 1: 'b' is not a list of KEY=VALUE")
    assert line.endswith("; correct the file, or unset REGROUP_TOPOLOGY_FILE")


@WIDTHS
@pytest.mark.parametrize("command", [["watch", "mine"], ["logs", "-f", "mine"]], ids=str)
def test_a_dead_server_is_reported_within_seconds_and_tried_again(
    columns: int, command: list[str], dead_server: str
) -> None:
    with Terminal([*REGROUP, *command], columns=columns) as terminal:
        terminal.wait_for("does not answer (Connection refused); trying again for", 20)
        terminal.interrupt()
        assert terminal.end() == 130
        assert squeeze("Jobs continue without it") in squeeze(terminal.screen.text)
        assert "interrupted" in terminal.screen.text and "Traceback" not in terminal.screen.text


@WIDTHS
def test_a_silent_server_is_reported_within_seconds(columns: int, silent_server: str) -> None:
    with Terminal([*REGROUP, "watch", "mine", "--server", silent_server], columns=columns) as terminal:
        terminal.wait_for("has not answered for", 20)


def test_a_command_that_does_not_follow_ends_soon_and_names_the_ended_process(dead_server: str) -> None:
    began_s = time.monotonic()
    shown = re.sub(r"\s+", " ", typed(200, "get", "mine", code=5))
    assert time.monotonic() - began_s < 20
    assert f"no response from {dead_server}: Connection refused; its process {ENDED_PID} has ended" in shown
    assert "`regroup serve` starts the server again" in shown


@WIDTHS
def test_a_program_that_does_not_exist_is_refused_before_it_is_submitted(
    columns: int, dead_server: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    shown = squeeze(typed(columns, "run", str(tmp_path / "tran.py"), code=2))
    assert squeeze(f"no file {tmp_path}/tran.py on this machine (did you mean train.py?)") in shown
    folder = squeeze(typed(columns, "run", str(tmp_path), code=2))
    assert squeeze("is a folder without __main__.py") in folder


def test_an_entrypoint_that_the_folder_lacks_is_refused_before_it_is_sent(dead_server: str, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    spec = tmp_path / "spec.yaml"
    spec.write_text("name: a\nworkload: {kind: script, entrypoint: train.py}\ncode: {working_dir: code}\n")
    for command in ("run", "submit", "validate"):
        shown = re.sub(r"\s+", " ", typed(200, command, str(spec), code=3))
        assert f"workload.entrypoint: {spec}: line 2, column " in shown
        assert "is not in the folder that is sent to the nodes" in shown


def test_a_misspelt_variable_is_named_with_the_nearest_one(state: Path) -> None:
    shown = typed(200, "jobs", code=5, REGROUP_STATE_DIRECTORY="/x", REGROUP_PROT="1", REGROUP_PORT="1")
    assert "nothing reads the environment variable REGROUP_PROT: did you mean REGROUP_PORT?" in shown
    assert "REGROUP_STATE_DIRECTORY: did you mean REGROUP_STATE_DIR?" in shown
    assert shown.count("warning: ") == 2


@pytest.mark.parametrize("server", ["ftp://host", "http://", "host:port", "a b"])
def test_an_address_that_is_none_is_a_usage_error(server: str, state: Path) -> None:
    assert "--server or REGROUP_SERVER" in typed(200, "jobs", "--server", server, code=2)


def test_a_misspelt_state_lists_the_states(state: Path) -> None:
    shown = typed(200, "jobs", "--state", "runing", code=2)
    assert "'runing' is not a state" in shown and "QUEUED, PLACING" in shown


def completed(*words: str) -> list[str]:
    """Return what the shell offers after these words, the last of which is incomplete."""
    environment = {**os.environ, "_REGROUP_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["regroup", *words])}
    code = "import sys; sys.argv[0] = 'regroup'; from regroup.api.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, "COMP_CWORD": str(len(words))}, text=True, timeout=60,
        capture_output=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


def test_the_shell_completes_verbs_options_and_states(state: Path) -> None:
    jobs = ["submit", "sizes", "suspend", "stacks", "steps", "story"]
    assert completed("s") == ["serve", *jobs, "settings", "simulate", "sessions", "secret"]
    assert completed("jobs", "--st") == ["--state"]
    assert completed("jobs", "--state", "run") == ["running"]


def test_the_completion_of_a_job_never_hangs_or_fails(silent_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGROUP_SERVER", silent_server)
    began_s = time.monotonic()
    assert completed("watch", "m") == []
    assert time.monotonic() - began_s < 15, "the patience of one second, and the start of Python"
