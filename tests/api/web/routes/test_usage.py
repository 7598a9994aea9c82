"""The usage report over HTTP: JSON with pages, CSV, prices, windows, and what each sender sees."""

import csv
from typing import Any

import httpx2
import pytest

from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from tests.support.inputs.held_devices import allocate, end, reservation, submit

PRICES = "{currency: EUR, device_hour: {H100: 2.5}}"
HOUR_S = 3600.0


@pytest.fixture
async def jobs(live: Any) -> None:
    """An hour of 4 H100 by ana in `vision`, an hour of 2 A100 by bob there, and an H100 since hour 2 in `speech`."""
    await submit(live.store, "j_one", "ana", project="vision")
    await allocate(live.store, live.lease, "j_one", reservation("j_one", "a", 4), now=HOUR_S)
    await end(live.store, live.lease, "j_one", now=2 * HOUR_S)
    await submit(live.store, "j_two", "bob", project="vision")
    await allocate(live.store, live.lease, "j_two", reservation("j_two", "a", 2, "A100"), now=HOUR_S)
    await end(live.store, live.lease, "j_two", now=2 * HOUR_S)
    await submit(live.store, "j_three", "bob", project="speech")
    await allocate(live.store, live.lease, "j_three", reservation("j_three", "a", 1), now=2 * HOUR_S)


@pytest.fixture
def prices(live: Any) -> None:
    object.__setattr__(live.services.settings, "prices", PRICES)  # settings are frozen


async def report(live: Any, **parameters: Any) -> dict[str, Any]:
    answer = await live.http.get("/v1/usage", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_report_has_device_hours_and_cost(live: Any, jobs: None, prices: None) -> None:
    found = await report(live, group_by="project,user,class", to=3 * HOUR_S)
    assert (found["from_s"], found["to_s"], found["next_page_token"]) == (0.0, 3 * HOUR_S, "")
    named = ("project", "user", "accelerator", "job", "device_hours", "cost", "currency", "unpriced")
    assert [tuple(row[name] for name in named) for row in found["rows"]] == [
        ("speech", "bob", "H100", None, 1.0, 2.5, "EUR", []),
        ("vision", "ana", "H100", None, 4.0, 10.0, "EUR", []),
        ("vision", "bob", "A100", None, 2.0, None, "EUR", ["A100"]),
    ]
    (speech, vision) = (await report(live, to=3 * HOUR_S))["rows"]
    assert (vision["device_hours"], vision["cost"], vision["unpriced_device_hours"]) == (6.0, 10.0, 2.0)
    (half,) = (await report(live, **{"from": 1.5 * HOUR_S, "to": 1.75 * HOUR_S}))["rows"]
    assert (half["project"], half["device_hours"], half["cost"]) == ("vision", 1.5, 2.5)
    (job,) = (await report(live, group_by="job", project="speech", to=3 * HOUR_S))["rows"]
    assert (job["job"], job["job_name"], job["project"]) == ("j_three", "j-three", None)
    assert speech["device_hours"] == 1.0


async def test_without_a_price_table_nothing_has_a_cost(live: Any, jobs: None) -> None:
    for row in (await report(live, group_by="class", to=3 * HOUR_S))["rows"]:
        assert (row["cost"], row["currency"], row["unpriced"]) == (None, None, [row["accelerator"]])
        assert row["unpriced_device_hours"] == row["device_hours"] > 0


async def test_a_live_job_counts_until_now_and_not_beyond(live: Any, jobs: None) -> None:
    before = live.services.clock()
    found = await report(live, group_by="job", project="speech", to=before + 1e6)
    assert before <= found["to_s"] <= live.services.clock()
    (row,) = found["rows"]
    assert row["device_hours"] == pytest.approx((found["to_s"] - 2 * HOUR_S) / HOUR_S)


async def test_pages_share_their_window_and_contain_each_row_once(live: Any, jobs: None) -> None:
    found, token, ends = list[str](), "", set[float]()
    for _ in range(3):
        page = await report(live, group_by="job", page_size=1, page_token=token)
        found += [row["job"] for row in page["rows"]]
        ends.add(page["to_s"])
        token = page["next_page_token"]
    assert found == ["j_one", "j_three", "j_two"] and token == "" and len(ends) == 1
    first = await report(live, group_by="job", page_size=1)
    wrong = {"group_by": "user", "page_token": first["next_page_token"]}
    assert (await live.http.get("/v1/usage", params=wrong)).status_code == 400


@pytest.mark.parametrize(("parameters", "headers"), [({"format": "csv"}, {}), ({}, {"Accept": "text/csv, */*;q=0.1"})])
async def test_csv_has_all_rows(live: Any, jobs: None, prices: None, parameters: Any, headers: Any) -> None:
    query = {"group_by": "user,job", "to": 3 * HOUR_S, **parameters}
    answer = await live.http.get("/v1/usage", params=query, headers=headers)
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/csv")
    assert list(csv.reader(answer.text.splitlines())) == [
        ["user", "job", "job_name", "device_hours", "cost", "currency", "unpriced_device_hours", "unpriced"],
        ["ana", "j_one", "j-one", "4.000000", "10.000000", "EUR", "0.000000", ""],
        ["bob", "j_three", "j-three", "1.000000", "2.500000", "EUR", "0.000000", ""],
        ["bob", "j_two", "j-two", "2.000000", "", "EUR", "2.000000", "A100"],
    ]
    both = await live.http.get("/v1/usage", params={"format": "json"}, headers={"Accept": "text/csv"})
    assert both.headers["Content-Type"] == "application/json"


async def test_csv_continues_after_a_batch(live: Any, jobs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.operations.usage._BATCH_ROWS", 1)
    answer = await live.http.get("/v1/usage", params={"group_by": "job", "format": "csv"})
    assert [line.partition(",")[0] for line in answer.text.splitlines()] == ["job", "j_one", "j_three", "j_two"]


async def test_a_viewer_sees_only_its_projects(live: Any, jobs: None) -> None:
    token, row = generate_token(), IdentityRow("eve", IdentityKind.USER, None, False, 1.0, "test")
    await live.store.identities.create_identity(row)
    await live.store.identities.put_member(MemberRow("speech", "eve", Membership(Role.VIEWER), 1.0, "test"))
    await live.store.identities.create_token(TokenRow(token.id, "eve", "", token.digest, None, None, 1.0, "test"))
    headers = {"Authorization": f"Bearer {token.value}"}
    async with httpx2.AsyncClient(base_url=live.url, trust_env=False, headers=headers) as http:
        own = (await http.get("/v1/usage", params={"group_by": "project"})).json()["rows"]
        other = (await http.get("/v1/usage", params={"project": "vision"})).json()["rows"]
        lines = (await http.get("/v1/usage", params={"format": "csv", "group_by": "job"})).text.splitlines()
    assert [each["project"] for each in own] == ["speech"] and other == []
    assert [line.partition(",")[0] for line in lines] == ["job", "j_three"]


@pytest.mark.parametrize(
    ("query", "pointer", "text"),
    [
        ("group_by=team", "group_by", "'team' is not a group: use project, user, class, job"),
        ("group_by=", "group_by", "is not a group"),
        ("group_by=user,user", "group_by", "names a group twice"),
        ("from=-1", "from", "must be"),
        ("to=nan", "to", "must be"),
        ("from=5&to=5", "to", "must be later than the start of the window, 5"),
        ("format=xml", "format", "must be"),
        ("page_size=1001", "page_size", "must be"),
        ("since=1", "since", "unknown"),
    ],
)
async def test_a_wrong_parameter_is_refused(live: Any, query: str, pointer: str, text: str) -> None:
    answer = await live.http.get(f"/v1/usage?{query}")
    assert answer.status_code == 422 and pointer in answer.text and text in answer.text, answer.text
