"""The tables of hooks and of their deliveries."""

import sqlalchemy as sa

from regroup.service.store.schema.clock import DatabaseClock
from regroup.service.store.schema.tables import StoredJson, metadata

hooks = sa.Table(
    "hooks",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("project", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("url", sa.String),
    sa.Column("recipients", StoredJson, nullable=False),
    sa.Column("events", StoredJson, nullable=False),
    sa.Column("labels", StoredJson, nullable=False),
    sa.Column("is_enabled", sa.Boolean, nullable=False),
    sa.Column("secret", sa.String),
    sa.Column("former_secret", sa.String),
    sa.Column("former_until", sa.Double),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", sa.String, nullable=False),
    sa.CheckConstraint("kind IN ('cloudevents', 'slack', 'teams', 'email')", name="kind"),
    sa.Index(None, "project", "id"),
)
"""Hooks of projects. `secret` and `former_secret` are encrypted if the server has a key: see `keyring.py`."""

PENDING = sa.text("state = 'pending'")
"""Condition of deliveries that wait for an attempt, literally as in the partial indexes."""
hook_deliveries = sa.Table(
    "hook_deliveries",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("hook_id", sa.String, sa.ForeignKey("hooks.id", ondelete="CASCADE"), nullable=False),
    sa.Column("message_id", sa.String, nullable=False),
    sa.Column("event", StoredJson, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False, default=DatabaseClock()),
    sa.Column("next_attempt_at", sa.Double, nullable=False),
    sa.Column("attempted_at", sa.Double),
    sa.Column("finished_at", sa.Double),
    sa.Column("status_code", sa.BigInteger),
    sa.Column("duration_s", sa.Double),
    sa.Column("error", sa.String, nullable=False),
    sa.Column("redelivery_of", sa.BigInteger),
    sa.CheckConstraint("state IN ('pending', 'delivered', 'failed')", name="state"),
    sa.Index(None, "hook_id", "id"),
    sa.Index(None, "finished_at"),
    sa.Index("ix_hook_deliveries_due", "hook_id", "next_attempt_at", sqlite_where=PENDING, postgresql_where=PENDING),
    sa.Index("ix_hook_deliveries_pending", "created_at", sqlite_where=PENDING, postgresql_where=PENDING),
)
"""The outbox and the log of deliveries. A row is written in the transaction of its event."""
