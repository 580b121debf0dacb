"""A worker whose first job of each key never ends: `python -m tests.cluster.routed_program URL NAME`."""

from __future__ import annotations

import sys
import threading

from watchbill import App, Connection
from watchbill.app.task import Task

RECORD = "INSERT INTO public.ran (key, number, node) VALUES (%s, %s, %s)"


def declare(app: App, name: str, *, stuck: bool) -> Task[..., None]:
    """A task whose jobs record where they run, outside of their own transaction."""
    app.cluster.group("production", tokens=20, handover_timeout=20)

    @app.task(type="score", queue="score", route_by="{key}", ordered_by="{key}", group="production")
    def score(key: str, number: int) -> None:
        with Connection.connect(app.database_url, autocommit=True) as connection:
            connection.execute(RECORD, (key, number, name))
        if stuck:
            threading.Event().wait()

    return score


def main(url: str, name: str) -> None:
    app = App(url, name="shop", lease=30, node_name=name)
    declare(app, name, stuck=True)
    with app.node():
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
