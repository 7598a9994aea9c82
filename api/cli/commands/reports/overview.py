"""The command overview."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_table
from regroup.api.live.formatting import ago

if TYPE_CHECKING:
    from regroup.api.schemas.summaries.overview import DeviceClasses, Overview


def overview(server: Server = None, as_json: AsJson = False) -> None:
    """Show what runs, what waits and why, what needs a person, and the incidents of the last day."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.overview()
    if as_json:
        print_json(found)
        return
    print("\n".join(_lines(found)))
    if found.incidents:
        now = time.time()
        rows = [
            (
                ago(each.seen_s, now),
                each.job_name,
                str(each.number),
                each.cause,
                _seconds(each.total_s),
                _lost(each.steps_lost),
            )
            for each in found.incidents
        ]
        print()
        print_table(("SEEN", "JOB", "NUMBER", "CAUSE", "TOTAL", "STEPS LOST"), rows)


def _lines(found: "Overview") -> Iterator[str]:
    yield found.summary
    for item in found.attention:
        yield f"! {item.message}"
        yield f"  {item.remedy}"
    if found.devices is not None:
        yield f"devices: {_devices(found.devices)}"
    for reason in found.queue:
        yield f"waiting, {reason.reason}: {reason.jobs}, for example {reason.job_name}"
    days = ["-" if each.goodput is None else f"{100 * each.goodput:.1f} %" for each in found.goodput]
    yield f"goodput by day, newest last: {', '.join(days)}"


def _devices(found: "DeviceClasses") -> str:
    names = ("productive", "starting", "recovering", "held", "idle", "closed")
    return ", ".join(f"{getattr(found, name):g} {name}" for name in names)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _lost(value: int | None) -> str:
    return "-" if value is None else str(value)
