"""The cell to which the calls of this thread or asyncio task go, if they name no other one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

acting_cell: ContextVar[str | None] = ContextVar("watchbill_cell", default=None)  # what `app.cell(...)` names
home_cell: ContextVar[str | None] = ContextVar("watchbill_home_cell", default=None)  # of a node in this process


@contextmanager
def acting_in(cell: str) -> Iterator[None]:
    token = acting_cell.set(cell)
    try:
        yield
    finally:
        acting_cell.reset(token)
