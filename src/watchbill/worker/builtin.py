"""Handlers that every worker has, whatever its app: for SQL commands, chains and groups of schedules.

`watchbill.sql` runs a SQL command in a transaction that also completes its job, so its effects happen exactly once. A
command that cannot run in a transaction (VACUUM, CREATE INDEX CONCURRENTLY) runs outside of it, at least once, and one
at a time in each process, because it needs a second connection. The role
is a convenience, not a security boundary: the command could change it again. What a command sets in its session does
not reach the next job: the session is reset, and its connection is closed. Only a command of a schedule runs: a role
that may only write jobs cannot run SQL here.

A slot that starts a chain or a group makes two jobs. `watchbill.flow` enqueues all jobs of the flow in the transaction
of its own completion, so each slot starts them exactly once, and passes the slot on to `watchbill.flow_end`, which
waits for their end. So the slot ends when they have ended, and as they did: overlap, deadline and history mean the
whole flow.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import psycopg

from watchbill.model.decisions import Permanent
from watchbill.model.dependency_graph import EarlierJob
from watchbill.model.ids import new_id
from watchbill.model.schedule import FLOW, FLOW_END
from watchbill.postgres.connect import AsyncConnection
from watchbill.store.queries import queries
from watchbill.worker.handlers import BadPayload, Handler, NotStarted
from watchbill.worker.run import LOCK_TIMEOUT, current_job

SQL_COMMAND = "watchbill.sql"
BUILTIN_TYPES = (SQL_COMMAND, FLOW, FLOW_END)
NO_COMMAND = (
    "no schedule has made this job, or the schedule is removed or has no command now: to run a SQL command, write a"
    " schedule"
)
MAX_RESULT_ROWS = 20  # rows of a command's answer that are kept as the job's result
SERVER_TIMEOUT_MARGIN_SECONDS = 1.0  # the server's time-out comes this much after ours; it counts if this node dies

_SET_ROLE_AND_TIMEOUT = """
  SELECT set_config('role', coalesce(%s, current_setting('role')), false), set_config('statement_timeout', %s, false)"""
# Does what DISCARD ALL does, which PostgreSQL refuses inside a transaction. SET CONSTRAINTS comes first, so that
# deferred triggers run as a part of the command.
_RESET_SESSION = """
  SET CONSTRAINTS ALL IMMEDIATE; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; UNLISTEN *;
  SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"""
_LIMIT_LOCK_WAITS = "SELECT set_config('lock_timeout', %s, true)"
_LIMIT_IDLE_TIME = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"


def make_builtin_handlers(url: str, schema: str) -> dict[str, Handler]:
    """Makes the handlers that every worker has. `url` should be a direct address, not that of a pooler, because it is
    used for commands that cannot run in a transaction."""
    run_command = partial(_run_command, url, schema, asyncio.Lock())

    def make_handler(type: str, function: Any, decode: Any) -> Handler:
        return Handler(
            type=type,
            function=function,
            kind="async",
            version=1,
            decode=decode,
            encode_result=partial(orjson.dumps, default=str),
            schema=schema,
            transactional=True,
            closes_connection=type == SQL_COMMAND,
        )

    return {
        SQL_COMMAND: make_handler(SQL_COMMAND, run_command, lambda payload, version: {}),
        FLOW: make_handler(FLOW, partial(_start_flow, schema), partial(_decode_flow, FLOW, "jobs")),
        FLOW_END: make_handler(FLOW_END, partial(_end_flow, schema), partial(_decode_flow, FLOW_END, "ends")),
    }


# -- handler of `watchbill.sql`: SQL commands of schedules


async def _run_command(
    url: str,
    schema: str,
    outside_transactions: asyncio.Lock,
    connection: psycopg.AsyncConnection[Any],
) -> dict[str, Any]:
    """Runs the SQL command that the job's schedule has now, whatever the payload says. Leaves the session as it was,
    because behind a pooler other programs use the session next."""
    job = current_job()
    limit = "0" if job.timeout is None else f"{int((job.timeout + SERVER_TIMEOUT_MARGIN_SECONDS) * 1000)}ms"
    begin = queries(schema)["begin_command"].encode()
    try:
        async with connection.transaction():  # a savepoint; rolled back if the command cannot run in a transaction
            cursor = await connection.execute(begin, (limit, job.id))
            rows = await cursor.fetchall()
            if not rows:
                raise Permanent(NO_COMMAND)
            ((command, role, idle_limit, *_),) = rows
            answer = await _execute_command(connection, command)
            await _reset_session(connection, idle_limit)
            return answer
    except psycopg.errors.ActiveSqlTransaction:
        await _reset_session(connection, idle_limit)
        async with outside_transactions:
            return await _run_outside_transaction(url, command, role, limit)
    except (psycopg.errors.NoActiveSqlTransaction, psycopg.errors.InvalidSavepointSpecification) as error:
        # What the command did before its COMMIT is stored, so the command must not run again.
        raise Permanent("the command ended the transaction that it runs in: leave COMMIT and ROLLBACK out") from error


async def _reset_session(connection: psycopg.AsyncConnection[Any], idle_limit: str) -> None:
    await connection.execute(_RESET_SESSION.encode(), prepare=False)
    await connection.execute(_LIMIT_IDLE_TIME, (idle_limit,))


async def _run_outside_transaction(url: str, command: str, role: str | None, limit: str) -> dict[str, Any]:
    async with await AsyncConnection.connect(url, autocommit=True, application_name="watchbill command") as connection:
        if not connection.is_pooled:
            await connection.execute(_SET_ROLE_AND_TIMEOUT, (role, limit))
        elif role is not None:
            raise Permanent("a pooler cannot run this command as another role: set listen_url to a direct address")
        return await _execute_command(connection, command)


async def _execute_command(connection: psycopg.AsyncConnection[Any], command: str) -> dict[str, Any]:
    """Sends the command as bytes, and not as a prepared statement: psycopg then leaves it unchanged, also if it has a %
    or several statements."""
    cursor = await connection.execute(command.encode(), prepare=False)
    while cursor.nextset():
        pass
    answer: dict[str, Any] = {"status": cursor.statusmessage}
    if cursor.description:
        answer["rows"] = [list(row) for row in await cursor.fetchmany(MAX_RESULT_ROWS)]
    return answer


# -- handlers of `watchbill.flow` and `watchbill.flow_end`: chains and groups of schedules


def _decode_flow(type: str, needs: str, payload: bytes, version: int) -> dict[str, Any]:
    given = orjson.loads(payload)
    if not isinstance(given.get(needs), list):
        raise BadPayload(f"{type}: the payload has no {needs}")
    return dict(given)


async def _start_flow(
    schema: str, connection: psycopg.AsyncConnection[Any], jobs: list[dict[str, Any]], ends: list[int]
) -> dict[str, Any]:
    """Enqueues the jobs of a scheduled flow. Each job gets the metadata of the job that runs this handler: the name of
    the schedule and the slot. `ends` are the indexes of the last jobs of the flow. If another transaction keeps the
    schedule locked, the flow starts later: a handler that waited would keep its connection from other jobs."""
    try:
        await connection.execute(_LIMIT_LOCK_WAITS, (LOCK_TIMEOUT,))
        return await _add_flow_jobs(schema, connection, jobs, ends)
    except psycopg.errors.LockNotAvailable as error:
        raise NotStarted("another transaction keeps the schedule of this flow locked") from error


async def _add_flow_jobs(
    schema: str, connection: psycopg.AsyncConnection[Any], jobs: list[dict[str, Any]], ends: list[int]
) -> dict[str, Any]:
    own, ids = current_job(), [str(new_id()) for _ in jobs]
    for job_id, job in zip(ids, jobs, strict=True):
        parents = [ids[place] if isinstance(place, int) else place for place in job.get("depends_on", ())]
        job |= {"id": job_id, "tenant": own.tenant, "meta": {**own.meta, **(job.get("meta") or {})}}
        job |= {"depends_on": parents} if parents else {}
        if "results" in job:
            job["results"] = {
                name: [ids[one] if isinstance(one, int) else one for one in given]
                if isinstance(given, list)
                else ids[given]
                if isinstance(given, int)
                else given
                for name, given in job["results"].items()
            }
        if "expires_in" in job and own.meta.get("slot") is not None:
            job |= _count_expiry_from(own.meta["slot"], job.pop("expires_in"))
    new_jobs = orjson.dumps(jobs).decode()
    cursor = await connection.execute(queries(schema)["enqueue_many"].encode(), (new_jobs, False, True, False))
    ids = [str(row[0]) for row in await cursor.fetchall()]  # a unique job may have the id of an earlier job
    last_steps = [ids[place] for place in ends]
    cursor = await connection.execute(queries(schema)["add_flow_end"].encode(), (own.id, ids, last_steps))
    ((end,),) = await cursor.fetchall()
    return {"jobs": ids, "end": str(end)}


def _count_expiry_from(slot: str, expires_in: str) -> dict[str, str]:
    """When a job of a scheduled flow expires. A duration that was written in SQL counts from its enqueue."""
    number, _, unit = expires_in.partition(" ")
    if unit != "seconds":
        return {"expires_in": expires_in}
    return {"expires_at": (datetime.fromisoformat(slot) + timedelta(seconds=float(number))).isoformat()}


async def _end_flow(schema: str, connection: psycopg.AsyncConnection[Any], ends: list[str]) -> Any:
    """Returns the result of the flow's last job, or a list of results if the flow has several last jobs. Raises
    Permanent if one of these jobs failed, and names the job that was the cause."""
    cursor = await connection.execute(queries(schema)["ancestors"].encode(), (current_job().id, None, 1))
    jobs = {job.id: job for job in (EarlierJob(*row) for row in await cursor.fetchall())}
    last = [jobs[UUID(end)] for end in ends]
    if any(_has_failed(job) for job in last):
        first = min((job for job in jobs.values() if _has_failed(job)), key=lambda job: job.state != "dead")
        raise Permanent(f"{first.type} is {first.state}: {(first.error or {}).get('message', 'unknown reason')}")
    return last[0].result if len(last) == 1 else [job.result for job in last]


def _has_failed(job: EarlierJob) -> bool:
    return job.state in ("dead", "canceled")
