"""The table of the secrets of projects."""

import sqlalchemy as sa

from regroup.service.store.schema.tables import metadata

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("project", sa.String, primary_key=True),
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("key_id", sa.String, nullable=False),
    sa.Column("sealed", sa.String, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", sa.String, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", sa.String, nullable=False),
    sa.Column("used_at", sa.Double),
    sa.Index(None, "key_id"),
)
"""Secrets of projects. `sealed` is the encrypted value, and `key_id` names the key that decrypts it."""
