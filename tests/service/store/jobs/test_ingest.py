"""Ingestion of events: once each, in order, and only with legal state transitions."""

import math

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.observability.job_totals import totals_of
from regroup.service.observability.metric_names import INCIDENTS
from regroup.service.store.rows.records import Allocation, AllocationKind, Lease
from regroup.service.store.store import Store


async def test_a_job_runs_and_ends(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    running = await store.job(job_id)
    assert (running.state, running.generation, running.step, running.started_at) == (JobState.RUNNING, 1, 1, 500.0)
    end = [
        *(emitter.step(1, step, loss=2.0 / step) for step in range(2, 11)),
        emitter.report("checkpoint", "checkpoint:10", step=10, generation=1, uri="file:///c", size_bytes=9, files=2),
        emitter.report("result", "result", parameters="aa", samples="bb", parameter_count=7, step=10),
        emitter.state(JobState.SUCCEEDED, Reason.COMPLETED),
    ]
    job = await store.ingest(lease, job_id, emitter.boot_id, end, {"goodput": 0.9})
    assert job == await store.job(job_id)
    assert (job.state, job.step, job.loss, job.goodput) == (JobState.SUCCEEDED, 10, 0.2, 0.9)
    assert job.result == {"parameters": "aa", "samples": "bb", "parameter_count": 7, "step": 10}
    assert job.finished_at == end[-1].time_s
    assert job.tokens_per_s == 128.0 and job.acked_seq == end[-1].seq
    numbers = [event.number for event in await store.events(job_id)]
    assert numbers == list(range(1, job.version + 1))
    assert (await store.ledger(job_id)).exact


async def test_repeated_events_change_nothing(store: Store, lease: Lease, queue, walk, emitter, make_emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    batch = [
        emitter.step(1, 2),
        emitter.report("incident", "incident:i1:1", id="i1", cause="rank_exit", rank=2, times={"seen_s": 1.0}),
        emitter.report("note", "note:1", kind="x"),
    ]
    once = await store.ingest(lease, job_id, emitter.boot_id, batch, {})
    assert await store.ingest(lease, job_id, emitter.boot_id, batch, {}) == once
    # A restarted supervisor numbers its events from 1 again, but the keys are the same.
    again = make_emitter("boot-2")
    repeated = [again.step(1, 2), again.report("note", "note:1", kind="x"), again.step(1, 3)]
    later = await store.ingest(lease, job_id, again.boot_id, repeated, {})
    assert later.version == once.version
    assert (later.supervisor_boot_id, later.acked_seq, later.step) == ("boot-2", 3, 3)
    assert [row.number for row in await store.step_rows(job_id)] == [1, 2, 3]


async def test_a_start_event_does_not_change_a_running_job(
    store: Store, lease: Lease, queue, walk, emitter, make_emitter
):
    job_id = await queue()
    await walk(job_id, emitter)
    before = await store.job(job_id)
    again = make_emitter("boot-2")
    later = await store.ingest(
        lease,
        job_id,
        again.boot_id,
        [again.report("state", "state:0:0:STARTING", 0, state="STARTING", reason="reserved")],
        {},
    )
    assert (later.state, later.version) == (JobState.RUNNING, before.version)


async def test_later_revisions_of_an_incident_replace_earlier_ones(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    first = emitter.report("incident", "incident:i1:1", id="i1", cause="rank_exit", times={"seen_s": 1.0})
    second = emitter.report(
        "incident",
        "incident:i1:2",
        id="i1",
        cause="rank_exit",
        reason="rank_exit",
        times={"seen_s": 1.0, "dead_s": 2.0},
    )
    other = emitter.report("incident", "incident:i2:1", id="i2", cause="rank 3 is silent", reason="hang", times={})
    await store.ingest(lease, job_id, emitter.boot_id, [first, other, second], {})
    incidents = await store.incidents(job_id)
    assert [(item.id, item.data["times"]) for item in incidents] == [("i1", {"seen_s": 1.0, "dead_s": 2.0}), ("i2", {})]
    job = await store.job(job_id)
    account = JobAccount(job)
    await account.catch_up(store, job)
    counted = {labels: value for (name, labels), value in totals_of(account, 0.0).items() if name == INCIDENTS.name}
    assert counted == {("rank_exit",): 1, ("hang",): 1}


async def test_repeated_steps_supersede_the_earlier_rows(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    batch = [
        *(emitter.step(1, step) for step in (2, 3, 4)),
        emitter.generation(2, 3, cause="rank_exit"),
        emitter.step(2, 4, loss=1.5),
        emitter.step(1, 5),  # A late row of the dead generation.
    ]
    job = await store.ingest(lease, job_id, emitter.boot_id, batch, {})
    assert (job.generation, job.step, job.loss) == (2, 4, 1.5)
    committed = await store.committed_steps(job_id)
    assert [(row.generation, row.step) for row in committed] == [(1, 1), (1, 2), (1, 3), (2, 4)]
    assert committed[0].samples_hash == 2**63 + 1
    ledger = await store.ledger(job_id)
    assert (ledger.exact, ledger.steps, ledger.samples, ledger.superseded) == (True, 4, 16, 2)
    assert ledger.samples_hash == sum(2**63 + step for step in (1, 2, 3, 4)) % 2**64


async def test_the_ledger_knows_how_many_samples_a_generation_takes(store: Store, lease: Lease, queue, walk, emitter):
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10, "batch": "follows_world"}
    job_id = await queue(training=training, layout={"dp": {"min": 1, "target": 4, "max": 4}})
    await walk(job_id, emitter)
    reports = [
        emitter.generation(2, 2, layout={"dp_shard": 4}, world_size=4),
        *(emitter.step(2, step, samples=4) for step in (3, 4)),
        emitter.generation(3, 4, layout={"dp_shard": 2}, world_size=2),
        *(emitter.step(3, step, samples=2) for step in (5, 6)),
    ]
    await store.ingest(lease, job_id, emitter.boot_id, reports, {})
    problems = (await store.ledger(job_id)).problems
    assert not any("step 4" in problem or "step 6" in problem for problem in problems), problems
    await store.ingest(lease, job_id, emitter.boot_id, [emitter.step(3, 7, samples=4)], {})
    assert "step 7 used 4 samples, expected 2" in (await store.ledger(job_id)).problems


async def test_the_ledger_lists_its_problems(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    await store.ingest(lease, job_id, emitter.boot_id, [emitter.step(1, 3, samples=5), emitter.step(1, 4)], {})
    ledger = await store.ledger(job_id)
    assert not ledger.exact
    assert any("first is 2" in problem for problem in ledger.problems)
    assert any("step 3 used 5 samples, expected 4" in problem for problem in ledger.problems)


async def test_illegal_transitions_are_recorded_as_rejected(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    bad = [
        emitter.state(JobState.PLACING, Reason.PLACED),
        emitter.report("state", "state:illegal", state="SLEEPING", reason="tired"),
        emitter.report("step", "step:1:x", step="x"),
        emitter.state(JobState.RECOVERING, Reason.RANK_EXIT),
    ]
    job = await store.ingest(lease, job_id, emitter.boot_id, bad, {})
    assert job.state is JobState.RECOVERING
    assert [event.type for event in await store.events(job_id)][-4:] == ["rejected"] * 3 + ["state"]


async def test_events_of_a_supervisor_prove_its_reservations(store: Store, lease: Lease, queue, emitter):
    job_id = await queue()
    await store.apply(lease, check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED), now=1.0)
    reports = [emitter.generation(1, 0), emitter.step(1, 1), emitter.state(JobState.RUNNING, Reason.FIRST_STEP)]
    assert (await store.ingest(lease, job_id, emitter.boot_id, reports, {})).state is JobState.RUNNING


async def test_unusual_values_are_stored_as_plain_data(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    error = {"kind": "ValueError", "message": "nul \x00 half \ud800", "traceback": "", "rank": 0, "step": 2}
    reports = [
        emitter.step(1, 2, loss=math.nan, grad_norm=math.inf, extra={"accuracy": math.nan}),
        emitter.state(JobState.FAILED, Reason.USER_ERROR, message="nul \x00", error=error),
    ]
    job = await store.ingest(lease, job_id, emitter.boot_id, reports, {"goodput": math.nan})
    assert job.error is not None and "\x00" not in job.error["message"]
    row = (await store.step_rows(job_id))[-1]
    assert (row.loss, row.grad_norm, row.extra) == (None, None, {"accuracy": None})


async def test_phases_are_the_progress_of_a_start(store: Store, lease: Lease, queue, emitter):
    job_id = await queue()
    await store.apply(lease, check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED), now=1.0)
    await store.apply(lease, check_transition(job_id, JobState.PLACING, JobState.STARTING, Reason.RESERVED), now=2.0)
    reports = [
        emitter.report("phase", f"phase:{number}", 0, phase="data", fraction=number / 4, message="")
        for number in range(4)
    ]
    job = await store.ingest(lease, job_id, emitter.boot_id, reports, {})
    assert job.phase is not None and job.phase["fraction"] == 0.75
    assert [event.type for event in await store.events(job_id)].count("phase") == 1
    reports = [emitter.generation(1, 0), emitter.state(JobState.RUNNING, Reason.FIRST_STEP)]
    assert (await store.ingest(lease, job_id, emitter.boot_id, reports, {})).phase is None


async def test_a_requeued_job_has_no_allocations(store: Store, lease: Lease, queue, emitter):
    job_id = await queue()
    placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    allocate = [
        Allocation(job_id, AllocationKind.SUPERVISOR, "s"),
        Allocation(job_id, AllocationKind.RESERVATION, "g", "n0", {"cpus": 1}),
    ]
    await store.apply(lease, placed, now=1.0, allocate=allocate)
    assert await store.live_allocations() == allocate
    job = await store.ingest(lease, job_id, emitter.boot_id, [emitter.state(JobState.QUEUED, Reason.REQUEUED)], {})
    assert job.state is JobState.QUEUED
    assert await store.live_allocations(job_id) == []
    await store.apply(lease, placed, now=2.0, allocate=allocate)
    assert len(await store.live_allocations(job_id)) == 2


async def test_removed_checkpoints_are_not_listed(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    saved = [
        emitter.report(
            "checkpoint", f"checkpoint:{step}", step=step, generation=1, uri=f"file:///c/{step}", size_bytes=5
        )
        for step in (2, 4)
    ]
    await store.ingest(lease, job_id, emitter.boot_id, saved, {})
    removed_event = emitter.report("checkpoint_removed", "checkpoint_removed:2", step=2, generation=1)
    await store.ingest(lease, job_id, emitter.boot_id, [removed_event], {})
    assert [item.step for item in await store.checkpoints(job_id)] == [4]
    assert [item.step for item in await store.checkpoints(job_id, removed=True)] == [2, 4]
    assert (await store.totals.read(0.0)).checkpoint_bytes == 5


async def test_a_checkpoint_has_the_stall_of_the_step_after_it(store: Store, lease: Lease, queue, walk, emitter):
    """Check that a step with the same number in another generation does not count."""
    job_id = await queue()
    await walk(job_id, emitter)
    row = {"duration_s": 0.5, "loss": 2.0, "tokens": 64, "samples": 4, "samples_hash": 1}
    events = [
        emitter.report("checkpoint", "checkpoint:2", step=2, generation=1, uri="file:///c/2", size_bytes=5),
        emitter.report("step", "step:1:3", step=3, generation=1, stall_s=0.25, **row),
        emitter.report("checkpoint", "checkpoint:4", step=4, generation=1, uri="file:///c/4", size_bytes=5),
        emitter.report("step", "step:2:5", step=5, generation=2, stall_s=0.75, **row),
    ]
    await store.ingest(lease, job_id, emitter.boot_id, events, {})
    assert [(item.step, item.stall_s) for item in await store.checkpoints(job_id)] == [(2, 0.25), (4, None)]


async def test_the_job_shows_the_metrics_of_its_last_steps(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    metrics = {"mfu": 0.4, "peak_bytes": 5e9, "reduce_scatter": 3.0}
    await store.ingest(lease, job_id, emitter.boot_id, [emitter.step(1, 3, extra=metrics)], {})
    job = await store.job(job_id)
    assert (job.mfu, job.exposed_communication, job.peak_bytes) == (0.4, None, 5e9)
    job = await store.ingest(
        lease, job_id, emitter.boot_id, [emitter.step(1, 4, extra={"exposed_communication": 0.1})], {}
    )
    assert (job.mfu, job.exposed_communication) == (0.4, 0.1), "a metric that a step omits does not change"


async def test_steps_of_a_script_have_only_known_values(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    unknown = {"loss": None, "tokens": None, "samples": None, "samples_hash": None, "duration_s": 0.5}
    before = (await store.job(job_id)).loss
    reports = [emitter.step(1, step, **unknown) for step in (3, 4, 5)]
    job = await store.ingest(lease, job_id, emitter.boot_id, reports, {})
    assert (job.step, job.loss) == (5, before)
    assert job.tokens_per_s == 64 / 0.5, "the value of earlier steps"
    row = (await store.step_rows(job_id))[-1]
    assert (row.loss, row.tokens, row.samples, row.samples_hash) == (None, None, None, None)


async def test_metrics_of_a_script_are_merged_into_the_row_of_its_step(
    store: Store, lease: Lease, queue, walk, emitter
):
    job_id = await queue()
    await walk(job_id, emitter)
    unknown = {"loss": None, "tokens": None, "samples": None, "samples_hash": None}
    reports = [
        emitter.step(1, 3),
        emitter.step(1, 4, **unknown),
        emitter.report("report", "report:1:4:1", 1, step=4, metrics={"loss": 0.5, "accuracy": 0.9}),
        emitter.report("report", "report:1:4:2", 1, step=4, metrics={"validation_loss": 0.7, "accuracy": math.nan}),
    ]
    job = await store.ingest(lease, job_id, emitter.boot_id, reports, {})
    assert (job.loss, job.validation_loss) == (0.5, 0.7)
    row = (await store.step_rows(job_id))[-1]
    assert (row.step, row.loss, row.validation_loss, row.extra) == (4, 0.5, 0.7, {"accuracy": None})
    assert not [event for event in await store.events(job_id) if event.type in ("report", "rejected")]
    job = await store.ingest(lease, job_id, emitter.boot_id, [emitter.step(1, 5, **unknown)], {})
    assert job.loss == 0.5, "the last reported value"
    early = emitter.report("report", "report:1:9:1", 1, step=9, metrics={"loss": 0.1})
    job = await store.ingest(lease, job_id, emitter.boot_id, [early], {})
    assert job.loss == 0.5, "the step has no row yet"


async def test_a_generation_starts_at_the_step_that_its_script_reports(
    store: Store, lease: Lease, queue, walk, emitter
):
    job_id = await queue()
    await walk(job_id, emitter)
    job = await store.job(job_id)
    reached = job.step + 3
    reports = [emitter.step(1, step) for step in range(job.step + 1, reached + 1)]
    reports += [
        emitter.generation(2, reached),
        emitter.report("resumed", "resumed:2", 2, step=reached - 2, has_step_count=True),
    ]
    job = await store.ingest(lease, job_id, emitter.boot_id, reports, {})
    assert (job.generation, job.step) == (2, reached - 2)
    assert [row.step for row in await store.committed_steps(job_id)][-1] == reached - 2
    job = await store.ingest(lease, job_id, emitter.boot_id, [emitter.step(2, reached - 1)], {})
    assert job.step == reached - 1


async def test_a_straggler_is_a_condition_while_it_lasts(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    slow = {"rank": 2, "node": "local-2", "work_s": 0.3, "usual_s": 0.1}
    crowded = {"rank": 1, "node": "local-1", "work_s": 0.4, "usual_s": 0.1, "is_crowded": True}
    named = ([], [slow], [crowded], [])
    events = [emitter.report("stragglers", f"stragglers:b:{n}", ranks=ranks) for n, ranks in enumerate(named)]
    version = (await store.ingest(lease, job_id, emitter.boot_id, events[:1], {})).version
    job = await store.ingest(lease, job_id, emitter.boot_id, events[1:2], {})
    (condition,) = job.conditions
    assert (condition.type, condition.status, condition.reason) == ("EvenPace", False, "straggler")
    assert condition.message == "rank 2 on node local-2 works 0.3 s a step, the others 0.1 s"
    (condition,) = (await store.ingest(lease, job_id, emitter.boot_id, events[2:3], {})).conditions
    assert condition.message.startswith("rank 1 on node local-1 has to wait for a processor: it needs 0.4 s a step")
    job = await store.ingest(lease, job_id, emitter.boot_id, events[3:], {})
    assert job.conditions == () and job.version == version + 3, (
        "an event without stragglers counts only after one with stragglers"
    )


async def test_missing_mirrors_are_a_condition_until_all_are_restored(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    mirrors = [
        {"step": 4},
        {"step": 4, "sets": 1, "why": "n2: no memory"},
        {"step": None, "sets": 0, "why": "n2: short"},
        {"step": 9, "sets": 2, "why": ""},
    ]
    events = [emitter.report("mirror", f"mirror:b:{number}", **each) for number, each in enumerate(mirrors)]
    observed: list[tuple[int | None, list[tuple[str, bool, str, str]]]] = []
    for event in events:
        job = await store.ingest(lease, job_id, emitter.boot_id, [event], {})
        conditions = [(each.type, each.status, each.reason, each.message) for each in job.conditions]
        observed.append((job.mirrored_step, conditions))
    assert observed == [
        (4, []),
        (4, [("Mirrored", False, "one_set", "n2: no memory")]),
        (None, [("Mirrored", False, "no_mirror", "n2: short")]),
        (9, []),
    ]


async def test_steps_that_a_script_repeats_without_a_count_are_a_condition(
    store: Store, lease: Lease, queue, walk, emitter
):
    job_id = await queue()
    await walk(job_id, emitter)
    step = (await store.job(job_id)).step
    first = emitter.report("resumed", "resumed:1", 1, step=step, has_step_count=False)
    job = await store.ingest(lease, job_id, emitter.boot_id, [first], {})
    assert not job.step_is_estimated, "the first generation repeats nothing"
    restart = [emitter.generation(2, step), emitter.report("resumed", "resumed:2", 2, step=step, has_step_count=False)]
    job = await store.ingest(lease, job_id, emitter.boot_id, restart, {})
    assert job.step_is_estimated
    (condition,) = job.conditions
    assert (condition.type, condition.status, condition.reason) == ("StepsCounted", False, "no_step_count")
    again = [emitter.generation(3, step), emitter.report("resumed", "resumed:3", 3, step=0, has_step_count=True)]
    job = await store.ingest(lease, job_id, emitter.boot_id, again, {})
    assert not job.step_is_estimated and job.conditions == ()


async def test_a_save_is_on_the_row_while_it_runs_and_its_begin_is_announced(
    store: Store, lease: Lease, queue, walk, emitter
):
    job_id = await queue()
    await walk(job_id, emitter)
    save = {"step": 4, "generation": 1, "message": "m", "done_bytes": 1, "total_bytes": 4, "bytes_per_s": 0.5}
    newest = (await store.notices.range()).newest
    begun = await store.ingest(lease, job_id, emitter.boot_id, [], {"save": save, "reported_at": 1100.0})
    assert begun == await store.job(job_id) and begun.save == save
    further = {**save, "done_bytes": 2}
    later = await store.ingest(lease, job_id, emitter.boot_id, [], {"save": further, "reported_at": 1101.0})
    assert later.save == further and later.revision > begun.revision and later.version == begun.version
    assert (await store.ingest(lease, job_id, emitter.boot_id, [], {})).save == further, "a status without it"
    announced = [(each.kind, each.event, each.time_s) for each in await store.notices.after(newest, 9)]
    assert announced == [("save", None, 1100.0)]
    assert (await store.ingest(lease, job_id, emitter.boot_id, [], {"save": None})).save is None


async def test_a_job_that_loses_its_devices_saves_nothing(store: Store, lease: Lease, queue, walk, emitter):
    job_id = await queue()
    await walk(job_id, emitter)
    save = {"step": 4, "generation": 1, "message": "m", "done_bytes": 1, "total_bytes": 4, "bytes_per_s": 0.5}
    await store.ingest(lease, job_id, emitter.boot_id, [], {"save": save})
    lost = check_transition(job_id, JobState.RUNNING, JobState.QUEUED, Reason.REQUEUED)
    assert (await store.apply(lease, lost, now=1200.0)).save is None
    assert (await store.job(job_id)).save is None
