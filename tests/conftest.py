"""What all tests share is in `tests/fixtures/house`: leaks, PostgreSQL, Prometheus, groups."""

# groups last: it asks the others what they need.
pytest_plugins = ["house.leaks", "house.postgres", "house.prometheus", "house.groups"]
