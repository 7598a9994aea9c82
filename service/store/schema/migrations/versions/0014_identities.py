"""Create the tables of identities, members of projects, and tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "identities",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("is_operator", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("disabled_at", sa.Double(), nullable=True),
        sa.CheckConstraint("kind IN ('user', 'service_account')", name=op.f("ck_identities_kind")),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_identities")),
    )
    op.create_table(
        "members",
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("permissions", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.CheckConstraint("role IN ('viewer', 'editor', 'admin')", name=op.f("ck_members_role")),
        sa.PrimaryKeyConstraint("project", "subject", name=op.f("pk_members")),
    )
    op.create_index(op.f("ix_members_subject"), "members", ["subject"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("role", sa.String(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["subject"], ["identities.subject"], name=op.f("fk_tokens_subject"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_index(op.f("ix_tokens_subject"), "tokens", ["subject"])


def downgrade() -> None:
    op.drop_table("tokens")
    op.drop_table("members")
    op.drop_table("identities")
