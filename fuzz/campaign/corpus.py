"""The programs that campaigns keep: those that had a hazard first, and those that failed. They lie in a Hypothesis
example database: a folder, a Redis server that several machines share, or both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase, MultiplexedDatabase

from copyproof.fuzz.programs.stateful import Stateful
from copyproof.spec.errors import BadInput, first_line

_KEY = b"copyproof.fuzz modules"


def opened(folder: Path, address: str | None) -> ExampleDatabase:
    """The database of a campaign.

    Args:
        folder: where it lies on this machine.
        address: a Redis server that holds it too, as `redis://host:6379/0`.

    Raises:
        BadInput: the client is not installed, or no server answers.
    """
    local = DirectoryBasedExampleDatabase(folder)
    if address is None:
        return local
    try:
        import redis
        from hypothesis.extra.redis import RedisExampleDatabase
    except ImportError as error:
        raise BadInput("--database needs a Redis client; install copyproof[cluster]") from error
    try:
        server = redis.Redis.from_url(address, socket_connect_timeout=20)
        server.ping()
    except (redis.RedisError, ValueError, OSError) as error:
        raise BadInput(
            f"--database {address}: no Redis server answers there ({first_line(error)}); give redis://HOST:PORT/NUMBER"
        ) from error
    return MultiplexedDatabase(local, RedisExampleDatabase(server))


def keep(database: ExampleDatabase, program: str) -> None:
    """Keeps a module, given as JSON."""
    database.save(_KEY, json.dumps(json.loads(program), sort_keys=True).encode())


def kept(database: ExampleDatabase) -> Iterator[str]:
    """The modules that are kept, as JSON; what can't be read is left out."""
    for value in sorted(database.fetch(_KEY)):
        try:
            data = json.loads(value)
            Stateful.from_json(data)
        except (ValueError, KeyError, TypeError):
            continue
        yield json.dumps(data)
