"""`regroup demo`: start a server, train with one killed rank and once without faults, and compare the two runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regroup.api.cli.demo.report import Run, summary, unigram_entropy, write
from regroup.api.cli.spec_input.spec_file import read_spec
from regroup.api.client.client import Client
from regroup.api.client.console_link import console_link
from regroup.api.client.discovery import connect, feed
from regroup.api.live.display import Lines, Screen, display
from regroup.api.live.follow import follow
from regroup.api.live.job_view import JobView, initial_view
from regroup.service.domain.errors import RegroupError, UnavailableError
from regroup.service.local.api_token import own_token
from regroup.service.local.marked_processes import marked_environment, stop_marked

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pretrain-cpython.yaml"

_NODES, _SLOTS = 2, 2
_LOG = "demo-server.log"
_START_TIMEOUT_S = 200.0
_DOWN_TIMEOUT_S = 60.0
_EXIT_TIMEOUT_S = 10.0

_NEXT_STEPS = """\
Now train on your own text. Start `regroup serve --local-nodes 2 --slots-per-node 2` in another terminal, then run:
  regroup run {example} --set faults=[] --set workload.data.validation=[] --set "workload.data.train=[YOUR/FOLDER]"
"""


@dataclass(frozen=True)
class Plan:
    """The two specs of the demo: with the example's fault, and without it."""

    disturbed: Mapping[str, Any]
    control: Mapping[str, Any]


def plan(steps: int | None, example: Path = EXAMPLE) -> Plan:
    """Return both specs. With `steps`, the fault is still injected half-way."""
    settings: list[str] = []
    if steps is not None:
        settings = [
            f"training.steps={steps}",
            f"training.validate_every={steps // 6}",
            f"faults.0.at.step={steps // 2}",
        ]
    disturbed = read_spec(example, settings)
    return Plan(disturbed, {**disturbed, "name": f"{disturbed['name']}-control", "faults": []})


def demo(directory: Path, steps: int | None, *, retain: bool) -> int:
    """Run the demo, stop all its processes, and return the exit code: 0 only if all claims were confirmed."""
    if find_spec("matplotlib") is None:
        raise RegroupError("the demo draws a picture: pip install 'regroup[plots]'")
    specs = plan(steps)
    state = Path(tempfile.mkdtemp(prefix="regroup-demo-"))
    previous = signal.signal(signal.SIGTERM, _interrupt)
    server = _start(state)
    figures: dict[str, Any] = {}
    try:
        figures = _run_twice(specs, server, state, directory)
    except KeyboardInterrupt:
        print("demo interrupted")
    finally:
        if not figures:
            directory.mkdir(parents=True, exist_ok=True)
            print(f"the server's log: {shutil.copy(state / _LOG, directory / 'server.log')}")
        clean = _end(server, state, retain=retain)
        signal.signal(signal.SIGTERM, previous)
    if not figures:
        return 130
    _print_summary(figures, directory)
    return 0 if figures["is_confirmed"] and clean else 1


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _run_twice(specs: Plan, server: "subprocess.Popen[bytes]", state: Path, directory: Path) -> dict[str, Any]:
    started_s = time.monotonic()
    with display() as out:
        url = _url(
            server, state, _view(specs.disturbed, f"starting Ray with {_NODES} local nodes, and the server"), out
        )
        served = time.monotonic() - started_s
        disturbed = _run(url, own_token(state), specs.disturbed, out, shows_story=True)
        control = _run(url, own_token(state), specs.control, out)
    data = specs.disturbed["workload"]["data"]
    entropy = unigram_entropy(data["train"], data["validation"])
    times = {"until_served": served, "until_both_done": time.monotonic() - started_s}
    figures = summary(disturbed, control, entropy, times)
    write(directory, figures, disturbed, control)
    return figures


def _run(url: str, token: str, spec: Mapping[str, Any], out: Screen | Lines, *, shows_story: bool = False) -> Run:
    started_s = time.monotonic()
    with connect(url, token=token, patient=True) as client:
        job = client.submit(dict(spec))
        if shows_story:
            print(f"its story, in a browser while this runs: {story_link(client, job.id)}", flush=True)
        view = follow(feed(client, job.id), _view(spec, ""), out)
        return Run(client.get(job.id).model_dump(mode="json"), view, time.monotonic() - started_s)


def story_link(client: Client, job_id: str) -> str:
    """Return the address of the story of a job. It signs a browser in, once, within ten minutes."""
    return console_link(client.url, client.session_link(), f"jobs/{job_id}/story")


def _view(spec: Mapping[str, Any], activity: str) -> JobView:
    nodes = [f"node-{number + 1}" for number in range(_NODES)]
    return initial_view(str(spec["name"]), int(spec["training"]["steps"]), nodes, _SLOTS, activity)


def _start(state: Path) -> "subprocess.Popen[bytes]":
    """Start a server that stores all its files under `state`.

    The server has its own session, so that only this process receives Ctrl-C.
    """
    options = ["--local-nodes", str(_NODES), "--slots-per-node", str(_SLOTS), "--port", "0", "--allow-faults"]
    with (state / _LOG).open("wb") as sink:
        return subprocess.Popen(
            _command("serve", state, *options),
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=marked_environment(state),
        )


def _command(verb: str, state: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "regroup.api.cli", verb, "--state-dir", str(state), *options]


def _url(server: "subprocess.Popen[bytes]", state: Path, board: JobView, out: Screen | Lines) -> str:
    """Show `board` until the server has written its address, and return the address.

    Raises:
        UnavailableError: the server exited, or did not start in time.
    """
    address = state / "server.json"
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not address.exists():
        out.show(board)
        if server.poll() is not None or time.monotonic() > deadline:
            log = (state / _LOG).read_text(errors="replace").splitlines()
            raise UnavailableError("the server did not start:\n" + "\n".join(log[-15:]))
        time.sleep(0.1)
    return str(json.loads(address.read_text())["url"])


def _end(server: "subprocess.Popen[bytes]", state: Path, *, retain: bool) -> bool:
    """Stop the server, its Ray and all their processes. Kill and report the ones that remain.

    Returns:
        True if all processes exited without SIGKILL.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the shutdown
    try:
        print("stopping the server and its Ray …", flush=True)
        server.terminate()
        down = subprocess.run(
            _command("down", state), capture_output=True, text=True, timeout=_DOWN_TIMEOUT_S, check=False
        )
        killed = stop_marked(str(state), timeout_s=_EXIT_TIMEOUT_S)
        server.wait(timeout=_EXIT_TIMEOUT_S)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if down.returncode:
        print(f"regroup down exited {down.returncode}: {down.stderr.strip()}", file=sys.stderr)
    if killed:
        print("did not exit and was killed: " + "; ".join(f"{pid} {cmd}" for pid, cmd in killed.items()))
    print("checked: no process of the demo is left")
    if retain:
        print(f"state directory kept: {state}")
    else:
        shutil.rmtree(state, ignore_errors=True)
    return not killed and not down.returncode


def _print_summary(figures: Mapping[str, Any], directory: Path) -> None:
    back = figures["recovery_seconds"]
    print()
    print(
        f"recovery            {back:.2f} s, {figures['steps_lost']} steps lost" if back else "recovery            none"
    )
    print(f"digest of the run   {(figures['digest']['run'] or {}).get('parameters')}")
    print(f"digest of control   {(figures['digest']['control'] or {}).get('parameters')}")
    print(f"                    {'bitwise equal' if figures['bitwise_equal'] else 'NOT EQUAL'}")
    print(
        f"final loss          {figures['final_loss']:.3f} nats per byte; entropy of single bytes: "
        f"{figures['unigram_entropy']:.3f}"
    )
    print(f"held-out loss       {' → '.join(f'{loss:.3f}' for loss in figures['held_out_loss'].values())}")
    for claim in (claim for claim, found in figures["found"].items() if found is False):
        print(f"NOT CONFIRMED       {claim.replace('_', ' ')}")
    print(f"written             {directory / 'loss.png'}, {directory / 'summary.json'}")
    print()
    print(_NEXT_STEPS.format(example=os.path.relpath(EXAMPLE)), end="")
