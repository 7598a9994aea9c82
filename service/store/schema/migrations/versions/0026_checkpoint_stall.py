"""Remove the stall of checkpoints: the step after a checkpoint has it."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("checkpoints", "stall_s")


def downgrade() -> None:
    op.add_column("checkpoints", sa.Column("stall_s", sa.Double(), nullable=True))
