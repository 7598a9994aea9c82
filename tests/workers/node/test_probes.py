"""Where a node finds the values of secrets."""

from pathlib import Path
from typing import Any

import pytest

from regroup.workers.node import probes

VALUE = "hunter2"
TOKEN: dict[str, Any] = {"from_env": None, "from_file": None, "from_kubernetes": {"name": "tracker", "key": "token"}}


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key of a Secret as Kubernetes mounts it: a link to a link to a file."""
    monkeypatch.setenv("REGROUP_SECRETS_DIR", str(tmp_path))
    (tmp_path / "tracker" / "..2026").mkdir(parents=True)
    (tmp_path / "tracker" / "..2026" / "token").write_text(VALUE)
    (tmp_path / "tracker" / "..data").symlink_to("..2026")
    (tmp_path / "tracker" / "token").symlink_to("..data/token")
    return tmp_path / "tracker"


def test_a_secret_has_three_sources(mounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_NODE", VALUE)
    (tmp_path / "file").write_text(f"{VALUE}\n")
    assert probes.secret("TOKEN", TOKEN) == VALUE
    assert probes.secret("TOKEN", {"from_env": "OF_THE_NODE"}) == VALUE
    assert probes.secret("TOKEN", {"from_file": str(tmp_path / "file")}) == VALUE


def test_a_secret_that_is_not_mounted_is_named_with_node_and_place(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"from_kubernetes": {"name": "tracker", "key": "password"}}
    with pytest.raises(probes.SecretMissing, match=rf"password of Secret tracker .* no {mounted}/password;") as said:
        probes.secret("TOKEN", other)
    assert VALUE not in str(said.value)
    monkeypatch.delenv("REGROUP_SECRETS_DIR")
    with pytest.raises(probes.SecretMissing, match="/var/run/secrets/regroup/tracker/token"):
        probes.secret("TOKEN", TOKEN)
