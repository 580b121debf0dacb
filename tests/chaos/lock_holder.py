"""A program that holds a lock and writes under it, again and again, until it is killed: `lock_holder URL [stubborn]`.

It prints what it does, a line each. A stubborn one writes whatever its own clock says, so that only the fence in the
database can refuse it.
"""

from __future__ import annotations

import os
import random
import sys
import time

import psycopg

from watchbill import App, Lock, LockLost
from watchbill.client.lock_renewal import Hold

NAME = "close"
WRITE = "INSERT INTO history (number, pid) VALUES (%s, %s)"


def write(lock: Lock, connection: psycopg.Connection[object]) -> None:
    with connection.transaction():
        lock.check(connection)
        connection.execute(WRITE, (lock.fence, os.getpid()))


def main(url: str, *words: str) -> None:
    app = App(url)
    if "stubborn" in words:
        setattr(Hold, "is_safe", True)  # noqa: B010  (it is a property)
    # A frozen transaction that has checked its fence keeps the next holder out, so the server must end it.
    given_up = "-c idle_in_transaction_session_timeout=3s"
    with psycopg.connect(url, autocommit=True, options=given_up) as connection:
        while True:
            try:
                with app.lock(NAME, ttl=1) as lock:
                    print("holds", flush=True)
                    for _ in range(random.randint(5, 20)):
                        write(lock, connection)
                        time.sleep(random.uniform(0, 0.02))
            except LockLost as error:
                print(f"refused: {error.message}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
