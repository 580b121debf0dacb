"""Keys of jobs that Python has to fill in: those that a function computes, and those of payloads in a store.

All other formats, such as `"account:{account}"`, are sent as they are: SQL fills them in from the payload, so that
every producer gets the same key.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from watchbill.app.payload import InvalidPayload
from watchbill.model.job import NewJob
from watchbill.model.unique import FORMAT_PARTS


def _formats_of(job: NewJob) -> tuple[Any, ...]:
    return (job.ordered_by, job.route_by, job.unique_by, *(job.limit_keys or ()))


def compute_keys(job: NewJob, decode: Callable[[bytes], Mapping[str, Any]]) -> NewJob:
    """Replaces functions among the formats of a job by what they return."""
    if not any(callable(each) for each in _formats_of(job)):
        return job
    arguments = decode(job.payload)
    return _map_formats(job, lambda each: _escape(_call(each, arguments)) if callable(each) else each)


def render_keys(job: NewJob) -> NewJob:
    """Fills in the formats of a job whose payload SQL will not see, because it is in a payload store."""
    if not any(_formats_of(job)):
        return job
    payload: dict[str, Any] = orjson.loads(job.payload)
    return _map_formats(job, lambda each: _escape(_render(job, each, payload)))


def _map_formats(job: NewJob, change: Callable[[Any], str]) -> NewJob:
    return job._replace(
        limit_keys=None if job.limit_keys is None else tuple(map(change, job.limit_keys)),
        ordered_by=None if job.ordered_by is None else change(job.ordered_by),
        route_by=None if job.route_by is None else change(job.route_by),
        unique_by=None if job.unique_by is None else change(job.unique_by),
    )


def _call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Calls the function with those arguments of the job that it takes."""
    taken = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in taken):
        return str(function(**arguments))
    return str(function(**{each.name: arguments[each.name] for each in taken if each.name in arguments}))


def _render(job: NewJob, format: str, payload: Mapping[str, Any]) -> str:
    def part(found: re.Match[str]) -> str:
        text, name = found[0], found[1]
        if name is None:
            return text[0] if text in ("{{", "}}") else text
        if name == "tenant":
            return job.tenant
        if name not in payload:
            raise InvalidPayload(f"{job.type}: {format!r} needs the parameter {name!r}, which the payload lacks.")
        value = payload[name]
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    return FORMAT_PARTS.sub(part, format)


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
