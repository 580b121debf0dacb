"""Looks once a day whether the tables contradict each other, as `watchbill verify` does without options.

Every node asks at the same time of day, and the database lets one of them do it. What it finds raises the alert
`verify`. A node that starts later than that does not make up for it; one that dies while it looks is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from datetime import time as time_of_day

from watchbill.postgres.connect import Connection
from watchbill.postgres.hosts import shut_down
from watchbill.store.node_connection import NodeConnection
from watchbill.verify.look import SECOND_LOOK_SECONDS, Finding, Verifier

logger = logging.getLogger("watchbill.maintenance")

LONGEST_PAUSE_SECONDS = 900.0  # so often a node asks whether another one has begun and died
LATE_SECONDS = 3600.0  # for how long after the time of day it asks
MOST_NAMED = 5


def _now() -> datetime:
    return datetime.now().astimezone()


class DailyVerification:
    """`run` is a chore. `connection` is for the mark in the database; the looks have a connection of their own."""

    def __init__(
        self,
        connection: NodeConnection,
        url: str,
        schema: str,
        at: time_of_day,
        *,
        clock: Callable[[], datetime] = _now,
        second_look: float = SECOND_LOOK_SECONDS,
    ) -> None:
        self._connection, self._url, self._schema, self._at, self._clock = connection, url, schema, at, clock
        self._second_look = second_look
        self._not_before = clock()

    async def run(self) -> float:
        """Verifies if it is time and no other node does. Returns the seconds until it asks again."""
        now = self._clock()
        due = find_last_instant(self._at, now)
        if self._not_before <= due and now - due < timedelta(seconds=LATE_SECONDS):
            ((is_ours,),) = await self._connection.execute("begin_verification", (due,))
            if is_ours:
                await self._verify()
        until_next = (find_last_instant(self._at, now + timedelta(days=1)) - now).total_seconds()
        return max(1.0, min(until_next, LONGEST_PAUSE_SECONDS))

    async def _verify(self) -> None:
        began = time.monotonic()
        found = await self._look()
        damage = [each for each in found if each.state == "damage"]
        said = describe(damage)
        await self._connection.execute("end_verification", (time.monotonic() - began, said))
        if said is not None:
            logger.error("The daily verification has found damage: %s. To see all of it: watchbill verify --full", said)
        elif unchecked := sorted({each.invariant for each in found if each.state == "unchecked"}):
            logger.warning(
                "The daily verification could not look at %s: the worker's role may not read it all, or it took too"
                " long. To look at it, run `watchbill verify` as the owner",
                ", ".join(unchecked[:MOST_NAMED]),
            )

    async def _look(self) -> list[Finding]:
        """Looks in a thread of its own, which ends with the process: it sleeps for half a minute at a time."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Finding]] = loop.create_future()
        connection = await asyncio.to_thread(
            Connection.connect, self._url, application_name="watchbill verify", autocommit=True
        )

        def look() -> None:
            try:
                verifier = Verifier(connection, self._schema, second_look=self._second_look)
                found = list(verifier.look_quickly())
                settle(lambda: answer.set_result(found))
            except Exception as error:  # noqa: BLE001  (the chore raises it)
                failure = error
                settle(lambda: answer.set_exception(failure))
            finally:
                connection.close()

        def settle(action: Callable[[], None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda: None if answer.done() else action())

        threading.Thread(target=look, name="watchbill-verify", daemon=True).start()
        try:
            return await answer
        except asyncio.CancelledError:
            shut_down(connection)
            raise


def find_last_instant(at: time_of_day, now: datetime) -> datetime:
    """The last instant, not after `now`, at which the clocks of its zone showed this time of day."""
    today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


def describe(damage: list[Finding]) -> str | None:
    """The first findings, for an alert; None if there are none."""
    if not damage:
        return None
    named = "; ".join(f"{each.invariant}: {each.subject}: {each.what}" for each in damage[:MOST_NAMED])
    return named if len(damage) <= MOST_NAMED else f"{named}; and {len(damage) - MOST_NAMED} more"
