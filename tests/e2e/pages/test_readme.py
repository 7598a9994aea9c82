"""The commands of README, quickstart and torchrun guide, and the demo, do what these pages describe."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.jobs.shell_commands import TIME, Shell, blocks, commands, own_state
from tests.support.packages.wheel import ROOT

README, QUICKSTART, SCRIPTS = "README.md", "docs/quickstart.md", "docs/guides/torchrun.md"
KILL = [(README, "Quickstart"), (QUICKSTART, "Run your own script and kill a rank"), (SCRIPTS, "See it lose a rank")]
"""Pages and headings that show the same commands."""
_DEMO_STEPS = 120
"""Fewer than usual. `.ci/run` runs `make demo` as it is."""
_INSTALL_S = 1200.0


@pytest.fixture
def run(tmp_path: Path, no_leaks: None) -> Iterator[Shell]:
    """A shell in the README's folder, with a state folder of its own."""
    with own_state(tmp_path) as environment:
        yield Shell(ROOT, environment, tmp_path)


@pytest.mark.slow
def test_the_commands_that_install_the_wheel(tmp_path: Path) -> None:
    install = commands(README, "Install")
    assert install == commands(QUICKSTART, "Install")
    assert [command.split()[0] for command in install] == ["make", "python3", "pip"]
    typed = " && ".join(install).replace("/tmp/regroup-env", str(tmp_path / "environment"))
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        ["bash", "-c", f"{typed} && regroup --version && python -c 'import torch'"], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_INSTALL_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("regroup ")


@pytest.mark.slow
def test_the_commands_that_recover_from_memory(run: Shell, tmp_path: Path) -> None:
    typed = commands(QUICKSTART, "Recover from memory")
    verbs = [shlex.split(command)[1] for command in typed]
    assert verbs[0] == "serve" and verbs[-1] == "down" and len(set(verbs)) == len(verbs)
    printed = dict(zip(verbs[:-1], map(run, typed[:-1]), strict=True))
    assert re.search(r"^job_\w+", printed["submit"], re.MULTILINE)
    assert re.search(rf"{TIME}incident: rank 1 killed by signal 9 after step 149$", printed["watch"], re.MULTILINE)
    assert re.search(rf"{TIME}  recovered in \S+ m?s, [01] steps? lost$", printed["watch"], re.MULTILINE)
    assert printed["watch"].splitlines()[-1].endswith(" SUCCEEDED")
    assert "SUCCEEDED" in printed["why"] and "1 incident, mean recovery time " in printed["why"]
    assert "printed nothing to stdout" in printed["logs"] and "`regroup watch" in printed["logs"]
    assert run_python_example(run, tmp_path) == "SUCCEEDED 30\n"
    record = json.loads((tmp_path / "state/ray.json").read_text())
    stopped = r"stopped: server http://\S+ \(process \d+\), local Ray \S+ \(2 nodes\), and the jobs on it\n"
    assert re.match(stopped, run(typed[-1]))
    assert not Path(record["temp_dir"]).exists()
    assert run(typed[-1]) == "nothing was running\n"


@pytest.mark.slow
def test_the_commands_that_kill_a_rank_of_a_script(run: Shell, tmp_path: Path) -> None:
    shown, *others = [commands(page, heading) for page, heading in KILL]
    assert all(other == shown for other in others)
    typed = [command.replace("/tmp/mine", str(tmp_path / "mine")) for command in shown]
    assert [command.split()[:2] for command in typed] == [
        *(["regroup", verb] for verb in ("serve", "run", "stacks")),
        ["kill", "-9"],
        *(["regroup", verb] for verb in ("watch", "logs", "down")),
    ]
    _, _, stacks, killed, watched, logs, _ = map(run, typed)
    assert re.match(r"rank 1 on \S+ \(process \d+\)", stacks)
    assert killed == ""
    assert re.search(rf"{TIME}incident: rank 1 killed by signal 9 after step \d+$", watched, re.MULTILINE)
    assert watched.splitlines()[-1].endswith(" SUCCEEDED")
    assert "rank 0 resumes after step " in logs


def run_python_example(run: Shell, tmp_path: Path) -> str:
    """Run the quickstart's Python example with the address of this test's server; return its output."""
    (source,) = blocks(QUICKSTART, "python", heading="Recover from memory")
    url = json.loads((tmp_path / "state/server.json").read_text())["url"]
    filled = source.text.replace("http://127.0.0.1:8500", url)
    assert url in filled
    (tmp_path / "example.py").write_text(filled)
    return run(f"python {tmp_path}/example.py")


@pytest.mark.slow
def test_the_demo_without_a_terminal(no_leaks: None, tmp_path: Path) -> None:
    (recipe,) = re.findall(r"^demo:.*\n\t@\$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    with tempfile.TemporaryDirectory(prefix="demo-") as own:
        command = [sys.executable, *shlex.split(recipe), "--steps", str(_DEMO_STEPS)]
        with subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, "TMPDIR": own},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as running:  # fmt: skip
            before, link = read_until_link(running)
            story = httpx2.get(link, follow_redirects=True, trust_env=False) if link else None
            assert running.stdout is not None
            rest = running.stdout.read()
        left = [name for name in os.listdir(own) if name.startswith(("regroup-", "rg-"))]
    assert (running.returncode, left) == (0, []), before + rest
    assert story is not None and story.status_code == 200 and re.search(r"/console/jobs/job_\w+/story", story.text)
    assert "state SUCCEEDED" not in before, "the link is printed while the job runs"
    events, after = (before + rest).split("stopping the server and its Ray …\n")
    assert [line for line in events.splitlines() if not re.match(TIME, line)] == []
    for title in ("incident: rank 1 killed by signal 9", "  recovered in ", "state SUCCEEDED"):
        assert re.search(TIME + title, events, re.MULTILINE), title
    assert "no process of the demo is left" in after and "bitwise equal" in after and "regroup run " in after
    assert (tmp_path / "demo/loss.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "demo/summary.json").read_text())
    assert found["is_confirmed"] and found["bitwise_equal"]
    assert found["states"] == {"run": "SUCCEEDED", "control": "SUCCEEDED"}
    assert found["digest"]["run"] == found["digest"]["control"] and all(found["digest"]["run"].values())
    assert found["recovery_seconds"] > 0 and found["steps_lost"] in (0, 1)
    assert found["final_loss"] < found["unigram_entropy"] - 0.3
    held_out = list(found["held_out_loss"].values())
    assert len(held_out) > 2 and held_out[-1] < held_out[0]


def read_until_link(running: "subprocess.Popen[str]") -> tuple[str, str]:
    """Return what the demo prints before the link to the story of its job, and the link; empty if it prints none."""
    assert running.stdout is not None
    printed = ""
    for line in running.stdout:
        if found := re.match(r"its story, in a browser while this runs: (\S+)$", line):
            return printed, found[1]
        printed += line
    return printed, ""
