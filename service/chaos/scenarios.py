"""The scenarios, each with its faults and its expected outcome. Numbers are those of docs/faults.md."""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from regroup.service.chaos.fault_plan import FaultPlan, PlannedFault, spec_fault
from regroup.service.chaos.invariants import Expected

RANKS, NODES = 4, 2
STEPS, CHECKPOINT_EVERY = 24, 8
"""Number of steps, and steps between checkpoints, of the job of every scenario and of its control run."""
_MID = (10, 14)
"""First and last step for a fault: one checkpoint exists, and many steps remain."""
_PHASES = ("forward", "backward", "optimizer")
_EXIT, _HANG = frozenset({"rank_exit"}), frozenset({"hang"})
_LOST, _SPIKE = frozenset({"agent_lost", "node_lost"}), frozenset({"loss_spike"})
_MIRRORED = {"snapshot": {"every_steps": 1, "mirror_share": 0.5}, "checkpoint": {"every_steps": STEPS}}
"""The checkpoint is far from the step of the fault: a checkpoint of that step would be preferred to a mirror."""
_NO_MIRROR = {"snapshot": {"every_steps": 1, "mirror": "off"}}
_ROLLS_BACK = {"recovery": {"loss_spike": "rollback"}}
_REPLICAS = {"layout": {"dp": RANKS, "data_parallel": "ddp"}}
_LONGER = 4
"""Factor for the steps of jobs with external faults: injection through the API is slower than injection in a rank."""
_HUNG_S, _BACK_S = 12.0, 15.0
_HELD_UP_S = 5.0
"""Shorter than the limit of the hang detector."""

Draw = Callable[[Random], tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]]


@dataclass(frozen=True)
class Scenario:
    """One failure."""

    number: str
    name: str
    what: str
    """Description of the fault, for people."""
    draw: Draw
    expected: Expected
    spares: int = 0
    """Number of nodes that the job does not use."""
    spec_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Additional fields of the job's spec."""
    longer: int = 1
    """Factor for the number of steps."""

    @property
    def steps(self) -> int:
        """Number of steps of the job and of the control run."""
        return STEPS * self.longer

    def plan(self, seed: int) -> FaultPlan:
        """Return all faults. Equal seeds return equal plans."""
        faults, external_faults = self.draw(Random(f"{self.name} {seed}"))
        return FaultPlan(self.name, seed, self.steps, tuple(faults), tuple(external_faults), self.spec_fields)


@dataclass(frozen=True)
class ElsewhereScenario:
    """A scenario that cannot be run by this command."""

    number: str
    what: str
    why: str
    """Reason why the command cannot run it."""
    tests: str
    """Paths of the tests that run it."""


def _one(do: str, *, rank: int | None = None, phase: str | None = None, **more: Any) -> Draw:
    """Inject one fault into a rank. The step is drawn, and so are rank and phase unless given."""

    def draw(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
        drawn, step, where = random.randrange(RANKS), random.randint(*_MID), random.choice(_PHASES)
        return [spec_fault(do, drawn if rank is None else rank, step, where if phase is None else phase, **more)], []

    return draw


def _outside(do: str, *, after: int = 30, also: Sequence[Mapping[str, Any]] = ()) -> Draw:
    def draw(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
        return list(also), [PlannedFault(do, after + random.randrange(5), random.randrange(NODES))]

    return draw


def _while_recovering(do: str) -> Draw:
    """Kill a rank, and inject another fault while the job recovers."""

    def draw(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
        kill = spec_fault("sigkill", random.randrange(RANKS), 30, random.choice(_PHASES))
        return [kill], [PlannedFault(do, 1, while_recovering=True)]

    return draw


def _damage_then_lose_memory(do: str) -> Draw:
    """Delay a step until the checkpoint is damaged, then kill an agent, so that the job needs the checkpoint."""

    def draw(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
        step, rank = 2 * CHECKPOINT_EVERY + 3, random.randrange(RANKS)
        held_up = spec_fault("sleep", rank, step, duration=_HELD_UP_S)
        return [held_up, spec_fault("kill_agent", rank, step + 1)], [
            PlannedFault(do, step - 1, saved_step=2 * CHECKPOINT_EVERY)
        ]

    return draw


def _two_agents(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
    step = 2 * CHECKPOINT_EVERY - random.randint(1, 3)
    return [spec_fault("kill_agent", 0, step), spec_fault("kill_agent", 2, step)], []


def _in_transfer(do: str) -> Draw:
    """Kill the agent of one node. The state of its ranks comes from the other node, whose agent has another fault."""

    def draw(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
        step, node = random.randint(28, 30), random.randrange(NODES)
        holder, lost = node * RANKS // NODES, (1 - node) * RANKS // NODES
        return [spec_fault(do, holder, step, "forward"), spec_fault("kill_agent", lost, step + 1, "forward")], []

    return draw


def _spike(do: str) -> Draw:
    """Inject a spike after enough steps for the detector to compare it with."""

    def draw(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
        return [spec_fault(do, random.randrange(RANKS), random.randint(40, 60))], []

    return draw


def _twenty(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
    kinds = ("sigkill", "segfault", "abort", "kill_store", "kill_zygote")
    return [
        spec_fault(random.choice(kinds), random.randrange(RANKS), 8 + 8 * number, random.choice(_PHASES))
        for number in range(20)
    ], []


def _flip_then_kill(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
    rank, step = random.randrange(RANKS), random.randint(*_MID)
    return [spec_fault("flip_snapshot", rank, step), spec_fault("sigkill", (rank + 1) % RANKS, step, "backward")], []


def _over_and_over(count: int, step: int) -> Draw:
    """Kill the same rank in the same step of each new generation."""

    def draw(random: Random) -> tuple[Sequence[Mapping[str, Any]], Sequence[PlannedFault]]:
        rank = random.randrange(RANKS)
        return [spec_fault("sigkill", rank, step) for _ in range(count)], []

    return draw


_EXITS = Expected(incidents=(_EXIT,))
_HANGS = Expected(incidents=(_HANG,), detect_s=_HUNG_S, total_s=_BACK_S)
_PAST_DAMAGE = Expected(
    incidents=(_LOST, frozenset({"io_error"})), recovery_actions=frozenset({"disk"}), detect_s=6, total_s=30,
    steps_lost=3 * CHECKPOINT_EVERY, allows_more_incidents=True,
)  # fmt: skip
_NODE = Expected(
    incidents=(_LOST,), recovery_actions=frozenset({"spare", "respawn"}), detect_s=6, total_s=20, steps_lost=40
)

SCENARIOS: Sequence[Scenario] = (
    Scenario("1", "rank-killed", "SIGKILL of a rank", _one("sigkill"), _EXITS),
    Scenario("2", "rank-0-killed", "SIGKILL of rank 0", _one("sigkill", rank=0), _EXITS),
    Scenario("2b", "store-killed", "SIGKILL of the process that hosts the store", _one("kill_store"),
             Expected(incidents=(frozenset({"store_exit", "rank_exit"}),))),
    Scenario("3", "killed-in-update", "SIGKILL of a rank within the optimizer's update",
             _one("sigkill", phase="optimizer"), _EXITS),
    Scenario("4", "rank-stopped", "SIGSTOP of a rank", _one("sigstop"), _HANGS),
    Scenario("5a", "gil-held", "a rank holds the GIL for a minute", _one("hold_gil", duration=60), _HANGS),
    Scenario("5b", "endless-loop", "an infinite loop in Python", _one("loop"), _HANGS),
    Scenario("5c", "asleep", "a rank sleeps forever, as in a stuck data loader", _one("sleep", phase="forward"),
             _HANGS),
    Scenario("7", "user-error", "an exception in training code", _one("raise"),
             Expected("FAILED", "user_error", (frozenset({"user_error"}),), detect_s=1, total_s=5)),
    Scenario("8", "user-error-once", "an exception once, and the budget allows one", _one("raise"),
             Expected(incidents=(frozenset({"user_error"}),)),
             spec_fields={"recovery": {"budgets": {"user_error": 1}}}),
    Scenario("9", "out-of-memory", "the kernel kills a rank because memory is short", _one("oom"), _EXITS),
    Scenario("11a", "segfault", "a rank reads address 0", _one("segfault"), _EXITS),
    Scenario("11b", "abort", "a rank aborts", _one("abort"), _EXITS),
    Scenario("12", "agent-killed", "SIGKILL of a node's agent; mirrors exist", _outside("kill_agent"),
             Expected(incidents=(_LOST,), detect_s=6, total_s=20, steps_lost=40),
             spec_fields=_MIRRORED, longer=_LONGER),
    Scenario("12a", "transfer-corrupted", "state arrives damaged when a lost node's ranks fetch it from a mirror",
             _in_transfer("corrupt_transfer"), Expected(incidents=(_LOST,), detect_s=6, total_s=20, steps_lost=40),
             spec_fields=_MIRRORED, longer=_LONGER),
    Scenario("12b", "holder-killed", "SIGKILL of the agent that has the mirror, while state is read from it",
             _in_transfer("kill_agent_in_transfer"),
             Expected(incidents=(_LOST, _LOST), recovery_actions=frozenset({"disk", "respawn"}), detect_s=6, total_s=25,
                      steps_lost=40),
             spec_fields=_MIRRORED, longer=_LONGER),
    Scenario("13", "supervisor-killed", "SIGKILL of the supervisor while training is healthy",
             _outside("kill_supervisor"), Expected(), longer=_LONGER),
    Scenario("14", "supervisor-killed-in-recovery", "SIGKILL of the supervisor while it recovers from a rank's death",
             _while_recovering("kill_supervisor"), Expected(incidents=(_EXIT,), detect_s=20, total_s=30),
             longer=_LONGER),
    Scenario("15", "server-killed", "SIGKILL of the control plane, followed by a restart", _outside("kill_server"),
             Expected(), longer=_LONGER),
    Scenario("16a", "node-killed", "SIGKILL of all processes of a node; a spare exists", _outside("kill_node"), _NODE,
             spares=1, spec_fields=_MIRRORED, longer=_LONGER),
    Scenario("16b", "node-frozen", "all processes of a node are stopped, and resume after the node was replaced",
             _outside("freeze_node"), _NODE, spares=1, spec_fields=_MIRRORED, longer=_LONGER),
    Scenario("18b", "both-mirrors-lost", "both nodes of a pair lose their memory at once", _two_agents,
             Expected(incidents=(_LOST,), recovery_actions=frozenset({"disk", "respawn"}), detect_s=6, total_s=25,
                      steps_lost=2 * CHECKPOINT_EVERY, allows_more_incidents=True)),
    Scenario("19", "failure-in-recovery", "the same rank is killed again in the first step of each new generation",
             _over_and_over(3, step=12), Expected(incidents=(_EXIT,) * 3, total_s=20)),
    Scenario("20", "twenty", "twenty exits of ranks, stores and zygotes", _twenty,
             Expected(incidents=(frozenset({"rank_exit", "store_exit", "zygote_exit"}),), allows_more_incidents=True),
             spec_fields={"recovery": {"budgets": {"rank_exit": 30}}}, longer=8),
    Scenario("22b", "connections-cut", "all TCP connections of a rank are closed", _one("cut_traffic"),
             Expected(incidents=(frozenset({"rank_exit", "io_error"}),))),
    Scenario("22c", "connections-silent", "the TCP connections of a rank receive no data but stay open",
             _one("lose_traffic", share=1), _HANGS),
    Scenario("23", "packets-lost", "a rank's TCP connections lose 5 % of the incoming data, for 30 s",
             _one("lose_traffic", share=0.05, duration=30), Expected(), longer=_LONGER),
    Scenario("24", "saver-killed", "SIGKILL of the process that writes a checkpoint", _one("kill_saver"), Expected()),
    Scenario("25a", "checkpoint-flipped", "a byte of the newest checkpoint is changed, then a node's memory is lost",
             _damage_then_lose_memory("flip_checkpoint"), _PAST_DAMAGE, spec_fields=_NO_MIRROR),
    Scenario("25b", "checkpoint-truncated", "the newest checkpoint is truncated, then a node's memory is lost",
             _damage_then_lose_memory("truncate_checkpoint"), _PAST_DAMAGE, spec_fields=_NO_MIRROR),
    Scenario("25c", "shard-deleted", "a file of the newest checkpoint is removed, then a node's memory is lost",
             _damage_then_lose_memory("delete_shard"), _PAST_DAMAGE, spec_fields=_NO_MIRROR),
    Scenario("25d", "snapshot-flipped", "a byte of a rank's newest snapshot is changed, then a rank is killed",
             _flip_then_kill, Expected(incidents=(_EXIT,), steps_lost=2)),
    Scenario("26", "disk-full", "the disk fills while a file of a checkpoint is written", _one("fill_disk"), Expected(),
             longer=2),
    Scenario("26a", "disk-broken", "the disk reports an error while a checkpoint is written", _one("break_disk"),
             Expected(), longer=2),
    Scenario("32", "slow-rank", "a rank works eight times as long as the others, for fifty steps",
             _one("slow", phase="forward", factor=8, steps=50), Expected(is_slow=True), longer=_LONGER),
    Scenario("33a", "loss-not-finite", "the loss of one rank is NaN, once", _one("nan_loss", phase="forward"),
             Expected(incidents=(frozenset({"non_finite"}),))),
    Scenario("33b", "parameter-flipped", "a bit of one replica's parameters is changed",
             _one("flip_bit", phase="forward"), Expected(incidents=(frozenset({"silent_corruption"}),), detect_s=5),
             spec_fields=_REPLICAS),
    Scenario("33c", "loss-spiked", "the loss of one rank is far larger than before, once", _spike("spike_loss"),
             Expected(incidents=(_SPIKE,)), spec_fields=_ROLLS_BACK, longer=_LONGER),
    Scenario("33d", "gradient-wrong", "the gradients of one rank are far too large, once, and its loss is correct",
             _spike("spike_gradient"), Expected(incidents=(_SPIKE,)), spec_fields=_ROLLS_BACK, longer=_LONGER),
    Scenario("37", "cancelled-in-recovery", "the job is cancelled while it recovers", _while_recovering("cancel"),
             Expected("CANCELLED", "cancelled_by_user", (_EXIT,)), longer=_LONGER),
    Scenario("38", "crash-loop", "a rank is killed repeatedly in the first step",
             _over_and_over(9, step=1), Expected("FAILED", "budget_exhausted", (_EXIT,) * 4),
             spec_fields={"recovery": {"budgets": {"rank_exit": 3}}}),
)  # fmt: skip

ELSEWHERE: Sequence[ElsewhereScenario] = (
    ElsewhereScenario("6", "collective mismatch", "an error in code; a spec cannot inject it",
              "tests/e2e/failures/test_hang.py"),
    ElsewhereScenario("10", "device out of memory, corrupted CUDA context",
              "needs a GPU; without one, the test uses the errors that torch raises",
              "tests/e2e/failures/test_device_errors.py"),
    ElsewhereScenario("17", "Ray's head restarts", "would end the command's own cluster",
              "tests/e2e/cluster/test_ray_cluster_loss.py tests/e2e/cluster/test_ray_head_loss.py"),
    ElsewhereScenario("18a", "two nodes of different pairs", "needs four nodes",
              "tests/e2e/failures/test_two_node_loss.py"),
    ElsewhereScenario("21", "flapping node", "takes minutes", "tests/e2e/cluster/test_node_health.py"),
    ElsewhereScenario("22a", "network partition between nodes", "the command has one network",
              "tests/e2e/cluster/test_partition.py"),
    ElsewhereScenario("23a", "packets are delayed", "a socket filter can drop packets but not delay them",
              "tests/e2e/cluster/test_partition.py"),
    ElsewhereScenario("25e", "storage returns wrong bytes for a range", "a folder returns what was written",
              "tests/workers/agent/checkpoints/test_chunk_reader.py"),
    ElsewhereScenario("26b", "slow, refusing or silent storage", "the command saves to a folder",
              "tests/e2e/storage/test_storage_faults.py"),
    ElsewhereScenario("27, 30", "nodes added; other layouts", "a planned change, not a failure",
              "tests/e2e/three_nodes/test_resize.py tests/e2e/elasticity/test_elastic_nodes.py"),
    ElsewhereScenario("28, 29", "nodes drained, with time and without", "a planned change, not a failure",
              "tests/e2e/three_nodes/test_drain.py"),
    ElsewhereScenario("31", "not enough nodes for any layout", "only a node that joins ends it",
              "tests/e2e/elasticity/test_elastic_nodes.py"),
    ElsewhereScenario("34", "spare dies or is unfit", "no fault makes a node unfit",
              "tests/e2e/three_nodes/test_spare.py tests/workers/agent/test_standby.py "
              "tests/service/controller/test_spares.py"),
    ElsewhereScenario("35", "clock jump", "needs a clock for each node", "tests/e2e/cluster/test_clocks.py"),
    ElsewhereScenario("36", "stale message", "no process sends one by itself; the test sends it",
              "tests/workers/agent/test_job_host.py"),
)  # fmt: skip


def sort_key(number: str) -> tuple[int, str]:
    """Return the sort key of a scenario number: 2 is before 16a, and 16a before 16b."""
    digits = number.rstrip(string.ascii_lowercase)
    return int(digits), number.removeprefix(digits)


def find_scenario(name: str) -> Scenario | None:
    """Return the scenario with this name or number; None if there is none."""
    return next((each for each in SCENARIOS if name in (each.name, each.number)), None)
