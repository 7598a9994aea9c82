from pathlib import Path

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.simulator.traces import ClusterPart, nodes_of, read_cluster, read_jobs, read_outages

HEAD = "at_s,name,ranks,work_s,min_ranks,depends_on\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_job_trace_has_defaults(tmp_path: Path) -> None:
    first, then = read_jobs(write(tmp_path / "jobs.csv", HEAD + "0,a,8,100,2,\n5,b,1,10,,a\n"))
    assert [size.ranks for size in first.job.sizes] == [2, 4, 8] and first.requested_size.ranks == 8
    assert (then.at_s, then.job.pending_dependencies, then.job.priority.name) == (5.0, ("a",), "normal")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0,a,none,100,,\n", "jobs.csv:2 ranks"),
        ("0,a,1,100,,absent\n", "which is not in the trace"),
        ("0,a,1,100,,b\n0,b,1,100,,c\n0,c,1,100,,a\n", "in a cycle"),
        ("0,a,1,100,,\n0,a,1,100,,\n", "must be unique"),
    ],
)
def test_an_error_names_the_line_of_the_trace(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_jobs(write(tmp_path / "jobs.csv", HEAD + lines))


def test_a_cluster_and_its_failures_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="nodes"):
        read_cluster(write(tmp_path / "c.yaml", "nodes: 0"))
    with pytest.raises(SpecError, match="cannot read the cluster"):
        read_cluster(tmp_path / "absent.yaml")
    nodes = nodes_of(ClusterPart(nodes=2))
    with pytest.raises(SpecError, match="no such node"):
        read_outages(write(tmp_path / "f.csv", "at_s,node,duration_s\n0,n9,5\n"), nodes)
    assert [node.id for node in nodes] == ["n00000", "n00001"]
