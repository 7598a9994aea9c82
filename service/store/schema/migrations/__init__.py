"""Alembic migrations, run at start on both dialects."""
