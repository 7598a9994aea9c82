"""Create the table of projects with their quotas and rules."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("guaranteed", sa.BigInteger(), nullable=False),
        sa.Column("borrowable", sa.BigInteger(), nullable=True),
        sa.Column("limit", sa.BigInteger(), nullable=True),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("admits", sa.JSON(), nullable=False),
        sa.Column("defaults", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_projects")),
    )


def downgrade() -> None:
    op.drop_table("projects")
