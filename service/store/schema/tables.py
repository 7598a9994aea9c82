"""The tables. Rules that must always hold are constraints or unique indexes here.

Times are Unix seconds. Counters of samples are unsigned 64-bit and stored in the signed range.
"""

from typing import Any

import sqlalchemy as sa

from regroup.service.domain.states import JobState
from regroup.service.store.schema.json_values import CorruptJson

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Unsigned64(sa.TypeDecorator[int]):
    """An integer modulo 2**64 in a signed 64-bit column."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: sa.Dialect) -> int | None:
        """Convert into the signed range."""
        if value is None:
            return None
        value %= 2**64
        return value - 2**64 if value >= 2**63 else value

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> int | None:
        """Convert back into the unsigned range."""
        return None if value is None else value % 2**64


class StoredJson(sa.TypeDecorator[Any]):
    """JSON. A value that cannot be decoded becomes `CorruptJson`, so that it affects no other row of its query."""

    impl = sa.JSON
    cache_ok = True

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Any:
        """Return the decoder of values; None if the driver decodes them."""
        decode = super().result_processor(dialect, coltype)
        if decode is None:
            return None

        def decode_safely(value: Any) -> Any:
            try:
                return decode(value)
            except (ValueError, TypeError, RecursionError):
                return CorruptJson()

        return decode_safely


_TERMINAL = ", ".join(f"'{state}'" for state in JobState if state.is_terminal)
_STATES = ", ".join(f"'{state}'" for state in JobState)
LIVE = sa.text(f"state NOT IN ({_TERMINAL})")
"""Condition of jobs that have not ended, literally as in the partial index: only then SQLite uses the index."""
_HELD = sa.text("released_at IS NULL")
_UNCOUNTED = sa.text("counted_at IS NULL")
_WITH_EVENTS = sa.text("events_removed_at IS NULL")
_WITH_STEPS = sa.text("steps_removed_at IS NULL")
_UNFOLDED = sa.text("usage_at IS NULL")
_Text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
"""Text whose order is that of its code points, in both databases and in Python."""


def _job_id(**options: Any) -> sa.Column[str]:
    return sa.Column("job_id", sa.String, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, **options)


jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("project", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("owner", sa.String, nullable=False),
    # A server of an earlier version writes no author.
    sa.Column("author", sa.String, nullable=False, server_default=""),
    sa.Column("spec", StoredJson, nullable=False),
    sa.Column("storage_uri", sa.String, nullable=False),
    sa.Column("resume_uri", sa.String),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("message", sa.String, nullable=False),
    sa.Column("error", StoredJson(none_as_null=True)),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("intents", StoredJson, nullable=False),
    sa.Column("conditions", StoredJson, nullable=False),
    sa.Column("phase", StoredJson(none_as_null=True)),
    sa.Column("save", StoredJson(none_as_null=True)),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("queued_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double),
    sa.Column("finished_at", sa.Double),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("layout", StoredJson(none_as_null=True)),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("step_rows", sa.BigInteger, nullable=False),
    sa.Column("loss", sa.Double),
    sa.Column("validation_loss", sa.Double),
    sa.Column("tokens_per_s", sa.Double),
    sa.Column("step_duration_s", sa.Double),
    sa.Column("stall_s", sa.Double, nullable=False, server_default="0"),
    sa.Column("mfu", sa.Double),
    sa.Column("exposed_communication", sa.Double),
    sa.Column("peak_bytes", sa.Double),
    sa.Column("pipeline_idle", sa.Double),
    sa.Column("mirrored_step", sa.BigInteger),
    sa.Column("goodput", sa.Double),
    sa.Column("result", StoredJson(none_as_null=True)),
    sa.Column("rank_phases", StoredJson, nullable=False),
    sa.Column("supervisor_boot_id", sa.String, nullable=False),
    sa.Column("acked_seq", sa.BigInteger, nullable=False),
    sa.Column("reported_at", sa.Double),
    # The history of an ended job: when it was added to the stored sums and to `usage`, and when parts were removed.
    sa.Column("counted_at", sa.Double),
    sa.Column("usage_at", sa.Double),
    sa.Column("events_removed_at", sa.Double),
    sa.Column("steps_removed_at", sa.Double),
    sa.CheckConstraint(f"state IN ({_STATES})", name="state"),
    sa.Index("uq_jobs_live_name", "project", "name", unique=True, sqlite_where=LIVE, postgresql_where=LIVE),
    # Pages of lists, for each combination of filters. See `jobs.page`.
    sa.Index(None, "state", "id"),
    sa.Index(None, "project", "state", "id"),
    sa.Index(None, "name", "state", "id"),
    sa.Index(None, "project", "name", "state", "id"),
    sa.Index(None, "author", "state", "id"),
    sa.Index(None, "project", "author", "state", "id"),
    sa.Index("ix_jobs_uncounted", "id", sqlite_where=_UNCOUNTED, postgresql_where=_UNCOUNTED),
    sa.Index("ix_jobs_unfolded", "id", sqlite_where=_UNFOLDED, postgresql_where=_UNFOLDED),
    sa.Index("ix_jobs_with_events", "finished_at", sqlite_where=_WITH_EVENTS, postgresql_where=_WITH_EVENTS),
    sa.Index("ix_jobs_with_steps", "finished_at", sqlite_where=_WITH_STEPS, postgresql_where=_WITH_STEPS),
    sa.Index(None, "finished_at"),
)

labels = sa.Table(
    "labels",
    metadata,
    _job_id(primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("value", sa.String, nullable=False),
    sa.Index(None, "key", "value", "job_id"),
)

events = sa.Table(
    "events",
    metadata,
    _job_id(primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("key", sa.String),
    sa.Column("type", sa.String, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.String, nullable=False),
    sa.Column("data", StoredJson, nullable=False),
    sa.UniqueConstraint("job_id", "key"),
)

steps = sa.Table(
    "steps",
    metadata,
    _job_id(primary_key=True),
    sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("duration_s", sa.Double),
    sa.Column("loss", sa.Double),
    sa.Column("tokens", sa.BigInteger),
    sa.Column("samples", sa.BigInteger),
    sa.Column("samples_hash", Unsigned64),
    sa.Column("learning_rate", sa.Double),
    sa.Column("grad_norm", sa.Double),
    sa.Column("validation_loss", sa.Double),
    sa.Column("stall_s", sa.Double),
    sa.Column("extra", StoredJson, nullable=False),
    sa.UniqueConstraint("job_id", "number"),
    sa.Index(None, "job_id", "step", "generation"),
)

generations = sa.Table(
    "generations",
    metadata,
    _job_id(primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("layout", StoredJson, nullable=False),
    sa.Column("world_size", sa.BigInteger, nullable=False),
    sa.Column("ranks", StoredJson, nullable=False),
    sa.Column("start_step", sa.BigInteger, nullable=False),
    sa.Column("restore", StoredJson, nullable=False),
    sa.Column("cause", sa.String, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
)

plans = sa.Table("plans", metadata, _job_id(primary_key=True), sa.Column("data", StoredJson, nullable=False))
"""Plans of jobs whose layout was chosen: the request and the planner's result. The job's row is read often and
therefore does not contain them."""

predictions = sa.Table(
    "predictions",
    metadata,
    _job_id(primary_key=True),
    sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", StoredJson, nullable=False),
)

incidents = sa.Table(
    "incidents",
    metadata,
    _job_id(primary_key=True),
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("cause", sa.String, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("data", StoredJson, nullable=False),
    sa.UniqueConstraint("job_id", "number"),
    sa.Index(None, "time_s"),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    _job_id(primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("uri", sa.String, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("files", sa.BigInteger, nullable=False),
    sa.Column("duration_s", sa.Double),
    sa.Column("validation_loss", sa.Double),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("removed_at", sa.Double),
    sa.Column("pinned", sa.Boolean, nullable=False),
)

allocations = sa.Table(
    "allocations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    _job_id(),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("node_id", sa.String, nullable=False),
    sa.Column("data", StoredJson, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("released_at", sa.Double),
    sa.CheckConstraint("kind IN ('supervisor', 'agent', 'reservation')", name="kind"),
    sa.Index("uq_allocations_live_name", "name", unique=True, sqlite_where=_HELD, postgresql_where=_HELD),
    sa.Index(None, "job_id"),
    sa.Index("ix_allocations_held", "id", sqlite_where=_HELD, postgresql_where=_HELD),
)

usage = sa.Table(
    "usage",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", _Text, nullable=False),
    sa.Column("job", _Text, nullable=False),
    sa.Column("project", _Text, nullable=False),
    sa.Column("author", _Text, nullable=False),
    sa.Column("accelerator", _Text, nullable=False),
    sa.Column("devices", sa.BigInteger, nullable=False),
    sa.Column("start_s", sa.Double, nullable=False),
    sa.Column("end_s", sa.Double, nullable=False),
    sa.Index(None, "project", "end_s"),
    sa.Index(None, "end_s"),
    sa.Index(None, "job_id"),
)
"""Devices that ended jobs held: one row for each span of time with the same number. Rows outlive their jobs."""

node_events = sa.Table(
    "node_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String, nullable=False),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("job_id", sa.String, nullable=False),
    sa.Column("actor", sa.String, nullable=False),
    sa.Column("message", sa.String, nullable=False),
    sa.UniqueConstraint("key"),
    sa.Index(None, "time_s"),
)
"""Events of nodes. Rows outlive their jobs and nodes."""

drains = sa.Table(
    "drains",
    metadata,
    sa.Column("node_id", sa.String, primary_key=True),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("actor", sa.String, nullable=False),
    sa.Column("requested_at", sa.Double, nullable=False),
    sa.Column("deadline_at", sa.Double, nullable=False),
)
"""Requests of users to drain nodes."""

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("guaranteed", sa.BigInteger, nullable=False),
    sa.Column("borrowable", sa.BigInteger),
    sa.Column("limit", sa.BigInteger),
    sa.Column("weight", sa.Double, nullable=False),
    sa.Column("admits", StoredJson, nullable=False),
    sa.Column("defaults", StoredJson, nullable=False),
    sa.Column("spares", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("budget", StoredJson(none_as_null=True)),
)
"""Projects that are set up. A project without a row has no quota and no rules."""

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("scope", sa.String, primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("body_hash", sa.String, nullable=False),
    sa.Column("response", StoredJson, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Index(None, "created_at"),
)

ledgers = sa.Table("ledgers", metadata, _job_id(primary_key=True), sa.Column("data", StoredJson, nullable=False))
"""Ledgers of jobs whose steps were removed."""

metric_totals = sa.Table(
    "metric_totals",
    metadata,
    sa.Column("metric", sa.String, primary_key=True),
    sa.Column("labels", sa.String, primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
)
"""Sums over all jobs that have ended. `labels` is a JSON array of the values of the labels."""

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("holder", sa.String, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.String, nullable=False),
)
"""Secrets that this deployment generated, e.g. the key that signs page tokens."""
