"""`foliot up`: development. A PostgreSQL of our own unless a URL is set, the schema, and a worker that reloads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foliot.cli.lines import IS_UP
from foliot.cli.output import GlobalOptions, command_group
from foliot.cli.supervisor import Supervisor

if TYPE_CHECKING:
    from foliot.postgres.embedded import EmbeddedServer
    from foliot.settings import Settings

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
            environment={"FOLIOT_DATABASE_URL": url, "FOLIOT_SCHEMA": settings.schema, IS_UP: "1"},
            watched=Path.cwd() if reload else None,
        ).run()
    finally:
        if server is not None:
            server.release()
    raise typer.Exit(code)


def _settings(options: GlobalOptions, application: str | None) -> Settings:
    """With what the application's code gives, if it can be imported yet: a worker says what is wrong with it."""
    from foliot.cli.discovery import BrokenApp, find_app, unheard

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
    return [sys.executable, "-m", "foliot.cli", *(w for name, value in said.items() if value for w in (name, value))]


def _start(settings: Settings) -> EmbeddedServer:
    from foliot.postgres.embedded import EmbeddedServer, find_project

    project = find_project()
    if not (project / ".foliot").exists():
        typer.echo("  Making a PostgreSQL for this project; that takes a moment the first time ...")
    return EmbeddedServer.acquire(project, binaries=settings.embedded_binaries)


def _prepare(settings: Settings, url: str, server: EmbeddedServer | None) -> None:
    from foliot.postgres.address import find_address
    from foliot.store.install import install

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
