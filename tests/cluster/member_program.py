"""A member of a token group that works until it is killed: `python -m tests.cluster.member_program URL NAME`."""

from __future__ import annotations

import sys

import psycopg

from watchbill import App, ItemRefused, StaleFence
from watchbill.errors import WatchbillError

KEYS = [f"customer-{number}" for number in range(30)]


def main(url: str, name: str) -> None:
    app = App(url, lease=2)
    group = app.cluster.group("production", tokens=12, handover_timeout=3)
    # The server ends the transaction of a member that is frozen; it would keep the item of the next owner locked.
    limit = "-c idle_in_transaction_session_timeout=3000"
    with group.join(name) as member, psycopg.connect(url, options=limit) as connection:
        while True:
            for key in KEYS:
                if member.owns(key):
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
