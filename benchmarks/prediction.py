"""Step times and memory that the planner predicts after `regroup probe`, compared with real jobs on one machine.

usage: python -m benchmarks.prediction --json PATH [--trials N]

Each trial probes two local nodes of two slots. Then it trains the model of examples/pretrain-cpython.yaml with each
layout below. The prediction is for the layout that runs and uses only the measurements of that probe. The measured
values are the median duration of the job's steps, without the first ones, and the peak memory of any rank in them.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.cluster.regroup_server import Server, run_server
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from regroup.api.cli.spec_input.spec_file import read_spec
from regroup.service.domain.hardware import find_device
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import DOMAIN_LEVELS
from regroup.service.planner.constants import FITTED
from regroup.service.planner.cpu_calibration import calibrate_constants, measured_costs
from regroup.service.planner.formulas import TORCH_ADAM
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.model_shape import Model
from regroup.service.planner.time_model import step_time
from regroup.service.planner.types import Cluster, Plan, Work
from regroup.service.policy.measurements.hardware_overlay import measured_hardware
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.measurements.results import ProbeResult

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "pretrain-cpython.yaml"
LAYOUTS: Mapping[str, tuple[dict[str, Any], Plan]] = {
    "fsdp 4": ({"dp": 4}, Plan(Layout(dp_shard=4), 4, "fsdp")),
    "ddp 4": ({"dp": 4, "data_parallel": "ddp"}, Plan(Layout(dp_replicate=4), 4, "ddp")),
    "fsdp 2 x tp 2": ({"dp": 2, "tp": 2}, Plan(Layout(dp_shard=2, tp=2), 4, "fsdp")),
    "fsdp 2 x pp 2": ({"dp": 2, "pp": 2}, Plan(Layout(dp_shard=2, pp=2), 4, "fsdp")),
}
"""Layout name → the `layout` of the spec, and the same layout as a plan for the planner."""
_VOCABULARY = 258
"""An even number, so that two ranks can share the vocabulary."""
_MODEL = Model(layers=2, hidden=64, heads=4, vocabulary=_VOCABULARY, ffn=192, gated=True)
_STEPS, _FIRST = 80, 20


def main() -> int:
    """Run the trials and write the result."""
    given = arguments(__doc__ or "", trials=3).parse_args()
    end_tidily_on_sigterm()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, run_server(Path(folder)) as service:
        for trial in range(given.trials):
            probe = _probe(service)
            for name, (layout, plan) in LAYOUTS.items():
                predicted_s, predicted_bytes = predicted(probe, plan)
                measured_s, measured_bytes = _measured(service, f"{name.replace(' ', '-')}-{trial}", layout)
                rows.append({
                    "trial": trial, "layout": name,
                    "predicted_s": predicted_s, "measured_s": measured_s, "error": predicted_s / measured_s - 1,
                    "predicted_bytes": predicted_bytes, "measured_bytes": measured_bytes,
                    "memory_error": predicted_bytes / measured_bytes - 1,
                })  # fmt: skip
                print("trial {trial}: {layout:14} predicted {predicted_s:.4f} s, measured {measured_s:.4f} s,"
                      " error {error:+.1%}; memory {memory_error:+.1%}".format(**rows[-1]), flush=True)  # fmt: skip
    step, memory = ({name: _mean(rows, name, of) for name in LAYOUTS} for of in ("error", "memory_error"))
    write_result(given.json, {
        "rows": rows, "error": step, "worst_error": max(step.values()),
        "memory_error": memory, "worst_memory_error": max(memory.values()),
    })  # fmt: skip
    print(", ".join(f"{name} {error:.1%} and {memory[name]:.1%}" for name, error in step.items()))
    return 0


def _mean(rows: Sequence[Mapping[str, Any]], layout: str, error: str) -> float:
    return mean(abs(row[error]) for row in rows if row["layout"] == layout)


def predicted(probe: ProbeResult, plan: Plan) -> tuple[float, float]:
    """Predict the example's step time with this plan, in seconds, and the largest peak memory of a rank, in bytes."""
    device = find_device("cpu")
    assert device is not None
    there = measured_hardware(device, [probe])
    ranks = plan.layout.world_size
    costs = measured_costs(probe)
    cluster = Cluster(there.device, ranks, there.devices_per_node, there.network_bytes_s, there.link, costs)
    work, constants = Work(_MODEL, 16, 128, "fp32"), calibrate_constants(probe, FITTED).on(there.device)
    return step_time(work, cluster, plan, constants).step_s, peak_bytes(work, plan, constants, TORCH_ADAM)


def _probe(service: Server) -> ProbeResult:
    job = service.finish(service.client.probe(device="cpu").id)
    (result,) = [event.data for event in service.client.events(job["id"]) if event.type == "result"]
    found = result["probe"]
    nodes = [(f"node {at}", ("",) * len(DOMAIN_LEVELS)) for at in range(len(found["nodes"]))]
    return parse_probe_result(found, nodes, job_id=job["id"], time_s=job["finished_at"])


def _measured(service: Server, name: str, layout: dict[str, Any]) -> tuple[float, float]:
    spec = read_spec(EXAMPLE)
    spec["name"], spec["layout"], spec["faults"] = name, layout, []
    spec["workload"]["model"]["vocab_size"] = _VOCABULARY
    spec["training"] |= {"steps": _STEPS, "validate_every": None}
    spec["workload"]["data"]["validation"] = []
    job = service.finish(service.client.submit(spec).id)
    rows = [row for row in service.steps(job["id"]) if row["step"] > _FIRST]
    return median(row["duration_s"] for row in rows), max(row["extra"]["peak_bytes"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
