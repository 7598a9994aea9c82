"""The command line with the real app: uvicorn in this process, SQLite, and a cluster in memory."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from regroup.service.local.api_token import user_name
from regroup.service.ports.cluster import Node
from regroup.service.spec.clusters import ClusterNames
from regroup.service.store.rows.records import Condition


def test_submit_prints_only_the_id_and_the_hint_on_standard_error(cli, spec) -> None:
    done = cli("submit", spec)
    assert done.code == 0 and len(done.out.split()) == 1
    assert f"regroup watch {done.out.strip()}" in done.err


def test_submit_json_is_the_job_with_its_settings(cli, spec) -> None:
    done = cli("submit", spec, "--json", "--set", "training.steps=7", "--set", "labels={team: a}")
    assert done.err == ""
    assert done.json["state"] == "QUEUED" and done.json["steps"] == 7 and done.json["labels"] == {"team": "a"}


def test_a_requirements_file_is_sent_as_lines(cli, spec, tmp_path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("torch==2.13.0  # pinned\n")
    done = cli("submit", spec, "--requirements", file, "--set", "environment.base=none", "--json")
    environment = {"requirements": ["torch==2.13.0"], "base": "none", "interpreter": None, "image": None}
    assert done.json["spec"]["environment"] == environment
    for arguments in ((spec, "--requirements", "nowhere.txt"), ("--requirements", "nowhere.txt", "train.py")):
        done = cli("run", *arguments)
        assert done.code == 3 and "--requirements: cannot read the file: No such file" in done.err


def test_one_idempotency_key_creates_one_job(cli, spec) -> None:
    first, second = (cli("submit", spec, "--idempotency-key", spec.parent.name).out for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("training.stepz=1", "error: training.stepz: unknown field (got 1)"),
        ("layout.dp=9", "layout.dp: must not exceed the number of micro-batches per step: dp=9"),
    ],
)
def test_an_invalid_spec_names_field_value_and_valid_values(cli, spec, setting: str, line: str) -> None:
    for verb in ("submit", "validate", "run"):
        done = cli(verb, spec, "--set", setting)
        assert done.code == 3 and done.out == "" and line in done.err
        assert all(each.startswith("error: ") for each in done.err.splitlines())
        error = json.loads(cli(verb, spec, "--json", "--set", setting).err)["error"]
        assert (error["code"], error["exit_code"]) == ("invalid_spec", 3)
        assert any(line.removeprefix("error: ").startswith(each["path"]) for each in error["fields"])


def test_a_server_rejects_faults_unless_it_allows_them(cli, spec) -> None:
    done = cli("submit", spec, "--json", "--set", "faults=[{at: {rank: 0, step: 1}}]")
    assert done.code == 7 and "--allow-faults" in done.err and done.out == ""


def test_a_second_live_job_of_a_name_is_a_conflict(cli, spec, job) -> None:
    done = cli("submit", spec)
    assert done.code == 6 and "live job named" in done.err


def test_validate_returns_the_defaults(cli, spec) -> None:
    assert cli("validate", spec).out == f"{spec} is a valid spec\n"
    assert cli("validate", spec, "--json").json["spec"]["snapshot"]["every_steps"] == "auto"


def test_jobs_and_get_find_a_job_by_id_and_name(cli, spec, job) -> None:
    name = yaml.safe_load(spec.read_text())["name"]
    assert any(line.startswith(job) and name in line and "QUEUED" in line for line in cli("jobs").out.splitlines())
    assert [each["id"] for each in cli("jobs", "--name", name, "--json").json] == [job]
    assert cli("jobs", "--state", "FAILED", "--name", name, "--json").json == []
    assert cli("get", name, "--json").json["id"] == job
    shown = cli("get", job).out
    assert "QUEUED" in shown and name in shown


@pytest.mark.parametrize(
    "verb", ["get", "why", "curves", "steps", "events", "checkpoints", "cancel", "watch", "logs", "stacks"]
)
def test_an_unknown_job_gives_one_line_and_its_exit_code(cli, verb: str) -> None:
    done = cli(verb, "no-such-job")
    assert done.code == 4 and done.out == "" and done.err.startswith("error: ") and "no-such-job" in done.err
    assert len(done.err.splitlines()) == 1
    as_json = cli(verb, "no-such-job", "--json")
    assert as_json.code == 4 and as_json.out == ""
    error = json.loads(as_json.err)["error"]
    assert (error["code"], error["exit_code"], error["fields"]) == ("not_found", 4, [])
    assert "no-such-job" in error["message"]


def test_cancel_and_wait(cli, spec, job) -> None:
    assert cli("cancel", job, "--json").json["state"] == "CANCELLED"
    assert cli("watch", job, "--json").code == 1
    done = cli("watch", job)
    assert done.code == 1 and "state CANCELLED (cancelled_by_user)" in done.out and f"regroup why {job}" in done.err


def test_curves_of_a_job_without_steps_are_an_empty_table(cli, job) -> None:
    assert cli("curves", job).out.split() == ["STEP"]


def test_why_shows_the_reason_of_a_pending_job(cli, server, job) -> None:
    condition = Condition("Placeable", False, "no_room", "needs 4 ranks, 2 are free")
    server.do(server.store.set_conditions(server.lease, job, [condition], now=1000.0))
    text = cli("why", job).out
    assert "✖ Placeable: needs 4 ranks, 2 are free" in text
    assert cli("why", job, "--json").json["conditions"][0]["reason"] == "no_room"


def test_every_command_shows_a_job_with_an_incident(cli, server, story, job) -> None:
    server.start_job(job)
    node = {
        "kind": "node",
        "host": "n1",
        "import_s": 2.51,
        "launcher": "exec",
        "why": "preload 'm' started 1 thread(s)",
    }
    python = {
        "kind": "environment",
        "node": "n1",
        "python": "/v/bin/python (3.11.7)",
        "seconds": 5.8,
        "installed": True,
    }
    end = [
        {"type": "note", "data": node},
        {"type": "note", "data": python},
        {"type": "checkpoint", "data": {"step": 150, "generation": 2, "uri": "file:///c/step-150.gen-2",
                                        "size_bytes": 3 * 2**20, "files": 5}},
        {"type": "result", "data": {"parameters": "ab", "samples": "cd", "parameter_count": 9, "step": 150}},
        story.state("SUCCEEDED", "completed"),
    ]  # fmt: skip
    server.report(job, [*story.until_the_kill[1:], *story.the_return, *end])

    watched = cli("watch", job)
    assert watched.code == 0, watched.err
    assert "  recovered in 0.8 s, 0 steps lost" in watched.out and "generation 2" in watched.out
    assert "step 150/300" in watched.out and "checkpoint of step 150 saved" in watched.out

    final = cli("watch", job, "--json").json
    expected = {"id", "state", "reason", "step", "generation", "layout", "incidents", "goodput", "digest"}
    assert expected <= set(final) and final["state"] == "SUCCEEDED" and final["step"] == 150
    assert final["digest"] == {"parameters": "ab", "samples": "cd"} and len(final["incidents"]) == 1

    steps = [json.loads(line) for line in cli("steps", job, "--json").out.splitlines()]
    assert [step["step"] for step in steps] == list(range(1, 151)) and steps[-1]["generation"] == 2
    after = cli("steps", job, "--json", "--after", 148).out.splitlines()
    assert [json.loads(line)["step"] for line in after] == [149, 150]
    header = ["STEP", "GENERATION", "LOSS", "HELD-OUT", "TOKENS", "SECONDS", "LR"]
    everything = cli("steps", job, "--all").out.splitlines()
    assert everything[0].split() == header and len(everything) == 151
    assert [line.split()[0] for line in cli("steps", job, "--last", 2).out.splitlines()[1:]] == ["149", "150"]
    summary = cli("steps", job).out.splitlines()
    assert summary[0].endswith(": step 150/300, SUCCEEDED") and summary[1].startswith("loss 5.414 at step 1, 2.082 at")
    assert "0.1 s per step (median of the last 100 steps), 20.5k tokens/s" in summary
    table = summary[summary.index("") + 1 : summary.index("", summary.index("") + 1)]
    assert table[0].split() == header and len(table) == 21 and table[-1].split()[0] == "150"
    assert summary[-1] == "20 of 150 steps; --last N or --all prints each"

    curves = cli("curves", job, "--metric", "loss", "--metric", "step_s", "--points", 10).out.splitlines()
    assert curves[0].split() == ["STEP", "LOSS", "STEP_S"] and [line.split()[0] for line in curves[1:3]] == ["15", "30"]
    assert curves[-1] == "each line is the mean of up to 15 steps; --points N shows more"
    loss = cli("curves", job, "--json", "--metric", "loss", "--from", 140).json["curves"][0]
    assert loss["committed"]["steps"] == list(range(140, 151))
    header, line, *_ = cli("curves", job, job, "--metric", "loss", "--points", 5).out.splitlines()
    assert header.split() == ["JOB", "METRIC", "STEP", "FIRST", "LAST", "SMALLEST", "CURVE"]
    assert line.split()[1:3] == ["loss", "150"] and re.fullmatch("[▁▂▃▄▅▆▇█]{5}", line.split()[-1])
    assert cli("curves", job, job, "--json").json["jobs"][0]["job"] == job
    refused = cli("curves", job, job, "--from", 3)
    assert refused.code == 2 and "--from and --to need exactly one job" in refused.err

    events = [json.loads(line) for line in cli("events", job, "--json").out.splitlines()]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    history = cli("events", job).out
    assert "SIGKILL rank 1 at step 149" in history
    assert "n1: imports 2.5 s, launcher exec: preload 'm' started 1 thread(s)" in history
    assert "n1 installed /v/bin/python (3.11.7) in 5.8 s" in history

    assert [c["step"] for c in cli("checkpoints", job, "--json").json] == [150]
    assert "3.15 MB" in cli("checkpoints", job).out
    assert "1 incident" in cli("why", job).out
    shown = cli("get", job).out
    assert "SUCCEEDED" in shown and "digest parameters" in shown
    assert "node-1: ranks 0-1; node-2: ranks 2-3" in shown and "dp_shard=4" in shown
    assert not re.search(r"\bNone\b|\{'|\[\{|Layout\(", shown), "a Python repr"


def test_wait_returns_the_final_job(cli, server, story, spec) -> None:
    def succeed_when_it_is_there() -> None:
        name = yaml.safe_load(spec.read_text())["name"]

        async def found() -> str:
            async with asyncio.timeout(20):
                while True:
                    try:
                        return (await server.store.find_job(name, "default")).id
                    except LookupError:
                        await asyncio.sleep(0.01)

        job_id = server.do(found())
        server.start_job(job_id)
        server.report(job_id, [*story.until_the_kill[1:5], story.state("SUCCEEDED", "completed")])

    helper = threading.Thread(target=succeed_when_it_is_there)
    helper.start()
    done = cli("submit", spec, "--wait", "--json")
    helper.join()
    assert done.code == 0 and done.err == "" and done.json["state"] == "SUCCEEDED"


def test_a_failed_job_exits_with_1_and_why_shows_one_traceback(cli, server, story, job) -> None:
    server.start_job(job)
    error = {"kind": "ValueError", "message": "shapes differ", "traceback": "Traceback: …", "rank": 2, "step": 1}
    failed = story.state("FAILED", "user_error", message="rank 2 raised", error=error)
    server.report(job, [*story.until_the_kill[1:5], failed])
    done = cli("watch", job)
    assert done.code == 1 and "state FAILED (user_error · rank 2 raised)" in done.out
    text = cli("why", job).out
    assert "ValueError: shapes differ (rank 2, step 1)" in text and text.count("Traceback") == 1


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A complete checkpoint of one tensor and its optimizer state, with a manifest."""
    code = """
import sys, json, torch
from pathlib import Path
from torch.distributed import checkpoint as dcp
from regroup.workers.storage.fsspec_storage import upload
scratch, target = Path(sys.argv[1]), sys.argv[2]
tensors = {"w": torch.arange(6.0).reshape(2, 3), "optim.w.exp_avg": torch.ones(2, 3)}
dcp.save(tensors, checkpoint_id=scratch, no_dist=True)
manifest = {"step": 150, "generation": 2, "job_id": "j", "files": upload(scratch, target)}
Path(target, "manifest.json").write_text(json.dumps(manifest))
"""
    target = tmp_path / "step-150.gen-2"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "scratch"), str(target)], check=True)
    return target


def test_export_writes_parameters_and_rejects_damaged_checkpoints(
    cli, server, story, job, checkpoint, tmp_path
) -> None:
    saved = {"step": 150, "generation": 2, "uri": checkpoint.as_uri(), "size_bytes": 1, "files": 1}
    server.start_job(job)
    server.report(job, [*story.until_the_kill[1:5], {"type": "checkpoint", "data": saved}])
    path = tmp_path / "model.safetensors"

    done = cli("export", f"{job}@150", path, "--json")
    assert done.code == 0 and done.json["step"] == 150 and done.json["path"] == str(path)
    assert b'"w"' in path.read_bytes() and b"exp_avg" not in path.read_bytes()
    assert done.json["size_bytes"] == path.stat().st_size

    assert cli("export", f"{job}@7", path).code == 4
    shard = next(checkpoint.glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    damaged = cli("export", job, path)
    assert damaged.code == 1 and "is damaged" in damaged.err and len(damaged.err.splitlines()) == 1


def test_stacks_show_one_rank_or_all(cli, server, job) -> None:
    found = {"node": "a", "pid": 5, "place": (3, "backward"), "text": "Thread 0x1 (most recent call first):\n  File x"}
    server.cluster.running[job] = {"0": found, "1": found}
    assert "rank 1 on a (process 5), backward of step 3" in cli("stacks", job).out
    assert cli("stacks", job, "--rank", "1", "--json").json["rank"] == 1


def test_nodes_are_listed_cordoned_and_uncordoned(cli, server) -> None:
    server.cluster.add_node(Node("1" * 40, "local-1", "10.0.0.1", cpus=4, free_cpus=4))
    # The server writes its log to the same stream.
    assert cli("cordon", "local-1", "--reason", "its fan").out.splitlines()[-1] == "local-1 cordoned"
    header, row = cli("nodes").out.splitlines()
    assert header.split()[:2] == ["NODE", "ADDRESS"] and row.split()[:7] == [
        "local-1",
        "10.0.0.1",
        "4/4",
        "0/0",
        "-",
        "cordoned",
        "0.0",
    ]
    assert cli("nodes", "--json").json[0]["health"]["cordoned_by"] == user_name()
    again = f"local-1 accepts ranks (it was cordoned by {user_name()}: its fan)"
    assert [cli("uncordon", "local-1").out.splitlines()[-1] for _ in range(2)] == [again, "local-1 accepts ranks"]
    missing = cli("cordon", "local-7")
    assert missing.code != 0 and "no node 'local-7'; nodes: local-1" in missing.err


def test_clusters_are_listed_and_nodes_show_theirs(cli, server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.cluster.add_node(Node("1" * 40, "local-1", "10.0.0.1", cpus=4))
    assert [line.split() for line in cli("clusters").out.splitlines()] == [
        ["CLUSTER", "NODES", "CPUS", "FREE", "GPUS", "FREE", "STATE"],
        ["default", "(default)", "1", "4/4", "0/0", "answers"],
    ]
    monkeypatch.setitem(server.services.__dict__, "cluster_names", ClusterNames("east", ("west",)))
    server.cluster.add_node(Node("2" * 40, "west:local-1", "10.0.0.2", cpus=2, cluster="west"))
    assert [each["name"] for each in cli("clusters", "--json").json] == ["east", "west"]
    rows = [line.split()[:3] for line in cli("nodes").out.splitlines()]
    assert rows == [
        ["NODE", "CLUSTER", "ADDRESS"], ["local-1", "east", "10.0.0.1"], ["west:local-1", "west", "10.0.0.2"],
    ]  # fmt: skip
    admitted = cli("projects", "set", "vision", "admits.clusters=[west]", "defaults.resources.cluster=west")
    assert admitted.out == "vision saved\n"
    assert cli("projects", "get", "vision", "--json").json["admits"]["clusters"] == ["west"]
    assert cli("projects", "delete", "vision").code == 0
    server.cluster.remove_node("2" * 40)
    monkeypatch.setattr(server.cluster, "reachable", False)
    assert "the cluster does not answer" in cli("clusters").out


def test_projects_are_set_field_by_field(cli: Callable[..., Any]) -> None:
    assert cli("projects", "set", "small", "limit=4", "admits.devices=[cpu]").out == "small saved\n"
    assert cli("projects", "set", "small", "guaranteed=2").code == 0
    shown = cli("projects", "get", "small", "--json").json
    assert (shown["limit"], shown["guaranteed"], shown["admits"]["devices"]) == (4, 2, ["cpu"])
    listed = [line.split() for line in cli("projects", "list").out.splitlines()]
    assert ["small", "0", "2", "all", "4", "1", "0", "0", "0"] in listed
