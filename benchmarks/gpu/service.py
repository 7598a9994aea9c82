"""Jobs of a real server on Ray: an undisturbed one, one that loses its rank, one that hangs, and device errors."""

import sys

from benchmarks.cluster.regroup_server import Server, run_server
from benchmarks.gpu.program import SMALL, TOY, Given, parse, spec
from regroup.workers.agent.diagnostics import process_stats

_STEPS = 24
_OUT_OF_MEMORY = """
import torch
held = []
while True:
    held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda").fill_(1))
"""
_POISONED = """
import torch
table = torch.ones(4, device="cuda")
table[torch.tensor([9], device="cuda")].sum().item()
"""
_HANGS = """
import os
import time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    WAIT
"""
"""A program that waits forever, and ends at once after a restart."""
_HANGS_ON = {
    "cpu": "time.sleep(10**6)",
    # A kernel of about half an hour. The host waits for it inside the driver.
    "cuda": "import torch; torch.cuda._sleep(4 * 10**12); torch.cuda.synchronize()",
}


def main() -> int:
    """Run the jobs one after the other on one server."""
    given = parse(__doc__)
    environment = {} if given.is_dry else {"REGROUP_LOCAL_GPUS_PER_NODE": "1"}
    given.values.record("gpu_readings", process_stats.gpus())
    with run_server(given.folder / "server", environment, nodes=1) as server:
        _compare_with_killed(given, server)
        _hang(given, server)
        if not given.is_dry:
            _fail(given, server, "out_of_memory", _OUT_OF_MEMORY)
            _fail(given, server, "poisoned_context", _POISONED)
    return 0


def _compare_with_killed(given: Given, server: Server) -> None:
    size = TOY if given.is_dry else SMALL
    whole = server.finish(server.client.submit(spec(given, size, steps=_STEPS, name="whole")).id)
    faults = [{"at": {"rank": 0, "step": step, "phase": phase}} for step, phase in ((7, "backward"), (15, "snapshot"))]
    killed = server.finish(server.client.submit(spec(given, size, steps=_STEPS, name="killed") | {"faults": faults}).id)
    given.values.record("incidents", len(killed["incidents"]))
    given.values.record("recovery_s", [each["durations"].get("total") for each in killed["incidents"]])
    given.values.record("bitwise_equal", killed["digest"] == whole["digest"])
    assert killed["digest"] == whole["digest"], (killed["digest"], whole["digest"])
    assert len(killed["incidents"]) == len(faults)


def _hang(given: Given, server: Server) -> None:
    """Run a script that hangs, on a GPU inside a kernel: the hang is detected, and its death is proven."""
    path = given.folder / "hangs.py"
    path.write_text(_HANGS.replace("WAIT", _HANGS_ON[given.device]))
    job = server.finish(server.client.submit({
        "name": "hangs", "workload": {"kind": "script", "entrypoint": str(path)}, "layout": {"dp": 1},
        "resources": {"device": given.device}, "recovery": {"hang": {"after": "10s", "first_step": "10s"}},
    }).id)  # fmt: skip
    (incident,) = job["incidents"]
    given.values.record("hang", incident["reason"], cause=incident["cause"], durations=incident["durations"])
    assert incident["reason"] == "hang", incident


def _fail(given: Given, server: Server, name: str, source: str) -> None:
    """Run a script that fails on its device, and record how the service describes that."""
    path = given.folder / f"{name}.py"
    path.write_text(source)
    job = server.client.submit({
        "name": name.replace("_", "-"), "workload": {"kind": "script", "entrypoint": str(path)},
        "layout": {"dp": 1}, "resources": {"device": "cuda"}, "recovery": {"budgets": {"user_error": 0}},
    })  # fmt: skip
    ended = server.client.wait(job.id, timeout_s=240)
    given.values.record(name, str(ended.reason), state=str(ended.state), message=ended.message)
    assert ended.state == "FAILED", ended


if __name__ == "__main__":
    sys.exit(main())
