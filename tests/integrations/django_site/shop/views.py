"""A task beside the view that enqueues it: a worker finds it too."""

from watchbill.integrations.django import app


@app.task(queue="views")
def of_a_view() -> None: ...
