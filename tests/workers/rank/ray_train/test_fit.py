"""Unmodified Ray Train programs run on the job's ranks."""

import pytest

from regroup.workers.contract.messages import Done, Failed
from regroup.workers.contract.rank_error import ErrorClass
from tests.support.jobs.ray_train_ranks import Start, all_done, fit

PLACES = """
ray.init(num_cpus=4)
print("driver", ray.is_initialized())
word = "closed over"

def loop(config):
    context = ray.train.get_context()
    message = ray.train.collective.broadcast_from_rank_zero({"from": context.get_world_rank()})
    ray.train.collective.barrier()
    total = torch.tensor([1.0 + context.get_world_rank()])
    dist.all_reduce(total)
    print(word, config["lr"], context.get_world_rank(), context.get_world_size(), context.get_local_rank(),
          context.get_local_world_size(), context.get_node_rank(), context.get_experiment_name(), message, total.item(),
          ray.train.torch.get_device(), ray.train.torch.get_devices(), ray.train.get_checkpoint(),
          os.environ["GREETING"], context.get_storage().experiment_fs_path == STORAGE + "/run")
    return f"value of {context.get_world_rank()}"
"""


def test_the_program_runs_once_and_its_loop_on_every_rank(run: Start) -> None:
    runtime = "worker_runtime_env={'env_vars': {'GREETING': 'hello'}}"
    end = "print('result', result.return_value, result.metrics, result.checkpoint, result.error, dist.is_initialized())"
    zero, one = all_done(run(PLACES + fit("train_loop_config={'lr': 0.5}", run=runtime) + end))
    output = "closed over 0.5 {0} 2 {0} 2 0 run {{'from': 0}} 3.0 cpu [device(type='cpu')] None hello True"
    assert zero.out.splitlines() == ["driver False", output.format(0), "result value of 0 None None None False"]
    assert one.out.splitlines() == [output.format(1)]
    assert not zero.err and not one.err


TWICE = """
def loop(config):
    total = torch.tensor([float(config["add"])])
    dist.all_reduce(total)
    print("total", total.item())

for add in (1, 2):
    scaling = ray.train.ScalingConfig(num_workers=2)
    print(ray.train.torch.TorchTrainer(loop, train_loop_config={"add": add}, scaling_config=scaling).fit().path[-2:])
sys.exit()
"""


def test_a_program_may_fit_twice_and_leave_by_exit(run: Start) -> None:
    zero, one = all_done(run(TWICE))
    assert zero.out.splitlines() == ["total 2.0", "-j", "total 4.0", "-2"]
    assert one.out.splitlines() == ["total 2.0", "total 4.0"]


def test_an_error_of_the_loop_is_the_jobs_whatever_the_program_catches(run: Start) -> None:
    source = "\ndef loop():\n    ray.train.collective.barrier()\n    raise KeyError('lost')\n"
    source += "try:\n" + "".join(f"    {line}\n" for line in fit().strip().splitlines())
    zero, one = run(source + "except BaseException as error:\n    assert not isinstance(error, Exception)\n    raise\n")
    failed = [each for each in (zero, one) if each.of(Failed)]
    assert failed
    for each in failed:
        assert each.error == "KeyError: 'lost'"
        lines = each.of(Failed)[0].error.traceback.splitlines()
        assert sum(line.startswith("  File") for line in lines) == 1, lines


CALLBACK = """
class Recorder(ray.train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        print("reported", metrics, checkpoint)
    def after_exception(self, run_context, worker_exceptions):
        print("raised", worker_exceptions)

def loop():
    ray.train.report({"rank": ray.train.get_context().get_world_rank()})
    ray.train.collective.barrier()
    raise ValueError("bad")
"""


def test_user_callbacks_are_called(run: Start) -> None:
    zero, one = run(CALLBACK + fit(run="callbacks=[Recorder()]"))
    assert zero.out.splitlines()[0] == "reported [{'rank': 0}, {'rank': 1}] None"
    raised = [line for each in (zero, one) for line in each.out.splitlines() if line.startswith("raised")]
    assert raised and set(raised) <= {f"raised {{{rank}: ValueError('bad')}}" for rank in (0, 1)}


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (fit(ranks="4"), "ScalingConfig(num_workers=4), but the job runs on 2 ranks"),
        (fit(ranks="(3, 8)"), "ScalingConfig(num_workers=(3, 8)), but the job runs on 2 ranks"),
        (fit("datasets={'train': object()}"), "datasets=['train']: Ray Data runs on a Ray cluster"),
    ],
)
def test_what_the_job_is_not_is_refused_as_wrong_input(run: Start, end: str, message: str) -> None:
    zero, _ = run("\ndef loop():\n    print('never')\n" + end)
    assert zero.error.startswith(f"InputError: {message}")
    assert zero.of(Failed)[0].error.error_class is ErrorClass.INPUT
    assert "never" not in zero.out


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("ray.train.get_dataset_shard('train')", "whose data Ray Data prepares beforehand (data.prepare)"),
        ("ray.put(1)", "ray.put() needs a Ray cluster"),
        ("ray.remote(save).remote()", "A remote function needs a Ray cluster"),
        ("ray.train.report({'loss': torch.ones(1)})", "metrics are plain numbers, not tensors"),
        ("ray.train.report({}, ray.train.Checkpoint('/tmp'), validation=True)", "validation runs as a Ray task"),
        ("[save({}, 'x', checkpoint_dir_name='same') for _ in range(2)]", "'same' is already in use"),
    ],
)
def test_what_needs_a_cluster_is_refused_where_it_is_called(run: Start, does: str, message: str) -> None:
    (zero,) = run(f"\ndef loop():\n    {does}\n" + fit(ranks="1"), ranks=1)
    assert message in zero.error


def test_a_program_that_requests_more_retries_than_the_job_allows_gets_a_note(run: Start) -> None:
    source = "\ndef loop():\n    pass\n" + fit(ranks="1", run="failure_config=ray.train.FailureConfig(max_failures=3)")
    (output,) = all_done(run(source, ranks=1))
    assert "max_failures=3" in output.err and "recovery.budgets.user_error" in output.err
    (untold,) = all_done(run(source, ranks=1, generation=2, restarts=3))
    assert not untold.err


PREPARED = """
def loop():
    rank = ray.train.get_context().get_world_rank()
    torch.manual_seed(rank)
    model = ray.train.torch.prepare_model(torch.nn.Linear(2, 1))
    data = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(4, 2))
    loader = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(data))
    optimizer = torch.optim.Adam(model.parameters())
    for (batch,) in loader:
        model(batch).sum().backward()
        optimizer.step()
    print(type(model).__name__, type(loader.sampler).__name__, [float(p.sum()) for p in model.parameters()])
torch.manual_seed(1234)
"""


def test_models_and_loaders_are_prepared_and_steps_counted(run: Start) -> None:
    zero, one = all_done(run(PREPARED + fit()))
    assert zero.out == one.out and zero.out.startswith("DistributedDataParallel DistributedSampler")
    assert zero.of(Done)[0].step == 2
