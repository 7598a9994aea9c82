"""Create the tables of audit records and of the ends of their chain."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_UNSEALED = sa.text("position IS NULL")


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("object", sa.String(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=True),
        sa.Column("after", sa.JSON(), nullable=True),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.Column("digest", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sa.UniqueConstraint("position", name=op.f("uq_audit_position")),
    )
    op.create_index("ix_audit_unsealed", "audit", ["id"], sqlite_where=_UNSEALED, postgresql_where=_UNSEALED)
    op.create_index(op.f("ix_audit_project_id"), "audit", ["project", "id"])
    op.create_index(op.f("ix_audit_actor_id"), "audit", ["actor", "id"])
    op.create_index(op.f("ix_audit_time_s"), "audit", ["time_s"])
    op.create_table(
        "audit_chain",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_audit_chain")),
    )


def downgrade() -> None:
    op.drop_table("audit_chain")
    op.drop_table("audit")
