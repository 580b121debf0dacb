"""How commands print what they have found, and the errors with which they end."""

from __future__ import annotations

import psycopg
import pytest

from watchbill.cli import _exit_with
from watchbill.cli.doctor import _print_finding
from watchbill.postgres.checks import Finding
from watchbill.store.node_connection import Refused


def test_schema_with_the_name_of_the_command_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("watchbill.errors._command", "manage.py watchbill")
    says = "watchbill is at version 10; `watchbill up` would change it."
    _print_finding(Finding("schema", "note", says, "Run it: watchbill db migrate"))
    assert capsys.readouterr().out == (
        "note     schema         watchbill is at version 10; `manage.py watchbill up` would change it.\n"
        "                        Run it: manage.py watchbill db migrate\n"
    )


def test_worker_without_the_right_to_register_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    refused = Refused("permission denied for function register")
    refused.__cause__ = psycopg.errors.InsufficientPrivilege("permission denied for function register")
    with pytest.raises(SystemExit):
        _exit_with(refused)
    assert capsys.readouterr().err == (
        "Error: This needs the role worker; this login does not have it (permission denied for function register).\n"
        "Use a login with that role, or let an owner run `watchbill db roles grant LOGIN worker`.\n"
    )
