"""Renders docs/faults.md from the stored results of a run: faults, times until detection, and costs."""

from collections.abc import Mapping
from typing import Any

from regroup.service.chaos.fault_plan import EXTERNAL_FAULTS, MIX
from regroup.service.chaos.invariants import MEANINGS
from regroup.service.chaos.report import render_elsewhere
from regroup.service.chaos.scenarios import find_scenario, sort_key

_HEAD = """# Failures and their cost

This page is generated (`make docs`) from the newest measurement: `benchmarks/results/faults.json` of
`make bench-faults`. How recovery works is in [What a failure costs](guides/recovery.md) and in
[architecture](architecture.md).

## Inject faults yourself

```sh
regroup chaos list
```

lists the scenarios. `regroup chaos run node-frozen --seed 7 --json report.json` runs one. The command starts its own
service with local nodes. It runs a small job without faults, and again with the failure. It checks the invariants,
writes a report in JSON and Markdown, and stops all processes that it started. It exits with 1 if an invariant does not
hold. The seed determines ranks, steps and phases. The command injects external faults when it observes their step,
which may be a few steps later.

`regroup chaos soak --minutes 20 --seed 7` trains one long job with a failure about every 20 s.
`regroup chaos detectors` disables one detector after another: the scenario that needs the detector must then fail.

The command injects faults only into processes that it started. It kills and freezes local nodes, never those of another
cluster. A server that was started with `--allow-faults` accepts faults of ranks from any job: `faults` of the
[job spec](job-spec.md).
"""


_ELSEWHERE = """`regroup chaos` cannot run these scenarios. If a test injects faults into a job, it checks I1 to I8 as
the command does.
"""


def render_faults_page(faults: Mapping[str, Any]) -> str:
    """Render the whole page from stored results. Missing results are reported as missing."""
    parts = [_HEAD, "## Scenarios\n", _scenarios(faults.get("scenarios", {})), "## Invariants\n", _invariants()]
    parts += ["## External faults\n", _outside(), "## Figures\n", _figures(faults)]
    parts += ["## Scenarios with their own tests\n", _ELSEWHERE, render_elsewhere()]
    return "\n".join(parts)


def _scenarios(ran: Mapping[str, Any]) -> str:
    if not ran:
        return "No run is stored.\n"
    text = (
        f"The newest run, {ran['date']}, with seeds {', '.join(map(str, ran['seeds']))}: two nodes with two ranks "
        f"each on {ran['measured_on']['cores']} cores of one machine, a snapshot every step. *Detected* and "
        "*recovered* are times since the failure, median / 95th percentile of the runs. If a run had several "
        "incidents, the worst one counts. If a failure causes no incident, *recovered* is the time until the API "
        "shows the next step.\n"
    )
    lines = [
        "| # | injected | detected | recovered | most steps lost | cause, recovery action | I1–I8 hold |",
        "|---|---|---|---|---|---|---|",
    ]
    return (
        "\n".join([text, *lines, *map(_scenario, sorted(ran["rows"], key=lambda row: sort_key(row["number"])))]) + "\n"
    )


def _scenario(row: Mapping[str, Any]) -> str:
    causes = ", ".join(f"{reason}, {action or '–'}" for reason, action in row["causes"]) or "no incident"
    cells = (
        row["number"], _description(row), _spread(row["detect_s"]), _spread(row["recover_s"]),
        str(row["steps_lost_max"]), causes, f"{row['passed']} of {row['n']}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _description(row: Mapping[str, Any]) -> str:
    """Return today's description of a scenario; the stored one if the scenario is gone."""
    scenario = find_scenario(row["number"])
    return row["what"] if scenario is None else scenario.what


def _spread(spread: Mapping[str, float] | None) -> str:
    return "–" if spread is None else f"{spread['p50']:.2f} / {spread['p95']:.2f} s"


def _invariants() -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {meaning} |" for name, meaning in MEANINGS.items())]) + "\n"


def _outside() -> str:
    shares = ", ".join(f"{cause} {share:.1%}" for cause, share in MIX.items())
    lines = [f"- `{name}`: {meaning}" for name, meaning in EXTERNAL_FAULTS.items()]
    return "\n".join([*lines, "", f"The default mix of a soak: {shares}.", ""])


_ROWS = (
    ("SIGKILL of a rank → first new step", "rank_exit", ""),
    ("SIGSTOP of a rank → first new step", "hang", "total_"),
    ("a node killed or frozen → first new step", "node_loss", "total_"),
    ("SIGKILL of the supervisor → the API shows the next step", "supervisor", "readopt_"),
)


def _figures(faults: Mapping[str, Any]) -> str:
    lines = ["| from → to | injections | p50 | p95 | most steps lost |", "|---|---|---|---|---|"]
    for what, name, prefix in _ROWS:
        row = faults.get(name, {})
        if "n" in row:
            p50_s, p95_s = row[f"{prefix}p50_s"], row[f"{prefix}p95_s"]
            lines.append(f"| {what} | {row['n']} | {p50_s:.2f} s | {p95_s:.2f} s | {row['steps_lost_max']} |")
    if len(lines) == 2:
        return "No run of the benchmark is stored.\n"
    cores = {row["measured_on"]["cores"] for _, name, _ in _ROWS if "measured_on" in (row := faults.get(name, {}))}
    lines += [
        "",
        f"Two nodes with two ranks each on {', '.join(map(str, sorted(cores)))} cores of one machine, a snapshot every "
        "step; one job for each row, next to its control run. A stopped rank counts as working for about 8 s: "
        "that is the learned limit of its phase, and most of the time in the second row.",
        "",
        "![From failure to new step](../benchmarks/results/faults.png)",
    ]
    if (peers := faults.get("torchft", {})).get("ratio"):
        ours, theirs = (peers["full_strength_s"][name] for name in ("regroup", "torchft"))
        lines += [
            "",
            f"SIGKILL of a rank → all ranks train again, median of {ours['n']} in one run: {ours['p50']:.2f} s; "
            f"torchft 0.2.0 with a replacement replica: {theirs['p50']:.2f} s, {peers['ratio']:.1f} times as long.",
        ]
    if "goodput_mix" in (soak := faults.get("soak", {})):
        lines += [
            "",
            f"Soak of {soak['minutes']:g} minutes: goodput {soak['goodput_mix']:.3f} with the mix, "
            f"{soak['goodput_rank_exits']:.3f} with rank exits alone. The results are "
            f"{'bitwise equal' if soak['bitwise_equal'] else 'NOT equal'} to the control run.",
        ]
    return "\n".join(lines) + "\n"
