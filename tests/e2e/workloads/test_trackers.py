"""A tracker's run continues through generations: variables of each rank, and files that both generations append to."""

import json
from pathlib import Path

from tests.support.servers.regroup_server import Server

RECORDS = """
import json, os, pathlib, signal
names = ("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_NAME", "WANDB_RUN_GROUP", "MLFLOW_RUN_CONTEXT", "REGROUP_JOB_NAME",
         "REGROUP_TENSORBOARD_DIR", "TENSORBOARD_LOGGING_DIR")
print(json.dumps({name: os.environ[name] for name in names}), flush=True)
folder = pathlib.Path(os.environ["REGROUP_TENSORBOARD_DIR"])
folder.mkdir(parents=True, exist_ok=True)
generation, rank = os.environ["REGROUP_GENERATION"], os.environ["RANK"]
(folder / f"events.{generation}.{rank}").write_text("x")
if (generation, rank) == ("1", "1"):
    os.kill(os.getpid(), signal.SIGKILL)
import time
if generation == "1":
    time.sleep(1000)
"""


def test_the_variables_of_trackers_are_the_same_in_the_next_generation(served: Server, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(RECORDS)
    workload = {"kind": "script", "entrypoint": str(path)}
    env = {"WANDB_RUN_GROUP": "mine"}
    job = served.run({"name": "tracked", "workload": workload, "layout": {"dp": 2}, "env": env}, within_s=90)
    assert (job.state, job.generation) == ("SUCCEEDED", 2), (job.reason, job.message, job.error)
    variables = {
        (generation, rank): json.loads("".join(served.client.logs(job.id, rank=rank, generation=generation)))
        for generation in (1, 2)
        for rank in (0, 1)
    }
    assert variables[1, 0] == variables[2, 0] and variables[1, 1] == variables[2, 1]
    assert variables[1, 0]["WANDB_RUN_ID"] == job.id.replace("_", "-") != variables[1, 1]["WANDB_RUN_ID"]
    assert variables[1, 0]["WANDB_RUN_GROUP"] == "mine"
    folder = Path(variables[1, 0]["REGROUP_TENSORBOARD_DIR"])
    assert folder.parent == Path(job.storage_uri.removeprefix("file://"))
    assert {path.name for path in folder.iterdir()} >= {"events.1.1", "events.2.0", "events.2.1"}
