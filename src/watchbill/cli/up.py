"""`watchbill up`: development. A PostgreSQL of our own unless a URL is set, the schema, and a worker that reloads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.lines import IS_UP
from watchbill.cli.output import GlobalOptions, command_group
from watchbill.cli.supervisor import Supervisor

if TYPE_CHECKING:
    from watchbill.postgres.embedded import EmbeddedServer
    from watchbill.settings import Settings

app = command_group()


@app.command()
def up(
    ctx: typer.Context,
    application: Annotated[str | None, typer.Argument(metavar="[MODULE:APP]", help="Where the App is.")] = None,
    reload: Annotated[bool, typer.Option(help="Start anew when the code changes.")] = True,
) -> None:
    """Run everything here and now: PostgreSQL, schema and worker. Ctrl-C drains and stops it all."""
    settings = _settings(ctx.obj, application)
    server = None if settings.database_url else _start(settings)
    try:
        url = server.url if server else settings.database_url
        assert url is not None
        _prepare(settings, url, server)
        code = Supervisor(
            [*_command(ctx.obj), "worker", "--lines", *([settings.app] if settings.app else [])],
            environment={"WATCHBILL_DATABASE_URL": url, "WATCHBILL_SCHEMA": settings.schema, IS_UP: "1"},
            watched=Path.cwd() if reload else None,
        ).run()
    finally:
        if server is not None:
            server.release()
    raise typer.Exit(code)


def _settings(options: GlobalOptions, application: str | None) -> Settings:
    """With what the application's code gives, if it can be imported yet: a worker says what is wrong with it."""
    from watchbill.cli.discovery import BrokenApp, find_app, unheard

    settings = options.settings(app=application)
    try:
        with unheard():
            found, _ = find_app(settings.app)
    except BrokenApp:
        return settings
    return options.settings_of(found, app=application)


def _command(options: GlobalOptions) -> list[str]:
    """What was said on the command line wins over what the code says, so a worker must hear it there too."""
    said = {"--database-url": options.database_url, "--schema": options.schema}
    return [sys.executable, "-m", "watchbill.cli", *(w for name, value in said.items() if value for w in (name, value))]


def _start(settings: Settings) -> EmbeddedServer:
    from watchbill.postgres.embedded import EmbeddedServer, find_project

    project = find_project()
    if not (project / ".watchbill").exists():
        typer.echo("  Making a PostgreSQL for this project; that takes a moment the first time ...")
    return EmbeddedServer.acquire(project, binaries=settings.embedded_binaries)


def _prepare(settings: Settings, url: str, server: EmbeddedServer | None) -> None:
    from watchbill.postgres.address import find_address
    from watchbill.store.install import install

    status = install(url, settings.schema, settings.jcron_schema)
    if server is None:
        where = str(find_address(settings))
    else:
        how = f"started in {server.elapsed:.2f} s" if server.started else "already running"
        where = f"PostgreSQL {server.version} (embedded, {_short(server.directory)}, {how})"
    typer.echo(f"  {where}   schema {settings.schema} v{status.version}")


def _short(directory: Path) -> str:
    try:
        return f"{directory.relative_to(Path.cwd())}/"
    except ValueError:
        return f"{directory}/"
