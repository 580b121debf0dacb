"""Steps: a handler runs again from its start after each suspension and each failure, and a step whose result is stored
returns it at once, without running again.

What a step does is written once, as a generator that yields requests: store this, call that. `Steps` and `AsyncSteps`
carry them out, one in the thread of a `def`, the other on the event loop. `Session` has what both need: the stored
steps of one run, and the names that the run has drawn so far. docs/explanation/steps.md describes the design.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, ParamSpec, Self, TypeVar, overload
from uuid import UUID

import orjson

from watchbill.model.decisions import Decision
from watchbill.model.durations import Duration
from watchbill.model.retry import delay_seconds
from watchbill.model.steps import (
    StepError,
    StepFailed,
    StepKind,
    StepMismatch,
    SuspensionSwallowed,
    Unwind,
    WaitOutsideHandler,
)
from watchbill.worker.checkpoints import Checkpointer, NewStep, StoredStep
from watchbill.worker.outcomes import describe_error
from watchbill.worker.run import Run
from watchbill.worker.step_values import compute_digest, decode_result, encode_result

logger = logging.getLogger("watchbill.worker")

P = ParamSpec("P")
R = TypeVar("R")
_EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)
LONGEST_NAME = 200  # characters of a name, and of a key
MOST_STEPS = 10_000  # of a job: a run loads them all


# -- what a step asks its runner to do


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a step, under the name that it has drawn."""

    name: str
    kind: StepKind
    number: int  # in the order of the calls of this run
    version: int = 1
    digest: int | None = None
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None

    def run_function(self) -> Any:
        assert self.function is not None
        return self.function(*self.args, **self.kwargs or {})


@dataclass(frozen=True, slots=True)
class _Save:
    step: NewStep


@dataclass(frozen=True, slots=True)
class _Invoke:
    call: Call


class _ReadClock:
    """Asks for the time of the database, in microseconds since 2000."""


class _WaitForSteps:
    """Asks to wait until no step of the run is under way."""


_Request = _Save | _Invoke | _ReadClock | _WaitForSteps
_Program = Generator[_Request, Any, Any]


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


@dataclass(slots=True)
class _Failure:
    """A failure of a step that is stored only if the handler goes on."""

    step: NewStep
    number: int  # how many steps had been called when it was raised
    is_stored: bool = False


class Session:
    """The steps of one run of a job: those that earlier runs have stored, and those of this run."""

    def __init__(
        self,
        run: Run,
        stored: list[StoredStep],
        checkpointer: Checkpointer,
        is_draining: Callable[[], bool],
    ) -> None:
        self.run, self.checkpointer, self._is_draining = run, checkpointer, is_draining
        self._stored = {step.name: step for step in stored}
        self._seq = max((step.seq for step in stored), default=0)
        self._called: Counter[str] = Counter()
        self._names: set[str] = set()
        self._number = 0
        self._failures: list[_Failure] = []
        self._running = 0
        self.is_quiet = asyncio.Event()  # no step is under way
        self.is_quiet.set()
        self.unwinding: Unwind | None = None

    # -- names

    def draw(
        self,
        kind: StepKind,
        name: str,
        key: str | None,
        function: Callable[..., Any] | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Call:
        """Gives a call its name. This happens when the step is called, and not when it is awaited, so that steps that
        run side by side have the same names in each run."""
        digest = None if function is None else compute_digest(args, kwargs or {})
        self._number += 1
        return Call(self.draw_name(name, key), kind, self._number, 1, digest, function, args, kwargs)

    def draw_name(self, name: str, key: str | None) -> str:
        _check_name(name, key)
        base = name if key is None else f"{name}[{key}]"
        self._called[base] += 1
        number = self._called[base]
        drawn = base if number == 1 else f"{base}#{number}"
        self._names.add(drawn)
        return drawn

    def derive_bytes(self, name: str) -> bytes:
        """Returns 16 bytes that are the same in each run, and differ from those of other jobs and names."""
        return blake2b(self.run.claimed.id + self.draw_name(name, None).encode(), digest_size=16).digest()

    # -- what a step does

    def run_step(self, call: Call) -> _Program:
        stored = self._begin(call)
        if stored is not None:
            return self._replay(call, stored)
        yield from self._store_failures(call)
        began = time.monotonic()
        assert call.function is not None
        with self._count_running():
            try:
                value = yield _Invoke(call)
            except (Decision, StepError):
                raise
            except Exception as error:
                raise self._note_failure(call, error, began) from error
            raw = encode_result(call.function, call.name, value, self.run.handler.max_result)
            yield from self._store(call, "done", began=began, result=raw)
        return decode_result(call.function, call.name, raw)

    def sleep(self, call: Call, delay: float | None, wake_at: int | None) -> _Program:
        stored = self._begin(call)
        if stored is not None and stored.state == "done":
            return None
        yield from self._store_failures(call)
        is_over = stored is not None and stored.remaining is not None and stored.remaining <= 0
        if is_over or (stored is None and delay == 0):
            yield from self._store(call, "done")
            return None
        if stored is None:
            yield from self._store(call, "waiting", delay=delay, wake_at=wake_at)
        yield _WaitForSteps()
        raise self.unwind("suspended", f"step {call.name} sleeps")

    def read_now(self, call: Call) -> _Program:
        stored = self._begin(call)
        if stored is not None:
            microseconds = orjson.loads(stored.result or b"0")
        else:
            yield from self._store_failures(call)
            microseconds = yield _ReadClock()
            yield from self._store(call, "done", result=orjson.dumps(microseconds))
        return _EPOCH_2000 + timedelta(microseconds=microseconds)

    def _begin(self, call: Call) -> StoredStep | None:
        """Returns what is stored of the step. Raises if it does not fit to this call, or if the run has to end."""
        self.check()
        stored = self._stored.get(call.name)
        if stored is not None:
            self._check_fit(call, stored)
        elif self._is_draining() or self.run.stopping is not None:
            raise self.unwind("released", "this node ends, or the handler was asked to stop")
        elif self._seq >= MOST_STEPS:
            raise StepError(
                f"The job has stored {self._seq:,} steps, which is the most that a job may have.",
                hint="Do more in each step, or give parts of the work to jobs of their own.",
            )
        return stored

    def check(self) -> None:
        """Raises again what made the handler end, because the handler has caught it and goes on."""
        if self.unwinding is not None:
            raise self.unwinding

    def _check_fit(self, call: Call, stored: StoredStep) -> None:
        if stored.kind != call.kind:
            what = f"as a step of another kind ({stored.kind}, not {call.kind})"
        elif None not in (stored.digest, call.digest) and stored.digest != call.digest:
            what = "with other arguments"
        else:
            return
        raise StepMismatch(
            f"Step {call.name} was stored by an earlier run {what}. Perhaps the code around it runs in another order. "
            "Nothing was run.",
            hint="Give the step a key or a name of its own: steps.using(key=...). Deploy the change and retry the job: "
            "it continues with this step.",
        )

    def _replay(self, call: Call, stored: StoredStep) -> Any:
        assert call.function is not None
        if stored.state == "failed":
            raise StepFailed(call.name, orjson.loads(stored.error or b"{}"), is_stored=True)
        return decode_result(call.function, call.name, stored.result)

    def _note_failure(self, call: Call, error: Exception, began: float) -> StepFailed:
        described = describe_error(error, "retryable")
        step = self._make_step(call, "failed", began=began, error=orjson.dumps(described))
        self._failures.append(_Failure(step, self._number))
        return StepFailed(call.name, described, is_stored=False)

    def _store_failures(self, call: Call) -> Generator[_Request, Any, None]:
        """Stores the failures that were raised before this step was called: the handler has caught them and goes on, so
        each later run must go the same way."""
        for failure in [each for each in self._failures if each.number < call.number and not each.is_stored]:
            yield from self._save(failure.step)
            failure.is_stored = True

    def _store(self, call: Call, state: str, **values: Any) -> Generator[_Request, Any, None]:
        yield from self._save(self._make_step(call, state, **values))

    def _save(self, step: NewStep) -> Generator[_Request, Any, None]:
        if not (yield _Save(step)):
            raise self.unwind("released", "another node has the job")

    def _make_step(self, call: Call, state: str, **values: Any) -> NewStep:
        self._seq += 1
        return NewStep(self.run.claimed, call.name, call.kind, state, self._seq, call.digest, call.version, **values)

    def unwind(self, outcome: Any, why: str) -> Unwind:
        self.check()
        self.unwinding = Unwind(outcome, why)
        return self.unwinding

    @contextmanager
    def _count_running(self) -> Iterator[None]:
        self._running += 1
        self.is_quiet.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self.is_quiet.set()

    @contextmanager
    def mark_current(self, call: Call) -> Iterator[None]:
        token = _current.set(CurrentStep(call.name, f"{self.run.id}:{call.name}"))
        try:
            yield
        finally:
            _current.reset(token)

    # -- the end of the run

    def check_return(self) -> None:
        """Called when the handler has returned."""
        if self.unwinding is not None:
            raise SuspensionSwallowed(
                f"The handler has returned although it had to end earlier: {self.unwinding}.",
                hint="A bare `except:`, `except BaseException:` or `return` in a `finally` has swallowed that. Use "
                "`except Exception:`.",
            )
        unused = self._stored.keys() - self._names
        if unused:
            logger.info(
                "Job %s (%s) has ended without calling these steps, which an earlier run has stored: %s",
                self.run.id, self.run.type, ", ".join(sorted(unused)),
            )  # fmt: skip

    def find_cause(self, error: BaseException) -> BaseException:
        """Returns the Unwind in place of an exception group that has nothing else: asyncio.TaskGroup raises such."""
        if self.unwinding is not None and isinstance(error, BaseExceptionGroup):
            _, others = error.split(lambda each: isinstance(each, Unwind | asyncio.CancelledError))
            if others is None:
                return self.unwinding
        return error


def _check_name(name: str, key: str | None) -> None:
    for what, text in (("name", name), ("key", key)):
        if text is None:
            continue
        if type(text) is not str or not (1 <= len(text) <= LONGEST_NAME and text.isprintable()):
            raise ValueError(
                f"steps.using({what}={text!r}) is invalid: give a text of 1 to {LONGEST_NAME} printable characters"
            )
    if set(name) & set("[]#/"):
        raise ValueError(f"steps.using(name={name!r}) is invalid: a name has none of the characters [ ] # /")


def _find_function_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "<lambda>")
    if name == "<lambda>":
        raise TypeError("a step needs a function with a name: write a def, or steps.using(name=...).run(...)")
    return str(name)


def _read_instant(instant: datetime) -> int:
    if instant.tzinfo is None:
        raise ValueError(f"steps.sleep_until({instant!r}) is invalid: give a time with a zone")
    return (instant - _EPOCH_2000) // timedelta(microseconds=1)


# -- what a handler gets


@dataclass(frozen=True, slots=True)
class _Options:
    name: str | None = None
    key: str | None = None


class _AnySteps:
    """What `Steps` and `AsyncSteps` have in common."""

    def __init__(self, session: Session) -> None:
        self._session, self._options = session, _Options()

    def using(self, *, name: str | None = None, key: str | None = None) -> Self:
        """The same steps with options for one of them. `name` replaces the name of the function. `key` tells steps of
        the same name apart: use it in a loop over data, so that neither the order nor the number of items matters."""
        other = copy.copy(self)
        other._options = replace(self._options, name=name, key=key)  # noqa: SLF001
        return other

    def uuid(self) -> UUID:
        """An id that is the same in each run. Nothing is stored."""
        return UUID(bytes=self._session.derive_bytes("uuid"), version=4)

    def random(self) -> random.Random:
        """Random numbers that are the same in each run. Nothing is stored."""
        return random.Random(self._session.derive_bytes("random"))  # noqa: S311

    def _draw_run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        name = self._options.name or _find_function_name(function)
        return self._session.draw("run", name, self._options.key, function, args, kwargs)

    def _draw(self, kind: StepKind, name: str) -> Call:
        return self._session.draw(kind, self._options.name or name, self._options.key)


class AsyncSteps(_AnySteps):
    """The first parameter of an `async def` task whose work is stored step by step."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._task = asyncio.current_task()

    @overload
    def run(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Calls the function and stores its result; returns the stored result if an earlier run has stored one. A `def`
        runs in a thread."""
        return self._carry_out(self._session.run_step(self._draw_run(function, args, kwargs)))

    async def sleep(self, delay: Duration) -> None:
        """Sleeps so long. The job leaves the worker, and costs nothing meanwhile."""
        self._check_task()
        await self._carry_out(self._session.sleep(self._draw("sleep", "sleep"), delay_seconds(delay), None))

    async def sleep_until(self, instant: datetime) -> None:
        """Sleeps until this time, which must have a zone."""
        self._check_task()
        await self._carry_out(self._session.sleep(self._draw("sleep", "sleep"), None, _read_instant(instant)))

    async def now(self) -> datetime:
        """The time of the database in the first run that comes here; later runs get the same time."""
        return await self._carry_out(self._session.read_now(self._draw("value", "now")))  # type: ignore[no-any-return]

    def _check_task(self) -> None:
        self._session.check()
        if asyncio.current_task() is not self._task:
            raise WaitOutsideHandler(
                "A sleep was called in an asyncio task of its own, which the handler would leave behind.",
                hint="Await it in the handler itself.",
            )

    async def _carry_out(self, program: _Program) -> Any:
        session = self._session
        answer: Any = None
        problem: BaseException | None = None
        while True:
            try:
                request = program.send(answer) if problem is None else program.throw(problem)
            except StopIteration as stop:
                return stop.value
            answer = problem = None
            try:
                match request:
                    case _Save(step):
                        answer = await session.checkpointer.save(step)
                    case _Invoke(call):
                        with session.mark_current(call):
                            answer = await _call_function(call)
                    case _ReadClock():
                        answer = await session.checkpointer.read_clock()
                    case _WaitForSteps():
                        await session.is_quiet.wait()
            except BaseException as error:  # noqa: BLE001  (the program decides about it)
                problem = error


async def _call_function(call: Call) -> Any:
    if inspect.iscoroutinefunction(call.function):
        return await call.run_function()
    value = await asyncio.to_thread(call.run_function)
    return await value if inspect.isawaitable(value) else value


class Steps(_AnySteps):
    """The first parameter of a `def` task whose work is stored step by step."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(session)
        self._loop = loop

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function and stores its result; returns the stored result if an earlier run has stored one."""
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{function.__name__} is an async def, which a def cannot call: make the task an async def, and its "
                "first parameter an AsyncSteps"
            )
        return self._carry_out(self._session.run_step(self._draw_run(function, args, kwargs)))  # type: ignore[no-any-return]

    def sleep(self, delay: Duration) -> None:
        """Sleeps so long. The job leaves the worker, and costs nothing meanwhile."""
        self._carry_out(self._session.sleep(self._draw("sleep", "sleep"), delay_seconds(delay), None))

    def sleep_until(self, instant: datetime) -> None:
        """Sleeps until this time, which must have a zone."""
        self._carry_out(self._session.sleep(self._draw("sleep", "sleep"), None, _read_instant(instant)))

    def now(self) -> datetime:
        """The time of the database in the first run that comes here; later runs get the same time."""
        return self._carry_out(self._session.read_now(self._draw("value", "now")))  # type: ignore[no-any-return]

    def _carry_out(self, program: _Program) -> Any:
        session = self._session
        answer: Any = None
        problem: BaseException | None = None
        while True:
            try:
                request = program.send(answer) if problem is None else program.throw(problem)
            except StopIteration as stop:
                return stop.value
            answer = problem = None
            try:
                match request:
                    case _Save(step):
                        answer = self._wait(session.checkpointer.save(step))
                    case _Invoke(call):
                        with session.mark_current(call):
                            answer = call.run_function()
                    case _ReadClock():
                        answer = self._wait(session.checkpointer.read_clock())
                    case _WaitForSteps():
                        pass
            except BaseException as error:  # noqa: BLE001  (the program decides about it)
                problem = error

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class StepRunner:
    """Calls handlers that have steps."""

    def __init__(self, checkpointer: Checkpointer, is_draining: Callable[[], bool]) -> None:
        self._checkpointer, self._is_draining = checkpointer, is_draining
        self._loop = asyncio.get_running_loop()

    def call(self, run: Run, arguments: dict[str, Any]) -> Any:
        stored: list[StoredStep] = []
        if run.claimed.run > 1:
            stored = asyncio.run_coroutine_threadsafe(self._checkpointer.load(run.claimed), self._loop).result()
        session = self._make_session(run, stored)
        try:
            value = run.handler.function(Steps(session, self._loop), **arguments)
        except BaseException as error:
            _raise_cause(session, error)
            raise
        session.check_return()
        return value

    async def acall(self, run: Run, arguments: dict[str, Any]) -> Any:
        stored = await self._checkpointer.load(run.claimed) if run.claimed.run > 1 else []
        session = self._make_session(run, stored)
        try:
            value = await run.handler.function(AsyncSteps(session), **arguments)
        except BaseException as error:
            _raise_cause(session, error)
            raise
        session.check_return()
        return value

    def _make_session(self, run: Run, stored: list[StoredStep]) -> Session:
        return Session(run, stored, self._checkpointer, self._is_draining)

    async def close(self) -> None:
        await self._checkpointer.close()


def _raise_cause(session: Session, error: BaseException) -> None:
    cause = session.find_cause(error)
    if cause is not error:
        raise cause from error


def is_steps(annotation: object) -> bool:
    """Whether this type, of a task's first parameter, stands for steps."""
    return isinstance(annotation, type) and issubclass(annotation, _AnySteps)
