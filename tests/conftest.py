"""What all tests share is in `tests/fixtures/house`: leaks, PostgreSQL, Prometheus, Redis, S3, the wheel, groups."""

# groups last: it asks the others what they need.
pytest_plugins = [
    "house.leaks",
    "house.postgres",
    "house.prometheus",
    "house.redis",
    "house.s3",
    "house.wheel",
    "house.groups",
]
