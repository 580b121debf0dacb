"""Steps that enqueue other jobs, and that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

import orjson

from watchbill.model.steps import StepFailed
from watchbill.worker.step_calls import Ask, Call, InvokeInTransaction, Program

if TYPE_CHECKING:
    from watchbill.worker.step_session import Session

R_co = TypeVar("R_co", covariant=True)


class BoundCall(Protocol[R_co]):
    """A task with its arguments: `task.bind(...)`."""

    @property
    def task(self) -> Any: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def result(self) -> R_co: ...


class AwaitedJob(Protocol[R_co]):
    """A job that was enqueued before."""

    @property
    def id(self) -> UUID: ...
    def decode_result(self, value: Any) -> R_co: ...


def send_calls(connection: Any, calls: Sequence[BoundCall[Any]]) -> list[UUID]:
    return [job.id for job in calls[0].task.producer.send_many(calls, connection=connection)]


async def asend_calls(connection: Any, calls: Sequence[BoundCall[Any]]) -> list[UUID]:
    return [job.id for job in await calls[0].task.producer.asend_many(calls, connection=connection)]


def send_one(connection: Any, calls: Sequence[BoundCall[Any]]) -> UUID:
    return send_calls(connection, calls)[0]


async def asend_one(connection: Any, calls: Sequence[BoundCall[Any]]) -> UUID:
    return (await asend_calls(connection, calls))[0]


def name_job(connection: Any, job: UUID) -> list[UUID]:
    return [job]


async def aname_job(connection: Any, job: UUID) -> list[UUID]:
    return [job]


def describe_calls(calls: Sequence[BoundCall[Any]]) -> tuple[Any, ...]:
    """What the digest of the step compares: the types and payloads of the calls."""
    return tuple([call.task.type, call.payload.decode()] for call in calls)


def run_jobs(session: Session, call: Call) -> Program:
    """Enqueues jobs and waits for them, without a slot. Returns how each has ended."""
    stored = session.find(call)
    if stored is None:
        yield from session.store_pending(call)
        answer = yield InvokeInTransaction(call, session.make_step(call, "waiting"))
        if answer.is_refused:
            raise session.unwind("released", "another node has the job")
        if not answer.is_certain:
            found = yield Ask(session.checkpointer.load(session.run.claimed))
            if all(each.name != call.name for each in found):
                raise answer.error
        state, raw = "waiting", None
    elif stored.ended:
        state, raw = stored.state, stored.result
    else:
        seq = session.make_step(call, "waiting").seq
        state, raw = yield Ask(session.checkpointer.collect(session.run.claimed, call.name, seq))
    if state is None:
        raise session.unwind("released", "another node has the job")
    if state == "waiting":
        yield from session.leave(call, "waits for jobs")
    endings = orjson.loads(raw or b"[]")
    for ending in endings:
        _check_success(call, ending)
    return [ending["result"] for ending in endings]


def _check_success(call: Call, ending: dict[str, Any]) -> None:
    if ending["state"] == "succeeded":
        return
    error = ending["error"] or {"message": f"it is {ending['state']}"}
    message = f"job {ending['id']} is {ending['state']}: {error.get('message', 'unknown')}"
    raise StepFailed(call.name, {"type": "JobFailed"} | error | {"message": message}, is_stored=True)


def prepare(call: Call, function: Any, arguments: Any, digest: int | None, *, owns_jobs: bool = True) -> Call:
    """The call of a step whose function gets a connection and these arguments."""
    return replace(
        call, function=function, args=(arguments,), takes_connection=True, digest=digest, owns_jobs=owns_jobs
    )
