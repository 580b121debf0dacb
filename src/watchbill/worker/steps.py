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
from typing import Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from watchbill.model.durations import Duration
from watchbill.model.retry import Retry, delay_seconds
from watchbill.model.steps import Signal, StepKind, Unwind, WaitOutsideBranch
from watchbill.postgres.connect import AsyncConnection, Connection
from watchbill.worker.checkpoints import NewStep
from watchbill.worker.step_branches import Branch, Fork, current_branch
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
from watchbill.worker.step_transactions import Answer, takes_connection
from watchbill.worker.step_undo import run_undos
from watchbill.worker.step_values import compute_digest, encode_ask

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _AnySteps:
    """What `Steps` and `AsyncSteps` have in common."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._given: dict[str, Any] = {}

    @property
    def version(self) -> int:
        """The version of the task with which the job was enqueued: a handler that changes its steps can go the old way
        for older jobs."""
        return self._session.run.claimed.version

    def publish(self, **values: Any) -> None:
        """Shows values with the steps of the job, to those who look at it. They are stored before the next step; each
        name keeps its last value."""
        self._session.publish(values)

    @property
    def _prefix(self) -> str:
        """How the names of steps begin in the branch that goes on here."""
        return ""

    def using(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
        once: bool | None = None,
        undo: Callable[..., Any] | None = None,
    ) -> Self:
        """The same steps with options for one of them. `name` replaces the name of the function. `key` tells steps of
        the same name apart: use it in a loop over data, so that neither the order nor the number of items matters.
        The others replace those of `@app.step`."""
        other = copy.copy(self)
        given = {"name": name, "key": key, "retry": retry, "timeout": timeout, "once": once, "undo": undo}
        other._given = given  # noqa: SLF001
        return other

    def uuid(self) -> UUID:
        """An id that is the same in each run. Nothing is stored."""
        return UUID(bytes=self._session.derive_bytes("uuid", self._prefix), version=4)

    def random(self) -> random.Random:
        """Random numbers that are the same in each run. Nothing is stored."""
        return random.Random(self._session.derive_bytes("random", self._prefix))  # noqa: S311

    def _draw_run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        step = function if isinstance(function, Step) else None
        options = (StepOptions() if step is None else step.options).change(**self._given)
        target = function if step is None else step.function
        check_timeout(target, options)
        call = self._session.draw("run", options.name or find_function_name(target), options, self._prefix)
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

    def _draw_items(
        self, function: Callable[..., Any], items: Iterable[Any], key: Callable[[Any], str] | None
    ) -> list[Call]:
        """A call of the function for each item, with a key of its own."""
        calls = []
        for item in items:
            steps = copy.copy(self)
            steps._given = self._given if key is None else self._given | {"key": key(item)}  # noqa: SLF001
            calls.append(steps._draw_run(function, (item,), {}))  # noqa: SLF001
        return calls

    def _draw(self, kind: StepKind, name: str) -> Call:
        options = StepOptions().change(**self._given)
        if options.undo is not None:
            raise TypeError(f"steps.using(undo=...) belongs to steps.run(), not to {name}()")
        return self._session.draw(kind, options.name or name, options, self._prefix)


class AsyncSteps(_AnySteps):
    """The first parameter of an `async def` task whose work is stored step by step."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._handler = Branch(session)

    @property
    def _branch(self) -> Branch:
        found = current_branch.get(self._handler)
        return found if found.handler is self._session else self._handler

    @property
    def _prefix(self) -> str:
        return self._branch.prefix

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

    @overload
    async def map(
        self,
        function: Callable[[T], Awaitable[R]],
        items: Iterable[T],
        /,
        *,
        key: Callable[[T], str] | None = ...,
        at_once: int = ...,
    ) -> list[R]: ...
    @overload
    async def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        /,
        *,
        key: Callable[[T], str] | None = ...,
        at_once: int = ...,
    ) -> list[R]: ...
    async def map(
        self,
        function: Callable[[T], Any],
        items: Iterable[T],
        /,
        *,
        key: Callable[[T], str] | None = None,
        at_once: int = 10,
    ) -> list[Any]:
        """Runs the function as a step for each item, `at_once` of them side by side, and returns the results in the
        order of the items. Give a `key`, such as `str`, so that neither the order nor the number of items matters. If
        some fail, the others still run, and the failure of the first one is raised."""
        if at_once < 1:
            raise ValueError(f"steps.map(at_once={at_once!r}) is invalid: it must be at least 1")
        places = asyncio.Semaphore(at_once)

        async def run_one(call: Call) -> Any:
            async with places:
                return await self._carry_out(run_step(self._session, call))

        calls = self._draw_items(function, items, key)
        results = await asyncio.gather(*map(run_one, calls), return_exceptions=True)
        self._session.check()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def gather(self, *branches: Awaitable[Any]) -> list[Any]:
        """Runs coroutines side by side that may sleep and wait, and returns their results. The job leaves the worker
        when all of them wait. If one raises an error, it is raised here as soon as the others have ended or wait; those
        that wait are left."""
        branch = self._check_task()
        call = self._session.draw("value", "gather", StepOptions(), branch.prefix)
        fork = Fork(branch, call.name, branches)
        results = await fork.run()
        if fork.errors:
            raise self._session.choose_error(call, fork.errors, others_wait=fork.has_waiting_branch)
        return results

    async def restart(self, **arguments: Any) -> NoReturn:
        """Begins the job anew, with other arguments and without steps. It keeps its id and its unread signals. Use it
        in a loop without end."""
        if self._check_task() is not self._handler:
            raise WaitOutsideBranch(
                "steps.restart() was called in a branch of steps.gather().", hint="Call it in the handler itself."
            )
        await self._carry_out(self._session.restart(arguments))
        raise AssertionError("steps.restart() has returned")

    async def undo(self) -> None:
        """Undoes the steps of the job, and ends the run. The worker calls this."""
        assert self._session.undoing is not None
        await self._carry_out(run_undos(self._session, self._session.undoing))

    def _check_task(self) -> Branch:
        self._session.check()
        branch = self._branch
        if asyncio.current_task() is not branch.task:
            raise WaitOutsideBranch(
                "A wait was called in an asyncio task of its own, which the handler would leave behind.",
                hint="Await it in the handler itself, or run it with steps.gather().",
            )
        return branch

    async def _wait_to_leave(self) -> None:
        branch, session = self._branch, self._session
        if asyncio.current_task() is not branch.task:
            await session.is_quiet.wait()
            return
        branch.wait()
        try:
            await session.may_leave.wait()
        except asyncio.CancelledError:
            branch.resume()
            raise

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
                        await self._wait_to_leave()
            except BaseException as error:  # noqa: BLE001  (the program decides about it)
                problem = error


async def _call_function(call: Call) -> Any:
    if inspect.iscoroutinefunction(call.function):
        async with asyncio.timeout(call.options.timeout):
            return await call.run_function()
    value = await asyncio.to_thread(call.run_function)
    return await value if inspect.isawaitable(value) else value


class _Prefix:
    """How the names of steps begin now. `using` copies a Steps, and all copies share this."""

    prefix = ""


class Steps(_AnySteps):
    """The first parameter of a `def` task whose work is stored step by step."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(session)
        self._loop = loop
        self._branches = _Prefix()

    @property
    def _prefix(self) -> str:
        return self._branches.prefix

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

    def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        /,
        *,
        key: Callable[[T], str] | None = None,
        at_once: int = 1,
    ) -> list[R]:
        """Runs the function as a step for each item, and returns the results in the order of the items. A `def` runs
        them one after the other, whatever `at_once` says. Give a `key`, such as `str`, so that neither the order nor
        the number of items matters. If some fail, the others still run, and the failure of the first one is raised."""
        results: list[R] = []
        errors: list[Exception] = []
        for call in self._draw_items(function, items, key):
            try:
                results.append(self._carry_out(run_step(self._session, call)))
            except Exception as error:  # noqa: BLE001  (the first one is raised below)
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def gather(self, *branches: Callable[[], Any]) -> list[Any]:
        """Calls functions one after the other that may sleep and wait, and returns their results. One that waits does
        not keep the next one from being called. The job leaves the worker when all have been called and some wait."""
        session, outer = self._session, self._branches.prefix
        call = session.draw("value", "gather", StepOptions(), outer)
        results: list[Any] = []
        errors: dict[int, BaseException] = {}
        waiting: Unwind | None = None
        for place, branch in enumerate(branches):
            self._branches.prefix = f"{call.name}[{place}]/"
            try:
                results.append(branch())
                session.check()
            except Unwind as unwinding:
                waiting = session.forget_wait(unwinding)
            except Exception as error:  # noqa: BLE001  (raised below)
                errors[place] = error
            finally:
                self._branches.prefix = outer
        if errors:
            raise session.choose_error(call, errors, others_wait=waiting is not None)
        if waiting is not None:
            raise session.unwind("suspended", f"branches of {call.name} wait")
        return results

    def restart(self, **arguments: Any) -> NoReturn:
        """Begins the job anew, with other arguments and without steps. It keeps its id and its unread signals. Use it
        in a loop without end."""
        if self._prefix:
            raise WaitOutsideBranch(
                "steps.restart() was called in a branch of steps.gather().", hint="Call it in the handler itself."
            )
        self._carry_out(self._session.restart(arguments))
        raise AssertionError("steps.restart() has returned")

    def undo(self) -> None:
        """Undoes the steps of the job, and ends the run. The worker calls this."""
        assert self._session.undoing is not None
        self._carry_out(run_undos(self._session, self._session.undoing))

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
                        session.handler_waits = True
            except BaseException as error:  # noqa: BLE001  (the program decides about it)
                problem = error

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def is_steps(annotation: object) -> bool:
    """Whether this type, of a task's first parameter, stands for steps."""
    return isinstance(annotation, type) and issubclass(annotation, _AnySteps)
