"""`watchbill top`: what runs, waits and fails, each second. It reads the small tables of figures and counts no jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from watchbill.cli.help import command_group
from watchbill.cli.keyboard import HAS_KEYS
from watchbill.cli.output import AsJson, GlobalOptions, print_json, print_table
from watchbill.cli.screen import is_terminal, say
from watchbill.cli.spark import draw_spark
from watchbill.cli.table import LongName, Wrapped
from watchbill.cli.top_snapshot import (
    Snapshot,
    describe_backlog,
    describe_endings,
    describe_queue,
    read_snapshot,
    show_ago,
    show_claimed,
    show_queue,
)
from watchbill.model.figures import OUTCOMES

_SPARK_WIDTH = 20

app = command_group()


@app.command("top", reads=True)
def top(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and stop. A pipe always gets it once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what runs, waits and fails, each second: queues, nodes and groups of failures. q ends it."""
    options: GlobalOptions = ctx.obj
    if as_json or once or not (HAS_KEYS and is_terminal() and sys.stdin.isatty()):
        found = options.run(read_snapshot())
        print_json(make_data(found)) if as_json else print_snapshot(found)
        return
    from watchbill.cli.top_screen import Reader, show_screen

    with options.open_client() as client:
        reader = Reader(client)
        reader.start()
        try:
            show_screen(reader)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        finally:
            reader.stop()


def make_data(found: Snapshot) -> dict[str, Any]:
    hour = {} if found.hour is None else {name: getattr(found.hour, name) for name in OUTCOMES}
    return {
        "at": found.at, "backlog": None if found.backlog is None else asdict(found.backlog),
        "per_second": round(found.per_second, 3), "last_hour": hour,
        "queues": [
            asdict(queue) | {"per_second": round(found.compute_rate(queue.ended_lately), 3)} for queue in found.queues
        ],
        "nodes": [asdict(node) for node in found.nodes], "failures": [asdict(group) for group in found.failures],
    }  # fmt: skip


def print_snapshot(found: Snapshot) -> None:
    for line in (describe_backlog(found.backlog), describe_endings(found)):
        say(line)
    if found.queues:
        chart = ("due, last hour",) if is_terminal() else ()
        _print_list(
            (LongName("queue"), "ready", "running", "oldest", "per second", "failed", *chart, Wrapped("state")),
            found.queues,
            lambda q: (
                q.queue,
                *show_queue(q, found),
                *(draw_spark(q.trend, _SPARK_WIDTH) for _ in chart),
                describe_queue(q),
            ),
        )
    if found.nodes:
        _print_list(
            (LongName("node"), "state", "claimed", "beat", "processed", Wrapped("queues")),
            found.nodes,
            lambda n: (n.name, n.state, show_claimed(n), show_ago(n.heartbeat_at), f"{n.processed:,}",
                       ", ".join(n.queues or ())),
        )  # fmt: skip
    if found.failures:
        _print_list(
            (LongName("failing type"), "attempts", "dead", "last", Wrapped("message")),
            found.failures,
            lambda g: (g.type, f"{g.attempts:,}", f"{g.dead:,}", show_ago(g.last), g.message.partition("\n")[0]),
        )


def _print_list(columns: tuple[str, ...], records: list[Any], row: Callable[[Any], tuple[object, ...]]) -> None:
    say("")
    print_table(columns, map(row, records))
