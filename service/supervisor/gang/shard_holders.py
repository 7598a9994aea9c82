"""The nodes from which the ranks of a generation fetch the state, as each node gets them.

After a resize every node gets the same holders, so these are encoded once: 2,048 nodes with 2,048 holders each would be
four million records.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from regroup.service.supervisor.job_state.generations import Generation
from regroup.workers.contract.agent_records import ShardHolder, TransferAddress
from regroup.workers.contract.rank_starts import encode_holders

FindAddresses = Callable[[Iterable[str]], Awaitable[Mapping[str, TransferAddress]]]
"""Returns the addresses of agents."""


async def holders_by_node(generation: Generation, find_addresses: FindAddresses) -> Mapping[str, bytes]:
    """Return node → the encoded holders of what its ranks need. A node that fetches nothing has no entry."""
    source, nodes = generation.source, generation.nodes
    if source.world_size:
        holders = dict(source.all_holders)
        if len(nodes) == 1:
            holders.pop(nodes[0], None)  # no other node fetches from it
        return dict.fromkeys(nodes, encode_holders(_with_addresses(holders, await find_addresses(holders))))
    needed = source.holders_of_lost(generation.ranks.node_ids()) if source.fetch else {}
    addresses = await find_addresses({holder for holders in needed.values() for holder in holders})
    return {node: encode_holders(_with_addresses(holders, addresses)) for node, holders in needed.items()}


def _with_addresses(
    holders: Mapping[str, Sequence[int]], addresses: Mapping[str, TransferAddress]
) -> list[ShardHolder]:
    return [ShardHolder(addresses[node], tuple(ranks)) for node, ranks in holders.items()]
