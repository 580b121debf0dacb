"""The screen of `watchbill top`: three lists that fill the terminal, and the keys that act on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from watchbill.cli.keyboard import Keyboard
from watchbill.cli.output import format_local_time
from watchbill.cli.spark import draw_spark
from watchbill.cli.top_snapshot import (
    Snapshot,
    describe_backlog,
    describe_endings,
    describe_queue,
    draw_load,
    read_snapshot,
    show_ago,
    show_claimed,
    show_queue,
)
from watchbill.client import job_operations
from watchbill.client.client import Client
from watchbill.errors import WatchbillError, name_commands
from watchbill.model.figures import FailureGroup, QueueFigures
from watchbill.model.job import CauseCount, NodeRecord
from watchbill.telemetry.printable import printable

REFRESH_SECONDS = 1.0
CAUSES_SECONDS = 5.0  # counting the causes of a queue reads more than figures
_REDRAW_SECONDS = 0.25
_LISTS = ("queues", "nodes", "failures")
_SORTS: dict[str, Callable[[QueueFigures], Any]] = {
    "ready": lambda q: -q.due,
    "running": lambda q: -(q.running or 0),
    "oldest": lambda q: datetime.max.replace(tzinfo=UTC) if q.oldest is None else q.oldest,
    "per second": lambda q: -q.per_second,
    "failed": lambda q: -(q.failed_share or 0),
    "name": lambda q: q.queue,
}
_HEAD_LINES = 3
_FEWEST_ROWS = 2  # of a list that is not empty
_WIDE = 130
_STATE_STYLES = {"active": "green", "draining": "yellow", "lost": "red"}


class Reader:
    """Reads in a thread of its own, so that a slow database does not keep keys from working. While it does not answer,
    `problem` says so, and the last snapshot stays."""

    def __init__(self, client: Client) -> None:
        self._client, self._asked, self._stopped = client, threading.Event(), threading.Event()
        self.snapshot: Snapshot | None = None
        self.problem: str | None = None
        self.queue: str | None = None  # whose causes are wanted
        self.causes: tuple[str, list[CauseCount]] | None = None  # of which queue, and what it waits for
        self._thread = threading.Thread(target=self._read_on, name="watchbill-top", daemon=True)

    def start(self) -> None:
        self.snapshot = self._client.run(read_snapshot())
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._asked.set()

    def ask_for_causes(self, queue: str | None) -> None:
        self.queue = queue
        if queue is not None:
            self._asked.set()

    def _read_on(self) -> None:
        until_causes = 0
        while not self._stopped.is_set():
            is_asked = self._asked.wait(REFRESH_SECONDS)
            self._asked.clear()
            try:
                if not is_asked:
                    self.snapshot = self._client.run(read_snapshot())
                until_causes -= 1
                queue = self.queue
                if queue is not None and (is_asked or until_causes <= 0):
                    self.causes = queue, self._client.run(job_operations.count_causes(queue=queue))
                    until_causes = int(CAUSES_SECONDS / REFRESH_SECONDS)
                self.problem = None
            except (WatchbillError, psycopg.Error) as error:
                self.problem = str(error).partition("\n")[0]


class Column(NamedTuple):
    name: str
    is_number: bool = False
    ratio: int | None = None  # takes the rest of the width


@dataclass
class View:
    """What the keys have chosen."""

    focus: int = 0  # place in _LISTS
    selected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LISTS, 0))
    sort: int = 0  # place in _SORTS
    words: str = ""  # only names that contain this
    is_typing: bool = False  # keys go into `words`
    is_held: bool = False
    details: object = None  # a queue's name, a node's epoch, or a failure and its tenant
    is_over: bool = False

    @property
    def list_name(self) -> str:
        return _LISTS[self.focus]

    def find(self, snapshot: Snapshot, name: str) -> list[Any]:
        """Returns the rows of a list, chosen and sorted."""
        if name == "queues":
            chosen = [queue for queue in snapshot.queues if self._has(queue.queue)]
            return sorted(chosen, key=lambda queue: (list(_SORTS.values())[self.sort](queue), queue.queue))
        if name == "nodes":
            return [node for node in snapshot.nodes if self._has(node.name)]
        return [group for group in snapshot.failures if self._has(group.type) or self._has(group.message)]

    def _has(self, text: str) -> bool:
        return self.words.casefold() in text.casefold()

    def press(self, key: str, snapshot: Snapshot) -> None:
        if self.is_typing:
            self._type(key)
        elif key == "q":
            self.is_over = True
        elif key == "p":
            self.is_held = not self.is_held
        elif self.details is not None:
            if key in ("enter", "escape", "backspace"):
                self.details = None
        else:
            self._press_in_list(key, snapshot)

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.is_typing = False
            self.words = "" if key == "escape" else self.words
        elif key == "backspace":
            self.words = self.words[:-1]
        elif len(key) == 1:
            self.words += key

    def _press_in_list(self, key: str, snapshot: Snapshot) -> None:
        rows = self.find(snapshot, self.list_name)
        place = min(self.selected[self.list_name], max(0, len(rows) - 1))
        if key in ("tab", "back tab"):
            self.focus = (self.focus + (1 if key == "tab" else -1)) % len(_LISTS)
        elif key == "s":
            self.sort = (self.sort + 1) % len(_SORTS)
        elif key == "/":
            self.is_typing = True
        elif key == "escape":
            self.words = ""
        elif key == "enter" and rows:
            self.details = identify(rows[place])
        elif steps := {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}.get(key):
            self.selected[self.list_name] = max(0, min(place + steps, len(rows) - 1))

    def find_details(self, snapshot: Snapshot) -> Any:
        """Returns the record whose details are open; None if it is gone."""
        records: tuple[Any, ...] = (*snapshot.queues, *snapshot.nodes, *snapshot.failures)
        return next((record for record in records if identify(record) == self.details), None)


def identify(record: QueueFigures | NodeRecord | FailureGroup) -> object:
    if isinstance(record, QueueFigures):
        return record.queue
    return record.epoch if isinstance(record, NodeRecord) else (record.failure, record.tenant)


def show_screen(reader: Reader) -> None:
    """Shows what the reader reads until q is pressed, or the terminal is gone."""
    console, view = Console(highlight=False), View()
    shown = reader.snapshot
    assert shown is not None
    with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        while not view.is_over:
            shown = shown if view.is_held else reader.snapshot or shown
            reader.ask_for_causes(view.details if isinstance(view.details, str) else None)
            live.update(draw(shown, view, reader, console.width, console.height), refresh=True)
            _press_keys(keyboard, view, shown)


def _press_keys(keyboard: Keyboard, view: View, shown: Snapshot) -> None:
    """Waits for a key or for the time to draw again; keys that were pressed together are drawn once."""
    until, wait = time.monotonic() + _REDRAW_SECONDS, _REDRAW_SECONDS
    try:
        while (key := keyboard.read(wait)) is not None and time.monotonic() < until:
            view.press(key, shown)
            wait = 0.0
    except EOFError:
        view.is_over = True


def draw(shown: Snapshot, view: View, reader: Reader, width: int, height: int) -> RenderableType:
    head = _draw_head(shown, view, reader)
    foot = _draw_foot(view)
    if view.details is not None:
        return Group(*head, *_draw_details(shown, view, reader), Text(""), foot)
    found = {name: view.find(shown, name) for name in _LISTS}
    rooms = share_rows({name: len(rows) for name, rows in found.items()}, height - _HEAD_LINES - 1)
    lists = [
        part for name in _LISTS for part in (_draw_list(shown, name, found[name], rooms[name], view, width), Text(""))
    ]
    return Group(*head, *lists, foot)


def share_rows(wanted: dict[str, int], lines: int) -> dict[str, int]:
    """Says how many rows of each list are drawn in so many lines, of which each list takes two for itself. Each gets
    what it wants if that is possible; otherwise queues get half of the lines, nodes and failures a quarter."""
    left = max(0, lines - 2 * len(wanted))
    rooms = {
        name: min(number, max(_FEWEST_ROWS, left // (2 if name == "queues" else 4))) for name, number in wanted.items()
    }
    for name, number in wanted.items():
        more = min(number - rooms[name], left - sum(rooms.values()))
        rooms[name] += max(0, more)
    return rooms


def _draw_head(shown: Snapshot, view: View, reader: Reader) -> list[Text]:
    state = "held, p goes on" if view.is_held else ""
    if reader.problem:
        state = f"no answer: {printable(reader.problem)}"
    first = Text.assemble(("watchbill top", "bold"), f"  {format_local_time(shown.at)}  ", (state, "bold red"))
    lines = [first, Text(describe_backlog(shown.backlog)), Text(describe_endings(shown))]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines


def _draw_foot(view: View) -> Text:
    if view.is_typing:
        return Text(f"names that contain: {view.words}▏  Enter: done  Esc: all", style="bold", no_wrap=True)
    if view.details is not None:
        return Text("Enter: back  p: hold  q: quit", style="dim", no_wrap=True)
    chosen = f" {view.words}" if view.words else ""
    sort = list(_SORTS)[view.sort]
    keys = f"q: quit  s: sort ({sort})  /: filter{chosen}  Tab: next list  Enter: details  p: hold"
    return Text(keys, style="dim", no_wrap=True, overflow="ellipsis")


def _draw_list(shown: Snapshot, name: str, rows: Sequence[Any], room: int, view: View, width: int) -> Table:
    columns = _columns(name, width)
    selected = min(view.selected[name], max(0, len(rows) - 1)) if view.list_name == name else -1
    first = max(0, min(selected - room + 1, len(rows) - room))
    more = f" ({room} of {len(rows)})" if len(rows) > room else ""
    table = Table(box=None, expand=True, padding=(0, 2, 0, 0), pad_edge=False)
    header_style = "bold cyan" if selected >= 0 else "bold"
    for column in columns:
        title = f"{column.name}{more if column is columns[0] else ''}"
        table.add_column(
            title, justify="right" if column.is_number else "left", ratio=column.ratio, no_wrap=True,
            overflow="ellipsis", header_style=header_style,
        )  # fmt: skip
    for place, record in enumerate(rows[first : first + room], start=first):
        table.add_row(*_draw_row(name, record, shown, width), style="reverse" if place == selected else "")
    if not rows:
        table.add_row(Text({"queues": "no queues", "nodes": "no node is alive", "failures": "none"}[name], style="dim"))
    return table


def _columns(name: str, width: int) -> list[Column]:
    if name == "queues":
        numbers = [Column(word, is_number=True) for word in ("ready", "running", "oldest", "per second", "failed")]
        return [Column("queue", ratio=3), *numbers, Column("due, last hour"), Column("", ratio=3)]
    if name == "nodes":
        counts = [Column(""), Column("claimed", is_number=True), Column("beat", is_number=True)]
        return [Column("node", ratio=3), Column("state"), *counts, Column("processed", is_number=True),
                Column("queues", ratio=3)]  # fmt: skip
    counts = [Column(word, is_number=True) for word in ("attempts", "dead", "last")]
    return [Column("failures of the last hour", ratio=2), *counts, Column("message", ratio=3)]


def _draw_row(name: str, record: Any, shown: Snapshot, width: int) -> list[Text]:
    is_wide = width >= _WIDE
    if name == "queues":
        _, *others = numbers = show_queue(record, shown)
        cells = [Text(printable(record.queue)), *map(Text, numbers)]
        if record.has_many_failures:
            cells[-1].stylize("red")
        assert len(others) == 4
        spark = Text(draw_spark(record.trend, 40 if is_wide else 16), style="cyan")
        return [*cells, spark, Text(printable(describe_queue(record)), style="yellow")]
    if name == "nodes":
        return _draw_node(record, is_wide)
    message = f"{record.exception}: {record.message}" if record.exception else record.message
    counts = (f"{record.attempts:,}", f"{record.dead:,}", show_ago(record.last))
    return [Text(printable(record.type)), *map(Text, counts), Text(printable(message.partition("\n")[0]))]


def _draw_node(node: NodeRecord, is_wide: bool) -> list[Text]:
    is_silent = node.lease_expires_at is not None and node.lease_expires_at < datetime.now(UTC)
    return [
        Text(printable(node.name)),
        Text("silent" if is_silent else node.state, style="red" if is_silent else _STATE_STYLES.get(node.state, "")),
        Text(draw_load(node, 20 if is_wide else 8), style="cyan"),
        Text(show_claimed(node)),
        Text(show_ago(node.heartbeat_at), style="red" if is_silent else ""),
        Text(f"{node.processed:,}"),
        Text(printable(", ".join(node.queues or ("all",)))),
    ]


def _draw_details(shown: Snapshot, view: View, reader: Reader) -> list[RenderableType]:
    record = view.find_details(shown)
    if record is None:
        return [Text(""), Text("It is no longer there.")]
    if isinstance(record, QueueFigures):
        return _draw_queue_details(record, reader.causes)
    if isinstance(record, NodeRecord):
        return [Text(""), _draw_facts(_node_facts(record))]
    return [Text(""), _draw_facts(_failure_facts(record))]


def _draw_queue_details(queue: QueueFigures, causes: tuple[str, list[CauseCount]] | None) -> list[RenderableType]:
    facts = {
        "queue": queue.queue, "serving nodes": str(queue.nodes), "limit": "" if queue.max is None else f"{queue.max:,}",
        "notice": describe_queue(queue), "due, last hour": draw_spark(queue.trend, 60),
    }  # fmt: skip
    lines: list[RenderableType] = [Text(""), _draw_facts(facts), Text(""), Text("Why its jobs wait", style="bold")]
    if causes is None or causes[0] != queue.queue:
        return [*lines, Text("counting ...", style="dim")]
    if not causes[1]:
        return [*lines, Text("It has no unfinished jobs.")]
    for count in causes[1]:
        number = f"{'≈ ' if count.is_estimate else ''}{count.jobs:,}"
        lines += [Text.assemble((f"{number:>12}  {count.cause}  ", "bold"), printable(count.reason))]
        lines += [Text(f"{'':14}{printable(name_commands(command))}", style="dim") for command in count.way_out]
    return lines


def _node_facts(node: NodeRecord) -> dict[str, str]:
    return {
        "node": node.name, "app": node.app or "", "state": node.state,
        "host": f"{node.host or ''} pid {node.pid or ''}",
        "started": format_local_time(node.started_at), "last beat": show_ago(node.heartbeat_at),
        "lease until": format_local_time(node.lease_expires_at), "claimed": show_claimed(node),
        "processed": f"{node.processed:,}", "queues": ", ".join(node.queues or ("all",)),
        "types": ", ".join(node.types or ()), "leads": ", ".join(node.leads),
        "labels": ", ".join(f"{name}={value}" for name, value in node.labels.items()),
    }  # fmt: skip


def _failure_facts(group: FailureGroup) -> dict[str, str]:
    where = f"failure:{group.failure} state:dead"
    return {
        "type": group.type, "tenant": group.tenant, "exception": group.exception or "", "message": group.message,
        "first": format_local_time(group.first), "last": format_local_time(group.last),
        "attempts": f"{group.attempts:,}", "dead": f"{group.dead:,}",
        "example": name_commands(f"watchbill jobs show {group.example}"),
        "run again": name_commands(f"watchbill jobs retry --where '{where}'") if group.dead else "",
    }  # fmt: skip


def _draw_facts(facts: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in facts.items():
        if value:
            table.add_row(Text(name, style="bold"), Text(printable(value)))
    return table
