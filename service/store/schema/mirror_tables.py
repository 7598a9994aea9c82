"""The table of mirrored sets: some steps of each job that other nodes had in memory."""

import sqlalchemy as sa

from regroup.service.store.schema.tables import StoredJson, metadata

mirrors = sa.Table(
    "mirrors",
    metadata,
    sa.Column("job_id", sa.String, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("interval_s", sa.Double, nullable=False),
    sa.Column("last_s", sa.Double, nullable=False),
    sa.Column("ticks", StoredJson, nullable=False),
)
"""`ticks` is a list of `[time_s, generation, step]`, at least `interval_s` apart; `last_s` is the newest time."""
