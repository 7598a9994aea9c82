"""Commands of `regroup chaos`: inject faults into a dedicated local service and measure their cost."""

import json
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import exit_with, print_json, print_message, print_table
from regroup.service.domain.detectors import Detector
from regroup.service.domain.errors import FieldIssue, SpecError

if TYPE_CHECKING:
    from regroup.api.chaos.verdicts import VerdictRecorder
    from regroup.api.schemas.reports.verdicts import ScenarioVerdict

app = typer.Typer(
    cls=GroupedCommands,
    help="Inject faults into a local service that the command starts and stops, and check the invariants afterwards.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="SCENARIO…", help="Names or numbers of scenarios, as `regroup chaos list` shows them."),
]
All = Annotated[bool, typer.Option("--all", help="Run all scenarios.")]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        help="Determines ranks, steps and phases: the same seed injects the same faults at the same points.",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="PATH", help="Also write the report to this file, and as Markdown to the same name with .md."
    ),
]
IsRecorded = Annotated[
    bool, typer.Option("--record/--no-record", help="Record each verdict at the server, if there is one.")
]
OfScenario = Annotated[
    str | None, typer.Option("--scenario", metavar="NAME", help="Verdicts of this scenario.  [default: all]")
]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="Largest number of verdicts.")]
Disabled = Annotated[
    list[Detector] | None,
    typer.Option("--disable-detector", metavar="DETECTOR", help="Disable a detector; the scenario that needs it must "
                 f"then fail. Repeatable. One of {', '.join(Detector)}."),
]  # fmt: skip
Detectors = Annotated[
    list[Detector] | None,
    typer.Argument(metavar="DETECTOR…", help=f"One or more of {', '.join(Detector)}.  [default: all]"),
]
Minutes = Annotated[
    float, typer.Option("--minutes", metavar="M", min=0.1, help="Training time of the job without faults, in minutes.")
]
Mix = Annotated[
    list[str] | None,
    typer.Option("--mix", metavar="CAUSE=SHARE", help="Share of a cause among the faults. Repeatable.  [default: "
                 "rank_exit=0.7 hang=0.1 node=0.05 supervisor=0.075 server=0.075]"),
]  # fmt: skip


def chaos_list(as_json: AsJson = False) -> None:
    """List the scenarios, and the faults that dedicated tests cover instead, with the reason."""
    from dataclasses import asdict

    from regroup.service.chaos.scenarios import ELSEWHERE, SCENARIOS

    if as_json:
        here = [{"number": each.number, "name": each.name, "what": each.what} for each in SCENARIOS]
        print_json({"scenarios": here, "elsewhere": [asdict(each) for each in ELSEWHERE]})
        return
    print_table(("#", "NAME", "FAULT"), [(each.number, each.name, each.what) for each in SCENARIOS])
    print()
    rows = [(each.number, each.what, each.why, each.tests) for each in ELSEWHERE]
    print_table(("#", "TESTED ELSEWHERE", "REASON", "TESTS"), rows)


def chaos_run(
    scenarios: Names = None,
    every: All = False,
    seed: Seed = 0,
    report: Report = None,
    disable_detector: Disabled = None,
    is_recorded: IsRecorded = True,
    server: Server = None,
) -> None:
    """Run scenarios and compare each with a control run without faults; exit 1 if an invariant is violated.

    Faults are injected only into local nodes that this command starts itself. The server records the verdicts.
    """
    from regroup.api.chaos.suite import Case, run_cases
    from regroup.service.chaos.scenarios import SCENARIOS, find_scenario, sort_key

    requested = list(SCENARIOS) if every else [find_scenario(name) for name in scenarios or ()]
    if unknown := [
        name for name, found in zip(scenarios or (), requested, strict=False) if found is None and not every
    ]:
        raise SpecError(
            [FieldIssue("SCENARIO", "no scenario has this name; `regroup chaos list` shows them", unknown[0])]
        )
    if not requested:
        raise SpecError([FieldIssue("SCENARIO", "needs at least one name, or --all")])
    _interrupt_on_sigterm()
    outcomes: list[dict[str, Any]] = []
    cases = [Case(each, seed, tuple(disable_detector or ())) for each in requested if each]
    with _recorder(server, is_recorded) as recorder:
        for _, outcome in run_cases(cases, print_message):
            found = outcome.to_json()
            outcomes = sorted([*outcomes, found], key=lambda each: sort_key(each["number"]))
            print_message(f"{outcome.name}: {'passed' if outcome.passed else 'FAILED'}")
            _write(report, {"seed": seed, "scenarios": outcomes}, outcomes)
            recorder.record(found)
    _print_and_exit(outcomes)


def chaos_results(
    scenario: OfScenario = None, limit: Limit = 50, server: Server = None, as_json: AsJson = False
) -> None:
    """List the verdicts that were recorded at the server, newest first."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.live.formatting import ago

    with connect(server) as client:
        found = client.chaos_verdicts(scenario=scenario, limit=limit)
    if as_json:
        print_json(found)
        return
    now = time.time()
    rows = [
        (
            ago(each.time_s, now), each.verdict.number, each.verdict.scenario, _verdict(each.verdict),
            _seconds(each.verdict.detect_s), _seconds(each.verdict.recover_s), str(each.verdict.steps_lost),
            each.verdict.version, each.recorded_by,
        )
        for each in found
    ]  # fmt: skip
    heads = ("RECORDED", "#", "SCENARIO", "VERDICT", "DETECTED", "RECOVERED", "STEPS LOST", "VERSION", "BY")
    print_table(heads, rows)


def chaos_detectors(detectors: Detectors = None, seed: Seed = 0, report: Report = None) -> None:
    """Disable one detector at a time and run the scenario that needs it; exit 1 if that scenario still passes.

    This proves that each detector is needed, and that a scenario can fail.
    """
    from regroup.api.chaos.suite import Case, run_cases
    from regroup.service.chaos.detector_coverage import DETECTOR_NEEDS

    _interrupt_on_sigterm()
    found: list[dict[str, Any]] = []
    cases = [Case(DETECTOR_NEEDS[each].scenario, seed, (each,)) for each in detectors or Detector]
    for case, outcome in run_cases(cases, print_message):
        (detector,) = case.disable_detectors
        is_needed = DETECTOR_NEEDS[detector].is_proven_by(outcome)
        found.append({"detector": detector.value, "is_needed": is_needed, **outcome.to_json()})
        print_message(
            f"{outcome.name} without {detector}: {'failed, as expected' if is_needed else 'UNEXPECTEDLY PASSED'}"
        )
        _write(report, {"seed": seed, "detectors": found}, found)
    _print_page(found)
    if not all(each["is_needed"] for each in found):
        exit_with(1)


def chaos_soak(
    minutes: Minutes = 20.0,
    seed: Seed = 0,
    mix: Mix = None,
    report: Report = None,
    is_recorded: IsRecorded = True,
    server: Server = None,
) -> None:
    """Run one long job with a fault about every 20 s and a spare node.

    A control run of the same length comes first. The server records the verdict.
    """
    from regroup.api.chaos.suite import run_soak
    from regroup.service.chaos.fault_plan import MIX, parse_mix, plan_soak

    try:
        shares = parse_mix(mix) if mix else MIX
        plan_soak(seed, steps=1, every=1, ranks=1, nodes=1, mix=shares)
    except ValueError as error:
        raise SpecError([FieldIssue("--mix", str(error))]) from error
    _interrupt_on_sigterm()
    outcome = run_soak(minutes, seed, shares, print_message)
    found = {**outcome.to_json(), "goodput": outcome.record.job["goodput"], "seconds": dict(outcome.record.seconds)}
    _write(report, {"seed": seed, "soak": found}, [found])
    with _recorder(server, is_recorded) as recorder:
        recorder.record(found)
    print(f"goodput {found['goodput']:.3f}" if found["goodput"] is not None else "no goodput")
    _print_and_exit([found])


@contextmanager
def _recorder(server: str | None, is_recorded: bool) -> Generator["VerdictRecorder"]:
    """Return a recorder of verdicts at the server; one that records nothing if there is no server."""
    from regroup.api.chaos.verdicts import VerdictRecorder
    from regroup.api.cli.common.connection import connect
    from regroup.api.client.discovery import address

    if not is_recorded or address(server) is None:
        yield VerdictRecorder(None, print_message)
        return
    with connect(server) as client:
        yield VerdictRecorder(client, print_message)


def _verdict(verdict: "ScenarioVerdict") -> str:
    violated = [name for name, is_kept in verdict.invariants.items() if not is_kept]
    without = f", without {', '.join(verdict.disabled_detectors)}" if verdict.disabled_detectors else ""
    return ("passed" if verdict.passed else " ".join(["FAILED", *violated])) + without


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _interrupt_on_sigterm() -> None:
    """Let SIGTERM stop the service that was started, as Ctrl-C does."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def _write(path: Path | None, document: dict[str, Any], outcomes: list[dict[str, Any]]) -> None:
    """Write the report as JSON, and as Markdown into the same folder."""
    from regroup import __version__
    from regroup.service.chaos.report import render_outcomes

    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        here = {"version": __version__, "cores": len(os.sched_getaffinity(0)), "date": time.strftime("%Y-%m-%d")}
        path.write_text(json.dumps({**document, **here}, indent=1) + "\n")
        path.with_suffix(".md").write_text(render_outcomes(outcomes))


def _print_page(outcomes: list[dict[str, Any]]) -> None:
    from regroup.service.chaos.report import render_outcomes

    print(render_outcomes(outcomes), end="")


def _print_and_exit(outcomes: list[dict[str, Any]]) -> None:
    _print_page(outcomes)
    if not all(outcome["passed"] for outcome in outcomes):
        exit_with(1)


_VERBS = (
    ("list", chaos_list), ("run", chaos_run), ("results", chaos_results), ("detectors", chaos_detectors),
    ("soak", chaos_soak),
)  # fmt: skip
for _name, _verb in _VERBS:
    app.command(_name)(_verb)
