"""A task that a child process imports; the App of a test takes it over."""

from __future__ import annotations

from watchbill import App, Retry

app = App()


@app.task(executor="process", retry=Retry(not_on=(ValueError,)))
def fails_in_child() -> None:
    raise ValueError("no")
