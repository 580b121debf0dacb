"""`watchbill metrics` and `watchbill health`: figures for Prometheus, and whether a worker lives and is ready."""

from __future__ import annotations

import http.client
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from watchbill.cli.arguments import complete_node
from watchbill.cli.help import command_group
from watchbill.cli.output import Usage
from watchbill.cli.screen import say, say_lines
from watchbill.client import job_operations
from watchbill.client.metrics import read_metrics
from watchbill.settings import Settings

REQUEST_SECONDS = 5.0

metrics = command_group()
health = command_group("Ask whether a worker lives, or is ready for work. Exits with 1 if not.")


@metrics.command("metrics", reads=True)
def print_metrics(ctx: typer.Context) -> None:
    """Print metrics of the installation, for Prometheus. They come from small tables, nothing is counted."""
    say_lines(ctx.obj.run(read_metrics()).rstrip("\n"))


Node = Annotated[
    str | None,
    typer.Option(help="Ask the database about the node with this name instead.", autocompletion=complete_node),
]
Port = Annotated[int | None, typer.Option(help="The worker's health_port, if it is not that of the settings.")]


@health.command()
def live(ctx: typer.Context, port: Port = None, node: Node = None) -> None:
    """Ask whether the worker's process lives: its event loop has turned within stuck_after."""
    _tell(ctx, "live", port, node)


@health.command()
def ready(ctx: typer.Context, port: Port = None, node: Node = None) -> None:
    """Ask whether the worker is ready for work: registered, its lease holds, and it does not drain."""
    _tell(ctx, "ready", port, node)


def _tell(ctx: typer.Context, question: Literal["live", "ready"], port: int | None, node: str | None) -> None:
    is_well, answer = _ask_process(question, port) if node is None else _ask_database(ctx, question, node)
    say(answer, err=not is_well)
    raise typer.Exit(0 if is_well else 1)


def _ask_process(question: str, port: int | None) -> tuple[bool, str]:
    settings = Settings.load()
    port = port or settings.health_port
    if port is None:
        raise Usage("There is no health_port.", hint="Set health_port for the worker and here, or give --node NAME.")
    connection = http.client.HTTPConnection(settings.health_host, port, timeout=REQUEST_SECONDS)
    try:
        connection.request("GET", f"/health/{question}")
        reply = connection.getresponse()
        return reply.status == http.HTTPStatus.OK, reply.read().decode().strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"no worker answers at {settings.health_host}, port {port}: {error}"
    finally:
        connection.close()


def _ask_database(ctx: typer.Context, question: str, name: str) -> tuple[bool, str]:
    found = next((each for each in ctx.obj.run(job_operations.nodes()) if each.name == name), None)
    if found is None or found.lease_expires_at is None:
        return False, f"no living node is named {name}"
    if found.lease_expires_at < datetime.now(UTC):
        return False, f"the lease of {name} has expired"
    if question == "ready" and found.state != "active":
        return False, f"{name} is {found.state}"
    return True, "ok"
