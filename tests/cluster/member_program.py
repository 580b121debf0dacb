"""A member of a token group that works until it is killed: `python -m tests.cluster.member_program URL NAME`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import psycopg

from watchbill import App, ItemRefused, Member, StaleFence
from watchbill.errors import WatchbillError

KEYS = [f"customer-{number}" for number in range(30)]


def main(url: str, name: str) -> None:
    app = App(url, lease=2)
    group = app.cluster.group("production", tokens=12, handover_timeout=3)
    with group.join(name) as member:
        while True:
            with suppress(psycopg.OperationalError), _connect(url) as connection:
                while True:
                    _write_owned_keys(member, connection, name)


def _connect(url: str) -> psycopg.Connection[Any]:
    """The server ends the transaction of a member that is frozen, because it would keep the item of the next owner
    locked. A member that was frozen inside a transaction finds its connection closed, and connects again."""
    return psycopg.connect(url, options="-c idle_in_transaction_session_timeout=3000")


def _write_owned_keys(member: Member, connection: psycopg.Connection[Any], name: str) -> None:
    for key in KEYS:
        if not member.owns(key):
            continue
        try:
            with member.claim(key) as item, connection.transaction():
                item.check(connection)
                connection.execute(
                    "INSERT INTO journal (key, fence, node) VALUES (%s, %s, %s)", (key, item.fence, name)
                )
        except (ItemRefused, StaleFence, WatchbillError):
            connection.rollback()


if __name__ == "__main__":
    main(*sys.argv[1:])
