"""Questions to the planner and their answers, whole."""

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.operations.plans import ModelSizes, PlanRequest, plan
from regroup.service.planner.explain import Report
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.spec.job import parse_spec
from tests.support.probe_output import said


def asked(**changed: object) -> Report:
    """7B on 8 A100, changed."""
    question = {"model": "llama2-7b", "device": "A100", "gpus": 8, "global_batch": 256, "sequence": 2048}
    return plan(PlanRequest.model_validate({**question, **changed}))


def test_an_answer_adds_up() -> None:
    report = asked(price_per_gpu_hour=2.0)
    for each in report.plans:
        assert sum(each.time.values()) == pytest.approx(each.step_s)
        assert max(stage["total"] for stage in each.memory) == pytest.approx(each.peak_bytes)
        assert each.peak_bytes <= each.capacity_bytes == 80e9
        assert 0.3 < each.mfu < 0.8
        assert 0.99 < each.goodput < 1
    best = report.plans[0]
    hours = 8 * best.step_s / 3600
    assert best.cost_per_billion_tokens == pytest.approx(2 * hours / (256 * 2048) * 1e9 / best.goodput)
    assert best.why.startswith("fastest that fits")


def test_every_kind_that_lost_says_why() -> None:
    report = asked()
    assert {"ddp"} <= {lost.kind for lost in report.lost if not lost.fits}
    for lost in report.lost:
        assert ("does not fit" in lost.why) == (lost.step_s is None) == (not lost.fits)
    assert not {lost.kind for lost in report.lost} & {each.kind for each in report.plans}


def test_the_ladder_ends_at_the_plan_and_only_goes_where_it_fits() -> None:
    report = asked(model="gpt3-1.3b", gpus=32, global_batch=64)
    assert [rung.gpus for rung in report.ladder][-1] == 32
    assert len(report.ladder) > 2
    assert all(rung.fits and rung.layout.world_size == rung.gpus for rung in report.ladder)


def test_failures_cost_more_on_more_devices() -> None:
    few, many = (asked(gpus=gpus, global_batch=4096) for gpus in (8, 1024))
    assert many.plans[0].goodput < few.plans[0].goodput


def test_a_page_says_what_the_answer_says() -> None:
    report = asked()
    page = report.markdown
    assert report.question in page
    assert str(report.plans[0].layout) in page
    assert all(lost.why in page for lost in report.lost)


def test_more_memory_lets_more_fit() -> None:
    small, large = asked(memory_gb=40), asked(memory_gb=160)
    assert small.plans[0].step_s >= large.plans[0].step_s


def test_sizes_are_as_good_as_a_name() -> None:
    sizes = ModelSizes(layers=32, hidden=4096, heads=32, vocabulary=32000, ffn=11008, gated=True)
    assert asked(model=sizes.model_dump()).plans == asked().plans


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "gpt-9"}, "is no published model"),
        ({"device": "abacus"}, "is not in the hardware table; known are GB300"),
        ({"gpus": 0}, "gpus: must be at least 1"),
        ({"gpus_per_node": 0}, "gpus_per_node: must be at least 1"),
        ({"precision": "fp4"}, "A100 does not support fp4; supported: bf16"),
        ({"model": "gpt3-175b"}, "memory binds"),
    ],
)
def test_nonsense_gets_the_limit_that_binds(change: dict[str, object], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        asked(**change)


def test_a_plan_is_a_spec_that_is_taken_where_nothing_is_in_its_way() -> None:
    report = asked(model="llama3-8b", gpus=16)
    runnable = [each for each in report.plans if not each.obstacles]
    assert runnable
    for each in runnable:
        workload = {
            "kind": "builtin",
            "model": {"dim": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn_dim": 14336, "vocab_size": 128256},
            "data": {"train": ["/data"]},
        }
        training = {**each.spec["training"], "steps": 10}
        spec = parse_spec(
            {"name": "planned", "workload": workload, "training": training, "layout": each.spec["layout"]}
        )
        assert spec.ladder[-1] == each.layout


def test_what_the_trainer_cannot_run_says_which_rule() -> None:
    tied = asked(model="gpt3-175b", gpus=1024, global_batch=1536).plans[0]
    assert tied.layout.pp > 1
    assert any("tie_embeddings" in rule for rule in tied.obstacles)
    mixture = asked(model="mixtral-8x7b", gpus=64, global_batch=512).plans[0]
    assert mixture.obstacles == ("the built-in transformer has no mixture of experts",)


def test_wider_gradients_need_more_memory() -> None:
    mixed, megatron = (asked(states=states).lost[-1].peak_bytes for states in ("mixed", "megatron"))
    assert mixed < megatron


def test_what_was_measured_counts_in_place_of_the_table_and_the_plan_says_so() -> None:
    probe = parse_probe_result(said(2, kind="cpu"), [("a", ("",) * 4), ("b", ("",) * 4)], job_id="job_1", time_s=0.0)
    question = PlanRequest(
        model=ModelSizes(layers=2, hidden=64, heads=4, vocabulary=257), device="cpu", gpus=4, global_batch=16,
        sequence=128, precision="fp32",
    )  # fmt: skip
    table, found = plan(question), plan(question, [probe])
    assert table.figures == () and found.plans[0].step_s != table.plans[0].step_s
    names = {figure.name for figure in found.figures}
    assert {"fp32 product FLOP/s", "memory bytes/s", "network bytes/s"} <= names
    assert "## Measured" in found.markdown and "measured 1970-01-01 00:00 UTC by job_1" in found.markdown
    asked = plan(question.model_copy(update={"network_gb_s": 0.001}), [probe])
    assert asked.plans[0].step_s > found.plans[0].step_s, "what the request says of the network counts more"
