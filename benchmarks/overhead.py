"""Cost of supervision: the built-in trainer under regroup, with a snapshot every step, against a bare torch loop.

usage: python -m benchmarks.overhead --json PATH [--trials N] [--rounds N]

Three arms of four ranks each are alive and warm at the same time: the supervised job, a bare FSDP2 loop with the same
mathematics and data, and a twin of that loop for the A/A ratio. A gate lets one arm at a time run a block of two
steps. A round is one block of each arm, in an order that changes from round to round.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.arms.bare_ranks import bare_ranks
from benchmarks.cluster.costs import control_plane_s, idle_cores
from benchmarks.cluster.ray_nodes import settle
from benchmarks.cluster.regroup_server import Server, run_server
from benchmarks.gates.gate import GateServer, rounds
from benchmarks.peers.bare_loop import BareSettings
from benchmarks.peers.workload import RANKS, Workload, write_text
from benchmarks.report import plots
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.trials import stats

_SUPERVISED, _BARE, _TWIN = "supervised", "bare", "bare_twin"
_BLOCK_STEPS = 2
_WARM_UP_STEPS = 10
_IDLE_S = 20.0
_ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the trials and write the result."""
    parser = arguments(__doc__ or "", trials=5)
    parser.add_argument("--rounds", type=int, default=160, help="rounds per trial, default 160: 320 steps per arm")
    given = parser.parse_args()
    end_tidily_on_sigterm()
    # One step more than the gate admits: the last step is always saved to disk, and a measured step excludes that.
    steps = _WARM_UP_STEPS + _BLOCK_STEPS * given.rounds + 1
    trials: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        root = Path(scratch)
        write_text(root / "text")
        workload = Workload(text=str(root / "text"), steps=steps)
        with run_server(root) as server:
            was_idle = settle()
            idle = idle_cores(server, _IDLE_S)
            for number in range(given.trials):
                folder = root / str(number)
                folder.mkdir()
                trials.append(_trial(server, workload, folder, given.rounds, number))
                print(f"trial {number}: {json.dumps(trials[-1]['summary'])}", flush=True)
    document = result(trials)
    document["idle_cores"] = idle
    document["machine_was_idle"] = was_idle
    document["workload"] = {**workload.to_json(), "text": "sources of the Python standard library"}
    write_result(given.json, document)
    plots.overhead([block for trial in trials for block in trial["rounds"]], document, given.json.with_suffix(".png"))
    return 0


def result(trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the document: the ratios over the rounds of all trials, and each trial with its rounds."""
    blocks = [block for trial in trials for block in trial["rounds"]]
    ratio = stats.ratio_of_totals(pairs(blocks))
    same = stats.ratio_of_totals([(block[_TWIN], block[_BARE]) for block in blocks])
    return {
        "ratio": ratio.value,
        "ci_half_width": ratio.half_width,
        "interval": asdict(ratio),
        "ratio_typical_block": asdict(stats.ratio_of_typical(pairs(blocks))),
        "aa_ratio": asdict(same),
        "aa_deviation": abs(same.value - 1),
        "snapshot_stall_fraction": sum(trial["stall_s"] for trial in trials)
        / sum(_BLOCK_STEPS * block[_SUPERVISED] for block in blocks),
        "step_s": {arm: stats.summary([block[arm] for block in blocks]) for arm in (_SUPERVISED, _BARE, _TWIN)},
        "steps_per_arm": _BLOCK_STEPS * len(blocks),
        "max_loss_difference": max(trial["max_loss_difference"] for trial in trials),
        "trials": list(trials),
    }


def pairs(blocks: Sequence[Mapping[str, float]]) -> list[tuple[float, float]]:
    """Pair the supervised step time with the mean of the two bare arms, block by block."""
    return [(block[_SUPERVISED], (block[_BARE] + block[_TWIN]) / 2) for block in blocks]


def _trial(server: Server, workload: Workload, folder: Path, count: int, number: int) -> dict[str, Any]:
    with GateServer(folder / "gate") as gate:
        environment = {"PYTHONPATH": str(_ROOT), "BENCHMARK_GATE": str(folder / "gate")}
        spec = workload.job_spec("overhead", env=environment, preload=["benchmarks.gates.gated_trainer"])
        job = server.client.submit(spec)
        gate.admit(_SUPERVISED, RANKS)
        tokens = (folder / "gate.tokens").read_text()
        with _bare(_BARE, workload, tokens, folder), _bare(_TWIN, workload, tokens, folder):
            for arm in (_BARE, _TWIN):
                gate.admit(arm, RANKS)
            for arm in (_SUPERVISED, _BARE, _TWIN):
                gate.run_block(arm, _WARM_UP_STEPS)
            control_before, begun = control_plane_s(server), time.monotonic()
            blocks = [
                {arm: gate.run_block(arm, _BLOCK_STEPS) / _BLOCK_STEPS for arm in order}
                for order in rounds((_SUPERVISED, _BARE, _TWIN), count, shuffle_seed=number)
            ]
            control_s, wall_s = control_plane_s(server) - control_before, time.monotonic() - begun
            gate.close()
    server.finish(job.id)
    rows = server.steps(job.id)
    gated = [row for row in rows if _WARM_UP_STEPS < row["step"] <= _WARM_UP_STEPS + _BLOCK_STEPS * count]
    losses = json.loads((folder / f"{_BARE}-losses.json").read_text())
    return {
        "summary": {
            "ratio": stats.ratio_of_totals(pairs(blocks)).value,
            "aa_ratio": stats.ratio_of_totals([(block[_TWIN], block[_BARE]) for block in blocks]).value,
        },
        # The row of the next step reports the stall of a step.
        "stall_s": sum(row["stall_s"] for row in gated),
        "control_plane_cores": control_s / wall_s,
        "max_loss_difference": max(abs(row["loss"] - loss) for row, loss in zip(rows, losses, strict=False)),
        "rounds": blocks,
    }


def _bare(arm: str, workload: Workload, tokens: str, folder: Path) -> AbstractContextManager[None]:
    settings = BareSettings(
        workload.to_json(), workload.model, {"dp_shard": RANKS}, "fsdp", tokens,
        str(folder / "gate"), arm, str(folder / f"{arm}-losses.json"),
    )  # fmt: skip
    return bare_ranks("bare_loop", arm, asdict(settings), folder)


if __name__ == "__main__":
    sys.exit(main())
