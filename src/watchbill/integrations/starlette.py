"""Watchbill in a Starlette application, and so in FastAPI (`fastapi.py` adds a dependency): docs/howto/fastapi.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection, Request

from watchbill.app.application import App
from watchbill.errors import WatchbillError

if TYPE_CHECKING:  # the dashboard is an extra
    from watchbill.dashboard.identity import Identity, Role

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


class NotInApplication(WatchbillError):
    """The web application has no Watchbill App."""


def lifespan(app: App, *, node: bool = False, **settings: Any) -> Lifespan:
    """Returns a lifespan for `FastAPI(lifespan=lifespan(app))`: requests can use the App, and its connections close
    when the web application ends.

    With `node=True`, jobs also run in this process, with these `settings` (concurrency, queues, ...). In a lifespan of
    your own, write `async with lifespan(app)(api): yield`.
    """

    @asynccontextmanager
    async def around(web: Any) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_close_app, app)
            if node:
                await stack.enter_async_context(app.node(**settings))
            web.state.watchbill = app
            yield

    return around


async def _close_app(app: App) -> None:
    await app.aclose()
    await asyncio.to_thread(app.close)  # in a thread, because `close` waits for connections that endpoints use


def session_auth(
    *, name: str = "user", role: str = "role", usual: Role = "reader"
) -> Callable[[Request], Identity | None]:
    """Returns an `auth` for `Dashboard` in an application that has Starlette's SessionMiddleware around it: `name` and
    `role` are the keys of the session under which the login of the application has stored who has logged in. A session
    without a role has the `usual` one, and one without a name is a stranger."""

    from watchbill.dashboard.identity import Identity

    def find_visitor(request: Request) -> Identity | None:
        if "session" not in request.scope:
            raise NotInApplication(
                "There is no session, so the dashboard cannot know who asks.",
                hint="Add SessionMiddleware to the application in which the dashboard is mounted.",
            )
        found = request.session.get(name)
        return None if not found else Identity(str(found), request.session.get(role) or usual)

    return find_visitor


def watchbill_app(connection: HTTPConnection) -> App:
    """Returns the App of the web application that serves this request."""
    found = getattr(connection.app.state, "watchbill", None)
    if not isinstance(found, App):
        raise NotInApplication(
            "This web application has no Watchbill App.",
            hint="Give it one: FastAPI(lifespan=lifespan(app)). In tests enter its lifespan: `with TestClient(api):`.",
        )
    return found
