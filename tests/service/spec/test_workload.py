"""Fields of each kind of workload. Each error names its field."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.spec.workload import requested_steps
from regroup.service.supervisor.job_state.rank_config import rank_config
from regroup.workers.contract.rank_config import NonFiniteAction, NonFiniteConfig

BUILTIN = {"kind": "builtin", "data": {"train": ["/x"]}}
SCRIPT = {"kind": "script", "entrypoint": "/train.py"}
FUNCTION = {"kind": "function", "function": "a:b"}
STEPS = {"global_batch": 4, "micro_batch": 1, "steps": 3}
TRAINING = {"global_batch": 4, "micro_batch": 1, "sequence": 8, "steps": 3}


def parsed(workload: Any, **fields: Any) -> JobSpec:
    return parse_spec({"name": "x", "workload": workload, **fields})


@pytest.mark.parametrize(
    ("workload", "fields", "path", "message"),
    [
        (BUILTIN, {}, "training", "required by the built-in trainer"),
        ({"data": {}}, {}, "workload", "kind must be one of builtin, script, ray_train, function"),
        (
            {"kind": "pipeline"},
            {},
            "workload",
            "kind must be one of builtin, script, ray_train, function; got pipeline",
        ),
        ({"kind": "script"}, {}, "workload", "exactly one of entrypoint and module"),
        ({**SCRIPT, "module": "a.b"}, {}, "workload", "exactly one of entrypoint and module"),
        ({"kind": "script", "module": "a/b.py"}, {}, "workload.module", "must be the name of a module"),
        ({**SCRIPT, "args": [0.1]}, {}, "workload.args.0", "must be text"),
        ({**SCRIPT, "cwd": "here"}, {}, "workload.cwd", "absolute path"),
        ({**SCRIPT, "model": {}}, {}, "workload.model", "unknown field"),
        ({**BUILTIN, "entrypoint": "x"}, {"training": TRAINING}, "workload.entrypoint", "unknown field"),
        (SCRIPT, {"training": TRAINING}, "training", "workload.steps"),
        (SCRIPT, {"args": {"lr": 1}}, "args", "workload.args"),
        (SCRIPT, {"snapshot": {"every_steps": 2}}, "snapshot", "manages its own state"),
        (SCRIPT, {"checkpoint": {"keep_last": 1}}, "checkpoint", "saves its own checkpoints"),
        (SCRIPT, {"resume_from": "a@latest"}, "resume_from", "loads its own checkpoints"),
        (SCRIPT, {"seed": 1}, "seed", "sets its own seeds"),
        (SCRIPT, {"layout": {"dp": 2, "data_parallel": "ddp"}}, "layout", "set only layout.dp"),
        (SCRIPT, {"faults": [{"at": {"rank": 0, "step": 1, "phase": "backward"}}]}, "faults", "forward or optimizer"),
        (
            SCRIPT,
            {"faults": [{"at": {"rank": 0, "step": 1}, "do": "flip_bit"}]},
            "faults",
            "cannot change losses, parameters, snapshots or checkpoints",
        ),
        (
            BUILTIN,
            {"training": TRAINING, "recovery": {"verify": "restart_only"}},
            "",
            "recovery.verify needs more than 4 steps, and training.steps is 3",
        ),
        (
            SCRIPT,
            {"recovery": {"verify": "restart"}},
            "recovery",
            "a program can only be checked on its own: use verify: restart_only, or `regroup run --check`",
        ),
        (
            SCRIPT,
            {"recovery": {"non_finite": "skip"}},
            "recovery",
            "remove non_finite, loss_spike and verify_replicas",
        ),
        (
            SCRIPT,
            {"recovery": {"loss_spike": "rollback"}},
            "recovery",
            "remove non_finite, loss_spike and verify_replicas",
        ),
        (
            SCRIPT,
            {"recovery": {"verify_replicas": True}},
            "recovery",
            "remove non_finite, loss_spike and verify_replicas",
        ),
        (FUNCTION, {"recovery": {"non_finite": "skip"}, "training": STEPS}, "recovery", "its update is complete"),
        (SCRIPT, {"faults": [{"at": {"rank": 9, "step": 1}}]}, "", "below the largest world size"),
    ],
)
def test_an_error_names_the_field_that_does_not_fit(workload: Any, fields: Any, path: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        parsed(workload, **fields)
    (issue,) = refused.value.issues
    assert issue.path == path
    assert message in issue.message


def test_a_script_needs_only_its_program_and_survives_a_round_trip() -> None:
    spec = parsed(SCRIPT, layout={"dp": {"min": 2, "target": 4, "max": 4}})
    assert parse_spec(spec.model_dump(mode="json")) == spec
    assert spec.training is None
    assert [layout.world_size for layout in spec.ladder] == [2, 3, 4]


def test_replicas_are_compared_for_builtin_workloads_or_on_request() -> None:
    builtin, function = parsed(BUILTIN, training=TRAINING), parsed(FUNCTION, training=STEPS)
    assert (builtin.verifies_replicas, function.verifies_replicas) == (True, False)
    requested = parsed(FUNCTION, training=STEPS, recovery={"verify_replicas": True})
    assert rank_config(requested).verify_replicas
    off = parsed(BUILTIN, training=TRAINING, recovery={"verify_replicas": False, "non_finite": "skip"})
    assert not rank_config(off).verify_replicas
    assert rank_config(off).non_finite == NonFiniteConfig(NonFiniteAction.SKIP, max_skips=3, refill_steps=100)


def test_requested_steps_come_from_training_or_from_a_script_with_steps() -> None:
    specs = (parsed(BUILTIN, training=TRAINING), parsed({**SCRIPT, "steps": 7}), parsed(SCRIPT))
    assert [requested_steps(spec.model_dump(mode="json")) for spec in specs] == [3, 7, None]
