"""A worker whose process is killed at a given point of a job with steps: `python step_program.py POINT JOURNAL`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from watchbill import App, AsyncSteps, Retry, Steps
from watchbill.worker.checkpoints import Checkpointer, NewStep

app = App(lease=1)
POINT, JOURNAL = sys.argv[1], Path(sys.argv[2])


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


@app.task(type="fulfil", retry=Retry(max_attempts=1000, base=0))
async def fulfil(steps: AsyncSteps, order: int) -> int:
    shipped = await steps.run(ship, await steps.run(charge, order))
    await steps.sleep(0.01)
    return shipped


@app.task(type="report", retry=Retry(max_attempts=1000, base=0))
def report(steps: Steps, order: int) -> int:
    shipped = steps.run(ship, order)
    steps.sleep(0.01)
    return shipped


save = Checkpointer.save


async def save_with_notes(self: Any, step: NewStep) -> bool:
    note(f"before save {step.name} {step.state}")
    stored = await save(self, step)
    note(f"after save {step.name} {step.state}")
    return stored


Checkpointer.save = save_with_notes  # type: ignore[method-assign]


async def main() -> None:
    ended = asyncio.Event()
    app.on("job_completed")(lambda **_: ended.set())
    node = app.make_node(node_name="one")
    running = asyncio.create_task(node.run())
    await ended.wait()
    node.stop()
    await running
    await app.aclose()


asyncio.run(main())
