"""What a worker needs to know of a task in order to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from watchbill.client.plans import Plan

R = TypeVar("R")

Kind = Literal["async", "thread", "process"]
STORED = b'\x01{"$stored"'  # how a payload begins that is a reference, after jsonb's version byte


class BadPayload(ValueError):
    """The payload does not fit the task's signature; no attempt can change that."""


class BadResult(ValueError):
    """What a handler returned cannot be stored; no attempt can change that."""


class NotStarted(Exception):
    """A handler could not be given what it runs with; nothing has run."""


class NoConnection(NotStarted):
    """A transactional handler could not be given its connection."""


class RemoteError(Exception):
    """What a handler raised in a child process, as it was described there."""

    def __init__(self, description: dict[str, Any], delay: float | None = None) -> None:
        super().__init__(description.get("message", ""))
        self.description, self.delay = description, delay


class Asked(Protocol):
    """An App, as far as it carries out plans."""

    def run(self, plan: Plan[R]) -> R: ...
    async def arun(self, plan: Plan[R]) -> R: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """A task as the worker sees it."""

    type: str
    function: Callable[..., Any]
    kind: Kind
    version: int
    decode: Callable[[bytes, int], dict[str, Any]]  # JSON and its version -> keyword arguments; raises BadPayload
    encode_result: Callable[[Any], bytes | None]
    schema: str = "watchbill"
    timeout: float | None = None  # seconds, for jobs that bring none
    transactional: bool = False  # takes a connection first, whose commit completes the job
    reference: str = ""  # module:name, by which a child process finds it
    app: Asked | None = None  # for what a handler asks of the database beside its own connections
    reading: Callable[[Handler], Handler] | None = None  # makes one of it that fetches its payload from the store

    def for_payload(self, raw: bytes) -> Handler:
        """This one, or the one for a payload by reference."""
        return self.reading(self) if raw.startswith(STORED) and self.reading is not None else self


Handlers = Mapping[str, Handler]
