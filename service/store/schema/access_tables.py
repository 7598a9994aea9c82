"""The tables of identities, tokens, sessions and audit records."""

import sqlalchemy as sa

from regroup.service.store.schema.tables import StoredJson, metadata

identities = sa.Table(
    "identities",
    metadata,
    sa.Column("subject", sa.String, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("project", sa.String),
    sa.Column("is_operator", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", sa.String, nullable=False),
    sa.Column("disabled_at", sa.Double),
    sa.Column("permissions", StoredJson, nullable=False, server_default="[]"),
    sa.CheckConstraint("kind IN ('user', 'service_account')", name="kind"),
)
"""People and service accounts. A service account may belong to one project, whose admins manage it."""

members = sa.Table(
    "members",
    metadata,
    sa.Column("project", sa.String, primary_key=True),
    sa.Column("subject", sa.String, primary_key=True),
    sa.Column("role", sa.String, nullable=False),
    sa.Column("permissions", StoredJson, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", sa.String, nullable=False),
    sa.CheckConstraint("role IN ('viewer', 'editor', 'admin')", name="role"),
    sa.Index(None, "subject"),
)
"""Roles in projects. A subject `group:NAME` is a group of an identity provider, and needs no row in `identities`."""

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("subject", sa.String, sa.ForeignKey("identities.subject", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("digest", sa.String, nullable=False),
    sa.Column("project", sa.String),
    sa.Column("role", sa.String),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", sa.String, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("used_at", sa.Double),
    sa.Index(None, "subject"),
)
"""Tokens of the API. Only the SHA-256 of a token is stored."""

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("subject", sa.String, nullable=False),
    sa.Column("digest", sa.String, nullable=False),
    sa.Column("proof_digest", sa.String, nullable=False),
    sa.Column("token_id", sa.String, sa.ForeignKey("tokens.id", ondelete="CASCADE")),
    sa.Column("groups", StoredJson(none_as_null=True)),
    sa.Column("owner_digest", sa.String),
    sa.Column("address", sa.String, nullable=False),
    sa.Column("agent", sa.String, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double),
    sa.Index(None, "subject", "created_at"),
    sa.Index(None, "expires_at"),
    sa.Index(None, "token_id"),
)
"""Sessions of browsers, of any identity. Only digests of their secrets are stored."""

_UNSEALED = sa.text("position IS NULL")
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("actor", sa.String, nullable=False),
    sa.Column("token_id", sa.String),
    sa.Column("address", sa.String, nullable=False),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("project", sa.String),
    sa.Column("object", sa.String, nullable=False),
    sa.Column("before", StoredJson(none_as_null=True)),
    sa.Column("after", StoredJson(none_as_null=True)),
    sa.Column("position", sa.BigInteger),
    sa.Column("digest", sa.String),
    sa.UniqueConstraint("position"),
    sa.Index("ix_audit_unsealed", "id", sqlite_where=_UNSEALED, postgresql_where=_UNSEALED),
    sa.Index(None, "project", "id"),
    sa.Index(None, "actor", "id"),
    sa.Index(None, "time_s"),
)
"""Records of changes that an identity requested. `position` and `digest` are set when the record is sealed."""

audit_chain = sa.Table(
    "audit_chain",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String, nullable=False),
)
"""The ends of the chain of audit records: `head` is the last sealed record, `tail` the last removed one."""
