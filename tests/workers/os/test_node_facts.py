"""Facts of a node: values of secrets, out-of-memory kills."""

from pathlib import Path

import pytest

from regroup.workers.os import node_facts
from regroup.workers.os.secret_source import MountedSecret, SecretSource

VALUE = "hunter2"
TOKEN = SecretSource(from_kubernetes=MountedSecret("tracker", "token"))


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
    assert node_facts.secret("TOKEN", TOKEN) == VALUE
    assert node_facts.secret("TOKEN", SecretSource(from_env="OF_THE_NODE")) == VALUE
    assert node_facts.secret("TOKEN", SecretSource(from_file=str(tmp_path / "file"))) == VALUE


def test_an_unmounted_secret_is_named_with_its_path(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = SecretSource(from_kubernetes=MountedSecret("tracker", "password"))
    with pytest.raises(
        node_facts.SecretMissing, match=rf"password of Secret tracker .* no {mounted}/password;"
    ) as raised:
        node_facts.secret("TOKEN", other)
    assert VALUE not in str(raised.value)
    monkeypatch.delenv("REGROUP_SECRETS_DIR")
    with pytest.raises(node_facts.SecretMissing, match="/var/run/secrets/regroup/tracker/token"):
        node_facts.secret("TOKEN", TOKEN)


def test_out_of_memory_kills_are_counted_in_the_container_first(tmp_path: Path) -> None:
    container, machine = tmp_path / "memory.events", tmp_path / "vmstat"
    assert node_facts.oom_kills(container, machine) == 0
    machine.write_text("nr_free_pages 12\noom_kill 7\n")
    assert node_facts.oom_kills(container, machine) == 7
    container.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert node_facts.oom_kills(container, machine) == 2
    assert node_facts.oom_kills() >= 0


def test_memory_of_a_container_is_bounded_by_its_limit(tmp_path: Path) -> None:
    assert node_facts.container_memory(tmp_path) == ()
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 300\nfile 350\nshmem 50\nactive_file 100\ninactive_file 200\n")
    assert node_facts.container_memory(tmp_path) == ()
    (tmp_path / "memory.max").write_text("1000\n")
    assert node_facts.container_memory(tmp_path) == (1000, 600), "pages of files are reclaimable, memory files are not"
    assert 0 < node_facts.free_memory_bytes() <= node_facts.host_facts()["memory_bytes"]
