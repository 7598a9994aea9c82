"""torchrun's command line: the spec that it becomes, the end of its options, and invalid arguments."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.api.cli.spec_input.torchrun_args import Flags, job_name, script_spec
from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec

HOME = PurePosixPath("/home/me")


def spec_of(program: Sequence[str], **flags: Any) -> dict[str, Any]:
    spec = script_spec(program, Flags(**flags), cwd=HOME, name="x")
    parse_spec(spec)
    return spec


def test_a_program_runs_in_the_current_folder() -> None:
    spec = spec_of(["train.py", "--lr", "0.1"])
    assert spec["workload"] == {
        "kind": "script", "entrypoint": "/home/me/train.py", "args": ["--lr", "0.1"], "cwd": "/home/me",
    }  # fmt: skip
    assert spec_of(["/opt/train.py"])["workload"]["entrypoint"] == "/opt/train.py"
    assert spec_of(["a.b"], module=True)["workload"]["module"] == "a.b"


@pytest.mark.parametrize(
    ("nnodes", "per_node", "dp"),
    [("1:1", "1", (1, 1)), ("2", "8", (16, 16)), ("2:4", "8", (16, 32))],
)
def test_possible_sizes_are_nodes_times_ranks_per_node(nnodes: str, per_node: str, dp: tuple[int, int]) -> None:
    least, most = dp
    spec = spec_of(["x.py"], nnodes=nnodes, nproc_per_node=per_node, max_restarts=3)
    assert spec["layout"]["dp"] == {"min": least, "target": most, "max": most}
    assert spec["recovery"] == {"budgets": {"user_error": 3}}


@pytest.mark.parametrize(
    ("flags", "path"),
    [
        ({"nnodes": "4:2"}, "--nnodes"),
        ({"nnodes": "two"}, "--nnodes"),
        ({"nproc_per_node": "gpu"}, "--nproc-per-node"),
        ({"nproc_per_node": "0"}, "--nproc-per-node"),
    ],
)
def test_an_error_names_an_invalid_flag(flags: dict[str, str], path: str) -> None:
    with pytest.raises(SpecError) as refused:
        script_spec(["x.py"], Flags(**flags), cwd=HOME, name="x")
    assert refused.value.issues[0].path == path


def test_job_names_are_valid_and_contain_the_program() -> None:
    assert job_name("src/Train_GPT.py", Flags(), "a1") == "train-gpt-a1"
    assert job_name("my.pkg.train", Flags(module=True), "a1") == "my-pkg-train-a1"
    assert job_name("_.py", Flags(), "a1") == "script-a1"
    assert len(job_name("x" * 200 + ".py", Flags(), "abcdef")) <= 63


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-python", "x.py"], "Run a Python file"),
        (["spec.yaml", "--nnodes", "2"], "do not apply to a spec file"),
        (["spec.yaml", "more"], "a spec file accepts no arguments: more"),
        (["--nnodez", "2", "x.py"], "No such option: --nnodez"),
        (["--standalone"], "Missing argument"),
    ],
)
def test_invalid_arguments_are_rejected_before_any_request(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", *arguments])
    assert left.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_options_after_a_program_are_its_own_but_not_after_a_spec(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = "http://127.0.0.1:1"
    with pytest.raises(SystemExit):
        main(["run", "--server", nobody, "--nproc_per_node", "0", "x.py", "--help", "--no-such-option"])
    assert "--nproc-per-node: must be an integer" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "nowhere.yaml", "--server", nobody, "--set", "a=b"])
    assert "cannot read the spec" in capsys.readouterr().err
