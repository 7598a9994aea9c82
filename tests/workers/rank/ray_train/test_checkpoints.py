"""Checkpoints of Ray Train: committed atomically, restorable at any size, and readable by Ray Train itself."""

from pathlib import Path

from regroup.workers.contract.messages import Report, Restore, Restored, StepRow
from tests.support.jobs.ray_train_ranks import Start, all_done, fit

CHECKPOINTS = """
def loop():
    newest = ray.train.get_checkpoint()
    done = 0
    if newest:
        with newest.as_directory() as folder:
            parts = {path.name: path.read_text() for path in sorted(Path(folder).iterdir())}
        done = int(parts["part-0"])
        print("continues from", parts)
    for epoch in range(done + 1, 6):
        save({"loss": 1.0 / epoch, "score": {"best": abs(epoch - 2)}}, str(epoch))
        if epoch == 3 and WITH_KILL and ray.train.get_context().get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
"""
SHOWN = """
print("kept", [metrics["loss"] for _, metrics in result.best_checkpoints], result.metrics["loss"],
      len(result.metrics_dataframe))
"""


def folders(tmp_path: Path) -> list[str]:
    """Return the names of the checkpoint folders of the run."""
    return sorted(path.name for path in (tmp_path / "runs" / "run").iterdir() if path.is_dir())


def test_after_a_kill_the_newest_checkpoint_restores_at_another_size(run: Start, tmp_path: Path) -> None:
    option = "checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2)"
    killed = run(CHECKPOINTS.replace("WITH_KILL", "True") + fit(run=option))
    assert killed[1].code == -9
    assert len(folders(tmp_path)) in (2, 3), "the fourth may be on its way"
    again = all_done(
        run(CHECKPOINTS.replace("WITH_KILL", "False") + fit(ranks="(1, 4)", run=option) + SHOWN, ranks=3, generation=2)
    )
    continued = "continues from {'part-0': '3', 'part-1': '3'}"
    assert again[0].out.splitlines() == [continued, "kept [0.25, 0.2] 0.2 2"]
    assert again[2].out.splitlines() == [continued]
    assert len(folders(tmp_path)) == 2
    assert [report.metrics for report in again[0].of(Report)] == [
        {"loss": 0.25, "score/best": 2.0},
        {"loss": 0.2, "score/best": 3.0},
    ]
    assert not again[1].of(Report), "rank 0 speaks for all"


def test_the_best_and_the_newest_are_kept(run: Start, tmp_path: Path) -> None:
    config = "num_to_keep=2, checkpoint_score_attribute='score/best', checkpoint_score_order='min'"
    option = f"checkpoint_config=ray.train.CheckpointConfig({config})"
    (zero,) = all_done(run(CHECKPOINTS.replace("WITH_KILL", "False") + fit(ranks="1", run=option) + SHOWN, ranks=1))
    assert zero.out == "kept [0.3333333333333333, 0.5] 0.2 2\n"
    assert len(folders(tmp_path)) == 3, "the newest too, though it is not among the best"


COUNTS_NOTHING = """
def loop():
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    done = 4 if ray.train.get_checkpoint() else 0
    for step in range(done + 1, 8):
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        if step == 4:
            save({}, "x")
        if step == 6 and not done:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_steps_are_known_from_the_checkpoint_where_the_optimizer_counts_none(run: Start) -> None:
    assert run(COUNTS_NOTHING + fit(ranks="1"), ranks=1)[0].code == -9
    (zero,) = all_done(run(COUNTS_NOTHING + fit(ranks="1"), ranks=1, generation=2, restore=Restore("none", 6)))
    (restored,) = zero.of(Restored)
    assert (restored.step, restored.has_step_count) == (4, True)
    assert [row.step for row in zero.of(StepRow)] == [5, 6, 7]


TORN = """
def loop():
    if newest := ray.train.get_checkpoint():
        print("continues from", Path(newest.path, "part-0").read_text())
        return
    save({"loss": 1.0}, "whole", checkpoint_dir_name="one")
    def half(checkpoint, name):
        folder = Path(ray.train.get_context().get_storage().experiment_fs_path, name)
        folder.mkdir(exist_ok=True)
        (folder / "part-0").write_text("torn")
        os.kill(os.getpid(), signal.SIGKILL)
    save({"loss": 0.5}, "torn", checkpoint_dir_name="two", checkpoint_upload_fn=half)
"""


def test_a_checkpoint_that_was_torn_never_counts_and_is_cleared_away(run: Start, tmp_path: Path) -> None:
    assert run(TORN + fit(ranks="1"), ranks=1)[0].code == -9
    assert folders(tmp_path) == ["one", "two"]
    (zero,) = all_done(run(TORN + fit(ranks="1"), ranks=1, generation=2))
    assert zero.out == "continues from whole\n"
    assert folders(tmp_path) == ["one"]


def test_a_run_named_after_the_date_is_found_again(run: Start, tmp_path: Path) -> None:
    source = """
def loop():
    print(ray.train.get_context().get_experiment_name(), ray.train.get_checkpoint() is not None)
    save({}, "x")
run = ray.train.RunConfig(name=f"run-{os.getpid()}", storage_path=STORAGE)
ray.train.torch.TorchTrainer(loop, run_config=run).fit()
ray.train.torch.TorchTrainer(loop).fit()
print(sorted(os.listdir(STORAGE)))
"""
    (first,) = all_done(run(source, ranks=1))
    (second,) = all_done(run(source, ranks=1, generation=2))
    named, unnamed, listed = first.out.splitlines()
    assert named.startswith("run-") and named.endswith(" False")
    assert unnamed == "ray_train_run-j False"
    assert second.out.splitlines() == [named.replace("False", "True"), "ray_train_run-j True", listed]
    assert (tmp_path / "job" / "ray_train_run-j").is_dir()
