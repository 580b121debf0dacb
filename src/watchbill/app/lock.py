"""app.lock(): a named lock that one caller in the whole cluster holds at a time.

While a lock is held, a thread of this process renews it (`client/lock_renewal.py`). The process trusts its own clock
only for less than the ttl: after that, `check` refuses before it asks the database. The fence covers the rest. It is a
number that grows with each grant; `check` compares it inside the caller's own transaction, and keeps the next grant
away until that transaction has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID, uuid4

from watchbill.app.json_round_trip import shorten
from watchbill.app.producer import JobProducer, refuse_on_loop
from watchbill.client import lock_operations
from watchbill.client.operations import Operation
from watchbill.errors import NoDatabase, WatchbillError
from watchbill.model.clock import boot_seconds
from watchbill.model.durations import Duration, seconds
from watchbill.model.lock import Try
from watchbill.store.refusals import Invalid, LockLost

if TYPE_CHECKING:
    from watchbill.client.lock_renewal import Hold
    from watchbill.client.lock_waiting import AsyncReleaseListener, Patience, ReleaseListener

logger = logging.getLogger("watchbill")

MIN_TTL_SECONDS, MAX_TTL_SECONDS = 1.0, 86_400.0


class LockNotAcquired(WatchbillError):
    """Another caller holds the lock."""


class Lock:
    """A named lock. `with app.lock("name"):` holds it during the block, `async with` does the same for asyncio."""

    def __init__(self, producer: JobProducer, name: str, ttl: Duration, wait: Duration | None) -> None:
        self._producer = producer
        self.name = _check_name(name)
        self.ttl = _check_ttl(ttl)
        self._wait = _check_wait(wait)
        self._hold: Hold | None = None

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}{f' held under fence {self._hold.fence}' if self._hold else ''}>"

    @property
    def fence(self) -> int:
        """The number of this grant, greater than those of all earlier grants of this name."""
        return self._current_hold().fence

    @property
    def is_held(self) -> bool:
        """Whether the lock is held for certain, by this process's own clock. Sends no statement."""
        return self._hold is not None and self._hold.is_safe

    # -- A caller acquires the lock.

    def acquire(self) -> Self:
        """Acquires the lock, waiting for it if need be. Raises LockNotAcquired when the time is up."""
        refuse_on_loop("acquire()", "`async with` or `await aacquire()`")
        self._refuse_if_held()
        from watchbill.client.lock_waiting import Patience

        patience, request, missed = Patience(self._wait), uuid4(), Try()
        with self._listener() as listener:
            while True:
                missed = self._try(request, waits=listener.is_listening)
                if self._hold is not None:
                    return self
                if patience.should_listen() and listener.open():
                    continue
                listener.wait(self.name, self._next_pause(patience, missed, listener.is_listening))

    async def aacquire(self) -> Self:
        self._refuse_if_held()
        from watchbill.client.lock_waiting import Patience

        patience, request, missed = Patience(self._wait), uuid4(), Try()
        async with self._alistener() as listener:
            while True:
                missed = await self._atry(request, waits=listener.is_listening)
                if self._hold is not None:
                    return self
                if patience.should_listen() and await listener.open():
                    continue
                await listener.wait(self.name, self._next_pause(patience, missed, listener.is_listening))

    def try_acquire(self) -> bool:
        """Acquires the lock if it is free now; returns whether it has."""
        refuse_on_loop("try_acquire()", "`await atry_acquire()`")
        self._refuse_if_held()
        self._try(uuid4())
        return self._hold is not None

    async def atry_acquire(self) -> bool:
        self._refuse_if_held()
        await self._atry(uuid4())
        return self._hold is not None

    def _try(self, request: UUID, *, waits: bool = False) -> Try:
        sent: list[float] = []
        client = self._producer.runtime.client
        try:
            tried = client.run_with_resend(partial(self._try_once, request, waits, sent))
        except KeyboardInterrupt:
            with suppress(Exception):  # without this, the lock may be held until its ttl has passed
                client.run(lock_operations.release_request(self.name, request))
            raise
        return self._note_hold(tried, sent[-1])

    async def _atry(self, request: UUID, *, waits: bool = False) -> Try:
        sent: list[float] = []
        client = self._producer.runtime.aclient
        try:
            tried = await client.run_with_resend(partial(self._try_once, request, waits, sent))
        except asyncio.CancelledError:
            with suppress(Exception):
                await client.run(lock_operations.release_request(self.name, request))
            raise
        return self._note_hold(tried, sent[-1])

    def _try_once(self, request: UUID, waits: bool, sent: list[float], _resend: bool) -> Operation[Try]:
        sent.append(boot_seconds())
        return lock_operations.try_acquire(self.name, self.ttl, _describe_holder(), request, waits=waits)

    def _note_hold(self, tried: Try, sent: float) -> Try:
        if tried.fence is not None:
            from watchbill.client.lock_renewal import Hold

            self._hold = Hold(self.name, tried.fence, self.ttl, sent)
            self._producer.runtime.lock_renewer.add(self._hold)
        return tried

    def _next_pause(self, patience: Patience, missed: Try, is_listening: bool) -> float:
        pause = patience.next_pause(missed, is_listening=is_listening)
        if pause is None:
            raise _make_not_acquired_error(self.name, self._wait or 0, missed)
        return pause

    def _listener(self) -> ReleaseListener:
        from watchbill.client.lock_waiting import ReleaseListener

        runtime = self._producer.runtime
        listen_url = runtime.settings.listen_url
        return ReleaseListener(listen_url or runtime.database_url, runtime.queries, direct=listen_url is not None)

    def _alistener(self) -> AsyncReleaseListener:
        from watchbill.client.lock_waiting import AsyncReleaseListener

        runtime = self._producer.runtime
        listen_url = runtime.settings.listen_url
        return AsyncReleaseListener(listen_url or runtime.database_url, runtime.queries, direct=listen_url is not None)

    def _refuse_if_held(self) -> None:
        if self._hold is not None:
            raise RuntimeError(
                f"this Lock object holds {self.name!r} already; make another one with app.lock({self.name!r}) "
                "for each caller"
            )

    # -- A holder checks that it still has the lock.

    def check(self, connection: Any) -> None:
        """Raises LockLost unless the lock is held; then no other caller acquires it until your transaction has ended.

        `connection` is the connection or session of the transaction in which you write, as for enqueue.
        """
        self._producer.run_check(self._check(), connection)

    async def acheck(self, connection: Any) -> None:
        await self._producer.arun_check(self._check(), connection)

    def _check(self) -> Operation[None]:
        """Asks this process's own clock at once; the operation asks the database."""
        hold = self._current_hold()
        if not hold.is_safe:
            raise LockLost(
                f"Lock {self.name!r} may have expired: it was not renewed for {self.ttl:g} s, or was released.",
                hint="Roll back. This process was frozen, or cut off from the database; give a longer ttl if that "
                "happens often.",
            )
        return lock_operations.check(hold.name, hold.fence)

    def _current_hold(self) -> Hold:
        if self._hold is None:
            raise RuntimeError(f"lock {self.name!r} is not acquired: use `with app.lock(...)` or acquire() first")
        return self._hold

    # -- A holder releases the lock.

    def release(self) -> None:
        """Releases the lock. Raises LockLost if it was not held any more: other callers may have had it meanwhile.
        A second call raises RuntimeError."""
        refuse_on_loop("release()", "`await arelease()`")
        hold = self._end_hold()
        resent: list[bool] = []
        is_released = self._producer.runtime.client.run_with_resend(partial(_release_once, hold, resent))
        self._refuse_lost(is_released or resent[-1])

    async def arelease(self) -> None:
        hold = self._end_hold()
        resent: list[bool] = []
        is_released = await self._producer.runtime.aclient.run_with_resend(partial(_release_once, hold, resent))
        self._refuse_lost(is_released or resent[-1])

    def _end_hold(self) -> Hold:
        hold = self._current_hold()
        self._producer.runtime.lock_renewer.remove(hold)
        self._hold = None
        return hold

    def _refuse_lost(self, is_released: bool) -> None:
        if not is_released:
            raise LockLost(
                f"Lock {self.name!r} was lost before its release: it expired and another caller acquired it, or an "
                "operator released it.",
                hint="What you wrote after lock.check(connection) in the same transaction is safe; nothing else is.",
            )

    # -- A block acquires the lock and releases it: `with` and `async with`.

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.release()
        except (LockLost, NoDatabase) as error:
            self._report_end(kind, error)

    async def __aenter__(self) -> Self:
        return await self.aacquire()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.arelease()
        except (LockLost, NoDatabase) as error:
            self._report_end(kind, error)

    def _report_end(self, kind: type[BaseException] | None, error: WatchbillError) -> None:
        """The block's own error is more important. A release that failed only delays the next caller."""
        if isinstance(error, NoDatabase):
            logger.warning("Could not release the lock %r; it expires within %g s: %s", self.name, self.ttl, error)
        elif kind is None:
            raise error


def _release_once(hold: Hold, resent: list[bool], resend: bool) -> Operation[bool]:
    """After a lost reply, the first release may have been carried out; then the second finds nothing."""
    resent.append(resend)
    return lock_operations.release(hold.name, hold.fence)


def _describe_holder() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


def _make_not_acquired_error(name: str, wait: float, missed: Try) -> LockNotAcquired:
    within = f" within {wait:g} s" if wait else ""
    if missed.held_by is None:
        holder = "another caller is about to acquire it, or has checked it in a transaction that is open"
    else:
        holder = f"{missed.held_by} holds it, for {missed.expires_in or 0:.0f} s more if it is not renewed"
    return LockNotAcquired(
        f"Lock {name!r} was not acquired{within}: {holder}.",
        hint="Wait longer with wait=..., or see `watchbill locks list`.",
    )


def _check_name(name: str) -> str:
    if type(name) is not str or not 1 <= len(name) <= 200:
        raise Invalid(f"The name of a lock is invalid: {shorten(name)}.", hint="Give a text of 1 to 200 characters.")
    if name.startswith("leader/"):
        raise Invalid(
            f"The name of a lock is invalid: {shorten(name)}. `leader/` is the prefix of the locks of leaders.",
            hint="Give another name. To work on the leader only, use @app.leader_task.",
        )
    return name


def _check_ttl(ttl: Duration) -> float:
    given = seconds(ttl)
    if not MIN_TTL_SECONDS <= given <= MAX_TTL_SECONDS:
        raise Invalid(
            f"ttl={ttl!r} is invalid.", hint="Give 1 second to 1 day: how long the lock of a dead holder stays held."
        )
    return given


def _check_wait(wait: Duration | None) -> float | None:
    given = None if wait is None else seconds(wait)
    if given is not None and not given >= 0:  # NaN is refused too
        raise Invalid(f"wait={wait!r} is invalid.", hint="Give 0 to try once, a duration, or None to wait for ever.")
    return given
