"""`watchbill verify`: whether the tables contradict each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.arguments import find_job
from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, pluralize, print_json
from watchbill.cli.screen import paint, say, show_progress

if TYPE_CHECKING:
    from watchbill.verify.look import Finding, Verifier

verify = command_group()

PROGRESS_SECONDS = 0.5
_COLORS = {"damage": "red", "undecided": "yellow", "unchecked": "yellow"}


@verify.command("verify")
def verify_(
    ctx: typer.Context,
    full: Annotated[bool, typer.Option("--full", help="Every row, not only some by chance.")] = False,
    start: Annotated[
        str | None, typer.Option("--from", metavar="POSITION", help="Continue a full run that was interrupted.")
    ] = None,
    gentle: Annotated[bool, typer.Option("--gentle", help="Pause for longer between the looks.")] = False,
    job: Annotated[str | None, typer.Option(metavar="ID", help="Only this job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check that the tables do not contradict each other, while nodes work. Exits with 1 if there is damage.

    Without options it looks at small tables as a whole and at parts of the large ones, in less than 10 seconds. Then it
    looks again at what may be under way, after 30 seconds. Needs the owner's role, or one that sees all tenants and may
    read all tables."""
    from watchbill.postgres.connect import Connection
    from watchbill.verify.look import GENTLE_FACTOR, PAUSE_FACTOR, Verifier

    if start is not None and not full:
        raise Usage("--from continues a full run.", hint="Give --full too.")
    if job is not None and full:
        raise Usage("--job and --full exclude each other.", hint="Give one of them.")
    settings = ctx.obj.find_settings()
    url = ctx.obj.find_address(settings).url
    wanted = None if job is None else find_job(ctx.obj, job)
    with Connection.connect(url, application_name="watchbill verify", autocommit=True) as connection:
        factor = GENTLE_FACTOR if gentle else PAUSE_FACTOR
        report = _make_report() if full and not as_json else lambda verifier: None
        verifier = Verifier(connection, settings.schema, pause_factor=factor, report=report)
        if wanted is not None:
            looks = verifier.look_at_job(wanted)
        else:
            looks = verifier.look_at_everything(start) if full else verifier.look_quickly()
        found = _collect(verifier, looks, as_json=as_json)
    damage = sum(each.state == "damage" for each in found)
    if as_json:
        print_json([asdict(each) for each in found])
    elif damage:
        say(f"{pluralize(damage, 'finding')}: something has written the tables that is not Watchbill, or has a bug")
    elif any(each.state == "undecided" for each in found):
        say("no damage, as far as can be said: run it again when these transactions have ended")
    else:
        say("no damage was found")
    raise typer.Exit(1 if damage else 0)


def _collect(verifier: Verifier, looks: Iterator[Finding], *, as_json: bool) -> list[Finding]:
    found: list[Finding] = []
    try:
        for each in looks:
            found.append(each)
            if not as_json:
                show_progress()
                _print(each)
    except KeyboardInterrupt:
        show_progress()
        if verifier.position:
            say(f"to continue: watchbill verify --full --from {verifier.position}", err=True)
        raise typer.Exit(130) from None
    finally:
        show_progress()
    return found


def _make_report() -> Callable[[Verifier], None]:
    shown, pages = 0.0, 0

    def report(verifier: Verifier) -> None:
        nonlocal shown, pages
        if time.monotonic() - shown > PROGRESS_SECONDS:
            pages = pages or max(verifier.pages, 1)
            show_progress(f"{min(verifier.looked_at / pages, 1):4.0%}  {verifier.position}")
            shown = time.monotonic()

    return report


def _print(finding: Finding) -> None:
    held = f", held by {finding.held_by}" if finding.held_by else ""
    say(paint(finding.state, _COLORS[finding.state]), f"{held}  {finding.invariant}  {finding.subject}: {finding.what}")
