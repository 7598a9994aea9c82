"""Add MFU, exposed communication and peak memory of the newest step to the job's row."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_FACTS = ("mfu", "exposed_communication", "peak_bytes")


def upgrade() -> None:
    for name in _FACTS:
        op.add_column("jobs", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    # Not in a batch: on SQLite, a batch recreates the table, and rows that refer to the old one would be deleted.
    for name in _FACTS:
        op.drop_column("jobs", name)
