"""Create the table of node events."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node_events")),
        sa.UniqueConstraint("key", name=op.f("uq_node_events_key")),
    )
    op.create_index(op.f("ix_node_events_time_s"), "node_events", ["time_s"], unique=False)


def downgrade() -> None:
    op.drop_table("node_events")
