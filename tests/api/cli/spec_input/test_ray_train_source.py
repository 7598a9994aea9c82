"""Job specs from the source of a Ray Train program, and the flags for values that it does not declare."""

from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.api.cli.spec_input.ray_train_source import (
    UNLIMITED_FAILURES,
    DeclaredRun,
    parse_declared_run,
    ray_train_spec,
)
from regroup.api.cli.spec_input.torchrun_args import Flags
from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec

HOME = PurePosixPath("/home/me")


def spec_of(declared: DeclaredRun, overridden: Collection[str] = (), **flags: Any) -> dict[str, Any]:
    spec = ray_train_spec(["train.py", "--lr", "1"], declared, Flags(**flags), overridden, cwd=HOME, name="x")
    parse_spec(spec)
    return spec


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        ("pass", DeclaredRun()),
        ("ScalingConfig(num_workers=4)", DeclaredRun((4, 4))),
        ("ray.train.ScalingConfig(num_workers=(2, 8), use_gpu=True)", DeclaredRun((2, 8), True)),
        (
            "N = 4\nrun(ScalingConfig(num_workers=(2, N)), FailureConfig(max_failures=3))",
            DeclaredRun((2, 4), max_failures=3),
        ),
        ("def main():\n    FailureConfig(-1)", DeclaredRun(max_failures=-1)),
        ("N = 4\nN = 5\nScalingConfig(num_workers=N)", DeclaredRun(None)),
        ("def f(N=1): pass\nScalingConfig(num_workers=N)", DeclaredRun(None)),
        ("ScalingConfig(num_workers=args.workers, use_gpu=torch.cuda.is_available())", DeclaredRun(None, None)),
        ("ScalingConfig(**options)", DeclaredRun(None, None)),
        ("ScalingConfig(num_workers=1)\nScalingConfig(num_workers=2)", DeclaredRun(None)),
        ("ScalingConfig(num_workers=2, resources_per_worker={'CPU': 4})", DeclaredRun((2, 2), resources={"CPU": 4})),
        ("FailureConfig(max_failures=retries)", DeclaredRun(max_failures=None)),
    ],
)
def test_literal_values_are_parsed_and_others_are_not_guessed(source: str, declared: DeclaredRun) -> None:
    assert parse_declared_run(source) == declared


def test_a_source_that_is_not_python_is_rejected() -> None:
    with pytest.raises(SpecError, match="is not valid Python"):
        parse_declared_run("def (:")


def test_ranges_of_workers_become_the_ladder() -> None:
    spec = spec_of(DeclaredRun((2, 8), True, {"CPU": 4, "memory": 2e9}, 3))
    assert spec["workload"] == {
        "kind": "ray_train", "entrypoint": "/home/me/train.py", "args": ["--lr", "1"], "cwd": "/home/me",
    }  # fmt: skip
    assert spec["layout"] == {"dp": {"min": 2, "target": 8, "max": 8}}
    assert spec["resources"] == {"device": "cuda", "cpus": 4, "memory": 2_000_000_000}
    assert spec["recovery"] == {"budgets": {"user_error": 3}}
    assert spec_of(DeclaredRun(max_failures=-1))["recovery"] == {"budgets": {"user_error": UNLIMITED_FAILURES}}


def test_flags_and_settings_override_the_source() -> None:
    unread = DeclaredRun(None, None, None, None)
    spec = spec_of(unread, ("layout.dp", "resources.device", "recovery"), nproc_per_node="2", max_restarts=5)
    assert spec["layout"] == {"dp": {"min": 2, "target": 2, "max": 2}}
    assert "resources" not in spec
    assert spec["recovery"] == {"budgets": {"user_error": 5}}
    assert spec_of(DeclaredRun((4, 4), max_failures=1), ("layout.dp.min",), max_restarts=7)["layout"]["dp"]["max"] == 1


@pytest.mark.parametrize(
    ("declared", "declared_value"),
    [(DeclaredRun(None), "--nproc-per-node"), (DeclaredRun((1, 1), None), "--set resources.device")],
)
def test_an_error_for_a_missing_value_names_the_flag(declared: DeclaredRun, declared_value: str) -> None:
    with pytest.raises(SpecError, match=declared_value):
        spec_of(declared)


def test_run_names_the_flag_that_the_program_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("ScalingConfig(num_workers=workers)")
    with pytest.raises(SystemExit) as left:
        main(["run", "--server", "http://127.0.0.1:1", "--ray-train", str(tmp_path / "train.py"), "--lr", "1"])
    assert left.value.code == 3
    assert "ScalingConfig(num_workers): is neither a literal nor a constant" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "--ray-train", str(tmp_path / "nowhere.py")])
    assert "cannot read" in capsys.readouterr().err
