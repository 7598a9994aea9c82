"""Transfer of state between the agents of one job, over TCP: `read` and `get` fetch from a shard, `put` sends a mirror.

    server → {"nonce"}
    client → {"op": "read" | "put" | "join" | "index" | "echo", …, "proof": HMAC of nonce and request under its token}
    read:  server → {"file_bytes", "size_bytes"} | {"error"}; then the client requests chunks and the server sends them
    put:   server → {"go", "stream"} | {"error"}; then the server requests chunks and the client sends them;
           server → {"ok"} | {"error"}
    join:  a further connection of a `put`, with its "stream"; server → {"go"} | {"error"}; then chunks
    index: server → {"nbytes", "crc32"} | {"error"}, then the compressed indexes
    echo:  server → {"go"}, client → bytes, server → the same bytes

Lines are JSON, chunks have binary heads. Each run of an agent generates its own token, which other agents get through
Ray's authenticated calls. The data is not encrypted, and neither is that of the collectives: both belong on the
cluster's own network.

All transfers run in threads with blocking sockets, outside of the agent's event loop. System calls, checksums and
copies release the interpreter's lock, so heartbeats and calls of the supervisor continue.
"""
