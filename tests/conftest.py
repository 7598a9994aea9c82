"""What all tests share is in `tests/support`: leaks, PostgreSQL, Prometheus, Redis, S3, the wheel, requirements."""

# requirements last: it asks the others what they need.
pytest_plugins = [
    "tests.support.checks.leaks",
    "tests.support.servers.postgres",
    "tests.support.servers.prometheus",
    "tests.support.servers.redis",
    "tests.support.servers.s3",
    "tests.support.packages.wheel",
    "tests.support.inputs.job_story",
    "tests.support.checks.requirements",
]
