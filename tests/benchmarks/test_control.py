"""The benchmark of control at scale, with few nodes: real processes, simulated agents."""

from benchmarks.control import measure_job


async def test_a_small_job_is_measured_through_a_death_and_a_restart() -> None:
    found = await measure_job(4, trials=1, steady_s=2.0, settle_s=0.5)
    assert (found["nodes"], found["ranks"]) == (4, 32)
    assert 0 < found["death_to_end_orders_s"] < found["death_to_form_orders_s"] < 30
    assert 0 <= found["steady_cores"] < 1
    assert found["memory_bytes"] > 2**20 and found["readopt_s"] > 0
