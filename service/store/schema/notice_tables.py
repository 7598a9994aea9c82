"""The table of notices: recent changes, in one order over all jobs, nodes and projects."""

import sqlalchemy as sa

from regroup.service.store.schema.clock import DatabaseClock
from regroup.service.store.schema.tables import metadata

notices = sa.Table(
    "notices",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("topic", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("project", sa.String),
    sa.Column("job_id", sa.String),
    sa.Column("event", sa.BigInteger),
    sa.Column("state", sa.String),
    sa.Column("node", sa.String),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False, default=DatabaseClock()),
    sqlite_autoincrement=True,  # a number is never used twice, also after the removal of rows
)
"""Rows are removed after an hour."""
