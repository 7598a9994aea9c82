"""Index incidents by their time, for reports over all jobs."""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_incidents_time_s"), "incidents", ["time_s"])


def downgrade() -> None:
    op.drop_index(op.f("ix_incidents_time_s"), table_name="incidents")
