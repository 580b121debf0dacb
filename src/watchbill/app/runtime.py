"""Runtime: the settings, clients and installation of one App, as one value.

Each part is found or opened at first use and then kept. A test replaces the whole value (`override_runtimes`).
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchbill.app.large_payloads import LargePayloads
from watchbill.client.operations import Home, installation
from watchbill.errors import NoDatabase

if TYPE_CHECKING:
    from watchbill.client.client import AsyncClient, Client
    from watchbill.client.lock_renewal import Renewer
    from watchbill.payloads import PayloadStore
    from watchbill.postgres.embedded import EmbeddedServer
    from watchbill.settings import Settings
    from watchbill.store.queries import Queries

logger = logging.getLogger("watchbill")
_embedded: dict[tuple[Path, str], EmbeddedServer] = {}  # a forked child shares its parent's hold on the server


class Runtime:
    """`load_settings` is called once, at first use; `payload_store` wins over the setting of that name."""

    ignores_cells = False  # of tests, in which all cells are one database
    after_enqueue: Callable[[], None] | None = None  # set by tests with Django: called after each commit with new jobs

    def __init__(self, load_settings: Callable[[], Settings], payload_store: PayloadStore | None = None) -> None:
        self._load_settings, self._payload_store = load_settings, payload_store
        self._has_tried_to_identify = False
        self.rules_version = 0  # the version of the limits and queues that this process has sent: `JobProducer`

    @cached_property
    def settings(self) -> Settings:
        return self._load_settings()

    def use(self, settings: Settings) -> None:
        """Replaces the settings; the database stays, if it is known already."""
        vars(self).pop("large_payloads", None)
        self.settings = settings

    @cached_property
    def large_payloads(self) -> LargePayloads:
        return LargePayloads(self.settings, self._payload_store)

    @cached_property
    def database_url(self) -> str:
        if self.settings.embedded and not self.settings.database_url:
            return start_embedded_server(self.settings)
        from watchbill.postgres.address import find_address

        return find_address(self.settings).url

    @cached_property
    def client(self) -> Client:
        from watchbill.client.client import Client

        return Client(self.database_url, **self._client_options)

    @cached_property
    def aclient(self) -> AsyncClient:
        from watchbill.client.client import AsyncClient

        return AsyncClient(self.database_url, **self._client_options)

    @cached_property
    def lock_renewer(self) -> Renewer:
        from watchbill.client.lock_renewal import Renewer

        return Renewer(self.database_url, self.queries)

    @property
    def _client_options(self) -> dict[str, Any]:
        s = self.settings
        return {
            "schema": s.schema,
            "pool_size": s.pool_size,
            "prepare": s.prepared_statements,
            "timeout": s.client_timeout,
        }

    @property
    def queries(self) -> Queries:
        from watchbill.store.queries import queries

        return queries(self.settings.schema)

    def close(self) -> None:
        if "client" in vars(self):
            self.client.close()

    async def aclose(self) -> None:
        if "aclient" in vars(self):
            await self.aclient.close()

    # -- These methods find the installation (database and schema) that a connection leads to.

    def home(self, connection: Any) -> Home:
        """The installation to which a caller's connection must lead; a connection to another one is refused.

        The clients know it once they are open. Otherwise it is read from the App's own database, only once and with a
        short timeout: the caller has a transaction open. Not on an event loop, which that would block: there,
        SQLAlchemy shows an asynchronous session as if it were blocking.
        """
        if self._should_identify(connection) and not is_on_loop():
            self._has_tried_to_identify = True
            try:
                self.client.read_installation()
            except NoDatabase as error:
                _warn_unidentified(error)
        return self._known_home()

    async def ahome(self, connection: Any) -> Home:
        if self._should_identify(connection):
            self._has_tried_to_identify = True
            try:
                await self.aclient.read_installation()
            except NoDatabase as error:
                _warn_unidentified(error)
        return self._known_home()

    def read_installation(self, connection: Any) -> str:
        """The installation that the caller's connection leads to; if `connection` is None, the App's own."""
        if connection is None:
            return self.client.installation or self.client.run(installation())
        from watchbill.client import caller_connection

        return caller_connection.run(installation(), connection, self.queries, call="enqueue")

    async def aread_installation(self, connection: Any) -> str:
        if connection is None:
            known = self.aclient.installation
            return known if known is not None else await self.aclient.run(installation())
        from watchbill.client import caller_connection

        return await caller_connection.arun(installation(), connection, self.queries, call="enqueue")

    def is_own(self, connection: Any) -> bool:
        """Whether this connection of a caller is known to lead to the App's own database."""
        return False

    def _known_home(self) -> Home:
        clients = [vars(self)[name] for name in ("client", "aclient") if name in vars(self)]
        return Home(self.settings.schema, next((each.installation for each in clients if each.installation), None))

    def _should_identify(self, connection: Any) -> bool:
        if self._has_tried_to_identify or self.is_own(connection) or self._known_home().installation:
            return False
        try:
            return bool(self.database_url)
        except NoDatabase:  # an App without an address uses its callers' connections only
            self._has_tried_to_identify = True
            return False


def start_embedded_server(settings: Settings) -> str:
    """The address of the project's own PostgreSQL, for `App(embedded=True)`: scripts and notebooks.

    Starts it if needed and migrates the schema. The server runs as long as a process holds it; this one does until it
    ends.
    """
    from watchbill.postgres.embedded import EmbeddedServer, find_project
    from watchbill.store.install import install

    key = find_project(), settings.schema
    if key not in _embedded:
        server = EmbeddedServer.acquire(key[0], binaries=settings.embedded_binaries)
        atexit.register(server.release)
        install(server.url, settings.schema, settings.jcron_schema)
        _embedded[key] = server
    return _embedded[key].url


def is_on_loop() -> bool:
    """Whether an event loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _warn_unidentified(error: NoDatabase) -> None:
    logger.warning(
        "Could not identify the App's own database, so it does not refuse a connection to another database: %s",
        error.message,
    )
