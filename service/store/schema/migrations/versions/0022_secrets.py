"""Create the table of the secrets of projects."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("sealed", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.String(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("project", "name", name=op.f("pk_secrets")),
    )
    op.create_index(op.f("ix_secrets_key_id"), "secrets", ["key_id"])


def downgrade() -> None:
    op.drop_table("secrets")
