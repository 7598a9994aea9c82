"""Add the use of devices by ended jobs, which outlives them."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TEXTS = ("job_id", "job", "project", "author", "accelerator")
_INDEXES = (["project", "end_s"], ["end_s"], ["job_id"])


def upgrade() -> None:
    text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "usage",
        sa.Column("id", sa.Integer(), nullable=False),
        *(sa.Column(name, text, nullable=False) for name in _TEXTS),
        sa.Column("devices", sa.BigInteger(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("end_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage")),
    )
    for columns in _INDEXES:
        op.create_index(op.f(f"ix_usage_{'_'.join(columns)}"), "usage", columns)
    op.add_column("jobs", sa.Column("usage_at", sa.Double(), nullable=True))
    unfolded = sa.text("usage_at IS NULL")
    op.create_index("ix_jobs_unfolded", "jobs", ["id"], sqlite_where=unfolded, postgresql_where=unfolded)


def downgrade() -> None:
    # Not in a batch: on SQLite, a batch recreates the table, and rows that refer to the old one would be deleted.
    op.drop_index("ix_jobs_unfolded", table_name="jobs")
    op.drop_column("jobs", "usage_at")
    op.drop_table("usage")
