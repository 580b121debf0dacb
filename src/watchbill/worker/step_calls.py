"""One call of a step: its name, and what it asks its runner to do."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from watchbill.model.steps import StepKind
from watchbill.worker.checkpoints import NewStep
from watchbill.worker.step_options import StepOptions

EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)
LONGEST_NAME = 200  # characters of a name, and of a key
# Of these no step of a handler has the name, because they have a slash at the end.
UNDOING = "undo/"
PUBLISHED = "published/"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a step, under the name that it has drawn."""

    name: str
    kind: StepKind
    number: int  # in the order of the calls of this run
    prefix: str = ""  # of the branch that calls it
    options: StepOptions = StepOptions()  # noqa: RUF009  (frozen)
    aliases: tuple[str, ...] = ()  # names under which an earlier version of the code may have stored it
    digest: int | None = None
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    takes_connection: bool = False
    owns_jobs: bool = True  # the jobs that it waits for are canceled with this one
    upgrades: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)

    @property
    def target(self) -> Callable[..., Any]:
        assert self.function is not None
        return self.function

    def run_function(self, *connection: Any) -> Any:
        return self.target(*connection, *self.args, **self.kwargs or {})


@dataclass(frozen=True, slots=True)
class Undo:
    """What undoes a step: the function, and the result of the step."""

    function: Callable[..., Any]
    result: Any


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks the database, or anything else that runs on the event loop."""

    work: Coroutine[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Invoke:
    call: Call


@dataclass(frozen=True, slots=True)
class InvokeInTransaction:
    """Asks to call the function with a connection, and to store the step with its commit."""

    call: Call
    step: NewStep


class WaitForSteps:
    """Asks to wait until no step of the run is under way."""


Request = Ask | Invoke | InvokeInTransaction | WaitForSteps
Program = Generator[Request, Any, Any]


@dataclass(frozen=True, slots=True)
class CurrentStep:
    """The step whose function runs now. `key` is the same in each try and in each run: give it to systems that take an
    idempotency key."""

    name: str
    key: str


_current: contextvars.ContextVar[CurrentStep] = contextvars.ContextVar("watchbill_step")


def current_step() -> CurrentStep:
    """Returns the step whose function calls this."""
    try:
        return _current.get()
    except LookupError:
        raise LookupError("current_step() was called outside of a step's function") from None


@contextmanager
def mark_current(step: CurrentStep) -> Iterator[None]:
    """Makes this step the one that current_step() returns."""
    token = _current.set(step)
    try:
        yield
    finally:
        _current.reset(token)


def check_name(name: str, key: str | None) -> None:
    for what, text in (("name", name), ("key", key)):
        if text is None:
            continue
        if type(text) is not str or not (1 <= len(text) <= LONGEST_NAME and text.isprintable()):
            raise ValueError(
                f"steps.using({what}={text!r}) is invalid: give a text of 1 to {LONGEST_NAME} printable characters"
            )
    if set(name) & set("[]#/"):
        raise ValueError(f"steps.using(name={name!r}) is invalid: a name has none of the characters [ ] # /")


def find_function_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "<lambda>")
    if name == "<lambda>":
        raise TypeError("a step needs a function with a name: write a def, or steps.using(name=...).run(...)")
    return str(name)


def read_instant(instant: datetime) -> int:
    if instant.tzinfo is None:
        raise ValueError(f"steps.sleep_until({instant!r}) is invalid: give a time with a zone")
    return (instant - EPOCH_2000) // timedelta(microseconds=1)
