"""Renews the locks that this process holds, from one thread, so that a busy event loop or handler does not lose them.

The thread starts with the first lock, opens its connection when the first renewal is due, and ends a few seconds after
the last lock was released. A lock that is released before a third of its ttl has passed costs it nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from weakref import WeakSet

import psycopg

from watchbill.client import lock_operations
from watchbill.client.client import ClientConnection, run
from watchbill.client.operations import Operation
from watchbill.errors import WatchbillError
from watchbill.model.clock import boot_seconds
from watchbill.postgres import forks
from watchbill.store.queries import Queries

logger = logging.getLogger("watchbill")

SAFE_SHARE = 0.9  # of the ttl: then the holder stops trusting a lock that was not renewed
RENEWAL_SHARE = 1 / 3  # of the ttl: then it is renewed
RETRY_SHARE = 1 / 10  # of the ttl: after a renewal that failed
LINGER_SECONDS = 5.0


class Hold:
    """One grant of a lock, as its holder knows it. Times are those of `boot_seconds`."""

    def __init__(self, name: str, fence: int, ttl: float, sent: float) -> None:
        """`sent`: when the request was sent, which is before the database's clock was read."""
        self.name, self.fence, self.ttl = name, fence, ttl
        self.is_lost = False
        self.safe_until, self.due = sent + ttl * SAFE_SHARE, sent + ttl * RENEWAL_SHARE

    def note_renewal(self, sent: float) -> None:
        self.safe_until, self.due = sent + self.ttl * SAFE_SHARE, sent + self.ttl * RENEWAL_SHARE

    def note_failure(self) -> None:
        self.due = boot_seconds() + self.ttl * RETRY_SHARE

    @property
    def is_safe(self) -> bool:
        """Whether no other caller can have been granted the lock, by this process's own clock."""
        return not self.is_lost and boot_seconds() < self.safe_until


class Renewer:
    """Renews the locks that are added, until they are removed, lost or no longer referred to by the program."""

    def __init__(self, url: str, queries: Queries) -> None:
        self._url, self._queries = url, queries
        self._start_anew()
        forks.call_in_child(self, Renewer._forget_parent)

    def _forget_parent(self) -> None:
        forks.inherited.append(self._connection)
        self._start_anew()

    def _start_anew(self) -> None:
        self._changed = threading.Condition()
        self._holds: WeakSet[Hold] = WeakSet()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0
        self._connection: ClientConnection | None = None

    def add(self, hold: Hold) -> None:
        with self._changed:
            self._holds.add(hold)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watchbill-locks", daemon=True)
                self._thread.start()
            elif hold.due < self._wakes_at:
                self._changed.notify()

    def remove(self, hold: Hold) -> None:
        with self._changed:
            self._holds.discard(hold)

    def _run(self) -> None:
        try:
            idle_since = boot_seconds()
            while True:
                due = self._wait_for_due()
                if due:
                    idle_since = boot_seconds()
                for hold in due:
                    self._renew(hold)
                del due  # only the program's own references keep a lock alive
                if self._end_if_idle(idle_since):
                    return
        finally:
            self._disconnect()

    def _wait_for_due(self) -> list[Hold]:
        with self._changed:
            now = boot_seconds()
            self._wakes_at = min([now + LINGER_SECONDS, *(hold.due for hold in self._holds)])
            self._changed.wait(max(0.0, self._wakes_at - now))
            return [hold for hold in self._holds if hold.due <= boot_seconds()]

    def _end_if_idle(self, idle_since: float) -> bool:
        """Ends the thread if no lock was held for a while; returns whether it ends."""
        with self._changed:
            if self._holds or boot_seconds() - idle_since < LINGER_SECONDS:
                return False
            self._thread = None
            return True

    def _renew(self, hold: Hold) -> None:
        sent = boot_seconds()
        try:
            is_renewed = self._send(lambda own: run(_renewal(hold), own, self._queries), hold.ttl)
        except (WatchbillError, psycopg.Error, OSError) as error:
            self._disconnect()
            hold.note_failure()
            logger.warning("Could not renew the lock %r; retrying until its ttl ends: %s", hold.name, error)
            return
        with self._changed:
            if hold not in self._holds:  # it was released meanwhile
                return
            if is_renewed:
                hold.note_renewal(sent)
            else:
                hold.is_lost = True
                self._holds.discard(hold)
        if hold.is_lost:
            logger.error("The lock %r was lost: it expired or was released, and is no longer held here", hold.name)

    def _send(self, statement: Callable[[ClientConnection], bool], ttl: float) -> bool:
        if self._connection is None:
            self._connection = ClientConnection.connect(
                self._url, autocommit=True, prepare_threshold=None, application_name="watchbill locks"
            )
        self._connection.reply_timeout = max(1.0, ttl * RENEWAL_SHARE)
        return statement(self._connection)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def _renewal(hold: Hold) -> Operation[bool]:
    return lock_operations.renew(hold.name, hold.fence, hold.ttl)
