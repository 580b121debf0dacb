"""An end to waiting for a server that says nothing.

A network that swallows packets breaks no connection: a read would wait for ever, and a polite cancellation needs that
same network. So when the time is up the socket is shut down on our side, and whoever waits on it hears so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg


def cut(connection: psycopg.BaseConnection[Any]) -> None:
    """Ends both directions of the connection; from any thread. The one that uses it cleans up."""
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)


@contextmanager
def deadline(connection: psycopg.BaseConnection[Any], seconds: float) -> Iterator[None]:
    """On an event loop: what is asked of this connection inside is answered within so many seconds, or fails."""
    timer = asyncio.get_running_loop().call_later(seconds, cut, connection)
    try:
        yield
    finally:
        timer.cancel()
