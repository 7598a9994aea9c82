"""Add the authors of jobs. The author of an earlier job is the actor of its first event, its submission."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_BATCH = 5000
"""Number of jobs in one statement: PostgreSQL ends statements that last longer than ten seconds."""
_NEXT = sa.text("SELECT id FROM jobs WHERE id > :after ORDER BY id LIMIT :count")
_SET = sa.text(
    "UPDATE jobs SET author = COALESCE((SELECT actor FROM events WHERE job_id = jobs.id AND number = 1), '') "
    "WHERE id > :after AND id <= :last"
)
_INDEXES = (["author", "state", "id"], ["project", "author", "state", "id"])


def upgrade() -> None:
    op.add_column("jobs", sa.Column("author", sa.String(), nullable=False, server_default=""))
    _fill()
    for columns in _INDEXES:
        op.create_index(op.f(f"ix_jobs_{'_'.join(columns)}"), "jobs", columns)


def downgrade() -> None:
    for columns in reversed(_INDEXES):
        op.drop_index(op.f(f"ix_jobs_{'_'.join(columns)}"), table_name="jobs")
    # Not in a batch: on SQLite, a batch recreates the table, and rows that refer to the old one would be deleted.
    op.drop_column("jobs", "author")


def _fill() -> None:
    connection, after = op.get_bind(), ""
    while ids := connection.execute(_NEXT, {"after": after, "count": _BATCH}).scalars().all():
        connection.execute(_SET, {"after": after, "last": ids[-1]})
        after = str(ids[-1])
