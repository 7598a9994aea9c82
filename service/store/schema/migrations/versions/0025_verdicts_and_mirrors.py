"""Create the tables of chaos rehearsals and of mirrored sets."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "chaos_verdicts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("recorded_by", sa.String(), nullable=False),
        sa.Column("scenario", sa.String(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chaos_verdicts")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "mirrors",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("interval_s", sa.Double(), nullable=False),
        sa.Column("last_s", sa.Double(), nullable=False),
        sa.Column("ticks", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_mirrors_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_mirrors")),
    )


def downgrade() -> None:
    op.drop_table("mirrors")
    op.drop_table("chaos_verdicts")
