"""Create the table of notices."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notices",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("event", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(), nullable=True),
        sa.Column("node", sa.String(), nullable=True),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_notices")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("notices")
