"""Removal of secrets from text, bytes and messages."""

import base64
import dataclasses
import json
from typing import Any, get_args
from urllib.parse import quote

import pytest

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import (
    AgentReport,
    Done,
    Exited,
    Failed,
    Message,
    Note,
    Report,
    StateDigest,
    StepRow,
    encode,
)
from regroup.workers.contract.rank_error import ErrorClass, RankError
from regroup.workers.environment.redaction import Redactor, StreamRedactor, secrets_on_node
from regroup.workers.os.secret_source import SecretSource

SECRET = "hunter2-4f1d/09+c6 \u00e9\"'"
PART = "4f1d"
SENT_BY_USER_CODE: list[Any] = [
    Failed(
        0,
        1,
        RankError(
            ErrorClass.USER, f"Error{SECRET}", f"boom {SECRET}", f"Traceback {SECRET}", 1, "forward", 0.0, {"x": SECRET}
        ),
        [{"op": SECRET}],
    ),
    Exited(0, 1, -6, 0.0, last_output=f"terminate: {SECRET}"),
    Note(1, "launcher", {"message": SECRET, "list": [{SECRET: (SECRET,)}]}, 0.0),
    Done(0, 1, 4, stopped=False, result={"answer": {"key": SECRET}}),
    StepRow(1, 1, 0.0, 0.1, 1.0, 8, 4, 0, 0.1, 1.0, extra={f"loss{SECRET}": 1.0}),
    Report(1, 1, 0.0, {f"accuracy{SECRET}": 1.0}),
    StateDigest(0, 1, 3, {f"stateful {SECRET}": "0"}),
]


def test_secrets_are_removed_in_whole_and_in_part() -> None:
    hide = Redactor(["https://robot:p%40ss@host/simple", "tok\nen-line", ""]).hide
    assert hide("Index: https://robot:p%40ss@host/simple") == "Index: ***"
    assert hide("password p@ss of robot") == "password *** of ***"
    assert hide("en-line") == "***"
    assert hide("https://someone:else@host/x") == "https://***@host/x"
    assert hide("nothing") == "nothing"


@pytest.mark.parametrize(
    "written",
    [
        SECRET, repr(SECRET), repr([SECRET]), json.dumps({"key": SECRET}), quote(SECRET), quote(SECRET, safe=""),
        f"x?key={quote(SECRET)}&y", base64.b64encode(SECRET.encode()).decode(), f"a{SECRET}b", str(ValueError(SECRET)),
    ],
)  # fmt: skip
def test_a_secret_is_found_in_every_usual_form(written: str) -> None:
    shown = Redactor([SECRET]).hide(written)
    assert PART not in shown and "***" in shown
    assert base64.b64encode(SECRET.encode()).decode()[:16] not in shown


def test_the_longest_secret_is_removed_first() -> None:
    assert Redactor(["hunter2", "hunter2-and-more"]).hide("hunter2-and-more hunter2") == "*** ***"


@pytest.mark.parametrize("cut", range(8, 24))
def test_the_rest_of_a_cut_secret_is_removed(cut: int) -> None:
    secret = "abcabcabcabc-hunter2-4f1d"
    hide = Redactor([secret]).hide
    assert hide(f"{secret[-cut:]} and then {secret}") == "*** and then ***"
    assert hide(f"in the end {secret[:cut]}") == "in the end ***"
    assert hide(secret[-cut:]) == hide(secret[:cut]) == "***"
    assert hide(f"x{secret[-cut:]}") == f"x{secret[-cut:]}", "no end of a text is cut in its middle"


def test_a_value_of_few_characters_stays() -> None:
    redactor = Redactor(["1", "on", "}\n{\nlong-enough"])
    assert redactor.hide("rank 1 is on {} long-enough") == "rank 1 is on {} ***"


def test_what_a_redactor_has_learned_stays() -> None:
    redactor = Redactor(["first-value"])
    redactor.learn(["second-value"])
    assert redactor.hide("first-value second-value") == "*** ***"


def test_a_large_secret_is_found_line_by_line() -> None:
    redactor = Redactor(["\n".join(f"line-{number:05d}" for number in range(5000))])
    assert redactor.hide("see line-04999.") == "see ***."
    assert redactor.context_bytes < 64


def test_bytes_keep_their_length() -> None:
    redactor = Redactor(["hunter2", "\u00fcml\u00e4ut"])
    for data in (
        b"a hunter2 b",
        "x \u00fcml\u00e4ut y".encode(),
        b"hunter2hunter2",
        b"",
        b"nothing",
        b"\xff hunter2 \x00",
    ):
        shown = redactor.hide_bytes(data)
        assert len(shown) == len(data) and b"hunter2" not in shown and "ml\u00e4".encode() not in shown
    assert redactor.hide_bytes(b"hunt") == b"hunt"
    assert redactor.hide_bytes(b"x hunt", is_at_end=True) == b"x ****"
    assert redactor.hide_bytes(b"x hun", is_at_end=True) == b"x hun"


@pytest.mark.parametrize("size", range(1, 12))
def test_a_stream_in_pieces_of_any_size_shows_less_than_a_few_characters(size: int) -> None:
    data = b"one hunter2-4f1d two hunter2 three hunter2-4f1dhunter2-4f1d."
    stream = StreamRedactor(Redactor(["hunter2-4f1d"]))
    shown = b"".join(stream.feed(data[begin : begin + size]) for begin in range(0, len(data), size))
    assert len(shown) == len(data) and b"4f1d" not in shown and b"hunter2-" not in shown
    assert shown.startswith(b"one ") and shown.endswith(b".") and b" two " in shown


@pytest.mark.parametrize("message", SENT_BY_USER_CODE, ids=lambda message: type(message).__name__)
def test_a_message_has_no_secret(message: Any) -> None:
    text = encode(Redactor([SECRET]).hide_message(message)).decode()
    assert PART not in text and "***" in text


def test_every_message_that_carries_text_of_user_code_is_covered() -> None:
    """Check that a new message is in the list above, or consists of names that the platform chose."""
    of_the_platform = {
        "AgentConfig", "Join", "Stop", "MirrorDue", "Buffers", "FaultGranted", "Joined", "BuffersRequest", "Restored",
        "Pinned", "FaultDue", "StateCatalogRequest", "StateRequest", "StateReply",
        "SourceReleaseRequest", "Prepared", "Begin", AgentReport.__name__,
    }  # fmt: skip
    covered = {type(message).__name__ for message in SENT_BY_USER_CODE}
    assert {cls.__name__ for cls in get_args(Message)} == of_the_platform | covered


def test_a_message_without_secrets_is_unchanged() -> None:
    for message in SENT_BY_USER_CODE:
        assert encode(Redactor(["other-secret"]).hide_message(message)) == encode(message)
        assert dataclasses.is_dataclass(message)


def test_the_jobs_secrets_and_the_credentials_of_the_platform_are_known(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("of-the-file\n")
    (tmp_path / "ray.token").write_text("of-ray\n")
    monkeypatch.setenv("OF_THE_NODE", "of-the-node")
    secrets = {
        "A": SecretSource(from_file=str(tmp_path / "file")),
        "B": SecretSource(from_env="OF_THE_NODE"),
        "C": SecretSource(from_file="/nowhere"),
    }
    config = AgentConfig("j", "j", "n", "n", "127.0.0.1", "s", "file:///s", "file:///d", secrets=secrets)
    environment = {
        "RAY_AUTH_TOKEN_PATH": str(tmp_path / "ray.token"), "AWS_SECRET_ACCESS_KEY": "of-storage", "PATH": "/bin",
        "REGROUP_SECRETS_DIR": "/mounts", "AWS_REGION": "eu-west-1",
    }  # fmt: skip
    assert sorted(secrets_on_node(config, environment)) == ["of-ray", "of-storage", "of-the-file", "of-the-node"]


def test_secrets_of_the_project_are_removed() -> None:
    config = AgentConfig(
        "j", "t", "n", "n0", "127.0.0.1", "s", "file:///s", "file:///d",
        secrets={"TOKEN": SecretSource(from_project="hf-token"), "LATE": SecretSource(from_project="late")},
    )  # fmt: skip
    assert secrets_on_node(config, {}) == []
    config.project_secrets["hf-token"] = SECRET
    assert secrets_on_node(config, {}) == [SECRET]
    assert PART not in Redactor(secrets_on_node(config, {})).hide(f"key={quote(SECRET)}")
