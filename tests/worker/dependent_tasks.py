"""A task with dependencies that a child process imports; each step leaves a line in a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from watchbill import App, Depends

app = App()


def note(line: str) -> None:
    with Path(os.environ["STEPS_OF_DEPENDENCIES"]).open("a") as file:
        file.write(f"{line}\n")


def engine() -> Iterator[str]:
    note("engine opened")
    yield "engine"
    note("engine closed")


def session(engine: str = Depends(engine)) -> Iterator[str]:
    note("session opened")
    yield f"session of {engine}"
    note("session closed")


@app.task(executor="process")
def in_child(n: int, *, session: str = Depends(session, per="attempt")) -> str:
    note(f"job {n}")
    return session
