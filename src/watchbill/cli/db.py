"""`watchbill db`: the schema and its migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.output import GlobalOptions, command_group, print_facts, print_json, print_table

if TYPE_CHECKING:
    from watchbill.postgres.address import Address
    from watchbill.postgres.migrate import Source, Status
    from watchbill.settings import Settings

app = command_group("Make, upgrade and inspect the schema. Alone: status.")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
_EXIT = {"ready": 0, "newer": 0, "too old": 1, "too new": 1, "missing": 3}


@app.callback(invoke_without_command=True)
def db(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        status(ctx)


@app.command()
def migrate(ctx: typer.Context) -> None:
    """Bring the schema to the newest version. Safe to run from many places at once, and again after a kill."""
    from watchbill.store.install import install

    settings, address = _where(ctx.obj)
    result = install(address.url, settings.schema, settings.jcron_schema, report=typer.echo)
    typer.echo(f"Schema {result.schema} is at version {result.version} of {result.source.newest}: {result.verdict}.")


@app.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show what has been applied and what is missing. Exit code 1: not usable as it is, 3: no schema."""
    from watchbill.postgres.migrate import status as read

    settings, address = _where(ctx.obj)
    found = read(address.url, settings.schema, _source())
    if as_json:
        print_json(_as_data(found))
    else:
        _print_status(found, address)
    raise typer.Exit(_EXIT[found.verdict])


@app.command()
def sql(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="From an empty database; needs no connection.")] = False,
) -> None:
    """Print what `migrate` would run, as a script for psql."""
    from watchbill.store.install import install_script

    if everything:
        settings, url = ctx.obj.located(), None
    else:
        settings, address = _where(ctx.obj)
        url = address.url
    typer.echo(install_script(url, settings.schema, settings.jcron_schema), nl=False)


@app.command()
def adopt(ctx: typer.Context) -> None:
    """Tell a restored database that it goes on on another server: numbers issued on the old one are stepped over.

    Needed only where the server hides its timeline, as some managed ones do; others notice by themselves.
    """
    from psycopg.sql import SQL, Identifier

    from watchbill.postgres.connect import Connection

    settings, address = _where(ctx.obj)
    raise_generation = SQL("UPDATE {} SET generation = generation + 1 RETURNING generation")
    with Connection.connect(address.url, application_name="watchbill adopt") as connection:
        [(generation,)] = connection.execute(raise_generation.format(Identifier(settings.schema, "installation")))
    typer.echo(f"Schema {settings.schema} goes on here as generation {generation}.")


def _where(options: GlobalOptions) -> tuple[Settings, Address]:
    """The direct address if there is one: what runs outside a transaction needs a session that stays the same."""
    from watchbill.postgres.address import Address

    settings = options.located()
    if settings.listen_url:
        return settings, Address(settings.listen_url, settings.origins["listen_url"])
    return settings, options.address(settings)


def _source() -> Source:
    from watchbill.postgres.migrate import Source

    return Source.of_package("watchbill.store")


def _print_status(found: Status, address: Address) -> None:
    facts = {
        "database": address,
        "schema": found.schema,
        "version": f"{found.version} of {found.source.newest}: {found.verdict}",
        "functions": _functions_line(found),
    }
    print_facts(facts)
    if found.applied:
        rows = [
            (row.version, row.name, f"{row.applied_at:%Y-%m-%d %H:%M %Z}", row.watchbill_version) for row in found.applied
        ]
        print_table(("version", "name", "applied", "by Watchbill"), rows)
    for migration in found.pending:
        typer.echo(f"missing: {migration.name}")
    if _EXIT[found.verdict]:
        typer.echo("Install a newer Watchbill." if found.verdict == "too new" else "Run `watchbill db migrate`.")


def _functions_line(found: Status) -> str:
    if found.functions is None:
        return "none"
    state = "outdated" if found.functions_outdated else "current"
    return f"{state}, applied {found.functions.applied_at:%Y-%m-%d %H:%M %Z} by Watchbill {found.functions.watchbill_version}"


def _as_data(found: Status) -> dict[str, object]:
    return {
        "schema": found.schema,
        "verdict": found.verdict,
        "version": found.version,
        "newest": found.source.newest,
        "oldest_compatible": found.oldest_compatible,
        "functions_outdated": found.functions_outdated,
        "applied": [vars(row) for row in found.applied],
        "pending": [migration.name for migration in found.pending],
    }
