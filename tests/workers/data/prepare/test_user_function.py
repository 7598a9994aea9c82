"""A data function in its own process: its input, its output, and errors for anything else."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.datasets import ImageSamples, TokenSamples
from regroup.workers.data.prepare.user_function import FunctionFailed
from regroup.workers.data.record_files import RecordFiles
from regroup.workers.data.sampler import IGNORED
from tests.support.inputs.data_inputs import prepared, recipe

ROWS = [{"x": [number, number + 0.5], "label": number % 3, "name": f"n{number}"} for number in range(20)]


def run(tmp_path: Path, code: str, rows: list[Any] = ROWS, **parts: Any) -> dict[str, Any]:
    """Prepare rows with the function `mine:make` of some code."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "mine.py").write_text(code)
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    agent = parts.pop("agent", {})
    data = recipe(str(tmp_path / "in.jsonl"), "jsonl", function="mine:make", **parts)
    return prepared(data, tmp_path / "out", code=str(folder), **agent)


@pytest.mark.parametrize(
    ("batch_format", "expression"),
    [
        ("numpy", "batch['x'], batch['label']"),
        ("pandas", "batch['x'].tolist(), batch['label'].to_numpy()"),
        ("pyarrow", "batch['x'].to_pylist(), batch['label'].to_numpy()"),
    ],
)
def test_rows_become_records_of_several_fields(tmp_path: Path, batch_format: str, expression: str) -> None:
    code = f"def make(batch):\n    x, label = {expression}\n    return {{'x': x, 'label': label}}\n"
    meta = run(tmp_path, code, batch_format=batch_format)
    records = RecordFiles(tmp_path / "out" / meta["fingerprint"], "train")
    assert records.fields == {"label": (), "x": (2,)}
    assert len(records) == len(ROWS)
    found = records[[7, 0]]
    assert found["x"].tolist() == [[7, 7.5], [0, 0.5]] and found["label"].tolist() == [1, 0]


def test_a_batch_may_make_more_or_fewer_records_than_rows(tmp_path: Path) -> None:
    meta = run(tmp_path, "def make(batch):\n    return {'a': [v for v in batch['label'] if v for _ in range(3)]}\n")
    assert meta["splits"]["train"]["records"] == 3 * sum(bool(row["label"]) for row in ROWS)


def test_records_for_the_trainer_have_its_tokens(tmp_path: Path) -> None:
    code = (
        "import numpy\ndef make(batch):\n    n = len(batch['label'])\n    return {'tokens': numpy.full((n, 17), 5)}\n"
    )
    meta = run(tmp_path, code, reads="tokens")
    assert meta["vocab_size"] == 6
    tokens, labels = TokenSamples(RecordFiles(tmp_path / "out" / meta["fingerprint"], "train"), 16).rows([3])
    assert tokens.tolist() == labels.tolist() == [[5] * 16]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return {'x': [[1, 2], [1, 2], [1]] + [[1, 2]] * 5}", r"field 'x' has shape \(1,\).*in\.jsonl', line 3\)"),
        ("return {'name': batch['name']}", r"field 'name' is str.*integers and floats.*in\.jsonl', line 1\)"),
        ("return {'a': batch['label'], 'b': batch['label'][1:]}", "unequal numbers of records: a: 8, b: 7.*line 1 to"),
        ("return {'a': [[1] * (2 + (batch['label'][0] == 2))] * 8}", "but earlier records have a <i8"),
        ("return 3", "returned int, not a dict of arrays"),
        ("return {'a': 3}", "field 'a' is int, not an array"),
        ("return {}", "unequal numbers of records: no fields"),
    ],
)
def test_an_invalid_record_is_refused_with_file_and_row(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        run(tmp_path, f"def make(batch):\n    {body}\n")
    assert not list((tmp_path / "out").rglob("*.bin"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return {'x': [[1] * 16] * 8}", r"needs the integer field 'tokens'; the records have \['x'\]"),
        ("return {'tokens': [[1] * 16] * 8}", r"shape \(16,\), but training\.sequence 16 requires \(17,\)"),
        ("return {'tokens': [[1.0] * 17] * 8}", "needs the integer field 'tokens'"),
        ("return {'tokens': [[1] * 17] * 7 + [[-1] * 17]}", "negative in record 7"),
    ],
)
def test_what_the_trainer_cannot_read_is_refused(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        run(tmp_path, f"def make(batch):\n    {body}\n", reads="tokens")


def test_a_function_that_raises_is_shown_alone(tmp_path: Path) -> None:
    with pytest.raises(FunctionFailed, match=r"mine:make failed at .*in\.jsonl', line 1 to line 8: ValueError: b") as e:
        run(tmp_path, "def make(batch):\n    raise ValueError('bad')\n")
    files = [line.split('"')[1] for line in e.value.traceback.splitlines() if line.startswith("  File")]
    assert [Path(file).name for file in files] == ["mine.py"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_module", "could not be loaded: ModuleNotFoundError.*no_such_module"),
        ("made = 3", "module mine has no function 'make'"),
        ("import os\ndef make(batch):\n    os._exit(3)\n", "failed at .*line 1.*: its process ended with code 3"),
    ],
)
def test_a_function_that_cannot_run_is_reported(tmp_path: Path, code: str, words: str) -> None:
    with pytest.raises(FunctionFailed, match=words):
        run(tmp_path, code)


def test_a_function_has_the_jobs_variables_and_none_of_the_platforms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "platform")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "platform")
    monkeypatch.setenv("ON_THE_NODE", "a secret of the job")
    code = (
        "import os, pathlib\n"
        "def make(batch):\n"
        f"    pathlib.Path({str(tmp_path / 'seen')!r}).write_text(repr(dict(os.environ)))\n"
        "    return {'a': batch['label']}\n"
    )
    run(tmp_path, code, agent={"env": {"MINE": "1"}, "secrets": {"TOKEN": {"from_env": "ON_THE_NODE"}}})
    seen = eval((tmp_path / "seen").read_text())
    assert (seen["MINE"], seen["TOKEN"]) == ("1", "a secret of the job")
    assert not [name for name in seen if name.startswith(("AWS_", "RAY_"))]


def test_nothing_runs_on_behind_a_function(tmp_path: Path, no_leaks: None) -> None:
    code = (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(99,)).start()\n"
        "def make(batch):\n"
        "    raise ValueError\n"
    )
    with pytest.raises(FunctionFailed):
        run(tmp_path, code)
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_ours(pid, str(tmp_path))]


def _is_ours(pid: str, folder: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(folder)
    except OSError:
        return False


def test_images_for_the_trainer_have_a_shape_and_a_class(tmp_path: Path) -> None:
    code = (
        "import numpy\ndef make(batch):\n    n = len(batch['label'])\n"
        "    return {'image': numpy.ones((n, 1, 4, 4), numpy.float32), 'label': numpy.arange(n)}\n"
    )
    meta = run(tmp_path, code, reads="images")
    assert meta["vocab_size"] == 8, "rows of a batch"
    samples = ImageSamples(RecordFiles(tmp_path / "out" / meta["fingerprint"], "train"))
    images, labels = samples.rows([3, 0])
    assert (images.shape, images.dtype, labels.tolist()) == ((2, 1, 4, 4), torch.float32, [3, 0])
    blank, ignored = samples.blank(2)
    assert blank.shape == images.shape and ignored.tolist() == [IGNORED] * 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return {'image': numpy.ones((n, 4, 4)), 'label': numpy.arange(n)}", r"needs 'image' of shape \(channels"),
        ("return {'image': numpy.ones((n, 1, 4, 4)), 'label': numpy.ones(n)}", "the records have image float64"),
        ("return {'image': numpy.ones((n, 1, 4, 4))}", "'label', one integer"),
        ("return {'image': numpy.ones((n, 1, 4, 4)), 'label': numpy.arange(n) - 2}", "negative in record 0"),
    ],
)
def test_an_invalid_image_is_refused(tmp_path: Path, body: str, words: str) -> None:
    code = f"import numpy\ndef make(batch):\n    n = len(batch['label'])\n    {body}\n"
    with pytest.raises(DataError, match=words):
        run(tmp_path, code, reads="images")
