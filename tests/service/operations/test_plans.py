"""Plan requests and complete reports."""

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.operations.plans import ModelSizes, PlanRequest, plan
from regroup.service.planner.explain import Report
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.spec.job import parse_spec
from tests.support.inputs.probe_output import probe_result


def make_report(**changed: object) -> Report:
    """Return the report of a 7B model on 8 A100, with changed fields."""
    question = {"model": "llama2-7b", "device": "A100", "gpus": 8, "global_batch": 256, "sequence": 2048}
    return plan(PlanRequest.model_validate({**question, **changed}))


def test_the_parts_of_a_report_add_up() -> None:
    report = make_report(price_per_gpu_hour=2.0)
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
    assert "host memory of each rank" in best.why and "sets of" in best.why


def test_every_rejected_kind_has_a_reason() -> None:
    report = make_report()
    assert {"ddp"} <= {lost.kind for lost in report.lost if not lost.fits}
    for lost in report.lost:
        assert ("does not fit" in lost.why) == (lost.step_s is None) == (not lost.fits)
    assert not {lost.kind for lost in report.lost} & {each.kind for each in report.plans}


def test_the_ladder_has_only_sizes_that_fit_and_ends_at_the_plan() -> None:
    report = make_report(model="gpt3-1.3b", gpus=32, global_batch=64)
    assert [size.gpus for size in report.ladder][-1] == 32
    assert len(report.ladder) > 2
    assert all(size.fits and size.layout.world_size == size.gpus for size in report.ladder)


def test_failures_cost_more_on_more_devices() -> None:
    few, many = (make_report(gpus=gpus, global_batch=4096) for gpus in (8, 1024))
    assert many.plans[0].goodput < few.plans[0].goodput


def test_the_page_has_the_content_of_the_report() -> None:
    report = make_report()
    page = report.markdown
    assert report.question in page
    assert str(report.plans[0].layout) in page
    assert all(lost.why in page for lost in report.lost)


def test_more_memory_never_slows_the_fastest_plan() -> None:
    small, large = make_report(memory_gb=40), make_report(memory_gb=160)
    assert small.plans[0].step_s >= large.plans[0].step_s


def test_sizes_and_the_name_of_a_model_give_the_same_plans() -> None:
    sizes = ModelSizes(layers=32, hidden=4096, heads=32, vocabulary=32000, ffn=11008, gated=True)
    assert make_report(model=sizes.model_dump()).plans == make_report().plans


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "gpt-9"}, "unknown published model"),
        ({"device": "abacus"}, "not in the hardware table; expected one of GB300"),
        ({"gpus": 0}, "gpus: must be at least 1"),
        ({"gpus_per_node": 0}, "gpus_per_node: must be at least 1"),
        ({"precision": "fp4"}, "A100 does not support fp4; supported: bf16"),
        ({"model": "gpt3-175b"}, "out of memory"),
    ],
)
def test_an_impossible_request_is_refused_with_the_limit(change: dict[str, object], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        make_report(**change)


def test_a_plan_without_obstacles_is_a_valid_spec() -> None:
    report = make_report(model="llama3-8b", gpus=16)
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


def test_a_plan_that_the_trainer_cannot_run_names_the_rule() -> None:
    tied = make_report(model="gpt3-175b", gpus=1024, global_batch=1536).plans[0]
    assert tied.layout.pp > 1
    assert any("tie_embeddings" in rule for rule in tied.obstacles)
    mixture = make_report(model="mixtral-8x7b", gpus=64, global_batch=512).plans[0]
    assert mixture.obstacles == ("the built-in transformer has no mixture of experts",)


def test_wider_gradients_need_more_memory() -> None:
    mixed, megatron = (make_report(states=states).lost[-1].peak_bytes for states in ("mixed", "megatron"))
    assert mixed < megatron


def test_measured_values_replace_the_table_and_are_listed() -> None:
    probe = parse_probe_result(
        probe_result(2, kind="cpu"), [("a", ("",) * 4), ("b", ("",) * 4)], job_id="job_1", time_s=0.0
    )
    question = PlanRequest(
        model=ModelSizes(layers=2, hidden=64, heads=4, vocabulary=257), device="cpu", gpus=4, global_batch=16,
        sequence=128, precision="fp32",
    )  # fmt: skip
    table, found = plan(question), plan(question, [probe])
    assert table.measured_values == () and found.plans[0].step_s != table.plans[0].step_s
    names = {figure.name for figure in found.measured_values}
    assert {"fp32 product FLOP/s", "memory bytes/s", "network bytes/s"} <= names
    assert "## Measured" in found.markdown and "measured 1970-01-01 00:00 UTC by job_1" in found.markdown
    overridden = plan(question.model_copy(update={"network_gb_s": 0.001}), [probe])
    assert overridden.plans[0].step_s > found.plans[0].step_s, "the network speed of the request takes precedence"
