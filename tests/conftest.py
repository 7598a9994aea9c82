"""What all tests share is in `tests/support`: leaks, PostgreSQL, Prometheus, Redis, S3, the wheel, requirements."""

# requirements last: it asks the others what they need.
pytest_plugins = [
    "tests.support.leaks",
    "tests.support.postgres",
    "tests.support.prometheus",
    "tests.support.redis",
    "tests.support.s3",
    "tests.support.wheel",
    "tests.support.job_story",
    "tests.support.requirements",
]
