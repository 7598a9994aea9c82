"""The adapter to Ray Train: the only files of a rank that import ray. They never connect to a cluster.

It depends on private parts of ray 2.60; tests/workers/rank/ray_train/test_ray_contract.py lists them.
"""

import os

os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # read when ray is imported: no call of it starts a cluster
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # pyarrow's: with that thread nothing forks
