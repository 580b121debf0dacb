"""`watchbill dashboard`: the pages and the HTTP API, on this machine only unless people log in."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from watchbill.cli.discovery import find_app_or_none
from watchbill.cli.help import command_group
from watchbill.cli.output import Usage
from watchbill.cli.screen import say, say_wrapped
from watchbill.cli.supervisor import is_child, make_orphan_check
from watchbill.client import key_operations
from watchbill.errors import SettingsError, WatchbillError

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.dashboard import Dashboard
    from watchbill.settings import Settings

DRAIN_SECONDS = 5

app = command_group()


class NotInstalled(WatchbillError):
    """The libraries of the dashboard are missing."""


@app.command()
def dashboard(
    ctx: typer.Context,
    application: Annotated[str | None, typer.Argument(metavar="[MODULE:APP]", help="Where the App is.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen at.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="The port to listen at.")] = None,
    prefix: Annotated[str | None, typer.Option(metavar="/PATH", help="Where a proxy shows it.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only show; everybody is a reader.")] = False,
) -> None:
    """Serve the dashboard and the HTTP API. Without logins, on this machine only: http://127.0.0.1:8484."""
    settings = ctx.obj.load_settings(app=application)
    found = find_app_or_none(settings.app)
    settings = ctx.obj.load_settings(
        found[0] if found else None,
        app=application,
        dashboard_host=host,
        dashboard_port=port,
        dashboard_prefix=prefix,
        dashboard_read_only=read_only or None,
    )
    url = ctx.obj.find_address(settings).url
    served = found[0] if found else _make_app(url, settings)
    served.use(replace(settings, database_url=url))
    served.ensure_usable()
    has_keys = any(key.state == "valid" for key in ctx.obj.run(key_operations.keys()))
    _serve(make_dashboard(served, settings, has_keys=has_keys), settings)


def make_dashboard(app: App, settings: Settings, *, has_keys: bool = False) -> Dashboard:
    """The dashboard of `watchbill dashboard`. People log in where there are users or API keys. Refuses to be open to
    others."""
    try:
        from watchbill.dashboard import Dashboard, open_to_all
        from watchbill.dashboard.gate import is_loopback
        from watchbill.dashboard.sessions import User
        from watchbill.dashboard.visit import Look
    except ModuleNotFoundError as error:
        raise NotInstalled(
            f"The dashboard needs the module {error.name}.", hint="Run: pip install 'watchbill[dashboard]'"
        ) from error
    try:
        users = {user.name: user for user in map(User.read, settings.dashboard_users)}
    except ValueError as error:
        raise SettingsError(f"Setting dashboard_users is invalid: {error}.") from None
    has_login = bool(users) or has_keys
    if not has_login and not is_loopback(settings.dashboard_host):
        raise Usage(
            f"The dashboard would be open to everybody who reaches {settings.dashboard_host}.",
            hint="Make a key (`watchbill keys add NAME --role admin`), set dashboard_users (`watchbill keys user NAME` "
            "prints an entry), or leave dashboard_host at 127.0.0.1.",
        )
    try:
        return Dashboard(
            app,
            auth=None if has_login else open_to_all,
            read_only=settings.dashboard_read_only,
            redact=settings.redact,
            redact_text=settings.redact_text,
            hosts=None if has_login and not settings.dashboard_hosts else settings.dashboard_hosts,
            prefix=settings.dashboard_prefix,
            secret=settings.dashboard_secret,
            users=users,
            frame_ancestors=settings.frame_ancestors,
            look=Look(settings.dashboard_name, settings.dashboard_color, settings.dashboard_peers, settings.trace_url),
        )
    except ValueError as error:
        raise SettingsError(f"Setting redact or redact_text is invalid: {error}.") from None


def _make_app(url: str, settings: Settings) -> App:
    from watchbill import App

    return App(url, name="dashboard", schema=settings.schema)


def _serve(served: Dashboard, settings: Settings) -> None:
    import uvicorn

    host = f"[{settings.dashboard_host}]" if ":" in settings.dashboard_host else settings.dashboard_host
    say(f"Dashboard: http://{host}:{settings.dashboard_port}{settings.dashboard_prefix}/")
    if not served.board.has_login:
        say_wrapped("There is no login: everybody on this machine is an admin. Ctrl-C stops it.")
    if is_child():
        threading.Thread(target=_end_with_parent, args=(make_orphan_check(),), daemon=True).start()
    # uvicorn raises the signal again after it has drained, so that SIGTERM would count as a failure.
    signal.signal(signal.SIGTERM, lambda *_: None)
    uvicorn.run(served, **_list_server_options(settings))


def _end_with_parent(is_orphan: Callable[[], bool]) -> None:
    """Ends this process when `watchbill up` was killed."""
    while not is_orphan():
        time.sleep(1.0)
    os._exit(1)


def _list_server_options(settings: Settings) -> dict[str, Any]:
    return {
        "host": settings.dashboard_host,
        "port": settings.dashboard_port,
        "proxy_headers": bool(settings.trusted_proxy),
        "forwarded_allow_ips": ",".join(settings.trusted_proxy) or None,
        "server_header": False,
        "access_log": False,
        "log_level": "warning",
        "timeout_graceful_shutdown": DRAIN_SECONDS,
    }
