"""Add the budgets of projects."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("budget", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("projects", "budget")
