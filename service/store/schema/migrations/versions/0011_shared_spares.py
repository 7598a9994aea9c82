"""Add the number of shared spares to projects."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("spares", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("projects", "spares")
