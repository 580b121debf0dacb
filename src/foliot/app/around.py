"""What runs around a handler and around an enqueue, and the context that travels with a job.

`@app.around_run` takes a generator function of the job: what stands before its `yield` runs before the handler, what
stands after it afterwards; it may catch what the handler raised. It runs wherever the handler does: on the loop, in
its thread, in its child process. `@app.around_enqueue` takes a generator function of the new job, which yields the
job to be sent, perhaps another one, and gets the answer back. The first one registered is the outermost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any

import orjson

from foliot.errors import FoliotError
from foliot.model.job import Enqueued, NewJob
from foliot.worker.handlers import Kind
from foliot.worker.run import Run, current_job

AroundRun = Callable[[Run], Generator[None, None, None]]
AroundEnqueue = Callable[[NewJob], Generator[NewJob, Enqueued, None]]


class NotSendable(FoliotError):
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

    def sending(self, job: NewJob) -> tuple[NewJob, list[Generator[NewJob, Enqueued, None]]]:
        """The job as it is to be sent, and whom to tell the answer."""
        if self._propagate:
            job = self._with_context(job)
        entered = []
        for each in self.enqueues:
            generator = each(job)
            job = next(generator)
            entered.append(generator)
        return job, entered

    def sent(self, entered: list[Generator[NewJob, Enqueued, None]], answer: Enqueued) -> None:
        for generator in reversed(entered):
            with contextlib.suppress(StopIteration):
                generator.send(answer)

    def _with_context(self, job: NewJob) -> NewJob:
        found = {name: value for name, variable in self._propagate.items() if (value := variable.get(None)) is not None}
        if not found:
            return job
        meta = orjson.loads(job.meta) if job.meta else {}
        try:
            return job._replace(meta=orjson.dumps(meta | {"context": found}))
        except TypeError as error:
            raise NotSendable(
                f"A propagated context variable of {job.type} cannot be stored as JSON: {error}.",
                hint=f"These travel with a job: {', '.join(self._propagate)}.",
            ) from None
