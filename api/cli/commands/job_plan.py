"""The verb planned: what the planner chose for a job and why, and how far off it was."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regroup.api.cli.common.options import AsJson, Job, Server
from regroup.api.cli.common.output import print_json, print_table
from regroup.api.live.predictions import FIGURES, cells

if TYPE_CHECKING:
    from regroup.api.schemas.job_plan import JobPlan


def planned(job: Job, server: Server = None, as_json: AsJson = False) -> None:
    """Show what the planner chose for a job and why, and what it predicted beside what was measured."""
    from regroup.api.cli.commands.plan import print_report
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        found = client.job_plan(job)
    if as_json:
        print_json(found)
        return
    if found.report is None:
        print("the spec says the layout itself: nothing was chosen")
    else:
        fixed = f", with {', '.join(found.given)} as given" if found.given else ""
        print(f"chosen when it was submitted, for {_asked(found.asked or {})}{fixed}")
        print_report(found.report)
    print()
    _print_trials(found)
    if not found.generations:
        print(f"nothing is predicted of it: {found.why_not}" if found.why_not else "nothing is predicted yet")
        return
    header = ("GENERATION", "RANKS", "DEVICE", *(name.upper() for name in FIGURES.values()))
    rows = [
        (str(each.generation), str(each.ranks), each.device, *cells(each.model_dump())) for each in found.generations
    ]
    print_table(header, rows)
    if found.why_not:
        print(f"nothing is predicted of the newest: {found.why_not}")


def _print_trials(plan: "JobPlan") -> None:
    if not plan.trials:
        return
    rows = [
        (str(each.layout), f"{each.predicted_s:.3g} s", f"{each.measured_s:.3g} s" if each.measured_s else each.why)
        for each in plan.trials
    ]
    print_table(("TRIED", "PREDICTED", "MEASURED"), rows)
    if plan.kept_why:
        print(f"{'kept ' + str(plan.kept) if plan.kept else 'given up'}: {plan.kept_why}")
    print()


def _asked(asked: Mapping[str, Any]) -> str:
    ranks = asked.get("ranks")
    if not isinstance(ranks, dict):
        return "all ranks that the cluster held"
    if ranks["min"] == ranks["max"]:
        return f"{ranks['target']} ranks"
    return f"{ranks['target']} ranks, {ranks['min']} to {ranks['max']}"
