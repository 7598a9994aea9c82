"""Run the migrations on the connection that `database` passes."""

from alembic import context

from regroup.service.store.schema.tables import metadata

# render_as_batch: SQLite cannot alter a table in place.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
