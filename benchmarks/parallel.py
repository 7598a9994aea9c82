"""Cost of the built-in trainer's layouts compared with handwritten torch loops of the same layouts.

usage: python -m benchmarks.parallel --json PATH [--trials N] [--rounds N]

For each layout, two arms of four ranks are alive and warm at the same time. One is the trainer, with the automatic
snapshot interval (`every_steps: auto`). The other is a plain torch loop with the same mathematics and data. A gate lets
one arm at a time run a block of two steps. A round is one block of each arm, in an order that changes from round to
round.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.arms.bare_ranks import bare_ranks
from benchmarks.gates.gate import GateServer, rounds
from benchmarks.gates.gated_trainer import ARM as TRAINER
from benchmarks.peers.bare_loop import BareSettings
from benchmarks.peers.trainer_alone import AloneSettings
from benchmarks.peers.workload import RANKS, Workload, write_text
from benchmarks.report import plots
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.trials import stats
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.supervisor.job_state.rank_config import rank_config
from regroup.workers.contract.codec import plain
from regroup.workers.data.tokenize import prepare

LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {"dp": 4, "data_parallel": "ddp"},
    "zero1": {"dp": 4, "data_parallel": "zero1"},
    "fsdp": {"dp": 4},
    "hsdp": {"dp": 4, "dp_shard": 2},
    "tp2 x fsdp2": {"dp": 2, "tp": 2},
    "pp2 x fsdp2": {"dp": 2, "pp": 2},
    "pp2 x tp2": {"tp": 2, "pp": 2},
    "pp4": {"pp": 4},
}
_BARE = "bare"
_BLOCK_STEPS = 2
_WARM_UP_STEPS = 6
_WIDEST, _MOST_TIMES = 0.02, 2
"""Widest accepted half-width, and the largest multiple of the requested trials. A layout whose interval is wider gets
more trials. So the width of the interval ends the trials, never its position."""


def main() -> int:
    """Run the trials and write the result."""
    parser = arguments(__doc__ or "", trials=3)
    parser.add_argument("--rounds", type=int, default=40, help="rounds per trial and layout, default 40")
    given = parser.parse_args()
    end_tidily_on_sigterm()
    steps = _WARM_UP_STEPS + _BLOCK_STEPS * given.rounds + 1
    trials: dict[str, list[dict[str, Any]]] = {name: [] for name in LAYOUTS}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        root = Path(scratch)
        write_text(root / "text")
        workload = Workload(text=str(root / "text"), steps=steps)
        for number in range(_MOST_TIMES * given.trials):
            for name in LAYOUTS:
                if number >= given.trials and _ratio(trials[name]).half_width <= _WIDEST:
                    continue
                folder = root / f"{number}-{name.replace(' ', '')}"
                folder.mkdir()
                trials[name].append(_trial(workload, name, folder, given.rounds, number))
                print(f"trial {number}, {name}: {json.dumps(trials[name][-1]['summary'])}", flush=True)
    document = result(trials)
    document["workload"] = {**workload.to_json(), "text": "sources of the Python standard library"}
    write_result(given.json, document)
    plots.layouts(document, given.json.with_suffix(".png"))
    return 0


def result(trials: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the document: per layout, the trainer's tokens per second relative to the loop's, with the interval."""
    layouts: dict[str, Any] = {}
    for name, own in trials.items():
        blocks, ratio = [block for trial in own for block in trial["rounds"]], _ratio(own)
        layouts[name] = {
            **asdict(ratio),
            "half_width": ratio.half_width,
            "step_s": {arm: stats.summary([block[arm] for block in blocks]) for arm in (TRAINER, _BARE)},
            "max_loss_difference": max(trial["max_loss_difference"] for trial in own),
            "trials": list(own),
        }
    return {
        "min_ratio": min(layout["high"] for layout in layouts.values()),
        "max_ci_half_width": max(layout["half_width"] for layout in layouts.values()),
        "layouts": layouts,
    }


def _ratio(trials: Sequence[Mapping[str, Any]]) -> stats.Interval:
    return stats.ratio_of_totals([(block[_BARE], block[TRAINER]) for trial in trials for block in trial["rounds"]])


def _trial(workload: Workload, name: str, folder: Path, count: int, number: int) -> dict[str, Any]:
    spec = _spec(workload, LAYOUTS[name])
    layout = {axis: degree for axis, degree in spec.ladder[-1].to_json().items() if degree > 1}
    source = {"train": [workload.text], "validation": [], "tokenizer": "byte", "sequence": workload.sequence}
    dataset = prepare({**source, "directory": str(folder / "prepared")}, [])
    losses = {arm: folder / f"{arm}-losses.json" for arm in (TRAINER, _BARE)}
    alone = AloneSettings(plain(rank_config(spec)), layout, dataset, str(losses[TRAINER]))
    bare = BareSettings(
        workload.to_json(), dict(rank_config(spec).model), layout, spec.layout.data_parallel, str(dataset["train"]),
        str(folder / "gate"), _BARE, str(losses[_BARE]),
    )  # fmt: skip
    with (
        GateServer(folder / "gate") as gate,
        bare_ranks("trainer_alone", TRAINER, asdict(alone), folder, BENCHMARK_GATE=str(folder / "gate")),
        bare_ranks("bare_loop", _BARE, asdict(bare), folder),
    ):
        for arm in (TRAINER, _BARE):
            gate.admit(arm, RANKS)
        for arm in (TRAINER, _BARE):
            gate.run_block(arm, _WARM_UP_STEPS)
        blocks = [
            {arm: gate.run_block(arm, _BLOCK_STEPS) / _BLOCK_STEPS for arm in order}
            for order in rounds((TRAINER, _BARE), count, shuffle_seed=number)
        ]
        gate.close()
    ours, theirs = (json.loads(path.read_text()) for path in losses.values())
    return {
        "summary": {"ratio": stats.ratio_of_totals([(block[_BARE], block[TRAINER]) for block in blocks]).value},
        "max_loss_difference": max(abs(a - b) for a, b in zip(ours, theirs, strict=False)),
        "rounds": blocks,
    }


def _spec(workload: Workload, layout: Mapping[str, Any]) -> JobSpec:
    spec = workload.job_spec("parallel", layout=dict(layout))
    spec["snapshot"] = {}
    spec["workload"]["model"] = {**workload.model, "vocab_size": 260}
    return parse_spec(spec)


if __name__ == "__main__":
    sys.exit(main())
