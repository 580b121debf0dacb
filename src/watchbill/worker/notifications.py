"""How an idle worker learns of new jobs at once, while producers send a NOTIFY only if a worker sleeps.

A worker that wants to sleep tries to take an exclusive advisory lock on its listening connection. A producer shares
that lock until it commits. If it cannot get it, a worker sleeps, and the producer sends a NOTIFY. So a worker that
holds the lock and then finds no job has missed none: no producer that sent no NOTIFY is still uncommitted. A worker
that does not get the lock because another worker holds it sleeps as well, and hears the same NOTIFY. That other worker
gives up the lock when it has a job. If it then has no room for more, it sends a NOTIFY itself, and one of those that
still sleep takes the lock. A worker that does not get the lock because a producer is about to commit must not sleep:
that producer sends no NOTIFY.

A notification is only a hint. The survey (`maintenance/survey.py`) finds the jobs and locks that a lost one, or a
worker that was killed, would have announced. Without a direct connection, behind a pooler, polling alone is correct.
Every role of the database may send notifications, so a listener that gets too many of them closes its connection and
polls for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from uuid import UUID

import psycopg

from watchbill.errors import NoDatabase
from watchbill.maintenance.promoter import DueEvent
from watchbill.maintenance.unblocker import PAUSE_SECONDS
from watchbill.postgres.connect import AsyncConnection
from watchbill.store.node_connection import Deadline, first_line, raise_if_canceled
from watchbill.store.queries import Queries
from watchbill.telemetry.outage import Outage, is_any_database_out

logger = logging.getLogger("watchbill.worker")

RECONNECT_SECONDS = 1.0
ANSWER_TIMEOUT_SECONDS = 5.0
# A node that gets more than MOST_NOTES notifications in NOTE_WINDOW_SECONDS is flooded: it stops listening for
# FLOOD_PAUSE_SECONDS, and asks for jobs every FLOOD_POLL_SECONDS instead. To read 20,000 takes a tenth of a second.
MOST_NOTES, NOTE_WINDOW_SECONDS = 20_000, 5.0
FLOOD_PAUSE_SECONDS, FLOOD_POLL_SECONDS = 30.0, 0.1
# A worker that was woken MOST_USELESS_WAKEUPS times in a row without finding a job pauses before it asks again, because
# any role of the database may send notifications. A wakeup after QUIET_SECONDS of sleep starts the count anew.
QUIET_SECONDS = 0.05
MOST_USELESS_WAKEUPS = 100
USELESS_WAKEUP_PAUSE_SECONDS = 0.01
LOCK_CLASS = 1466004579  # first number of the wakeup lock: "Watc" as four bytes; the second is the oid of table jobs


class Wakeups:
    """The events that parts of this node wait for, one per topic. The part that waits clears its event."""

    def __init__(self) -> None:
        self.jobs = asyncio.Event()  # a job may be ready, or a handler slot that was short is free
        self.delayed = DueEvent()  # a delayed job may be due before the promoter asks for due jobs again
        self.dependents = asyncio.Event()  # the last job that a blocked job waited for may have ended
        self.schedules = asyncio.Event()  # a schedule was changed, so the scheduler must read its next slot again
        self.leaders = asyncio.Event()  # a group may have no leader, so the elector must look
        self.tokens = asyncio.Event()  # the members or owners of a token group may have changed
        self.declarations = asyncio.Event()  # a schedule in the code may have to be declared again
        self.deliveries = asyncio.Event()  # a message of an alert is to be sent
        self.progress = asyncio.Event()  # a run has ended, endings were settled, or the node drains
        self.draining = asyncio.Event()  # the node drains; this event is never cleared
        self.stop = asyncio.Event()  # `stop_requests` has new runs
        self.stop_requests: set[tuple[bytes, int]] = set()  # id and fence of runs whose handlers have to stop
        self.heartbeat = threading.Event()  # a heartbeat, or a question for stop requests, is wanted at once
        self.wants_beat = False  # the next heartbeat is wanted at once, not only a question for stop requests
        self._asleep_since: float | None = None  # when the worker fell asleep, on the monotonic clock; None if awake

    @property
    def slept_seconds(self) -> float:
        """How long the worker has slept; -1 if the worker is awake. While it sleeps, producers send notifications."""
        return -1.0 if self._asleep_since is None else time.monotonic() - self._asleep_since

    @contextlib.contextmanager
    def asleep(self) -> Iterator[None]:
        """Marks the time in which the worker sleeps. While the worker sleeps, the unblocker sleeps too, so the end of a
        longer sleep wakes the unblocker."""
        self._asleep_since = time.monotonic()
        try:
            yield
        finally:
            if self.slept_seconds >= PAUSE_SECONDS:
                self.dependents.set()
            self._asleep_since = None

    def drain(self) -> None:
        """Wakes every part of the worker that has to act when the node begins to drain."""
        for event in (self.draining, self.progress, self.jobs, self.tokens):
            event.set()

    def request_stop(self, runs: list[tuple[UUID, int]]) -> None:
        self.stop_requests.update((job_id.bytes, fence) for job_id, fence in runs)
        self.stop.set()

    def handle_note(self, note: str) -> None:
        """Sets the event that belongs to the text of a notification. `store/sql/foundation/wake.sql` lists these texts.

        Every role of the database may send a notification. So it never gives an order: it only names the part of the
        node that should read the database again.
        """
        topic, _, detail = note.partition(" ")
        if topic == "stop":
            self.heartbeat.set()
        elif topic == "schedules":
            self.schedules.set()
        elif topic == "later":
            self.delayed.note_due(detail)
        elif topic == "unpark":
            self.delayed.set()
        elif topic == "awake":
            self.jobs.set()
        elif topic == "leader":
            self.leaders.set()
        elif topic == "tokens":
            self.tokens.set()
        elif topic == "unblock":
            self.dependents.set()
        elif topic == "beat":
            self.wants_beat = True
            self.heartbeat.set()
        else:
            self.jobs.set()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Returns when the event is set or the time is up."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _simplify_note(note: str) -> str:
    """Leaves the details of a notification out, so that equal ones are handled once. A `later` keeps its time, because
    the earliest time counts."""
    topic, _, detail = note.partition(" ")
    return note if topic == "later" or not detail else f"{topic} any"


class Listener:
    """Receives notifications on a LISTEN connection of this process, so that its worker can sleep."""

    def __init__(self, wakeups: Wakeups, url: str, queries: Queries, *, direct: bool = False) -> None:
        """If `direct` is set, the address leads to the server itself; otherwise `open` checks for a pooler."""
        self.wakeups = wakeups
        self.is_unavailable = False  # the address leads to a pooler, through which LISTEN never works
        self.is_locked = False  # this worker holds the wakeup lock, so that producers send notifications
        self.vain_wakeups = 0  # how often in a row the worker was woken without finding a job
        # Does not listen until then, on the monotonic clock, because of too many notifications.
        self._flooded_until = 0.0
        self._url, self._queries, self._direct = url, queries, direct
        self._find_sleeper = queries["has_sleeping_worker"]
        self._connection: AsyncConnection | None = None
        self._lock = (LOCK_CLASS, 0)
        self._watched: int | None = None  # file descriptor that the loop reads; a broken connection does not know it
        self._window, self._notes = 0, 0  # the current window of time, and how many notes came in it

    async def keep_open(self) -> None:
        """Opens the LISTEN connection, and opens it again whenever it is lost."""
        outage = Outage("The LISTEN connection", "new jobs are found by polling")
        while not self.is_unavailable:
            if not self.is_listening:
                try:
                    await self.open()
                except Exception as error:  # noqa: BLE001  (without it the worker polls; this loop tries again)
                    if not is_any_database_out():  # an outage of the database is logged elsewhere
                        outage.note_failure(first_line(error))
                else:
                    outage.note_answer()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def open(self) -> None:
        """Starts to listen. `keep_open` calls this again after the connection was lost."""
        if self.is_flooded:
            return
        connection = await AsyncConnection.connect(
            self._url, autocommit=True, prepare_threshold=None, application_name="watchbill listener"
        )
        if connection.is_pooled and not self._direct:
            await connection.close()
            self.is_unavailable = True
            logger.warning(
                "LISTEN does not work through this pooler; polling instead. Set listen_url to a direct address"
            )
            return
        try:
            with Deadline(connection, ANSWER_TIMEOUT_SECONDS):
                cursor = await connection.execute(self._queries["wake_key_and_channel"].encode())
                ((key, channel),) = await cursor.fetchall()
                await connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
        except BaseException:
            await connection.close()
            raise
        connection.add_notify_handler(lambda notify: self._handle_notes([notify.payload], notify.pid))
        self._connection, self._lock, self.is_locked = connection, (LOCK_CLASS, key), False
        self._watch_socket()
        self.handle_opened()

    @property
    def is_listening(self) -> bool:
        return self._connection is not None

    def _watch_socket(self) -> None:
        if self._connection is not None:
            self._watched = self._connection.fileno()
            asyncio.get_running_loop().add_reader(self._watched, self._read_notifications)

    def _unwatch_socket(self) -> None:
        """Tells the event loop to ignore the socket. Must precede the close: the next connection may get the same file
        descriptor, and the loop would take it for the old one and not watch it."""
        descriptor, self._watched = self._watched, None
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)

    def _read_notifications(self) -> None:
        connection = self._connection
        if connection is None:
            return
        notes, sender = [], 0
        try:
            connection.pgconn.consume_input()
            while (note := connection.pgconn.notifies()) is not None:
                notes.append(note.extra.decode(errors="replace"))
                sender = note.be_pid
        except psycopg.Error as error:
            self._give_up_connection(error)
        self._handle_notes(notes, sender)
        self._close_if_flooded()

    def _handle_notes(self, notes: list[str], sender: int) -> None:
        """Handles each different notification once, because equal ones ask for the same thing. After too many, the node
        stops listening and polls for a while. `sender` is the server process that sent the last one."""
        window = int(time.monotonic() / NOTE_WINDOW_SECONDS)
        self._notes = len(notes) + (self._notes if window == self._window else 0)
        self._window = window
        if self._notes > MOST_NOTES and not self.is_flooded:
            self.handle_flood()
            logger.warning(
                "More than %d notifications in %g s, the last from server process %d; polling instead for %g s. "
                "pg_stat_activity shows whose process that is",
                MOST_NOTES, NOTE_WINDOW_SECONDS, sender, FLOOD_PAUSE_SECONDS,
            )  # fmt: skip
        for note in {_simplify_note(note) for note in notes}:
            self.wakeups.handle_note(note)

    def _close_if_flooded(self) -> bool:
        if self._connection is None or not self.is_flooded:
            return False
        self._close_at_once()
        return True

    def _give_up_connection(self, error: BaseException) -> None:
        logger.debug("Lost the LISTEN connection; polling until it is open again: %s", first_line(error))
        self._close_at_once()

    def _close_at_once(self) -> None:
        self._unwatch_socket()
        connection, self._connection, self.is_locked = self._connection, None, False
        if connection is not None:
            connection.pgconn.finish()
        self.handle_lost()

    async def lock_for_sleep(self) -> bool:
        """Tries to take the wakeup lock: while a worker holds it, every producer sends a NOTIFY. Returns whether this
        worker holds the lock now."""
        if self._connection is None or self.is_locked:
            return self.is_locked
        self.is_locked = await self._execute_query("SELECT pg_try_advisory_lock(%s, %s)", self._lock) is True
        return self.is_locked

    async def has_sleeper(self) -> bool:
        """Whether the wakeup lock is held by another worker, and not just by a producer that is about to commit."""
        return self._connection is None or await self._execute_query(self._find_sleeper) is not False

    async def unlock(self) -> None:
        """Releases the wakeup lock, if this worker holds it: producers need not send a NOTIFY to a worker that runs."""
        if self._connection is not None and self.is_locked:
            self.is_locked = False
            await self._execute_query("SELECT pg_advisory_unlock(%s, %s)", self._lock)

    async def announce_awake(self) -> None:
        """Releases the wakeup lock, if this worker holds it, and wakes the other sleeping workers: one takes it."""
        if self._connection is not None and self.is_locked:
            await self.unlock()
            await self._execute_query(self._queries["announce_awake"])

    async def _execute_query(self, query: str, params: Sequence[int] = ()) -> object:
        """Returns the value that the query yields, or None if the connection was lost."""
        connection = self._connection
        assert connection is not None
        self._unwatch_socket()  # psycopg itself watches the socket during a statement
        try:
            with Deadline(connection, ANSWER_TIMEOUT_SECONDS):
                row = await (await connection.execute(query.encode(), params)).fetchone()
        except (psycopg.Error, OSError, NoDatabase) as error:
            self._give_up_connection(error)
            raise_if_canceled()
            return None
        self._watch_socket()
        return row[0] if row and not self._close_if_flooded() else None

    async def wait_for_jobs(self, seconds: float) -> bool:
        """Waits until a job may be ready, or the time is up. Returns whether a job may be ready. Pauses for a moment
        after too many wakeups in a row without a job."""
        began = time.monotonic()
        await wait_for(self.wakeups.jobs, min(seconds, FLOOD_POLL_SECONDS) if self.is_flooded else seconds)
        is_woken = self.wakeups.jobs.is_set()
        self.vain_wakeups = 0 if time.monotonic() - began > QUIET_SECONDS else self.vain_wakeups + 1
        if self.vain_wakeups > MOST_USELESS_WAKEUPS:
            await wait_for(self.wakeups.draining, USELESS_WAKEUP_PAUSE_SECONDS)
        self.wakeups.jobs.clear()
        return is_woken

    @property
    def is_flooded(self) -> bool:
        """Whether too many notifications came, so that this worker does not listen and polls for a while."""
        return time.monotonic() < self._flooded_until

    def handle_flood(self) -> None:
        self._flooded_until = time.monotonic() + FLOOD_PAUSE_SECONDS

    def handle_opened(self) -> None:
        """Wakes all parts of the node, to look for what they were not told while there was no LISTEN connection."""
        self.wakeups.schedules.set()
        self.handle_lost()

    def handle_lost(self) -> None:
        """Wakes the parts of the node that wait for notifications: none will come now, so that they must poll."""
        for event in (self.wakeups.jobs, self.wakeups.delayed, self.wakeups.dependents, self.wakeups.tokens):
            event.set()

    async def close(self) -> None:
        self._unwatch_socket()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
