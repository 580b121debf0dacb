"""`gunicorn config.wsgi` runs the jobs too: each of its processes has a node, started after the fork.

Leave this file out, and run `python manage.py watchbill worker` instead or beside it: each job still runs once.
"""

from contextlib import ExitStack
from typing import Any

workers = 4
preload_app = True


def post_worker_init(worker: Any) -> None:
    from watchbill.integrations.django import app

    worker.stack = ExitStack()
    worker.stack.enter_context(app.node())


def worker_exit(server: Any, worker: Any) -> None:
    """Waits for running jobs, and releases the other claimed jobs."""
    if hasattr(worker, "stack"):
        worker.stack.close()
