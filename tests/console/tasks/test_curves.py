"""Tasks of operators on curves and comparisons."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.support.console.operator_tasks import operator_task
from tests.support.console.signed_in_page import Console

pytestmark = pytest.mark.browser


@operator_task("compare_two_runs")
async def test_compare_two_runs(console: Console, live: Any, job_events: Any) -> None:
    first, second = [(await live.submit(name=name, seed=seed))["id"] for name, seed in (("first", 1), ("second", 2))]
    for job, difference in ((first, 0.0), (second, 1.0)):
        await live.run(job)
        losses = [(number, 3 - number / 100 + (difference if number > 20 else 0)) for number in range(2, 41)]
        await live.report(job, *(job_events.step(1, number, loss=loss) for number, loss in losses))
    hands = await console.open(f"compare?job={first}")
    await hands.fill("Add a job", "second")
    await hands.press("Enter")
    row = console.page.get_by_role("region", name="Results").get_by_role("row").filter(has_text="second")
    await expect(row.get_by_role("cell").nth(5)).to_have_text("21")
    specs = console.page.get_by_role("region", name="Differences of the specs")
    await expect(specs.get_by_role("row").filter(has_text="seed").get_by_role("cell")).to_have_text(["1", "2"])
    found = await live.client(lambda client: client.diff(first, second))
    assert ("seed", 1, 2) in [(each.path, each.first, each.second) for each in found.differences]
    curves = await live.client(lambda client: client.curves_of_jobs([first, second], metrics=["loss"], points=40))
    one, two = (dict(zip(each.steps, each.values["loss"], strict=True)) for each in curves.jobs)
    assert next(step for step in one if abs(one[step] - two[step]) > 0.05 * abs(one[step])) == 21
