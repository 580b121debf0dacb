"""`foliot up`: development. A PostgreSQL of our own unless a URL is set, the schema, and a worker that reloads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foliot.cli.output import command_group
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
    settings = ctx.obj.settings(app=application)
    server = None if settings.database_url else _start(settings)
    try:
        url = server.url if server else settings.database_url
        assert url is not None
        _prepare(settings, url, server)
        code = Supervisor(
            [sys.executable, "-m", "foliot.cli", "worker", "--lines", *([settings.app] if settings.app else [])],
            environment={"FOLIOT_DATABASE_URL": url, "FOLIOT_SCHEMA": settings.schema},
            watched=Path.cwd() if reload else None,
        ).run()
    finally:
        if server is not None:
            server.release()
    raise typer.Exit(code)


def _start(settings: Settings) -> EmbeddedServer:
    from foliot.postgres.embedded import EmbeddedServer, find_project

    return EmbeddedServer.acquire(find_project(), binaries=settings.embedded_binaries)


def _prepare(settings: Settings, url: str, server: EmbeddedServer | None) -> None:
    from foliot.store.install import install

    status = install(url, settings.schema, settings.jcron_schema)
    where = "PostgreSQL at the URL that was given"
    if server is not None:
        how = f"started in {server.elapsed:.2f} s" if server.started else "already running"
        where = f"PostgreSQL {server.version} (embedded, {_short(server.directory)}, {how})"
    typer.echo(f"  {where}   schema {settings.schema} v{status.version}")


def _short(directory: Path) -> str:
    try:
        return f"{directory.relative_to(Path.cwd())}/"
    except ValueError:
        return f"{directory}/"
