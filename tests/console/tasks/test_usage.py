"""Tasks of operators on the page about usage."""

import csv
import io
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.operator_tasks import operator_task
from tests.support.console.signed_in_page import Console
from tests.support.inputs.held_devices import allocate, end, reservation, submit

pytestmark = pytest.mark.browser


@operator_task("close_the_month")
async def test_close_the_month(console: Console, live: Any) -> None:
    start_s, end_s = _last_month()
    await submit(live.store, "j_month", "ana", project="speech")
    await allocate(live.store, live.lease, "j_month", reservation("j_month", "a", 4), now=start_s)
    await end(live.store, live.lease, "j_month", now=start_s + 3600)
    hands = await console.open("usage?by=project,user")
    await hands.select("Window", "Last month")
    await expect(console.page.get_by_role("cell", name="speech")).to_be_visible()
    async with console.page.expect_download() as downloading:
        await hands.click("button", "Download CSV")
    text = read(await (await downloading.value).path())
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["project"], row["user"], float(row["device_hours"])) == ("speech", "ana", 4.0)
    window = {"from": start_s, "to": end_s, "group_by": "project,user", "format": "csv"}
    assert text == (await live.http.get("/v1/usage", params=window)).text
    assert (await downloading.value).suggested_filename.startswith(f"usage-{datetime.fromtimestamp(start_s):%Y-%m}-01")


def read(path: Path) -> str:
    return path.read_text()


def _last_month() -> tuple[float, float]:
    """Return the start and the end of the last month in the zone of this machine, which the browser has, too."""
    now = datetime.now()
    months = now.year * 12 + now.month - 2
    return datetime(months // 12, months % 12 + 1, 1).timestamp(), datetime(now.year, now.month, 1).timestamp()
