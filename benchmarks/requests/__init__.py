"""Parts of `benchmarks/api.py`: the server under load, its load, its history, and a PostgreSQL."""
