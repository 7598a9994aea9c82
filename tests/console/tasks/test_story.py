"""Tasks of operators on the story of a job."""

import io
import zipfile
from typing import Any

import pytest

from tests.support.console.operator_tasks import operator_task
from tests.support.console.signed_in_page import Console
from tests.support.inputs.eventful_job import HANG, run_eventful_job

pytestmark = pytest.mark.browser


@operator_task("export_the_evidence_of_an_incident")
async def test_export_the_evidence_of_an_incident(console: Console, live: Any) -> None:
    job = await run_eventful_job(live)
    hands = await console.open(f"jobs/{job.id}/story")
    cause = "no rank moved on for 3 s"
    await hands.click("button", f"Incident {HANG}: {cause}")
    async with console.page.expect_download() as downloading:
        await hands.click("button", "Download the evidence")
    download = await downloading.value
    assert download.suggested_filename == f"eventful-incident-{HANG}.zip"
    with zipfile.ZipFile(await download.path()) as saved:
        found = {name: saved.read(name) for name in saved.namelist()}
    answer = await live.http.get(f"/v1/jobs/{job.id}/incidents/{HANG}/evidence")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as expected:
        assert found == {name: expected.read(name) for name in expected.namelist()}
    assert b"read_batch" in found["ranks/3/stacks.txt"]
