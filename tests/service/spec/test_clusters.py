"""The clusters file: valid tables, and the messages about wrong ones."""

from pathlib import Path

import pytest

from regroup.service.domain.errors import SettingError
from regroup.service.spec.clusters import ClusterNames, names_of, read_clusters

VALID = """
default: east
clusters:
  east: {gateway_url: "https://east:8600", token_file: east.token, ca_file: /etc/regroup/east.crt}
  west: {gateway_url: "https://west:8600", token_file: ../west.token}
  north: {gateway_url: "http://127.0.0.1:8600", token_file: north.token}
"""


def test_a_table_has_absolute_paths_and_names_in_order(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text(VALID)
    table = read_clusters(tmp_path / "clusters.yaml")
    assert table is not None
    assert table.clusters["east"].token_file == f"{tmp_path}/east.token"
    assert table.clusters["east"].ca_file == "/etc/regroup/east.crt"
    assert table.clusters["west"].token_file == f"{tmp_path}/../west.token"
    names = names_of(table)
    assert names == ClusterNames("east", ("north", "west"))
    assert names.all == ("east", "north", "west")
    assert (names.shown(""), names.shown("west")) == ("east", "west")
    assert [names.internal(name) for name in (None, "east", "west")] == ["", "", "west"]


def test_without_a_file_there_is_one_cluster() -> None:
    assert read_clusters(None) is None
    assert names_of(None).all == ("default",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("default: [", "clusters.yaml: line 2"),
        ("[]", "must be"),
        ("default: east", "clusters: .*required"),
        ("default: east\nclusters: {}", "clusters: .*at least"),
        (VALID.replace("default: east", "default: south"), "default names cluster 'south', .*east, west, north"),
        (VALID.replace("west:", "West:", 1), "clusters.*West"),
        (VALID.replace("https://east:8600", "http://east:8600"), "gateway_url: must begin with https://"),
        (VALID.replace("https://east:8600", "east"), "gateway_url: must be https://HOST:PORT"),
        (VALID.replace("token_file: east.token", "token: x"), "token"),
        (VALID.replace("east.token", "''"), "token_file"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_field(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "clusters.yaml").write_text(text)
    with pytest.raises(SettingError, match=f"REGROUP_CLUSTERS_FILE, .*{problem}"):
        read_clusters(tmp_path / "clusters.yaml")


def test_a_missing_file_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot read the clusters file: No such file .*YAML or JSON"):
        read_clusters(tmp_path / "none.yaml")
