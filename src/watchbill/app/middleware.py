"""What runs around a handler and around an enqueue, and the context that travels with a job.

`@app.around_run` takes a generator function of the job: the part before its `yield` runs before the handler, the part
after it afterwards; it may catch what the handler raised. It runs where the handler does: on the event loop, in its
thread, or in its child process.

`@app.around_enqueue` takes a generator function of the new job. It yields the job to be sent, perhaps a changed one,
and is sent the answer, or the error if the enqueue failed. What it raises before its `yield` refuses the job. What it
raises after the answer is only logged, since the job is in the queue: a caller would take the error for a failed
enqueue and try again.

Of several, the first one registered is the outermost.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, Self

import orjson

from watchbill.app.json_round_trip import find_lost, find_unstorable
from watchbill.errors import WatchbillError
from watchbill.model.job import Enqueued, NewJob
from watchbill.worker.handlers import Kind
from watchbill.worker.run import Run, current_job

logger = logging.getLogger("watchbill")
AroundRun = Callable[[Run], Generator[None, None, None]]
_EnqueueGenerator = Generator[NewJob, Enqueued, None]
AroundEnqueue = Callable[[NewJob], _EnqueueGenerator]


class NotSendable(WatchbillError):
    """The value of a propagated context variable cannot be stored with a job."""


class Middleware:
    """The middleware of one App, and the context variables that it propagates."""

    def __init__(self, propagate: Sequence[ContextVar[Any]]) -> None:
        self.propagated = {variable.name: variable for variable in propagate}
        if len(self.propagated) < len(propagate):
            raise ValueError("two propagated context variables have the same name")
        self.runs: list[AroundRun] = []
        self.enqueues: list[AroundEnqueue] = []

    # -- Middleware wraps the run of a job.

    def wrap(self, function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
        """Wraps a handler in the middleware; returns the function itself if there is none."""
        if not self.runs and not self.propagated:
            return function
        if kind == "async":

            @wraps(function)
            async def around(*args: Any, **kwargs: Any) -> Any:
                with self._enter_middleware(current_job()):
                    return await function(*args, **kwargs)

        else:

            @wraps(function)
            def around(*args: Any, **kwargs: Any) -> Any:
                with self._enter_middleware(current_job()):
                    return function(*args, **kwargs)

        return around

    @contextlib.contextmanager
    def _enter_middleware(self, run: Run) -> Iterator[None]:
        for name, value in (run.meta.get("context") or {}).items():
            if name in self.propagated:
                self.propagated[name].set(value)
        with contextlib.ExitStack() as stack:
            for each in self.runs:
                stack.enter_context(contextlib.contextmanager(each)(run))
            yield

    # -- Middleware wraps an enqueue.

    def prepare(self, job: NewJob, started: list[_EnqueueGenerator]) -> NewJob:
        """Returns the job to send, and adds each middleware that waits for the answer to `started`."""
        if self.propagated:
            job = self._add_context(job)
        for each in self.enqueues:
            generator = each(job)
            changed = next(generator, None)
            if not isinstance(changed, NewJob):
                name = getattr(each, "__qualname__", repr(each))
                raise TypeError(
                    f"@app.around_enqueue: {name} yields {changed!r}; it must yield the job that is to be sent"
                )
            job = changed
            started.append(generator)
        return job

    def _add_context(self, job: NewJob) -> NewJob:
        found = {name: value for name, variable in self.propagated.items() if (value := variable.get(None)) is not None}
        if not found:
            return job
        meta = orjson.loads(job.meta) if job.meta else {}
        try:
            raw = orjson.dumps(found)
        except TypeError as error:
            raise self._make_not_sendable_error(job, str(error)) from None
        for where, what in (*find_unstorable(found, ""), *find_lost(found, orjson.loads(raw), "")):
            raise self._make_not_sendable_error(job, f"{where}: {what}")
        return job._replace(meta=orjson.dumps(meta | {"context": orjson.Fragment(raw)}))

    def _make_not_sendable_error(self, job: NewJob, why: str) -> NotSendable:
        return NotSendable(
            f"A propagated context variable of {job.type} cannot be stored as JSON: {why}.",
            hint=f"These travel with a job: {', '.join(self.propagated)}. Their values must be JSON, such as text.",
        )


def refuse_unless_generator(function: Any, where: str, *, is_async: bool = False) -> None:
    """Raises TypeError at registration; later, the mistake would fail every job."""
    right = inspect.isasyncgenfunction(function) if is_async else inspect.isgeneratorfunction(function)
    if not right:
        name = getattr(function, "__qualname__", repr(function))
        what = "an `async def` that yields once" if is_async else "a plain `def` that yields once"
        raise TypeError(f"{where} takes {what}, which {name} is not")


class Sending:
    """Jobs inside the middleware of their enqueue: `jobs` is what to send; report the answers with `report_answers`."""

    __slots__ = ("_middleware", "_started", "jobs")

    def __init__(self, middleware: Middleware, jobs: Sequence[NewJob]) -> None:
        self._middleware, self.jobs = middleware, jobs
        self._started: list[list[_EnqueueGenerator]] = []  # for each job, the innermost last

    def __enter__(self) -> Self:
        try:
            self.jobs = [self._prepare(job) for job in self.jobs]
        except BaseException as error:
            self._fail(error)
            raise
        return self

    def _prepare(self, job: NewJob) -> NewJob:
        self._started.append([])
        return self._middleware.prepare(job, self._started[-1])

    def report_answers(self, answers: Sequence[Enqueued]) -> None:
        for started, answer in zip(self._started, answers, strict=True):
            while started:
                _send_answer(started.pop(), answer)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Throws the error into each generator, which may raise another one instead but cannot undo the failure."""
        thrown = error
        for started in self._started:
            while started:
                try:
                    started.pop().throw(thrown)
                except StopIteration:
                    continue
                except BaseException as raised:  # noqa: BLE001
                    thrown = raised
        if thrown is not error:
            raise thrown


def _send_answer(generator: _EnqueueGenerator, answer: Enqueued) -> None:
    try:
        generator.send(answer)
    except StopIteration:
        return
    except Exception:
        logger.exception("An enqueue middleware failed after job %s was stored; the job stays in the queue", answer.id)
    else:
        name = getattr(generator, "__qualname__", repr(generator))
        logger.error("@app.around_enqueue: %s yields twice for job %s; it must yield once", name, answer.id)
        generator.close()
