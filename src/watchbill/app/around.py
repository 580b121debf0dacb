"""What runs around a handler and around an enqueue, and the context that travels with a job.

`@app.around_run` takes a generator function of the job: what stands before its `yield` runs before the handler, what
stands after it afterwards; it may catch what the handler raised. It runs wherever the handler does: on the loop, in
its thread, in its child process. `@app.around_enqueue` takes a generator function of the new job, which yields the
job to be sent, perhaps another one, and gets the answer back, or has raised in it what went wrong. The first one
registered is the outermost. What it raises before its `yield` refuses the job; what it raises after the answer is
logged, since the job is in the queue: a caller would take it for a failed enqueue, and try again.
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

from watchbill.app.payload import unstorable
from watchbill.app.survival import lost
from watchbill.errors import WatchbillError
from watchbill.model.job import Enqueued, NewJob
from watchbill.worker.handlers import Kind
from watchbill.worker.run import Run, current_job

logger = logging.getLogger("watchbill")
AroundRun = Callable[[Run], Generator[None, None, None]]
_Entered = Generator[NewJob, Enqueued, None]
AroundEnqueue = Callable[[NewJob], _Entered]


class NotSendable(WatchbillError):
    """The value of a propagated context variable cannot be stored with a job."""


class Around:
    """The middleware of one App."""

    def __init__(self, propagate: Sequence[ContextVar[Any]]) -> None:
        self._propagate = {variable.name: variable for variable in propagate}
        if len(self._propagate) < len(propagate):
            raise ValueError("two propagated context variables have the same name")
        self.runs: list[AroundRun] = []
        self.enqueues: list[AroundEnqueue] = []

    # -- around a run

    def wrap(self, function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
        """The handler with everything around it; the bare one when there is nothing."""
        if not self.runs and not self._propagate:
            return function
        if kind == "async":

            @wraps(function)
            async def around(*args: Any, **kwargs: Any) -> Any:
                with self._entered(current_job()):
                    return await function(*args, **kwargs)

        else:

            @wraps(function)
            def around(*args: Any, **kwargs: Any) -> Any:
                with self._entered(current_job()):
                    return function(*args, **kwargs)

        return around

    @contextlib.contextmanager
    def _entered(self, run: Run) -> Iterator[None]:
        for name, value in (run.meta.get("context") or {}).items():
            if name in self._propagate:
                self._propagate[name].set(value)
        with contextlib.ExitStack() as stack:
            for each in self.runs:
                stack.enter_context(contextlib.contextmanager(each)(run))
            yield

    # -- around an enqueue

    def sending(self, jobs: list[NewJob]) -> Sending:
        return Sending(self, jobs)

    def prepare(self, job: NewJob, entered: list[_Entered]) -> NewJob:
        """The job as it is to be sent; those who hear of the answer are added to `entered`."""
        if self._propagate:
            job = self._with_context(job)
        for each in self.enqueues:
            generator = each(job)
            told = next(generator, None)
            if not isinstance(told, NewJob):
                name = getattr(each, "__qualname__", repr(each))
                raise TypeError(
                    f"@app.around_enqueue: {name} yields {told!r}; it must yield the job that is to be sent"
                )
            job = told
            entered.append(generator)
        return job

    @property
    def is_empty(self) -> bool:
        return not self.enqueues and not self._propagate

    def _with_context(self, job: NewJob) -> NewJob:
        found = {name: value for name, variable in self._propagate.items() if (value := variable.get(None)) is not None}
        if not found:
            return job
        meta = orjson.loads(job.meta) if job.meta else {}
        try:
            raw = orjson.dumps(found)
        except TypeError as error:
            raise self._not_sendable(job, str(error)) from None
        for where, what in (*unstorable(found, ""), *lost(found, orjson.loads(raw), "")):
            raise self._not_sendable(job, f"{where}: {what}")
        return job._replace(meta=orjson.dumps(meta | {"context": orjson.Fragment(raw)}))

    def _not_sendable(self, job: NewJob, why: str) -> NotSendable:
        return NotSendable(
            f"A propagated context variable of {job.type} cannot be stored as JSON: {why}.",
            hint=f"These travel with a job: {', '.join(self._propagate)}. Their values must be JSON, such as text.",
        )


def refuse_unless_generator(function: Any, where: str, *, of_loop: bool = False) -> None:
    """Where it is registered: in a worker it would fail every job."""
    right = inspect.isasyncgenfunction(function) if of_loop else inspect.isgeneratorfunction(function)
    if not right:
        name = getattr(function, "__qualname__", repr(function))
        what = "an `async def` that yields once" if of_loop else "a plain `def` that yields once"
        raise TypeError(f"{where} takes {what}, which {name} is not")


class Sending:
    """Jobs on their way to the database: `jobs` as they are to be sent; the answers are told with `sent`."""

    __slots__ = ("_around", "_entered", "jobs")

    def __init__(self, around: Around, jobs: list[NewJob]) -> None:
        self._around, self.jobs = around, jobs
        self._entered: list[list[_Entered]] = []

    def __enter__(self) -> Self:
        if not self._around.is_empty:
            try:
                self.jobs = [self._prepared(job) for job in self.jobs]
            except BaseException as error:
                self._fail(error)
                raise
        return self

    def _prepared(self, job: NewJob) -> NewJob:
        self._entered.append([])
        return self._around.prepare(job, self._entered[-1])

    def sent(self, answers: Sequence[Enqueued]) -> None:
        for entered, answer in zip(self._entered, answers, strict=False):  # none entered: nobody to tell
            while entered:
                _tell(entered.pop(), answer)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Each may raise something else instead; none can make a failure undone."""
        told = error
        for entered in self._entered:
            while entered:
                try:
                    entered.pop().throw(told)
                except StopIteration:
                    continue
                except BaseException as raised:  # noqa: BLE001
                    told = raised
        if told is not error:
            raise told


def _tell(generator: _Entered, answer: Enqueued) -> None:
    try:
        generator.send(answer)
    except StopIteration:
        return
    except Exception:
        logger.exception("Around the enqueue of job %s something failed afterwards; the job is in the queue", answer.id)
    else:
        name = getattr(generator, "__qualname__", repr(generator))
        logger.error("@app.around_enqueue: %s yields twice for job %s", name, answer.id)
        generator.close()
