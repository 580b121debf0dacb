"""Drives a plan over a caller's own connection, in his colour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from watchbill.client.foreign.drivers import driver_of
from watchbill.client.plans import Plan
from watchbill.errors import SchemaError
from watchbill.store.queries import Queries
from watchbill.store.refusals import nowhere, refusal

R = TypeVar("R")
_NO_SCHEMA = ("3F000", "42P01")
_NO_FUNCTION = "42883"


def run(plan: Plan[R], connection: Any, queries: Queries, *, call: str) -> R:
    """`call` is what the caller wrote, so that an error can name its twin."""
    carry_out = driver_of(connection, call, asynchronous=False).carry_out
    try:
        step = next(plan)
        while True:
            step = plan.send(carry_out(connection, step, queries))
    except StopIteration as end:
        result: R = end.value
        return result
    except Exception as error:
        if ours := _translate(error, queries.schema):
            raise ours from error
        raise


async def arun(plan: Plan[R], connection: Any, queries: Queries, *, call: str) -> R:
    carry_out = driver_of(connection, call, asynchronous=True).carry_out
    try:
        step = next(plan)
        while True:
            step = plan.send(await carry_out(connection, step, queries))
    except StopIteration as end:
        result: R = end.value
        return result
    except Exception as error:
        if ours := _translate(error, queries.schema):
            raise ours from error
        raise


def _translate(error: Exception, schema: str) -> Exception | None:
    """Ours where the state machine said no or Watchbill is not there; None: the driver's own, the caller's business."""
    for each in _layers(error):
        state = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if state in _NO_SCHEMA:
            return nowhere(schema)
        if state == _NO_FUNCTION:
            return SchemaError(
                f"Schema {schema!r} is too old: {_said(each)[0]}.", hint="Run `watchbill db migrate` for this database."
            )
        if ours := refusal(state, *_said(each)):
            return ours
    return None


def _layers(error: BaseException) -> Iterator[BaseException]:
    """What the server said, as the driver put it, comes before what SQLAlchemy or Django wrapped around it."""
    inner = getattr(error, "orig", None) or error.__cause__
    if isinstance(inner, BaseException):
        yield from _layers(inner)
    yield error


def _said(error: BaseException) -> tuple[str, str | None]:
    """Message and hint: psycopg keeps them in `diag`, asyncpg on the error itself."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is not None:
        return diagnosis.message_primary or str(error), diagnosis.message_hint
    return getattr(error, "message", None) or str(error), getattr(error, "hint", None)
