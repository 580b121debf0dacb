"""In whose name a transaction of the dashboard acts, and what the database refuses by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.role_logins import Logins
from watchbill.dashboard.database import Database, NoMember, NotSeparated
from watchbill.dashboard.identity import ROLES, Identity
from watchbill.store.tenants import enable_tenants

WHO = """
  SELECT
    current_user::text, current_setting('watchbill.tenant'), current_setting('watchbill.actor'),
    current_setting('transaction_read_only')"""


def ask(url: str, identity: Identity, statement: str = WHO, **options: Any) -> tuple[Any, ...]:
    async def run() -> tuple[Any, ...]:
        database = Database(lambda: url, "watchbill")
        try:
            async with database.acting(identity, **options) as transaction:
                cursor = await transaction.connection.execute(statement.encode())
                row = await cursor.fetchone()
                assert row is not None
                return row
        finally:
            await database.close()

    return asyncio.run(run())


def test_each_role_acts_as_its_group(logins: Logins) -> None:
    kinds = {
        "reader": "reader",
        "producer": "producer",
        "worker": "worker",
        "operator": "operator",
        "admin": "operator",
    }
    for role in ROLES:
        found = ask(logins.owner_url, Identity("it's ann", role))
        assert found == (f"{logins.prefix}_{kinds[role]}", "", "it's ann", "off")


def test_whoever_looks_cannot_write(logins: Logins) -> None:
    enable_tenants(logins.owner_url, "watchbill")
    for role in ROLES:
        found = ask(logins.owner_url, Identity("ann", role), read_only=True)
        assert found == (f"{logins.prefix}_operator", "", "ann", "on")
    found = ask(logins.owner_url, Identity("ann", "producer", "acme"), read_only=True)
    assert found == (f"{logins.prefix}_reader", "acme", "ann", "on")


def test_nothing_of_a_transaction_is_left_for_the_next_one(logins: Logins) -> None:
    async def run() -> list[Any]:
        database = Database(lambda: logins.owner_url, "watchbill")
        async with database.acting(Identity("ann", "reader"), read_only=True):
            pass
        with pytest.raises(RuntimeError):
            async with database.acting(Identity("ann", "producer")):
                raise RuntimeError
        async with database.acting_as_itself() as transaction:
            cursor = await transaction.connection.execute(WHO.encode())
            found = await cursor.fetchall()
        await database.close()
        return found

    assert asyncio.run(run()) == [("postgres", "", "watchbill dashboard", "off")]


def test_a_tenant_needs_row_security_and_roles(schema_database: str) -> None:
    with pytest.raises(NotSeparated, match="not kept apart"):
        ask(schema_database, Identity("ann", "reader", "acme"))


def test_a_login_without_the_group_is_told_which_one(logins: Logins) -> None:
    with pytest.raises(NoMember, match=r"_reader of the dashboard is not a member of .*_operator"):
        ask(logins.url("reader"), Identity("ann", "operator"))


def test_without_group_roles_only_the_web_checks(schema_database: str) -> None:
    assert ask(schema_database, Identity("ann", "reader"))[0] == "postgres"


@pytest.mark.parametrize(("role", "tenant"), [("operator", "a"), ("worker", "a"), ("admin", "a"), ("king", None)])
def test_identities_that_cannot_be_are_refused(role: Any, tenant: str | None) -> None:
    with pytest.raises(ValueError, match="role"):
        Identity("ann", role, tenant)
