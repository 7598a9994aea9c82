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


@dataclass(frozen=True)
class ProgressGauges:
    """The gauges of a job that moves bytes to or from durable storage. Only such a job has them.

    The names of the fields are those of the figures in the record of the job.
    """

    done_bytes: Metric
    total_bytes: Metric
    bytes_per_s: Metric

    @classmethod
    def of(cls, kind: str, bytes_of: str) -> "ProgressGauges":
        """Return the gauges of a kind of progress.

        Args:
            kind: part of the names.
            bytes_of: which bytes these are, as the end of a sentence.
        """
        return cls(
            Metric(f"regroup_job_{kind}_done_bytes", "gauge", f"Bytes so far of those {bytes_of}.", _JOB),
            Metric(f"regroup_job_{kind}_total_bytes", "gauge", f"All bytes {bytes_of}.", _JOB),
            Metric(f"regroup_job_{kind}_bytes_per_second", "gauge", f"Present rate of the bytes {bytes_of}.", _JOB),
        )

    def all(self) -> tuple[Metric, ...]:
        """Return the gauges."""
        return self.done_bytes, self.total_bytes, self.bytes_per_s


BUILD_INFO = Metric("regroup_build_info", "gauge", "Always 1; the version is a label.", ("version",))
JOBS_ISOLATED = Metric(
    "regroup_jobs_isolated", "gauge",
    "1 if each job runs as a user of its own (REGROUP_RANK_USERS), 0 if ranks run as the user of the agents.",
)  # fmt: skip
LAST_PASS = Metric(
    "regroup_controller_last_pass_timestamp_seconds", "gauge",
    "Unix time of the last completed scheduling pass, or of the start of leading. Only the leading server has it.",
)  # fmt: skip
PASS_SECONDS = Metric("regroup_controller_pass_seconds", "gauge", "Duration of the last completed scheduling pass.")
PASSES_FAILED = Metric(
    "regroup_controller_passes_failed", "counter",
    "Scheduling passes of this process that failed, by cause: unavailable (database or cluster) or fault.", ("cause",),
)  # fmt: skip
JOB_FAULTS = Metric(
    "regroup_controller_job_faults", "counter", "Failures of the control plane of this process while it handled a job."
)
TASK_FAILURES = Metric(
    "regroup_task_failures", "counter", "Failures and new starts of long-lived tasks of this process.", ("task",)
)
LOCAL_NODE_STARTS = Metric(
    "regroup_local_node_starts", "counter",
    "Starts of lost nodes of the local Ray cluster by this process, by outcome: succeeded or failed.", ("outcome",),
)  # fmt: skip
LIMIT_REFUSALS = Metric(
    "regroup_limit_refusals", "counter",
    "Requests that a limit of this process refused, by limit: rate, streams, uploads or queued_jobs.", ("limit",),
)  # fmt: skip
JOBS_WITH_FAULTS = Metric(
    "regroup_jobs_with_platform_fault", "gauge", "Jobs that the control plane fails to handle (`PlatformFault`)."
)
ROWS_REMOVED = Metric(
    "regroup_rows_removed", "counter", "Rows of the database that were removed after their retention.", ("table",)
)
JOBS = Metric("regroup_jobs", "gauge", "Jobs in each state.", ("state",))
QUEUE_OLDEST_WAIT = Metric(
    "regroup_queue_oldest_wait_seconds", "gauge", "Waiting time of the job that has waited longest."
)
QUEUE_WAIT = Metric("regroup_queue_wait_seconds", "histogram", "Time from queueing to admission.", (), _SECONDS)
QUEUE_JOBS = Metric(
    "regroup_queue_jobs", "gauge", "Jobs that wait, by project and the reason of their condition `Placeable`.",
    ("project", "reason"),
)  # fmt: skip
QUEUE_REQUESTED = Metric(
    "regroup_queue_nodes_requested_jobs", "gauge", "Queued jobs for which the autoscaler has a request for nodes."
)
PROJECT_DEVICES = Metric(
    "regroup_project_devices", "gauge", "Devices of a project: allocated, guaranteed, and the limit.",
    ("project", "what"),
)  # fmt: skip
PROJECT_DEVICE_SECONDS = Metric(
    "regroup_project_device_seconds", "counter",
    "Device-seconds that the jobs of a project held, for projects that have settings.", ("project",),
)  # fmt: skip
PROJECT_BUDGET_USED = Metric(
    "regroup_project_budget_used_ratio", "gauge", "Used share of the budget of a project, for projects that have one.",
    ("project",),
)  # fmt: skip
CLUSTER_UP = Metric("regroup_cluster_up", "gauge", "1 if the cluster answers, 0 if it does not.", ("cluster",))
PROJECT_SPARES = Metric(
    "regroup_project_spares", "gauge", "Spare nodes of a project: desired and ready.",
    ("project", "what"),
)  # fmt: skip
INCIDENTS = Metric(
    "regroup_incidents",
    "counter",
    "Generations that ended early, by cause. Causes drained, resized, preempted and suspended are planned.",
    ("cause",),
)
STEPS_LOST = Metric(
    "regroup_steps_lost", "counter", "Steps repeated after incidents, by the cause of the incident.", ("cause",)
)
STEPS_SKIPPED = Metric(
    "regroup_steps_skipped", "counter", "Steps skipped because the loss or gradients were not finite."
)
LOSS_SPIKES = Metric(
    "regroup_loss_spikes",
    "counter",
    "Spikes of the loss or gradient norm after which a job continued.",
)
SNAPSHOTS_REFUSED = Metric(
    "regroup_snapshots_refused", "counter",
    "Snapshots rejected during a restore: the checksum or the replicas differ.", ("why",),
)  # fmt: skip
RECOVERY = Metric(
    "regroup_recovery_seconds", "histogram",
    "Time of each phase of a recovery: detect, teardown, decide, form, restore, first_step, total.",
    ("phase",), _SECONDS,
)  # fmt: skip
RESIZES = Metric(
    "regroup_resizes",
    "counter",
    "Changes of the size of jobs: planned resizes, and shrinks after node losses.",
    ("recovery_action",),
)
RESIZE_GAP = Metric(
    "regroup_resize_gap_seconds", "histogram",
    "Time from the last step at one size to the first step at the next, of planned resizes.", (), _SECONDS,
)  # fmt: skip
AUDIT_RECORDS = Metric(
    "regroup_audit_records", "counter", "Audit records that were sealed into the chain, including removed ones.",
)  # fmt: skip
AUDIT_UNSEALED = Metric(
    "regroup_audit_unsealed_records", "gauge",
    "Audit records that are not sealed yet. More than a few for longer than a minute is a fault.",
)  # fmt: skip
SESSIONS = Metric("regroup_browser_sessions", "gauge", "Sessions of browsers that have not expired.")
HOOK_ATTEMPTS = Metric(
    "regroup_hook_attempts", "counter",
    "Attempts to deliver notifications of hooks, by outcome: delivered, retried (an attempt follows) or failed.",
    ("outcome",),
)  # fmt: skip
HOOK_PENDING = Metric(
    "regroup_hook_pending_deliveries", "gauge", "Notifications that wait for an attempt, also for a further one."
)
HOOK_UNTRIED = Metric(
    "regroup_hook_oldest_untried_seconds", "gauge",
    "Age of the oldest notification without an attempt. More than a minute means that no server delivers, or that a "
    "receiver is too slow.",
)  # fmt: skip
STORED_SECRETS = Metric(
    "regroup_stored_secrets", "gauge",
    "Stored secrets of projects and hooks, by their key: current, former (another key of the server), missing (the "
    "server does not have the key, so they cannot be read) or none (they are not encrypted).",
    ("key",),
)  # fmt: skip
BLOB_BYTES = Metric(
    "regroup_blob_bytes", "gauge",
    "Size of all code archives and unfinished uploads, measured every minute. `REGROUP_BLOB_QUOTA_BYTES` limits it.",
)  # fmt: skip
CHECKPOINT_BYTES = Metric("regroup_checkpoint_bytes", "gauge", "Size of all checkpoints in storage.")
CHECKPOINT_SECONDS = Metric(
    "regroup_checkpoint_seconds",
    "histogram",
    "Time to save a checkpoint: from the pin of the snapshot to the manifest.",
    (),
    _SECONDS,
)
CHECKPOINT_WRITTEN = Metric(
    "regroup_checkpoint_written_bytes", "counter",
    "Bytes that nodes wrote to storage for complete checkpoints. Unchanged parts are not written again.",
)  # fmt: skip
CHECKPOINT_WRITE_SECONDS = Metric(
    "regroup_checkpoint_write_seconds", "counter",
    "Time for which the slowest node of each complete checkpoint wrote.",
)  # fmt: skip
RESTORED_BYTES = Metric(
    "regroup_restored_bytes", "counter",
    "Bytes of state that nodes fetched when jobs restored, by source: checkpoint, or memory of other nodes.",
    ("source",),
)  # fmt: skip
RESTORE_NODE_SECONDS = Metric(
    "regroup_restore_node_seconds", "counter",
    "Time for which nodes fetched state, summed over nodes, by source.", ("source",),
)  # fmt: skip
CHECKPOINTS_FAILED = Metric("regroup_checkpoints_failed", "counter", "Checkpoints that could not be saved.")
INSTALL_SECONDS = Metric(
    "regroup_environment_install_seconds", "histogram",
    "Time to install the Python environment of a job on a node, without cached ones.", (), _SECONDS,
)  # fmt: skip
DEVICE_SECONDS = Metric(
    "regroup_device_seconds", "counter",
    "Device-seconds of jobs, by class of use. With device=\"cuda\" these are GPU-seconds.",
    ("class", "device"),
)  # fmt: skip
STALE_CALLS = Metric("regroup_stale_calls", "counter", "Calls of former generations that agents refused (fencing).")
CLOCKS_SET = Metric("regroup_clocks_set", "counter", "Clock changes of one second or more on nodes.")
NODE_SCORE = Metric(
    "regroup_node_score", "gauge", "Health score of a node: the sum of its recent faults, which decay over time.",
    ("node",),
)  # fmt: skip
NODE_QUARANTINED = Metric(
    "regroup_node_quarantined", "gauge", "1 while a node is quarantined after repeated faults.",
    ("node",),
)  # fmt: skip
NODE_CORDONED = Metric("regroup_node_cordoned", "gauge", "1 while an operator has cordoned a node.", ("node",))
PROBE_TIME = Metric(
    "regroup_probe_timestamp_seconds", "gauge", "Unix time of the latest probe of devices of this kind.", ("kind",)
)
PROBE_BANDWIDTH = Metric(
    "regroup_probe_bandwidth_bytes_per_second", "gauge",
    "Measured bandwidth per device of the links out of a domain of this level, in one direction.", ("kind", "level"),
)  # fmt: skip
PROBE_LATENCY = Metric(
    "regroup_probe_latency_seconds", "gauge", "Measured latency of messages that leave a domain of this level.",
    ("kind", "level"),
)  # fmt: skip
PROBE_FLOPS = Metric(
    "regroup_probe_matmul_flops", "gauge",
    "Measured floating-point operations per second of large matrix products on the slowest device of a node.",
    ("kind", "node", "dtype"),
)  # fmt: skip
PROBE_ANOMALIES = Metric(
    "regroup_probe_anomalies", "gauge", "Slow or faulty nodes and links in the latest probe.", ("kind", "what")
)
JOB_STEP = Metric("regroup_job_step", "gauge", "Committed steps of a live job.", _JOB)
JOB_STEPS = Metric("regroup_job_steps", "gauge", "Number of steps in the spec of a live job.", _JOB)
JOB_LOSS = Metric("regroup_job_loss", "gauge", "Training loss of the newest step.", _JOB)
JOB_VALIDATION_LOSS = Metric("regroup_job_validation_loss", "gauge", "Newest loss on held-out data.", _JOB)
JOB_TOKENS = Metric(
    "regroup_job_tokens_per_second",
    "gauge",
    "Training throughput of all ranks in valid tokens per second, smoothed.",
    _JOB,
)
JOB_STEP_SECONDS = Metric("regroup_job_step_seconds", "gauge", "Duration of a step, smoothed.", _JOB)
JOB_GENERATION = Metric("regroup_job_generation", "gauge", "Newest generation of a live job.", _JOB)
JOB_WORLD_SIZE = Metric("regroup_job_world_size", "gauge", "Ranks of the newest generation.", _JOB)
JOB_GOODPUT = Metric(
    "regroup_job_goodput_ratio", "gauge", "Fraction of a live job's device time spent on steps that were not lost.",
    _JOB,
)  # fmt: skip
JOB_MFU = Metric(
    "regroup_job_mfu_ratio", "gauge",
    "Model FLOPs utilization: operations of a step divided by the peak of the devices in its time.", _JOB,
)  # fmt: skip
JOB_EXPOSED = Metric(
    "regroup_job_exposed_ratio", "gauge",
    "Average fraction of forward and backward in which ranks waited for each other (CPUs only).", _JOB,
)  # fmt: skip
JOB_PEAK_BYTES = Metric("regroup_job_peak_bytes", "gauge", "Largest peak memory of a rank in the newest step.", _JOB)
JOB_IDLE = Metric(
    "regroup_job_idle_ratio", "gauge",
    "Fraction of forward and backward in which a pipeline rank was idle, in the newest step.", _JOB,
)  # fmt: skip
JOB_STEP_SECONDS_PREDICTED = Metric(
    "regroup_job_step_predicted_seconds", "gauge", "Predicted duration of a step of this generation.",
    _JOB,
)  # fmt: skip
JOB_PEAK_BYTES_PREDICTED = Metric(
    "regroup_job_peak_predicted_bytes", "gauge", "Predicted largest peak memory of a rank.", _JOB,
)  # fmt: skip
JOB_IDLE_PREDICTED = Metric(
    "regroup_job_idle_predicted_ratio", "gauge", "Predicted idle fraction of the pipeline.", _JOB,
)  # fmt: skip
RESTORE_PROGRESS = ProgressGauges.of("restore", "that a job reads of its checkpoint while it restores")
SAVE_PROGRESS = ProgressGauges.of("save", "that a job writes of a checkpoint while it trains")
JOB_MIRRORED = Metric(
    "regroup_job_mirrored_step", "gauge", "Step of the newest state that is mirrored on other nodes.", _JOB,
)  # fmt: skip
JOB_MIRROR_SETS = Metric(
    "regroup_job_mirror_sets", "gauge",
    "Mirror sets that a node may store for another: 2, or 1 or 0 if memory is short.", _JOB,
)  # fmt: skip
JOB_INCIDENTS = Metric("regroup_job_incidents", "gauge", "Incidents of a live job so far, planned ones too.", _JOB)
JOB_STRAGGLERS = Metric("regroup_job_stragglers", "gauge", "Straggler ranks of a live job.", _JOB)
JOB_LOW_USE = Metric(
    "regroup_job_low_utilization", "gauge", "1 while a live job has low utilization (condition `WellUsed` is false).",
    _JOB,
)  # fmt: skip

METRICS = tuple(
    metric
    for value in list(globals().values())
    if isinstance(value, Metric | ProgressGauges)
    for metric in ((value,) if isinstance(value, Metric) else value.all())
)
"""All metrics, in the order above."""
