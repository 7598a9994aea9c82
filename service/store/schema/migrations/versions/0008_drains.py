"""Create the table of drain requests with their deadlines."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drains",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("requested_at", sa.Double(), nullable=False),
        sa.Column("deadline_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", name=op.f("pk_drains")),
    )


def downgrade() -> None:
    op.drop_table("drains")
