"""Messages that form the ranks of a generation on the nodes of a gang. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from regroup.service.policy.recovery.restore_source import RestoreSource
from regroup.service.supervisor.job_state.generations import Generation
from regroup.workers.contract.agent_records import Dataset, StoreAddress
from regroup.workers.contract.messages import Join, encode
from regroup.workers.contract.rank_starts import RankStarts
from regroup.workers.contract.start_messages import Restore


def restore_of(source: RestoreSource) -> Restore:
    """Return the source of the state as ranks get it."""
    return Restore(source.kind, source.step, source.generation, source.uri, source.world_size)


def common_of(generation: Generation, join: Join, store: StoreAddress, restore: Restore) -> bytes:
    """Return what all ranks of a generation have in common, encoded."""
    return encode(
        replace(
            join,
            generation=generation.number,
            restore=restore,
            store_host=store.host,
            store_port=store.port,
            world_size=len(generation.ranks),
            layout=generation.layout.degrees,
            node_count=len(generation.nodes),
        )
    )


def starts_of(
    generation: Generation, names: Mapping[str, str], datasets: Mapping[str, Dataset]
) -> dict[str, RankStarts]:
    """Return node → its ranks.

    Args:
        generation: the generation to form.
        names: node id → name.
        datasets: node id → the job's data there.
    """
    found: dict[str, RankStarts] = {}
    for node_rank, node in enumerate(generation.nodes):
        here = generation.ranks.ranks_on(node)
        place = node_rank, names[node], here.ranks, here.local_ranks, here.devices
        found[node] = RankStarts(*place, datasets.get(node, {}))
    return found
