"""Create the tables of hooks and of their deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_PENDING = sa.text("state = 'pending'")


def upgrade() -> None:
    op.create_table(
        "hooks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("recipients", sa.JSON(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("secret", sa.String(), nullable=True),
        sa.Column("former_secret", sa.String(), nullable=True),
        sa.Column("former_until", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.CheckConstraint("kind IN ('cloudevents', 'slack', 'teams', 'email')", name=op.f("ck_hooks_kind")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hooks")),
    )
    op.create_index(op.f("ix_hooks_project_id"), "hooks", ["project", "id"])
    op.create_table(
        "hook_deliveries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hook_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("event", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("next_attempt_at", sa.Double(), nullable=False),
        sa.Column("attempted_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("status_code", sa.BigInteger(), nullable=True),
        sa.Column("duration_s", sa.Double(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("redelivery_of", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('pending', 'delivered', 'failed')", name=op.f("ck_hook_deliveries_state")),
        sa.ForeignKeyConstraint(["hook_id"], ["hooks.id"], name=op.f("fk_hook_deliveries_hook_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hook_deliveries")),
    )
    op.create_index(op.f("ix_hook_deliveries_hook_id_id"), "hook_deliveries", ["hook_id", "id"])
    op.create_index(op.f("ix_hook_deliveries_finished_at"), "hook_deliveries", ["finished_at"])
    due = {"sqlite_where": _PENDING, "postgresql_where": _PENDING}
    op.create_index("ix_hook_deliveries_due", "hook_deliveries", ["hook_id", "next_attempt_at"], **due)
    op.create_index("ix_hook_deliveries_pending", "hook_deliveries", ["created_at"], **due)


def downgrade() -> None:
    op.drop_table("hook_deliveries")
    op.drop_table("hooks")
