"""Code that all commands share: reads the global options, and prints tables for people, for pipes and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer

from watchbill.cli.joined import joining
from watchbill.cli.screen import Painted, is_terminal, paint, say, say_lines, wrap_text
from watchbill.cli.table import print_columns
from watchbill.errors import WatchbillError, name_commands
from watchbill.model.durations import show_duration
from watchbill.telemetry.printable import printable

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.client.client import Client
    from watchbill.client.operations import Operation
    from watchbill.postgres.address import Address
    from watchbill.settings import Settings

R = TypeVar("R")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Usage(WatchbillError):
    """An argument or option is invalid."""

    exit_code = 2


@dataclass(frozen=True)
class GlobalOptions:
    """The options that stand before the command, such as --schema. Every command finds them in its context's `obj`."""

    database_url: str | None
    schema: str | None
    given: Mapping[str, Any] = field(default_factory=dict)  # settings that come from a framework, such as Django
    cell: str | None = None
    reads: bool = False  # the command changes nothing, so it may use read_url

    def load_settings(self, application: App | None = None, **arguments: Any) -> Settings:
        """Reads the settings. Arguments in the application's code override everything but the command line."""
        from watchbill.settings import Settings

        given = {**self.given, **(application.given if application else {})}
        options = {"database_url": self.database_url, "schema": self.schema, "cell": self.cell, **arguments}
        chosen = {name: value for name, value in options.items() if value is not None}
        origins = {name: origin for name, origin in given.get("origins", {}).items() if name not in chosen}
        return Settings.load(**{**given, **chosen, "origins": origins})

    def find_settings(self) -> Settings:
        """Returns the settings of the App in this directory, so that every command uses the same database as its
        worker."""
        settings = self.load_settings()
        if self.database_url and self.schema:
            return settings
        from watchbill.cli.discovery import find_app_or_none

        found = find_app_or_none(settings.app)
        return settings if found is None else self.load_settings(found[0])

    def find_address(self, settings: Settings) -> Address:
        from watchbill.postgres.address import find_address

        self.check_cell(settings)
        return find_address(settings)

    def check_cell(self, settings: Settings) -> None:
        """Refuses a command that may go to several cells and names none."""
        if settings.cells and settings.cell is None and self.database_url is None:
            names = ", ".join(cell.name for cell in settings.cells)
            raise Usage("This project has several cells, and the command names none.", hint=f"Add --cell: {names}.")

    def find_direct_address(self) -> tuple[Settings, Address]:
        """Returns the settings and the address of the server itself: listen_url, if it is set. A migration cannot use a
        pooler, because it may need one session for several transactions."""
        from watchbill.postgres.address import Address

        settings = self.find_settings()
        self.check_cell(settings)
        if settings.listen_url:
            return settings, Address(settings.listen_url, settings.origins["listen_url"])
        return settings, self.find_address(settings)

    def run(self, operation: Operation[R]) -> R:
        """Runs an operation of the client on the database of the App in this directory."""
        with self.open_client() as client:
            return client.run(operation)

    def open_client(self) -> Client:
        """Returns a client for the database of the App in this directory. The caller closes it. A command that only
        reads gets one for the standby of read_url, if that answers."""
        settings = self.find_settings()
        if self.reads and settings.read_url and settings.read_url != self.database_url:
            from watchbill.cli.replica import is_usable

            replica = _make_client(settings.read_url, settings)
            if is_usable(replica):
                return replica
            replica.close()
        return _make_client(self.find_address(settings).url, settings)

    def shorten_ids(self, ids: Collection[UUID]) -> Mapping[UUID, str]:
        """Returns what a person has to type of each job's id. A pipe gets whole ids, because scripts keep them."""
        if not is_terminal() or not ids:
            return {each: str(each) for each in ids}
        from watchbill.client import job_operations

        return self.run(job_operations.shorten_ids(ids))

    def explain_empty(self, empty: str) -> str:
        """Returns what to say of an empty list: `empty`, unless this login would see nothing anyway."""
        from watchbill.client import job_operations

        caller = self.run(job_operations.describe_blind_caller())
        if caller is None:
            return empty
        return f"Nothing is shown: {caller}. Name one with --tenant, or in the address of the database."


def _make_client(url: str, settings: Settings) -> Client:
    from watchbill.client.client import Client

    return Client(url, schema=settings.schema, pool_size=1, timeout=settings.client_timeout)


def pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_local_time(moment: datetime | None) -> str:
    """Formats a moment in local time: on a terminal without the date if it is today, in a pipe always in full."""
    return "" if moment is None else _format_time(moment.astimezone())


def format_zone_time(moment: datetime | None, zone: tzinfo) -> str:
    """Formats a moment as the clock of a zone shows it, with the distance from UTC if that is not the local one."""
    if moment is None:
        return ""
    there = moment.astimezone(zone)
    offset = there.isoformat()[-6:] if there.utcoffset() != moment.astimezone().utcoffset() else ""
    return f"{_format_time(there)}{offset}"


def _format_time(moment: datetime) -> str:
    if not is_terminal():
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    now = datetime.now(moment.tzinfo)
    if moment.date() == now.date():
        return f"{moment:%H:%M:%S}"
    return f"{moment:%b %d %H:%M}" if moment.year == now.year else f"{moment:%Y-%m-%d}"


def format_elapsed(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def show_age(moment: datetime | None) -> str:
    """Returns how long ago a moment was, in one unit: `41 s`, `7 min`, `3 h`, `12 d`. Empty for a future moment."""
    if moment is None or (seconds := (datetime.now(UTC) - moment).total_seconds()) < 0:
        return ""
    for unit, size, most in (("s", 1, 120), ("min", 60, 120 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def print_json(data: object) -> None:
    """Prints data as JSON, with instants in UTC as in RFC 3339, and durations in seconds."""
    if (joined := joining.get()) is not None:
        joined.add_data(data)
        return
    say_lines(json.dumps(data, indent=2, default=_as_json, ensure_ascii=False))


def show_json(value: object) -> str:
    """Returns a payload or result as JSON on one line."""
    return json.dumps(value, default=_as_json, ensure_ascii=False)


def _as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.total_seconds() if isinstance(value, timedelta) else str(value)


def print_facts(facts: Mapping[str, object]) -> None:
    """Prints a name and a value per line; a long line is wrapped between words. Only a Painted value has several."""
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = value.splitlines() if isinstance(value, Painted) else [str(value)]
        first, *more = [part for line in lines for part in _wrap_line(line, width + 2)]
        say(paint(name.ljust(width), bold=True), "  ", first)
        for line in more:
            say(" " * (width + 2), line)


def _wrap_line(line: str, taken: int) -> list[str]:
    """Wraps a line; what follows is indented as its beginning, as in a traceback."""
    return wrap_text(line, taken=taken, more=line[: len(line) - len(line.lstrip())])


def print_records(
    records: Sequence[Any],
    columns: Sequence[str],
    row: Callable[[Any], Sequence[object]],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Prints dataclass instances as a table, or all of their fields as JSON. If there are none, prints `empty`."""
    if as_json:
        print_json([asdict(record) for record in records])
    elif records:
        print_table(columns, map(row, records))
    elif (joined := joining.get()) is not None:
        joined.empty = name_commands(empty)
    else:
        say(name_commands(empty), err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    cells = [[_show_cell(value) for value in row] for row in rows]
    if (joined := joining.get()) is not None:
        joined.add_table(columns, cells)
    else:
        print_columns(columns, cells)


def _show_cell(value: object) -> str:
    if isinstance(value, datetime):
        return format_local_time(value)
    if isinstance(value, timedelta):
        return show_duration(value)
    return "" if value is None else printable(str(value))
