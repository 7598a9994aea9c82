"""The commands refuse the same files as the server does, before they need one, with file, line and column."""

import time
from pathlib import Path

import pytest

from regroup.api.cli.main import main
from regroup.service.documents.document import MAX_BYTES

NOBODY = "http://127.0.0.1:9"
"""No server listens there: a command that reaches it ends with another code."""
HEAD = (
    "name: odd\nworkload: {kind: function, function: 'fn:f'}\ntraining: {global_batch: 4, micro_batch: 2, steps: 4}\n"
)
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = {
    "nan": (HEAD + "args: {a: .nan, b: .inf}\n", "args.a", "line 4, column 11: .nan is not a finite number"),
    "nul": (HEAD + 'env: {A: "x\\0y"}\n', "env.A", "line 4, column 10: text must not contain the NUL character"),
    "bomb": (BOMB + HEAD, "", "a document can have at most 20,000 values"),
    "deep": (HEAD + "args: " + "{a: " * 3000 + "1" + "}" * 3000, "args.a", "nested at most 64 levels deep"),
    "twice": (HEAD + "name: other\n", "name", "line 4, column 1: the key appears twice"),
    "octal": (HEAD + "args: {mode: 0755}\n", "args.mode", "line 4, column 14: 0755 is ambiguous"),
    "no": (HEAD + "labels: {country: no}\n", "labels.country", "line 4, column 19: no is ambiguous"),
    "tag": (HEAD + "args: !!python/name:os.system\n", "args", "tags such as !!python/name:os.system"),
    "tab": (HEAD + "env:\n\tA: b\n", "", "line 5, column 1: a tab indents this line"),
    "two": (HEAD + "---\nname: b\n", "", "line 4, column 1: a second document begins here"),
    "huge": (HEAD + "args: {a: 1" + "0" * 309 + "}\n", "args.a", "at most 64 characters, not 310"),
    "large": (HEAD + "#" * MAX_BYTES, "", "at most 1,048,576 bytes"),
}
"""File content → path and message of the refusal."""
SCHEMA = {
    "name": (
        HEAD + "env: {'A=B': '1'}\n",
        'env["A=B"]',
        "line 4, column 7: is not the name of an environment variable",
    ),
    "empty": (HEAD + "env: {'': x}\n", 'env[""]', "line 4, column 7: a variable needs a name"),
    "140 kB": (HEAD + f"env: {{BIG: {'x' * 140_000}}}\n", "env.BIG", "line 4, column 7: must have at most 32,768"),
    "lr": (HEAD + "max_duration: 0\n", "max_duration", "line 4, column 1: must be ≥ 0.001"),
    "wide": (
        HEAD + "layout:\n  dp: {min: 1, target: 1, max: 2000000}\n",
        "layout.dp.max",
        "line 5, column 27: must be",
    ),
    "unknown": (HEAD + "laytou: 1\n", "laytou", "line 4, column 1: unknown field"),
    "missing": ("name: odd\n", "workload", "is required"),
}
"""The same for files that are read, but are not a valid spec."""


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REGROUP_SERVER", raising=False)
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path / "state"))


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("command", ["validate", "submit", "run"])
def test_a_file_is_refused_before_a_server_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, case: str
) -> None:
    content, path, message = REFUSED[case]
    (file := tmp_path / "spec.yaml").write_text(content)
    started_s = time.monotonic()
    code, printed = ended(capsys, command, str(file), "--server", NOBODY)
    assert code == 3, printed
    assert f"error: {path}" in printed and message in printed and f"{file}: " in printed
    assert printed.count("\n") == 1 and "Traceback" not in printed
    assert time.monotonic() - started_s < 5


@pytest.mark.parametrize("case", SCHEMA)
def test_an_invalid_field_is_named_with_its_place_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    content, path, message = SCHEMA[case]
    (file := tmp_path / "spec.yaml").write_text(content)
    code, printed = ended(capsys, "validate", str(file))
    assert code == 3 and message in printed
    assert f"error: {path}: " in printed
    assert case == "missing" or f"{file}: line " in printed


def test_json_files_are_read_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "spec.json").write_text('{"name": "odd",\n "args": {"a": NaN}}')
    code, printed = ended(capsys, "validate", str(file))
    assert code == 3 and f"args.a: {file}: line 2, column 16: NaN is not a finite number" in printed
    file.write_text('{"name": "odd",\n "max_duration": 0}')
    code, printed = ended(capsys, "validate", str(file))
    assert code == 3 and f"max_duration: {file}: line 2, column 2: must be" in printed


def test_a_field_of_the_command_line_has_no_place_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "spec.yaml").write_text(HEAD + "layout: {dp: 1}\n")
    code, printed = ended(capsys, "validate", str(file), "--set", "layout.dp=0")
    assert code == 3 and "error: layout.dp: must be ≥ 1 (got 0)" in printed
    code, printed = ended(capsys, "validate", str(file), "--set", "args.on=yes")
    assert code == 3 and "yes is ambiguous" in printed
    code, printed = ended(capsys, "validate", str(file), "--set", "args.on=off")
    assert code == 3 and "off is ambiguous" in printed
    code, printed = ended(capsys, "validate", str(file), "--set", "args.a=.nan")
    assert code == 3 and "args.a: line 1, column 1: .nan is not a finite number" in printed


def test_a_file_without_an_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = ended(capsys, "validate", "/dev/zero")
    assert code == 3 and "at most 1,048,576 bytes" in printed


@pytest.mark.parametrize("kind", ["script", "ray_train"])
def test_a_program_with_its_own_state_is_checked_only_on_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    file = tmp_path / "spec.yaml"
    head = f"name: odd\nworkload: {{kind: {kind}, entrypoint: /train.py}}\nlayout: {{dp: 2}}\n"
    file.write_text(f"{head}recovery: {{verify: restart}}\n")
    code, printed = ended(capsys, "validate", str(file))
    assert code == 3 and "use verify: restart_only, or `regroup run --check`" in printed
    file.write_text(f"{head}recovery: {{verify: restart_only}}\n")
    with pytest.raises(SystemExit) as end:
        main(["validate", str(file)])
    assert not end.value.code
