"""`regroup apply` with a real server: a file is applied once, and then it is the state."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

SETUP: dict[str, Any] = {
    "version": 1,
    "identities": {
        "ana@example.com": {},
        "ben@example.com": {"disabled": True},
        "prometheus": {"permissions": ["metrics"]},
        "vision-ci": {"kind": "service_account", "project": "vision", "role": "editor"},
    },
    "projects": {
        "vision": {
            "guaranteed": 16,
            "limit": 64,
            "defaults": {"priority": "low"},
            "members": {"ana@example.com": "admin", "group:research": {"role": "editor", "permissions": ["exec"]}},
        },
        "speech": {"members": {"ana@example.com": "viewer"}},
    },
}


def written(folder: Path, setup: dict[str, Any]) -> Path:
    path = folder / "setup.yaml"
    path.write_text(yaml.safe_dump(setup))
    return path


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the setup with one other value; None removes it."""
    setup = json.loads(json.dumps(SETUP))
    *parents, last = path.split("/")
    place = setup
    for name in parents:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return setup


def test_a_file_is_tried_applied_and_then_the_state(cli: Any, tmp_path: Path) -> None:
    file = written(tmp_path, SETUP)
    tried = cli("--dry-run", "apply", "-f", file)
    assert tried.code == 0 and tried.out.splitlines()[-1] == "9 changes" and "nothing was changed" in tried.err, tried
    assert "ana@example.com" not in cli("identities", "list").out
    made = cli("apply", "-f", file)
    assert made.code == 0 and made.out == tried.out, made.err
    assert "change project vision\n    guaranteed: 0 → 16\n    limit: none → 64" in made.out
    assert cli("apply", "-f", file).out == "nothing to change\n"
    assert cli("projects", "get", "vision", "--json").json["limit"] == 64
    members = {each["subject"]: each for each in cli("members", "list", "vision", "--json").json}
    assert {name: each["role"] for name, each in members.items()} == {
        "ana@example.com": "admin", "group:research": "editor", "vision-ci": "editor",
    }  # fmt: skip
    assert members["group:research"]["permissions"] == ["exec"]
    people = {each["subject"]: each for each in cli("identities", "list", "--json").json}
    assert people["ben@example.com"]["disabled_at"] and people["prometheus"]["permissions"] == ["metrics"]


def test_only_differences_are_changed_and_removals_need_a_word(cli: Any, tmp_path: Path) -> None:
    cli("apply", "-f", written(tmp_path, SETUP))
    promoted = cli("apply", "-f", written(tmp_path, changed("projects/speech/members/ana@example.com", "admin")))
    assert promoted.out == "change member ana@example.com of speech\n    role: viewer → admin\n1 change\n"
    without = written(tmp_path, changed("projects/vision/members/group:research", None))
    kept = cli("apply", "-f", without, "--json").json
    assert [step["name"] for step in kept] == ["ana@example.com of speech"]
    pruned = cli("apply", "-f", without, "--prune")
    assert pruned.out == "remove member group:research of vision\n    role: editor\n1 change\n"
    restored = cli("apply", "-f", written(tmp_path, SETUP), "--json").json
    assert [(step["action"], step["name"]) for step in restored] == [("create", "group:research of vision")]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 2, "version: must be 1"),
        ("peoples", {}, "peoples: unknown field"),
        ("projects/vision/members/ana@example.com", "owner", "must be"),
        ("identities/vision-ci/role", None, "project and role belong together"),
        ("projects/vision/limit", "many", "projects.vision.limit: must be an integer"),
    ],
)
def test_an_invalid_file_changes_nothing(cli: Any, tmp_path: Path, path: str, value: object, message: str) -> None:
    refused = cli("apply", "-f", written(tmp_path, changed(path, value)))
    assert refused.code == 3 and message in refused.err, refused.err


def test_what_cannot_change_is_named(cli: Any, tmp_path: Path) -> None:
    cli("apply", "-f", written(tmp_path, SETUP))
    other = changed("identities/vision-ci", {"kind": "service_account", "project": "speech", "role": "editor"})
    refused = cli("apply", "-f", written(tmp_path, other))
    assert refused.code == 3 and "project: cannot be changed (vision → speech)" in refused.err, refused.err


def test_a_file_that_is_missing_or_malformed_is_named(cli: Any, tmp_path: Path) -> None:
    assert "cannot read" in cli("apply", "-f", tmp_path / "none.yaml").err
    (tmp_path / "bad.yaml").write_text("version: 1\nversion: 1\n")
    refused = cli("apply", "-f", tmp_path / "bad.yaml")
    assert refused.code == 3 and "line 2" in refused.err


def test_secrets_come_from_the_callers_machine_and_are_set_once(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "licence").write_text("hunter2-of-the-file\n")
    sources = {"of-env": {"from_env": "TEAM_TOKEN"}, "of-file": {"from_file": str(tmp_path / "licence")}}
    file = written(tmp_path, {"version": 1, "projects": {"audio": {"secrets": sources, "limit": 4}}})
    missing = cli("apply", "-f", file)
    assert missing.code != 0 and "the variable TEAM_TOKEN is not set" in missing.err
    assert cli("projects", "get", "audio", "--json").json["limit"] is None
    monkeypatch.setenv("TEAM_TOKEN", "hunter2-of-the-variable")
    tried = cli("--dry-run", "apply", "-f", file)
    assert "create secret of-env of audio\n    from_env: TEAM_TOKEN" in tried.out
    made = cli("apply", "-f", file)
    assert made.code == 0 and made.out == tried.out, made.err
    assert cli("apply", "-f", file).out == "nothing to change\n"
    again = cli("apply", "-f", file, "--replace-secrets")
    assert "change secret of-file of audio" in again.out and again.out.endswith("2 changes\n")
    listed = cli("secret", "list", "--project", "audio", "--json").json
    assert [(each["name"], each["version"]) for each in listed] == [("of-env", 2), ("of-file", 2)]
    assert "hunter2" not in str([missing, tried, made, again, listed])


HOOKS: dict[str, Any] = {
    "pipeline": {
        "url": "https://ci.example.com/in", "events": ["incident", "state:FAILED"], "labels": {"team": "nlp"},
        "secret": {"from_env": "HOOK_SECRET"},
    },
    "channel": {"kind": "slack", "url": {"from_env": "SLACK_URL"}},
}  # fmt: skip


def hooked(folder: Path, project: str = "vision", **changes: Any) -> Path:
    hooks = {name: {**hook, **changes.get(name, {})} for name, hook in HOOKS.items()}
    return written(folder, {"version": 1, "projects": {project: {"hooks": hooks}}})


@pytest.fixture
def hook_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "whsec_" + "A" * 32)
    monkeypatch.setenv("SLACK_URL", "https://hooks.slack.com/services/T0/B0/hunter2")


@pytest.mark.usefixtures("hook_values")
def test_hooks_are_created_and_changed_by_their_name(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, made = (cli(*flags, "apply", "-f", hooked(tmp_path)) for flags in (("--dry-run",), ()))
    assert made.code == 0 and made.out == tried.out, made.err
    assert "create hook channel of vision\n    slack: https://hooks.slack.com/…\n" in made.out
    assert cli("apply", "-f", hooked(tmp_path)).out == "nothing to change\n"
    other = hooked(tmp_path, pipeline={"labels": {}, "disabled": True, "url": "https://ci.example.com/new"})
    changed = cli("apply", "-f", other)
    assert changed.out == (
        "change hook pipeline of vision\n    url: https://ci.example.com/in → https://ci.example.com/new\n"
        "    labels: team=nlp → none\n    disabled: no → yes\n1 change\n"
    )
    assert cli("apply", "-f", other).out == "nothing to change\n"
    monkeypatch.setenv("HOOK_SECRET", "whsec_" + "B" * 32)
    again = cli("apply", "-f", other, "--replace-secrets")
    assert again.code == 0 and again.out == (
        "change hook channel of vision\n    url: set again: https://hooks.slack.com/…\n"
        "change hook pipeline of vision\n    secret: from_env: HOOK_SECRET\n2 changes\n"
    )
    listed = {hook["name"]: hook for hook in cli("hooks", "list", "vision", "--json").json}
    assert (listed["pipeline"]["is_enabled"], listed["pipeline"]["labels"]) == (False, {})
    assert listed["pipeline"]["former_until"] and listed["channel"]["kind"] == "slack"
    assert "hunter2" not in str([tried, made, changed, again, listed]) and "whsec_" not in str([made, again, listed])


@pytest.mark.usefixtures("hook_values")
@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("pipeline", {"secret": None}, "needs the secret of its signatures: {from_env: VARIABLE}"),
        ("pipeline", {"secret": "whsec_literal"}, "must not be the value itself"),
        ("pipeline", {"secret": {"from_env": "SLACK_URL"}}, "secret: its value must be whsec_ and 24 to 64 bytes"),
        ("pipeline", {"secret": {"from_env": "ABSENT"}}, "the variable ABSENT is not set"),
        ("pipeline", {"events": ["nothing"]}, "is not an event"),
        ("channel", {"url": "https://hooks.slack.com/services/T0/B0/hunter2"}, "has a URL that is a secret"),
        ("channel", {"secret": {"from_env": "HOOK_SECRET"}}, "is not signed"),
        ("channel", {"urls": []}, "unknown field"),
    ],
)
def test_a_wrong_hook_is_named_without_its_secrets(
    cli: Any, tmp_path: Path, name: str, change: Any, problem: str
) -> None:
    refused = cli("apply", "-f", hooked(tmp_path, "video", **{name: change}))
    assert refused.code == 3 and problem in refused.err, refused.err
    assert "hunter2" not in refused.err and "whsec_l" not in refused.err


@pytest.mark.usefixtures("hook_values")
def test_hooks_of_one_name_and_other_kinds_are_refused(cli: Any, tmp_path: Path) -> None:
    cli("apply", "-f", hooked(tmp_path))
    kind = cli("apply", "-f", hooked(tmp_path, channel={"kind": "teams"}))
    assert kind.code == 3 and "kind: cannot be changed (slack → teams)" in kind.err, kind.err
    cli("hooks", "create", "vision", "pipeline", "--url", "https://ci.example.com/second")
    twice = cli("apply", "-f", hooked(tmp_path))
    assert twice.code == 3 and "project vision has 2 hooks of this name (hook_" in twice.err, twice.err


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("hunter2", "must not be the value itself: write {from_env: VARIABLE} or {from_file: PATH}"),
        (40819096, "must not be the value itself"),
        ({"value": "hunter2"}, "unknown field"),
        ({}, "set exactly one of from_env and from_file"),
        ({"from_env": "TEAM_TOKEN", "from_file": "/f"}, "set exactly one of from_env and from_file"),
        ({"from_env": "SHORT"}, "its value must have at least 4 characters"),
        ({"from_file": "/does/not/exist"}, "/does/not/exist cannot be read"),
    ],
)
def test_a_literal_secret_is_refused_without_its_value(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any, problem: str
) -> None:
    monkeypatch.setenv("SHORT", "xyz")
    file = written(tmp_path, {"version": 1, "projects": {"audio": {"secrets": {"token": entry}}}})
    refused = cli("apply", "-f", file)
    assert refused.code != 0 and problem in refused.err and "projects.audio.secrets.token" in refused.err
    assert not any(part in refused.err + refused.out for part in ("hunter2", "40819096", "xyz"))
