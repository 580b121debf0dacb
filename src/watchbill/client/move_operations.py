"""Moves a tenant from one cell to another. Each step is done once, however often it is called, so a move that was
killed at any point continues when it is called again.

The steps are SQL functions; `store/sql/upkeep/leave_cell.sql` lists them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from watchbill.client.operations import Operation, Statement

if TYPE_CHECKING:
    from watchbill.client.client import Client

ROWS_AT_ONCE = 500
PAUSES_SECONDS = (0.05, 0.2, 0.5)


@dataclass(frozen=True)
class MoveRecord:
    """A move from or to a cell. `state` is `leaving`, `departed` or `moved` in the old cell, `arriving` or `arrived` in
    the new one; `cell` is the other one."""

    tenant: str
    state: str
    cell: str


def moves(tenant: str | None = None) -> Operation[list[MoveRecord]]:
    return [MoveRecord(*row) for row in (yield Statement("tenant_moves", (tenant,)))]


@dataclass
class TenantMove:
    """One tenant on its way from `old` to `new`, each a client and the name of its cell."""

    tenant: str
    old: tuple[str, Client]
    new: tuple[str, Client]
    report: Callable[[str], None] = lambda line: None

    def run(self) -> int:
        """Moves the tenant, or continues its move. Waits until its running jobs have ended. Returns how many rows have
        moved in this call."""
        (old_cell, old), (new_cell, new) = self.old, self.new
        move, state = old.run_in_transaction(_call("start_leaving", self.tenant, new_cell))[0]
        count = 0
        if state != "moved":
            if new.run_in_transaction(_call("expect_tenant", self.tenant, old_cell, move))[0][0]:
                self._wait(old)
                old.run_in_transaction(_call("depart_tenant", self.tenant))
                count = self._copy(old, new, move)
                new.run_in_transaction(_call("arrive_tenant", self.tenant, move, count))
            old.run_in_transaction(_call("finish_leaving", self.tenant, move))
        new.run_in_transaction(_call("end_arrival", self.tenant, move))
        return count

    def _wait(self, old: Client) -> None:
        told, number = "", 0
        while (waiting := old.run_in_transaction(_call("read_leaving", self.tenant))[0][0]) is not None:
            if waiting != told and number >= len(PAUSES_SECONDS):
                told = waiting
                self.report(f"{self.tenant} waits for {waiting}.")
            time.sleep(PAUSES_SECONDS[min(number, len(PAUSES_SECONDS) - 1)])
            number += 1

    def _copy(self, old: Client, new: Client, move: object) -> int:
        last = 0
        while True:
            rows, end = old.run(_call("read_moved_rows", self.tenant, move, last, ROWS_AT_ONCE))[0]
            if rows is None:
                return last
            new.run(_call("receive_rows", self.tenant, move, rows))
            last = end


def _call(query: str, *params: object) -> Operation[list[tuple[Any, ...]]]:
    return (yield Statement(query, params))
