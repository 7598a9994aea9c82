"""Jobs whose stored record is damaged: every route answers, and other jobs are not affected."""

import pytest
import sqlalchemy as sa


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("spec", "{ torn"),
        ("spec", '{"name": 7}'),
        ("layout", '{"dp_shard": "wide"}'),
        ("conditions", "[1]"),
        ("rank_phases", '{"0": 1}'),
        ("result", "[]"),
        ("created_at", "never"),
    ],
)
async def test_a_damaged_job_is_shown_and_can_be_cancelled(live, column, value):
    broken, sound = (await live.submit(name="broken"))["id"], (await live.submit(name="sound"))["id"]
    async with live.store._database.write() as connection:
        statement = sa.text(f"UPDATE jobs SET {column} = :value WHERE id = :id")
        await connection.execute(statement, {"value": value, "id": broken})
    shown = await live.http.get(f"/v1/jobs/{broken}")
    assert shown.status_code == 200, shown.text
    assert [each["type"] for each in shown.json()["conditions"]] == ["PlatformFault"]
    assert (shown.json()["spec"] is None) is (column == "spec")
    why = await live.http.get("/v1/jobs/broken/why")
    assert why.status_code == 200, why.text
    listed = (await live.http.get("/v1/jobs")).json()["jobs"]
    assert [job["id"] for job in listed] == [sound, broken]
    other = (await live.http.get("/v1/jobs/sound/why")).json()
    assert other["queue_position"] is not None and other["conditions"] == []
    ledger = await live.http.get("/v1/jobs/broken/ledger")
    assert ledger.status_code in (200, 422), ledger.text
    cancelled = await live.http.post("/v1/jobs/broken/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "CANCELLED")
