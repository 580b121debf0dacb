"""Drives a plan over a connection: blocking or asyncio, the same few lines twice."""

from __future__ import annotations

from typing import TypeVar

import psycopg
from psycopg.pq.abc import PGresult

from watchbill.client.plans import Copy, Plan, Rows, Statement
from watchbill.postgres.connect import AsyncConnection, Connection
from watchbill.store.queries import Queries
from watchbill.store.refusals import translate

R = TypeVar("R")
_MANY = 100  # rows that a kept cursor would keep too


def run(plan: Plan[R], connection: Connection, queries: Queries) -> R:
    try:
        step = next(plan)
        while True:
            step = plan.send(_carry_out(step, connection, queries))
    except StopIteration as end:
        result: R = end.value
        return result
    except psycopg.Error as error:
        raise translate(error, queries.schema) from error


def _carry_out(step: Statement | Copy, connection: Connection, queries: Queries) -> Rows:
    cursor = connection.kept_cursor
    if isinstance(step, Copy):
        with cursor.copy(queries[step.query].encode()) as copy:
            copy.write(b"".join(step.rows))
        return []
    cursor.execute(queries[step.query].encode(), step.params)
    rows = cursor.fetchall() if _has_rows(cursor.pgresult) else []
    if len(rows) > _MANY:
        del connection.kept_cursor
    return rows


def _has_rows(result: PGresult | None) -> bool:
    """As the cursor's `description` tells, which would build one in full for every enqueue."""
    return result is not None and result.nfields > 0


async def arun(plan: Plan[R], connection: AsyncConnection, queries: Queries) -> R:
    try:
        step = next(plan)
        while True:
            step = plan.send(await _acarry_out(step, connection, queries))
    except StopIteration as end:
        result: R = end.value
        return result
    except psycopg.Error as error:
        raise translate(error, queries.schema) from error


async def _acarry_out(step: Statement | Copy, connection: AsyncConnection, queries: Queries) -> Rows:
    cursor = connection.kept_cursor
    if isinstance(step, Copy):
        async with cursor.copy(queries[step.query].encode()) as copy:
            await copy.write(b"".join(step.rows))
        return []
    await cursor.execute(queries[step.query].encode(), step.params)
    rows = await cursor.fetchall() if _has_rows(cursor.pgresult) else []
    if len(rows) > _MANY:
        del connection.kept_cursor
    return rows
