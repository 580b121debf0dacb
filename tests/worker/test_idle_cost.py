"""How many statements idle nodes send. The server logs them; BEGIN, COMMIT and SET are not counted."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.servers import Server
from tests.worker.conftest import Workbench
from watchbill.maintenance import unblocker
from watchbill.node import Node

_STATEMENT = re.compile(r" LOG:  (?:statement|execute [^:]*): (.*(?:\n\t.*)*)")
_NOT_COUNTED = re.compile(r"BEGIN|COMMIT|SET|LISTEN")
_FUNCTION = re.compile(r'"?watchbill"?\.(\w+)\(|pg_\w*advisory\w+')


class StatementLog:
    """The statements in the server's log that were sent to one database."""

    def __init__(self, server: Server, url: str) -> None:
        self._path: Path = server.embedded.log
        database = sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
        server.execute(sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(database))
        self.start()

    def start(self) -> None:
        """Counts only what is sent from now on."""
        self._start = self._path.stat().st_size

    def count(self) -> Counter[str]:
        """How often each function was called."""
        with self._path.open("rb") as log:
            log.seek(self._start)
            text = log.read().decode(errors="replace")
        statements = [each for each in _STATEMENT.findall(text) if not _NOT_COUNTED.match(each)]
        return Counter(_name(each) for each in statements)


def _name(statement: str) -> str:
    names = [found[1] or found[0] for found in _FUNCTION.finditer(statement)]
    return next((name for name in names if name not in ("_clock", "_count_ready_entries_read")), statement)


@asynccontextmanager
async def idle_nodes(bench: Workbench, count: int, **changes: Any) -> AsyncIterator[None]:
    """Nodes of which none has anything left to do: their workers have slept long enough for the chores to notice."""

    @bench.app.task
    async def work() -> None: ...

    def is_idle(node: Node) -> bool:
        return node._worker is not None and node.worker._wakeups.slept_seconds > 3 * unblocker.PAUSE_SECONDS

    async with AsyncExitStack() as stack:
        names = [f"node {number}" for number in range(count)]
        nodes = [await stack.enter_async_context(bench.working(name=name, **changes)) for name in names]
        await bench.until(lambda: all(is_idle(node) for node in nodes))
        yield


def _others(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name not in ("_survey", "heartbeat")}


@pytest.fixture
def log(server: Server, schema_database: str) -> StatementLog:
    return StatementLog(server, schema_database)


@pytest.mark.parametrize("count", [1, 3])
async def test_an_idle_node_sends_heartbeats_and_surveys_and_hardly_anything_else(
    bench: Workbench, log: StatementLog, count: int
) -> None:
    """Each third of a lease has a heartbeat and a survey. By default that is ten seconds, so what is sent beside six
    surveys is the cost of a minute, except for what the clock of the chores alone decides."""
    async with idle_nodes(bench, count, lease=1.5):
        log.start()
        await bench.until(lambda: log.count()["_survey"] >= 6 * count)
        counts = log.count()
    assert counts["heartbeat"] <= 8 * count
    # All nodes together look at figures every 30 s, and two may see at once that it is time.
    assert counts.pop("_observe", 0) <= count
    assert sum(_others(counts).values()) <= count, "a tick, once a minute, may fall into this time"


@pytest.mark.long
@pytest.mark.parametrize(("count", "limit"), [(1, 20), (3, 60)])
async def test_idle_nodes_send_under_twenty_statements_a_minute_each(
    bench: Workbench, log: StatementLog, count: int, limit: int
) -> None:
    async with idle_nodes(bench, count, poll_interval=0.1, poll_max_interval=5.0):  # the default settings
        log.start()
        await asyncio.sleep(60)
        counts = log.count()
    assert sum(counts.values()) < limit, counts
