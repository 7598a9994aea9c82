"""`regroup validate` refuses each spec of `shared/cases` at once, by field, line and column. It needs no server."""

import time
from pathlib import Path

import pytest

from regroup.api.cli.main import main
from tests.support.inputs.shared_cases import shared_cases

REFUSED = {
    "c-lr-inf.yaml": ("training.optimizer.lr", "line 3, column 85: .inf is not a finite number"),
    "j-bomb.yaml": ("e.1", "line 5, column 11: a document can have at most 20,000 values"),
    "p-run.yaml": ('env["A=B"]', "line 2, column 7: is not the name of an environment variable"),
    "q-run.yaml": ("env.A", "line 2, column 10: text must not contain the NUL character"),
    "q2-run.yaml": ('env[""]', "line 2, column 7: a variable needs a name"),
    "w-run.yaml": ("env.BIG", "line 2, column 7: must have at most 32,768 characters"),
    "y-deep.yaml": ("args.a.a", "line 4, column 259: lists and mappings can be nested at most 64 levels deep"),
    "z2-nan-run.yaml": ("args.a", "line 2, column 11: .nan is not a finite number"),
    "z2-nan.json": ("args.a", "line 1, column 27: NaN is not a finite number"),
}
"""File → the beginning of the field, and the message."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_spec_that_cannot_be_meant_is_refused_by_field(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REGROUP_SERVER", raising=False)
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path / "state"))
    field, message = REFUSED[name]
    file = shared_cases("specs") / name
    started_s = time.monotonic()
    with pytest.raises(SystemExit) as end:
        main(["validate", str(file)])
    assert time.monotonic() - started_s < 5
    printed = capsys.readouterr().err
    assert end.value.code == 3, printed
    assert printed.startswith(f"error: {field}") and f"{file}: {message}" in printed
    assert printed.count("\n") == 1


def test_no_spec_is_missing_here() -> None:
    found = {path.name for pattern in ("*.yaml", "*.json") for path in shared_cases("specs").glob(pattern)}
    assert found == set(REFUSED)
