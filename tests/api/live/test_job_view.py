import pytest

from regroup.api.live.job_view import JobView, apply_job, apply_steps, initial_view


def board(view: JobView) -> list[tuple[str, str]]:
    return [(rank.node, rank.phase) for rank in view.ranks]


def test_all_ranks_wait_before_the_cluster_exists() -> None:
    view = initial_view("x", 10, ["node-1", "node-2"], 2, "starting Ray")
    assert [(r.rank, r.node, r.is_alive) for r in view.ranks] == [
        (0, "node-1", None),
        (1, "node-1", None),
        (2, "node-2", None),
        (3, "node-2", None),
    ]
    assert (view.step, view.loss, view.eta_s, view.tokens_per_s) == (0, None, None, None)


def test_a_kill_marks_its_rank_first_and_then_all_others(story) -> None:
    events = story.until_the_kill
    running = story.view(events[:-1])
    assert {r.phase for r in running.ranks} == {"training"} and all(r.is_alive for r in running.ranks)

    seen = story.view([*events[:-1], story.incident({"fault_s": 115.0, "seen_s": 115.02})])
    assert [r.phase for r in seen.ranks] == ["training", "dead", "training", "training"]

    dead = story.view(events)
    assert [r.phase for r in dead.ranks] == ["ended", "dead", "ended", "ended"]
    assert dead.incidents[0].summary() == "dead, recovering"


def test_a_late_step_of_an_ended_generation_revives_no_rank(story) -> None:
    view = story.view([*story.until_the_kill, story.step(150)])
    assert view.step == 150 and [r.phase for r in view.ranks] == ["ended", "dead", "ended", "ended"]


def test_a_recovery_ends_the_incident(story) -> None:
    view = story.view([*story.until_the_kill, *story.the_return])
    assert view.generation == 2 and all(r.is_alive for r in view.ranks)
    incident = view.incidents[0]
    assert len(view.incidents) == 1 and incident.is_over
    assert incident.summary() == "recovered in 0.8 s, 0 steps lost"
    assert incident.elapsed("dead_s") == pytest.approx(0.04)


def test_one_lost_step_is_singular_and_a_failed_recovery_is_shown(story) -> None:
    lost = story.view([story.incident(story.back_at, steps_lost=1)]).incidents[0]
    assert lost.summary() == "recovered in 0.8 s, 1 step lost"
    assert (
        story.view([story.incident(story.killed_at, recovery_action="fail")]).incidents[0].summary() == "not recovered"
    )


def test_a_title_names_the_rank_once(story) -> None:
    text = [
        story.view([story.incident(story.killed_at, cause=cause)]).incidents[0].title
        for cause in ("SIGKILL", "rank 1 killed by signal 9")
    ]
    assert text == ["SIGKILL of rank 1 after step 149", "rank 1 killed by signal 9 after step 149"]


def test_a_later_generation_replaces_the_steps_it_repeats(story) -> None:
    view = story.view([*[story.step(s) for s in (1, 2, 3)], story.step(2, generation=2)])
    assert [(s.step, s.generation) for s in view.steps] == [(1, 1), (2, 2)]
    stale = story.view([story.step(1, generation=2), story.step(1, generation=1)])
    assert [s.generation for s in stale.steps] == [2]


def test_a_generation_that_starts_earlier_removes_later_steps(story) -> None:
    steps = [story.step(s) for s in (148, 149, 150, 151)]
    assert story.view([story.generation(1), *steps, story.generation(2)]).step == 149


def test_rate_and_remaining_time_are_those_of_the_newest_generation(story) -> None:
    view = story.view([story.step(s) for s in range(1, 101)])
    assert view.tokens_per_s == pytest.approx(20480)
    assert view.eta_s == pytest.approx(20.0)
    assert story.view([*story.until_the_kill, *story.the_return]).tokens_per_s is None
    assert story.view([*[story.step(s) for s in range(1, 9)], story.state("SUCCEEDED")]).eta_s is None


def test_phases_of_live_ranks_are_shown_and_dead_ranks_stay_dead(story) -> None:
    job = {"id": "j1", "name": "n", "state": "RUNNING", "rank_phases": {str(r): [149, "backward"] for r in range(4)}}
    assert {r.phase for r in apply_job(story.view(story.until_the_kill[:-1]), job).ranks} == {"backward"}
    assert apply_job(story.view(story.until_the_kill), job).ranks[1].phase == "dead"


def test_a_job_that_restores_shows_the_progress_until_it_trains(story) -> None:
    phase = {"phase": "restoring", "fraction": 0.3, "message": "restoring state from checkpoint: 1.2 of 4.0 GB"}
    job = {"id": "j1", "name": "n", "state": "RECOVERING", "phase": phase}
    assert apply_job(story.view(story.until_the_kill), job).activity == f"{phase['message']} 30%"
    assert apply_job(story.view(story.until_the_kill), {**job, "state": "RUNNING"}).activity == ""


def test_a_job_shows_the_checkpoint_that_it_writes_until_that_is_complete(story) -> None:
    save = {"step": 40, "message": "writing checkpoint of step 40: 1.2 of 4.0 GB, 310 MB/s"}
    job = {"id": "j1", "name": "n", "state": "RUNNING", "save": save}
    saving = apply_job(story.view([story.step(41)]), job)
    assert (saving.save, saving.activity) == (save["message"], ""), "training continues"
    assert apply_steps(saving, [story.step(42)["data"]]).save == save["message"]
    assert apply_job(saving, {**job, "save": None}).save == ""


def test_a_queued_job_shows_its_reason_until_it_is_placed(story) -> None:
    conditions = [{"type": "Placeable", "status": False, "reason": "no_room", "message": "needs 4 ranks, 2 are free"}]
    queued = {"id": "j1", "name": "n", "state": "QUEUED", "conditions": conditions}
    waiting = apply_job(story.view([]), queued)
    assert waiting.activity == "needs 4 ranks, 2 are free"
    assert apply_job(waiting, {**queued, "conditions": []}).activity == ""


def test_an_unknown_event_changes_nothing(story) -> None:
    view = story.view(story.until_the_kill)
    assert story.view([*story.until_the_kill, {"type": "note", "data": {"kind": "x"}}]) == view


def test_the_start_shows_its_activity_until_the_first_step(story) -> None:
    events = story.until_the_kill
    assert story.view(events[:2]).activity == "12 files 40%"
    assert story.view(events[:6]).activity == ""


def test_the_end_of_the_job_clears_the_ranks(story) -> None:
    view = story.view([*story.until_the_kill, story.state("FAILED", "user_error", error={"kind": "ValueError"})])
    assert view.is_over and view.error == {"kind": "ValueError"} and {r.phase for r in view.ranks} == {"ended"}
    assert {r.phase for r in story.view([story.generation(1), story.state("SUCCEEDED")]).ranks} == {"done"}


def test_an_incident_ends_with_its_job(story) -> None:
    times = {"fault_s": 115.0, "seen_s": 115.1, "dead_s": 115.2, "formed_s": 116.0, "ended_s": 120.0}
    (incident,) = story.view([*story.until_the_kill, story.incident(times)]).incidents
    assert incident.is_over and incident.summary() == "restarted in 1.0 s, no step since"
    (never,) = story.view([*story.until_the_kill, story.incident({"fault_s": 1.0, "ended_s": 9.0})]).incidents
    assert never.summary() == "not recovered before the job ended"
