"""torchrun's command line: the spec that it becomes, the end of its options, and invalid arguments."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.api.cli.spec_input.torchrun_args import Flags, NodeDevices, job_name, script_spec
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
        ({"nproc_per_node": "1025"}, "--nproc-per-node"),
        ({"nproc_per_node": "9" * 5000}, "--nproc-per-node"),
        ({"nproc_per_node": "xpu"}, "--nproc-per-node"),
        ({"nnodes": "1:"}, "--nnodes"),
        ({"nnodes": "1:2:3"}, "--nnodes"),
        ({"no_python": True, "module": True}, "--no-python"),
    ],
)
def test_an_error_names_an_invalid_flag(flags: dict[str, Any], path: str) -> None:
    with pytest.raises(SpecError) as refused:
        script_spec(["x.py"], Flags(**flags), cwd=HOME, name="x")
    assert refused.value.issues[0].path == path


def test_a_command_that_is_not_python_runs_in_a_rank() -> None:
    workload = spec_of(["sh", "-c", "date"], no_python=True)["workload"]
    assert workload["module"] == "regroup.workers.rank.child_program" and workload["args"] == ["sh", "-c", "date"]


def test_the_role_is_a_part_of_the_workload() -> None:
    assert spec_of(["x.py"], role="trainer")["workload"]["role"] == "trainer"
    assert "role" not in spec_of(["x.py"])["workload"]
    with pytest.raises(SpecError, match=r"workload\.role"):
        spec_of(["x.py"], role="a\nb")


CPU_NODES = [NodeDevices("a", 8.0, 0.0), NodeDevices("b", 8.0, 0.0)]
GPU_NODES = [NodeDevices("a", 64.0, 4.0), NodeDevices("b", 64.0, 4.0), NodeDevices("c", 64.0, 0.0)]


@pytest.mark.parametrize(
    ("per_node", "nodes", "ranks", "device"),
    [
        ("cpu", CPU_NODES, 8, "cpu"), ("auto", CPU_NODES, 8, "cpu"), ("gpu", GPU_NODES, 4, "cuda"),
        ("auto", GPU_NODES, 4, "cuda"), ("cpu", GPU_NODES, 64, "cpu"),
    ],
)  # fmt: skip
def test_the_number_of_ranks_can_follow_the_devices_of_the_nodes(
    per_node: str, nodes: list[NodeDevices], ranks: int, device: str
) -> None:
    spec = script_spec(["x.py"], Flags(nnodes="2", nproc_per_node=per_node), cwd=HOME, name="x", nodes=nodes)
    parse_spec(spec)
    assert (spec["layout"]["dp"]["max"], spec["resources"]) == (2 * ranks, {"device": device})


@pytest.mark.parametrize(
    ("per_node", "nodes", "message"),
    [
        ("gpu", CPU_NODES, "no node of the cluster has a GPU now; give the number"),
        ("cpu", [], "no node of the cluster has a CPU now"),
        ("gpu", [*GPU_NODES, NodeDevices("d", 8.0, 8.0)], r"differ in their number of GPUs \(4 on a, 4 on b, 8 on d\)"),
    ],
)
def test_devices_without_a_common_number_are_named(per_node: str, nodes: list[NodeDevices], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        script_spec(["x.py"], Flags(nproc_per_node=per_node), cwd=HOME, name="x", nodes=nodes)


def test_job_names_are_valid_and_contain_the_program() -> None:
    assert job_name("src/Train_GPT.py", Flags(), "a1") == "train-gpt-a1"
    assert job_name("my.pkg.train", Flags(module=True), "a1") == "my-pkg-train-a1"
    assert job_name("_.py", Flags(), "a1") == "script-a1"
    assert len(job_name("x" * 200 + ".py", Flags(), "abcdef")) <= 63


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-python", "--ray-train", "x.py"], "does not apply to a program that calls Ray Train"),
        (["--no-python", "./nowhere"], "no file "),
        (["--tee", "--json", "x.py"], "--tee: needs a value"),
        (["--tee", "4", "x.py"], "--tee: '4' is not one of 0 (none), 1 (stdout)"),
        (["spec.yaml", "--local-ranks-filter", "all"], "--local-ranks-filter: 'all' is not a rank"),
        (["spec.yaml", "--standalone"], "do not apply to a spec file"),
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
