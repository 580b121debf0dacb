"""SQL commands of schedules: jobs of the type `watchbill.sql`, which every worker handles.

A command runs in a transaction that also completes its job, so its effects happen exactly once. What cannot run in a
transaction (VACUUM, CREATE INDEX CONCURRENTLY) runs outside of it, at least once. The role is a convenience, not a
boundary: the command could leave it again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import psycopg

from watchbill.model.signals import Permanent
from watchbill.postgres.connect import AsyncConnection
from watchbill.worker.handlers import BadPayload, Handler
from watchbill.worker.run import current_job

TYPE = "watchbill.sql"
MOST_ROWS = 20  # of what it answers, kept as the job's result
NET = 1.0  # seconds by which the server's own time-out comes after ours; for a node that died meanwhile

_ENTER = """SELECT current_setting('role'), set_config('role', coalesce(%s, current_setting('role')), true),
  set_config('statement_timeout', %s, true)"""
_LEAVE = "SELECT set_config('role', %s, true), set_config('statement_timeout', '0', true)"


def command_handler(url: str, schema: str) -> Handler:
    return Handler(
        type=TYPE,
        function=partial(_run, url),
        kind="async",
        version=1,
        decode=_decode,
        encode_result=partial(orjson.dumps, default=str),
        schema=schema,
        transactional=True,
    )


def _decode(payload: bytes, version: int) -> dict[str, Any]:
    said = orjson.loads(payload)
    if not isinstance(said, dict) or not isinstance(said.get("command"), str):
        raise BadPayload(f"{TYPE}: the payload has no command")
    return {"command": said["command"], "role": said.get("role")}


async def _run(url: str, connection: psycopg.AsyncConnection[Any], command: str, role: str | None) -> dict[str, Any]:
    timeout = current_job().timeout
    limit = "0" if timeout is None else f"{int((timeout + NET) * 1000)}ms"
    try:
        async with connection.transaction():  # a savepoint: what was tried in vain is taken back
            ((own_role, *_),) = await (await connection.execute(_ENTER, (role, limit))).fetchall()
            answer = await _execute(connection, command)
            await connection.execute(_LEAVE, (own_role,))
            return answer
    except psycopg.errors.ActiveSqlTransaction:
        return await _run_outside(url, command, role, limit)
    except (psycopg.errors.NoActiveSqlTransaction, psycopg.errors.InvalidSavepointSpecification) as error:
        # What it did until then is committed, so it must not be done again.
        raise Permanent("the command ended the transaction that it runs in: leave COMMIT and ROLLBACK out") from error


async def _run_outside(url: str, command: str, role: str | None, limit: str) -> dict[str, Any]:
    async with await AsyncConnection.connect(url, autocommit=True, application_name="watchbill command") as connection:
        enter = _ENTER.replace("true", "false")  # for the session, which ends with the command
        await connection.execute(enter.encode(), (role, limit))
        return await _execute(connection, command)


async def _execute(connection: psycopg.AsyncConnection[Any], command: str) -> dict[str, Any]:
    """As bytes and never prepared: psycopg then sends the text as it is, several statements and % included."""
    cursor = await connection.execute(command.encode(), prepare=False)
    while cursor.nextset():
        pass
    answer: dict[str, Any] = {"status": cursor.statusmessage}
    if cursor.description:
        answer["rows"] = [list(row) for row in await cursor.fetchmany(MOST_ROWS)]
    return answer
