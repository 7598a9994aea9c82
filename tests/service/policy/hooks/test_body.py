"""Bodies of notifications: CloudEvents, Slack, Teams and e-mail. Text of a job cannot change their structure."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.hooks import HookEvent, HookKind
from regroup.service.policy.hooks.body import render_body
from regroup.service.policy.hooks.mail import render_mail
from regroup.service.policy.hooks.summary import summarize

DATA = {"from": "RUNNING", "to": "FAILED", "reason": "user_error", "message": "bad value"}
EVENT = HookEvent(
    "job_1-7", "state", "vision", 1_700_000_000.5, "supervisor", DATA, "job_1", "gpt", {"team": "nlp"}, 7, 2
)
TEST = HookEvent("test_1", "test", "vision", 1_700_000_000.0, "ana", {"message": "ana tests the hook"})


def rendered(kind: HookKind, event: HookEvent) -> Any:
    return json.loads(render_body(kind, event).content)


def test_a_cloud_event_has_the_required_attributes_and_the_event() -> None:
    body = render_body(HookKind.CLOUDEVENTS, EVENT)
    assert body.content_type == "application/cloudevents+json; charset=utf-8"
    assert json.loads(body.content) == {
        "specversion": "1.0",
        "id": "job_1-7",
        "source": "/v1/projects/vision",
        "type": "regroup.job.state",
        "subject": "job_1",
        "time": "2023-11-14T22:13:20Z",
        "datacontenttype": "application/json",
        "data": {
            "project": "vision",
            "type": "state",
            "actor": "supervisor",
            "event": {"from": "RUNNING", "to": "FAILED", "reason": "user_error", "message": "bad value"},
            "job": {"id": "job_1", "name": "gpt", "labels": {"team": "nlp"}},
            "number": 7,
            "generation": 2,
        },
    }


def test_a_test_has_no_job() -> None:
    body = rendered(HookKind.CLOUDEVENTS, TEST)
    assert (body["type"], body["subject"]) == ("regroup.job.test", "test") and "job" not in body["data"]


def test_people_read_the_state_the_job_and_the_reason() -> None:
    summary = summarize(EVENT)
    assert summary.title == "❌ gpt is FAILED"
    assert dict(summary.facts) == {
        "Project": "vision",
        "Job": "gpt (job_1)",
        "Reason": "user_error",
        "Message": "bad value",
        "By": "supervisor",
        "Time": "2023-11-14T22:13:20Z",
    }
    assert summarize(TEST).title == "regroup: test of a hook"


@pytest.mark.parametrize(
    ("kind", "data", "title"),
    [
        ("held", {}, "❌ gpt failed and keeps its nodes"),
        ("incident", {"at_step": 30}, "gpt: incident at step 30"),
        ("checkpoint", {"step": 40}, "gpt: checkpoint of step 40"),
        ("generation", {"world_size": 8}, "gpt: generation 2 on 8 ranks"),
        ("pin", {}, "gpt: pin"),
    ],
)
def test_titles_name_the_event(kind: str, data: dict[str, Any], title: str) -> None:
    assert summarize(replace(EVENT, type=kind, data=data)).title == title


def test_slack_gets_no_mention_and_no_link_from_the_text_of_a_job() -> None:
    hostile = replace(EVENT, data={"to": "FAILED", "message": "<!channel> <https://evil.example|click> a & b\n*bold*"})
    body = rendered(HookKind.SLACK, hostile)
    assert "<" not in body["text"] and ">" not in body["text"] and body["mrkdwn"] is False
    assert "&lt;!channel&gt; &lt;https://evil.example|click&gt; a &amp; b *bold*" in body["text"]


def test_teams_gets_text_runs_which_show_no_markdown() -> None:
    hostile = replace(EVENT, data={"to": "FAILED", "message": "[click](https://evil.example) **x**"})
    body = rendered(HookKind.TEAMS, hostile)
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    blocks = attachment["content"]["body"]
    assert {block["type"] for block in blocks} == {"RichTextBlock"}
    runs = [run for block in blocks for run in block["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}
    assert "[click](https://evil.example) **x**" in [run["text"] for run in runs]


def test_mail_has_headers_of_one_line() -> None:
    hostile = replace(EVENT, job_name="gpt\r\nBcc: x@evil.example\r\n\r\nhello", data={"to": "FAILED"})
    mail = render_mail(hostile, "regroup@example.com", ["ana@example.com", "bob@example.com"])
    assert mail["Bcc"] is None and mail["To"] == "ana@example.com, bob@example.com"
    assert mail["Subject"] == "❌ gpt Bcc: x@evil.example hello is FAILED"
    assert mail["Message-ID"] == "<job_1-7@example.com>" and mail["Auto-Submitted"] == "auto-generated"
    assert "Project: vision" in mail.get_content()


TEXT = st.text(max_size=300)


@given(TEXT, TEXT, TEXT, st.floats())
def test_any_text_gives_a_bounded_body(name: str, message: str, reason: str, time_s: float) -> None:
    name, message, reason = (each.encode(errors="replace").decode() for each in (name, message, reason))
    event = replace(EVENT, job_name=name, time_s=time_s, data={"to": name, "message": message * 10, "reason": reason})
    for kind in (HookKind.CLOUDEVENTS, HookKind.SLACK, HookKind.TEAMS):
        assert len(render_body(kind, event).content) < 64_000
    mail = render_mail(event, "regroup@example.com", ["ana@example.com"])
    headers = mail.as_bytes().partition(b"\n\n")[0].decode()
    names = {line.partition(":")[0] for line in headers.splitlines() if not line.startswith((" ", "\t"))}
    assert names <= {"From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Regroup-Event", "MIME-Version",
                     "Content-Type", "Content-Transfer-Encoding"}  # fmt: skip
