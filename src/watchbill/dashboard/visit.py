"""What pages and endpoints know of a request: who asks, what the dashboard is set to, and how links begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.requests import HTTPConnection

from watchbill.dashboard.database import Database
from watchbill.dashboard.identity import Identity, Role
from watchbill.dashboard.keys import Keys
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.sessions import Session, Sessions
from watchbill.dashboard.sleeping import Sleepers
from watchbill.dashboard.traffic import Traffic
from watchbill.redaction import Redaction

if TYPE_CHECKING:
    from watchbill.app.application import App

SCOPE_KEY = "watchbill"


@dataclass(frozen=True)
class Look:
    """How an installation presents itself. Only pages use it."""

    name: str | None = None
    color: str | None = None
    peers: Sequence[tuple[str, str]] = ()  # name and address of other dashboards
    trace_url: str | None = None


@dataclass(frozen=True)
class Board:
    """The parts of a dashboard that every request may use."""

    app: App
    database: Database
    sessions: Sessions
    redaction: Redaction
    keys: Keys
    read_only: bool = False
    has_login: bool = False  # people log in here, and not in the application around it
    look: Look = field(default_factory=Look)
    traffic: Traffic = field(default_factory=Traffic)
    sleepers: Sleepers = field(default_factory=Sleepers)


@dataclass(frozen=True)
class Visit:
    """One request. `identity` is None for those who may see only the login page."""

    board: Board
    identity: Identity | None
    session: Session | None = None

    def require(self, role: Role) -> Identity:
        """Who asks, if that may do what needs this role."""
        if self.identity is None:
            raise Problem(401, "Log in, or send an API key: Authorization: Bearer wb_...",
                          headers={"WWW-Authenticate": "Bearer"})  # fmt: skip
        if not self.identity.may(role):
            raise Problem(403, f"{self.identity.name} is a {self.identity.role}; this needs the role {role}.")
        return self.identity

    @property
    def form_token(self) -> str:
        return "" if self.identity is None else self.board.sessions.make_form_token(self.identity, self.session)


def get_visit(connection: HTTPConnection) -> Visit:
    visit = connection.scope[SCOPE_KEY]
    assert isinstance(visit, Visit)
    return visit


def link(connection: HTTPConnection, path: str, **query: str | int) -> str:
    """The address of a page, wherever the dashboard is mounted: `link(request, "/queue", name="a/b")`."""
    return f"{connection.scope.get('root_path', '')}{path}" + (f"?{urlencode(query)}" if query else "")
