"""Types of jobs that every worker handles, whatever its app: what schedules run beside tasks.

A slot that starts a chain or a group is two jobs of ours. `watchbill.flow` enqueues all of its jobs in the transaction of
its own completion, so each slot starts them exactly once, and hands the slot over to `watchbill.flow_end`, which waits for
their end. So the slot has ended when they have, and how they did: overlap, deadline and history mean the whole of it.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import orjson
import psycopg

from watchbill.model.family import EarlierJob
from watchbill.model.ids import new_id
from watchbill.model.schedule import FLOW, FLOW_END
from watchbill.model.signals import Permanent
from watchbill.store.queries import queries
from watchbill.worker import commands
from watchbill.worker.handlers import BadPayload, Handler
from watchbill.worker.run import current_job

OWN_TYPES = (commands.TYPE, FLOW, FLOW_END)


def own_handlers(url: str, schema: str) -> dict[str, Handler]:
    return {
        commands.TYPE: commands.command_handler(url, schema),
        FLOW: _handler(FLOW, _start, schema, "jobs"),
        FLOW_END: _handler(FLOW_END, _end, schema, "ends"),
    }


def _handler(type: str, function: Any, schema: str, needs: str) -> Handler:
    def decode(payload: bytes, version: int) -> dict[str, Any]:
        said = orjson.loads(payload)
        if not isinstance(said.get(needs), list):
            raise BadPayload(f"{type}: the payload has no {needs}")
        return dict(said)

    return Handler(
        type=type,
        function=partial(function, schema),
        kind="async",
        version=1,
        decode=decode,
        encode_result=orjson.dumps,
        schema=schema,
        transactional=True,
    )


async def _start(
    schema: str, connection: psycopg.AsyncConnection[Any], jobs: list[dict[str, Any]], ends: list[int]
) -> dict[str, list[str]]:
    """Each job knows of which schedule and slot it is."""
    own, ids = current_job(), [str(new_id()) for _ in jobs]
    for job_id, job in zip(ids, jobs, strict=True):
        parents = [ids[place] if isinstance(place, int) else place for place in job.get("depends_on", ())]
        job |= {"id": job_id, "tenant": own.tenant, "meta": {**own.meta, **(job.get("meta") or {})}}
        job |= {"depends_on": parents} if parents else {}
    last = {
        "id": str(new_id()),
        "type": FLOW_END,
        "payload": {"ends": [ids[place] for place in ends]},
        "queue": own.queue,
        "tenant": own.tenant,
        "meta": own.meta,
        "depends_on": ids,
        "run_if": "all_finished",
    }
    told = orjson.dumps([*jobs, last]).decode()
    await connection.execute(queries(schema)["enqueue_many"].encode(), (told, False, False))
    await connection.execute(queries(schema)["hand_over_slot"].encode(), (own.id, last["id"]))
    return {"jobs": ids}


async def _end(schema: str, connection: psycopg.AsyncConnection[Any], ends: list[str]) -> None:
    """As the steps at its end have ended; one that was canceled, because of the one that made it so."""
    cursor = await connection.execute(queries(schema)["earlier"].encode(), (current_job().id, None, 1))
    jobs = [EarlierJob(*row) for row in await cursor.fetchall()]
    failed, wanted = [job for job in jobs if job.state in ("dead", "canceled")], {UUID(end) for end in ends}
    if not any(job.id in wanted for job in failed):
        return
    first = min(failed, key=lambda job: job.state != "dead")
    raise Permanent(f"{first.type} is {first.state}: {(first.error or {}).get('message', 'nobody said why')}")
