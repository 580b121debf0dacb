"""Types of jobs that every worker handles, whatever its app: what schedules run beside tasks.

`foliot.flow` starts the jobs of a chain or group: they and its own completion are one transaction, so that each slot
starts them exactly once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import psycopg

from foliot.model.schedule import FLOW
from foliot.store.queries import queries
from foliot.worker import commands
from foliot.worker.handlers import BadPayload, Handler
from foliot.worker.run import current_job

OWN_TYPES = (commands.TYPE, FLOW)


def own_handlers(url: str, schema: str) -> dict[str, Handler]:
    starting = Handler(
        type=FLOW,
        function=partial(_start, schema),
        kind="async",
        version=1,
        decode=_decode,
        encode_result=orjson.dumps,
        schema=schema,
        transactional=True,
    )
    return {commands.TYPE: commands.command_handler(url, schema), FLOW: starting}


def _decode(payload: bytes, version: int) -> dict[str, Any]:
    jobs = orjson.loads(payload).get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise BadPayload(f"{FLOW}: the payload has no jobs")
    return {"jobs": jobs}


async def _start(
    schema: str, connection: psycopg.AsyncConnection[Any], jobs: list[dict[str, Any]]
) -> dict[str, list[str]]:
    """Each job knows of which schedule and slot it is."""
    own = current_job()
    for job in jobs:
        job["meta"] = {**own.meta, **(job.get("meta") or {})}
        job["tenant"] = own.tenant
    query = queries(schema)["enqueue_many"].encode()
    rows = await (await connection.execute(query, (orjson.dumps(jobs).decode(), False, False))).fetchall()
    return {"jobs": [str(row[0]) for row in rows]}
