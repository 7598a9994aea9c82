"""Fixtures that all tests share: leaks, servers, the console, the token, the wheel, requirements."""

from hypothesis import settings

# The time of an example says nothing on a busy machine. A test that must be fast measures that itself.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

# `requirements` is last because it reads the requirements of the others.
pytest_plugins = [
    "tests.support.checks.leaks",
    "tests.support.servers.postgres",
    "tests.support.servers.prometheus",
    "tests.support.servers.redis",
    "tests.support.servers.s3",
    "tests.support.servers.live_server",
    "tests.support.console.signed_in_page",
    "tests.support.console.killed_server",
    "tests.support.console.task_report",
    "tests.support.servers.token",
    "tests.support.packages.wheel",
    "tests.support.inputs.job_story",
    "tests.support.doubles.cuda_driver",
    "tests.support.checks.requirements",
]
