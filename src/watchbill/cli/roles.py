"""`watchbill db roles`: which database roles may use the schema, and for what."""

from __future__ import annotations

from typing import Annotated

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, print_json, print_table
from watchbill.cli.screen import say

app = command_group("Make roles for workers, producers, operators and readers, and show who has them.")

Role = Annotated[str, typer.Argument(help="A role of the database, mostly one that can log in.", show_default=False)]
Kind = Annotated[
    str | None,
    typer.Argument(help="The kind of work: owner, worker, producer, operator or reader.", show_default=False),
]
Tenants = Annotated[
    list[str] | None, typer.Option("--tenant", help="A tenant to which the role is bound. May be given several times.")
]


@app.command()
def create(
    ctx: typer.Context,
    prefix: Annotated[str, typer.Option(help="What the names of the roles begin with.")] = "watchbill",
) -> None:
    """Make one group role per kind of work, and give the schema to the owner's. Safe to run again."""
    from watchbill.store.roles import create_roles

    settings, address = ctx.obj.find_direct_address()
    create_roles(address.url, settings.schema, settings.jcron_schema, prefix, report=say)
    say(f"The roles {prefix}_* have the rights of this release. Give them with `watchbill db roles grant`.")


@app.command()
def grant(ctx: typer.Context, role: Role, kind: Kind = None, tenants: Tenants = None) -> None:
    """Let a role do one kind of work, or bind it to tenants: it then sees and writes only their rows."""
    from watchbill.store.roles import grant_role

    settings, address = ctx.obj.find_direct_address()
    _require_kind_or_tenant(kind, tenants)
    hints: list[str] = []
    grant_role(address.url, settings.schema, role, kind, tenants or (), report=hints.append)
    _print_changes(role, f"is a member of the {kind} role" if kind else "", "is bound to", tenants)
    for hint in hints:
        say(hint)


@app.command()
def revoke(ctx: typer.Context, role: Role, kind: Kind = None, tenants: Tenants = None) -> None:
    """Take one kind of work from a role, or unbind it from tenants. Without any, it may act for every tenant."""
    from watchbill.store.roles import revoke_role

    settings, address = ctx.obj.find_direct_address()
    _require_kind_or_tenant(kind, tenants)
    hints: list[str] = []
    revoke_role(address.url, settings.schema, role, kind, tenants or (), report=hints.append)
    _print_changes(role, f"is not a member of the {kind} role" if kind else "", "is not bound to", tenants)
    for hint in hints:
        say(hint)


@app.command()
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the group roles and their members. Exits with 1 if there are none."""
    from watchbill.store.roles import read_bound_roles, read_roles

    settings, address = ctx.obj.find_direct_address()
    found = read_roles(address.url, settings.schema)
    bound = read_bound_roles(address.url, settings.schema)
    if as_json:
        print_json({"roles": [vars(row) for row in found], "bound": bound})
    elif found:
        print_table(("kind", "role", "members"), [(row.kind, row.role, ", ".join(row.members)) for row in found])
        for role, tenants in bound.items():
            say(f"Role {role} is bound to {', '.join(tenants)}.")
    else:
        say("There are no roles: one role does everything. To make them, run `watchbill db roles create`.")
    raise typer.Exit(0 if found else 1)


def _require_kind_or_tenant(kind: str | None, tenants: list[str] | None) -> None:
    if kind is None and not tenants:
        raise Usage("There is nothing to do.", hint="Give a kind of work, --tenant NAME, or both.")


def _print_changes(role: str, membership: str, binding: str, tenants: list[str] | None) -> None:
    if membership:
        say(f"Role {role} {membership}.")
    for tenant in tenants or ():
        say(f"Role {role} {binding} tenant {tenant}.")
