"""`watchbill cron`: what a pattern means, and when it fires."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from watchbill.cli.output import command_group, print_json
from watchbill.errors import WatchbillError

if TYPE_CHECKING:
    from watchbill.cron import Cron

app = command_group("Try patterns: next, prev, between, explain, check, preview.")

Pattern = Annotated[str, typer.Argument(help="A pattern, in quotes: '0 9 * * MON-FRI'.")]
Zone = Annotated[str, typer.Option("--tz", help="The zone of the schedule.")]
Dst = Annotated[Literal["default", "skip", "once", "both"], typer.Option(help="What happens when the clocks change.")]
Count = Annotated[int, typer.Option("-n", "--count", min=1, max=100_000, help="How many.")]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON list of instants in UTC.")]


class Usage(WatchbillError):
    exit_code = 2


class TakesPattern(TyperCommand):
    """A command that knows why it got more arguments than it takes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # click's, or that of the copy that newer versions of Typer have
            if "extra argument" in getattr(error, "message", ""):
                error.message += (  # type: ignore[attr-defined]
                    "\nA pattern is one argument: without quotes the shell takes it apart,"
                    " and puts the names of files in place of its stars."
                )
            raise


@app.command("next", cls=TakesPattern)
def next_(
    pattern: Pattern,
    tz: Zone = "UTC",
    after: Annotated[str | None, typer.Option(help="After this instant; now if not given.")] = None,
    count: Count = 1,
    dst: Dst = "default",
    as_json: AsJson = False,
) -> None:
    """Show when a pattern fires next."""
    cron = _cron(pattern, tz, dst)
    print_instants(cron.upcoming(count, instant(after, tz)), as_json=as_json)


@app.command(cls=TakesPattern)
def prev(
    pattern: Pattern,
    tz: Zone = "UTC",
    before: Annotated[str | None, typer.Option(help="Before this instant; now if not given.")] = None,
    count: Count = 1,
    dst: Dst = "default",
    as_json: AsJson = False,
) -> None:
    """Show when a pattern fired last."""
    cron, moment = _cron(pattern, tz, dst), instant(before, tz)
    found: list[datetime] = []
    while len(found) < count and (earlier := cron.prev(moment)) is not None:
        found.append(earlier)
        moment = earlier
    print_instants(found, as_json=as_json)


@app.command(cls=TakesPattern)
def between(
    pattern: Pattern,
    start: Annotated[str, typer.Argument(help="From this instant on.")],
    end: Annotated[str, typer.Argument(help="Before this instant.")],
    tz: Zone = "UTC",
    dst: Dst = "default",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Show every time a pattern fires between two instants."""
    from itertools import islice

    runs = _cron(pattern, tz, dst).between(instant(start, tz), instant(end, tz))
    found = list(islice(runs, limit))
    print_instants(found, as_json=as_json)
    if next(runs, None) is not None:
        typer.echo(f"and more: these are the first {limit:,}, as --limit says", err=True)


@app.command(cls=TakesPattern)
def explain(pattern: Pattern, tz: Zone = "UTC", dst: Dst = "default") -> None:
    """Say in English what a pattern means."""
    typer.echo(_cron(pattern, tz, dst).explain())


@app.command(cls=TakesPattern)
def check(pattern: Pattern, tz: Zone = "UTC") -> None:
    """Say whether a text is a pattern, and if not, what is wrong where. Exit code 1: it is none, or it never fires."""
    from watchbill.cron import InvalidPattern

    try:
        cron = _cron(pattern, tz, "default")
    except InvalidPattern as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if not cron.at_start and cron.next(datetime.now(UTC)) is None:
        typer.echo(f"valid, but it never fires again: {cron.explain()}", err=True)
        raise typer.Exit(1)
    typer.echo(f"valid: {cron.explain()} ({cron.frequency()})")


@app.command(cls=TakesPattern)
def preview(
    pattern: Pattern,
    tz: Zone = "UTC",
    after: Annotated[str | None, typer.Option(help="The month of this instant first.")] = None,
    months: Annotated[int, typer.Option(min=1, max=24, help="How many months.")] = 3,
    dst: Dst = "default",
) -> None:
    """Draw the coming runs on a calendar, and mark the days on which the clocks change."""
    from watchbill.cli.calendar import draw

    cron = _cron(pattern, tz, dst)
    typer.echo(cron.explain())
    typer.echo(draw(cron, instant(after, tz), months))


def _cron(pattern: str, tz: str, dst: Literal["default", "skip", "once", "both"]) -> Cron:
    from watchbill.cron import Cron

    return Cron(pattern, tz, dst)


def instant(text: str | None, tz: str) -> datetime:
    """An ISO instant; without an offset it is meant in the schedule's zone."""
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(
            f"{text!r} is no instant.", hint="Write 2026-03-29, 2026-03-29T02:30 or 2026-03-29T02:30+01:00."
        ) from None
    if moment.tzinfo is not None:
        return moment
    from watchbill.cron.extensions import check_zone
    from watchbill.cron.tokens import Token
    from watchbill.cron.zones import load_zone

    check_zone(Token(tz, 0, tz))
    return moment.replace(tzinfo=load_zone(tz).info)


def print_instants(found: list[datetime], *, as_json: bool) -> None:
    if as_json:
        print_json([f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for moment in found])
        return
    for moment in found:
        typer.echo(f"{moment.isoformat(sep=' ')}  {moment:%a}  {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
    if not found:
        typer.echo("never", err=True)
        raise typer.Exit(1)
