"""Fixtures of more than one file of this folder."""

from tests.support.jobs.ray_train_ranks import forks, run  # noqa: F401
