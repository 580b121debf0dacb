"""Where Apps find their database when a test decides: every App of the process is put on one stage, and taken back.

An App looks for its settings and makes its clients when first asked, and keeps them. On a stage it asks the stage
instead; what it had before is set aside, and is there again afterwards. `watchbill.testing` builds the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.client.clients import AsyncClient, Client
    from watchbill.settings import Settings


class Stage(Protocol):
    """One database for all Apps, whatever their own settings say."""

    @property
    def client(self) -> Client: ...
    @property
    def aclient(self) -> AsyncClient: ...
    @property
    def after_sending(self) -> Callable[[], None] | None: ...
    def settings(self, given: Mapping[str, Any]) -> Settings: ...


_FOUND_OUT = ("settings", "stored", "database_url", "client", "aclient", "_whereabouts")
_apps: WeakKeyDictionary[App, None] = WeakKeyDictionary()
_stages: list[Stage] = []


def made(app: App) -> None:
    """Told by every new App."""
    _apps[app] = None


def apps() -> list[App]:
    """All that are alive, in the order they were made."""
    return list(_apps)


def current() -> Stage | None:
    return _stages[-1] if _stages else None


def after_sending() -> Callable[[], None] | None:
    """What is to be done once a job is committed that an App has sent through somebody else's connection."""
    stage = current()
    return None if stage is None else stage.after_sending


def settings(given: Mapping[str, Any]) -> Settings:
    from watchbill.settings import Settings

    stage = current()
    return Settings.load(**given) if stage is None else stage.settings(given)


@contextmanager
def staged(stage: Stage) -> Iterator[None]:
    """Every App is on this stage, those made meanwhile too; afterwards each is where it was."""
    aside = {app: set_aside(app) for app in apps()}
    _stages.append(stage)
    try:
        yield
    finally:
        _stages.remove(stage)
        for app in apps():
            set_aside(app)
        for app, found in aside.items():
            app.__dict__.update(found)


def set_aside(app: App) -> dict[str, Any]:
    """What the App has found out so far; it will find out again."""
    return {name: app.__dict__.pop(name) for name in _FOUND_OUT if name in app.__dict__}
