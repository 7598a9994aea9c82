"""Fixtures that all tests share: leaks, PostgreSQL, Prometheus, Redis, S3, the token, the wheel, requirements."""

# `requirements` is last because it reads the requirements of the others.
pytest_plugins = [
    "tests.support.checks.leaks",
    "tests.support.servers.postgres",
    "tests.support.servers.prometheus",
    "tests.support.servers.redis",
    "tests.support.servers.s3",
    "tests.support.servers.token",
    "tests.support.packages.wheel",
    "tests.support.inputs.job_story",
    "tests.support.checks.requirements",
]
