"""Allow steps without token and sample counts: scripts report none."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_COUNTS = ("tokens", "samples", "samples_hash")


def upgrade() -> None:
    with op.batch_alter_table("steps", schema=None) as batch_op:
        for name in _COUNTS:
            batch_op.alter_column(name, existing_type=sa.BigInteger(), nullable=True)


def downgrade() -> None:
    op.execute("DELETE FROM steps WHERE tokens IS NULL OR samples IS NULL OR samples_hash IS NULL")
    with op.batch_alter_table("steps", schema=None) as batch_op:
        for name in _COUNTS:
            batch_op.alter_column(name, existing_type=sa.BigInteger(), nullable=False)
