"""Finds jobs by task and payload, and tells what there is when none fits."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import orjson

from watchbill.app.task import Task
from watchbill.client.plans import Plan, Statement
from watchbill.model.job import JobRecord
from watchbill.worker.handlers import BadPayload

AnyTask = Task[..., Any]
SHOWN = 20


def all_jobs() -> Plan[list[JobRecord]]:
    """Finished or not, in the order they were enqueued."""
    ((text,),) = yield Statement("jobs_as_text")
    found: list[JobRecord] = _reader().validate_json(text)
    return found


@cache
def _reader() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(list[JobRecord])


def of_type(jobs: Sequence[JobRecord], task: AnyTask | str | None) -> list[JobRecord]:
    if task is None:
        return list(jobs)
    names = {task} if isinstance(task, str) else {task.type, *task.aliases}
    return [job for job in jobs if job.type in names]


def matching(jobs: Sequence[JobRecord], task: AnyTask | str, payload: Mapping[str, Any]) -> list[JobRecord]:
    """Those whose payload has these values, whatever else it has."""
    if isinstance(task, Task):
        _refuse_unknown(task, payload)
    return [job for job in of_type(jobs, task) if _has(job, task, payload)]


def _refuse_unknown(task: AnyTask, payload: Mapping[str, Any]) -> None:
    """No job can have such an argument, so that an `assert_not_enqueued` would always hold."""
    parameters = list(inspect.signature(task.function).parameters.values())[int(task.transactional) :]
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    unknown = [name for name in payload if name not in names]
    if unknown and len(names) == len(parameters):
        raise TypeError(f"task {task.type} has no parameter {', '.join(unknown)}; it has {', '.join(names) or 'none'}")


def _has(job: JobRecord, task: AnyTask | str, wanted: Mapping[str, Any]) -> bool:
    """Each value as it is stored, or as the handler is given it."""
    stored = job.payload if isinstance(task, str) else task.whole_payload(job)
    unlike = {name: value for name, value in wanted.items() if name not in stored or stored[name] != _as_json(value)}
    if not unlike or isinstance(task, str):
        return not unlike
    try:
        arguments = task.handler().decode(orjson.dumps(stored), job.version)
    except BadPayload:
        return False
    return all(name in arguments and arguments[name] == value for name, value in unlike.items())


def _as_json(value: Any) -> Any:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return value


# -- in words


def missing(task: AnyTask | str, payload: Mapping[str, Any], jobs: Sequence[JobRecord], *, own: bool) -> str:
    where = "" if own else " (seen through the connection that was given)"
    lines = [f"No job {_call(task, payload)} was enqueued{where}."]
    lines += ["These were:", *_listed(jobs)] if jobs else ["Nothing was."]
    if own:
        lines.append("What an open transaction has enqueued is seen with connection= only.")
    return "\n".join(lines)


def unwanted(task: AnyTask | str, payload: Mapping[str, Any], found: Sequence[JobRecord]) -> str:
    return "\n".join([f"Job {_call(task, payload)} was enqueued:", *_listed(found)])


def uncommitted(jobs: Sequence[JobRecord]) -> str:
    return "\n".join(["The test's own transaction is open, and no worker sees what it has enqueued:", *_listed(jobs)])


def _call(task: AnyTask | str, payload: Mapping[str, Any]) -> str:
    name = task if isinstance(task, str) else task.type
    return f"{name}({_arguments(payload)})" if payload else name


def _listed(jobs: Sequence[JobRecord]) -> list[str]:
    lines = [f"  {job.type}({_arguments(job.payload)})  {job.state}" for job in jobs[:SHOWN]]
    return lines + ([f"  and {len(jobs) - SHOWN} more"] if len(jobs) > SHOWN else [])


def _arguments(payload: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in payload.items())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
