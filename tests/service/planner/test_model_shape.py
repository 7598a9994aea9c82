"""The parameters of published models equal the published numbers."""

import pytest

from regroup.service.planner.model_shape import PRESETS


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gpt2", 0.124), ("gpt3-175b", 174.6), ("bloom-176b", 176.2), ("mt-nlg-530b", 529.6), ("llama2-7b", 6.74),
        ("llama2-13b", 13.02), ("llama-30b", 32.5), ("llama2-70b", 68.98), ("llama3-8b", 8.03), ("llama3-70b", 70.55),
        ("llama3-405b", 405.9), ("mixtral-8x7b", 46.7),
        ("vit-b16", 0.0866), ("vit-l16", 0.3043), ("vit-h14", 0.632),
    ],
)  # fmt: skip
def test_a_preset_has_as_many_parameters_as_published(name: str, billions: float) -> None:
    assert PRESETS[name].parameters / 1e9 == pytest.approx(billions, rel=0.003)


def test_a_mixture_computes_with_a_part_of_its_parameters() -> None:
    mixture = PRESETS["mixtral-8x7b"]
    assert mixture.active_parameters / 1e9 == pytest.approx(12.88, rel=0.003)
    assert mixture.step_flops(1, 1) == pytest.approx(6 * mixture.active_parameters, rel=0.03)


def test_grouped_queries_have_fewer_parameters_and_the_same_scores() -> None:
    grouped = PRESETS["llama2-70b"]
    assert grouped.attention_parameters == 8192 * 128 * (2 * 64 + 2 * 8)
    assert grouped.attention_flops_per_token(4096) == 4 * 4096 * 8192
