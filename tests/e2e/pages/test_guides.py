"""The commands of the guides and of the examples, typed unchanged, one after the other, with one server."""

import dataclasses
import functools
import http.server
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.client import Client
from regroup.api.schemas.jobs import Job
from regroup.service.local.api_token import own_token
from tests.support.checks.leaks import no_process_remains
from tests.support.jobs.script_jobs import digest
from tests.support.jobs.shell_commands import TIME, Block, Shell, blocks, own_state
from tests.support.packages.tiny_packages import flavours
from tests.support.packages.wheel import ROOT
from tests.support.servers.regroup_server import eventually

EXAMPLES = "examples/README.md"
GUIDES = [EXAMPLES, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/guides").glob("*.md"))]
IN_GUIDES = [
    *(block for page in GUIDES for block in blocks(page, "sh", "console")),
    *blocks("docs/deploy.md", "sh", heading="One machine"),
]
SERVE, *_, DOWN = blocks(EXAMPLES, "console")[0].commands
"""Commands that start and end the server of these tests. Several blocks have them; they are typed once."""
LIVE = ("QUEUED", "PLACING", "STARTING", "RUNNING", "RECOVERING", "RESIZING", "DRAINING", "SUSPENDED")
TYPED_ELSEWHERE = {"docs/guides/torchrun.md#1": "test_readme.py"}
"""Blocks that start and end their own server."""


def types(*which: str) -> pytest.MarkDecorator:
    """Run the test once for each of these blocks. It must type the whole block."""
    found = [block for block in IN_GUIDES if str(block) in which]
    assert len(found) == len(which)
    return pytest.mark.parametrize("typed", found, indirect=True, ids=str)


class Typed:
    """A block whose commands a test types one by one."""

    def __init__(self, block: Block, shell: Shell) -> None:
        self.left = [command for command in block.commands if command.removesuffix(" &") != SERVE.removesuffix(" &")]
        self.left = [command for command in self.left if command != DOWN]
        self._shell = shell

    def next(self, *, cwd: Path | None = None, code: int = 0, **meanings: str) -> str:
        """Type the next command with `meanings` for its words; return its output. It must exit with `code`."""
        command = self.left.pop(0).replace("/tmp/", f"{self._shell.outputs}/")
        for word, meaning in meanings.items():
            command = re.sub(rf"\b{word}\b", meaning, command)
        return self._shell(command, cwd=cwd, code=code)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell in a folder with the examples, and a server for them. A folder of this test replaces their /tmp."""
    folder = tmp_path_factory.mktemp("guides")
    root, outputs = folder / "repository", folder / "outputs"
    outputs.mkdir()
    made = shutil.ignore_patterns("*.jsonl", "digits", "__pycache__")
    shutil.copytree(ROOT / "examples", root / "examples", ignore=made)
    for spec in (root / "examples").glob("*.yaml"):
        spec.write_text(spec.read_text().replace("/tmp/", f"{outputs}/"))
    with no_process_remains(), own_state(folder) as environment:
        own = {"REGROUP_VENVS_DIR": str(folder / "venvs"), "REGROUP_RAY_DASHBOARD": "false"}
        shell = Shell(root, {**environment, **own}, outputs)
        shell(SERVE)
        yield shell
        assert shell(DOWN).startswith("stopped: server http://")


@pytest.fixture(scope="module")
def client(shell: Shell) -> Iterator[Client]:
    """A client of the server."""
    state = Path(shell.environment["REGROUP_STATE_DIR"])
    url = json.loads((state / "server.json").read_text())["url"]
    with Client(url, token=own_token(state)) as client:
        yield client


@pytest.fixture
def typed(request: pytest.FixtureRequest, shell: Shell, client: Client) -> Iterator[Typed]:
    """The block of this test, which must type it whole. No job outlives it."""
    typed = Typed(request.param, shell)
    yield typed
    for job in client.jobs(state=LIVE):
        client.cancel(job.id)
        client.wait(job.id, timeout_s=60)
    assert typed.left == [], "commands that the test did not type"


def succeeded(client: Client, printed: str) -> Job:
    """Return the newest job. The last line of the output must report that it succeeded."""
    assert printed.splitlines()[-1].endswith(" SUCCEEDED"), printed
    job = client.get(next(iter(client.jobs())).id)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    return job


def lost_a_rank(client: Client, printed: str) -> Job:
    """Return the newest job, which must have lost rank 1 half-way and succeeded."""
    job = succeeded(client, printed)
    assert re.search(rf"{TIME}incident: rank 1 killed by signal 9 after step \d+$", printed, re.MULTILINE), printed
    (incident,) = job.incidents
    assert (incident.reason, incident.rank) == ("rank_exit", 1) and job.generation == 2
    return job


def widest_interval(client: Client, job: Job) -> int:
    """Return the largest number of steps between two of its snapshots."""
    notes = [event.data for event in client.events(job.id) if event.data.get("kind") == "snapshot_interval"]
    return max((note["every_steps"] for note in notes), default=1)


def output(client: Client, job: Job, rank: int = 0) -> str:
    """Return the output of a rank in the last generation."""
    return "".join(client.logs(job.id, rank=rank, generation=job.generation))


def test_every_block_of_the_guides_is_typed() -> None:
    by_name = [mark for item in globals().values() for mark in getattr(item, "pytestmark", [])]
    here = {
        str(block)
        for mark in by_name
        if mark.name == "parametrize" and mark.args[0] == "typed"
        for block in mark.args[1]
    }
    assert {str(block) for block in IN_GUIDES} == here | TYPED_ELSEWHERE.keys()
    assert (SERVE, DOWN) == ("regroup serve --local-nodes 2 --slots-per-node 2 --allow-faults &", "regroup down")
    for spec in (ROOT / "examples").glob("*.yaml"):
        printed = re.findall(r"^#   (regroup serve .*)$", spec.read_text(), re.MULTILINE)
        assert printed == [SERVE.removesuffix(" &")], spec


@types("docs/guides/functions.md#0")
def test_the_guide_to_functions_checks_a_restart(typed: Typed, client: Client) -> None:
    verdict = typed.next().splitlines()[-1]
    assert verdict.startswith("EQUAL: a restart from memory changes nothing"), verdict
    assert client.get("function-fsdp-check").reason == "restart_verified"


@pytest.mark.slow
@types("examples/README.md#0")
def test_the_examples_page(typed: Typed, client: Client) -> None:
    assert lost_a_rank(client, typed.next()).step == 300
    job = succeeded(client, typed.next())
    assert (job.step, job.incidents) == (100, [])


def commands_of_examples() -> list[str]:
    """Return the commands in the files of the examples that no page has."""
    files = [path for path in sorted((ROOT / "examples").iterdir()) if path.suffix in (".py", ".yaml")]
    printed = [found for path in files for found in re.findall(_COMMAND, path.read_text(), re.MULTILINE)]
    on_pages = {command for block in IN_GUIDES for command in block.commands}
    return sorted({*printed} - on_pages)


_BY_ITSELF = {
    # Ray would join the last cluster of this machine, alive or not, and poll its workers rarely.
    "RAY_ADDRESS": "local", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "OMP_NUM_THREADS": "1",
}  # fmt: skip
_COMMAND = r"^(?:#   |#.*: )?((?:regroup run|torchrun|python) .*\bexamples/.*)$"


@pytest.mark.slow
@pytest.mark.parametrize("command", commands_of_examples())
def test_the_commands_in_the_files_of_the_examples(command: str, shell: Shell, client: Client) -> None:
    if command.startswith("python "):
        shell = dataclasses.replace(shell, environment={**shell.environment, **_BY_ITSELF})
    printed = shell(command.replace("/tmp/", f"{shell.outputs}/"))
    if command.startswith("regroup run "):
        job = lost_a_rank(client, printed) if command.endswith(".yaml") else succeeded(client, printed)
        printed = output(client, job) if job.spec.workload.kind == "script" else str(job.digest.parameters)
    assert re.search(r"^(parameters )?[0-9a-f]{64}$|^step 100 loss \d+\.\d+$", printed, re.MULTILINE), printed


@pytest.mark.slow
@types("docs/deploy.md#0")
def test_one_machine(typed: Typed, client: Client) -> None:
    waited = typed.next().splitlines()[-1]
    assert re.match(r"job_\w+ SUCCEEDED \(completed\)", waited), waited
    (incident,) = client.get(waited.split()[0]).incidents
    assert (incident.reason, incident.rank) == ("rank_exit", 1)


@pytest.mark.slow
@types("docs/guides/models.md#0")
def test_models(typed: Typed, shell: Shell, client: Client) -> None:
    assert typed.next() == ""
    assert len((shell.cwd / "examples/digits/train.jsonl").read_text().splitlines()) > 1000
    job = lost_a_rank(client, typed.next())
    assert job.incidents[0].steps_lost in range(widest_interval(client, job) + 1)
    losses = [row.validation_loss for row in client.steps(job.id) if row.validation_loss is not None]
    assert len(losses) == 4 and losses[-1] < 0.2
    split = succeeded(client, typed.next())
    assert split.layout is not None and split.layout.pp == 2
    assert (split.digest.samples, split.step) == (job.digest.samples, job.step)


@pytest.mark.slow
@types("docs/guides/data.md#0")
def test_data(typed: Typed, shell: Shell, client: Client) -> None:
    assert typed.next() == ""
    assert (shell.cwd / "examples/cpython.jsonl").stat().st_size > 1_000_000
    job = lost_a_rank(client, typed.next())
    assert job.incidents[0].steps_lost in range(widest_interval(client, job) + 1)


@pytest.mark.slow
@types("docs/guides/lightning.md#0", "docs/guides/transformers.md#0")
def test_libraries(typed: Typed, client: Client) -> None:
    under_torchrun = digest(typed.next())
    assert digest(output(client, succeeded(client, typed.next()))) == under_torchrun
    assert digest(output(client, lost_a_rank(client, typed.next()))) == under_torchrun


@pytest.mark.slow
@types("docs/guides/ray-train.md#0")
def test_ray_train(typed: Typed, client: Client) -> None:
    undisturbed = digest(output(client, succeeded(client, typed.next())))
    assert digest(output(client, lost_a_rank(client, typed.next()))) == undisturbed


@pytest.mark.slow
@types("docs/guides/notebooks.md#0")
def test_notebooks(typed: Typed) -> None:
    assert typed.left == [], "the command starts this file's server; test_notebook.py runs the notebook"


TORCHRUN = """
import os, sys
assert sys.argv[1:] == ["--lr", "0.1"]
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise RuntimeError("once")
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
"""


@pytest.mark.slow
@types("docs/guides/torchrun.md#0")
def test_torchrun(typed: Typed, client: Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TORCHRUN)
    job = succeeded(client, typed.next(cwd=tmp_path))
    assert [incident.reason for incident in job.incidents] == ["user_error"]
    assert output(client, job, rank=3) == "rank 3 of 4\n"


@pytest.mark.slow
@types("docs/guides/torchrun.md#2")
def test_the_guide_to_scripts_checks_a_restart(typed: Typed, client: Client) -> None:
    verdict = typed.next().splitlines()[-1]
    assert verdict.startswith("EQUAL: a restart from the program's checkpoint changes nothing: steps 6 to 7"), verdict
    assert client.get("mine-check").reason == "restart_verified"


SCRIPT = 'name: {name}\nworkload: {{kind: script, entrypoint: "{entrypoint}"}}\nlayout: {{dp: {ranks}}}\n'


@pytest.mark.slow
@types("docs/guides/code.md#0")
def test_code(typed: Typed, client: Client, tmp_path: Path) -> None:
    here = tmp_path / "another" / "this"
    here.mkdir(parents=True)
    for folder in (here, here.parent):
        (folder / "train.py").write_text(f"import sibling\nprint({folder.name!r}, sibling.__name__)\n")
        (folder / "sibling.py").touch()
    (here / "spec.yaml").write_text(SCRIPT.format(name="code", entrypoint="train.py", ranks=1))
    job = submitted(client, typed.next(cwd=here))
    assert output(client, job) == "this sibling\n"
    assert output(client, succeeded(client, typed.next(cwd=here))) == "another sibling\n"


def submitted(client: Client, printed: str) -> Job:
    """Return the job that was submitted, after its end."""
    found = re.search(r"^job_\w+", printed, re.MULTILINE)
    assert found, printed
    job = client.wait(found[0], timeout_s=240)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    return job


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Address of a server that has the package `flavour`."""
    handler = functools.partial(Quiet, directory=str(flavours(tmp_path / "wheels")))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, without a log line for each."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.mark.slow
@types("docs/guides/environments.md#0")
def test_environments(typed: Typed, client: Client, tmp_path: Path, index: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"flavour @ {index}/flavour-2.0-py3-none-any.whl\n")
    (tmp_path / "train.py").write_text("import flavour\nprint(flavour.VERSION)\n")
    (tmp_path / "spec.yaml").write_text(SCRIPT.format(name="flavour", entrypoint="${SPEC_DIR}/train.py", ranks=1))
    assert output(client, submitted(client, typed.next(cwd=tmp_path))) == "2.0\n"
    assert output(client, succeeded(client, typed.next(cwd=tmp_path)), rank=3) == "2.0\n"


STANDS = """
import os, sys, time
print("rank", os.environ["RANK"], flush=True)
print("generation", os.environ["REGROUP_GENERATION"], file=sys.stderr, flush=True)
time.sleep(1000)
"""


@pytest.mark.slow
@types("docs/guides/debugging.md#0")
def test_debugging(typed: Typed, shell: Shell, client: Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STANDS)
    (tmp_path / "look.py").write_text("import os\nprint('look', os.environ['RANK'])\n")
    workload = {"kind": "script", "entrypoint": str(tmp_path / "train.py")}
    job = client.submit({"name": "stands", "workload": workload, "layout": {"dp": 4}})
    eventually(lambda: client.get(job.id).state == "RUNNING")
    has_gpu = shutil.which("nvidia-smi") is not None
    typed.next(JOB="stands", code=0 if has_gpu else 127)
    assert typed.next(JOB="stands").startswith("3 2.")
    assert typed.next(JOB="stands", cwd=tmp_path) == "look 3\n"
    listed = typed.next(JOB="stands")
    assert "Filesystem" in listed and "train.py" in listed

    def shown(command: str) -> str:
        return shell(command.replace("JOB", "stands"))

    why, logs, stacks, _, execute, *_ = table("docs/guides/debugging.md")
    assert "RUNNING" in shown(why[0])
    assert shown(logs[0]) == "rank 3\n"
    assert shown(f"{logs[0]} {logs[1]}") == "generation 1\n"
    assert len(re.findall(r"^rank \d on ", shown(stacks[0]), re.MULTILINE)) == 4
    assert re.match(r"rank 3 on \S+ \(process \d+\)", shown(f"{stacks[0]} {stacks[1]}"))
    assert shown(execute[0].replace("CMD", "echo $HOME"))
    client.cancel(job.id)
    client.wait(job.id, timeout_s=60)
    assert shown(f"{logs[0]} {logs[3]}") == "rank 3\n"


@pytest.mark.slow
@types("docs/guides/probe.md#0")
def test_measuring(typed: Typed, shell: Shell, client: Client) -> None:
    """Run a probe. It is queued and placed like any job, on both nodes, and its results are then available."""
    printed = typed.next()
    assert "4 ranks of " in printed and "between gpu_domains" in printed and "all_to_all" in printed
    assert typed.next() in printed
    (probe,) = json.loads(shell("regroup probe show --json"))["probes"]
    assert {each["name"] for each in probe["nodes"]} == {"local-1", "local-2"}
    assert all(each["ranks"] == 2 and each["flops"]["fp32"] > 1e8 for each in probe["nodes"])
    levels = {each["level"]: each for each in probe["levels"]}
    assert set(levels) == {"device", "gpu_domain"} and levels["gpu_domain"]["pairs"] == 1
    assert all(each["bytes_s"] > 1e6 and 0 < each["latency_s"] < 1 for each in levels.values())
    assert not [each for each in probe["anomalies"] if each["measure"] == "result"]
    (job,) = client.jobs(name="probe-cpu")
    assert (job.id, job.state) == (probe["job_id"], "SUCCEEDED")


@pytest.mark.slow
@types("docs/guides/queue.md#0")
def test_a_project_is_set_and_removed(typed: Typed) -> None:
    assert typed.next() == "vision saved\n"
    assert typed.next() == "vision saved\n"
    (listed,) = [line.split() for line in typed.next().splitlines() if line.startswith("vision")]
    assert listed == ["vision", "0", "8", "all", "16", "1", "1", "0", "0"], "guaranteed, limit, and one spare"
    assert typed.next() == "vision deleted\n"


@pytest.mark.slow
@types("docs/guides/queue.md#1")
def test_a_cluster_is_tried_out(typed: Typed) -> None:
    typed.next()
    assert "jobs finished" in typed.next()


def table(page: str) -> list[list[str]]:
    """Return the code in the second column of a page's first table, by row."""
    rows = re.findall(r"^\|.*?\|(.*)\|$", (ROOT / page).read_text(), re.MULTILINE)
    return [re.findall(r"`([^`]*)`", row) for row in rows][2:]
