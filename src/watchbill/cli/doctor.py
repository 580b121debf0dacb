"""`watchbill doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.output import GlobalOptions, command_group, print_json

if TYPE_CHECKING:
    from watchbill.postgres.checks import Finding

app = command_group()

_STYLE = {
    "ok": typer.colors.GREEN,
    "note": typer.colors.YELLOW,
    "wrong": typer.colors.RED,
    "skipped": typer.colors.BRIGHT_BLACK,
}


@app.command()
def doctor(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Say what is wrong, and how to put it right. Looks at all that Watchbill stands on; exit code 1: something is."""
    from watchbill.postgres.checks import examine
    from watchbill.postgres.migrate import Source

    options: GlobalOptions = ctx.obj
    findings = []
    for finding in examine(Source.of_package("watchbill.store"), options.located):
        findings.append(finding)
        if not as_json:
            _print_line(finding)
    if as_json:
        print_json([vars(finding) for finding in findings])
    raise typer.Exit(1 if any(finding.state == "wrong" for finding in findings) else 0)


def _print_line(finding: Finding) -> None:
    state = typer.style(finding.state.ljust(7), fg=_STYLE[finding.state])
    typer.echo(f"{state}  {finding.check.ljust(13)}  {finding.says}")
    for line in finding.hint.splitlines():
        typer.echo(f"{' ' * 24}{line}")
