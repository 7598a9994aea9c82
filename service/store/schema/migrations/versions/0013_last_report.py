"""Add the time at which the supervisor of a job answered last."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("reported_at", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "reported_at")
