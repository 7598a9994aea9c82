"""Proof that nodes share durable storage: one of them writes a file, and the others read it."""

from regroup.workers.contract.agent_records import storage_proof_name
from regroup.workers.storage import async_storage, fsspec_storage

STORAGE_TIMEOUT_S = 30.0
"""Time limit of calls to durable storage. It is shorter than the time a supervisor waits for its agent."""


async def check(uri: str, nonce: str) -> bool:
    """Check that this node can write to durable storage, and return whether it sees the proof with this name.

    Raises:
        OSError: it cannot, or storage did not answer.
    """
    await async_storage.call_within(STORAGE_TIMEOUT_S, fsspec_storage.check_writable, uri)
    proof = fsspec_storage.join(uri, storage_proof_name(nonce))

    def sees_proof() -> bool:
        with fsspec_storage.answering(uri):
            return fsspec_storage.read_bytes(proof) is not None

    return await async_storage.call_within(STORAGE_TIMEOUT_S, sees_proof)


async def write(uri: str, nonce: str, node_name: str) -> None:
    """Write the proof.

    Raises:
        OSError: storage did not accept it or did not answer.
    """
    proof = fsspec_storage.join(uri, storage_proof_name(nonce))
    await async_storage.call_within(STORAGE_TIMEOUT_S, fsspec_storage.publish_bytes, proof, node_name.encode())
