"""`watchbill keys`: who may use the dashboard and the HTTP API."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import Usage
from watchbill.cli.screen import say

app = command_group("Make logins for the dashboard.")

RoleName = Literal["reader", "producer", "worker", "operator", "admin"]


@app.command()
def user(
    name: Annotated[str, typer.Argument(help="The name of the person.")],
    role: Annotated[RoleName, typer.Option(metavar="ROLE", help="reader, producer, operator or admin.")] = "reader",
) -> None:
    """Print an entry of the setting dashboard_users. Asks for the password, or reads it from a pipe."""
    from watchbill.dashboard.sessions import User

    if sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        password = sys.stdin.readline().rstrip("\n")
    if len(password) < 8:
        raise Usage("The password is too short.", hint="Use at least eight characters.")
    try:
        say(User.make(name, role, password).as_setting())
    except ValueError as error:
        raise Usage(f"This user is invalid: {error}.") from None
