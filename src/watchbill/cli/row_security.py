"""`watchbill db tenants`: row security by tenant."""

from __future__ import annotations

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, pluralize, print_json
from watchbill.cli.screen import say

app = command_group("Let the database keep the rows of tenants apart. Without a command: status.")


@app.command()
def enable(ctx: typer.Context) -> None:
    """Switch row security on. Each caller then sees and writes only the rows of its tenant. Safe to run again."""
    from watchbill.store.tenants import enable_tenants

    settings, address = ctx.obj.find_direct_address()
    count = enable_tenants(address.url, settings.schema)
    say(
        f"Row security is on: {pluralize(count, 'table')} protected, partitions among them."
        if count
        else "Row security was on already."
    )


@app.command()
def disable(ctx: typer.Context) -> None:
    """Switch row security off. Every caller then sees the rows of all tenants."""
    from watchbill.store.tenants import disable_tenants

    settings, address = ctx.obj.find_direct_address()
    count = disable_tenants(address.url, settings.schema)
    say(f"Row security is off: {pluralize(count, 'table')} open to all tenants.")


@app.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Say whether row security is on. Exits with 1 if it is incomplete."""
    from watchbill.store.tenants import read_row_security

    settings, address = ctx.obj.find_direct_address()
    found = read_row_security(address.url, settings.schema)
    if as_json:
        print_json({"state": found.state, **vars(found)})
    else:
        say(f"Row security is {found.state}: it protects {pluralize(len(found.protected), 'table')}.")
        if found.state == "incomplete":
            say(f"Not protected: {', '.join(found.unprotected)}. Run `watchbill db tenants enable`.")
    raise typer.Exit(1 if found.state == "incomplete" else 0)
