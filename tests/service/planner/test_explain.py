"""The size ladder of a plan."""

from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import FITTED
from regroup.service.planner.explain import size_ladder
from regroup.service.planner.search import Limits
from regroup.service.planner.types import Plan
from tests.support.inputs.planner_questions import cluster, work

WORK = work("llama2-7b", 24, 2048)


def sizes(plan: Plan, gpus: int) -> list[int]:
    """Return the data-parallel degrees of the ladder."""
    ladder_sizes = size_ladder(WORK, cluster("H200", gpus), plan, FITTED, Limits())
    assert all(size.layout.world_size == size.gpus for size in ladder_sizes)
    return [size.layout.data_degree for size in ladder_sizes]


def test_interleaved_stages_need_whole_rounds_of_micro_batches() -> None:
    layout = Layout(dp_shard=6, pp=4)
    assert sizes(Plan(layout, 1, "fsdp", "full"), 24) == [1, 2, 3, 4, 6]
    assert sizes(Plan(layout, 1, "fsdp", "full", "interleaved_1f1b", 2), 24) == [1, 2, 3, 6], "4 would run 6 each"


def test_groups_that_share_a_copy_are_not_split() -> None:
    assert sizes(Plan(Layout(dp_replicate=3, dp_shard=4), 1, "fsdp", "full"), 12) == [4, 8, 12]


def test_the_ladder_has_no_size_that_does_not_fit() -> None:
    assert sizes(Plan(Layout(dp_shard=8), 1, "fsdp", "full"), 8) == [1, 2, 4, 8]
    small = size_ladder(WORK, cluster("A100 40GB", 8), Plan(Layout(dp_shard=8), 1, "fsdp", "full"), FITTED, Limits())
    assert [size.gpus for size in small] == [8]
