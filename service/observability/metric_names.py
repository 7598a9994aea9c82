"""Every metric by name, once: for the control plane's exposition, Ray's, the dashboard, and the documents."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """One metric. Counters end in `_total` when exposed."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in the unit of its name."""


_JOB = ("job_id", "job", "project")
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

BUILD_INFO = Metric("regroup_build_info", "gauge", "Always 1; the version is a label.", ("version",))
JOBS = Metric("regroup_jobs", "gauge", "Jobs in each state.", ("state",))
QUEUE_OLDEST_WAIT = Metric("regroup_queue_oldest_wait_seconds", "gauge", "Wait of the job that queues longest.")
QUEUE_WAIT = Metric("regroup_queue_wait_seconds", "histogram", "Finished stays in the queue.", (), _SECONDS)
QUEUE_JOBS = Metric(
    "regroup_queue_jobs", "gauge", "Jobs that wait, by project and the reason of their condition `Placeable`.",
    ("project", "reason"),
)  # fmt: skip
QUEUE_REQUESTED = Metric(
    "regroup_queue_nodes_requested_jobs", "gauge", "Jobs that wait and for which the autoscaler is asked for nodes."
)
PROJECT_DEVICES = Metric(
    "regroup_project_devices", "gauge", "Devices that a project holds, is guaranteed, and may hold at most.",
    ("project", "what"),
)  # fmt: skip
PROJECT_SPARES = Metric(
    "regroup_project_spares", "gauge", "Nodes that a project would have kept ready for its jobs, and those that are.",
    ("project", "what"),
)  # fmt: skip
INCIDENTS = Metric(
    "regroup_incidents",
    "counter",
    "What ended generations before their time, by cause; drained, resized, preempted and suspended are by plan.",
    ("cause",),
)
STEPS_LOST = Metric("regroup_steps_lost", "counter", "Steps done again after incidents, by their cause.", ("cause",))
STEPS_SKIPPED = Metric("regroup_steps_skipped", "counter", "Steps whose update was left out: no finite numbers.")
LOSS_SPIKES = Metric(
    "regroup_loss_spikes",
    "counter",
    "Times that a job's loss or gradient norm stood out from those before and was trained on.",
)
SNAPSHOTS_REFUSED = Metric(
    "regroup_snapshots_refused", "counter",
    "Snapshots found unfit when one was to be restored: checksum or replicas that differ.", ("why",),
)  # fmt: skip
RECOVERY = Metric(
    "regroup_recovery_seconds", "histogram",
    "Time of each phase of a recovery: detect, teardown, decide, form, restore, first_step, total.",
    ("phase",), _SECONDS,
)  # fmt: skip
RESIZES = Metric(
    "regroup_resizes",
    "counter",
    "Changes of a job's size: resize by plan, shrink because nodes were lost.",
    ("recovery_action",),
)
RESIZE_GAP = Metric(
    "regroup_resize_gap_seconds", "histogram", "From the end of one size to the first step of the next, by plan.", (),
    _SECONDS,
)  # fmt: skip
CHECKPOINT_BYTES = Metric("regroup_checkpoint_bytes", "gauge", "Checkpoints in storage now.")
CHECKPOINT_SECONDS = Metric("regroup_checkpoint_seconds", "histogram", "From pin to manifest.", (), _SECONDS)
CHECKPOINTS_FAILED = Metric("regroup_checkpoints_failed", "counter", "Checkpoints that could not be saved.")
INSTALL_SECONDS = Metric(
    "regroup_environment_install_seconds", "histogram",
    "Time to make a Python of a job's requirements on a node; those found made are not in it.", (), _SECONDS,
)  # fmt: skip
DEVICE_SECONDS = Metric(
    "regroup_device_seconds", "counter",
    "Seconds that jobs held devices, by what they were spent on; with device=\"cuda\" these are GPU-seconds.",
    ("class", "device"),
)  # fmt: skip
STALE_CALLS = Metric(
    "regroup_stale_calls", "counter", "Calls that agents refused because their generation was over: fencing at work."
)
CLOCKS_SET = Metric("regroup_clocks_set", "counter", "Times that a node's clock was set by a second or more.")
NODE_SCORE = Metric(
    "regroup_node_score", "gauge", "What happened to a node of late, each fault counting half after a while.",
    ("node",),
)  # fmt: skip
NODE_QUARANTINED = Metric(
    "regroup_node_quarantined", "gauge", "1 while a node that something happened to gets no ranks because of it.",
    ("node",),
)  # fmt: skip
NODE_CORDONED = Metric("regroup_node_cordoned", "gauge", "1 while an admin has a node closed.", ("node",))
PROBE_TIME = Metric(
    "regroup_probe_timestamp_seconds", "gauge", "When devices of this kind were measured last, Unix time.", ("kind",)
)
PROBE_BANDWIDTH = Metric(
    "regroup_probe_bandwidth_bytes_per_second", "gauge",
    "Measured share of a device in the way out of a domain of this level, one way.", ("kind", "level"),
)  # fmt: skip
PROBE_LATENCY = Metric(
    "regroup_probe_latency_seconds", "gauge", "Measured time of a message that leaves a domain of this level.",
    ("kind", "level"),
)  # fmt: skip
PROBE_FLOPS = Metric(
    "regroup_probe_matmul_flops", "gauge",
    "Operations a second of large matrix products on the slowest device of a node, as measured.",
    ("kind", "node", "dtype"),
)  # fmt: skip
PROBE_ODD = Metric(
    "regroup_probe_odd", "gauge", "Nodes and links that the last probe found slow or wrong.", ("kind", "what")
)
JOB_STEP = Metric("regroup_job_step", "gauge", "Committed steps of a live job.", _JOB)
JOB_STEPS = Metric("regroup_job_steps", "gauge", "Steps a live job is to do.", _JOB)
JOB_LOSS = Metric("regroup_job_loss", "gauge", "Training loss of the newest step.", _JOB)
JOB_VALIDATION_LOSS = Metric("regroup_job_validation_loss", "gauge", "Newest loss on held-out data.", _JOB)
JOB_TOKENS = Metric("regroup_job_tokens_per_second", "gauge", "Valid tokens, all ranks, smoothed.", _JOB)
JOB_STEP_SECONDS = Metric("regroup_job_step_seconds", "gauge", "Time of a step, smoothed.", _JOB)
JOB_GENERATION = Metric("regroup_job_generation", "gauge", "Newest generation of a live job.", _JOB)
JOB_WORLD_SIZE = Metric("regroup_job_world_size", "gauge", "Ranks of the newest generation.", _JOB)
JOB_GOODPUT = Metric(
    "regroup_job_goodput_ratio", "gauge", "Share of a live job's time with devices that went into steps that count.",
    _JOB,
)  # fmt: skip
JOB_MFU = Metric(
    "regroup_job_mfu_ratio", "gauge",
    "Model operations of a step over what the devices could have done in its time: model FLOPs utilisation.", _JOB,
)  # fmt: skip
JOB_EXPOSED = Metric(
    "regroup_job_exposed_ratio", "gauge",
    "Part of forward and backward in which ranks waited for each other, on average; on CPUs.", _JOB,
)  # fmt: skip
JOB_PEAK_BYTES = Metric("regroup_job_peak_bytes", "gauge", "Most memory that a rank had in the newest step.", _JOB)
JOB_IDLE = Metric(
    "regroup_job_idle_ratio", "gauge",
    "Part of forward and backward in which a rank of the pipeline computed nothing, in the newest step.", _JOB,
)  # fmt: skip
JOB_STEP_SECONDS_PREDICTED = Metric(
    "regroup_job_step_predicted_seconds", "gauge", "Time of a step as the planner predicted it for this generation.",
    _JOB,
)  # fmt: skip
JOB_PEAK_BYTES_PREDICTED = Metric(
    "regroup_job_peak_predicted_bytes", "gauge", "Most memory of a rank as the planner predicted it.", _JOB,
)  # fmt: skip
JOB_IDLE_PREDICTED = Metric(
    "regroup_job_idle_predicted_ratio", "gauge", "Bubble of the pipeline as the planner predicted it.", _JOB,
)  # fmt: skip
JOB_MIRRORED = Metric(
    "regroup_job_mirrored_step", "gauge", "Committed steps in the state that other nodes hold a copy of.", _JOB,
)  # fmt: skip
JOB_MIRROR_SETS = Metric(
    "regroup_job_mirror_sets", "gauge",
    "Sets that a node may hold for another: 2, or where memory is short 1 or 0; of jobs with mirrors.", _JOB,
)  # fmt: skip
JOB_STRAGGLERS = Metric("regroup_job_stragglers", "gauge", "Ranks of a live job that keep the others waiting.", _JOB)
JOB_LOW_USE = Metric(
    "regroup_job_low_use", "gauge", "1 while a live job makes little use of its devices, by its condition `WellUsed`.",
    _JOB,
)  # fmt: skip

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them, in the order above."""
