"""`watchbill up`, for development: starts an embedded PostgreSQL unless a URL is set, migrates the schema, and runs a
worker that restarts when the code changes."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.discovery import BrokenApp, find_app, hide_output
from watchbill.cli.help import command_group
from watchbill.cli.output import GlobalOptions
from watchbill.cli.screen import say, say_lines, say_wrapped
from watchbill.cli.supervisor import UP_COMMAND, Supervisor
from watchbill.cli.up_dashboard import DashboardChild
from watchbill.errors import EmbeddedError

if TYPE_CHECKING:
    from watchbill.postgres.embedded import EmbeddedServer
    from watchbill.settings import Settings

START_AGAIN_SECONDS = 10.0

app = command_group()


@app.command()
def up(
    ctx: typer.Context,
    application: Annotated[str | None, typer.Argument(metavar="[MODULE:APP]", help="Where the App is.")] = None,
    reload: Annotated[bool, typer.Option(help="Restart when the code changes.")] = True,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Also serve the dashboard on this machine.")] = False,
    fast_retries: Annotated[
        bool, typer.Option("--fast-retries", help="Try failed jobs again after half a second, to see what happens.")
    ] = False,
) -> None:
    """Run everything in this terminal: PostgreSQL, schema and worker. Ctrl-C drains the worker and stops all of it."""
    settings = _load_settings(ctx.obj, application)
    pages: DashboardChild | None = None
    server = None if settings.database_url else _start_server(settings)
    try:
        url = server.url if server else settings.database_url
        assert url is not None
        _prepare_schema(settings, url, server)
        place = {"WATCHBILL_DATABASE_URL": url, "WATCHBILL_SCHEMA": settings.schema}
        named = [settings.app] if settings.app else []
        checks: list[Callable[[], None]] = [ServerGuard(server).check] if server else []
        if dashboard:
            pages = DashboardChild([*_make_worker_command(ctx.obj), "dashboard", *named], place)
            checks.append(pages.check)
        code = Supervisor(
            [*_make_worker_command(ctx.obj), "worker", "--lines", *named],
            environment={
                **place,
                UP_COMMAND: _find_own_command(),
                **({"WATCHBILL_FAST_RETRIES": "true"} if fast_retries else {}),
            },
            watched=Path.cwd() if reload else None,
            each_second=lambda: _run_all(checks),
        ).run()
    finally:
        if pages is not None:
            pages.stop()
        if server is not None:
            server.release()
    raise typer.Exit(code)


def _run_all(checks: Sequence[Callable[[], None]]) -> None:
    for check in checks:
        check()


class ServerGuard:
    """Starts the embedded server again if it ends while `up` runs."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._next_try = 0.0

    def check(self) -> None:
        if self._server.is_running or time.monotonic() < self._next_try:
            return
        say(f"PostgreSQL has ended; starting it again. Its log is {self._server.log}", err=True)
        try:
            self._server.start_again()
        except EmbeddedError as error:
            self._next_try = time.monotonic() + START_AGAIN_SECONDS
            say_lines(f"{error}\nTrying again in {START_AGAIN_SECONDS:.0f} s.", err=True)
        else:
            say("PostgreSQL runs again.", err=True)


def _load_settings(options: GlobalOptions, application: str | None) -> Settings:
    """Reads the settings, including arguments in the application's code. If the application cannot be imported, they
    are left out, and the worker reports why."""
    settings = options.load_settings(app=application)
    try:
        with hide_output():
            found, _ = find_app(settings.app)
    except BrokenApp:
        return settings
    return options.load_settings(found, app=application)


def _make_worker_command(options: GlobalOptions) -> list[str]:
    """Makes the command that starts the worker. It repeats the global options, which must override the code there
    too."""
    given = {"--database-url": options.database_url, "--schema": options.schema}
    words = [word for name, value in given.items() if value for word in (name, value)]
    return [sys.executable, "-m", "watchbill.cli", *words]


def _find_own_command() -> str:
    """Returns how to call `watchbill` from another terminal. `make` may have started it in another directory than the
    user's."""
    program, here = Path(sys.argv[0]), Path.cwd()
    on_path = shutil.which("watchbill")
    if on_path is not None and Path(on_path).resolve() == program.resolve():
        words = "watchbill"
    else:
        words = shlex.quote(os.path.relpath(program, here))
    return f"cd {shlex.quote(str(here))} && {words}" if "MAKELEVEL" in os.environ else words


def _start_server(settings: Settings) -> EmbeddedServer:
    from watchbill.postgres.embedded import EmbeddedServer, find_project

    project = find_project()
    if not (project / ".watchbill").exists():
        say_wrapped("Creating a PostgreSQL server for this project; the first time takes a moment ...")
    return EmbeddedServer.acquire(project, binaries=settings.embedded_binaries)


def _prepare_schema(settings: Settings, url: str, server: EmbeddedServer | None) -> None:
    from watchbill.store.install import install

    status = install(url, settings.schema, settings.jcron_schema)
    if server is None:
        from watchbill.postgres.address import find_address

        where = str(find_address(settings))
    else:
        state = f"started in {server.elapsed:.2f} s" if server.started else "already running"
        inside = server.directory.is_relative_to(Path.cwd())
        directory = server.directory.relative_to(Path.cwd()) if inside else server.directory
        where = f"PostgreSQL {server.version} (embedded, {directory}/, {state})"
    say_wrapped(f"{where}   schema {settings.schema} v{status.version}")
