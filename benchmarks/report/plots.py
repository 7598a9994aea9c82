"""Plots of benchmark results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

matplotlib.use("Agg")

_NAMES = {
    "regroup": "regroup",
    "regroup_cold": "regroup,\nno standby",
    "torchrun": "torchrun",
    "ray_train_tuned": "Ray Train 2.60,\ntuned settings",
    "ray_train": "Ray Train 2.60,\ndefault settings",
}
_COLORS = {
    "regroup": "#1b7f5c",
    "regroup_cold": "#6fb59b",
    "torchrun": "#737373",
    "ray_train_tuned": "#8c8c8c",
    "ray_train": "#b8b8b8",
}
_FIGURES = {
    "kill_to_first_step_s": "SIGKILL of a rank → first step after restart",
    "submit_to_first_step_s": "submit → first step",
}
_FAULTS = {
    "rank_exit": ("total_s", "SIGKILL of a rank → new step"),
    "hang": ("total_s", "SIGSTOP of a rank → new step"),
    "node_loss": ("total_s", "node killed or frozen → new step"),
    "supervisor": ("readopt_s", "SIGKILL of the supervisor → new step recorded"),
}


def recovery(document: Mapping[str, Any], path: Path) -> None:
    """Plot the medians as bars and each trial as a dot."""
    names = [name for name in _NAMES if name in document["arms"]]
    figure, axes = plt.subplots(1, len(_FIGURES), figsize=(10, 2.8), layout="constrained")
    for axis, (key, title) in zip(axes, _FIGURES.items(), strict=True):
        medians = [document["arms"][name][key]["p50"] for name in names]
        axis.barh([_NAMES[name] for name in names], medians, color=[_COLORS[name] for name in names], height=0.6)
        for row, name in enumerate(names):
            values = [trial[key] for trial in document["trials"] if trial["arm"] == name]
            axis.plot(values, [row] * len(values), "o", color="black", markersize=3, alpha=0.6)
            place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            axis.annotate(f"{medians[row]:.1f} s", (max(values), row), **place)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("seconds")
        axis.margins(x=0.15)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def overhead(rounds: Sequence[Mapping[str, float]], document: Mapping[str, Any], path: Path) -> None:
    """Plot the step times over the run and the distribution of the paired ratios."""
    figure, (course, spread) = plt.subplots(1, 2, figsize=(10, 3), layout="constrained", width_ratios=(3, 2))
    for arm, color in (("bare", "#8c8c8c"), ("supervised", "#1b7f5c")):
        course.plot([1000 * block[arm] for block in rounds], ".", markersize=3, color=color, label=arm)
    course.set_xlabel("block of two steps, arms alternating")
    course.set_ylabel("ms per step")
    course.set_ylim(bottom=0)
    course.legend(frameon=False)
    spread.hist([block["bare_twin"] / block["bare"] for block in rounds], bins=40, alpha=0.5, color="#8c8c8c",
                label="bare / bare (A/A)")  # fmt: skip
    spread.hist([block["supervised"] / block["bare"] for block in rounds], bins=40, alpha=0.5, color="#1b7f5c",
                label=f"supervised / bare: {document['ratio']:.3f} ± {document['ci_half_width']:.3f}")  # fmt: skip
    spread.set_xlabel("ratio of paired blocks")
    spread.set_yticks([])
    spread.legend(frameon=False, fontsize=8)
    for axis in (course, spread):
        axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def layouts(document: Mapping[str, Any], path: Path) -> None:
    """Plot tokens per second relative to a plain torch loop, with intervals, one row per layout."""
    found = document["layouts"]
    figure, axis = plt.subplots(figsize=(7, 0.5 + 0.4 * len(found)), layout="constrained")
    for row, (name, layout) in enumerate(found.items()):
        axis.plot([layout["low"], layout["high"]], [row, row], color="#1b7f5c")
        axis.plot(layout["value"], row, "o", color="#1b7f5c", label=name)
    axis.axvline(1, color="#8c8c8c", linewidth=1)
    axis.set_yticks(range(len(found)), list(found))
    axis.invert_yaxis()
    axis.set_xlabel("tokens per second of the trainer, relative to a plain torch loop of the same layout")
    axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def faults(document: Mapping[str, Any], path: Path) -> None:
    """Plot each injection as a dot and the median as a bar, one row per kind of failure."""
    rows = [name for name in _FAULTS if document.get(name, {}).get("trials")]
    figure, axis = plt.subplots(figsize=(8, 0.8 + 0.5 * len(rows)), layout="constrained")
    for row, name in enumerate(rows):
        key, _ = _FAULTS[name]
        values = sorted(trial[key] for trial in document[name]["trials"])
        axis.barh(row, values[len(values) // 2], color="#1b7f5c", height=0.6)
        axis.plot(values, [row] * len(values), "o", color="black", markersize=3, alpha=0.6)
    axis.set_yticks(range(len(rows)), [_FAULTS[name][1] for name in rows])
    axis.invert_yaxis()
    axis.set_xlabel("seconds")
    axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def planner(document: Mapping[str, Any], path: Path) -> None:
    """Plot predicted against measured step times of all rows, for both folds, with one colour per software stack."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", sharex=True, sharey=True)
    titles = {"within_s": "one model size left out, same stack", "across_s": "a whole stack left out"}
    figures = {"within_s": "within_stack", "across_s": "across_sources"}
    stacks = sorted({point["stack"] for point in document["points"]})
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for number, stack in enumerate(stacks):
            points = [point for point in document["points"] if point["stack"] == stack]
            measured = [point["measured_s"] for point in points]
            axis.loglog(measured, [point[key] for point in points], ".", color=f"C{number}", label=stack, alpha=0.7)
        ends = [0.5, 400]
        axis.plot(ends, ends, color="black", linewidth=0.8)
        for share in (0.8, 1.2):
            axis.plot(ends, [share * end for end in ends], color="black", linewidth=0.5, linestyle=":")
        axis.set_title(f"{title}: {100 * document['mape'][figures[key]]:.1f} % mean error", fontsize=10)
        axis.set_xlabel("measured seconds per step")
    axes[0].set_ylabel("predicted seconds per step; dotted: 20 % error")
    axes[0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
