"""`regroup run --check` of scripts that save their own state: right, incomplete, and not at all."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.regroup_server import Server

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys
import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

folder, every, keeps = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo")
torch.manual_seed(3)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
path, first = f"{folder}/checkpoint.pt", 1
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    if keeps == "all":
        optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"] + 1
for step in range(first, 41):
    data = torch.randn(4, 8, generator=torch.Generator().manual_seed(step * 2 + dist.get_rank()))
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
    if every and step % every == 0 and dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"{path}.new")
        os.replace(f"{path}.new", path)
dist.destroy_process_group()
"""


def checked(served: Server, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Type `regroup run --check` with the script and its arguments."""
    (folder / "saves.py").write_text(SCRIPT)
    (folder / "saved").mkdir()
    line = ["run", "--server", served.url, "--check", "--name", f"check-{'-'.join(arguments)}", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "regroup.api.cli", *line, str(folder / "saves.py"), str(folder / "saved")]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize(("every", "steps"), [("1", "step 7 is"), ("3", "step 7 is"), ("8", "steps 17 to 19 are")])
def test_a_script_that_saves_everything_is_equal(served: Server, tmp_path: Path, every: str, steps: str) -> None:
    done = checked(served, tmp_path, every, "all")
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = f"EQUAL: a restart from the program's checkpoint changes nothing: {steps} equal on every rank"
    assert done.stdout.splitlines()[-1] == verdict


def test_a_script_that_forgets_the_momentum_is_different(served: Server, tmp_path: Path) -> None:
    done = checked(served, tmp_path, "5", "model")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    verdict = "DIFFERENT: a restart from the program's checkpoint changes the state after its first step on ranks 0, 1"
    assert verdict in lines, done.stdout
    assert any(line.startswith("  optimizers  optim.momentum_buffer") for line in lines)


def test_a_script_that_saves_nothing_is_not_compared(served: Server, tmp_path: Path) -> None:
    done = checked(served, tmp_path, "0", "all")
    assert done.returncode == 1
    assert "NOT COMPARED: the program ended before steps were repeated: give it more steps" in done.stdout
