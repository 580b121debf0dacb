"""Enqueues a job by its type as the application would, with its checks, its options and its middleware, when it is
found here; else as it was given, for a worker that knows the type."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from watchbill import App, Job
    from watchbill.cli.output import GlobalOptions


def enqueue(options: GlobalOptions, type: str, payload: dict[str, Any], chosen: dict[str, Any]) -> Job[Any]:
    app = _app(options, type)
    try:
        return app.enqueue(type, payload, **chosen)
    finally:
        app.close()


def _app(options: GlobalOptions, type: str) -> App:
    from watchbill import App
    from watchbill.cli.discovery import find_quietly

    found = find_quietly(options.settings().app)
    if found is None:
        return App(options.address(options.settings()).url, schema=options.schema)
    app, reference = found
    settings = options.settings_of(app)
    app.use(replace(settings, database_url=options.address(settings).url))
    known = app.handlers()  # also finds those that are declared in other modules
    if type not in known:
        near = get_close_matches(type, known, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        typer.echo(f"{reference} has no task {type}; the job waits for a worker that has.{meant}", err=True)
    return app
