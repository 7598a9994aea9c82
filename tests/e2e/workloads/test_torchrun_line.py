"""Whole command lines of torchrun: the options about output do what they say, also for a program that is not Python."""

import os
import subprocess
import sys
from pathlib import Path

from regroup.api.cli.common import exit_codes
from tests.support.servers.regroup_server import Server

PROGRAM = """
import os, sys
print(os.environ["ROLE_NAME"], os.environ["RANK"], flush=True)
print("warning", os.environ["RANK"], file=sys.stderr, flush=True)
"""


def run(served: Server, cwd: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Type `regroup run`; return what it printed."""
    environment = {**os.environ, "REGROUP_STATE_DIR": str(served.state), **variables}
    command = [sys.executable, "-m", "regroup.api.cli", "run", *words]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_the_output_of_chosen_ranks_is_shown_with_prefixes(served: Server, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(PROGRAM)
    line = ["--role", "rank", "--tee", "3", "--log-dir", "D", "--local-ranks-filter", "1,2", "--standalone", "x.py"]
    done = run(served, tmp_path, *line, PET_NPROC_PER_NODE="3")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank1] rank 1", "[rank2] rank 2"]
    assert {"[rank1] warning 1", "[rank2] warning 2"} < set(done.stderr.splitlines()) and "warning 0" not in done.stderr
    assert "--log-dir is ignored: regroup stores the output of every rank" in done.stderr
    assert "--standalone is ignored: regroup sets up the rendezvous" in done.stderr


def test_a_program_that_is_not_python_runs_as_a_rank(served: Server, tmp_path: Path) -> None:
    script = 'echo "$ROLE_NAME $LOCAL_RANK of $WORLD_SIZE in $(basename $PWD)"; test -z "$FAILS" || exit 3'
    done = run(served, tmp_path, "--nproc_per_node=2", "--no-python", "-t1", "-r3", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[rank{n}] default {n} of 2 in {tmp_path.name}" for n in range(2)]
    failed = run(served, tmp_path, "--set", "env.FAILS=now", "--no-python", "--redirects", "3", "sh", "-c", script)
    assert failed.returncode == exit_codes.JOB_NOT_SUCCEEDED and failed.stdout == "", failed.stderr
    assert "FAILED" in failed.stderr
