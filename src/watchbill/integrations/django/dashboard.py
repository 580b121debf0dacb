"""The dashboard in a Django project: `with_dashboard` puts it beside the site in asgi.py, and `staff_auth` lets in the
staff of the site. See docs/howto/dashboard.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest

from watchbill.dashboard import Dashboard, Identity
from watchbill.dashboard.gate import Auth

if TYPE_CHECKING:
    from starlette.requests import Request

    from watchbill.app.application import App

Scope = dict[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]


async def staff_auth(request: Request) -> Identity | None:
    """Who has logged in to the site: a superuser is an admin, staff are operators, and others are strangers."""
    return await sync_to_async(_find_staff)(request.cookies.get(settings.SESSION_COOKIE_NAME))


def _find_staff(session_key: str | None) -> Identity | None:
    """Reads the session as Django's middleware does, which this request does not pass."""
    close_old_connections()
    try:
        asked = HttpRequest()
        asked.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
        user = get_user(asked)
        if not (user.is_authenticated and user.is_active and user.is_staff):
            return None
        return Identity(user.get_username(), "admin" if user.is_superuser else "operator")
    finally:
        close_old_connections()


def with_dashboard(
    site: Application,
    app: App | None = None,
    *,
    prefix: str = "/watchbill",
    auth: Auth | None = staff_auth,
    **options: Any,
) -> Application:
    """`application = with_dashboard(get_asgi_application())`: requests below `prefix` are for the dashboard, all others
    for the site. Without `app`, it is that of the project. `options` are those of Dashboard."""
    if app is None:
        from watchbill.integrations.django import app as project_app

        app = project_app
    prefix = f"/{prefix.strip('/')}"
    dashboard = Dashboard(app, auth=auth, prefix=prefix, **options)

    async def serve(scope: Scope, receive: Any, send: Any) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        is_inside = path == prefix or path.startswith(f"{prefix}/")
        # Django knows no lifespan; the dashboard closes its connections at its end.
        chosen: Any = dashboard if is_inside or scope["type"] == "lifespan" else site
        await chosen(scope, receive, send)

    return serve
