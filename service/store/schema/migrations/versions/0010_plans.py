"""Create the tables of plans and predictions, and add the pipeline's idle share to the job's row."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plans",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_plans_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_plans")),
    )
    op.create_table(
        "predictions",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_predictions_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "generation", name=op.f("pk_predictions")),
    )
    op.add_column("jobs", sa.Column("pipeline_idle", sa.Double(), nullable=True))


def downgrade() -> None:
    # Not in a batch: on SQLite, a batch recreates the table, and rows that refer to the old one would be deleted.
    op.drop_column("jobs", "pipeline_idle")
    op.drop_table("predictions")
    op.drop_table("plans")
