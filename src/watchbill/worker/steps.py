"""Steps: a handler runs again from its start after each suspension and each failure, and a step whose result is stored
returns it at once, without running again.

`Session` (step_session.py) has the stored steps of one run, and decides what each call does. `Steps` and `AsyncSteps`
carry that out, one in the thread of a `def`, the other on the event loop. docs/explanation/steps.md describes the
design.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from watchbill.model.durations import Duration
from watchbill.model.retry import Retry, delay_seconds
from watchbill.model.steps import Signal, StepKind, WaitOutsideHandler
from watchbill.postgres.connect import AsyncConnection, Connection
from watchbill.worker.checkpoints import Checkpointer, NewStep, StoredStep
from watchbill.worker.run import Run
from watchbill.worker.step_calls import (
    Ask,
    Call,
    Invoke,
    InvokeInTransaction,
    Program,
    WaitForSteps,
    find_function_name,
    mark_current,
    read_instant,
)
from watchbill.worker.step_jobs import (
    AwaitedJob,
    BoundCall,
    aname_job,
    asend_calls,
    asend_one,
    describe_calls,
    name_job,
    prepare,
    run_jobs,
    send_calls,
    send_one,
)
from watchbill.worker.step_options import Step, StepOptions, check_timeout
from watchbill.worker.step_run import run_step
from watchbill.worker.step_session import Session
from watchbill.worker.step_transactions import Answer, StepTransactions, takes_connection
from watchbill.worker.step_values import compute_digest, encode_ask
from watchbill.worker.transactions import Transactions

P = ParamSpec("P")
R = TypeVar("R")


class _AnySteps:
    """What `Steps` and `AsyncSteps` have in common."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._given: dict[str, Any] = {}

    def using(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
        once: bool | None = None,
    ) -> Self:
        """The same steps with options for one of them. `name` replaces the name of the function. `key` tells steps of
        the same name apart: use it in a loop over data, so that neither the order nor the number of items matters.
        The others replace those of `@app.step`."""
        other = copy.copy(self)
        other._given = {"name": name, "key": key, "retry": retry, "timeout": timeout, "once": once}  # noqa: SLF001
        return other

    def uuid(self) -> UUID:
        """An id that is the same in each run. Nothing is stored."""
        return UUID(bytes=self._session.derive_bytes("uuid"), version=4)

    def random(self) -> random.Random:
        """Random numbers that are the same in each run. Nothing is stored."""
        return random.Random(self._session.derive_bytes("random"))  # noqa: S311

    def _draw_run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        step = function if isinstance(function, Step) else None
        options = (StepOptions() if step is None else step.options).change(**self._given)
        target = function if step is None else step.function
        check_timeout(target, options)
        call = self._session.draw("run", options.name or find_function_name(target), options)
        return replace(
            call,
            digest=compute_digest(args, kwargs),
            function=target,
            args=args,
            kwargs=kwargs,
            takes_connection=takes_connection(target),
            upgrades={} if step is None else step.upgrades,
        )

    def _draw_jobs(self, name: str, calls: Sequence[BoundCall[Any]], function: Any) -> Call:
        """The call of a step that enqueues these calls, and waits for their jobs."""
        call = self._draw("jobs", name)
        return prepare(call, function, calls, compute_digest(describe_calls(calls), {}))

    def _draw_job(self, job: AwaitedJob[Any], function: Any) -> Call:
        return prepare(
            self._draw("jobs", "result"), function, job.id, compute_digest((str(job.id),), {}), owns_jobs=False
        )

    def _draw_enqueue(self, call: BoundCall[Any], function: Any) -> Call:
        drawn = self._draw("run", "enqueue")
        return prepare(drawn, function, [call], compute_digest(describe_calls([call]), {}))

    def _receive(self, names: tuple[str, ...], ask: Any, timeout: Duration | None) -> Program:
        if not names:
            raise TypeError("steps.receive() needs the name of a signal")
        limit = None if timeout is None else delay_seconds(timeout)
        return self._session.receive(self._draw("signal", "receive"), names, encode_ask(ask), limit)

    def _draw(self, kind: StepKind, name: str) -> Call:
        options = StepOptions().change(**self._given)
        return self._session.draw(kind, options.name or name, options)


class AsyncSteps(_AnySteps):
    """The first parameter of an `async def` task whose work is stored step by step."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._task = asyncio.current_task()

    @overload
    def run(  # an async def is a def too
        self, function: Callable[Concatenate[AsyncConnection, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def run(
        self, function: Callable[Concatenate[Connection, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def run(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Calls the function and stores its result; returns the stored result if an earlier run has stored one. A `def`
        runs in a thread."""
        return self._carry_out(run_step(self._session, self._draw_run(function, args, kwargs)))

    async def sleep(self, delay: Duration) -> None:
        """Sleeps so long. The job leaves the worker, and costs nothing meanwhile."""
        self._check_task()
        await self._carry_out(self._session.sleep(self._draw("sleep", "sleep"), delay_seconds(delay), None))

    async def sleep_until(self, instant: datetime) -> None:
        """Sleeps until this time, which must have a zone."""
        self._check_task()
        await self._carry_out(self._session.sleep(self._draw("sleep", "sleep"), None, read_instant(instant)))

    async def receive(self, *names: str, ask: Any = None, timeout: Duration | None = None) -> Signal:  # noqa: ASYNC109
        """Waits for a signal of one of these names, and returns the oldest that no step has read. The job leaves the
        worker meanwhile. Raises SignalTimeout when the time is over. `ask` is shown to those who have to answer."""
        self._check_task()
        return await self._carry_out(self._receive(names, ask, timeout))  # type: ignore[no-any-return]

    async def call(self, call: BoundCall[R]) -> R:
        """Enqueues a job, and returns its result. This job leaves the worker until that one has ended; any node may
        run it. Raises StepFailed if it does not succeed."""
        self._check_task()
        (found,) = await self._carry_out(run_jobs(self._session, self._draw_jobs("call", [call], asend_calls)))
        return call.task.decode_result(found)  # type: ignore[no-any-return]

    async def call_many(self, calls: Iterable[BoundCall[R]]) -> list[R]:
        """Enqueues jobs, and returns their results, in the same order. This job leaves the worker until the last of
        them has ended. Raises StepFailed if one does not succeed."""
        self._check_task()
        calls = list(calls)
        if not calls:
            return []
        found = await self._carry_out(run_jobs(self._session, self._draw_jobs("call_many", calls, asend_calls)))
        return [call.task.decode_result(each) for call, each in zip(calls, found, strict=True)]

    async def result(self, job: AwaitedJob[R]) -> R:
        """Returns the result of a job that was enqueued before. This job leaves the worker until that one has ended."""
        self._check_task()
        (found,) = await self._carry_out(run_jobs(self._session, self._draw_job(job, aname_job)))
        return job.decode_result(found)

    async def enqueue(self, call: BoundCall[Any]) -> UUID:
        """Enqueues a job once, and returns its id, without waiting for it."""
        return await self._carry_out(run_step(self._session, self._draw_enqueue(call, asend_one)))  # type: ignore[no-any-return]

    async def now(self) -> datetime:
        """The time of the database in the first run that comes here; later runs get the same time."""
        return await self._carry_out(self._session.read_now(self._draw("value", "now")))  # type: ignore[no-any-return]

    def _check_task(self) -> None:
        self._session.check()
        if asyncio.current_task() is not self._task:
            raise WaitOutsideHandler(
                "A wait was called in an asyncio task of its own, which the handler would leave behind.",
                hint="Await it in the handler itself.",
            )

    async def _call_in_transaction(self, call: Call, step: NewStep) -> Answer:
        session = self._session
        if inspect.iscoroutinefunction(call.function):
            async with asyncio.timeout(call.options.timeout):
                return await session.transactions.acall(session.run, call, step)
        return await asyncio.to_thread(session.transactions.call, session.run, call, step)

    async def _carry_out(self, program: Program) -> Any:
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
                    case Ask(work):
                        answer = await work
                    case Invoke(call):
                        with mark_current(session.make_current_step(call)):
                            answer = await _call_function(call)
                    case InvokeInTransaction(call, step):
                        with mark_current(session.make_current_step(call)):
                            answer = await self._call_in_transaction(call, step)
                    case WaitForSteps():
                        await session.is_quiet.wait()
            except BaseException as error:  # noqa: BLE001  (the program decides about it)
                problem = error


async def _call_function(call: Call) -> Any:
    if inspect.iscoroutinefunction(call.function):
        async with asyncio.timeout(call.options.timeout):
            return await call.run_function()
    value = await asyncio.to_thread(call.run_function)
    return await value if inspect.isawaitable(value) else value


class Steps(_AnySteps):
    """The first parameter of a `def` task whose work is stored step by step."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(session)
        self._loop = loop

    @overload
    def run(self, function: Callable[Concatenate[Connection, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def run(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Calls the function and stores its result; returns the stored result if an earlier run has stored one."""
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{function.__name__} is an async def, which a def cannot call: make the task an async def, and its "
                "first parameter an AsyncSteps"
            )
        return self._carry_out(run_step(self._session, self._draw_run(function, args, kwargs)))  # type: ignore[no-any-return]

    def sleep(self, delay: Duration) -> None:
        """Sleeps so long. The job leaves the worker, and costs nothing meanwhile."""
        self._carry_out(self._session.sleep(self._draw("sleep", "sleep"), delay_seconds(delay), None))

    def sleep_until(self, instant: datetime) -> None:
        """Sleeps until this time, which must have a zone."""
        self._carry_out(self._session.sleep(self._draw("sleep", "sleep"), None, read_instant(instant)))

    def receive(self, *names: str, ask: Any = None, timeout: Duration | None = None) -> Signal:
        """Waits for a signal of one of these names, and returns the oldest that no step has read. The job leaves the
        worker meanwhile. Raises SignalTimeout when the time is over. `ask` is shown to those who have to answer."""
        return self._carry_out(self._receive(names, ask, timeout))  # type: ignore[no-any-return]

    def call(self, call: BoundCall[R]) -> R:
        """Enqueues a job, and returns its result. This job leaves the worker until that one has ended; any node may
        run it. Raises StepFailed if it does not succeed."""
        (found,) = self._carry_out(run_jobs(self._session, self._draw_jobs("call", [call], send_calls)))
        return call.task.decode_result(found)  # type: ignore[no-any-return]

    def call_many(self, calls: Iterable[BoundCall[R]]) -> list[R]:
        """Enqueues jobs, and returns their results, in the same order. This job leaves the worker until the last of
        them has ended. Raises StepFailed if one does not succeed."""
        calls = list(calls)
        if not calls:
            return []
        found = self._carry_out(run_jobs(self._session, self._draw_jobs("call_many", calls, send_calls)))
        return [call.task.decode_result(each) for call, each in zip(calls, found, strict=True)]

    def result(self, job: AwaitedJob[R]) -> R:
        """Returns the result of a job that was enqueued before. This job leaves the worker until that one has ended."""
        (found,) = self._carry_out(run_jobs(self._session, self._draw_job(job, name_job)))
        return job.decode_result(found)

    def enqueue(self, call: BoundCall[Any]) -> UUID:
        """Enqueues a job once, and returns its id, without waiting for it."""
        return self._carry_out(run_step(self._session, self._draw_enqueue(call, send_one)))  # type: ignore[no-any-return]

    def now(self) -> datetime:
        """The time of the database in the first run that comes here; later runs get the same time."""
        return self._carry_out(self._session.read_now(self._draw("value", "now")))  # type: ignore[no-any-return]

    def _carry_out(self, program: Program) -> Any:
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
                    case Ask(work):
                        answer = self._wait(work)
                    case Invoke(call):
                        with mark_current(session.make_current_step(call)):
                            answer = call.run_function()
                    case InvokeInTransaction(call, step):
                        with mark_current(session.make_current_step(call)):
                            answer = session.transactions.call(session.run, call, step)
                    case WaitForSteps():
                        pass
            except BaseException as error:  # noqa: BLE001  (the program decides about it)
                problem = error

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class StepRunner:
    """Calls handlers that have steps."""

    def __init__(self, checkpointer: Checkpointer, transactions: Transactions, is_draining: Callable[[], bool]) -> None:
        self._checkpointer, self._is_draining = checkpointer, is_draining
        self._transactions = StepTransactions(transactions)
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
        return Session(run, stored, self._checkpointer, self._transactions, self._is_draining)

    async def close(self) -> None:
        await self._checkpointer.close()


def _raise_cause(session: Session, error: BaseException) -> None:
    cause = session.find_cause(error)
    if cause is not error:
        raise cause from error


def is_steps(annotation: object) -> bool:
    """Whether this type, of a task's first parameter, stands for steps."""
    return isinstance(annotation, type) and issubclass(annotation, _AnySteps)
