"""`watchbill db`: the schema and its migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, print_facts, print_json, print_table
from watchbill.cli.roles import app as roles
from watchbill.cli.row_security import app as row_security
from watchbill.cli.screen import print_script, say
from watchbill.errors import SchemaError, name_commands, name_quoted_commands

if TYPE_CHECKING:
    from watchbill.postgres.address import Address
    from watchbill.postgres.migrate import Status

app = command_group("Create, upgrade and inspect the schema. Without a command: status.")

app.add_typer(roles, name="roles")
app.add_typer(row_security, name="tenants")

_EXIT_CODES = {"ready": 0, "newer": 0, "too old": 1, "too new": 1, "missing": 3}


@app.command(over_cells="apart")
def migrate(ctx: typer.Context) -> None:
    """Bring the schema to the newest version. Safe to run in several places at once, and again after it was killed."""
    from watchbill.store.install import install
    from watchbill.store.made_by_tests import describe_test_schema, is_made_by_tests

    settings, address = ctx.obj.find_direct_address()
    result = install(address.url, settings.schema, settings.jcron_schema, report=say)
    say(f"Schema {result.schema} is at version {result.version} of {result.source.newest}: {result.verdict}.")
    if is_made_by_tests(address.url, settings.schema):
        say(name_quoted_commands(describe_test_schema(settings.schema)))


@app.command(over_cells="apart")
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show what has been applied and what is missing. Exits with 1 if the schema cannot be used, 3 if it is missing."""
    from watchbill.postgres.migrate import Source
    from watchbill.postgres.migrate import status as read_status
    from watchbill.store.made_by_tests import describe_test_schema, is_made_by_tests

    settings, address = ctx.obj.find_direct_address()
    found = read_status(address.url, settings.schema, Source.of_package("watchbill.store"))
    is_test = found.verdict != "missing" and is_made_by_tests(address.url, settings.schema)
    if as_json:
        print_json(_as_data(found) | {"test": is_test})
    else:
        _print_status(found, address)
        if is_test:
            say(name_quoted_commands(describe_test_schema(settings.schema)))
    raise typer.Exit(_EXIT_CODES[found.verdict])


@app.command()
def sql(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="For an empty database; needs no connection.")] = False,
) -> None:
    """Print what `migrate` would run, as a script for psql."""
    from watchbill.store.install import install_script

    if everything:
        settings, url = ctx.obj.find_settings(), None
    else:
        settings, address = ctx.obj.find_direct_address()
        url = address.url
    print_script(install_script(url, settings.schema, settings.jcron_schema))


@app.command()
def install(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="FACADE", help="jcron, jobforge, jobsync or seesaw.")],
    schema: Annotated[str | None, typer.Option(help="Where to create it.", metavar="NAME")] = None,
    prefix: Annotated[str | None, typer.Option(help="How its names begin.", metavar="TEXT")] = None,
) -> None:
    """Create the views and functions of another system on this schema. Safe to run again.

    An option --schema behind `install` names the schema of the facade, one before `db` that of Watchbill.
    """
    from watchbill.store.facades import Facade, install_facade

    settings, address = ctx.obj.find_direct_address()
    install_facade(address.url, Facade.choose(settings.schema, name, schema, prefix), report=say)


@app.command()
def uninstall(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="FACADE", help="jcron, jobforge, jobsync or seesaw.")],
) -> None:
    """Remove the views and functions that `install` has created. Jobs and schedules stay."""
    from watchbill.store.facades import uninstall_facade

    settings, address = ctx.obj.find_direct_address()
    uninstall_facade(address.url, settings.schema, name, report=say)


@app.command()
def keep(ctx: typer.Context) -> None:
    """Turn a schema that tests have made into a real one. Its jobs stay, its clock is reset, and tests refuse it."""
    from watchbill.store.made_by_tests import keep_schema

    settings, address = ctx.obj.find_direct_address()
    if keep_schema(address.url, settings.schema):
        say(f"Schema {settings.schema} is a real one now: no test run uses it any more.")
    else:
        say(f"Schema {settings.schema} is a real one already: no test run has made it.")


@app.command()
def adopt(ctx: typer.Context) -> None:
    """Run once after loading only the data of a backup into existing tables. Skips fencing numbers issued before.

    Watchbill notices every other restore by itself: other tables, another database, or a server that was restarted.
    """
    from psycopg.sql import SQL, Identifier

    from watchbill.postgres.connect import Connection

    settings, address = ctx.obj.find_direct_address()
    raise_generation = SQL("UPDATE {} SET generation = generation + 1 RETURNING generation")
    with Connection.connect(address.url, application_name="watchbill adopt") as connection:
        [(generation,)] = connection.execute(raise_generation.format(Identifier(settings.schema, "installation")))
    say(f"Schema {settings.schema} continues here as generation {generation}.")


def _print_status(found: Status, address: Address) -> None:
    print_facts(
        {
            "database": address,
            "schema": found.schema,
            "version": f"{found.version} of {found.source.newest}: {found.verdict}",
            "functions": _describe_functions(found),
            **({"server": "a standby, which takes no changes; migrate on the primary"} if found.is_standby else {}),
        }
    )
    if found.applied:
        rows = [(m.version, m.name, f"{m.applied_at:%Y-%m-%d %H:%M %Z}", m.watchbill_version) for m in found.applied]
        print_table(("version", "name", "applied", "by Watchbill"), rows)
    for migration in found.pending:
        say(f"missing: {migration.name}")
    if found.verdict == "too old":
        try:
            found.ensure_unchanged()
        except SchemaError as error:
            say(str(error))
            return
    if _EXIT_CODES[found.verdict]:
        hint = "Install a newer Watchbill." if found.verdict == "too new" else "Run `watchbill db migrate`."
        say(name_commands(hint))


def _describe_functions(found: Status) -> str:
    applied = found.functions
    if applied is None:
        return "none"
    state = "outdated" if found.functions_outdated else "current"
    return f"{state}, applied {applied.applied_at:%Y-%m-%d %H:%M %Z} by Watchbill {applied.watchbill_version}"


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
        "standby": found.is_standby,
    }
