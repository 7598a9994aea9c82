"""The least that a durable POST costs: a bare FastAPI route with one durable insert.

    python -m benchmarks.peers.bare_api --database URL

It parses the body into a model, inserts one row in a transaction of its own and returns it. SQLite has the settings of
regroup's database: a write-ahead log that is synchronized at each commit. It prints its URL as JSON when it serves, and
ends when standard input is closed.
"""

import argparse
import asyncio
import json
import socket
import sys
import time
from typing import Any

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

metadata = sa.MetaData()
items = sa.Table(
    "items",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String, nullable=False, unique=True),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)


class Item(BaseModel):
    """A body like that of a job."""

    name: str
    workload: dict[str, Any]
    training: dict[str, Any]


def create_app(engine: AsyncEngine) -> FastAPI:
    """Return the app with its only route."""
    app, writing = FastAPI(), asyncio.Lock()
    is_sqlite = engine.dialect.name == "sqlite"

    async def insert(item: Item) -> int:
        row = {"name": item.name, "body": item.model_dump(mode="json"), "created_at": time.time()}
        async with engine.begin() as connection:
            return int((await connection.execute(items.insert().values(**row))).inserted_primary_key[0])

    @app.post("/items", status_code=201)
    async def create(item: Item) -> dict[str, Any]:
        """Store an item."""
        if is_sqlite:  # SQLite has one writer at a time
            async with writing:
                number = await insert(item)
        else:
            number = await insert(item)
        return {"id": number, **item.model_dump(mode="json")}

    return app


async def serve(database: str) -> None:
    """Serve until standard input is closed."""
    engine = create_async_engine(database, pool_size=40)  # each request can have a connection
    if engine.dialect.name == "sqlite":
        event.listen(engine.sync_engine, "connect", _configure)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    config = uvicorn.Config(create_app(engine), http="h11", ws="none", log_level="warning", access_log=False)
    server, listener = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as in regroup: answers do not wait 40 ms
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110  # uvicorn has a flag, no event
        await asyncio.sleep(0.01)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving
    await engine.dispose()


def _configure(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    asyncio.run(serve(parser.parse_args().database))
