"""Which installation an App's jobs live in, so that a caller's connection to another one is noticed.

The clients see it when they open. Where none has been used, the App looks at its own database once, and only once: the
caller has a transaction open meanwhile. What it cannot find out stops nobody. An App without an address lives on its
callers' connections alone, and opens none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from watchbill.app.task import on_loop
from watchbill.errors import NoDatabase

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.client.clients import AsyncClient, Client
    from watchbill.client.plans import Home

logger = logging.getLogger("watchbill")


class Whereabouts:
    """Of one App's jobs."""

    def __init__(self, app: App, is_own: Callable[[Any], bool]) -> None:
        self._app, self._is_own = app, is_own
        self._looked = False

    def home(self, connection: Any) -> Home:
        """Where this connection of a caller's should lead, as far as is known.

        Nothing is looked up on an event loop, which that would stop: there SQLAlchemy shows a blocking face of an
        asynchronous session.
        """
        if self._should_look(connection) and not on_loop():
            try:
                self._app.client.recognise()
            except NoDatabase as error:
                _warn(error)
            self._looked = True
        return self._known()

    async def ahome(self, connection: Any) -> Home:
        if self._should_look(connection):
            try:
                await self._app.aclient.recognise()
            except NoDatabase as error:
                _warn(error)
            self._looked = True
        return self._known()

    def _known(self) -> Home:
        """By what a client of either colour has seen."""
        from watchbill.client.plans import Home

        found = vars(self._app)
        clients: list[Client | AsyncClient] = [found[name] for name in ("client", "aclient") if name in found]
        return Home(self._app.settings.schema, next((each.installation for each in clients if each.installation), None))

    def _should_look(self, connection: Any) -> bool:
        if self._looked or self._is_own(connection) or self._known().installation:
            return False
        try:
            return bool(self._app.database_url)
        except NoDatabase:
            self._looked = True
            return False


def _warn(error: NoDatabase) -> None:
    logger.warning(
        "The App cannot look at its own database, so a connection that leads to another one would not be noticed: %s",
        error.message,
    )
