"""Add the sums of ended jobs, their ledgers, and indexes whose pages do not grow with the history."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_PARTIAL = {
    "ix_jobs_uncounted": (["id"], sa.text("counted_at IS NULL")),
    "ix_jobs_with_events": (["finished_at"], sa.text("events_removed_at IS NULL")),
    "ix_jobs_with_steps": (["finished_at"], sa.text("steps_removed_at IS NULL")),
}
_INDEXES = (
    ("jobs", ["state", "id"]),
    ("jobs", ["project", "state", "id"]),
    ("jobs", ["name", "state", "id"]),
    ("jobs", ["project", "name", "state", "id"]),
    ("jobs", ["finished_at"]),
    ("labels", ["key", "value", "job_id"]),
    ("steps", ["job_id", "step", "generation"]),
)
_REPLACED = (("jobs", ["state"]), ("jobs", ["name", "id"]), ("labels", ["key", "value"]))


def _name(table: str, columns: list[str]) -> str:
    return op.f(f"ix_{table}_{'_'.join(columns)}")


def upgrade() -> None:
    for column in ("counted_at", "events_removed_at", "steps_removed_at"):
        op.add_column("jobs", sa.Column(column, sa.Double(), nullable=True))
    for table, columns in _REPLACED:
        op.drop_index(_name(table, columns), table_name=table)
    for table, columns in _INDEXES:
        op.create_index(_name(table, columns), table, columns)
    for name, (columns, where) in _PARTIAL.items():
        op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)
    held = sa.text("released_at IS NULL")
    op.create_index("ix_allocations_held", "allocations", ["id"], sqlite_where=held, postgresql_where=held)
    op.create_table(
        "ledgers",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_ledgers_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_ledgers")),
    )
    op.create_table(
        "metric_totals",
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("labels", sa.String(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("metric", "labels", name=op.f("pk_metric_totals")),
    )


def downgrade() -> None:
    # Not in a batch: on SQLite, a batch recreates the table, and rows that refer to the old one would be deleted.
    op.drop_table("metric_totals")
    op.drop_table("ledgers")
    op.drop_index("ix_allocations_held", table_name="allocations")
    for name in _PARTIAL:
        op.drop_index(name, table_name="jobs")
    for table, columns in _INDEXES:
        op.drop_index(_name(table, columns), table_name=table)
    for table, columns in _REPLACED:
        op.create_index(_name(table, columns), table, columns)
    for column in ("steps_removed_at", "events_removed_at", "counted_at"):
        op.drop_column("jobs", column)
