"""Checks whether the App in this directory, or a live node, knows a type or a queue that was given as an argument."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from watchbill.app.application import App
from watchbill.cli.discovery import find_app_or_none
from watchbill.cli.output import GlobalOptions, Usage
from watchbill.cli.screen import say
from watchbill.client import job_operations
from watchbill.store.refusals import RoleRefused


def check_names(app: App, reference: str | None, type: str, queue: str) -> None:
    """Refuses a type or a queue that seems to be misspelt. If the role may not read what live nodes serve, as with the
    role of a producer, only the App's own tasks are compared."""
    try:
        _check_type(app, reference, type)
        _check_queue(app, reference, queue)
    except RoleRefused:
        if reference is not None and type not in app.tasks:
            say(f"{reference} has no task {type}. {_suggest_similar_name(type, app.tasks)}".rstrip(), err=True)


def _check_type(app: App, reference: str | None, type: str) -> None:
    """Refuses a type that neither the App nor a live node knows. Without an App (`reference` is None) it only warns."""
    if type in app.tasks:
        return
    handled = app.client.run(job_operations.handled_types())
    if type in handled:
        return
    suggestion = _suggest_similar_name(type, {*app.tasks, *handled})
    if reference is None:
        say(f"No live node handles {type}; the job waits for one that does. {suggestion}".rstrip(), err=True)
        return
    raise Usage(
        f"{reference} has no task {type}, and no live node handles it.",
        hint=f"{suggestion} To enqueue it anyway, give --unchecked.".lstrip(),
    )


def _check_queue(app: App, reference: str | None, queue: str) -> None:
    """Refuses a queue that no live node serves and no task of the App uses. If only the App uses it, warns that no live
    node serves it."""
    served = app.client.run(job_operations.served_queues())
    if served is None or queue in served:
        return
    own = app.queue_names() if reference is not None else set()
    if reference is None or queue in own:
        suggestion = "" if queue in own else _suggest_similar_name(queue, served)
        say(f"No live node serves queue {queue}; the job waits for one that does. {suggestion}".rstrip(), err=True)
        return
    raise Usage(
        f"No live node serves queue {queue}, and no task of {reference} uses it.",
        hint=f"{_suggest_similar_name(queue, own | served)} To enqueue it anyway, give --unchecked.".lstrip(),
    )


def check_used(options: GlobalOptions, queue: str | None, type: str | None) -> None:
    """Refuses to pause a queue or a type that nothing uses: it is probably misspelt."""
    found = find_app_or_none(options.load_settings().app)
    app = found[0] if found else None
    if queue:
        used = options.run(job_operations.known_queues()) | (app.queue_names() if app else set())
        _refuse_unused("queue", queue, used)
    if type:
        used = options.run(job_operations.known_types()) | (set(app.handlers()) if app else set())
        _refuse_unused("type", type, used)


def _refuse_unused(kind: str, name: str, used: set[str]) -> None:
    if name not in used:
        right = _suggest_similar_name(name, used) or _name_some(used)
        hint = f"{right} To pause it anyway, give --unchecked.".lstrip()
        raise Usage(f"Nothing uses a {kind} named {name}.", hint=hint)


def _name_some(names: set[str]) -> str:
    """Names what exists, the first ten."""
    shown = sorted(names)[:10]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"In use: {', '.join(shown)}{more}." if shown else ""


def _suggest_similar_name(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]}?" if near else ""
