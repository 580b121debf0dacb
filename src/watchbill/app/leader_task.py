"""@app.leader_task: a function that runs on the leader of a group only, for as long as its term lasts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from watchbill.app.json_round_trip import shorten
from watchbill.app.producer import JobProducer
from watchbill.client import lock_operations
from watchbill.client.operations import Operation
from watchbill.cluster.callbacks import call_in_thread
from watchbill.cluster.elector import LeaderTask, Term
from watchbill.store.refusals import LockLost

F = TypeVar("F", bound=Callable[..., Any])
MAX_GROUP_LENGTH = 200 - len("leader/")  # the name of its lock has at most 200 characters


class Leadership:
    """One term of this node, as a leader task sees it."""

    def __init__(self, producer: JobProducer, term: Term) -> None:
        self._producer, self._term = producer, term

    def __repr__(self) -> str:
        return f"<Leadership of {self.group!r} in term {self.term}>"

    @property
    def group(self) -> str:
        """The group that this node leads."""
        return self._term.group

    @property
    def term(self) -> int:
        """The number of the term, greater than those of all earlier leaders of this group."""
        return self._term.number

    @property
    def is_leading(self) -> bool:
        """False as soon as the term may have ended. A `def` task must return then."""
        return self._term.is_current

    def wait(self, seconds: float) -> bool:
        """For the loop of a `def` task: sleeps, but returns at once when the term ends. Returns `is_leading`."""
        return not self._term.ended.wait(seconds)

    def check(self, connection: Any) -> None:
        """Raises LockLost unless this node still leads; then no other node is elected until your transaction ends."""
        self._producer.run_check(self._check(), connection)

    async def acheck(self, connection: Any) -> None:
        await self._producer.arun_check(self._check(), connection)

    def _check(self) -> Operation[None]:
        if not self.is_leading:
            raise LockLost(
                f"Term {self.term} of group {self.group!r} has ended.",
                hint="Roll back, and return from the leader task; another node leads the group, or will.",
            )
        return lock_operations.check(f"leader/{self.group}", self.term)


def check_group(group: object) -> None:
    """Refuses what cannot be the name of a group. None stands for the default."""
    if group is not None and (not isinstance(group, str) or not 1 <= len(group) <= MAX_GROUP_LENGTH):
        raise ValueError(f"@app.leader_task(group={shorten(group)}) is invalid: give the name of a group")


def make_leader_task(producer: JobProducer, function: Callable[..., Any]) -> LeaderTask:
    """What a node runs. The function may be `def`, which then runs in a thread, and may take a Leadership."""
    takes_leadership = _check_parameters(function)

    async def run(term: Term) -> None:
        arguments = (Leadership(producer, term),) if takes_leadership else ()
        if inspect.iscoroutinefunction(function):
            await function(*arguments)
        else:
            await call_in_thread(function, *arguments)

    return run


def _check_parameters(function: Callable[..., Any]) -> bool:
    """Refuses parameters that a node cannot fill; returns whether the function takes a Leadership."""
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"@app.leader_task: {name}() is a generator, which would never run; use no yield in it")
    required = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) > 1:
        raise TypeError(f"@app.leader_task: {name}() takes {len(required)} arguments; it gets one, a Leadership")
    return bool(required)
