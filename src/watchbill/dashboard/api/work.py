"""Workers over HTTP: they register, beat, claim, settle and leave with the same functions as others, and so with the
same fences. Only the key that has registered a node may use it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from pydantic import Field

from watchbill.app.json_round_trip import find_unstorable
from watchbill.client.operations import Operation, Statement
from watchbill.dashboard.api.call import Call, Reply
from watchbill.dashboard.api.shapes import Answer, Body, Instant, Name, Seconds, Wide, list_of, read_number
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.problems import Problem

MOST_WAIT_SECONDS = 20.0
MOST_CLAIMED = 1_000
MOST_SETTLED = 1_000
_BEATS_PER_LEASE = 3
_SHORTEST_PAUSE_SECONDS = 0.05

Json = dict[str, Any]


class NewNode(Body):
    """A worker. `types` are those of its tasks, each with the newest version of its payload that it knows."""

    name: Name
    lease: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = 30.0
    app: Name | None = None
    types: dict[str, Annotated[int, Field(ge=1, lt=2**31)]]
    queues: Annotated[list[Annotated[Name, Field(max_length=100)]], Field(min_length=1, max_length=1000)] = Field(
        default_factory=lambda: ["default"]
    )
    labels: dict[str, Any] = Field(default_factory=dict)
    capacity: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    instance: UUID | None = Field(None, description="Of this process: the same request again gets the same epoch.")
    take_over: bool = Field(
        False, description="Declare a living node of this name lost, if this key has registered it."
    )


class Node(Answer):
    """Send a heartbeat every `beat_every` seconds."""

    epoch: Wide
    lease: float
    beat_every: float


class Running(Body):
    id: UUID
    fence: Wide
    age: Seconds = 0.0
    progress: Json | None = None


class Beat(Body):
    """The runs that have not ended. Without `running`, the recorded ones stay."""

    running: Annotated[list[Running], Field(max_length=10_000)] | None = None
    processed: Annotated[int, Field(ge=0, lt=2**53)] | None = Field(None, description="How many runs have ended here.")


class Stops(Answer):
    """`stop`: jobs that were asked to stop."""

    stop: list[UUID]


class Claim(Body):
    """What to take. `held` are the fences that the worker knows: what it does not know is given back first."""

    queues: Annotated[list[Annotated[Name, Field(max_length=100)]], Field(min_length=1, max_length=1000)] = Field(
        default_factory=lambda: ["default"]
    )
    max: Annotated[int, Field(ge=1, le=MOST_CLAIMED)] = 1
    free: Annotated[int, Field(ge=0, le=MOST_CLAIMED)] | None = None
    wait: Annotated[float, Field(ge=0, le=MOST_WAIT_SECONDS, allow_inf_nan=False)] = 0.0
    held: Annotated[list[Wide], Field(max_length=10_000)] | None = None


class ClaimedJob(Answer):
    id: UUID
    fence: Wide
    type: str
    payload: Json
    queue: str
    tenant: str
    priority: int
    run_at: Instant
    run: int
    attempt: int
    max_attempts: int
    version: int
    timeout: float | None
    meta: Json | None


Claimed = list_of(ClaimedJob, "ClaimedJobs")


class Ending(Body):
    """How a run has ended. `age`: seconds since the handler started; `delay`: until the next attempt."""

    id: UUID
    fence: Wide
    outcome: Literal["succeeded", "failed", "timed_out", "snoozed", "released", "canceled", "unsupported"] = "succeeded"
    age: Seconds | None = None
    delay: Seconds | None = None
    result: Any = None
    error: Json | None = Field(None, description="type, message and traceback; kind permanent for no other attempt.")


class Endings(Body):
    items: Annotated[list[Ending], Field(min_length=1, max_length=MOST_SETTLED)]


class JobState(Answer):
    """A job that has not succeeded: its state now, and when its next attempt may start."""

    id: UUID
    state: str
    run_at: Instant | None


class Settled(Answer):
    """`refused`: runs that no longer have their jobs, so that their outcomes do not count."""

    refused: list[UUID]
    items: list[JobState]


class Left(Answer):
    """How many jobs were given back."""

    released: int


async def register(call: Call[NewNode, None]) -> Reply:
    body = call.body
    params = body.model_dump() | {
        "types": orjson.dumps(body.types).decode(),
        "labels": write_json(body.labels, "/labels"),
        "machine": _find_machine(call),
    }
    async with call.acting() as transaction:
        if body.take_over:
            await _refuse_other_owner(call, transaction, {"epoch": None, "name": body.name})
        ((epoch,),) = await transaction.fetch("api_register", params)
    if body.take_over:
        async with call.acting() as transaction:  # perhaps no other node lives that would reclaim the jobs
            await transaction.fetch("api_reclaim")
    return Reply({"epoch": epoch, "lease": body.lease, "beat_every": body.lease / _BEATS_PER_LEASE}, 201)


async def beat(call: Call[Beat, None]) -> dict[str, Any]:
    body = call.body
    running = None
    if body.running is not None:
        running = orjson.dumps([each.model_dump() for each in body.running]).decode()
    async with call.acting() as transaction:
        epoch = await _find_own_node(call, transaction)
        ((stop,),) = await transaction.fetch("api_heartbeat", (epoch, running, body.processed))
    return {"stop": stop}


async def claim(call: Call[Claim, None]) -> dict[str, Any]:
    """Asks, and if there is nothing waits as a worker does, and asks again."""
    until = time.monotonic() + call.body.wait
    found, _ = await _try_to_claim(call, call.body.held)
    if found or call.body.wait == 0:
        return {"items": found}
    sleeper = call.board.sleepers.for_running_loop(call.board.app.producer.runtime)
    with call.board.traffic.waiting(call.identity):
        async with sleeper.sleeping():
            while not found and time.monotonic() < until and not await call.request.is_disconnected():
                bell = await sleeper.prepare()
                found, due = await _try_to_claim(call, None)
                if not found:
                    left = until - time.monotonic()
                    await sleeper.wait(bell, max(_SHORTEST_PAUSE_SECONDS, left if due is None else min(left, due)))
    return {"items": found}


async def _try_to_claim(
    call: Call[Claim, None], held: Sequence[int] | None
) -> tuple[list[dict[str, Any]], float | None]:
    """The jobs that were taken, and in how many seconds a delayed one may be due."""
    body = call.body
    async with call.acting() as transaction:
        epoch = await _find_own_node(call, transaction)
        if held is not None:
            await transaction.fetch("release_unknown", (epoch, list(held)))
        ((due,),) = await transaction.fetch("api_promote")
        rows = await transaction.fetch("api_claim", (epoch, body.queues, body.max, body.free))
    return [dict(zip(ClaimedJob.model_fields, row, strict=True)) for row in rows], due


async def settle(call: Call[Endings, None]) -> dict[str, Any]:
    items = call.body.items
    params = (
        [each.id for each in items],
        [each.fence for each in items],
        [each.outcome for each in items],
        [each.age for each in items],
        [each.delay for each in items],
        [write_json(each.result, f"/items/{place}/result") for place, each in enumerate(items)],
        [write_json(each.error, f"/items/{place}/error") for place, each in enumerate(items)],
    )
    async with call.acting() as transaction:
        epoch = await _find_own_node(call, transaction)
        rows = await transaction.fetch("api_settle", (epoch, *params))
        blocked = [job for job, state, _ in rows if state == "blocked"]
        if blocked:
            await transaction.run(_unblock(blocked))
    settled = [each for each in rows if each[1] not in (None, "blocked")]
    return {
        "refused": [job for job, state, _ in rows if state is None],
        "items": [dict(zip(JobState.model_fields, row, strict=True)) for row in settled],
    }


def _unblock(jobs: list[UUID]) -> Operation[None]:
    yield Statement("unblock", (jobs,))


async def leave(call: Call[None, None]) -> dict[str, int]:
    async with call.acting() as transaction:
        epoch = await _find_own_node(call, transaction)
        ((released,),) = await transaction.fetch("leave", (epoch,))
    return {"released": released}


def write_json(value: Any, pointer: str) -> str | None:
    wrong = next(find_unstorable(value, ""), None)
    if wrong is not None:
        raise Problem(
            422, f"{pointer} cannot be stored: {wrong[1]}.", errors=[{"pointer": pointer, "detail": wrong[1]}]
        )
    return None if value is None else orjson.dumps(value).decode()


def _find_machine(call: Call[Any, Any]) -> str:
    """What the column `machine` of the caller's nodes says."""
    return f"api:{call.identity.key or call.identity.name}"


async def _find_own_node(call: Call[Any, Any], transaction: Transaction) -> int:
    epoch = read_number(call.path["epoch"])
    if epoch is None:
        raise Problem(404, "There is no such node.")
    await _refuse_other_owner(call, transaction, {"epoch": epoch, "name": None})
    return epoch


async def _refuse_other_owner(call: Call[Any, Any], transaction: Transaction, which: dict[str, Any]) -> None:
    rows = await transaction.fetch("api_node", which)
    if which["epoch"] is not None and not rows:
        raise Problem(404, "There is no such node.", hint="Register with POST /nodes.")
    if any(machine != _find_machine(call) for (machine,) in rows):
        raise Problem(403, "Another key has registered this node.")
