"""Without a seed, ranks of a node, loader workers and restarts draw different numbers, as under torchrun."""

from pathlib import Path

from tests.support.jobs.script_jobs import output, script
from tests.support.servers.regroup_server import Server

DRAWS = """
import os, random, sys, time
from pathlib import Path
import numpy, torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.rand(())

if __name__ == "__main__":
    folder, restart, rank = Path(sys.argv[1]), os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    dropped = torch.nn.functional.dropout(torch.ones(64), 0.5).gt(0).int().tolist()
    loaded = [float(each) for each in DataLoader(Numbers(), batch_size=None, num_workers=1)]
    drawn = [torch.initial_seed(), "".join(map(str, dropped)), *loaded, random.random(), float(numpy.random.random())]
    print(*drawn, flush=True)
    (folder / f"{restart}-{rank}").touch()
    while len(list(folder.glob(f"{restart}-*"))) < 4:
        time.sleep(0.01)
    if restart == "0":
        raise ValueError("again")
"""


def test_unseeded_ranks_and_restarts_draw_different_numbers(served: Server, tmp_path: Path) -> None:
    (tmp_path / "draws.py").write_text(DRAWS)
    budgets = {"budgets": {"user_error": 1}}
    job = served.run(script("unseeded", tmp_path / "draws.py", str(tmp_path), ranks=4, recovery=budgets))
    assert (job.state, job.generation) == ("SUCCEEDED", 2), (job.reason, job.message, job.error)
    drawn = [
        output(served, job, generation=generation, rank=rank).split() for generation in (1, 2) for rank in range(4)
    ]
    for what, values in zip(
        ("seed", "mask", *["loaded"] * 4, "random", "numpy"), zip(*drawn, strict=True), strict=True
    ):
        assert len(set(values)) == 8, (what, values)
