"""Add the mirrored step, and the time that training waited for saves, to the job's row."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("mirrored_step", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("stall_s", sa.Double(), nullable=False, server_default="0"))


def downgrade() -> None:
    # Not in a batch: on SQLite, a batch recreates the table, and rows that refer to the old one would be deleted.
    op.drop_column("jobs", "mirrored_step")
    op.drop_column("jobs", "stall_s")
