"""A worker that dies at a given point of a job with steps: `python step_program.py POINT JOURNAL TYPE`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from watchbill import App, AsyncConnection, AsyncSteps, Connection, Retry, Steps, StepUnknown
from watchbill.worker.checkpoints import Checkpointer, NewStep, SignalWait
from watchbill.worker.step_transactions import StepTransactions

app = App(lease=1)
POINT, JOURNAL, TYPE = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
TRIES = JOURNAL.with_name("tries")
FOREVER = Retry(max_attempts=1000, base=0)


def note(what: str) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(f"{what}\n")
    if what == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


async def charge(order: int) -> int:
    note("in charge")
    await asyncio.sleep(0)
    return order + 1


def ship(payment: int) -> int:
    note("in ship")
    return payment + 1


@app.task(type="fulfil", retry=FOREVER)
async def fulfil(steps: AsyncSteps, order: int) -> int:
    shipped = await steps.run(ship, await steps.run(charge, order))
    await steps.sleep(0.01)
    return shipped


@app.task(type="report", retry=FOREVER)
def report(steps: Steps, order: int) -> int:
    shipped = steps.run(ship, order)
    steps.sleep(0.01)
    return shipped


async def book(connection: AsyncConnection, order: int) -> int:
    await connection.execute("INSERT INTO entries VALUES (%s)", [order])
    note("in book")
    return order


def book_in_thread(connection: Connection, order: int) -> int:
    connection.execute("INSERT INTO entries VALUES (%s)", [order])
    note("in book_in_thread")
    return order


@app.task(type="write", retry=FOREVER)
async def write(steps: AsyncSteps, order: int) -> int:
    return await steps.run(book, await steps.run(book_in_thread, order))


@app.step(once=True)
def pay(order: int) -> int:
    note("in pay")
    return order


@app.task(type="pay_once", retry=FOREVER)
async def pay_once(steps: AsyncSteps, order: int) -> str:
    try:
        return str(await steps.run(pay, order))
    except StepUnknown:
        return "unknown"


@app.step(retry=Retry(max_attempts=3, base=0.01))
async def unsteady(order: int) -> int:
    note("in unsteady")
    if TRIES.write_text(TRIES.read_text() + "x" if TRIES.exists() else "x") and len(TRIES.read_text()) < 3:
        raise ConnectionError
    return order


@app.task(type="try_again", retry=FOREVER)
async def try_again(steps: AsyncSteps, order: int) -> int:
    return await steps.run(unsteady, order)


@app.task(type="render")
def render(page: int) -> int:
    return page * 10


@app.task(type="ask", retry=FOREVER)
async def ask(steps: AsyncSteps, order: int) -> list[int]:
    (page,) = await steps.call_many([render.bind(order)])
    answer = await steps.receive("approval")
    return [page, answer.payload]


async def cancel(order: int) -> None:
    note(f"in cancel {order}")


async def reserve(order: int) -> int:
    return order


@app.task(type="travel", retry=Retry(max_attempts=1))
async def travel(steps: AsyncSteps, order: int) -> None:
    await steps.using(undo=cancel).run(reserve, 1)
    await steps.using(undo=cancel).run(reserve, 2)
    raise ValueError("no money")


def watch(owner: type, method: str, name: Any) -> None:
    """Notes each call of a method that stores a step, before it and after its commit."""
    stores = getattr(owner, method)

    async def store_with_notes(self: Any, *args: Any) -> Any:
        note(f"before {method} {name(*args)}")
        stored = await stores(self, *args)
        note(f"after {method} {name(*args)}")
        return stored

    setattr(owner, method, store_with_notes)


def name_step(step: NewStep) -> str:
    return f"{step.name} {step.state}"


def name_wait(wait: SignalWait) -> str:
    return wait.name


watch(Checkpointer, "save", name_step)
watch(Checkpointer, "receive", name_wait)
watch(Checkpointer, "collect", lambda claimed, step, seq: step)
watch(StepTransactions, "acall", lambda run, call, step: call.name)


async def main() -> None:
    ended = asyncio.Event()
    for event in ("job_completed", "job_died"):
        app.on(event)(lambda job, **_: ended.set() if job.type == TYPE else None)
    node = app.make_node(node_name="one")
    running = asyncio.create_task(node.run())
    await ended.wait()
    node.stop()
    await running
    await app.aclose()


asyncio.run(main())
