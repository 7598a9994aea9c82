"""The table of chaos rehearsals: verdicts that `regroup chaos` reports."""

import sqlalchemy as sa

from regroup.service.store.schema.tables import StoredJson, metadata

chaos_verdicts = sa.Table(
    "chaos_verdicts",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("recorded_by", sa.String, nullable=False),
    sa.Column("scenario", sa.String, nullable=False),
    sa.Column("passed", sa.Boolean, nullable=False),
    sa.Column("data", StoredJson, nullable=False),
    sqlite_autoincrement=True,
)
"""The newest rows are kept."""
