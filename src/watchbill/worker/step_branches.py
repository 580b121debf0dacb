"""Branches: what `steps.gather` runs side by side. Each of them may sleep and wait.

The job leaves its worker when all branches wait and no step runs. A branch goes on until it ends or waits. When no
branch of a `gather` goes on, then the branch that has called `gather` waits, and so on up to the handler.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol


class Handler(Protocol):
    """The part of a session that knows whether the handler waits."""

    handler_waits: bool

    def check_may_leave(self) -> None: ...


class Branch:
    """The handler, or one of the coroutines that `steps.gather` runs. `prefix` begins the names of its steps. Only its
    own asyncio task may wait: nothing would wait for another one."""

    def __init__(self, handler: Handler, prefix: str = "", fork: Fork | None = None) -> None:
        self.handler, self.prefix, self._fork = handler, prefix, fork
        self.task = asyncio.current_task() if fork is None else None
        self.waits = False

    def wait(self) -> None:
        self.waits = True
        if self._fork is not None:
            self._fork.note_wait()
        else:
            self.handler.handler_waits = True
            self.handler.check_may_leave()

    def resume(self) -> None:
        """Takes a wait back, because something else has ended it: `asyncio.timeout`, for example."""
        self.waits = False
        if self._fork is not None:
            self._fork.note_resume()
        else:
            self.handler.handler_waits = False


current_branch: contextvars.ContextVar[Branch] = contextvars.ContextVar("watchbill_branch")


class Fork:
    """The branches of one call of `steps.gather`."""

    def __init__(self, parent: Branch, name: str, awaitables: Sequence[Awaitable[Any]]) -> None:
        self._parent, self._awaitables = parent, awaitables
        self._branches = [Branch(parent.handler, f"{name}[{place}]/", self) for place in range(len(awaitables))]
        self._going, self._ended = len(awaitables), 0
        self._results: list[Any] = [None] * len(awaitables)
        self._is_settled, self._is_over = asyncio.Event(), False
        self.errors: dict[int, BaseException] = {}
        self._settle()

    @property
    def has_waiting_branch(self) -> bool:
        return self._ended < len(self._branches)

    async def run(self) -> list[Any]:
        """Returns the results when all branches have ended. Returns too if one has failed and the others have ended or
        wait: then `errors` says which, and those that wait are canceled."""
        tasks = [self._start(place) for place in range(len(self._branches))]
        try:
            await self._is_settled.wait()
        finally:
            self._is_over = True
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        return self._results

    def _start(self, place: int) -> asyncio.Task[None]:
        context = contextvars.copy_context()
        context.run(current_branch.set, self._branches[place])
        task = asyncio.get_running_loop().create_task(self._run_branch(place), context=context)
        self._branches[place].task = task
        return task

    async def _run_branch(self, place: int) -> None:
        error: BaseException | None = None
        try:
            self._results[place] = await self._awaitables[place]
        except BaseException as raised:  # noqa: BLE001  (`gather` raises it)
            error = raised
        if self._is_over:
            return
        if error is not None:
            self.errors[place] = error
        self._ended += 1
        if not self._branches[place].waits:
            self._going -= 1
        self._settle()

    def note_wait(self) -> None:
        self._going -= 1
        self._settle()

    def note_resume(self) -> None:
        if not self._going and self._parent.waits:
            self._parent.resume()
        self._going += 1

    def _settle(self) -> None:
        if self._going:
            return
        if self.errors or not self.has_waiting_branch:
            self._is_settled.set()
        else:
            self._parent.wait()
