import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec
from regroup.service.spec.ladder import find_nearest_degrees


@given(st.integers(1, 300), st.sets(st.integers(1, 600), max_size=12))
def test_the_nearest_degrees_are_legal_and_no_legal_degree_is_nearer(degree: int, legal: set[int]) -> None:
    legal.discard(degree)
    found = find_nearest_degrees(degree, legal.__contains__, list(range(1, 600)))
    assert set(found) <= legal
    between = range(min([*found, degree]), max([*found, degree]) + 1)
    assert not (legal & set(between)) - set(found)
    if any(other < degree for other in legal):
        assert found[0] == max(other for other in legal if other < degree)


def refused(layout: dict[str, object]) -> str:
    training = {"global_batch": 12, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["x"]}, "model": {"layers": 4, "vocab_size": 264}}
    with pytest.raises(SpecError) as error:
        parse_spec({"name": "a", "workload": workload, "training": training, "layout": layout})
    return str(error.value)


def test_an_impossible_size_is_refused_with_the_nearest_legal_sizes() -> None:
    assert "legal sizes near layout.dp=16: 12" in refused({"dp": 16})
    assert "legal sizes near layout.dp=5: 4 and 6" in refused({"dp": 5, "dp_shard": 2})
    assert "legal sizes" not in refused({"dp": 2, "tp": 3}), "no number of data ranks fixes this"
