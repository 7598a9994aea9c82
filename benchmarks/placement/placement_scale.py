"""Time to place one job of 4,096 devices as the cluster grows: rows of the scheduler benchmark.

Usage: python -m benchmarks.placement.placement_scale --json PATH
"""

import math
import time
from collections.abc import Sequence
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.place import Demand, Placement, place
from regroup.service.policy.placement.traffic import TrainingWork, axes

NODES = (1250, 2500, 5000, 10_000)
_IN_RACK, _IN_BLOCK = 16, 256
_LAYOUT = Layout(tp=8, pp=4, dp_shard=32, dp_replicate=4)
_WORK = TrainingWork(70e9, 80, 8192, 1024, 4096, 16)


def cluster(count: int) -> list[Node]:
    """Return nodes of eight devices, in racks of 16 nodes and blocks of 16 racks.

    Of every ten nodes, one is partly used and one is fully used.
    """
    nodes = list[Node]()
    for at in range(count):
        name, free = f"n{at:05}", {3: 5, 7: 0}.get(at % 10, 8)
        where = ("z", f"b{at // _IN_BLOCK}", f"r{at // _IN_RACK}", "")
        nodes.append(Node(name, name, "", cpus=96, gpus=8, free_cpus=96, free_gpus=free, domains=where))
    return nodes


def measure(trials: int = 5) -> dict[str, Any]:
    """Return the placement time in seconds at each size and the exponent of its growth.

    The time is the minimum of the trials and includes reading and sorting the nodes.
    """
    demand = Demand(_LAYOUT.world_size, _LAYOUT.tp, "cuda", 1, axes=axes(_LAYOUT, _WORK))
    seconds = {count: min(_once(demand, cluster(count)) for _ in range(trials)) for count in NODES}
    return {
        "place_4096_gpus_s": seconds[NODES[-1]],
        "place_growth_exponent": exponent(list(seconds), list(seconds.values())),
        "place_s_by_nodes": {str(count): each for count, each in seconds.items()},
    }


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of the least-squares line through the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(each) for each in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def _once(demand: Demand, nodes: Sequence[Node]) -> float:
    started_s = time.perf_counter()
    placed = place(demand, nodes)
    took_s = time.perf_counter() - started_s
    assert isinstance(placed, Placement), placed
    return took_s


def main() -> None:
    """Measure, print the figures, and write the result."""
    from benchmarks.report.output import arguments, write_result

    options = arguments("time to place a large job", trials=5).parse_args()
    result = measure(options.trials)
    print(*(f"{name}: {value}" for name, value in result.items()), sep="\n")
    write_result(options.json, result)


if __name__ == "__main__":
    main()
