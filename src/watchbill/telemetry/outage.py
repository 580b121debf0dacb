"""Logs an outage of the database: once when it begins, then every half minute, and once when it has ended.

It has ended when nothing has failed for two seconds: behind a proxy, a database that fails over answers some statements
and not others for a while. All loops of a process share one `Outage` per database, because during an outage each loop
fails several times a second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("watchbill.database")

REPEAT_SECONDS = 30.0
SETTLE_SECONDS = 2.0
Cancel = Callable[[], None]


def _call_later(seconds: float, function: Callable[[], None]) -> Cancel:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer.cancel


class Outage:
    """Whether one thing, such as the database, answers. Logs the changes. Safe to use from several threads."""

    def __init__(
        self,
        what: str,
        consequence: str,
        clock: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], Cancel] = _call_later,
    ) -> None:
        self._what, self._consequence, self._clock, self._call_later = what, consequence, clock, call_later
        self._lock = threading.Lock()
        self._began: float | None = None
        self._answered: float | None = None  # since when it answers again, until that is logged
        self._cancel_end: Cancel = lambda: None
        self._repeat_at = 0.0

    @property
    def is_on(self) -> bool:
        return self._began is not None

    def note_failure(self, error: object) -> None:
        with self._lock:
            now = self._clock()
            logger.debug("%s does not answer; retrying: %s", self._what, error)
            if self._answered is not None:
                self._answered = None
                self._cancel_end()
            if self._began is None:
                self._began, self._repeat_at = now, now + REPEAT_SECONDS
                logger.warning("%s does not answer (%s); meanwhile %s", self._what, error, self._consequence)
            elif now >= self._repeat_at:
                self._repeat_at = now + REPEAT_SECONDS
                logger.warning(
                    "%s has not answered for %.0f s; still retrying: %s", self._what, now - self._began, error
                )

    def note_answer(self) -> None:
        with self._lock:
            if self._began is not None and self._answered is None:
                self._answered = self._clock()
                self._cancel_end = self._call_later(SETTLE_SECONDS, self._note_end)

    def _note_end(self) -> None:
        with self._lock:
            if self._began is not None and self._answered is not None:
                outage = self._answered - self._began
                logger.warning("%s answers again, after an outage of %.1f s", self._what, outage)
                self._began = self._answered = None


_outages: dict[str, Outage] = {}
_lock = threading.Lock()


def outage_of(url: str) -> Outage:
    """Returns the Outage of this database, which all parts of this process share."""
    with _lock:
        if url not in _outages:
            consequence = "running handlers go on, and everything else is retried until the database answers"
            _outages[url] = Outage("The database", consequence)
        return _outages[url]


def is_any_database_out() -> bool:
    return any(outage.is_on for outage in list(_outages.values()))
