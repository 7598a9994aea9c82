"""The command line before its first request: imports, usage errors, and discovery of the server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regroup.api.cli.common import exit_codes
from regroup.api.cli.main import VERBS, main
from regroup.api.client.discovery import address
from regroup.service.domain.error_codes import ERROR_CODES
from regroup.service.domain.errors import FieldIssue, NotFoundError, SpecError
from regroup.service.local import api_token

HEAVY = ("torch", "ray", "numpy", "fastapi", "matplotlib")


def test_startup_imports_neither_torch_nor_ray_nor_pydantic() -> None:
    code = f"""
import sys
from regroup.api.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
loaded = [name for name in {(*HEAVY, "pydantic", "httpx2", "yaml")!r} if name in sys.modules]
assert not loaded, loaded
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGROUP_")}
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=environment)


def test_a_client_command_imports_neither_torch_nor_ray(tmp_path: Path) -> None:
    code = f"""
import sys
from regroup.api.cli.main import main
try:
    main(["get", "some-job", "--server", "http://127.0.0.1:1"])
except SystemExit as end:
    assert end.code == 5, end.code
loaded = [name for name in {HEAVY!r} if name in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("error: ") and "127.0.0.1:1" in done.stderr and len(done.stderr.splitlines()) == 1


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_the_list_of_commands() -> None:
    assert [verb.__name__ for _, verbs in VERBS for verb in verbs] == [
        "serve", "down", "demo", "gateway", "submit", "run", "validate", "resize", "sizes", "suspend", "resume",
        "budget", "cancel", "release",
        "overview", "jobs", "get", "why", "watch", "logs", "ranks", "stacks", "exec",
        "curves", "diff", "steps", "events", "ledger", "changes", "story", "evidence",
        "checkpoints", "verify", "pin", "unpin", "export",
        "nodes", "clusters", "cordon", "uncordon", "drain", "undrain", "topology",
        "usage", "reliability", "settings",
        "plan", "simulate", "queue", "what_if",
        "mcp",
        "login", "logout", "console", "whoami", "apply",
    ]  # fmt: skip


def test_an_invalid_command_line_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("submit") == exit_codes.USAGE
    assert run("sumbit", "x") == exit_codes.USAGE  # codespell:ignore sumbit
    assert capsys.readouterr().out == ""


def test_an_invalid_spec_gives_one_line_per_field_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "bad.yaml"
    spec.write_text("name: Bad\nworkload: {kind: builtin, data: {train: [x]}}\ntraning: {}\n")
    assert run("validate", str(spec), "--set", "layout.dp=0") == 3
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    unknown = [line for line in lines if line.startswith("error: traning: ")]  # codespell:ignore traning
    assert [line.partition("bad.yaml: ")[2] for line in unknown] == ["line 3, column 1: unknown field"]
    assert any(line.startswith("error: name:") and "'Bad'" in line for line in lines)
    assert any(line.startswith("error: training: ") for line in lines)
    assert any(line.startswith("error: layout.dp:") for line in lines)
    assert all(line.startswith("error: ") for line in lines)


def test_an_invalid_setting_of_the_server_names_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("serve", "--host", "0.0.0.0") == exit_codes.USAGE
    err = capsys.readouterr().err
    assert err.startswith("error: --host: ") and "loopback" in err and "(got '0.0.0.0')" in err


def test_errors_have_distinct_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.report(NotFoundError("no job 'x'")) == 4
    assert exit_codes.report(SpecError([FieldIssue("a.b", "is wrong", "v" * 500)])) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: no job 'x'"
    assert second.startswith("error: a.b: is wrong (got 'vvv") and len(second) < 200
    assert {3, 4} <= set(exit_codes.MEANINGS)


def test_the_server_is_the_given_one_or_the_local_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path))
    assert address(None) is None
    (tmp_path / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:4711", "pid": 1}))
    assert address(None) == "http://127.0.0.1:4711"
    assert address("http://elsewhere") == "http://elsewhere"
    (tmp_path / "server.json").write_text("{")
    assert address(None) is None


def test_an_error_without_a_server_tells_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("REGROUP_SERVER", raising=False)
    assert run("jobs", "--json") == 5
    out, err = capsys.readouterr()
    assert out == "" and "regroup serve" in err and str(tmp_path) in err


@pytest.mark.parametrize(
    ("variables", "arguments", "line"),
    [
        ({"REGROUP_PORT": "abc"}, [], "error: REGROUP_PORT: must be an integer (got 'abc')"),
        ({}, ["--database-url", "mysql://host/name"], "error: database 'mysql' is not supported"),
        ({"REGROUP_LEASE_S": "0.5"}, [], "error: REGROUP_LEASE_S: must be > 1 (got '0.5')"),
        ({"REGROUP_TOPOLOGY_LABELS": "rack"}, [], "error: REGROUP_TOPOLOGY_LABELS: must be JSON (got 'rack')"),
        ({}, ["--ray-address", "nowhere"], "error: --ray-address 'nowhere' is not HOST:PORT"),
    ],
)
def test_an_invalid_setting_is_named_as_it_was_given_and_in_plain_words(
    variables: dict[str, str],
    arguments: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path))
    for name in api_token.VARIABLES:  # serve removes them from its environment, which is that of the tests here
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    port = [] if "REGROUP_PORT" in variables else ["--port", "0"]
    assert run("serve", *port, *arguments) == exit_codes.USAGE
    assert capsys.readouterr().err.splitlines()[-1].startswith(line)


def test_an_error_of_the_command_line_is_json_under_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("jobs", "--bogus", "--json") == exit_codes.USAGE
    error = json.loads(capsys.readouterr().err)["error"]
    assert error == {"code": "invalid_command_line", "exit_code": 2, "message": "No such option: --bogus", "fields": []}
    assert run("jobs", "--state", "runing", "--json") == exit_codes.USAGE
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "invalid_command_line"
    assert run("jobs", "--bogus") == exit_codes.USAGE
    assert "No such option: --bogus" in capsys.readouterr().err


def test_every_code_of_an_error_is_in_the_table() -> None:
    codes = {entry.exit_code for entry in ERROR_CODES} | {exit_codes.USAGE, exit_codes.INTERRUPTED, 0}
    assert codes == set(exit_codes.MEANINGS)
    invalid = [entry.code for entry in ERROR_CODES if 400 <= entry.status < 500 and entry.exit_code == 1]
    assert invalid == [], "a refused request has a code of its own"
