"""The project's own PostgreSQL, for an App that was told `embedded=True` and knows no address: scripts and notebooks.

This process holds it as long as it lives, beside whoever else does (`watchbill up`, another script); the last one to end
stops it. Where code says so, it has the schema too: there is no release of a private database to migrate for.
"""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import TYPE_CHECKING

from watchbill.postgres.embedded import EmbeddedServer, find_project
from watchbill.store.install import install

if TYPE_CHECKING:
    from watchbill.settings import Settings

_held: dict[tuple[Path, str], EmbeddedServer] = {}  # a forked child has its parent's hold, by inheritance


def hold_server(settings: Settings) -> str:
    """Its address. Starts it, if it does not run, and brings the schema up to date."""
    key = find_project(), settings.schema
    if key not in _held:
        server = EmbeddedServer.acquire(key[0], binaries=settings.embedded_binaries)
        atexit.register(server.release)
        install(server.url, settings.schema, settings.jcron_schema)
        _held[key] = server
    return _held[key].url
