"""The topology file on disk: included files, changes, and files that cannot be read."""

import os
from pathlib import Path

import pytest

from regroup.service.cluster_state.topology import Topology
from regroup.service.cluster_state.topology_file import TopologyFile
from regroup.service.domain.topology import Level
from regroup.service.policy.topology.hostlist import TopologyError
from regroup.service.policy.topology.slurm_file import parse_topology
from regroup.service.settings import Settings
from tests.support.inputs.shared_cases import shared_cases

RACKS = {"a-continuation.conf": 2, "b-spaces.conf": 2, "c-quotes.conf": 2, "d-include.conf": 1, "l-bom-crlf.conf": 2}
"""Case → number of its racks, with four nodes each."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "topology.conf").write_text("Include leafs.conf\nSwitchName=top Switches=s[0-1]\n")
    (tmp_path / "leafs.conf").write_text("SwitchName=s0 Nodes=a\nSwitchName=s1 Nodes=b\n")
    return tmp_path


def test_a_change_of_an_included_file_is_read(folder: Path) -> None:
    file = TopologyFile(folder / "topology.conf")
    assert not file.refresh() and sorted(file.content.places) == ["a", "b"]
    (folder / "leafs.conf").write_text("SwitchName=s0 Nodes=a\nSwitchName=s1 Nodes=b,c\n")
    assert not file.refresh() and sorted(file.content.places) == ["a", "b", "c"]
    (folder / "leafs.conf").unlink()
    assert file.refresh() and "line 1: the included file" in file.problem and "cannot be read" in file.problem
    assert not file.refresh() and sorted(file.content.places) == ["a", "b", "c"], "the last valid content stays in use"
    (folder / "leafs.conf").write_text("SwitchName=s0 Nodes=d\nSwitchName=s1\n")
    assert file.refresh() and file.problem == "" and sorted(file.content.places) == ["d"]


def test_unchanged_files_are_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TopologyFile(folder / "topology.conf")
    file.refresh()
    monkeypatch.setattr(TopologyFile, "_read", None)
    assert not file.refresh()


@pytest.mark.parametrize("name", ["pipe", "folder", "/dev/zero"])
def test_only_a_regular_file_is_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "topology.conf").write_text(f"Include {name}")
    for path in (tmp_path / name, tmp_path / "topology.conf"):
        file = TopologyFile(path)
        assert file.refresh() and "not a regular file" in file.problem


def test_a_server_does_not_start_with_an_invalid_file(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=s0 Nodes=a\nSwitchName=s1 Nodes=b, c\n")
    with pytest.raises(TopologyError) as refused:
        Topology(Settings(state_dir=tmp_path, topology_file=path)).check()
    assert str(refused.value) == (
        f"topology file {path}, line 2: 'c' is not a list of KEY=VALUE; a value with spaces must be in quotes, and a "
        'list has no spaces without them: Nodes=a[1-4],b or Nodes="a[1-4], b"; correct the file, or unset '
        "REGROUP_TOPOLOGY_FILE"
    )


def test_notes_are_problems_of_the_topology(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=s0 Nodes=a\nSwitchName=s1 Nodes=a\n")
    topology = Topology(Settings(state_dir=tmp_path, topology_file=path))
    topology.check()
    assert topology.state([]).problems == ("a: behind both 's0' and 's1'; 's0' is used",)


def test_every_case_is_read_as_slurm_reads_it() -> None:
    folder = shared_cases("slurm")
    assert {path.name for path in folder.iterdir()} == RACKS.keys()
    for name, racks in RACKS.items():
        digits = 3 if name.startswith("a-") else 1
        expected = {f"n{node:0{digits}}": f"s{(node - 1) // 4}" for node in range(1, 4 * racks + 1)}
        # One case includes a file of another machine; here it is empty.
        found = parse_topology(name, (folder / name).read_bytes(), lambda path: b"")
        assert {node: domains[Level.RACK] for node, domains in found.places.items()} == expected, name
        assert {domains.get(Level.BLOCK) for domains in found.places.values()} == ({"top"} if name < "d" else {None})
        assert not found.notes


def test_a_case_that_includes_a_missing_file_is_refused_with_its_line() -> None:
    file = TopologyFile(shared_cases("slurm") / "d-include.conf")
    assert file.refresh()
    assert (
        "d-include.conf, line 1: the included file '/etc/slurm/topo.d/leafs.conf' cannot be read: No such"
        in file.problem
    )
