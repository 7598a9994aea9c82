"""Growth of a number with the number of jobs."""

from collections.abc import Callable
from dataclasses import replace

from tests.support.many_jobs.growth import Limit, Sample, find_database_growth, find_growth

LIMITS = {"bytes": Limit(per_job=10, noise=1000)}


def samples(value: Callable[[int], float], name: str = "bytes", start: int = 1) -> list[Sample]:
    return [Sample(jobs, float(jobs), start, {name: value(jobs)}) for jobs in range(0, 1001, 50)]


def test_a_number_that_levels_off_does_not_grow() -> None:
    assert find_growth(samples(lambda jobs: 1e6 + 1e5 * min(jobs, 150)), LIMITS) == []
    assert find_growth(samples(lambda jobs: 1e6 + 9 * jobs), LIMITS) == []
    assert find_growth(samples(lambda jobs: 1e6 + (9000 if jobs == 950 else 0)), LIMITS) == [], "one high value"


def test_a_leak_is_found_with_its_size() -> None:
    (problem,) = find_growth(samples(lambda jobs: 1e6 + 30 * jobs), LIMITS)
    assert problem == "bytes grew by 2.4e+04 in 800 jobs, from 1.006e+06; allowed 9000"


def test_only_the_last_life_of_a_server_counts() -> None:
    leaking = samples(lambda jobs: 1e6 + 30 * jobs)
    again = [Sample(1000 + each.jobs, 1000 + each.at_s, 2, {"bytes": 1e6}) for each in leaking]
    assert find_growth([*leaking, *again], LIMITS) == []
    assert "samples of one server" in find_growth([*leaking, *again[:3]], LIMITS)[0]


def test_the_first_minute_of_a_server_does_not_count() -> None:
    quick = [replace(each, at_s=each.jobs / 5) for each in samples(lambda jobs: 1e6 + 100 * min(jobs, 400))]
    assert find_growth(quick, LIMITS) == []
    assert find_growth([replace(each, at_s=each.at_s * 5) for each in quick], LIMITS) != []


def test_a_time_may_vary_by_a_share_of_itself() -> None:
    limits = {"s": Limit(relative=0.5, noise=0.01)}
    assert find_growth(samples(lambda jobs: 0.1 + 0.00005 * jobs, "s"), limits) == []
    assert find_growth(samples(lambda jobs: 0.1 + 0.0002 * jobs, "s"), limits) != []


def test_the_database_may_grow_by_the_same_size_per_job() -> None:
    assert find_database_growth(samples(lambda jobs: 5000 * jobs, "database_bytes")) == []
    (problem,) = find_database_growth(samples(lambda jobs: jobs**2, "database_bytes"))
    assert problem == "the database grew by 1500 bytes per job in the second half, and 500 in the first"
