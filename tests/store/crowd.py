"""Several sessions at once that do whatever their dice say; what a crowd may do is its test's affair."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from tests.store.harness import Db, Session

Actions = Sequence[tuple[int, Callable[[], Any]]]
"""Weights, and what to do."""


class Member:
    """A node on a connection of its own; one that was declared lost comes back under a new epoch, and one whose session
    was ended on a new connection."""

    expected: Collection[str | None] = ()  # the SQLSTATEs that others may cause
    may_be_killed = False

    def __init__(self, db: Db, seed: int) -> None:
        self.db, self.random = db, random.Random(seed)
        self.session: Session = db.session()
        self.epoch = self.register()

    def register(self) -> int:
        return self.session.node()

    def actions(self) -> Actions:
        raise NotImplementedError

    def act(self, times: int) -> None:
        actions = self.actions()
        for action in self.random.choices([do for _, do in actions], [weight for weight, _ in actions], k=times):
            try:
                action()
            except psycopg.Error as error:
                if self.may_be_killed and self.session.connection.closed:
                    self._come_back()
                    continue
                if self.session.connection.info.transaction_status:
                    self.session.rollback()
                if error.sqlstate not in self.expected:
                    raise
                if error.sqlstate == "WB001":
                    self._come_back()

    def _come_back(self) -> None:
        """Registers again. It may be killed meanwhile, too."""
        while True:
            if self.session.connection.closed:
                self.session = self.db.session()
            try:
                self.epoch = self.register()
            except psycopg.OperationalError:
                if not self.may_be_killed:
                    raise
            else:
                return


def let_loose(count: int, member: Callable[[int], Member], times: int) -> None:
    """`member` makes one from its seed; the first seed is printed, so that a failure can be had again."""
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    crowd = [member(seed + n) for n in range(count)]
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(each.act, times) for each in crowd]:
            done.result()
