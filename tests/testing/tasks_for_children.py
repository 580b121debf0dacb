"""A task that runs in a child process, which imports it from here."""

from __future__ import annotations

import os

from watchbill import App

app = App()


@app.task(executor="process")
def enqueue_from_child() -> int:
    app.enqueue("from.a.child")
    return os.getpid()
