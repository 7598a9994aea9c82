"""Results of the demo: `summary.json` and `loss.png`."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regroup.api.live.job_view import Incident, JobView


@dataclass(frozen=True)
class Run:
    """One run of the demo: the final state of the job on the server, and its view."""

    job: Mapping[str, Any]
    view: JobView
    seconds: float
    """Time from submission to the terminal state."""

    @property
    def incident(self) -> Incident | None:
        """First incident that has ended."""
        return next((incident for incident in self.view.incidents if incident.is_over), None)


@dataclass(frozen=True)
class Verdict:
    """Claims of the demo, and the result of each."""

    succeeded: bool
    bitwise_equal: bool
    recovered: bool
    steps_lost: int | None
    below_entropy: bool
    held_out_falls: bool

    @property
    def is_confirmed(self) -> bool:
        """True if all claims hold."""
        return all((self.succeeded, self.bitwise_equal, self.recovered, self.below_entropy, self.held_out_falls))


def unigram_entropy(sources: Sequence[str], held_out: Sequence[str]) -> float:
    """Compute the entropy of single bytes of the text, in nats.

    This is the loss of a model that knows only the frequency of each byte.
    """
    without = {path for pattern in held_out for path in matching(pattern)}
    counts: Counter[int] = Counter()
    for pattern in sources:
        for path in matching(pattern):
            if path not in without:
                counts.update(path.read_bytes())
    total = counts.total()
    return -sum(count / total * math.log(count / total) for count in counts.values())


def matching(pattern: str) -> list[Path]:
    """Return the sorted files that match an absolute path or glob."""
    return sorted(Path("/").glob(pattern.lstrip("/")))


def judge(disturbed: Run, control: Run, entropy: float) -> Verdict:
    """Compare the two runs with the claims of the demo."""
    digests = [run.job.get("digest") or {} for run in (disturbed, control)]
    held_out = [step.validation_loss for step in disturbed.view.steps if step.validation_loss is not None]
    loss = disturbed.view.loss
    return Verdict(
        succeeded=disturbed.view.state == control.view.state == "SUCCEEDED",
        bitwise_equal=bool(digests[0].get("parameters")) and digests[0] == digests[1],
        recovered=disturbed.incident is not None,
        steps_lost=disturbed.incident.steps_lost if disturbed.incident else None,
        below_entropy=loss is not None and loss < entropy - 0.3,
        held_out_falls=len(held_out) >= 2 and held_out[-1] < held_out[0],
    )


def summary(disturbed: Run, control: Run, entropy: float, times: Mapping[str, float]) -> dict[str, Any]:
    """Return the results of the demo: times in seconds, losses in nats per byte."""
    verdict = judge(disturbed, control, entropy)
    incident = disturbed.incident
    return {
        "is_confirmed": verdict.is_confirmed,
        "found": asdict(verdict),
        "bitwise_equal": verdict.bitwise_equal,
        "recovery_seconds": incident.elapsed("first_step_s") if incident else None,
        "recovery_phases": dict(incident.times) if incident else {},
        "steps_lost": verdict.steps_lost,
        "final_loss": disturbed.view.loss,
        "unigram_entropy": entropy,
        "held_out_loss": {s.step: s.validation_loss for s in disturbed.view.steps if s.validation_loss is not None},
        "seconds": {**times, "run": disturbed.seconds, "control": control.seconds},
        "digest": {"run": disturbed.job.get("digest"), "control": control.job.get("digest")},
        "jobs": {"run": disturbed.view.job_id, "control": control.view.job_id},
        "states": {"run": disturbed.view.state, "control": control.view.state},
    }


def write(directory: Path, figures: Mapping[str, Any], disturbed: Run, control: Run) -> None:
    """Write `summary.json` and `loss.png` into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "summary.json").write_text(json.dumps(figures, indent=2) + "\n")
    _picture(directory / "loss.png", disturbed, control, float(figures["unigram_entropy"]))


def _picture(path: Path, disturbed: Run, control: Run, entropy: float) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*_curve(control.view), color="0.65", linewidth=3, label="control run without faults")
    axes.plot(*_curve(disturbed.view), color="tab:blue", linewidth=1, label="loss, one rank killed half-way")
    held_out = [(s.step, s.validation_loss) for s in disturbed.view.steps if s.validation_loss is not None]
    if held_out:
        axes.plot(*zip(*held_out, strict=True), "o-", color="tab:orange", markersize=4, label="held-out loss")
    axes.axhline(entropy, color="0.4", linestyle=":", label=f"unigram entropy of the text, {entropy:.2f}")
    if disturbed.incident:
        axes.axvline(disturbed.incident.at_step, color="tab:red", linestyle="--")
        axes.annotate(
            f"rank {disturbed.incident.rank} killed,\n{disturbed.incident.summary()}",
            (disturbed.incident.at_step, 0.62),
            xycoords=("data", "axes fraction"),
            xytext=(8, 0),
            textcoords="offset points",
            color="tab:red",
        )
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats per byte")
    axes.set_xlim(0, disturbed.view.steps_total)
    axes.set_title("4 FSDP ranks on 2 nodes, CPython's standard library as text")
    axes.legend(frameon=False)
    figure.savefig(path)


def _curve(view: JobView) -> tuple[list[int], list[float]]:
    points = [(s.step, s.loss) for s in view.steps if s.loss is not None]
    return [step for step, _ in points], [loss for _, loss in points]
