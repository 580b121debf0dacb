"""A PostgreSQL of the harness' own, which it may restart and crash; what was committed survives, only fsync is off."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.servers import _place
from tests.waiting import until
from watchbill.postgres.embedded import Binaries, EmbeddedServer, supervisor
from watchbill.postgres.migrate import Source, migrate

_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on", "max_connections": "300"}
EFFECTS = "CREATE TABLE IF NOT EXISTS effects (n bigint GENERATED ALWAYS AS IDENTITY, job_id uuid, fence bigint)"
OBSERVER = Path(__file__).parent / "observer.sql"


class ChaosServer:
    """With Watchbill's schema, the table `effects`, and what is in `observer.sql`."""

    def __init__(self, binaries: Binaries) -> None:
        self._binaries = binaries
        self.directory = Path(tempfile.mkdtemp(prefix="watchbill-chaos-", dir=_place()))
        self.directory.chmod(0o755)  # as root the server runs as another user, who must be able to come in
        self._hold = self._acquire()

    def __enter__(self) -> Self:
        migrate(self.url, "watchbill", Source.of_package("watchbill.store"))
        self.sql(EFFECTS)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(OBSERVER.read_bytes())
        return self

    def __exit__(self, *_: object) -> None:
        self._hold.release()
        shutil.rmtree(self.directory)

    def _acquire(self) -> EmbeddedServer:
        return EmbeddedServer.acquire(self.directory, binaries=str(self._binaries.directory), settings=_SETTINGS)

    @property
    def url(self) -> str:
        return self._hold.url

    @property
    def socket_directory(self) -> str:
        return str(self._home.socket_directory)

    @property
    def socket(self) -> Path:
        return Path(self.socket_directory, ".s.PGSQL.5432")

    @property
    def _home(self) -> Any:
        return self._hold._launch.home

    def stop(self, way: signal.Signals) -> None:
        """SIGINT: fast shutdown. SIGQUIT: immediate, as if it had crashed; also when the fast way takes too long."""
        for number in (way, signal.SIGQUIT):
            supervisor.signal_server(self._home.data, number)
            with contextlib.suppress(TimeoutError):
                until(lambda: supervisor.has_ended(self._home.root), patience=15)
                return
        raise TimeoutError("the server does not stop")

    @property
    def log(self) -> Path:
        return Path(self._home.log)

    def start(self) -> None:
        before, self._hold = self._hold, self._acquire()
        before.release()

    def crash(self) -> None:
        """Kills one session the hard way: the server ends all others, recovers and goes on."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """Waits for nobody's lock for long: the holder may be waiting for us."""
        with psycopg.connect(self.url, autocommit=True, options="-c statement_timeout=2s") as connection:
            cursor = connection.execute(query.encode(), params or None)
            return cursor.fetchall() if cursor.description else []
