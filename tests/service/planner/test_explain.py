"""The ladder of a plan has the sizes that it may move between."""

from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import FITTED
from regroup.service.planner.explain import ladder
from regroup.service.planner.search import Limits
from regroup.service.planner.types import Plan
from tests.support.planner_questions import cluster, work

ASKED = work("llama2-7b", 24, 2048)


def sizes(plan: Plan, gpus: int) -> list[int]:
    """Data-parallel degrees of the ladder."""
    rungs = ladder(ASKED, cluster("H200", gpus), plan, FITTED, Limits())
    assert all(rung.layout.world_size == rung.gpus for rung in rungs)
    return [rung.layout.data_degree for rung in rungs]


def test_interleaved_stages_need_whole_rounds_of_micro_batches() -> None:
    layout = Layout(dp_shard=6, pp=4)
    assert sizes(Plan(layout, 1, "fsdp", "full"), 24) == [1, 2, 3, 4, 6]
    assert sizes(Plan(layout, 1, "fsdp", "full", "interleaved_1f1b", 2), 24) == [1, 2, 3, 6], "4 would run 6 each"


def test_groups_that_share_a_copy_stay_whole() -> None:
    assert sizes(Plan(Layout(dp_replicate=3, dp_shard=4), 1, "fsdp", "full"), 12) == [4, 8, 12]


def test_what_does_not_fit_is_no_rung() -> None:
    assert sizes(Plan(Layout(dp_shard=8), 1, "fsdp", "full"), 8) == [1, 2, 4, 8]
    small = ladder(ASKED, cluster("A100 40GB", 8), Plan(Layout(dp_shard=8), 1, "fsdp", "full"), FITTED, Limits())
    assert [rung.gpus for rung in small] == [8]
