"""Fixtures of more than one file of this folder."""

from house.ray_train_ranks import forks, run  # noqa: F401
