"""Verdicts of chaos rehearsals on both databases: their fields, their order, and the number that is kept."""

import pytest

from regroup.service.domain.author import Author
from regroup.service.store import verdicts
from regroup.service.store.access.audit import AuditFilter
from regroup.service.store.rows.verdicts import Verdict
from regroup.service.store.store import Store
from tests.support.inputs.verdicts import verdict

ANA = Author("ana", address="10.0.0.1")


async def test_a_verdict_is_stored_with_its_author_and_its_audit_record(store: Store) -> None:
    given = Verdict(**verdict(passed=False, problems=["I2: \x00"], recovery_actions=[None], detect_s=None))
    made = await store.verdicts.record(given, now=5.0, author=ANA)
    assert (made.time_s, made.recorded_by, made.verdict) == (5.0, "ana", given)
    (found,) = await store.verdicts.newest(None, 10)
    assert (found.id, found.time_s, found.recorded_by) == (made.id, 5.0, "ana")
    assert found.verdict == Verdict(**{**vars(given), "problems": ["I2: \ufffd"]})
    (record,) = await store.audit.page(AuditFilter(), None, 10)
    assert (record.action, record.object, record.after["passed"]) == ("chaos.record", str(made.id), False)


async def test_verdicts_are_listed_newest_first_and_by_scenario(store: Store) -> None:
    for number, name in enumerate(("one", "two", "one")):
        await store.verdicts.record(Verdict(**verdict(name, seed=number)), now=float(number))
    assert [each.verdict.seed for each in await store.verdicts.newest(None, 2)] == [2, 1]
    assert [each.verdict.seed for each in await store.verdicts.newest("one", 10)] == [2, 0]
    assert await store.verdicts.newest("three", 10) == []


async def test_only_the_newest_verdicts_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "MAX_VERDICTS", 3)
    for number in range(5):
        await store.verdicts.record(Verdict(**verdict(seed=number)), now=float(number))
    assert [each.verdict.seed for each in await store.verdicts.newest(None, 10)] == [4, 3, 2]
