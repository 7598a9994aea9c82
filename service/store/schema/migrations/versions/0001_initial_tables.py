"""Create the initial tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("response", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_idempotency")),
    )
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_idempotency_created_at"), ["created_at"], unique=False)

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("storage_uri", sa.String(), nullable=False),
        sa.Column("resume_uri", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("intents", sa.JSON(), nullable=False),
        sa.Column("conditions", sa.JSON(), nullable=False),
        sa.Column("phase", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("layout", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("step_rows", sa.BigInteger(), nullable=False),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("validation_loss", sa.Double(), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=True),
        sa.Column("step_duration_s", sa.Double(), nullable=True),
        sa.Column("goodput", sa.Double(), nullable=True),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("rank_phases", sa.JSON(), nullable=False),
        sa.Column("supervisor_boot_id", sa.String(), nullable=False),
        sa.Column("acked_seq", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "state IN ('QUEUED', 'PLACING', 'STARTING', 'RUNNING', 'RECOVERING', 'RESIZING', 'DRAINING', 'SUSPENDED', "
            "'SUCCEEDED', 'FAILED', 'CANCELLED')",
            name=op.f("ck_jobs_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_name_id"), ["name", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_state"), ["state"], unique=False)
        batch_op.create_index(
            "uq_jobs_live_name",
            ["project", "name"],
            unique=True,
            sqlite_where=sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')"),
            postgresql_where=sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')"),
        )

    op.create_table(
        "keys",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_keys")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "allocations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("released_at", sa.Double(), nullable=True),
        sa.CheckConstraint("kind IN ('supervisor', 'agent', 'reservation')", name=op.f("ck_allocations_kind")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_allocations_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
    )
    with op.batch_alter_table("allocations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_allocations_job_id"), ["job_id"], unique=False)
        batch_op.create_index(
            "uq_allocations_live_name",
            ["name"],
            unique=True,
            sqlite_where=sa.text("released_at IS NULL"),
            postgresql_where=sa.text("released_at IS NULL"),
        )

    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("uri", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=True),
        sa.Column("stall_s", sa.Double(), nullable=True),
        sa.Column("validation_loss", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("removed_at", sa.Double(), nullable=True),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "step", "generation", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_events_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_events")),
        sa.UniqueConstraint("job_id", "key", name=op.f("uq_events_job_id_key")),
    )
    op.create_table(
        "generations",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("layout", sa.JSON(), nullable=False),
        sa.Column("world_size", sa.BigInteger(), nullable=False),
        sa.Column("ranks", sa.JSON(), nullable=False),
        sa.Column("start_step", sa.BigInteger(), nullable=False),
        sa.Column("restore", sa.JSON(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_generations_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_generations")),
    )
    op.create_table(
        "incidents",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_incidents_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "id", name=op.f("pk_incidents")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_incidents_job_id_number")),
    )
    op.create_table(
        "labels",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_labels_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_labels")),
    )
    with op.batch_alter_table("labels", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_labels_key_value"), ["key", "value"], unique=False)

    op.create_table(
        "steps",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=True),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("samples_hash", sa.BigInteger(), nullable=False),
        sa.Column("learning_rate", sa.Double(), nullable=True),
        sa.Column("grad_norm", sa.Double(), nullable=True),
        sa.Column("validation_loss", sa.Double(), nullable=True),
        sa.Column("stall_s", sa.Double(), nullable=True),
        sa.Column("extra", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_steps_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "generation", "step", name=op.f("pk_steps")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_steps_job_id_number")),
    )


def downgrade() -> None:
    for table in ("steps", "labels", "incidents", "generations", "events", "checkpoints", "allocations"):
        op.drop_table(table)
    for table in ("leases", "keys", "jobs", "idempotency"):
        op.drop_table(table)
