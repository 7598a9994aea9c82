"""The chain of audit records: every changed, removed or inserted record is found."""

import dataclasses
from typing import Any

import pytest

from regroup.service.domain.audit import ORIGIN, AuditRecord, ChainEnd, ChainReport, ChainVerifier, digest_of

CONTENT: dict[str, Any] = {
    "actor": "ana", "token_id": "t1", "address": "::1", "action": "jobs.cancel", "project": "vision", "object": "job_1",
    "before": {"state": "RUNNING"}, "after": {"state": "CANCELLED"},
}  # fmt: skip


def chain(count: int, start: ChainEnd = ORIGIN) -> list[AuditRecord]:
    """Return sealed records that follow `start`."""
    found, end = list[AuditRecord](), start
    for number in range(count):
        record = AuditRecord(number, 1000.5 + number, **CONTENT, position=end.position + 1, digest=None)
        end = ChainEnd(end.position + 1, digest_of(record, end))
        found.append(dataclasses.replace(record, digest=end.digest))
    return found


def point(record: AuditRecord) -> ChainEnd:
    return ChainEnd(record.position or 0, record.digest or "")


def verify(
    records: list[AuditRecord], start: ChainEnd | None = ORIGIN, *, noted: ChainEnd | None = None, end: bool = True
) -> ChainReport:
    verifier = ChainVerifier(start, noted)
    for record in records:
        verifier.add(record)
    return verifier.report(point(WHOLE[-1]) if end else None)


WHOLE = chain(5)


def test_an_unchanged_chain_is_complete() -> None:
    assert verify(WHOLE) == ChainReport(5, point(WHOLE[-1]))
    assert verify(WHOLE[2:], point(WHOLE[1]), noted=point(WHOLE[3])) == ChainReport(3, point(WHOLE[-1]))
    assert verify(WHOLE[2:], None).fault == "" and verify([], point(WHOLE[-1])).fault == ""
    assert verify(WHOLE[3:], point(WHOLE[2]), noted=point(WHOLE[2])).fault == ""


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(AuditRecord) if field.name != "id"])
def test_a_change_of_each_field_is_found(field: str) -> None:
    changed = {"position": 9, "digest": "0" * 64, "time_s": 1.0}.get(field, "other")
    records = [*WHOLE[:2], dataclasses.replace(WHOLE[2], **{field: changed}), *WHOLE[3:]]
    report = verify(records)
    assert report.count == 2 and "record" in report.fault and report.end == point(WHOLE[1])


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        (WHOLE[1:], "record 1 is missing; record 2 follows"),
        ([*WHOLE[:2], *WHOLE[3:]], "record 3 is missing; record 4 follows"),
        (WHOLE[:-1], "the records from 5 to 5 are missing"),
        ([], "the records from 1 to 5 are missing"),
        ([*WHOLE[:2], WHOLE[1], *WHOLE[2:]], "record 3 is missing; record 2 follows"),
    ],
)
def test_a_removed_or_inserted_record_is_found(records: list[AuditRecord], fault: str) -> None:
    assert verify(records).fault == fault


def test_a_recalculated_chain_lacks_the_noted_point() -> None:
    forged = chain(3, ChainEnd(1, "f" * 64))
    start = ChainEnd(1, "f" * 64)
    assert verify(forged, start, end=False).fault == ""
    assert verify(forged, start, noted=point(WHOLE[2]), end=False).fault == (
        "record 3 does not have the digest that was noted"
    )
    assert verify(WHOLE, noted=ChainEnd(9, "a" * 64)).fault == "the noted record 9 is not among the records"
