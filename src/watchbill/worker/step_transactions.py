"""Transactional steps: the step's function gets a connection, and the commit of what it writes also stores its result.

So the function has its effects exactly once. If the node has lost the job meanwhile, or the step is stored already,
`save_step` refuses it and everything is rolled back.
"""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_type_hints
from uuid import UUID

import psycopg

from watchbill.store.queries import queries
from watchbill.worker.checkpoints import NewStep
from watchbill.worker.run import Run
from watchbill.worker.step_calls import Call
from watchbill.worker.step_values import encode_result
from watchbill.worker.transactions import Transactions, is_connection

_STALE_FENCE = "WB007"


@dataclass(frozen=True, slots=True)
class Answer:
    """How the transaction of a step has ended. Without `is_certain`, the database knows whether it is committed."""

    result: bytes | None = None
    is_refused: bool = False  # the job was taken from this node
    is_certain: bool = True
    error: Exception | None = None


class _StoredAlready(Exception):
    """The step is stored: by an earlier try, whose commit was not answered."""


class _Refused(Exception):
    """The job was taken from this node."""


class StepTransactions:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def call(self, run: Run, call: Call, step: NewStep) -> Answer:
        raw, is_saved = None, False
        try:
            with self._transactions.begin(run) as connection:
                value = call.run_function(connection)
                statement, raw = _make_statement(run, call, step, value)
                try:
                    row = connection.execute(*statement).fetchone()
                except psycopg.Error as error:
                    raise (_Refused() if error.sqlstate == _STALE_FENCE else error) from error
                _check_stored(row)
                is_saved = True
        except Exception as error:  # noqa: BLE001  (most are raised again)
            return _explain(error, is_saved=is_saved)
        return Answer(raw)

    async def acall(self, run: Run, call: Call, step: NewStep) -> Answer:
        raw, is_saved = None, False
        try:
            async with self._transactions.abegin(run) as connection:
                value = await call.run_function(connection)
                statement, raw = _make_statement(run, call, step, value)
                try:
                    row = await (await connection.execute(*statement)).fetchone()
                except psycopg.Error as error:
                    raise (_Refused() if error.sqlstate == _STALE_FENCE else error) from error
                _check_stored(row)
                is_saved = True
        except Exception as error:  # noqa: BLE001  (most are raised again)
            return _explain(error, is_saved=is_saved)
        return Answer(raw)


def _make_statement(
    run: Run, call: Call, step: NewStep, value: Any
) -> tuple[tuple[bytes, tuple[Any, ...]], bytes | None]:
    """The statement that stores the step, and its result as JSON. The value of a step that waits for jobs is their
    ids."""
    job_id, found = UUID(bytes=run.claimed.id), queries(run.handler.schema)
    if step.kind == "jobs":
        params = (job_id, run.fence, step.name, step.seq, value, call.owns_jobs, step.digest)
        return (found["await_jobs"].encode(), params), None
    raw = encode_result(call.target, call.name, value, run.handler.max_result)
    assert step.began is not None
    result, age = None if raw is None else raw.decode(), time.monotonic() - step.began
    values = (job_id, run.fence, step.name, result, step.seq, step.version, step.tries, step.digest, age, step.has_undo)
    return (found["save_step"].encode(), values), raw


def _check_stored(row: Any) -> None:
    if row is None or not next(iter(row.values() if isinstance(row, dict) else row)):
        raise _StoredAlready


def _explain(error: Exception, *, is_saved: bool) -> Answer:
    if isinstance(error, _Refused):
        return Answer(is_refused=True)
    if isinstance(error, _StoredAlready) or (is_saved and isinstance(error, psycopg.OperationalError)):
        return Answer(is_certain=False, error=error)
    raise error


@lru_cache(maxsize=1000)
def takes_connection(function: Any) -> bool:
    """Whether the first parameter of a step's function is annotated as a connection."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:  # a function that is not written in Python
        return False
    if first is None or first.annotation is first.empty:
        return False
    if isinstance(first.annotation, str) and "Connection" not in first.annotation:
        return False
    return is_connection(get_type_hints(inspect.unwrap(function)).get(first.name))
